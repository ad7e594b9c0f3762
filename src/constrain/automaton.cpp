#include "constrain/automaton.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace strata::constrain {
namespace {

using State = Regular::State;

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9E3779B97F4A7C15 + (hash << 6) + (hash >> 2);
  return hash * 0xFF51AFD7ED558CCD;
}

// Joins classes whose columns are equal; absent if none are.
std::optional<Table> with_fewest_classes(const Table& table) {
  const std::uint32_t classes = table.classes.count;
  std::vector<std::uint64_t> hashes(classes, 0);
  for (State s = 0; s < table.states(); ++s)
    for (std::uint32_t c = 0; c < classes; ++c) hashes[c] = mix(hashes[c], table.at(s, c));
  const auto equal = [&](std::uint32_t a, std::uint32_t b) {
    for (State s = 0; s < table.states(); ++s)
      if (table.at(s, a) != table.at(s, b)) return false;
    return true;
  };
  std::vector<std::uint32_t> kept;  // [new class] an old one
  std::vector<std::uint8_t> renamed(classes);
  for (std::uint32_t c = 0; c < classes; ++c) {
    const auto same = std::ranges::find_if(
        kept, [&](std::uint32_t k) { return hashes[k] == hashes[c] && equal(k, c); });
    renamed[c] = static_cast<std::uint8_t>(same - kept.begin());
    if (same == kept.end()) kept.push_back(c);
  }
  if (kept.size() == classes) return std::nullopt;
  ByteClasses fewer;
  fewer.count = static_cast<std::uint32_t>(kept.size());
  for (unsigned byte = 0; byte < 256; ++byte) fewer.of[byte] = renamed[table.classes.of[byte]];
  Table result(fewer);
  result.start = table.start;
  result.accepting = table.accepting;
  result.next.reserve(std::size_t{table.states()} * kept.size());
  for (State s = 0; s < table.states(); ++s)
    for (const std::uint32_t c : kept) result.next.push_back(table.at(s, c));
  return result;
}

// The transitions of a table that lead somewhere, and those that come into each state.
struct Transitions {
  explicit Transitions(const Table& table) : into(table.states() + 1, 0) {
    // Row by row, as the table lies in memory: counted first, then written.
    const std::uint32_t classes = table.classes.count;
    labels.assign(classes + 1, 0);
    for (std::size_t i = 0; i < table.next.size(); ++i)
      if (table.next[i] != Regular::kDead) ++labels[i % classes + 1];
    std::partial_sum(labels.begin(), labels.end(), labels.begin());
    from.resize(labels.back());
    to.resize(labels.back());
    std::vector<std::uint32_t> place(labels.begin(), labels.end() - 1);
    for (State s = 0; s < table.states(); ++s) {
      for (std::uint32_t c = 0; c < classes; ++c) {
        if (table.at(s, c) == Regular::kDead) continue;
        from[place[c]] = s;
        to[place[c]++] = table.at(s, c);
      }
    }
    for (const State s : to) ++into[s + 1];
    std::partial_sum(into.begin(), into.end(), into.begin());
    incoming.resize(to.size());
    std::vector<std::uint32_t> at(into.begin(), into.end() - 1);
    for (std::uint32_t t = 0; t < to.size(); ++t) incoming[at[to[t]]++] = t;
  }

  std::vector<State> from, to;          // sorted by label
  std::vector<std::uint32_t> labels;    // [class] its first transition; one more at the end
  std::vector<std::uint32_t> into;      // [state] its first place in `incoming`
  std::vector<std::uint32_t> incoming;  // numbers of transitions
};

