#include "constrain/spans.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace strata::constrain {
namespace {

constexpr std::uint32_t kFarEnough = 48;  // characters; few tokens have more

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

// Few states, each once.
struct Few {
  static constexpr std::size_t kMost = 12;
  std::array<std::uint32_t, kMost> list{};
  std::size_t count = 0;

  bool add(std::uint32_t state) {
    if (std::find(list.begin(), list.begin() + count, state) != list.begin() + count) return true;
    if (count == kMost) return false;
    list[count++] = state;
    return true;
  }
};

// Adds where the bytes lead; false if one of them leads nowhere.
bool follow(const Automata& automata, std::uint32_t state, Bytes bytes, Few& to) {
  unsigned next = bytes.first;
  for (std::uint32_t i = automata.states[state].bytes; i < automata.states[state + 1].bytes; ++i) {
    const Automata::Range& range = automata.ranges[i];
    if (range.last < next) continue;
    if (range.first > next || !to.add(range.to)) return false;
    next = range.last + 1U;
    if (next > bytes.last) return true;
  }
  return false;
}

// Adds the states that the characters of a kind lead to; false if one of them leads nowhere, or to
// too many.
bool follow(const Automata& automata, std::uint32_t state, Letters kind, Few& to) {
  for (const Bytes bytes : ranges()[static_cast<std::size_t>(kind)])
    if (!follow(automata, state, bytes, to)) return false;
  if (kind != Letters::wide) return true;
  for (const Wide& character : wide()) {
    Few at;
    at.add(state);
    for (std::size_t k = 0; k < character.bytes.size(); ++k) {
      Few next;
      for (std::size_t i = 0; i < at.count; ++i) {
        if (k > 0 && !automata.states[at.list[i]].plain) return false;
        if (!follow(automata, at.list[i], character.bytes[k], next)) return false;
      }
      at = next;
    }
    for (std::size_t i = 0; i < at.count; ++i)
      if (!to.add(at.list[i])) return false;
  }
  return true;
}

// The one state that all characters of a kind lead to.
std::optional<std::uint32_t> target(const Automata& automata, std::uint32_t state, Letters kind) {
  Few to;
  if (!follow(automata, state, kind, to) || to.count != 1) return std::nullopt;
  return to.list[0];
}

// Roughly how many tokens have characters of these kinds.
unsigned weight(LetterSet letters) {
  constexpr std::array<unsigned, kLetters> kWeights = {16, 6, 2, 10, 1, 3, 1, 1, 1, 1, 1, 8};
  unsigned sum = 0;
  for (unsigned kind = 0; kind < kLetters; ++kind)
    if ((letters >> kind) & 1U) sum += kWeights[kind];
  return sum;
}

// The kinds of which a character may come next.
LetterSet begins(const Automata& automata, std::uint32_t state) {
  LetterSet kinds = 0;
  for (std::uint32_t i = automata.states[state].bytes; i < automata.states[state + 1].bytes; ++i) {
    const Automata::Range& range = automata.ranges[i];
    for (unsigned byte = range.first; byte <= range.last; ++byte) {
      const Letters kind =
          byte < 0x80 ? letters_of(static_cast<std::uint8_t>(byte)) : Letters::wide;
      kinds |= static_cast<LetterSet>(1U << static_cast<unsigned>(kind));
    }
  }
  return kinds;
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

// Kinds that lead from a few states to each other only: a text that must contain a word, say. The
// kinds with the most tokens come first; one that would lead astray is left out.
LetterSet Spans::endless(std::uint32_t state) const {
  constexpr std::array<Letters, kLetters> kOrder = {
      Letters::lower,       Letters::space,     Letters::wide,  Letters::upper,
      Letters::punctuation, Letters::digit,     Letters::joint, Letters::less,
      Letters::quote,       Letters::backslash, Letters::line,  Letters::control};
  LetterSet letters = 0;
  for (const Letters kind : kOrder) {
    const auto more = static_cast<LetterSet>(letters | 1U << static_cast<unsigned>(kind));
    Few states;
    states.add(state);
    bool closed = true;
    for (std::size_t i = 0; closed && i < states.count; ++i) {
      for (const Letters k : kOrder) {
        if (((more >> static_cast<unsigned>(k)) & 1U) == 0) continue;
        closed = closed && follow(automata_, states.list[i], k, states);
      }
    }
    if (closed) letters = more;
    if (states.count == Few::kMost) break;  // a long row of states: not here
  }
  return letters;
}

// Follows the steps, as long as they take the kinds of the first one, to a loop or to the end.
Span Spans::find(std::uint32_t state) {
  Span span;
  span.begins = begins(automata_, state);
  const Step first = step(state);
  span.letters = first.letters;
  const Step second = first.letters == 0 || first.to == state ? first : step(first.to);
  if (second.to == first.to && (first.letters & second.letters) != 0) {
    span.letters &= second.letters;
    span.certain = Span::kAll;
  }
  if (const LetterSet letters = endless(state);
      weight(letters) > (span.certain == Span::kAll ? weight(span.letters) : 0)) {
    span.letters = letters;
    span.certain = Span::kAll;
  }
  if (span.certain == Span::kAll || span.letters == 0) return span;
  std::uint32_t at = state;
  for (; span.certain < kFarEnough; ++span.certain) {
    const Step next = step(at);
    if (next.to == Automata::kDead || (next.letters & span.letters) != span.letters) break;
    if (next.to == at) {
      span.certain = Span::kAll;
      return span;
    }
    span.ends = span.ends || automata_.states[at].accepts;
    span.calls = span.calls || automata_.has_calls(at);
    at = next.to;
  }
  span.last = at;
  span.stops = (begins(automata_, at) & span.letters) == 0;
  return span;
}

}  // namespace strata::constrain
