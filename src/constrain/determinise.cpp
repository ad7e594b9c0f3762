// From the automata of a grammar's rules to deterministic ones, by sets of states.
//
// Left recursion. Let rules call each other (or themselves) before anything is read, in a circle: a
// text of rule A is then a text of some rule X of the circle that does not begin with a call inside
// the circle, and after it what stands behind X where another of them, Y, begins with X, and so on,
// until Y is A. That needs no stack: the calls at the beginning are dropped, the end of X goes on,
// without reading anything, wherever a rule of the circle begins with X, and A starts where any of
// them starts and accepts where A ends.
#include <algorithm>
#include <array>
#include <optional>
#include <unordered_set>

#include "base/hash.h"
#include "constrain/automata.h"
#include "constrain/time_limit.h"

namespace strata::constrain {
namespace {

constexpr std::uint64_t kMaxSetMembers = 20'000'000;  // of all sets of states together
constexpr std::uint32_t kNoHeight = UINT32_MAX;

using Set = std::vector<std::uint32_t>;

// What can be read first from a state.
class Closure {
 public:
  explicit Closure(const Nfa& nfa) : nfa_(nfa), seen_(nfa.states.size(), 0) {}

  // One more way that reads nothing.
  void bridge(std::uint32_t from, std::uint32_t to) {
    extra_.resize(nfa_.states.size());
    extra_[from].push_back(to);
  }

  // The states that can be reached without reading anything, of those that read something or are
  // `last`; sorted.
  void close(const Set& from, std::uint32_t last, Set& out) {
    out.clear();
    if (from.size() == 1 && stays(from.front())) {  // as most do
      if (from.front() == last || nfa_.reads(from.front())) out.push_back(from.front());
      return;
    }
    ++stamp_;
    for (const std::uint32_t state : from) visit(state);
    while (!open_.empty()) {
      const std::uint32_t at = open_.back();
      open_.pop_back();
      if (at == last || nfa_.reads(at)) out.push_back(at);
      for (std::uint32_t i = nfa_.states[at].empty; i != Nfa::kNone; i = nfa_.links[i].next)
        visit(nfa_.links[i].to);
      if (extra_.empty()) continue;
      for (const std::uint32_t to : extra_[at]) visit(to);
    }
    std::sort(out.begin(), out.end());
  }

 private:
  bool stays(std::uint32_t state) const {
    return nfa_.states[state].empty == Nfa::kNone && (extra_.empty() || extra_[state].empty());
  }
  void visit(std::uint32_t state) {
    if (seen_[state] == stamp_) return;
    seen_[state] = stamp_;
    open_.push_back(state);
  }

  const Nfa& nfa_;
  std::vector<Set> extra_;  // empty, or [state]
  std::vector<std::uint32_t> seen_, open_;
  std::uint32_t stamp_ = 0;
};

// Where rules begin with calls of rules.
class LeftCalls {
 public:
  LeftCalls(const Nfa& nfa, Closure& closure)
      : starts_(nfa.rules.size()), circle_(nfa.rules.size()) {
    std::vector<Set> calls(nfa.rules.size());
    for (std::size_t r = 0; r < nfa.rules.size(); ++r) {
      closure.close({nfa.rules[r].start}, Nfa::kNone, starts_[r]);
      for (const std::uint32_t state : starts_[r])
        for (const Nfa::Edge& call : nfa.calls(state)) calls[r].push_back(call.label);
    }
    find_circles(calls);
    for (std::size_t r = 0; r < nfa.rules.size(); ++r) {
      for (const std::uint32_t state : starts_[r])
        for (const Nfa::Edge& call : nfa.calls(state))
          if (same_circle(static_cast<std::uint32_t>(r), call.label))
            closure.bridge(nfa.rules[call.label].last, call.to);
    }
  }

  bool same_circle(std::uint32_t a, std::uint32_t b) const {
    return circle_[a] == circle_[b] && circular_[circle_[a]];
  }
  // The states where a rule starts; for a rule of a circle those of all its rules.
  std::vector<std::uint32_t> rules_of(std::uint32_t rule) const {
    return circular_[circle_[rule]] ? members_[circle_[rule]] : std::vector{rule};
  }
  const Set& start(std::uint32_t rule) const { return starts_[rule]; }
  // Rules that others begin with come later.
  const std::vector<std::uint32_t>& order() const { return order_; }

