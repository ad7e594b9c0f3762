// Finds the literals of special tokens in text: from left to right, the longest at each position.
// Filled once, then used from several threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/token.h"

namespace strata {

class SpecialMatcher {
 public:
  // A longer literal would make scanning slow for files made to do so: the cost of a position is at
  // most the length of the longest literal.
  static constexpr std::size_t kLongestLiteral = 256;

  struct Match {
    std::size_t begin = 0;
    std::size_t length = 0;
    TokenId id = -1;
  };

  SpecialMatcher();
  // `literal` has 1 to kLongestLiteral bytes and was not added before.
  void add(std::string_view literal, TokenId id, bool control);
  // The first match at or after `from`. Control tokens count only if `controls`.
  std::optional<Match> next(std::string_view text, std::size_t from, bool controls) const;
  // The token whose literal is exactly this.
  std::optional<TokenId> find(std::string_view literal) const;
  // Bytes of the longest literal, 0 without any.
  std::size_t longest() const { return longest_; }

 private:
  // A trie; the children of a node are a list. Node 0 is "none".
  struct Node {
    std::uint32_t child = 0;
    std::uint32_t sibling = 0;
    TokenId id = -1;  // of the literal that ends here
    std::uint8_t byte = 0;
    bool control = false;
  };
  std::uint32_t child(std::uint32_t node, std::uint8_t byte) const;

  std::vector<Node> nodes_;
  std::array<std::uint32_t, 256> roots_{};  // by first byte
  std::size_t longest_ = 0;
};

}  // namespace strata
