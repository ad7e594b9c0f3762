// Operations on languages: subset constructions over the automata of the operands, products, and
// the languages of characters.
#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "constrain/automaton.h"

namespace strata::constrain {
namespace {

using State = Regular::State;
using Automaton = Regular::Automaton;

// A place is a state of one of the operands, as the construction numbers them.
using Place = std::uint32_t;
constexpr Place kEnd = UINT32_MAX;  // the text so far belongs to the result

// Deterministic automata from sets of places. `step(place, byte, out)` appends where a place leads,
// kEnd included; `prune(set)` may drop places of a sorted set that add nothing.
template <class Step, class Prune>
class Subsets {
 public:
  Subsets(const ByteClasses& classes, Budget& budget, Step step, Prune prune)
      : table_(classes),
        bytes_(classes.representatives()),
        budget_(budget),
        step_(std::move(step)),
        prune_(std::move(prune)),
        known_(64, Hash{this}, Equal{this}) {}

  Result<Regular> run(std::vector<Place> start) {
    table_.start = state_of(start);
    for (State s = 0; s < table_.states(); ++s) {
      for (std::uint32_t c = 0; c < table_.classes.count; ++c) {
        next_.clear();
        const std::size_t first = sets_[s].first;
        const std::size_t last = sets_[s].last;
        if (!budget_.take(1 + last - first)) return tl::unexpected(budget_.error());
        for (std::size_t i = first; i < last; ++i)
          if (pool_[i] != kEnd) step_(pool_[i], bytes_[c], next_);
        if (next_.empty()) continue;
        if (!budget_.take(next_.size())) return tl::unexpected(budget_.error());
        const State to = state_of(next_);
        table_.at(s, c) = to;
        if (!budget_.holds(table_.states())) return tl::unexpected(budget_.error());
      }
    }
    return minimal(table_);
  }

 private:
  struct Set {
    std::size_t first, last;  // in pool_
  };
  struct Hash {
    const Subsets* owner;
    std::size_t operator()(State s) const {
      std::uint64_t hash = 0;
      for (std::size_t i = owner->sets_[s].first; i < owner->sets_[s].last; ++i)
        hash = (hash ^ owner->pool_[i]) * 0x9E3779B97F4A7C15 + (hash >> 29);
      return hash;
    }
  };
  struct Equal {
    const Subsets* owner;
    bool operator()(State a, State b) const {
      const Set& x = owner->sets_[a];
      const Set& y = owner->sets_[b];
      const Place* pool = owner->pool_.data();
      return std::equal(pool + x.first, pool + x.last, pool + y.first, pool + y.last);
    }
  };

  State state_of(std::vector<Place>& places) {
    std::ranges::sort(places);
    places.erase(std::unique(places.begin(), places.end()), places.end());
    prune_(places);
    const std::size_t first = pool_.size();
    pool_.insert(pool_.end(), places.begin(), places.end());
    sets_.push_back({first, pool_.size()});
    const auto candidate = static_cast<State>(sets_.size() - 1);
    const auto [known, fresh] = known_.insert(candidate);
    if (fresh) return table_.add(!places.empty() && places.back() == kEnd);
    pool_.resize(first);
    sets_.pop_back();
    return *known;
  }

  Table table_;
  std::vector<std::uint8_t> bytes_;
  Budget& budget_;
  Step step_;
  Prune prune_;
  std::vector<Place> pool_;  // the sets' places, one set after the other
  std::vector<Set> sets_;    // [state]
  std::vector<Place> next_;
  std::unordered_set<State, Hash, Equal> known_;
};

ByteClasses common_classes(std::span<const Regular> parts) {
  ByteClasses classes;
  for (const Regular& part : parts) classes.refine(part.automaton().classes);
  return classes;
}

// Operands side by side: the place of a state is the operand's first place and the state.
class SideBySide {
 public:
  explicit SideBySide(std::span<const Regular> parts) : parts_(parts) {
    std::uint64_t places = 0;
    for (std::uint32_t i = 0; i < parts.size(); ++i) {
      first_.push_back(static_cast<Place>(places));
      places += parts[i].states();
      fits_ = fits_ && places < kEnd;
      if (fits_) part_.resize(places, i);
    }
  }
  bool fits() const { return fits_; }
  std::uint32_t part_of(Place place) const { return part_[place]; }
  State state_of(Place place) const { return place - first_[part_[place]]; }
  Place place(std::uint32_t part, State state) const { return first_[part] + state; }
  const Automaton& automaton(std::uint32_t part) const { return parts_[part].automaton(); }
  std::uint32_t parts() const { return static_cast<std::uint32_t>(parts_.size()); }

