#include "constrain/stacks.h"

#include <algorithm>
#include <bit>

namespace strata::constrain {
namespace {

constexpr std::size_t kLinear = 12;          // readings that are searched one by one
constexpr std::size_t kManyEntries = 1'024;  // worth to be forgotten
constexpr std::size_t kCallsAReading = 4;    // of the limit of readings

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E37'79B9'7F4A'7C15U;
  return hash ^ (hash >> 29U);
}

// By number: for one step only.
std::uint64_t key_of(const Reading& it) {
  return mix(0x51, (std::uint64_t{it.state} << 32U) | it.stack);
}

}  // namespace

Stacks::Stacks(const Automata& automata, const CompileLimits& limits)
    : automata_(&automata), max_depth_(limits.depth), max_readings_(limits.parallel) {
  entries_.push_back({});
  slots_.assign(64, 0);
}

void Stacks::begin(Readings& out) {
  out.clear();
  out.list.push_back({automata_->rules[0].start, 0});
  close(out);
  out.complete = automata_->empty;
}

bool Stacks::step(const Readings& from, std::uint8_t byte, Readings& out) {
  out.clear();
  overflowed_ = false;
  for (const Reading& it : from.list) {
    const std::uint32_t to = automata_->next(it.state, byte);
    if (to != Automata::kDead && !add(out, {to, it.stack})) return false;
  }
  return !out.list.empty() && close(out);
}

bool Stacks::enter(Reading reading, Readings& out) {
  out.clear();
  overflowed_ = false;
  out.list.push_back(reading);
  return close(out);
}

bool Stacks::step_token(const Readings& from, TokenId id, Readings& out) {
  out.clear();
  overflowed_ = false;
  for (const Reading& it : from.list) {
    const Automata::State* state = &automata_->states[it.state];
    for (std::uint32_t i = state[0].tokens; i < state[1].tokens; ++i) {
      const Automata::TokenEdge& edge = automata_->token_edges[i];
      if (automata_->token_sets[edge.set].contains(id) && !add(out, {edge.to, it.stack}))
        return false;
    }
  }
  return !out.list.empty() && close(out);
}

void Stacks::merge(const Readings& from, Readings& to) {
  const auto middle = static_cast<std::ptrdiff_t>(to.list.size());
  to.list.insert(to.list.end(), from.list.begin(), from.list.end());
  std::inplace_merge(to.list.begin(), to.list.begin() + middle, to.list.end());
  to.list.erase(std::unique(to.list.begin(), to.list.end()), to.list.end());
  to.complete = to.complete || from.complete;
}

// Adds what the readings lead to without anything being read: first where rules end, then, rule by
// rule in the order of who begins with whom, where rules are called. A rule that is called reads
// something before it ends, so no entry is left while it is made.
bool Stacks::close(Readings& readings) {
  called_.clear();
  for (std::size_t i = 0; i < readings.list.size(); ++i) {
    ++work_;
    const Reading it = readings.list[i];
    if (automata_->has_calls(it.state) && !call(it)) return overflow(readings);
    if (!automata_->states[it.state].accepts) continue;
    if (it.stack == 0) {
      readings.complete = true;
      continue;
    }
    const Entry& entry = entries_[it.stack];
    for (std::uint32_t k = 0; k < entry.count; ++k)
      if (!add(readings, places_[entry.first + k])) return false;
  }
  if (!called_.empty() && !run_calls(readings)) return false;
  std::erase_if(readings.list, [&](const Reading& it) {
    return !automata_->has_bytes(it.state) && !automata_->has_tokens(it.state);
  });
  std::sort(readings.list.begin(), readings.list.end());
  return !readings.dead();
}

bool Stacks::overflow(Readings& readings) {
  readings.clear();
  overflowed_ = true;
  return false;
}

bool Stacks::add(Readings& readings, Reading reading) {
  std::vector<Reading>& list = readings.list;
  if (list.size() < kLinear) {
    if (std::find(list.begin(), list.end(), reading) != list.end()) return true;
    list.push_back(reading);
    return true;
  }
  if (list.size() >= max_readings_) return overflow(readings);
  // The table is made anew when the list has become long, and whenever it fills.
  if (list.size() == kLinear || list.size() * 2 > seen_.size()) {
    seen_.assign(std::bit_ceil(std::max<std::size_t>(64, list.size() * 4)), 0);
    for (std::size_t i = 0; i < list.size(); ++i) {
      std::size_t slot = key_of(list[i]) & (seen_.size() - 1);
      while (seen_[slot] != 0) slot = (slot + 1) & (seen_.size() - 1);
      seen_[slot] = static_cast<std::uint32_t>(i + 1);
    }
  }
  std::size_t slot = key_of(reading) & (seen_.size() - 1);
  for (; seen_[slot] != 0; slot = (slot + 1) & (seen_.size() - 1))
    if (list[seen_[slot] - 1] == reading) return true;
  list.push_back(reading);
  seen_[slot] = static_cast<std::uint32_t>(list.size());
  return true;
}