// Only the states that can be reached from the start and from which an accepting one can be;
// absent if all are such.
std::optional<Table> trimmed(const Table& table, const Transitions& transitions) {
  Table result(table.classes);
  if (table.start == Regular::kDead) return result;
  std::vector<std::uint8_t> reached(table.states(), 0), lives(table.states(), 0);
  std::vector<State> open{table.start};
  reached[table.start] = 1;
  while (!open.empty()) {
    const State s = open.back();
    open.pop_back();
    for (std::uint32_t c = 0; c < table.classes.count; ++c) {
      const State to = table.at(s, c);
      if (to == Regular::kDead || reached[to] != 0) continue;
      reached[to] = 1;
      open.push_back(to);
    }
  }
  for (State s = 0; s < table.states(); ++s) {
    if (table.accepting[s] == 0) continue;
    lives[s] = 1;
    open.push_back(s);
  }
  while (!open.empty()) {
    const State s = open.back();
    open.pop_back();
    for (std::uint32_t i = transitions.into[s]; i < transitions.into[s + 1]; ++i) {
      const State from = transitions.from[transitions.incoming[i]];
      if (lives[from] != 0) continue;
      lives[from] = 1;
      open.push_back(from);
    }
  }
  std::vector<State> renamed(table.states(), Regular::kDead);
  State count = 0;
  for (State s = 0; s < table.states(); ++s)
    if (reached[s] != 0 && lives[s] != 0) renamed[s] = count++;
  if (count == table.states()) return std::nullopt;
  for (State s = 0; s < table.states(); ++s) {
    if (renamed[s] == Regular::kDead) continue;
    const State mine = result.add(table.accepting[s] != 0);
    for (std::uint32_t c = 0; c < table.classes.count; ++c)
      if (const State to = table.at(s, c); to != Regular::kDead) result.at(mine, c) = renamed[to];
  }
  result.start = renamed[table.start];
  return result;
}

// A partition of 0 .. n-1 whose sets split into their marked and their other members.
class Partition {
 public:
  explicit Partition(std::uint32_t size) : members_(size), place_(size), set_(size, 0) {
    std::iota(members_.begin(), members_.end(), 0U);
    std::iota(place_.begin(), place_.end(), 0U);
    if (size > 0) sets_.push_back({0, size, 0});
  }
  // Consecutive members; `firsts` ends with the size.
  explicit Partition(const std::vector<std::uint32_t>& firsts) : Partition(firsts.back()) {
    sets_.clear();
    for (std::size_t i = 0; i + 1 < firsts.size(); ++i) {
      if (firsts[i] == firsts[i + 1]) continue;
      const auto set = static_cast<std::uint32_t>(sets_.size());
      for (std::uint32_t m = firsts[i]; m < firsts[i + 1]; ++m) set_[m] = set;
      sets_.push_back({firsts[i], firsts[i + 1], 0});
    }
  }

  std::uint32_t sets() const { return static_cast<std::uint32_t>(sets_.size()); }
  std::uint32_t set_of(std::uint32_t member) const { return set_[member]; }
  std::span<const std::uint32_t> members(std::uint32_t set) const {
    return std::span(members_).subspan(sets_[set].first, sets_[set].last - sets_[set].first);
  }

  void mark(std::uint32_t member) {
    Set& set = sets_[set_[member]];
    const std::uint32_t target = set.first + set.marked;
    if (place_[member] < target) return;  // marked already
    if (set.marked++ == 0) touched_.push_back(set_[member]);
    const std::uint32_t other = members_[target];
    std::swap(members_[target], members_[place_[member]]);
    std::swap(place_[member], place_[other]);
  }

  // The smaller half of each set that has both kinds becomes a new set.
  void split() {
    for (const std::uint32_t s : touched_) {
      Set& set = sets_[s];
      const std::uint32_t middle = set.first + set.marked;
      const std::uint32_t marked = set.marked;
      set.marked = 0;
      if (middle == set.last) continue;
      Set part = set;
      if (marked <= set.last - middle) {
        part.last = set.first = middle;
      } else {
        part.first = set.last = middle;
      }
      const std::uint32_t name = sets();
      for (std::uint32_t i = part.first; i < part.last; ++i) set_[members_[i]] = name;
      sets_.push_back(part);
    }
    touched_.clear();
  }

