#include "base/decimal.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

namespace strata {
namespace {

constexpr std::int64_t kMostExponent = 1'000'000'000'000'000;

std::int64_t exponent_of(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  std::int64_t exponent = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), exponent);
  if (code != std::errc()) exponent = text.starts_with('-') ? -kMostExponent : kMostExponent;
  return std::clamp(exponent, -kMostExponent, kMostExponent);
}

}  // namespace

Decimal Decimal::of(std::string_view text) {
  Decimal out;
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const std::size_t mark = text.find_first_of("eE");
  const std::string_view mantissa = text.substr(0, mark);
  const std::size_t point = std::min(mantissa.find('.'), mantissa.size());
  std::string digits(mantissa.substr(0, point));
  if (point < mantissa.size()) digits += mantissa.substr(point + 1);
  const std::size_t first = digits.find_first_not_of('0');
  if (first == std::string::npos) return out;
  digits.erase(digits.find_last_not_of('0') + 1);
  digits.erase(0, first);
  out.negative = negative;
  out.digits = std::move(digits);
  out.point = static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first);
  if (mark != std::string_view::npos) out.point += exponent_of(text.substr(mark + 1));
  return out;
}

Decimal Decimal::shortest(double value) {
  return of(fmt::format("{}", value));
}

Decimal Decimal::of_whole(double value) {
  return of(fmt::format("{:.0f}", value));
}

Decimal Decimal::operator-() const {
  Decimal out = *this;
  out.negative = !negative && !zero();
  return out;
}

std::uint64_t Decimal::written() const {
  const auto size = static_cast<std::int64_t>(digits.size());
  return static_cast<std::uint64_t>(std::max<std::int64_t>({point, size, 1}) -
                                    std::min<std::int64_t>(point, 0));
}

std::string Decimal::text() const {
  if (zero()) return "0";
  std::string out = negative ? "-" : "";
  const auto size = static_cast<std::int64_t>(digits.size());
  if (point <= 0) {
    out.append("0.").append(static_cast<std::size_t>(-point), '0').append(digits);
  } else if (point >= size) {
    out.append(digits).append(static_cast<std::size_t>(point - size), '0');
  } else {
    const auto whole_digits = static_cast<std::size_t>(point);
    out.append(digits, 0, whole_digits)
        .append(1, '.')
        .append(digits, whole_digits, std::string::npos);
  }
  return out;
}

std::strong_ordering Decimal::operator<=>(const Decimal& other) const {
  const int sign = zero() ? 0 : negative ? -1 : 1;
  const int other_sign = other.zero() ? 0 : other.negative ? -1 : 1;
  if (sign != other_sign || sign == 0) return sign <=> other_sign;
  const Decimal& a = negative ? other : *this;
  const Decimal& b = negative ? *this : other;
  if (a.point != b.point) return a.point <=> b.point;
  return a.digits.compare(b.digits) <=> 0;
}

double nearest_double(std::string_view text) {
  double out = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (code != std::errc::result_out_of_range) return out;
  const Decimal value = Decimal::of(text);
  if (value.point <= 0) return value.negative ? -0.0 : 0.0;
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  return value.negative ? -kInfinite : kInfinite;
}

}  // namespace strata
