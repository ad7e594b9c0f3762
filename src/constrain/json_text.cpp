// JSON's own texts as languages: string literals by the strings they stand for.
#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "constrain/automaton.h"
#include "tokenizer/utf8.h"

namespace strata::constrain {
namespace {

using State = Regular::State;
constexpr State kDead = Regular::kDead;

constexpr std::string_view kHex = "0123456789abcdefABCDEF";
// What may stand behind a backslash, and what it means there.
constexpr std::string_view kShort = "\"\\/bfnrt", kMeaning = "\"\\/\b\f\n\r\t";

int hex_digit(std::uint8_t byte) {
  if (byte >= '0' && byte <= '9') return byte - '0';
  if (byte >= 'a' && byte <= 'f') return byte - 'a' + 10;
  if (byte >= 'A' && byte <= 'F') return byte - 'A' + 10;
  return -1;
}

// What has been read, of the literal, since the last whole character. The states named are those of
// the text's automaton; where an escape leaves bits of a UTF-8 sequence undecided, there are four,
// by the bits that come next.
struct Reading {
  enum class Kind : std::uint8_t {
    open,         // nothing yet
    inside,       // whole characters
    raw,          // some bytes of a character
    escape,       // a backslash
    hex,          // \u
    hex_0,        // \u0
    hex_00,       // \u0 and one of 0 to 7, in `bits`: a character of one or two bytes
    hex_000,      // \u00 and one of 0 to 7, in `bits`: a character of one byte
    hex_d,        // \uD
    hex_lead,     // the first digit of a character of three bytes, whose lead is read
    hex_four,     // two digits: the second byte is one of four
    high,         // \uD8 to \uDB, in `bits`
    high_four,    // and a digit: the second byte of four is one of four
    pair,         // a high surrogate; two bits of the third byte are known, in `bits`
    pair_escape,  // and a backslash
    pair_hex,     // \u
    pair_d,       // D
    pair_digit,   // C to F: four bits of the third byte are known
    last,         // one digit is missing: two bits of the last byte are known
    closed,
  };
  Kind kind = Kind::open;
  std::uint8_t bits = 0;
  std::array<State, 4> states{kDead, kDead, kDead, kDead};
  bool operator==(const Reading&) const = default;
};

struct ReadingHash {
  std::size_t operator()(const Reading& reading) const {
    std::uint64_t hash = std::uint64_t{static_cast<std::uint8_t>(reading.kind)} << 8 | reading.bits;
    for (const State state : reading.states) hash = (hash ^ state) * 0x9E3779B97F4A7C15;
    return hash ^ hash >> 29;
  }
};

// Bytes that neither the text nor the spelling of a literal tells apart.
ByteClasses classes_of(const Regular::Automaton& text) {
  static const ByteClasses spelling = [] {
    ByteClasses classes;
    for (const char byte : std::string_view("\"\\/bfnrtu")) classes.refine(std::uint8_t(byte));
    std::bitset<256> control;
    for (unsigned byte = 0; byte < 0x20; ++byte) control.set(byte);
    classes.refine(control);
    for (const char digit : kHex) {
      std::bitset<256> digits;
      for (unsigned byte = 0; byte < 256; ++byte)
        if (hex_digit(std::uint8_t(byte)) == hex_digit(std::uint8_t(digit))) digits.set(byte);
      classes.refine(digits);
    }
    return classes;
  }();
  ByteClasses classes = text.classes;
  classes.refine(spelling);
  return classes;
}

class Literals {
 public:
  using Kind = Reading::Kind;

  Literals(const Regular& text, std::vector<State> positions, const RegularLimits& limits)
      : text_(text.automaton()),
        positions_(std::move(positions)),
        between_(Regular::text().start()),
        budget_(limits),
        table_(classes_of(text_)),
        bytes_(table_.classes.representatives()) {
    std::ranges::sort(bytes_);
    const auto first = std::ranges::lower_bound(bytes_, std::uint8_t{0x80});
    first_more_ = static_cast<std::size_t>(first - bytes_.begin());
    more_ = static_cast<std::size_t>(std::ranges::lower_bound(bytes_, std::uint8_t{0xC0}) - first);
  }