 private:
  struct Set {
    std::uint32_t first, last, marked;  // in members_, the marked ones first
  };
  std::vector<std::uint32_t> members_, place_, set_;
  std::vector<Set> sets_;
  std::vector<std::uint32_t> touched_;
};

// Hopcroft's refinement over the transitions that exist (Valmari and Lehtinen): states of one
// set cannot be told apart. O(transitions * log states).
Partition equivalent(const Table& table, const Transitions& transitions) {
  Partition states(table.states());
  for (State s = 0; s < table.states(); ++s)
    if (table.accepting[s] != 0) states.mark(s);
  states.split();
  // Sets of transitions with one label into one set of states: each splits the states.
  Partition splitters(transitions.labels);
  std::uint32_t refined = 1, used = 0;
  while (used < splitters.sets()) {
    for (const std::uint32_t t : splitters.members(used)) states.mark(transitions.from[t]);
    states.split();
    ++used;
    for (; refined < states.sets(); ++refined) {
      for (const State s : states.members(refined))
        for (std::uint32_t i = transitions.into[s]; i < transitions.into[s + 1]; ++i)
          splitters.mark(transitions.incoming[i]);
      splitters.split();
    }
  }
  return states;
}

struct RowHash {
  std::size_t operator()(std::span<const std::uint32_t> row) const {
    std::uint64_t hash = 0;
    for (const std::uint32_t entry : row) hash = mix(hash, entry);
    return hash;
  }
};
struct RowEqual {
  bool operator()(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b) const {
    return std::ranges::equal(a, b);
  }
};

// States that many lead to are named, others are pointed at by their distance, so that rows of
// repetitions come out equal.
std::shared_ptr<const Regular::Automaton> compressed(const Table& table) {
  constexpr std::uint32_t kMany = 32;
  auto result = std::make_shared<Regular::Automaton>();
  result->classes = table.classes;
  result->start = table.start;
  result->accepting = table.accepting;
  std::vector<std::uint32_t> sources(table.states(), 0);
  for (const State to : table.next)
    if (to != Regular::kDead) ++sources[to];

  const std::uint32_t classes = table.classes.count;
  // Places in `all`, which does not move.
  std::vector<std::uint32_t> all(table.next.size());
  std::unordered_map<std::span<const std::uint32_t>, std::uint32_t, RowHash, RowEqual> known;
  for (State s = 0; s < table.states(); ++s) {
    const std::span row(all.data() + std::size_t{s} * classes, classes);
    for (std::uint32_t c = 0; c < classes; ++c) {
      const State to = table.at(s, c);
      row[c] = to == Regular::kDead   ? Regular::Automaton::kNone
               : sources[to] >= kMany ? Regular::Automaton::far(to)
                                      : Regular::Automaton::near(s, to);
    }
    const auto [entry, fresh] =
        known.try_emplace(row, static_cast<std::uint32_t>(result->rows.size()));
    if (fresh) result->rows.insert(result->rows.end(), row.begin(), row.end());
    result->row_of.push_back(entry->second);
  }
  return result;
}

}  // namespace

void ByteClasses::refine(const ByteClasses& other) {
  if (other.count == 1) return;
  std::vector<std::int16_t> pairs(std::size_t{count} * other.count, -1);
  std::int16_t fresh = 0;
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::int16_t& name = pairs[std::size_t{of[byte]} * other.count + other.of[byte]];
    if (name < 0) name = fresh++;
    of[byte] = static_cast<std::uint8_t>(name);
  }
  count = static_cast<std::uint32_t>(fresh);
}

void ByteClasses::refine(const std::bitset<256>& set) {
  ByteClasses two;
  two.count = 2;
  for (unsigned byte = 0; byte < 256; ++byte) two.of[byte] = set[byte] ? 1 : 0;
  refine(two);
}

