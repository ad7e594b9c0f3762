// Decimal numbers of any size, as JSON writes them, compared exactly.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace strata {

struct Decimal {
  // Whoever writes a number out, with all its zeros, refuses those of more digits.
  static constexpr std::uint64_t kMostDigits = 2'000;

  bool negative = false;   // never of zero
  std::string digits;      // no zero at either end; empty: the number is zero
  std::int64_t point = 0;  // the value is 0.DIGITS times ten to the power of `point`

  // `text` is a number of JSON. Exponents beyond 10^15 count as that.
  static Decimal of(std::string_view text);
  static Decimal shortest(double value);  // the fewest digits that read back as `value`
  static Decimal of_whole(double value);  // exactly it; a whole number, finite
  Decimal operator-() const;

  bool zero() const { return digits.empty(); }
  bool whole() const { return point >= static_cast<std::int64_t>(digits.size()); }
  std::uint64_t written() const;  // digits of text()
  std::string text() const;       // without an exponent: "-0.05", "1200"

  bool operator==(const Decimal&) const = default;
  std::strong_ordering operator<=>(const Decimal& other) const;
};

// The double that is nearest to a number of JSON; infinite where none is near.
double nearest_double(std::string_view text);

}  // namespace strata
