// Which tokens begin with a text and which hold one, for a vocabulary of any size.
#pragma once

#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace strata {

// May be used from any thread; made at the first question.
class TokenBytes {
 public:
  explicit TokenBytes(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}  // must outlive this

  const Tokenizer& tokenizer() const { return tokenizer_; }
  // Tokens that are not empty.
  std::size_t size() const;
  // Neither text may be empty.
  std::span<const TokenId> beginning_with(std::string_view text) const;
  std::vector<TokenId> holding(std::string_view text) const;

 private:
  void make() const;

  const Tokenizer& tokenizer_;
  mutable std::once_flag made_;
  mutable std::vector<TokenId> sorted_;    // by bytes
  mutable std::string joined_;             // their bytes, in that order
  mutable std::vector<std::size_t> ends_;  // of each in it
};

}  // namespace strata
