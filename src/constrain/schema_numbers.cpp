#include "constrain/schema_numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/json_number.h"

namespace strata::constrain {
namespace {

void tighten(std::optional<Bound>& bound, const std::optional<Bound>& other, bool upwards) {
  if (!other) return;
  if (!bound || (upwards ? other->value > bound->value : other->value < bound->value)) {
    bound = other;
  } else if (other->value == bound->value) {
    bound->excluded |= other->excluded;
  }
}

// One more, of a whole number that is not negative; or one less, of one above zero.
Decimal stepped(const Decimal& number, bool up) {
  std::string text(1, '0');
  text += number.text();
  const char last = up ? '9' : '0', first = up ? '0' : '9';
  std::size_t at = text.size() - 1;
  for (; text[at] == last; --at) text[at] = first;
  text[at] = static_cast<char>(text[at] + (up ? 1 : -1));
  return Decimal::of(text);
}

// The smallest whole number that is at least, or above, the bound.
Decimal first_whole(const Bound& bound) {
  Decimal out = bound.value;
  const bool whole = out.whole();
  if (!whole) {  // towards zero
    const auto kept = static_cast<std::size_t>(std::max<std::int64_t>(out.point, 0));
    out.digits.resize(kept);
    out.digits.erase(out.digits.find_last_not_of('0') + 1);
    if (out.zero()) out = Decimal();
  }
  if (whole ? !bound.excluded : bound.value.negative) return out;
  return out.negative ? -stepped(-out, false) : stepped(out, true);
}

}  // namespace

Result<SchemaNumber> SchemaNumber::of(const boost::json::value& value) {
  const double* held = value.if_double();
  if (held != nullptr && !std::isfinite(*held))
    return fail(ErrorCode::invalid_argument, "the number is larger than 1.8e308");
  const std::string text = number_text(value);
  SchemaNumber out{Decimal::of(text), text.find_first_of(".eE") != std::string::npos,
                   nearest_double(text)};
  if (out.rounded && !std::isfinite(out.nearest))
    return fail(ErrorCode::invalid_argument, "the number is larger than 1.8e308");
  if (out.exact.written() > Decimal::kMostDigits) {
    return fail(ErrorCode::exhausted, "the number has more than {} digits, written out",
                Decimal::kMostDigits);
  }
  return out;
}

Decimal SchemaNumber::seen() const {
  return rounded && nearest == std::trunc(nearest) ? Decimal::of_whole(nearest) : exact;
}

bool SchemaNumber::before(const SchemaNumber& a, const SchemaNumber& b) {
  return a.exact != b.exact ? a.exact < b.exact : a.seen() < b.seen();
}

bool SchemaNumber::agreed() const {
  return seen() == exact &&
         (rounded || (std::isfinite(nearest) && Decimal::of_whole(nearest) == exact));
}

std::optional<Bound> Range::negated(const std::optional<Bound>& bound) {
  if (!bound) return std::nullopt;
  return Bound{-bound->value, bound->excluded};
}

void Range::meet(const Range& other) {
  tighten(least, other.least, true);
  tighten(most, other.most, false);
  none |= other.none;
}

bool Range::empty() const {
  if (none || !least || !most) return none;
  if (least->value == most->value) return least->excluded || most->excluded;
  return least->value > most->value;
}

bool Range::without_whole_numbers() const {
  if (empty() || !least || !most) return empty();
  const Range mirrored = -*this;
  return first_whole(*least) > -first_whole(*mirrored.least);
}

std::optional<Decimal> Range::only() const {
  if (empty() || !least || !most || least->value != most->value) return std::nullopt;
  return least->value;
}

NumberRanges NumberRanges::at_least(const SchemaNumber& number, bool excluded) {
  NumberRanges out;
  out.whole.least = Bound{std::max(number.exact, number.seen()), excluded};
  double first = number.nearest;  // of the doubles within the bound
  const double next = std::nextafter(first, std::numeric_limits<double>::infinity());
  if (number.rounded || number.agreed()) {
    if (!excluded) {  // rounding keeps the order
      out.part.least = Bound{number.exact, false};
      return out;
    }
    first = next;
  } else if (std::isfinite(first) ? Decimal::of_whole(first) < number.exact : first < 0) {
    first = next;
  }
  out.part.none = std::isinf(first);
  if (out.part.none) return out;
  Decimal text = Decimal::shortest(first);  // one of those that are read as `first`
  if (first == std::trunc(first)) text = std::min(text, Decimal::of_whole(first));
  out.part.least = text > number.exact ? Bound{text, false} : Bound{number.exact, excluded};
  return out;
}

NumberRanges NumberRanges::at_most(const SchemaNumber& number, bool excluded) {
  const NumberRanges mirrored = at_least(-number, excluded);
  return {-mirrored.whole, -mirrored.part};
}

std::vector<NumberRanges> NumberRanges::without(std::vector<SchemaNumber> numbers) {
  std::sort(numbers.begin(), numbers.end(), SchemaNumber::before);
  std::vector<NumberRanges> out;
  NumberRanges between;  // the last number and the next
  const auto add = [&](NumberRanges part) {
    if (!part.empty()) out.push_back(std::move(part));
  };
  for (const SchemaNumber& number : numbers) {
    between.meet(at_most(number, true));
    add(std::exchange(between, at_least(number, true)));
  }
  add(std::move(between));
  if (std::all_of(numbers.begin(), numbers.end(), [](const auto& it) { return it.agreed(); }))
    return out;
  // Texts without a point are not these numbers and not what others see in them.
  for (NumberRanges& it : out) it.whole.none = true;
  std::vector<Decimal> points;
  for (const SchemaNumber& number : numbers) {
    points.push_back(number.exact);
    points.push_back(number.seen());
  }
  std::sort(points.begin(), points.end());
  between = {};
  between.part.none = true;
  for (const Decimal& point : points) {
    between.whole.most = Bound{point, true};
    add(between);
    between.whole = {Bound{point, true}, std::nullopt};
  }
  add(std::move(between));
  return out;
}

void NumberRanges::meet(const NumberRanges& other) {
  whole.meet(other.whole);
  part.meet(other.part);
}

std::optional<std::string> NumberRanges::only() const {
  const std::optional<Decimal> in_whole = whole.only(), in_part = part.only();
  if (!in_whole && !whole.empty()) return std::nullopt;
  if (!in_part && !part.empty()) return std::nullopt;
  if (in_whole && in_part && *in_whole != *in_part) return std::nullopt;
  if (in_whole && in_whole->whole()) return in_whole->text();
  if (!in_part) return std::nullopt;
  return in_part->text() + (in_part->whole() ? ".0" : "");
}

}  // namespace strata::constrain
