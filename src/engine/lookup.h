// Prompt lookup: guesses the next tokens from an earlier place of the same text that ends in the
// same tokens. Costs no model; good where text repeats itself (edits, code, quotes).
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "tokenizer/token.h"

namespace strata {

// Of one sequence. Memory: about 30 bytes a token.
class Lookup {
 public:
  static constexpr std::uint32_t kGram = 3;      // tokens that must be equal at least
  static constexpr std::uint32_t kPlaces = 16;   // most recent earlier places that are compared
  static constexpr std::uint32_t kLongest = 32;  // equal tokens that are counted

  struct Guess {
    std::vector<TokenId> tokens;  // what followed there; empty: no such place
    std::uint32_t match = 0;      // equal tokens before
  };
  // `tokens` is the sequence so far; only grows from call to call (what was added is indexed).
  Guess guess(std::span<const TokenId> tokens, std::uint32_t most);

 private:
  void index(std::span<const TokenId> tokens);

  std::uint32_t indexed_ = 0;                              // grams that end before this token
  std::unordered_map<std::uint64_t, std::uint32_t> last_;  // end of the last gram of a hash
  std::vector<std::uint32_t> before_;                      // [end]: the one before it; 0: none
};

}  // namespace strata