 private:
  std::span<const Regular> parts_;
  std::vector<Place> first_;         // [part]
  std::vector<std::uint32_t> part_;  // [place]
  bool fits_ = true;
};

// Words as a trie: what a list of names or choices is.
Result<Regular> trie(std::vector<std::string_view> words, Budget& budget) {
  std::ranges::sort(words);
  std::bitset<256> used;
  for (const std::string_view word : words)
    for (const char byte : word) used.set(static_cast<std::uint8_t>(byte));
  ByteClasses classes;
  for (unsigned byte = 0; byte < 256; ++byte)
    if (used[byte]) classes.refine(static_cast<std::uint8_t>(byte));
  Table table(classes);
  table.start = table.add();
  std::vector<State> path{table.start};  // of the word before
  std::string_view before;
  for (const std::string_view word : words) {
    const auto common =
        static_cast<std::size_t>(std::ranges::mismatch(word, before).in1 - word.begin());
    path.resize(common + 1);
    for (const char byte : word.substr(common)) {
      const State to = table.add();
      table.connect(path.back(), static_cast<std::uint8_t>(byte), to);
      path.push_back(to);
      if (!budget.holds(table.states()) || !budget.take(classes.count))
        return tl::unexpected(budget.error());
    }
    table.accepting[path.back()] = 1;
    before = word;
  }
  return minimal(table);
}

// Characters, or the last digits of some, and the state that is behind them.
struct Range {
  std::uint32_t first, last;
  State to;
  auto operator<=>(const Range&) const = default;
};

// States by what can follow: `count` continuation bytes whose six bits each make one of the
// numbers in `in`. Equal ones are one state, so that planes and blocks share theirs.
class Continuations {
 public:
  explicit Continuations(Table& table) : table_(table) {}

  State of(unsigned count, const std::vector<Range>& in) {
    if (in.empty()) return Regular::kDead;
    if (count == 0) return in.front().to;
    const auto [known, fresh] = known_.try_emplace({count, in}, Regular::kDead);
    if (!fresh) return known->second;
    const State state = table_.add();
    known->second = state;
    for_digits(in, 6 * (count - 1), [&](std::uint32_t digit, const std::vector<Range>& rest) {
      const State to = of(count - 1, rest);
      table_.connect(state, static_cast<std::uint8_t>(0x80 | digit), to);
    });
    return state;
  }

  // Calls use(digit, rest) for the numbers of `in`, by what stands above the lowest `bits`.
  template <class Use>
  static void for_digits(const std::vector<Range>& in, unsigned bits, const Use& use) {
    std::vector<Range> rest;
    std::uint32_t digit = 0;
    const std::uint32_t low = (1U << bits) - 1;
    for (const Range& range : in) {
      for (std::uint32_t d = range.first >> bits; d <= range.last >> bits; ++d) {
        if (!rest.empty() && d != digit) {
          use(digit, rest);
          rest.clear();
        }
        digit = d;
        rest.push_back({d == range.first >> bits ? range.first & low : 0,
                        d == range.last >> bits ? range.last & low : low, range.to});
      }
    }
    if (!rest.empty()) use(digit, rest);
  }

