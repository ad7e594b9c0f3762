// The tokens of a vocabulary in the order of their texts, as tries that are walked front to back:
// one of all tokens, and one for each kind of text, so that an automaton that takes whole kinds
// (strings, words) need not be asked about each of their tokens.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "constrain/matcher.h"

namespace strata::constrain {

// Kinds of characters. A text has the set of those in it.
enum class Letters : std::uint8_t {
  lower,
  upper,
  digit,
  space,
  joint,  // _ -
  punctuation,
  less,  // < where marks begin
  quote,
  backslash,
  line,  // tab, line feed, carriage return
  control,
  wide,  // not ASCII
};
inline constexpr unsigned kLetters = 12;
using LetterSet = std::uint16_t;
Letters letters_of(std::uint8_t ascii);

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
  struct Tree {
    std::vector<Node> nodes;
    std::vector<TokenId> tokens;
  };
  // Tokens that are whole characters, all of the same kinds.
  struct Kind {
    LetterSet letters = 0;
    Tree tree;
    std::vector<TokenId> by_length;    // those with few characters first
    std::vector<std::uint32_t> up_to;  // [n] how many of them have at most n characters
  };

  std::vector<std::string> texts;  // by id
  Tree all;
  std::vector<Kind> kinds;
  Tree broken;  // tokens that begin or end inside a character
  std::uint16_t longest = 0;

  // The tokens of these kinds alone, of at most `length` characters, as a mask. Kept for the next
  // who asks, up to a limit; null beyond it. Any thread may ask.
  using Words = std::vector<std::uint64_t>;
  static constexpr std::size_t kMostCovers = 64;
  std::shared_ptr<const Words> cover(LetterSet letters, std::uint32_t length) const;

 private:
  mutable std::mutex lock_;
  mutable std::map<std::pair<LetterSet, std::uint32_t>, std::shared_ptr<const Words>> covers_;
};

}  // namespace strata::constrain
