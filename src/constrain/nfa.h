// A grammar as nondeterministic automata that call each other: what is determinised next.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "constrain/analysis.h"
#include "constrain/grammar.h"
#include "constrain/matcher.h"

namespace strata::constrain {

// Ends a compilation that takes too long. Cheap to ask.
class Deadline {
 public:
  explicit Deadline(double seconds)
      : end_(std::chrono::steady_clock::now() +
             std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                 std::chrono::duration<double>(seconds))),
        seconds_(seconds) {}
  Status check() {
    if (++asked_ % 256 != 0 || std::chrono::steady_clock::now() < end_) return {};
    return fail(ErrorCode::exhausted,
                "the constraint takes more than {} s to compile; make it smaller", seconds_);
  }

 private:
  std::chrono::steady_clock::time_point end_;
  double seconds_;
  std::uint32_t asked_ = 0;
};

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
                      std::size_t vocabulary, Deadline& deadline);

}  // namespace strata::constrain
