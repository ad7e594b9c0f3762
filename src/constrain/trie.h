// The tokens of a vocabulary in the order of their texts, as a trie that is walked front to back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "constrain/matcher.h"

namespace strata::constrain {

struct Vocabulary::Trie {
  // Nodes stand in depth-first order: what follows a node up to `end` is below it. The tokens whose
  // text ends at node i are tokens[nodes[i].first_token .. nodes[i + 1].first_token); the last node
  // is a sentinel.
  struct Node {
    std::uint32_t end = 0;
    std::uint32_t first_token = 0;
    std::uint16_t depth = 0;  // 1 for a first byte
    std::uint8_t byte = 0;
  };

  std::vector<std::string> texts;  // by id
  std::vector<Node> nodes;
  std::vector<TokenId> tokens;  // those that have a text
  std::uint16_t longest = 0;
};

}  // namespace strata::constrain