 private:
  Table& table_;
  std::map<std::pair<unsigned, std::vector<Range>>, State> known_;
};

// All bytes that the table distinguishes by hand are single: characters need every one.
ByteClasses single_bytes() {
  ByteClasses classes;
  for (unsigned byte = 0; byte < 256; ++byte) classes.of[byte] = static_cast<std::uint8_t>(byte);
  classes.count = 256;
  return classes;
}

// The part of sorted `in` within first .. last.
std::vector<Range> clipped(const std::vector<Range>& in, std::uint32_t first, std::uint32_t last) {
  std::vector<Range> result;
  for (const Range& range : in)
    if (range.first <= last && range.last >= first)
      result.push_back({std::max(range.first, first), std::min(range.last, last), range.to});
  return result;
}

// Sorted, apart from each other, without surrogates.
std::vector<Range> normal(std::span<const CharacterStep> steps) {
  std::vector<Range> sorted;
  for (const CharacterStep& step : steps)
    for (const CodePoints& points : step.in)
      if (points.first <= points.last && points.first <= kLastCodePoint)
        sorted.push_back(
            {points.first, std::min<std::uint32_t>(points.last, kLastCodePoint), step.to});
  std::ranges::sort(sorted);
  std::vector<Range> joined;
  for (const Range& range : sorted) {
    if (!joined.empty() && range.to == joined.back().to && range.first <= joined.back().last + 1)
      joined.back().last = std::max(joined.back().last, range.last);
    else
      joined.push_back(range);
  }
  std::vector<Range> result = clipped(joined, 0, 0xD7FF);
  const std::vector<Range> above = clipped(joined, 0xE000, kLastCodePoint);
  result.insert(result.end(), above.begin(), above.end());
  return result;
}

// Pairs of states as the states of a product.
class Pairs {
 public:
  Pairs(std::uint32_t a, std::uint32_t b) : columns_(b) {
    constexpr std::uint64_t kDense = std::uint64_t{1} << 20;
    if (std::uint64_t{a} * b <= kDense) dense_.resize(std::size_t{a} * b, Regular::kDead);
  }
  State& at(State a, State b) {
    const std::uint64_t key = std::uint64_t{a} * columns_ + b;
    if (!dense_.empty()) return dense_[key];
    return sparse_.try_emplace(key, Regular::kDead).first->second;
  }