 private:
  // Tarjan's components, as in analysis.cpp, over the calls at the beginning.
  void find_circles(const std::vector<Set>& calls) {
    const auto count = static_cast<std::uint32_t>(calls.size());
    constexpr std::uint32_t kDone = UINT32_MAX;
    struct Frame {
      std::uint32_t rule;
      std::size_t next;
    };
    std::vector<std::uint32_t> number(count, 0), low(count, 0), open;
    std::vector<Frame> frames;
    std::uint32_t numbered = 0;
    const auto enter = [&](std::uint32_t rule) {
      number[rule] = low[rule] = ++numbered;
      open.push_back(rule);
      frames.push_back({rule, 0});
    };
    for (std::uint32_t root = 0; root < count; ++root) {
      if (number[root] == 0) enter(root);
      while (!frames.empty()) {
        const std::uint32_t rule = frames.back().rule;
        if (frames.back().next < calls[rule].size()) {
          const std::uint32_t callee = calls[rule][frames.back().next++];
          if (number[callee] == 0)
            enter(callee);
          else if (number[callee] != kDone)
            low[rule] = std::min(low[rule], number[callee]);
          continue;
        }
        frames.pop_back();
        if (!frames.empty()) low[frames.back().rule] = std::min(low[frames.back().rule], low[rule]);
        if (low[rule] == number[rule]) finish(rule, calls, open, number);
      }
    }
    std::reverse(order_.begin(), order_.end());
  }

  void finish(std::uint32_t rule, const std::vector<Set>& calls, Set& open, Set& number) {
    Set members;
    for (bool last = false; !last;) {
      const std::uint32_t member = open.back();
      open.pop_back();
      last = member == rule;
      number[member] = UINT32_MAX;
      circle_[member] = static_cast<std::uint32_t>(members_.size());
      members.push_back(member);
      order_.push_back(member);
    }
    circular_.push_back(members.size() > 1 || std::find(calls[rule].begin(), calls[rule].end(),
                                                        rule) != calls[rule].end());
    members_.push_back(std::move(members));
  }

  std::vector<Set> starts_;
  std::vector<std::uint32_t> circle_;
  std::vector<Set> members_;
  std::vector<std::uint8_t> circular_;
  std::vector<std::uint32_t> order_;
};

// Bytes that no automaton tells apart.
class ByteGroups {
 public:
  explicit ByteGroups(const Nfa& nfa) {
    std::array<bool, 257> begins{};
    begins[0] = true;
    for (const Nfa::Range& range : nfa.ranges) begins[range.first] = begins[range.last + 1U] = true;
    for (unsigned byte = 0; byte < 256; ++byte) {
      if (begins[byte]) first_.push_back(static_cast<std::uint8_t>(byte));
      of_[byte] = static_cast<std::uint16_t>(first_.size() - 1);
    }
  }
  std::size_t size() const { return first_.size(); }
  std::uint16_t of(std::uint8_t byte) const { return of_[byte]; }
  std::uint8_t first(std::size_t c) const { return first_[c]; }
  std::uint8_t last(std::size_t c) const {
    return c + 1 == first_.size() ? 255 : static_cast<std::uint8_t>(first_[c + 1] - 1);
  }

 private:
  std::vector<std::uint8_t> first_;
  std::array<std::uint16_t, 256> of_{};
};

// Sets of states, numbered as they come; one that is there already keeps its number.
class Sets {
 public:
  explicit Sets(std::size_t states)
      : alone_(states), known_(64, Hash{&pool_, &places_}, Equal{&pool_, &places_}) {}
  Sets(const Sets&) = delete;
  Sets& operator=(const Sets&) = delete;

  // Sets of before are forgotten.
  void restart() {
    ++round_;
    pool_.clear();
    places_.clear();
    known_.clear();
  }
  std::uint32_t number_of(const Set& set) {
    // Most have one member, and need no hash.
    Alone* alone = set.size() == 1 ? &alone_[set.front()] : nullptr;
    if (alone != nullptr && alone->round == round_) return alone->number;
    const auto number = static_cast<std::uint32_t>(places_.size());
    places_.push_back({static_cast<std::uint32_t>(pool_.size()),
                       static_cast<std::uint32_t>(pool_.size() + set.size())});
    pool_.insert(pool_.end(), set.begin(), set.end());
    if (alone != nullptr) {
      *alone = {round_, number};
      return number;
    }
    const auto [known, fresh] = known_.insert(number);
    if (!fresh) {
      pool_.resize(places_.back().first);
      places_.pop_back();
    }
    return *known;
  }
  std::size_t count() const { return places_.size(); }
  std::size_t members() const { return pool_.size(); }  // of all of them
  void get(std::size_t number, Set& out) const {
    out.assign(pool_.begin() + places_[number].first, pool_.begin() + places_[number].last);
  }

