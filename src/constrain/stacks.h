// All readings of a text that are alive: which state of which rule, and where each goes on when its
// rule ends. That is a stack whose entries are shared: entry 0 is the bottom, and equal entries are
// one, so that a number names a whole stack (or all the stacks that a text of an ambiguous grammar
// has there).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "constrain/tables.h"

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
  // nothing is left.
  bool step(const Readings& from, std::uint8_t byte, Readings& out);
  bool step_token(const Readings& from, TokenId id, Readings& out);
  // Adds readings that are complete in themselves to others.
  static void merge(const Readings& from, Readings& to);

  bool limited() const { return limited_; }  // readings were given up since the last forgive()
  void forgive() { limited_ = false; }

  std::size_t size() const { return entries_.size(); }
  std::size_t bytes() const;
  // The entries behind those below `size` are forgotten; no reading may hold them.
  void truncate(std::size_t size);
  // Where a stack goes on.
  std::span<const Reading> below(std::uint32_t stack) const {
    return std::span(places_).subspan(entries_[stack].first, entries_[stack].count);
  }
  std::uint32_t depth(std::uint32_t stack) const { return entries_[stack].depth; }

 private:
  struct Entry {
    std::uint32_t first = 0, count = 0;  // in places_
    std::uint32_t depth = 0;
    std::uint64_t hash = 0;
  };
  struct Called {
    std::uint32_t rule = 0;
    Reading back;
  };

  bool close(Readings& readings);
  bool add(Readings& readings, Reading reading);
  void call(const Reading& from);
  bool run_calls(Readings& readings);
  std::uint32_t entry(std::vector<Reading>& places);
  void grow();

  const Automata* automata_;
  std::uint32_t max_depth_, max_readings_;
  bool limited_ = false;
  std::vector<Entry> entries_;
  std::vector<Reading> places_;
  std::vector<std::uint32_t> slots_;  // hash table of entries_; 0 is free
  // Of one step:
  std::vector<Called> called_;
  std::vector<Reading> backs_;
  std::vector<std::uint32_t> seen_;  // hash table of positions in the list + 1, if it is long
};

}  // namespace strata::constrain