  Result<Regular> run() {
    table_.start = state_of(Reading());
    for (State s = 0; s < table_.states(); ++s) {
      const Reading reading = readings_[s];
      const std::string_view choices = bytes_after(reading.kind);
      if (!budget_.take(choices.size()) || !budget_.holds(table_.states()))
        return tl::unexpected(budget_.error());
      for (const char byte : choices) {
        const State to = state_of(after(reading, static_cast<std::uint8_t>(byte)));
        table_.connect(s, static_cast<std::uint8_t>(byte), to);
      }
    }
    return minimal(table_);
  }

 private:
  // The bytes that can come next, at least one of each class.
  std::string_view bytes_after(Kind kind) const {
    switch (kind) {
      case Kind::open:
        return "\"";
      case Kind::inside:
        return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
      case Kind::raw:
        return {reinterpret_cast<const char*>(bytes_.data()) + first_more_, more_};
      case Kind::escape:
        return "\"\\/bfnrtu";
      case Kind::pair:
        return "\\";
      case Kind::pair_escape:
        return "u";
      case Kind::closed:
        return "";
      default:
        return kHex;
    }
  }

  static constexpr Reading dead() { return {Kind::closed, 1, {}}; }

  State state_of(const Reading& reading) {
    if (reading == dead()) return kDead;
    const auto [known, fresh] = known_.try_emplace(reading, table_.states());
    if (fresh) {
      table_.add(reading.kind == Kind::closed);
      readings_.push_back(reading);
    }
    return known->second;
  }

  State next(State state, unsigned byte) const {
    return state == kDead ? kDead : text_.next(state, static_cast<std::uint8_t>(byte));
  }
  static Reading with(Kind kind, State state, unsigned bits = 0) {
    if (state == kDead) return dead();
    return {kind, static_cast<std::uint8_t>(bits), {state, kDead, kDead, kDead}};
  }
  // The same, if one of the bytes leads on from the state.
  Reading with_any(Kind kind, State state, unsigned bits, unsigned first, unsigned last) const {
    for (unsigned byte = first; byte <= last; ++byte)
      if (next(state, byte) != kDead) return with(kind, state, bits);
    return dead();
  }
  // The four states that continuation bytes lead to whose six bits begin with `high` and end with 0
  // to 3.
  Reading with_four(Kind kind, State state, unsigned high) const {
    Reading result{kind, 0, {}};
    bool any = false;
    for (unsigned low = 0; low < 4; ++low) {
      result.states[low] = next(state, 0x80 | high << 2 | low);
      any = any || result.states[low] != kDead;
    }
    return any ? result : dead();
  }

  // One digit is missing, the last four bits of a continuation byte. Most of an automaton would be
  // such readings; those that lead to the same places are one.
  Reading last(State state, unsigned bits) {
    if (state == kDead) return dead();
    const auto [known, fresh] = lasts_.try_emplace(std::uint64_t{state} << 2 | bits, dead());
    if (!fresh) return known->second;
    Targets targets;
    for (unsigned digit = 0; digit < targets.size(); ++digit)
      targets[digit] = next(state, 0x80 | bits << 4 | digit);
    if (std::ranges::all_of(targets, [](State to) { return to == kDead; })) return dead();
    return known->second = alike_.try_emplace(targets, with(Kind::last, state, bits)).first->second;
  }

  Reading after(const Reading& reading, std::uint8_t byte) {
    const State state = reading.states[0];
    switch (reading.kind) {
      case Kind::open:
        return byte == '"' ? with(Kind::inside, text_.start) : dead();
      case Kind::inside:
        if (byte == '"') return text_.accepting[state] != 0 ? Reading{Kind::closed, 0, {}} : dead();
        if (byte == '\\') return with(Kind::escape, state);
        return byte < 0x20 ? dead() : raw(state, byte);
      case Kind::raw:
        return raw(state, byte);
      case Kind::escape:
        return after_escape(state, byte);
      case Kind::pair:
        return byte == '\\' ? with(Kind::pair_escape, state, reading.bits) : dead();
      case Kind::pair_escape:
        return byte == 'u' ? with(Kind::pair_hex, state, reading.bits) : dead();
      case Kind::closed:
        return dead();
      default:
        break;
    }
    const int digit = hex_digit(byte);
    return digit < 0 ? dead() : after_digit(reading, static_cast<unsigned>(digit));
  }

