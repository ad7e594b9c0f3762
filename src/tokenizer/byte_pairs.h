// Byte pair encoding of one piece of text: of all neighbouring pairs the one with the lowest rank
// is merged first, the leftmost first among equals, until no pair has a merge.
//
// Filled once, then used from several threads. Pieces of any length take O(n log n) time.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/token.h"

namespace strata {

// (left, right) -> (rank, merged), as an open-addressing hash table: a look-up is one or two cache
// lines, and nearly all the time of an encoding goes into look-ups.
class MergeTable {
 public:
  static constexpr std::uint32_t kNoRank = 0xFFFFFFFF;
  struct Merge {
    std::uint32_t rank = kNoRank;
    TokenId merged = -1;
  };

  // An empty table with room for `merges`; at most 2^28.
  explicit MergeTable(std::size_t merges = 0);
  // Ids are not negative. False, and no change, if the pair has a merge already. At most as many
  // insertions as the constructor made room for.
  bool insert(TokenId left, TokenId right, Merge merge);
  // rank is kNoRank if the pair has no merge.
  Merge find(TokenId left, TokenId right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t slot = first_slot(key);; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) return slots_[slot].merge;
      if (slots_[slot].key == kEmpty) return {};
    }
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge;
  };

  static std::uint64_t key_of(TokenId left, TokenId right) {
    return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32) |
           static_cast<std::uint32_t>(right);
  }
  std::size_t first_slot(std::uint64_t key) const {
    key = (key ^ (key >> 32)) * 0x9E3779B97F4A7C15u;  // Fibonacci hashing: use the high bits
    return static_cast<std::size_t>(key >> shift_);
  }

  std::vector<Slot> slots_;  // a power of two, at most half of them used
  std::size_t mask_ = 0;
  unsigned shift_ = 0;
};

class BytePairs {
 public:
  // Pieces up to this many bytes are merged in place on the stack; longer ones with a heap.
  static constexpr std::size_t kShort = 64;

  BytePairs() = default;
  BytePairs(const std::array<TokenId, 256>& byte_tokens, MergeTable merges)
      : byte_tokens_(byte_tokens), merges_(std::move(merges)) {}

  // Appends the ids of `piece`.
  void encode(std::string_view piece, std::vector<TokenId>& out) const;

 private:
  void encode_short(std::string_view piece, std::vector<TokenId>& out) const;
  void encode_long(std::string_view piece, std::vector<TokenId>& out) const;

  std::array<TokenId, 256> byte_tokens_{};
  MergeTable merges_;
};

}  // namespace strata