 private:
  struct Place {
    std::uint32_t first, last;  // in pool_
  };
  struct Hash {
    const Set* pool;
    const std::vector<Place>* places;
    std::size_t operator()(std::uint32_t number) const {
      const Place& place = (*places)[number];
      return hash64(std::as_bytes(std::span(*pool).subspan(place.first, place.last - place.first)));
    }
  };
  struct Equal {
    const Set* pool;
    const std::vector<Place>* places;
    bool operator()(std::uint32_t a, std::uint32_t b) const {
      const Place &x = (*places)[a], &y = (*places)[b];
      const std::uint32_t* members = pool->data();
      return std::equal(members + x.first, members + x.last, members + y.first, members + y.last);
    }
  };
  struct Alone {
    std::uint32_t round = 0, number = 0;
  };

  Set pool_;
  std::vector<Place> places_;  // [set]
  std::vector<Alone> alone_;   // [state]
  std::uint32_t round_ = 0;
  std::unordered_set<std::uint32_t, Hash, Equal> known_;
};

class Determiniser {
 public:
  Determiniser(const Nfa& nfa, const CompileLimits& limits)
      : nfa_(nfa),
        limits_(limits),
        closure_(nfa),
        left_(nfa, closure_),
        groups_(nfa),
        targets_(groups_.size()),
        sets_(nfa.states.size()),
        alone_(nfa.states.size()) {}

  Result<Automata> run() {
    out_.empty = nfa_.rules[0].empty;
    out_.token_sets = nfa_.token_sets;
    // The root comes first although no rule begins with it that is not called itself.
    std::vector<std::uint32_t> order{0};
    for (const std::uint32_t rule : left_.order())
      if (rule != 0) order.push_back(rule);
    number_.resize(order.size());
    for (std::uint32_t k = 0; k < order.size(); ++k) number_[order[k]] = k;
    for (const std::uint32_t rule : order) STRATA_TRY(add_rule(rule));
    out_.states.push_back({.bytes = static_cast<std::uint32_t>(out_.ranges.size()),
                           .calls = static_cast<std::uint32_t>(out_.calls.size()),
                           .tokens = static_cast<std::uint32_t>(out_.token_edges.size())});
    return std::move(out_);
  }

 private:
  Status add_rule(std::uint32_t rule) {
    rule_ = rule;
    members_ += sets_.members();
    sets_.restart();
    out_.rules.push_back({static_cast<std::uint32_t>(out_.states.size())});
    // The start is a state of its own: it does not accept, and calls at the beginning that lead
    // back to the rule are left out.
    STRATA_TRY(add_state());
    std::vector<std::uint32_t> starts = left_.rules_of(rule);
    begin_edges();
    for (const std::uint32_t member : starts)
      for (const std::uint32_t state : left_.start(member)) offer(state, member);
    STRATA_TRY(write_edges());
    for (std::size_t k = 0; k < sets_.count(); ++k) {
      STRATA_TRY(add_state());
      sets_.get(k, set_);
      out_.states.back().accepts =
          std::binary_search(set_.begin(), set_.end(), nfa_.rules[rule].last);
      if (const auto reader = only_reader(set_)) {
        STRATA_TRY(copy_edges(*reader));
        continue;
      }
      begin_edges();
      for (const std::uint32_t state : set_) offer(state, Nfa::kNone);
      STRATA_TRY(write_edges());
    }
    return {};
  }

  Status add_state() {
    STRATA_TRY(TimeLimit::check());
    if (out_.states.size() >= limits_.states || members_ + sets_.members() > kMaxSetMembers) {
      return fail(ErrorCode::exhausted,
                  "the constraint needs more than the limit of {} states (in the rule '{}'); use "
                  "smaller repetitions or fewer alternatives that begin alike",
                  limits_.states, nfa_.rules[rule_].name);
    }
    out_.states.push_back({.bytes = static_cast<std::uint32_t>(out_.ranges.size()),
                           .calls = static_cast<std::uint32_t>(out_.calls.size()),
                           .tokens = static_cast<std::uint32_t>(out_.token_edges.size())});
    return {};
  }

