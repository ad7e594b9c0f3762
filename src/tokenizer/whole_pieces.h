// The texts of a vocabulary's tokens, and which of them are whole pieces of text.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/byte_pairs.h"
#include "tokenizer/tokenizer.h"

namespace strata {

// The bytes of all tokens in one string.
class TokenBytes {
 public:
  std::size_t size() const { return ends_.size(); }
  void append(std::string_view bytes) {
    text_ += bytes;
    ends_.push_back(text_.size());
  }
  std::string_view operator[](std::size_t id) const {
    const std::size_t begin = id == 0 ? 0 : ends_[id - 1];
    return std::string_view(text_).substr(begin, ends_[id] - begin);
  }

 private:
  std::string text_;
  std::vector<std::size_t> ends_;
};

// Most pieces of ordinary text are a token as they stand. This hash table knows the tokens that the
// merging of their own bytes would give, so that merging can be left out for them; or, where the
// vocabulary ignores merges for whole pieces, all normal tokens.
class WholePieces {
 public:
  void build(const TokenBytes& bytes, const std::vector<TokenKind>& kinds, const BytePairs& pairs,
             bool ignore_merges);

  // The token, or -1.
  TokenId find(std::string_view piece, const TokenBytes& bytes) const {
    if (piece.size() > longest_) return -1;
    const std::uint64_t hash = XXH3_64bits(piece.data(), piece.size());
    const auto tag = static_cast<std::uint32_t>(hash >> 32);
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t slot = hash & mask;; slot = (slot + 1) & mask) {
      const Slot& here = slots_[slot];
      if (here.id < 0) return -1;
      if (here.tag == tag && bytes[static_cast<std::size_t>(here.id)] == piece) return here.id;
    }
  }

 private:
  struct Slot {
    std::uint32_t tag = 0;  // high bits of the hash: most other pieces are told apart without bytes
    TokenId id = -1;
  };
  std::vector<Slot> slots_;  // a power of two, at most half of them used
  std::size_t longest_ = 0;
};

}  // namespace strata
