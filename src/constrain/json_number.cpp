// JSON's numbers as languages, also those within bounds. Numbers are compared as they are read,
// digit by digit, so that bounds are exact whatever their size.
#include <algorithm>

#include "base/decimal.h"
#include "constrain/automaton.h"

namespace strata::constrain {
namespace {

using State = Regular::State;

constexpr std::uint64_t kLargestDivisor = 10'000;

// Parts of numbers. They are small: no limit is near.
Regular one_of(std::string_view bytes) {
  std::bitset<256> set;
  for (const char byte : bytes) set.set(static_cast<std::uint8_t>(byte));
  return Regular::bytes(set);
}
template <class... Parts>
Regular joined(const Parts&... parts) {
  const Regular list[] = {parts...};
  return concat(list).value_or(Regular());
}
template <class... Parts>
Regular any_of(const Parts&... parts) {
  const Regular list[] = {parts...};
  return either(list).value_or(Regular());
}
Regular some(const Regular& part, std::uint32_t least, std::optional<std::uint32_t> most) {
  return repeat(part, least, most).value_or(Regular());
}

Regular whole_number() {
  return any_of(Regular::literal("0"),
                joined(one_of("123456789"), some(one_of("0123456789"), 0, {})));
}
Regular fraction(std::string_view digits, std::optional<std::uint32_t> most = {}) {
  return joined(Regular::literal("."), some(one_of(digits), 1, most));
}
Regular signed_number(const Regular& magnitude) {
  return joined(some(Regular::literal("-"), 0, 1), magnitude);
}

// A bound, without a sign and written out: no zeros before `whole`, which may be empty, and none
// at the end of `fraction`.
struct Digits {
  bool negative = false;
  std::string whole, fraction;
  bool zero() const { return whole.empty() && fraction.empty(); }
  bool operator==(const Digits&) const = default;
};

Result<Digits> digits_of(std::string_view text) {
  if (!json_number().accepts(text))
    return fail(ErrorCode::invalid_argument, "the bound '{}' is no number", text.substr(0, 64));
  const Decimal bound = Decimal::of(text);
  if (bound.written() > Decimal::kMostDigits)
    return fail(ErrorCode::unsupported, "a bound of more than {} digits", Decimal::kMostDigits);
  std::string written = bound.text();
  if (bound.negative) written.erase(0, 1);
  const std::size_t point = std::min(written.find('.'), written.size());
  Digits out{bound.negative, written.substr(0, point), ""};
  if (out.whole == "0") out.whole.clear();
  if (point < written.size()) out.fraction = written.substr(point + 1);
  return out;
}

struct Order {
  bool less = false, equal = false, greater = false;  // which are wanted
};

// Numbers without a sign and an exponent that compare with the bound as wanted.
Regular magnitudes(const Digits& bound, const Order& wanted) {
  enum Sign : unsigned { kEqual, kLess, kGreater };
  const std::string& whole = bound.whole;
  const std::string& rest = bound.fraction;
  ByteClasses classes;
  for (const char byte : std::string_view("0123456789."))
    classes.refine(static_cast<std::uint8_t>(byte));
  Table table(classes);
  const auto accepts = [&](unsigned sign) {
    return sign == kEqual ? wanted.equal : sign == kLess ? wanted.less : wanted.greater;
  };
  const auto compare = [](char digit, char with, unsigned before) -> unsigned {
    if (before != kEqual) return before;
    return digit < with ? kLess : digit > with ? kGreater : kEqual;
  };

  // After the point and `i` digits of the fraction that are the bound's: [i]. Decided ones stay.
  // Each comes twice: the first is before any digit, where the number cannot end.
  std::vector<State> same;
  const auto is_equal = [&](std::size_t i) { return i >= rest.size() ? kEqual : kLess; };
  for (std::size_t i = 0; i <= rest.size() + 1; ++i)
    same.push_back(table.add(i > 0 && accepts(is_equal(i))));
  State decided[3] = {}, point[3] = {};
  for (unsigned sign = kLess; sign <= kGreater; ++sign) {
    point[sign] = table.add();
    decided[sign] = table.add(accepts(sign));
    for (char digit = '0'; digit <= '9'; ++digit) {
      table.connect(point[sign], static_cast<std::uint8_t>(digit), decided[sign]);
      table.connect(decided[sign], static_cast<std::uint8_t>(digit), decided[sign]);
    }
  }
  point[kEqual] = same[0];
  for (std::size_t i = 0; i < same.size(); ++i) {
    for (char digit = '0'; digit <= '9'; ++digit) {
      const unsigned sign = compare(digit, i < rest.size() ? rest[i] : '0', kEqual);
      table.connect(same[i], static_cast<std::uint8_t>(digit),
                    sign == kEqual ? same[std::min(i + 1, same.size() - 1)] : decided[sign]);
    }
  }

  // After `i` digits before the point that compare with the bound's like this: [i - 1][sign].
  const auto add_whole = [&](unsigned sign) {
    // Where the whole parts are equal, the bound's fraction makes the number the lesser one.
    const State state = table.add(accepts(sign == kEqual && !rest.empty() ? kLess : sign));
    table.connect(state, '.', point[sign]);
    return state;
  };
  const State zero = add_whole(whole.empty() ? kEqual : kLess);
  const State longer = add_whole(kGreater);
  std::vector<std::array<State, 3>> digits(whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i)
    for (unsigned sign = kEqual; sign <= kGreater; ++sign)
      digits[i][sign] = add_whole(i + 1 < whole.size() ? kLess : sign);
  table.start = table.add();
  table.connect(table.start, '0', zero);
  for (char digit = '0'; digit <= '9'; ++digit) {
    const auto byte = static_cast<std::uint8_t>(digit);
    const auto to = [&](std::size_t i, unsigned before) {
      return i == whole.size() ? longer : digits[i][compare(digit, whole[i], before)];
    };
    if (digit != '0') table.connect(table.start, byte, to(0, kEqual));
    table.connect(longer, byte, longer);
    for (std::size_t i = 0; i < whole.size(); ++i)
      for (unsigned sign = kEqual; sign <= kGreater; ++sign)
        table.connect(digits[i][sign], byte, to(i + 1, sign));
  }
  return minimal(table);
}

// Numbers that compare with the bound like this, its sign and theirs included.
Regular compared(const Digits& bound, bool above, bool without_equal) {
  const Regular any = magnitudes(Digits(), {.less = true, .equal = true, .greater = true});
  const Regular minus = Regular::literal("-");
  const bool equal = !without_equal;
  if (bound.zero()) {
    // Zero has both signs.
    const Regular nothing = magnitudes(bound, {.less = false, .equal = true, .greater = false});
    const Regular more = magnitudes(bound, {.less = false, .equal = false, .greater = true});
    Regular side = above ? more : joined(minus, more);
    return equal ? any_of(side, signed_number(nothing)) : side;
  }
  const Regular near = magnitudes(bound, {.less = true, .equal = equal, .greater = false});
  const Regular far = magnitudes(bound, {.less = false, .equal = equal, .greater = true});
  if (above) return bound.negative ? any_of(any, joined(minus, near)) : far;
  return bound.negative ? joined(minus, far) : any_of(joined(minus, any), near);
}

// Whole numbers whose digits, read from the first, leave no remainder.
Regular multiples(std::uint64_t divisor) {
  ByteClasses classes;
  for (const char byte : std::string_view("0123456789"))
    classes.refine(static_cast<std::uint8_t>(byte));
  Table table(classes);
  for (std::uint64_t remainder = 0; remainder < divisor; ++remainder) table.add(remainder == 0);
  const State zero = table.add(true);
  table.start = table.add();
  for (char digit = '0'; digit <= '9'; ++digit) {
    const auto byte = static_cast<std::uint8_t>(digit);
    const auto value = static_cast<std::uint64_t>(digit - '0');
    for (std::uint64_t r = 0; r < divisor; ++r)
      table.connect(static_cast<State>(r), byte, static_cast<State>((r * 10 + value) % divisor));
    table.connect(table.start, byte, digit == '0' ? zero : static_cast<State>(value % divisor));
  }
  return minimal(table);
}

}  // namespace

Regular json_number() {
  static const Regular language = [] {
    const Regular exponent =
        joined(one_of("eE"), some(one_of("+-"), 0, 1), some(one_of("0123456789"), 1, {}));
    return signed_number(
        joined(whole_number(), some(fraction("0123456789"), 0, 1), some(exponent, 0, 1)));
  }();
  return language;
}

Result<Regular> json_number(const NumberBounds& bounds, const RegularLimits& limits) {
  Budget budget(limits);
  const bool integer = bounds.integer || bounds.multiple_of;
  if (!integer && !bounds.fraction && !bounds.least && !bounds.most) return json_number();
  if (bounds.multiple_of && *bounds.multiple_of == 0)
    return fail(ErrorCode::invalid_argument, "numbers cannot be multiples of 0");
  if (bounds.multiple_of && *bounds.multiple_of > kLargestDivisor)
    return fail(ErrorCode::unsupported, "multiples of {}: the largest divisor is {}",
                *bounds.multiple_of, kLargestDivisor);

  const Regular whole = bounds.multiple_of ? multiples(*bounds.multiple_of) : whole_number();
  // Without a bound a model could write zeros until its limit, as it could white space.
  const Regular zeros =
      joined(Regular::literal("."), some(Regular::literal("0"), 1, NumberBounds::kMostZeros));
  std::optional<Digits> least, most;
  if (bounds.least) {
    STRATA_ASSIGN(least, digits_of(*bounds.least));
  }
  if (bounds.most) {
    STRATA_ASSIGN(most, digits_of(*bounds.most));
  }
  std::optional<std::uint32_t> digits;  // behind the point
  if (least && least == most)
    digits = static_cast<std::uint32_t>(least->fraction.size()) + NumberBounds::kMostZeros;
  const Regular behind = !integer       ? fraction("0123456789", digits)
                         : bounds.zeros ? zeros
                                        : Regular::empty();
  const Regular after = bounds.fraction ? behind : some(behind, 0, 1);
  Regular result = signed_number(joined(whole, after));
  if (least) {
    STRATA_ASSIGN(result, both(result, compared(*least, true, bounds.above_least), budget));
  }
  if (most) {
    STRATA_ASSIGN(result, both(result, compared(*most, false, bounds.below_most), budget));
  }
  return result;
}

}  // namespace strata::constrain