  // The only member of a set that goes on, if it does so by bytes alone: most sets are such, as
  // what they come from are deterministic automata already.
  std::optional<std::uint32_t> only_reader(const Set& set) const {
    std::optional<std::uint32_t> found;
    for (const std::uint32_t member : set) {
      if (!nfa_.reads(member)) continue;
      if (found || nfa_.states[member].edges != Nfa::kNone) return std::nullopt;
      found = member;
    }
    return found;
  }

  Status copy_edges(std::uint32_t reader) {
    const std::size_t first_range = out_.ranges.size();
    for (const Nfa::Range& range : nfa_.bytes(reader)) {
      STRATA_TRY(TimeLimit::check());
      single_.assign(1, range.to);
      add_range(first_range, range.first, range.last, state_of(single_));
    }
    return {};
  }

  void add_range(std::size_t first_range, std::uint8_t first, std::uint8_t last, std::uint32_t to) {
    std::vector<Automata::Range>& ranges = out_.ranges;
    if (ranges.size() > first_range && ranges.back().to == to && ranges.back().last + 1 == first)
      ranges.back().last = last;
    else
      ranges.push_back({first, last, to});
  }

  void begin_edges() {
    for (Set& set : targets_) set.clear();
    calls_.clear();
    tokens_.clear();
  }

  // The edges of one member; for the start of a rule (`begins`) without the calls of its circle.
  void offer(std::uint32_t member, std::uint32_t begins) {
    for (const Nfa::Range& range : nfa_.bytes(member)) {
      const std::uint16_t last = groups_.of(range.last);
      for (std::uint16_t c = groups_.of(range.first); c <= last; ++c)
        targets_[c].push_back(range.to);
    }
    for (const Nfa::Edge& call : nfa_.calls(member)) {
      if (begins == Nfa::kNone || !left_.same_circle(begins, call.label))
        calls_.push_back({number_[call.label], call.to});
    }
    for (const Nfa::Edge& edge : nfa_.tokens(member)) tokens_.push_back(edge);
  }

  Status write_edges() {
    const std::size_t first_range = out_.ranges.size();
    const Set* before = nullptr;
    for (std::size_t c = 0; c < groups_.size(); ++c) {
      Set& set = targets_[c];
      if (set.empty()) continue;
      std::uint32_t to = 0;
      if (before && *before == set) {
        to = out_.ranges.back().to;
      } else {
        STRATA_TRY(TimeLimit::check());
        to = state_of(set);
      }
      before = &set;
      add_range(first_range, groups_.first(c), groups_.last(c), to);
    }
    write_labels(calls_,
                 [&](std::uint32_t label, std::uint32_t to) { out_.calls.push_back({label, to}); });
    write_labels(tokens_, [&](std::uint32_t label, std::uint32_t to) {
      out_.token_edges.push_back({label, to});
    });
    return {};
  }

  template <class Write>
  void write_labels(std::vector<Nfa::Edge>& edges, Write write) {
    std::sort(edges.begin(), edges.end(),
              [](const auto& a, const auto& b) { return a.label < b.label; });
    for (std::size_t i = 0; i < edges.size();) {
      Set to;
      const std::uint32_t label = edges[i].label;
      for (; i < edges.size() && edges[i].label == label; ++i) to.push_back(edges[i].to);
      write(label, state_of(to));
    }
  }

  // The state of what can be reached from a set without reading anything.
  std::uint32_t state_of(const Set& from) {
    if (from.size() != 1) return find_state(from);
    Alone& alone = alone_[from.front()];
    if (alone.rule != rule_) alone = {rule_, find_state(from)};
    return alone.state;
  }

  std::uint32_t find_state(const Set& from) {
    closure_.close(from, nfa_.rules[rule_].last, closed_);
    return out_.rules.back().start + 1 + sets_.number_of(closed_);
  }

  // What a member by itself was found to be, and for which rule.
  struct Alone {
    std::uint32_t rule = Nfa::kNone, state = 0;
  };

  const Nfa& nfa_;
  const CompileLimits& limits_;
  Closure closure_;
  LeftCalls left_;
  ByteGroups groups_;
  Automata out_;
  std::vector<std::uint32_t> number_;
  std::uint32_t rule_ = 0;
  std::uint64_t members_ = 0;  // of the sets of the rules before
  std::vector<Set> targets_;
  std::vector<Nfa::Edge> calls_, tokens_;
  Set set_, closed_, single_;
  Sets sets_;                 // of the rule: each becomes the state of its number, after the start
  std::vector<Alone> alone_;  // [state of nfa_]
};

// The least number of open calls that each state needs to end its rule: Dijkstra's order, for a
// cost that is a maximum of two where a rule is called.
class Heights {
 public:
  explicit Heights(Automata& automata) : it_(automata), height_(states(), kNoHeight) {
    // Counted first, then written: one list for all.
    first_user_.resize(states() + 1, 0);
    each_use([&](std::uint32_t state, const User&) { ++first_user_[state]; });
    std::uint32_t sum = 0;
    for (std::uint32_t& first : first_user_) first = sum += first;  // where each list ends
    users_.resize(sum);
    each_use([&](std::uint32_t state, const User& user) { users_[--first_user_[state]] = user; });
  }

