// Regular languages over bytes, as minimal deterministic automata, and the algebra that JSON
// Schema needs: patterns, lengths and formats are languages, and "all of them" is an intersection.
//
// A Regular is an immutable value: copies share the automaton, any thread may read it. Every state
// can be reached and can still reach an accepting one, so an automaton never walks into a place
// from which its text cannot end. Operations that can grow are bounded by RegularLimits and fail
// with `exhausted`, naming the limit.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace strata::constrain {

struct RegularLimits {
  std::uint32_t states = 400'000;   // of any automaton on the way
  std::uint64_t steps = 8'000'000;  // transitions made by one operation
};

// Unicode scalar values, both ends included; surrogates in between are left out.
struct CodePoints {
  char32_t first = 0, last = 0;
};
inline constexpr char32_t kLastCodePoint = 0x10FFFF;

class Regular {
 public:
  using State = std::uint32_t;
  static constexpr State kDead = UINT32_MAX;  // no text goes on from here

  Regular();               // no text at all
  static Regular empty();  // the empty text alone
  static Regular literal(std::string_view bytes);
  static Regular bytes(const std::bitset<256>& set);          // one byte
  static Regular characters(std::span<const CodePoints> in);  // one character, in UTF-8
  static Regular any_character();
  static const Regular& text();  // any valid UTF-8, the empty text included

  State start() const;  // kDead for the language without any text
  std::uint32_t states() const;
  State next(State state, std::uint8_t byte) const;  // kDead stays dead
  bool accepting(State state) const;                 // false for kDead

  bool is_nothing() const { return start() == kDead; }
  bool accepts(std::string_view bytes) const;
  std::optional<std::uint64_t> longest() const;  // bytes of the longest text; absent: no bound
  bool operator==(const Regular& other) const;   // the same language

  // For the library's own sources.
  struct Automaton;
  explicit Regular(std::shared_ptr<const Automaton> automaton);
  const Automaton& automaton() const { return *automaton_; }

 private:
  std::shared_ptr<const Automaton> automaton_;
};

Result<Regular> concat(std::span<const Regular> parts, const RegularLimits& limits = {});
Result<Regular> either(std::span<const Regular> parts, const RegularLimits& limits = {});
Result<Regular> repeat(const Regular& part, std::uint32_t least, std::optional<std::uint32_t> most,
                       const RegularLimits& limits = {});
Result<Regular> both(const Regular& a, const Regular& b, const RegularLimits& limits = {});
// The texts of `a` that are not in `b`. without(Regular::text(), b) is b's complement.
Result<Regular> without(const Regular& a, const Regular& b, const RegularLimits& limits = {});
// Texts (valid UTF-8) in which `stop`, not empty, does not occur.
Result<Regular> text_without(std::string_view stop, const RegularLimits& limits = {});

// What a pattern of ECMA-262 (flag u) means. Anchors, \b and up to nine lookarounds may be
// anywhere; back references are `unsupported`, and so are properties of characters that are not
// known; syntax errors are `invalid_argument`; all name the place. Needless escapes of punctuation
// and braces that stand for themselves are taken as they are meant. Time is linear in the pattern
// and the automaton, which the limits bound.
enum class Match {
  whole,     // the pattern is the whole text
  anywhere,  // JSON Schema's: it occurs in the text; ^ and $ hold it to the ends
};
Result<Regular> regex(std::string_view pattern, Match match, const RegularLimits& limits = {});

// The JSON string literals, quotes included, whose value is in `text` (valid UTF-8): every spelling
// of each character that JSON allows, so "A" also as "\u0041". Escapes of surrogate pairs count as
// their character; lone surrogates are never accepted.
Result<Regular> json_string(const Regular& text, const RegularLimits& limits = {});
// Numbers as JSON writes them.
Regular json_number();
struct NumberBounds {
  // Decimal texts as JSON writes numbers, any size; absent: none.
  std::optional<std::string_view> least, most;
  bool above_least = false, below_most = false;  // the bound itself is excluded
  bool integer = false;
  static constexpr std::uint32_t kMostZeros = 16;
  bool zeros = false;     // an integer may have a fraction of at most so many zeros, as in 1.0;
                          // a constant (`least` is `most`) so many behind its digits
  bool fraction = false;  // there are digits behind a point, whatever they are
  std::optional<std::uint64_t> multiple_of;  // of integers; at most 10'000
};
// The numbers within the bounds, exactly. With a bound, and for integers, none has an exponent:
// JSON writers do not use one there, and which exponents would do depends on all digits before
// them. `unsupported` for a bound of more than 2,000 digits or a larger divisor.
Result<Regular> json_number(const NumberBounds& bounds, const RegularLimits& limits = {});
// Texts of a `format` of JSON Schema: date-time, date, time, duration, email, idn-email, hostname,
// idn-hostname, ipv4, ipv6, uri, uri-reference, iri, iri-reference, uri-template, uuid,
// json-pointer and relative-json-pointer. Absent for another name, and for regex, whose texts are
// no regular language. What is narrower than its document is said in docs/constrain.md.
std::optional<Regular> format_text(std::string_view name);

}  // namespace strata::constrain
