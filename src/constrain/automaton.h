// The tables behind Regular, for this folder's own sources: how an automaton is stored, how one is
// built, and how it becomes minimal.
#pragma once

#include <algorithm>
#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "constrain/regular.h"
#include "constrain/time_limit.h"

namespace strata::constrain {

// A partition of the 256 bytes: automata treat bytes of one class alike.
struct ByteClasses {
  std::array<std::uint8_t, 256> of{};  // [byte] its class
  std::uint32_t count = 1;

  void refine(const ByteClasses& other);  // bytes stay together if they are in both
  void refine(const std::bitset<256>& set);
  void refine(std::uint8_t byte);
  std::vector<std::uint8_t> representatives() const;  // [class] its lowest byte
  bool operator==(const ByteClasses& other) const = default;
};

// A state's row holds, for each class, where it leads. Long chains of like states (repetitions)
// share their rows: most entries say how far away the target is, not which one.
struct Regular::Automaton {
  ByteClasses classes;
  State start = kDead;
  std::vector<std::uint32_t> row_of;    // [state] the position of its row in `rows`
  std::vector<std::uint32_t> rows;      // [rows, classes] entries
  std::vector<std::uint8_t> accepting;  // [state] 0 or 1
  // The only text, where the language was made from one: lists of words become tries directly.
  std::optional<std::string> word;
  // The other way to say it, where the language was made as copies side by side.
  struct Repetition {
    Regular part;
    std::uint32_t least = 0;
    std::optional<std::uint32_t> most;
  };
  std::shared_ptr<const Repetition> repetition;

  static constexpr std::uint32_t kNone = UINT32_MAX;
  static std::uint32_t near(State from, State to) { return (to - from) << 1; }
  static std::uint32_t far(State to) { return to << 1 | 1; }

  std::uint32_t states() const { return static_cast<std::uint32_t>(row_of.size()); }
  State next_of_class(State state, std::uint32_t byte_class) const {
    const std::uint32_t entry = rows[row_of[state] + byte_class];
    if ((entry & 1) == 0) return state + static_cast<State>(static_cast<std::int32_t>(entry) >> 1);
    return entry == kNone ? kDead : entry >> 1;
  }
  State next(State state, std::uint8_t byte) const {
    return next_of_class(state, classes.of[byte]);
  }
  std::uint32_t memory() const;  // bytes
};

// What one operation may still use.
class Budget {
 public:
  explicit Budget(const RegularLimits& limits) : limits_(limits) {}
  bool take(std::uint64_t steps) {
    steps_ += std::min(steps, limits_.steps + 1);
    return steps_ <= limits_.steps && !TimeLimit::over();
  }
  bool holds(std::uint64_t states) const { return states <= limits_.states; }
  // Which of them, or of the time, is used up.
  Error error() const;

 private:
  RegularLimits limits_;
  std::uint64_t steps_ = 0;
};

// A deterministic automaton that is being built: any states, a dense row for each.
struct Table {
  using State = Regular::State;

  explicit Table(const ByteClasses& byte_classes) : classes(byte_classes) {}
  State add(bool accepts = false) {
    next.resize(next.size() + classes.count, Regular::kDead);
    accepting.push_back(accepts ? 1 : 0);
    return static_cast<State>(accepting.size() - 1);
  }
  std::uint32_t states() const { return static_cast<std::uint32_t>(accepting.size()); }
  State& at(State state, std::uint32_t byte_class) {
    return next[std::size_t{state} * classes.count + byte_class];
  }
  State at(State state, std::uint32_t byte_class) const {
    return next[std::size_t{state} * classes.count + byte_class];
  }
  // All bytes of `set`, which must be whole classes.
  void connect(State from, std::uint8_t byte, State to) { at(from, classes.of[byte]) = to; }

  ByteClasses classes;
  State start = Regular::kDead;
  std::vector<State> next;              // [states, classes]
  std::vector<std::uint8_t> accepting;  // [states]
};

// The same language without states that cannot be reached or cannot end, with the fewest states
// and the fewest classes.
Regular minimal(const Table& table);
// Of a table that has the fewest states already.
Regular already_minimal(const Table& table);

// A deterministic automaton over characters; the first state is its start. The sets of one state
// have no character in common.
struct CharacterStep {
  std::vector<CodePoints> in;
  std::uint32_t to = 0;  // number of a state
};
struct CharacterState {
  bool accepting = false;
  std::vector<CharacterStep> steps;
};
Regular over_characters(std::span<const CharacterState> states);

// `open`, then `part` from least to most times, then `close`; in time linear in the result. `part`
// must be countable(), and none of its texts may start with the first byte of `close`.
Result<Regular> counted(std::string_view open, const Regular& part, std::uint32_t least,
                        std::optional<std::uint32_t> most, std::string_view close, Budget& budget);
// Whether copies of `part` side by side are a minimal automaton of its repetition. They are
// deterministic if no text is the beginning of another. With a bound the longest text that a state
// still allows names its copy, if texts are finite. Without one a byte that can only begin a text
// tells the starts of copies from all other states; and the number still needed tells them apart.
bool countable(const Regular& part, std::uint32_t least, std::optional<std::uint32_t> most);

// For each state what `text` (of which any text may be followed by any) is in after the same bytes;
// empty if the language has texts that are not in `text`, or reads one in two ways.
std::vector<Regular::State> text_positions(const Regular& language,
                                           const Regular& text = Regular::text());

// The operations of regular.h, and some more, for a caller that uses several within one limit.
// `anything` is what any text may be followed by: where it is the last part, the rest is dropped
// once it is reached.
Result<Regular> concat(std::span<const Regular> parts, Budget& budget,
                       const Regular& anything = Regular::text());
Result<Regular> either(std::span<const Regular> parts, Budget& budget);
Result<Regular> repeat(const Regular& part, std::uint32_t least, std::optional<std::uint32_t> most,
                       Budget& budget);
Result<Regular> both(const Regular& a, const Regular& b, Budget& budget);
Result<Regular> without(const Regular& a, const Regular& b, Budget& budget);

// Marks are bytes of no character that say something about their place in a text.
using Marks = std::bitset<256>;
// The texts without their marks.
Result<Regular> erased(const Regular& language, const Marks& marks, Budget& budget);
// The texts with any marks added anywhere.
Result<Regular> scattered(const Regular& language, const Marks& marks, Budget& budget);

}  // namespace strata::constrain
