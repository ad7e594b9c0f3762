// Expands the generated tables, at compile time.
#include "quant/codebooks.h"

#include <cstddef>

#include "quant/codebooks_generated.h"

namespace strata::quant {
namespace {

// An entry of `Word` has sizeof(Word) values; the packed entry has a code of 16 / sizeof(Word) bits
// for each, from the low bits up, an index into the table's levels.
template <class Word, std::size_t entries, std::size_t levels>
constexpr std::array<Word, entries> expand(const std::uint16_t (&packed)[entries],
                                           const std::int8_t (&level)[levels]) {
  constexpr unsigned bits = 16 / sizeof(Word);
  std::array<Word, entries> grid{};
  for (std::size_t i = 0; i < entries; ++i) {
    for (unsigned j = 0; j < sizeof(Word); ++j) {
      const unsigned code = (packed[i] >> (bits * j)) & ((1u << bits) - 1);
      grid[i] |= static_cast<Word>(static_cast<std::uint8_t>(level[code])) << (8 * j);
    }
  }
  return grid;
}

}  // namespace

constexpr std::array<std::uint64_t, 2048> iq1s_grid =
    expand<std::uint64_t>(packed_iq1s_grid, levels_iq1s_grid);
constexpr std::array<std::uint64_t, 256> iq2xxs_grid =
    expand<std::uint64_t>(packed_iq2xxs_grid, levels_iq2xxs_grid);
constexpr std::array<std::uint64_t, 512> iq2xs_grid =
    expand<std::uint64_t>(packed_iq2xs_grid, levels_iq2xs_grid);
constexpr std::array<std::uint64_t, 1024> iq2s_grid =
    expand<std::uint64_t>(packed_iq2s_grid, levels_iq2s_grid);
constexpr std::array<std::uint32_t, 256> iq3xxs_grid =
    expand<std::uint32_t>(packed_iq3xxs_grid, levels_iq3xxs_grid);
constexpr std::array<std::uint32_t, 512> iq3s_grid =
    expand<std::uint32_t>(packed_iq3s_grid, levels_iq3s_grid);

}  // namespace strata::quant