 private:
  std::uint32_t columns_;
  std::vector<State> dense_;
  std::unordered_map<std::uint64_t, State> sparse_;
};

// Runs both automata at once. A text belongs to the result if it does to `a` and, as `in_b` says,
// to `b` too or not.
Result<Regular> product(const Regular& a, const Regular& b, bool in_b, Budget& budget) {
  ByteClasses classes = a.automaton().classes;
  classes.refine(b.automaton().classes);
  const std::vector<std::uint8_t> bytes = classes.representatives();
  const State lost = b.states();  // b's dead state, which may go on if it need not hold
  Table table(classes);
  Pairs known(a.states(), b.states() + 1);
  std::vector<std::pair<State, State>> pairs;
  const auto state_of = [&](State x, State y) {
    if (x == Regular::kDead || (y == Regular::kDead && in_b)) return Regular::kDead;
    State& state = known.at(x, y == Regular::kDead ? lost : y);
    if (state == Regular::kDead) {
      state = table.add(a.accepting(x) && b.accepting(y) == in_b);
      pairs.emplace_back(x, y);
    }
    return state;
  };
  table.start = state_of(a.start(), b.start());
  for (State s = 0; s < table.states(); ++s) {
    if (!budget.take(bytes.size()) || !budget.holds(table.states()))
      return tl::unexpected(budget.error());
    const auto [x, y] = pairs[s];
    for (std::uint32_t c = 0; c < bytes.size(); ++c) {
      const State to = state_of(a.next(x, bytes[c]), b.next(y, bytes[c]));
      table.at(s, c) = to;
    }
  }
  return minimal(table);
}

bool is_part_of(const Regular& language, const Regular& text) {
  return language.is_nothing() || !text_positions(language, text).empty();
}

}  // namespace

Regular Regular::characters(std::span<const CodePoints> in) {
  const CharacterState states[] = {{false, {{{in.begin(), in.end()}, 1}}}, {true, {}}};
  return over_characters(states);
}

Regular over_characters(std::span<const CharacterState> states) {
  struct Length {
    std::uint32_t first, last, lead;
  };
  // Of one, two, three and four bytes.
  constexpr Length kLengths[] = {
      {0, 0x7F, 0}, {0x80, 0x7FF, 0xC0}, {0x800, 0xFFFF, 0xE0}, {0x10000, 0x10FFFF, 0xF0}};
  Table table(single_bytes());
  for (const CharacterState& state : states) table.add(state.accepting);
  table.start = 0;
  Continuations continuations(table);
  for (State from = 0; from < states.size(); ++from) {
    const std::vector<Range> ranges = normal(states[from].steps);
    for (unsigned more = 0; more < 4; ++more) {
      const Length& length = kLengths[more];
      Continuations::for_digits(clipped(ranges, length.first, length.last), 6 * more,
                                [&](std::uint32_t digit, const std::vector<Range>& rest) {
                                  const State to = continuations.of(more, rest);
                                  table.connect(from,
                                                static_cast<std::uint8_t>(length.lead | digit), to);
                                });
    }
  }
  return minimal(table);
}

Regular Regular::any_character() {
  static const Regular language = [] {
    constexpr CodePoints kAll[] = {{0, kLastCodePoint}};
    return characters(kAll);
  }();
  return language;
}

const Regular& Regular::text() {
  static const Regular language = [] {
    // A character's end is its beginning.
    const Automaton& character = any_character().automaton();
    Table table(character.classes);
    for (State s = 0; s < character.states(); ++s) table.add(s == character.start);
    for (State s = 0; s < character.states(); ++s) {
      for (std::uint32_t c = 0; c < character.classes.count; ++c) {
        const State to = character.next_of_class(s, c);
        if (to != kDead) table.at(s, c) = character.accepting[to] != 0 ? character.start : to;
      }
    }
    table.start = character.start;
    return minimal(table);
  }();
  return language;
}

Result<Regular> concat(std::span<const Regular> parts, Budget& budget, const Regular& anything) {
  if (parts.empty()) return Regular::empty();
  if (parts.size() == 1) return parts[0];
  if (std::ranges::any_of(parts, &Regular::is_nothing)) return Regular();
  if (std::ranges::all_of(parts, [](const Regular& p) { return p.automaton().word.has_value(); })) {
    std::string word;
    for (const Regular& part : parts) word += *part.automaton().word;
    if (!budget.holds(word.size()) || !budget.take(word.size()))
      return tl::unexpected(budget.error());
    return Regular::literal(word);
  }
  const SideBySide places(parts);
  if (!places.fits()) return tl::unexpected(budget.error());
  // The part, and those after it that can be reached through empty ones; each once for a set.
  std::vector<std::uint32_t> entered(parts.size() + 1, 0);
  std::uint32_t set_number = 0;
  const auto enter = [&](std::uint32_t part, std::vector<Place>& out) {
    for (; entered[part] != set_number; ++part) {
      entered[part] = set_number;
      if (part == places.parts()) {
        out.push_back(kEnd);
        return;
      }
      const Automaton& automaton = places.automaton(part);
      out.push_back(places.place(part, automaton.start));
      if (automaton.accepting[automaton.start] == 0) return;
    }
  };
  const auto step = [&](Place place, std::uint8_t byte, std::vector<Place>& out) {
    const std::uint32_t part = places.part_of(place);
    const Automaton& automaton = places.automaton(part);
    const State to = automaton.next(places.state_of(place), byte);
    if (to == Regular::kDead) return;
    if (out.empty()) ++set_number;
    out.push_back(places.place(part, to));
    if (automaton.accepting[to] != 0) enter(part + 1, out);
  };
  // Once any text may follow, no other reading adds one.
  const bool open =
      parts.back() == anything &&
      std::ranges::all_of(parts, [&](const Regular& part) { return is_part_of(part, anything); });
  const Place all = places.place(places.parts() - 1, parts.back().start());
  const auto prune = [&](std::vector<Place>& set) {
    if (open && std::ranges::binary_search(set, all)) set = {all, kEnd};
  };
  std::vector<Place> start;
  ++set_number;
  enter(0, start);
  return Subsets(common_classes(parts), budget, step, prune).run(std::move(start));
}

Result<Regular> either(std::span<const Regular> parts, Budget& budget) {
  std::vector<std::string_view> words;
  std::vector<Regular> others;
  for (const Regular& part : parts) {
    if (part.automaton().word)
      words.push_back(*part.automaton().word);
    else if (!part.is_nothing())
      others.push_back(part);
  }
  if (!words.empty()) {
    STRATA_ASSIGN(Regular list, words.size() == 1 ? Result<Regular>(Regular::literal(words[0]))
                                                  : trie(words, budget));
    others.push_back(std::move(list));
  }
  if (others.empty()) return Regular();
  if (others.size() == 1) return others[0];
  const SideBySide places(others);
  if (!places.fits()) return tl::unexpected(budget.error());
  const auto step = [&](Place place, std::uint8_t byte, std::vector<Place>& out) {
    const std::uint32_t part = places.part_of(place);
    const Automaton& automaton = places.automaton(part);
    const State to = automaton.next(places.state_of(place), byte);
    if (to == Regular::kDead) return;
    out.push_back(places.place(part, to));
    if (automaton.accepting[to] != 0) out.push_back(kEnd);
  };
  std::vector<Place> start;
  for (std::uint32_t part = 0; part < places.parts(); ++part) {
    const Automaton& automaton = places.automaton(part);
    start.push_back(places.place(part, automaton.start));
    if (automaton.accepting[automaton.start] != 0) start.push_back(kEnd);
  }
  return Subsets(common_classes(others), budget, step, [](std::vector<Place>&) {})
      .run(std::move(start));
}

Result<Regular> repeat(const Regular& part, std::uint32_t least, std::optional<std::uint32_t> most,
                       Budget& budget) {
  if (most && *most < least)
    return fail(ErrorCode::invalid_argument, "a repetition of at least {} and at most {}", least,
                *most);
  const Automaton& automaton = part.automaton();
  if (most == 0U) return Regular::empty();
  if (part.is_nothing()) return least == 0 ? Regular::empty() : part;
  if (least == 1 && most == 1U) return part;
  if (part == Regular::empty()) return part;
  if (countable(part, least, most)) return counted({}, part, least, most, {}, budget);
  const bool may_be_empty = automaton.accepting[automaton.start] != 0;
  const std::uint32_t needed = may_be_empty ? 0 : least;
  // The place of a state in the copy that is under way: copies of one state side by side.
  const std::uint32_t copies = most ? *most : std::max(needed, 1U);
  if (std::uint64_t{copies} * part.states() >= kEnd) return tl::unexpected(budget.error());
  const auto place = [&](std::uint32_t copy, State state) { return state * copies + copy; };
  const auto step = [&](Place from, std::uint8_t byte, std::vector<Place>& out) {
    const std::uint32_t copy = from % copies;
    const State to = automaton.next(from / copies, byte);
    if (to == Regular::kDead) return;
    out.push_back(place(copy, to));
    if (automaton.accepting[to] == 0) return;
    if (copy + 1 >= needed) out.push_back(kEnd);
    if (copy + 1 < copies)
      out.push_back(place(copy + 1, automaton.start));
    else if (!most)
      out.push_back(place(copy, automaton.start));
  };
  // Of two readings in the same state the one with more freedom left says it all: the later copy
  // if there is no end to them, the earlier one if none is needed.
  const auto prune = [&](std::vector<Place>& set) {
    if (most && needed > 0) return;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < set.size(); ++i) {
      const bool same = kept > 0 && set[i] != kEnd && set[i] / copies == set[kept - 1] / copies;
      if (!same)
        set[kept++] = set[i];
      else if (!most)
        set[kept - 1] = set[i];
    }
    set.resize(kept);
  };
  std::vector<Place> start{place(0, automaton.start)};
  if (needed == 0) start.push_back(kEnd);
  return Subsets(automaton.classes, budget, step, prune).run(std::move(start));
}