void ByteClasses::refine(std::uint8_t byte) {
  // The commonest refinement: alone already, or the byte gets a class of its own.
  if (std::ranges::count(of, of[byte]) > 1) of[byte] = static_cast<std::uint8_t>(count++);
}

std::vector<std::uint8_t> ByteClasses::representatives() const {
  std::vector<std::uint8_t> result(count);
  for (unsigned byte = 256; byte-- > 0;) result[of[byte]] = static_cast<std::uint8_t>(byte);
  return result;
}

Error Budget::error() const {
  if (Status in_time = TimeLimit::check(); !in_time) return std::move(in_time).error();
  if (steps_ > limits_.steps)
    return {ErrorCode::exhausted,
            fmt::format("a pattern or text needs more than the limit of {} steps to be compiled",
                        limits_.steps)};
  return {ErrorCode::exhausted,
          fmt::format("a pattern or text needs more than the limit of {} states", limits_.states)};
}

std::uint32_t Regular::Automaton::memory() const {
  return static_cast<std::uint32_t>(sizeof *this + row_of.size() * sizeof row_of[0] +
                                    rows.size() * sizeof rows[0] + accepting.size());
}

Regular minimal(const Table& table) {
  // Large tables are copied only where something goes.
  const std::optional<Table> fewer = with_fewest_classes(table);
  const Table& all = fewer ? *fewer : table;
  std::optional<Transitions> transitions(all);
  const std::optional<Table> part = trimmed(all, *transitions);
  const Table& live = part ? *part : all;
  if (live.start == Regular::kDead) return Regular();
  if (part) transitions.emplace(live);
  const Partition sets = equivalent(live, *transitions);
  Table result(live.classes);
  result.next.reserve(std::size_t{sets.sets()} * live.classes.count);
  for (std::uint32_t set = 0; set < sets.sets(); ++set) {
    const State one = sets.members(set).front();
    const State mine = result.add(live.accepting[one] != 0);
    for (std::uint32_t c = 0; c < live.classes.count; ++c)
      if (const State to = live.at(one, c); to != Regular::kDead)
        result.at(mine, c) = sets.set_of(to);
  }
  result.start = sets.set_of(live.start);
  return already_minimal(result);
}

Regular already_minimal(const Table& table) {
  const std::optional<Table> fewer = with_fewest_classes(table);
  return Regular(compressed(fewer ? *fewer : table));
}

std::vector<State> text_positions(const Regular& language, const Regular& text_language) {
  const Regular::Automaton& automaton = language.automaton();
  const Regular::Automaton& text = text_language.automaton();
  std::vector<State> position(automaton.states(), Regular::kDead);
  if (language.is_nothing()) return position;
  ByteClasses classes = automaton.classes;
  classes.refine(text.classes);
  const std::vector<std::uint8_t> bytes = classes.representatives();
  std::vector<State> open{automaton.start};
  position[automaton.start] = text.start;
  while (!open.empty()) {
    const State s = open.back();
    open.pop_back();
    // An ending inside a character, a byte that no character has here, or two readings.
    if (automaton.accepting[s] != 0 && text.accepting[position[s]] == 0) return {};
    for (const std::uint8_t byte : bytes) {
      const State to = automaton.next(s, byte);
      if (to == Regular::kDead) continue;
      const State there = text.next(position[s], byte);
      if (there == Regular::kDead) return {};
      if (position[to] == there) continue;
      if (position[to] != Regular::kDead) return {};
      position[to] = there;
      open.push_back(to);
    }
  }
  return position;
}

// --- Regular ---

Regular::Regular() {
  static const auto nothing = std::make_shared<const Automaton>();
  automaton_ = nothing;
}

Regular::Regular(std::shared_ptr<const Automaton> automaton) : automaton_(std::move(automaton)) {}

Regular Regular::empty() {
  static const Regular language = literal({});
  return language;
}