  Reading raw(State state, std::uint8_t byte) const {
    const State to = next(state, byte);
    if (to == kDead) return dead();
    return with(positions_[to] == between_ ? Kind::inside : Kind::raw, to);
  }

  Reading after_escape(State state, std::uint8_t byte) const {
    if (byte == 'u') return with(Kind::hex, state);
    const std::size_t which = kShort.find(static_cast<char>(byte));
    if (which == kShort.npos) return dead();
    return with(Kind::inside, next(state, static_cast<std::uint8_t>(kMeaning[which])));
  }

  Reading after_digit(const Reading& reading, unsigned digit) {
    const State state = reading.states[0];
    switch (reading.kind) {
      case Kind::hex:
        if (digit == 0) return with(Kind::hex_0, state);
        if (digit == 0xD) return with_any(Kind::hex_d, state, 0, 0xED, 0xF4);
        return with(Kind::hex_lead, next(state, 0xE0 | digit));
      case Kind::hex_0:
        if (digit == 0) return with_any(Kind::hex_00, state, 0, 0x00, 0xC3);
        if (digit < 8)
          return with_any(Kind::hex_00, state, digit, 0xC0 | digit << 2, 0xC3 | digit << 2);
        return with_four(Kind::hex_four, next(state, 0xE0), digit);
      case Kind::hex_00:
        if (reading.bits == 0 && digit < 8)
          return with_any(Kind::hex_000, state, digit, digit << 4, 15 | digit << 4);
        return last(next(state, 0xC0 | reading.bits << 2 | digit >> 2), digit & 3);
      case Kind::hex_000:
        return with(Kind::inside, next(state, reading.bits << 4 | digit));
      case Kind::hex_d:
        if (digit < 8) return with_four(Kind::hex_four, next(state, 0xED), digit);
        return digit < 0xC ? with_any(Kind::high, state, digit & 3, 0xF0, 0xF4) : dead();
      case Kind::hex_lead:
        return with_four(Kind::hex_four, state, digit);
      case Kind::hex_four:
        return last(reading.states[digit >> 2], digit & 3);
      case Kind::high: {
        // Six bits of the ten, above 0x10000: all of the lead, and four of the second byte.
        const unsigned bits = (reading.bits << 4 | digit) + 4;
        return with_four(Kind::high_four, next(state, 0xF0 | bits >> 4), bits & 15);
      }
      case Kind::high_four:
        return with(Kind::pair, reading.states[digit >> 2], digit & 3);
      case Kind::pair_hex:
        return digit == 0xD ? with(Kind::pair_d, state, reading.bits) : dead();
      case Kind::pair_d:
        return digit < 0xC ? dead()
                           : with(Kind::pair_digit, state, reading.bits << 2 | (digit & 3));
      case Kind::pair_digit:
        return last(next(state, 0x80 | reading.bits << 2 | digit >> 2), digit & 3);
      case Kind::last:
        return with(Kind::inside, next(state, 0x80 | reading.bits << 4 | digit));
      default:
        return dead();
    }
  }

  const Regular::Automaton& text_;
  std::vector<State> positions_;  // [state of the text] within a character
  State between_;
  Budget budget_;
  Table table_;
  std::vector<std::uint8_t> bytes_;        // one of each class, ascending
  std::size_t first_more_ = 0, more_ = 0;  // of them, those that may go on with a character
  std::vector<Reading> readings_;          // [state of the table]
  std::unordered_map<Reading, State, ReadingHash> known_;
  using Targets = std::array<State, 16>;              // [digit]
  std::unordered_map<std::uint64_t, Reading> lasts_;  // by state and bits
  std::map<Targets, Reading> alike_;
};

// The literals of one word, which is what names and constants are: a chain with a branch for every
// escape. It is minimal as it is: between characters the word's rest tells states apart, and inside
// an escape nothing but its next digit can follow.
class WordLiterals {
 public:
  static constexpr std::size_t kMaxBytes = 4'096;