bool countable(const Regular& part, std::uint32_t least, std::optional<std::uint32_t> most) {
  const Automaton& automaton = part.automaton();
  const std::uint32_t classes = automaton.classes.count;
  std::vector<std::uint8_t> starts(classes), goes_on(classes);
  for (State s = 0; s < part.states(); ++s) {
    for (std::uint32_t c = 0; c < classes; ++c) {
      if (automaton.next_of_class(s, c) == Regular::kDead) continue;
      if (automaton.accepting[s] != 0) return false;
      (s == automaton.start ? starts : goes_on)[c] = 1;
    }
  }
  if (part.states() < 2 || !part.longest()) return false;
  if (most) return true;
  if (least == 0) return false;
  for (std::uint32_t c = 0; c < classes; ++c)
    if (starts[c] != 0 && goes_on[c] == 0) return true;
  return false;
}

Result<Regular> counted(std::string_view open, const Regular& part, std::uint32_t least,
                        std::optional<std::uint32_t> bound, std::string_view close,
                        Budget& budget) {
  const Automaton& automaton = part.automaton();
  const std::uint32_t most = bound.value_or(least);
  const std::uint32_t period = part.states() - 1;  // the end of one copy is the start of the next
  const std::uint64_t states = open.size() + std::uint64_t{most} * period + 1 + close.size();
  if (!budget.holds(states) || !budget.take(open.size() + close.size()))
    return tl::unexpected(budget.error());
  auto result = std::make_shared<Automaton>();
  result->classes = automaton.classes;
  for (const std::string_view text : {open, close})
    for (const char byte : text) result->classes.refine(static_cast<std::uint8_t>(byte));
  const std::vector<std::uint8_t> bytes = result->classes.representatives();
  const std::uint32_t classes = result->classes.count;

  // The start of the part first, its end last.
  std::vector<State> order(part.states(), 0);
  State named = 1;
  for (State s = 0; s < part.states(); ++s)
    if (s != automaton.start) order[s] = automaton.accepting[s] != 0 ? period : named++;
  const auto body = static_cast<State>(open.size());
  const State last = body + most * period;
  const auto add_row = [&] {
    result->rows.resize(result->rows.size() + classes, Automaton::kNone);
    return static_cast<std::uint32_t>(result->rows.size() - classes);
  };
  const auto add_state = [&](std::uint32_t row, bool accepting) {
    result->row_of.push_back(row);
    result->accepting.push_back(accepting ? 1 : 0);
  };
  const auto chain = [&](std::string_view text, State from) {
    for (std::size_t i = 0; i < text.size(); ++i, ++from) {
      const std::uint32_t row = add_row();
      result->rows[row + result->classes.of[static_cast<std::uint8_t>(text[i])]] =
          Automaton::near(from, from + 1);
      add_state(row, false);
    }
  };

  chain(open, 0);
  std::vector<std::uint32_t> row_of(part.states());  // [order] of a copy that must go on
  for (State s = 0; s < part.states(); ++s) {
    row_of[order[s]] = add_row();
    for (std::uint32_t c = 0; c < classes; ++c)
      if (const State to = automaton.next(s, bytes[c]); to != Regular::kDead)
        result->rows[row_of[order[s]] + c] = Automaton::near(order[s], order[to]);
  }
  // After the last copy nothing follows, or the last copy again.
  std::uint32_t full = row_of[period];
  if (!bound) {
    full = add_row();
    for (std::uint32_t c = 0; c < classes; ++c)
      if (const State to = automaton.next(automaton.start, bytes[c]); to != Regular::kDead)
        result->rows[full + c] = Automaton::near(period, order[to]);
  }
  // Where the copies are enough the text may close, or end.
  const auto closing = [&](std::uint32_t row) {
    if (close.empty()) return row;
    const std::uint32_t copy = add_row();
    std::copy_n(result->rows.begin() + row, classes, result->rows.begin() + copy);
    result->rows[copy + result->classes.of[static_cast<std::uint8_t>(close[0])]] =
        Automaton::far(last + 1);
    return copy;
  };
  const std::uint32_t enough = closing(row_of[0]);
  full = closing(full);
  for (std::uint32_t copy = 0; copy < most; ++copy) {
    add_state(copy >= least ? enough : row_of[0], copy >= least && close.empty());
    for (State s = 1; s < period; ++s) add_state(row_of[s], false);
  }
  add_state(full, close.empty());
  if (!close.empty()) {
    chain(close.substr(1), last + 1);
    add_state(row_of[period], true);
  }
  result->start = 0;
  if (open.empty() && close.empty())
    result->repetition =
        std::make_shared<Automaton::Repetition>(Automaton::Repetition{part, least, bound});
  return Regular(std::move(result));
}

