#include "tokenizer/whole_pieces.h"

#include <algorithm>
#include <bit>

namespace strata {

void WholePieces::build(const TokenBytes& bytes, const std::vector<TokenKind>& kinds,
                        const BytePairs& pairs, bool ignore_merges) {
  const std::size_t size = std::bit_ceil(2 * bytes.size() + 2);
  slots_.assign(size, {});
  longest_ = 0;
  std::vector<TokenId> ids;
  for (std::size_t id = 0; id < bytes.size(); ++id) {
    const std::string_view piece = bytes[id];
    if (kinds[id] != TokenKind::normal) continue;
    if (!ignore_merges) {
      if (piece.size() > BytePairs::kShort) continue;  // rare, and slow to hash
      ids.clear();
      pairs.encode(piece, ids);
      if (ids.size() != 1 || ids[0] != static_cast<TokenId>(id)) continue;
    }
    const std::uint64_t hash = XXH3_64bits(piece.data(), piece.size());
    std::size_t slot = hash & (size - 1);
    while (slots_[slot].id >= 0) slot = (slot + 1) & (size - 1);
    slots_[slot] = {static_cast<std::uint32_t>(hash >> 32), static_cast<TokenId>(id)};
    longest_ = std::max(longest_, piece.size());
  }
}

}  // namespace strata
