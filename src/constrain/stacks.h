// All readings of a text that are alive: which state of which rule, and where each goes on when its
// rule ends. That is a stack whose entries are shared: entry 0 is the bottom, and equal entries are
// one, so that a number names a whole stack (or all the stacks that a text of an ambiguous grammar
// has there).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "constrain/automata.h"

namespace strata::constrain {

struct Reading {
  std::uint32_t state = 0, stack = 0;
  auto operator<=>(const Reading&) const = default;
};

// Readings in order, each once. Those that only end or only call are not kept: what they lead to
// is.
struct Readings {
  std::vector<Reading> list;
  bool complete = false;  // the text may end here

  bool dead() const { return list.empty() && !complete; }
  void clear() {
    list.clear();
    complete = false;
  }
};

class Stacks {
 public:
  Stacks(const Automata& automata, const CompileLimits& limits);

  void begin(Readings& out);
  // What `from` becomes with a byte, or with a token as such. False, with nothing in `out`, if
  // nothing is left, or if there are more readings than the limit: then overflowed() says so.
  bool step(const Readings& from, std::uint8_t byte, Readings& out);
  bool step_token(const Readings& from, TokenId id, Readings& out);
  // A single reading, with what it leads to without anything being read.
  bool enter(Reading reading, Readings& out);
  bool overflowed() const { return overflowed_; }  // of the last of these calls
  // Adds readings that are complete in themselves to others.
  static void merge(const Readings& from, Readings& to);

  // Readings looked at since begin_work(). The same for the same readings of the same grammar,
  // whatever was read before.
  std::uint64_t work() const { return work_; }
  void begin_work() { work_ = 0; }

  // The same for the same readings of the same grammar, whatever was read before.
  std::uint64_t hash(const Readings& readings) const;

  std::size_t size() const { return entries_.size(); }
  std::size_t places() const { return places_.size(); }  // of all entries: what takes the memory
  // Forgets entries behind the first `size` if they have become many; no reading may hold them.
  void forget(std::size_t size);
  // Forgets all entries that these readings do not need; they get new numbers.
  void keep_only(std::span<Readings> readings);
  // Where a stack goes on.
  std::span<const Reading> below(std::uint32_t stack) const {
    return std::span(places_).subspan(entries_[stack].first, entries_[stack].count);
  }

 private:
  struct Entry {
    std::uint32_t first = 0, count = 0;  // in places_
    std::uint32_t depth = 0;  // of the lowest of its stacks: there is always one that may end
    std::uint64_t hash = 0;
  };
  struct Called {
    std::uint32_t rule = 0;
    Reading back;
  };

  bool close(Readings& readings);
  bool add(Readings& readings, Reading reading);
  bool overflow(Readings& readings);
  bool call(const Reading& from);
  bool run_calls(Readings& readings);
  std::uint32_t entry(std::vector<Reading>& places);
  void fill_slots();
  std::uint64_t hash_of(const Reading& reading) const;

  const Automata* automata_;
  std::uint32_t max_depth_, max_readings_;
  std::uint64_t work_ = 0;
  bool overflowed_ = false;
  std::vector<Entry> entries_;
  std::vector<Reading> places_;
  std::vector<std::uint32_t> slots_;  // hash table of entries_; 0 is free
  // Of one step:
  std::vector<Called> called_;
  std::vector<Reading> backs_;
  std::vector<std::uint32_t> seen_;  // hash table of positions in the list + 1, if it is long
};

}  // namespace strata::constrain
