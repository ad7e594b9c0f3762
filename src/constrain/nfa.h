// A grammar as nondeterministic automata that call each other: what is determinised next.
#pragma once

#include <cstdint>
#include <map>
#include <span>
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
  // Most states have bytes alone, and there are many: they are small, and nothing is theirs.
  struct State {
    std::uint32_t first_range = 0, ranges = 0;  // in Nfa::ranges: ascending, disjoint
    std::uint32_t empty = kNone;  // in `links`: where it may go without reading anything
    std::uint32_t edges = kNone;  // in `edges`: its calls and tokens
  };
  struct Link {
    std::uint32_t to = 0, next = kNone;
  };
  struct Edges {
    std::vector<Edge> calls, tokens;
  };
  struct Rule {
    std::string name;
    std::uint32_t start = kNone, last = kNone;
    bool empty = false;  // also matches the empty text; calls of it are bridged
  };

  std::span<const Range> bytes(std::uint32_t state) const {
    return std::span(ranges).subspan(states[state].first_range, states[state].ranges);
  }
  std::span<const Edge> calls(std::uint32_t state) const {
    if (states[state].edges == kNone) return {};
    return edges[states[state].edges].calls;
  }
  std::span<const Edge> tokens(std::uint32_t state) const {
    if (states[state].edges == kNone) return {};
    return edges[states[state].edges].tokens;
  }
  // It reads something: bytes, a rule or a token.
  bool reads(std::uint32_t state) const {
    return states[state].ranges > 0 || states[state].edges != kNone;
  }
  Edges& edges_of(std::uint32_t state) {
    if (states[state].edges == kNone) {
      states[state].edges = static_cast<std::uint32_t>(edges.size());
      edges.emplace_back();
    }
    return edges[states[state].edges];
  }

  std::vector<State> states;
  std::vector<Range> ranges;
  std::vector<Link> links;
  std::vector<Edges> edges;
  std::vector<Rule> rules;  // the first is the root
  std::vector<TokenSet> token_sets;
};

// Rules that are small or called once are written where they are called. A rule never matches the
// empty text when it is called, as the callers may pass it by.
Result<Nfa> build_nfa(const Grammar& grammar, const Analysis& analysis, const CompileLimits& limits,
                      std::size_t vocabulary);

}  // namespace strata::constrain