Result<Regular> both(const Regular& a, const Regular& b, Budget& budget) {
  if (a.is_nothing() || b.is_nothing()) return Regular();
  if (a == Regular::text() && is_part_of(b, a)) return b;
  if (b == Regular::text() && is_part_of(a, b)) return a;
  return product(a, b, true, budget);
}

Result<Regular> without(const Regular& a, const Regular& b, Budget& budget) {
  if (a.is_nothing() || b.is_nothing()) return a;
  return product(a, b, false, budget);
}

Result<Regular> erased(const Regular& language, const Marks& marks, Budget& budget) {
  const Automaton& automaton = language.automaton();
  if (language.is_nothing()) return language;
  std::vector<std::uint8_t> bytes;
  ByteClasses classes = automaton.classes;
  classes.refine(marks);
  for (const std::uint8_t byte : classes.representatives())
    if (marks[byte]) bytes.push_back(byte);
  std::vector<std::uint32_t> added(automaton.states(), 0);  // [state] to which set, last
  std::uint32_t set_number = 0;
  std::vector<State> open;
  const auto add = [&](State state, std::vector<Place>& out) {
    if (out.empty()) ++set_number;
    open.push_back(state);
    while (!open.empty()) {
      const State from = open.back();
      open.pop_back();
      if (added[from] == set_number) continue;
      added[from] = set_number;
      out.push_back(from);
      if (automaton.accepting[from] != 0) out.push_back(kEnd);
      for (const std::uint8_t byte : bytes)
        if (const State to = automaton.next(from, byte); to != Regular::kDead) open.push_back(to);
    }
  };
  const auto step = [&](Place from, std::uint8_t byte, std::vector<Place>& out) {
    if (marks[byte]) return;
    if (const State to = automaton.next(from, byte); to != Regular::kDead) add(to, out);
  };
  std::vector<Place> start;
  add(automaton.start, start);
  return Subsets(classes, budget, step, [](std::vector<Place>&) {}).run(std::move(start));
}

