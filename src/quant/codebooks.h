// The lattice tables of the IQ formats, one word an entry: value j of an entry is byte j, counted
// from the least significant. Unsigned bytes, except that iq1s_grid holds signed ones (-1, 0, 1).
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace strata::quant {

extern const std::array<std::uint64_t, 2048> iq1s_grid;
extern const std::array<std::uint64_t, 256> iq2xxs_grid;
extern const std::array<std::uint64_t, 512> iq2xs_grid;
extern const std::array<std::uint64_t, 1024> iq2s_grid;
extern const std::array<std::uint32_t, 256> iq3xxs_grid;
extern const std::array<std::uint32_t, 512> iq3s_grid;

// IQ4_NL and IQ4_XS: the value of each 4-bit code, in units of the scale.
inline constexpr std::array<std::int8_t, 16> iq4_values = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// The signs of eight values (bit set: negative) from a seven-bit index: the eighth makes the number
// of minus signs even.
constexpr std::uint8_t signs_of_index(std::uint32_t index) {
  const std::uint32_t low = index & 127u;
  return static_cast<std::uint8_t>(low | ((std::popcount(low) & 1u) << 7));
}

}  // namespace strata::quant