// A call that could not end within the limit of depth is not made. False: there are too many.
bool Stacks::call(const Reading& from) {
  const Automata::State* state = &automata_->states[from.state];
  if (called_.size() > kCallsAReading * max_readings_) return false;
  for (std::uint32_t i = state[0].calls; i < state[1].calls; ++i) {
    const Automata::Call& it = automata_->calls[i];
    const std::uint32_t inside = automata_->states[automata_->rules[it.rule].start].height + 1U;
    const std::uint32_t after = automata_->states[it.back].height;
    if (entries_[from.stack].depth + std::max(inside, after) > max_depth_) continue;
    called_.push_back({it.rule, {it.back, from.stack}});
  }
  return true;
}

bool Stacks::run_calls(Readings& readings) {
  const auto later = [](const Called& a, const Called& b) { return a.rule > b.rule; };
  std::make_heap(called_.begin(), called_.end(), later);
  while (!called_.empty()) {
    const std::uint32_t rule = called_.front().rule;
    backs_.clear();
    while (!called_.empty() && called_.front().rule == rule) {
      std::pop_heap(called_.begin(), called_.end(), later);
      const Reading back = called_.back().back;
      called_.pop_back();
      // Where nothing but the end is left, the caller's own caller is as good: lists that are
      // written as recursion at their end need no stack.
      const bool last = back.stack != 0 && automata_->states[back.state].accepts &&
                        !automata_->has_bytes(back.state) && !automata_->has_calls(back.state) &&
                        !automata_->has_tokens(back.state);
      if (last) {
        const std::span<const Reading> below = this->below(back.stack);
        backs_.insert(backs_.end(), below.begin(), below.end());
      } else {
        backs_.push_back(back);
      }
    }
    const Reading start{automata_->rules[rule].start, entry(backs_)};
    if (!add(readings, start)) return false;
    const std::size_t before = called_.size();
    if (automata_->has_calls(start.state) && !call(start)) return overflow(readings);
    for (std::size_t k = before; k < called_.size(); ++k) {
      std::push_heap(called_.begin(), called_.begin() + static_cast<std::ptrdiff_t>(k) + 1, later);
    }
  }
  return true;
}

std::uint32_t Stacks::entry(std::vector<Reading>& places) {
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  work_ += places.size();
  std::uint64_t hash = places.size();
  for (const Reading& it : places) hash += hash_of(it);
  std::size_t slot = hash & (slots_.size() - 1);
  for (; slots_[slot] != 0; slot = (slot + 1) & (slots_.size() - 1)) {
    const Entry& known = entries_[slots_[slot]];
    if (known.hash == hash && known.count == places.size() &&
        std::equal(places.begin(), places.end(), places_.begin() + known.first))
      return slots_[slot];
  }
  const auto number = static_cast<std::uint32_t>(entries_.size());
  Entry fresh{.first = static_cast<std::uint32_t>(places_.size()),
              .count = static_cast<std::uint32_t>(places.size()),
              .depth = UINT32_MAX,
              .hash = hash};
  for (const Reading& it : places)
    fresh.depth = std::min(fresh.depth, entries_[it.stack].depth + 1);
  places_.insert(places_.end(), places.begin(), places.end());
  entries_.push_back(fresh);
  slots_[slot] = number;
  if (entries_.size() * 2 > slots_.size()) fill_slots();
  return number;
}

void Stacks::fill_slots() {
  slots_.assign(std::bit_ceil(std::max<std::size_t>(64, entries_.size() * 4)), 0);
  for (std::size_t i = 1; i < entries_.size(); ++i) {
    std::size_t slot = entries_[i].hash & (slots_.size() - 1);
    while (slots_[slot] != 0) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = static_cast<std::uint32_t>(i);
  }
}

std::uint64_t Stacks::hash_of(const Reading& reading) const {
  return mix(mix(0x51, reading.state), entries_[reading.stack].hash);
}

std::uint64_t Stacks::hash(const Readings& readings) const {
  std::uint64_t hash = readings.list.size();
  for (const Reading& it : readings.list) hash += hash_of(it);
  return hash;
}

void Stacks::forget(std::size_t size) {
  if (entries_.size() < size + kManyEntries) return;
  places_.resize(entries_[size].first);
  entries_.resize(size);
  fill_slots();
}

void Stacks::keep_only(std::span<Readings> readings) {
  // An entry's places name older entries, so one pass from the newest finds all that are needed.
  std::vector<std::uint32_t> number(entries_.size(), 0);
  for (const Readings& it : readings)
    for (const Reading& reading : it.list) number[reading.stack] = 1;
  for (std::size_t i = entries_.size(); i-- > 1;) {
    if (number[i] == 0) continue;
    for (const Reading& place : below(static_cast<std::uint32_t>(i))) number[place.stack] = 1;
  }
  std::uint32_t entries = 1, places = 0;
  number[0] = 0;
  for (std::size_t i = 1; i < entries_.size(); ++i) {
    if (number[i] == 0) continue;
    Entry entry = entries_[i];
    for (std::uint32_t k = 0; k < entry.count; ++k) {
      Reading place = places_[entry.first + k];
      place.stack = number[place.stack];
      places_[places + k] = place;
    }
    entry.first = places;
    places += entry.count;
    number[i] = entries;
    entries_[entries++] = entry;
  }
  entries_.resize(entries);
  places_.resize(places);
  fill_slots();
  for (Readings& it : readings)
    for (Reading& reading : it.list) reading.stack = number[reading.stack];
}

}  // namespace strata::constrain