Result<Regular> scattered(const Regular& language, const Marks& marks, Budget& budget) {
  const Automaton& automaton = language.automaton();
  if (language.is_nothing()) return language;
  ByteClasses classes = automaton.classes;
  classes.refine(marks);
  const auto add = [&](State state, std::vector<Place>& out) {
    out.push_back(state);
    if (automaton.accepting[state] != 0) out.push_back(kEnd);
  };
  const auto step = [&](Place from, std::uint8_t byte, std::vector<Place>& out) {
    if (marks[byte]) add(from, out);
    if (const State to = automaton.next(from, byte); to != Regular::kDead) add(to, out);
  };
  std::vector<Place> start;
  add(automaton.start, start);
  return Subsets(classes, budget, step, [](std::vector<Place>&) {}).run(std::move(start));
}

Result<Regular> text_without(std::string_view stop, const RegularLimits& limits) {
  Budget budget(limits);
  if (stop.empty()) return fail(ErrorCode::invalid_argument, "every text contains the empty text");
  if (!budget.holds(stop.size())) return tl::unexpected(budget.error());
  // The state is how much of `stop` the text ends with (Knuth, Morris and Pratt).
  ByteClasses classes;
  for (const char byte : stop) classes.refine(static_cast<std::uint8_t>(byte));
  Table table(classes);
  for (std::size_t i = 0; i < stop.size(); ++i) table.add(true);
  table.start = 0;
  State behind = 0;  // of the longest end of the text that is a beginning of `stop`, but itself
  for (State s = 0; s < stop.size(); ++s) {
    if (!budget.take(classes.count)) return tl::unexpected(budget.error());
    const std::uint32_t mine = classes.of[static_cast<std::uint8_t>(stop[s])];
    for (std::uint32_t c = 0; c < classes.count; ++c)
      table.at(s, c) = s == 0 ? 0 : table.at(behind, c);
    const State before = s == 0 ? 0 : table.at(behind, mine);
    table.at(s, mine) = s + 1 == stop.size() ? Regular::kDead : s + 1;
    behind = before;
  }
  return both(minimal(table), Regular::text(), budget);
}

Result<Regular> concat(std::span<const Regular> parts, const RegularLimits& limits) {
  Budget budget(limits);
  return concat(parts, budget);
}

Result<Regular> either(std::span<const Regular> parts, const RegularLimits& limits) {
  Budget budget(limits);
  return either(parts, budget);
}

Result<Regular> repeat(const Regular& part, std::uint32_t least, std::optional<std::uint32_t> most,
                       const RegularLimits& limits) {
  Budget budget(limits);
  return repeat(part, least, most, budget);
}

Result<Regular> both(const Regular& a, const Regular& b, const RegularLimits& limits) {
  Budget budget(limits);
  return both(a, b, budget);
}

Result<Regular> without(const Regular& a, const Regular& b, const RegularLimits& limits) {
  Budget budget(limits);
  return without(a, b, budget);
}

}  // namespace strata::constrain
