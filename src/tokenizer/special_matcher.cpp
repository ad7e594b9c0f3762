#include "tokenizer/special_matcher.h"

#include <algorithm>

namespace strata {

SpecialMatcher::SpecialMatcher() : nodes_(1) {}

std::uint32_t SpecialMatcher::child(std::uint32_t node, std::uint8_t byte) const {
  for (node = nodes_[node].child; node != 0 && nodes_[node].byte != byte;) {
    node = nodes_[node].sibling;
  }
  return node;
}

void SpecialMatcher::add(std::string_view literal, TokenId id, bool control) {
  const auto append = [&](std::uint8_t byte, std::uint32_t sibling) {
    Node node;
    node.byte = byte;
    node.sibling = sibling;
    nodes_.push_back(node);
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  };
  std::uint32_t& root = roots_[static_cast<std::uint8_t>(literal[0])];
  if (root == 0) root = append(static_cast<std::uint8_t>(literal[0]), 0);
  std::uint32_t node = root;
  for (const char c : literal.substr(1)) {
    const auto byte = static_cast<std::uint8_t>(c);
    std::uint32_t below = child(node, byte);
    if (below == 0) {
      below = append(byte, nodes_[node].child);
      nodes_[node].child = below;
    }
    node = below;
  }
  nodes_[node].id = id;
  nodes_[node].control = control;
  longest_ = std::max(longest_, literal.size());
}

std::optional<SpecialMatcher::Match> SpecialMatcher::next(std::string_view text, std::size_t from,
                                                          bool controls) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    std::uint32_t node = roots_[static_cast<std::uint8_t>(text[begin])];
    Match longest;
    for (std::size_t end = begin + 1; node != 0; ++end) {
      const Node& here = nodes_[node];
      if (here.id >= 0 && (controls || !here.control)) longest = {begin, end - begin, here.id};
      if (end == text.size()) break;
      node = child(node, static_cast<std::uint8_t>(text[end]));
    }
    if (longest.id >= 0) return longest;
  }
  return std::nullopt;
}

std::optional<TokenId> SpecialMatcher::find(std::string_view literal) const {
  if (literal.empty()) return std::nullopt;
  std::uint32_t node = roots_[static_cast<std::uint8_t>(literal[0])];
  for (std::size_t i = 1; i < literal.size() && node != 0; ++i) {
    node = child(node, static_cast<std::uint8_t>(literal[i]));
  }
  if (node == 0 || nodes_[node].id < 0) return std::nullopt;
  return nodes_[node].id;
}

}  // namespace strata