  explicit WordLiterals(const Regular& text)
      : word_(*text.automaton().word), table_(classes_of(text.automaton())) {}

  // Absent if the word is no valid UTF-8.
  std::optional<Regular> run() {
    table_.start = table_.add();
    State at = step(table_.start, '"');
    for (std::size_t i = 0; i < word_.size();) {
      const Utf8Char character = decode_utf8(word_, i);
      if (character.status != Utf8Status::valid) return std::nullopt;
      const State behind = table_.add();
      escaped(at, character.code, behind);
      if (character.code >= 0x20 && character.code != '"' && character.code != '\\') {
        for (const char byte : word_.substr(i, character.length - 1U)) at = step(at, byte);
        connect(at, word_[i + character.length - 1], behind);
      }
      at = behind;
      i += character.length;
    }
    table_.accepting[step(at, '"')] = 1;
    return already_minimal(table_);
  }

 private:
  void connect(State from, char byte, State to) {
    table_.connect(from, static_cast<std::uint8_t>(byte), to);
  }
  State step(State from, char byte) {
    const State to = table_.add();
    connect(from, byte, to);
    return to;
  }

  void escaped(State from, char32_t code, State to) {
    State at = step(from, '\\');
    if (code < 0x80) {
      const std::size_t which = kMeaning.find(static_cast<char>(code));
      if (which != kMeaning.npos) connect(at, kShort[which], to);
    }
    at = step(at, 'u');
    if (code < 0x10000) return digits(at, code, to);
    const char32_t above = code - 0x10000;
    const State pair = table_.add();
    digits(at, 0xD800 | above >> 10, pair);
    digits(step(step(pair, '\\'), 'u'), 0xDC00 | (above & 0x3FF), to);
  }

  void digits(State at, char32_t unit, State to) {
    for (unsigned shift = 16; shift > 0;) {
      shift -= 4;
      const State next = shift == 0 ? to : table_.add();
      const char digit = kHex[unit >> shift & 15];
      connect(at, digit, next);
      if (digit >= 'a') connect(at, static_cast<char>(digit - 'a' + 'A'), next);
      at = next;
    }
  }

  std::string_view word_;
  Table table_;
};

Result<Regular> literals_of(const Regular& text, const RegularLimits& limits) {
  if (const auto& word = text.automaton().word; word && word->size() <= WordLiterals::kMaxBytes) {
    if (auto literals = WordLiterals(text).run()) return *std::move(literals);
  }
  std::vector<State> positions = text_positions(text);
  if (!positions.empty() || text.is_nothing())
    return Literals(text, std::move(positions), limits).run();
  STRATA_ASSIGN(const Regular valid, both(text, Regular::text(), limits));
  return Literals(valid, text_positions(valid), limits).run();
}

// The spellings of texts, without the quotes; no text is the beginning of another, and none empty.
Result<Regular> spelled(const Regular& text, const RegularLimits& limits) {
  STRATA_ASSIGN(const Regular quoted, literals_of(text, limits));
  const Regular::Automaton& automaton = quoted.automaton();
  Table table(automaton.classes);
  for (State s = 0; s < automaton.states(); ++s) table.add();
  for (State s = 0; s < automaton.states(); ++s) {
    for (std::uint32_t c = 0; c < automaton.classes.count; ++c) {
      const State to = automaton.next_of_class(s, c);
      if (to == kDead) continue;
      if (automaton.accepting[to] != 0)
        table.accepting[s] = 1;  // where the closing quote would come
      else
        table.at(s, c) = to;
    }
  }
  table.start = quoted.next(automaton.start, '"');
  return minimal(table);
}

}  // namespace

Result<Regular> json_string(const Regular& text, const RegularLimits& limits) {
  // What is a repetition remains one: lengths are the commonest bounds of strings.
  if (const auto& repetition = text.automaton().repetition) {
    STRATA_ASSIGN(const Regular part, spelled(repetition->part, limits));
    if (!text_positions(repetition->part).empty() &&
        countable(part, repetition->least, repetition->most)) {
      Budget budget(limits);
      return counted("\"", part, repetition->least, repetition->most, "\"", budget);
    }
  }
  return literals_of(text, limits);
}

}  // namespace strata::constrain
