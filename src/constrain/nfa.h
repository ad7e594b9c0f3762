// A grammar as nondeterministic automata that call each other: what is determinised next.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "constrain/analysis.h"
#include "constrain/grammar.h"
#include "constrain/matcher.h"

namespace strata::constrain {

// Any of the tokens, or any but them; sorted.
struct TokenSet {
  bool except = false;
  std::vector<TokenId> ids;
  auto operator<=>(const TokenSet&) const = default;
  bool contains(TokenId id) const;
};

struct Nfa {
  static constexpr std::uint32_t kNone = UINT32_MAX;

  struct Range {  // bytes
    std::uint8_t first = 0, last = 0;
    std::uint32_t to = 0;
  };
  struct Edge {  // a call of a rule, or tokens of a set
    std::uint32_t label = 0;
    std::uint32_t to = 0;
  };
  struct State {
    std::vector<std::uint32_t> empty;  // where it may go without reading anything
    std::vector<Range> bytes;
    std::vector<Edge> calls, tokens;
  };
  struct Rule {
    std::string name;
    std::uint32_t start = kNone, last = kNone;
    bool empty = false;  // also matches the empty text; calls of it are bridged
  };

  std::vector<State> states;
  std::vector<Rule> rules;  // the first is the root
  std::vector<TokenSet> token_sets;
};

// Rules that are small or called once are written where they are called. A rule never matches the
// empty text when it is called, as the callers may pass it by.
Result<Nfa> build_nfa(const Grammar& grammar, const Analysis& analysis, const CompileLimits& limits,
                      std::size_t vocabulary);

}  // namespace strata::constrain