Regular Regular::literal(std::string_view bytes) {
  Table table((ByteClasses()));
  for (const char byte : bytes) table.classes.refine(static_cast<std::uint8_t>(byte));
  table.start = table.add(bytes.empty());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const State to = table.add(i + 1 == bytes.size());
    table.connect(to - 1, static_cast<std::uint8_t>(bytes[i]), to);
  }
  auto automaton = std::make_shared<Automaton>(*compressed(table));  // minimal as it is
  automaton->word = bytes;
  return Regular(std::move(automaton));
}

Regular Regular::bytes(const std::bitset<256>& set) {
  Table table((ByteClasses()));
  table.classes.refine(set);
  table.start = table.add();
  const State end = table.add(true);
  for (unsigned byte = 0; byte < 256; ++byte)
    if (set[byte]) table.connect(table.start, static_cast<std::uint8_t>(byte), end);
  return minimal(table);
}

Regular::State Regular::start() const {
  return automaton_->start;
}

std::uint32_t Regular::states() const {
  return automaton_->states();
}

Regular::State Regular::next(State state, std::uint8_t byte) const {
  return state == kDead ? kDead : automaton_->next(state, byte);
}

bool Regular::accepting(State state) const {
  return state != kDead && automaton_->accepting[state] != 0;
}

bool Regular::accepts(std::string_view bytes) const {
  State state = start();
  for (const char byte : bytes) state = next(state, static_cast<std::uint8_t>(byte));
  return accepting(state);
}

std::optional<std::uint64_t> Regular::longest() const {
  // In topological order; what never comes to order lies on or behind a cycle.
  const std::uint32_t classes = automaton_->classes.count;
  std::vector<std::uint32_t> waiting(states(), 0);
  for (State s = 0; s < states(); ++s)
    for (std::uint32_t c = 0; c < classes; ++c)
      if (const State to = automaton_->next_of_class(s, c); to != kDead) ++waiting[to];
  std::vector<std::uint64_t> length(states(), 0);
  std::vector<State> open;
  if (!is_nothing() && waiting[start()] == 0) open.push_back(start());
  std::uint32_t done = 0;
  std::uint64_t result = 0;
  while (!open.empty()) {
    const State s = open.back();
    open.pop_back();
    ++done;
    result = std::max(result, length[s]);
    for (std::uint32_t c = 0; c < classes; ++c) {
      const State to = automaton_->next_of_class(s, c);
      if (to == kDead) continue;
      length[to] = std::max(length[to], length[s] + 1);
      if (--waiting[to] == 0) open.push_back(to);
    }
  }
  if (done < states()) return std::nullopt;
  return result;
}

bool Regular::operator==(const Regular& other) const {
  const Automaton& a = *automaton_;
  const Automaton& b = *other.automaton_;
  if (&a == &b) return true;
  if (a.states() != b.states() || is_nothing() != other.is_nothing()) return false;
  if (is_nothing()) return true;
  if (a.start == b.start && a.classes == b.classes && a.accepting == b.accepting &&
      a.row_of == b.row_of && a.rows == b.rows)
    return true;
  // Both are minimal: equal languages differ by the numbers of their states only.
  ByteClasses classes = a.classes;
  classes.refine(b.classes);
  const std::vector<std::uint8_t> bytes = classes.representatives();
  std::vector<State> twin(a.states(), kDead);
  std::vector<State> open{a.start};
  twin[a.start] = b.start;
  while (!open.empty()) {
    const State s = open.back();
    open.pop_back();
    if (a.accepting[s] != b.accepting[twin[s]]) return false;
    for (const std::uint8_t byte : bytes) {
      const State to = a.next(s, byte);
      const State there = b.next(twin[s], byte);
      if ((to == kDead) != (there == kDead)) return false;
      if (to == kDead || twin[to] == there) continue;
      if (twin[to] != kDead) return false;
      twin[to] = there;
      open.push_back(to);
    }
  }
  return true;
}

}  // namespace strata::constrain
