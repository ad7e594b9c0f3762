#include "constrain/spans.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <vector>

namespace strata::constrain {
namespace {

constexpr std::uint32_t kFarEnough = 256;  // characters; no token has more that matter

struct Bytes {
  std::uint8_t first, last;
};

// The ASCII characters of each kind, as ranges.
std::array<std::vector<Bytes>, kLetters> make_ranges() {
  std::array<std::vector<Bytes>, kLetters> ranges;
  for (unsigned c = 0; c < 0x80; ++c) {
    const auto byte = static_cast<std::uint8_t>(c);
    auto& list = ranges[static_cast<std::size_t>(letters_of(byte))];
    if (!list.empty() && list.back().last + 1U == c)
      list.back().last = byte;
    else
      list.push_back({byte, byte});
  }
  return ranges;
}

const std::array<std::vector<Bytes>, kLetters>& ranges() {
  static const auto kRanges = make_ranges();
  return kRanges;
}

// Characters outside ASCII, as ranges of their bytes.
struct Wide {
  std::vector<Bytes> bytes;
};
const std::vector<Wide>& wide() {
  static const std::vector<Wide> kWide = {
      {{{0xC2, 0xDF}, {0x80, 0xBF}}},
      {{{0xE0, 0xE0}, {0xA0, 0xBF}, {0x80, 0xBF}}},
      {{{0xE1, 0xEC}, {0x80, 0xBF}, {0x80, 0xBF}}},
      {{{0xED, 0xED}, {0x80, 0x9F}, {0x80, 0xBF}}},
      {{{0xEE, 0xEF}, {0x80, 0xBF}, {0x80, 0xBF}}},
      {{{0xF0, 0xF0}, {0x90, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}}},
      {{{0xF1, 0xF3}, {0x80, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}}},
      {{{0xF4, 0xF4}, {0x80, 0x8F}, {0x80, 0xBF}, {0x80, 0xBF}}},
  };
  return kWide;
}

// Adds where the bytes lead; false if one of them leads nowhere.
bool follow(const Automata& automata, std::uint32_t state, Bytes bytes,
            std::vector<std::uint32_t>& to) {
  unsigned next = bytes.first;
  for (std::uint32_t i = automata.states[state].bytes; i < automata.states[state + 1].bytes; ++i) {
    const Automata::Range& range = automata.ranges[i];
    if (range.last < next) continue;
    if (range.first > next) return false;
    if (std::find(to.begin(), to.end(), range.to) == to.end()) to.push_back(range.to);
    next = range.last + 1U;
    if (next > bytes.last) return true;
  }
  return false;
}

// The one state that all characters of a kind lead to.
std::optional<std::uint32_t> target(const Automata& automata, std::uint32_t state, Letters kind) {
  std::vector<std::uint32_t> ends;
  for (const Bytes bytes : ranges()[static_cast<std::size_t>(kind)]) {
    if (!follow(automata, state, bytes, ends) || ends.size() > 1) return std::nullopt;
  }
  if (kind == Letters::wide) {
    for (const Wide& character : wide()) {
      std::vector<std::uint32_t> at{state}, next;
      for (const Bytes bytes : character.bytes) {
        next.clear();
        for (const std::uint32_t from : at) {
          const bool inside = bytes.first >= 0x80 && bytes.first < 0xC0;
          if (inside && !automata.states[from].plain) return std::nullopt;
          if (!follow(automata, from, bytes, next)) return std::nullopt;
        }
        std::swap(at, next);
      }
      ends.insert(ends.end(), at.begin(), at.end());
      if (std::adjacent_find(ends.begin(), ends.end(), std::not_equal_to<>()) != ends.end())
        return std::nullopt;
    }
  }
  return ends.front();
}

// Whether no text that begins with a byte of the kinds can follow.
bool takes_none(const Automata& automata, std::uint32_t state, LetterSet letters) {
  const Automata::State& it = automata.states[state];
  if (it.accepts || automata.has_calls(state)) return false;
  for (std::uint32_t i = it.bytes; i < automata.states[state + 1].bytes; ++i) {
    const Automata::Range& range = automata.ranges[i];
    for (unsigned byte = range.first; byte <= range.last; ++byte) {
      const Letters kind =
          byte < 0x80 ? letters_of(static_cast<std::uint8_t>(byte)) : Letters::wide;
      if ((letters >> static_cast<unsigned>(kind)) & 1U) return false;
    }
  }
  return true;
}

}  // namespace

// The kinds that lead to one state, the one that most of them lead to.
Spans::Step Spans::step(std::uint32_t state) {
  const auto known = steps_.find(state);
  if (known != steps_.end()) return known->second;
  std::array<std::optional<std::uint32_t>, kLetters> to;
  for (unsigned kind = 0; kind < kLetters; ++kind)
    to[kind] = target(automata_, state, static_cast<Letters>(kind));
  Step best;
  long most = 0;
  for (unsigned kind = 0; kind < kLetters; ++kind) {
    if (!to[kind]) continue;
    const long same = std::count(to.begin(), to.end(), to[kind]);
    // A loop is worth more than any other step: it never ends.
    const long worth = *to[kind] == state ? kLetters + same : same;
    if (worth <= most) continue;
    most = worth;
    best.to = *to[kind];
    best.letters = 0;
    for (unsigned k = 0; k < kLetters; ++k)
      if (to[k] == to[kind]) best.letters |= static_cast<LetterSet>(1U << k);
  }
  steps_.emplace(state, best);
  return best;
}

Span Spans::of(std::uint32_t state) {
  const auto known = known_.find(state);
  if (known != known_.end()) return known->second;
  const Span span = find(state);
  known_.emplace(state, span);
  return span;
}

// Follows the steps, as long as they take the kinds of the first one, to a loop or to the end.
Span Spans::find(std::uint32_t state) {
  const Step first = step(state);
  if (first.letters == 0) return {};
  if (first.to == state) return {first.letters, Span::kAll, false};
  const Step second = step(first.to);
  if (second.to == first.to && (first.letters & second.letters) != 0)
    return {static_cast<LetterSet>(first.letters & second.letters), Span::kAll, false};
  Span span{first.letters, 1, !automata_.has_calls(state) && !automata_.states[state].accepts};
  std::uint32_t at = first.to;
  for (; span.certain < kFarEnough; ++span.certain) {
    const Step next = step(at);
    if (next.to == Automata::kDead || (next.letters & span.letters) != span.letters) break;
    if (next.to == at) {
      span.certain = Span::kAll;
      return span;
    }
    span.exact = span.exact && !automata_.has_calls(at) && !automata_.states[at].accepts;
    at = next.to;
  }
  span.exact = span.exact && takes_none(automata_, at, span.letters);
  return span;
}

}  // namespace strata::constrain
