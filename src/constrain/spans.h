// Which characters a state takes as they come: strings, words, free text. A mask need not ask the
// automaton about tokens that consist of nothing else.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "constrain/automata.h"
#include "constrain/trie.h"

namespace strata::constrain {

struct Span {
  static constexpr std::uint32_t kAll = UINT32_MAX;

  LetterSet begins = 0;                  // kinds of which some character may come next
  LetterSet letters = 0;                 // all characters of these kinds, in any order ...
  std::uint32_t certain = 0;             // ... as many as this can follow,
  std::uint32_t last = Automata::kDead;  // up to this state
  bool stops = false;                    // which takes no character of `letters` itself
  bool ends = false;                     // a state before `last` accepts
  bool calls = false;                    // a state before `last` calls
};

// Found when first asked for; not thread-safe.
class Spans {
 public:
  explicit Spans(const Automata& automata) : automata_(automata) {}
  Span of(std::uint32_t state);

 private:
  struct Step {
    LetterSet letters = 0;  // all characters of these kinds lead to `to`
    std::uint32_t to = Automata::kDead;
  };
  Step step(std::uint32_t state);
  LetterSet endless(std::uint32_t state) const;
  Span find(std::uint32_t state);

  const Automata& automata_;
  std::unordered_map<std::uint32_t, Step> steps_;
  std::unordered_map<std::uint32_t, Span> known_;
};

}  // namespace strata::constrain
