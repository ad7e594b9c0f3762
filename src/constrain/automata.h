// What a grammar becomes: deterministic automata, one a rule, that call each other.
#pragma once

#include <cstdint>
#include <vector>

#include "constrain/nfa.h"

namespace strata::constrain {

struct Automata {
  static constexpr std::uint32_t kDead = UINT32_MAX;

  // From a state the text may go on with a byte, with a token, with a rule that is called (and goes
  // on in the state beside it when that rule ends), or, if it accepts, behind the call of its own
  // rule. All that are possible are alive at once. From every state an accepting one of its rule
  // can be reached.
  struct State {
    std::uint32_t bytes = 0, calls = 0, tokens = 0;  // where its edges begin, in the lists below
    std::uint16_t height = 0;  // calls inside each other that its rule needs to end, at least
    bool accepts = false;
    bool plain = false;  // neither ends nor calls
  };
  struct Range {
    std::uint8_t first = 0, last = 0;
    std::uint32_t to = 0;
  };
  struct Call {
    std::uint32_t rule = 0, back = 0;
  };
  struct TokenEdge {
    std::uint32_t set = 0, to = 0;
  };
  // Rules are numbered so that a rule which can begin with another comes before it; the root is the
  // first. A rule that is called reads something: its start does not accept.
  struct Rule {
    std::uint32_t start = kDead;
  };

  std::vector<State> states;  // and a sentinel
  std::vector<Range> ranges;  // of one state: ascending, disjoint
  std::vector<Call> calls;
  std::vector<TokenEdge> token_edges;
  std::vector<Rule> rules;
  std::vector<TokenSet> token_sets;
  bool empty = false;  // the empty text is an answer
  // States with many ranges also have a row of 256 states here, `row` tells which.
  std::vector<std::uint32_t> row;  // [states], kDead for those without
  std::vector<std::uint32_t> rows;

  std::uint32_t next(std::uint32_t state, std::uint8_t byte) const {
    if (row[state] != kDead) return rows[std::size_t{row[state]} * 256 + byte];
    std::uint32_t low = states[state].bytes, high = states[state + 1].bytes;
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      const Range& range = ranges[middle];
      if (byte < range.first)
        high = middle;
      else if (byte > range.last)
        low = middle + 1;
      else
        return range.to;
    }
    return kDead;
  }
  bool has_bytes(std::uint32_t s) const { return states[s].bytes != states[s + 1].bytes; }
  bool has_calls(std::uint32_t s) const { return states[s].calls != states[s + 1].calls; }
  bool has_tokens(std::uint32_t s) const { return states[s].tokens != states[s + 1].tokens; }
};

// Left recursion becomes a loop (see determinise.cpp). `exhausted` names the limit and the rule.
Result<Automata> determinise(const Nfa& nfa, const CompileLimits& limits);

}  // namespace strata::constrain
