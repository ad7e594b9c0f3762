// Numbers of a schema, and which numbers they allow.
//
// Readers of JSON disagree about numbers that no double holds. Some compare all of them exactly;
// Python, above all, reads those with a point or an exponent as the nearest double and others
// exactly. What is enforced holds for both: texts without a point and texts with one have bounds of
// their own, and those of the latter are moved to where rounding cannot pass them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <boost/json/value.hpp>

#include "base/decimal.h"
#include "base/result.h"

namespace strata::constrain {

struct SchemaNumber {
  Decimal exact;
  bool rounded = false;  // written with a point or an exponent: some read `nearest`
  double nearest = 0;

  // `value` is a number. Refused if it is beyond doubles, or has more than Decimal::kMostDigits.
  static Result<SchemaNumber> of(const boost::json::value& value);
  Decimal seen() const;  // by those who read the nearest double, if that is a whole number
  bool agreed() const;   // all see the same number
  // An order in which numbers that all see as the same stand together.
  static bool before(const SchemaNumber& a, const SchemaNumber& b);
  SchemaNumber operator-() const { return {-exact, rounded, -nearest}; }
  bool operator==(const SchemaNumber&) const = default;
};

struct Bound {
  Decimal value;
  bool excluded = false;
  bool operator==(const Bound&) const = default;
};

struct Range {
  std::optional<Bound> least, most;
  bool none = false;  // no number at all

  void meet(const Range& other);
  bool unbounded() const { return !least && !most && !none; }
  bool empty() const;  // surely; of numbers, whole or not
  bool without_whole_numbers() const;
  std::optional<Decimal> only() const;  // the one number that is left
  Range operator-() const { return {negated(most), negated(least), none}; }
  bool operator==(const Range&) const = default;

 private:
  static std::optional<Bound> negated(const std::optional<Bound>& bound);
};

struct NumberRanges {
  Range whole;  // of texts without a point
  Range part;   // of texts with one

  // All numbers but these, part by part.
  static std::vector<NumberRanges> without(std::vector<SchemaNumber> numbers);
  static NumberRanges at_least(const SchemaNumber& number, bool excluded);
  static NumberRanges at_most(const SchemaNumber& number, bool excluded);
  void meet(const NumberRanges& other);
  bool empty() const { return whole.empty() && part.empty(); }
  bool unbounded() const { return whole.unbounded() && part.unbounded(); }
  bool operator==(const NumberRanges&) const = default;
  // The only number that is left, as JSON text: a validator takes this spelling of it.
  std::optional<std::string> only() const;
};

}  // namespace strata::constrain