  void run() {
    levels_.resize(1);
    for (std::uint32_t s = 0; s < states(); ++s)
      if (it_.states[s].accepts) reach(s, 0);
    for (std::size_t level = 0; level < levels_.size(); ++level) {
      for (std::size_t k = 0; k < levels_[level].size(); ++k) {
        const std::uint32_t state = levels_[level][k];
        if (height_[state] == level) settle(state);
      }
    }
    for (std::uint32_t s = 0; s < states(); ++s)
      it_.states[s].height = static_cast<std::uint16_t>(std::min(height_[s], 65'535U));
  }

 private:
  struct User {
    std::uint32_t state, start, back;
  };
  std::uint32_t states() const { return static_cast<std::uint32_t>(it_.states.size() - 1); }

  template <class Use>
  void each_use(Use use) const {
    for (std::uint32_t s = 0; s < states(); ++s) {
      for (std::uint32_t i = it_.states[s].bytes; i < it_.states[s + 1].bytes; ++i)
        use(it_.ranges[i].to, {s, Automata::kDead, Automata::kDead});
      for (std::uint32_t i = it_.states[s].tokens; i < it_.states[s + 1].tokens; ++i)
        use(it_.token_edges[i].to, {s, Automata::kDead, Automata::kDead});
      for (std::uint32_t i = it_.states[s].calls; i < it_.states[s + 1].calls; ++i) {
        const std::uint32_t start = it_.rules[it_.calls[i].rule].start;
        use(start, {s, start, it_.calls[i].back});
        use(it_.calls[i].back, {s, start, it_.calls[i].back});
      }
    }
  }

  void reach(std::uint32_t state, std::uint32_t height) {
    if (height >= height_[state]) return;
    height_[state] = height;
    if (levels_.size() <= height) levels_.resize(height + 1);
    levels_[height].push_back(state);
  }

  void settle(std::uint32_t state) {
    for (std::uint32_t i = first_user_[state]; i < first_user_[state + 1]; ++i) {
      const User& user = users_[i];
      if (user.start == Automata::kDead) {
        reach(user.state, height_[state]);
      } else if (height_[user.start] != kNoHeight && height_[user.back] != kNoHeight) {
        reach(user.state, std::max(height_[user.start] + 1, height_[user.back]));
      }
    }
  }

  Automata& it_;
  std::vector<std::uint32_t> height_;
  std::vector<std::uint32_t> first_user_;  // [states + 1] in users_
  std::vector<User> users_;
  std::vector<std::vector<std::uint32_t>> levels_;
};

constexpr std::uint32_t kManyRanges = 3;
constexpr std::size_t kMaxRows = 16'384;  // of a kilobyte

void finish(Automata& automata) {
  const std::size_t states = automata.states.size() - 1;
  automata.row.assign(states, Automata::kDead);
  for (std::uint32_t s = 0; s < states; ++s) {
    Automata::State& state = automata.states[s];
    state.plain = !state.accepts && !automata.has_calls(s);
    const std::uint32_t end = automata.states[s + 1].bytes;
    if (end - state.bytes <= kManyRanges || automata.rows.size() >= kMaxRows * 256) continue;
    automata.row[s] = static_cast<std::uint32_t>(automata.rows.size() / 256);
    automata.rows.resize(automata.rows.size() + 256, Automata::kDead);
    std::uint32_t* row = automata.rows.data() + std::size_t{automata.row[s]} * 256;
    for (std::uint32_t i = state.bytes; i < end; ++i) {
      const Automata::Range& range = automata.ranges[i];
      std::fill(row + range.first, row + range.last + 1, range.to);
    }
  }
}

}  // namespace

Result<Automata> determinise(const Nfa& nfa, const CompileLimits& limits) {
  STRATA_ASSIGN(Automata automata, Determiniser(nfa, limits).run());
  if (!automata.calls.empty()) Heights(automata).run();
  finish(automata);
  return automata;
}

}  // namespace strata::constrain
