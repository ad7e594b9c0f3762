// Arithmetic, and Python's % formatting.
#include <algorithm>
#include <cmath>

#include "base/json_number.h"
#include "chat/jinja/evaluator.h"

namespace strata::chat::jinja {

namespace {

using Operator = Expression::Operator;

std::string_view symbol(Operator op) {
  switch (op) {
    case Operator::add:
      return "+";
    case Operator::subtract:
      return "-";
    case Operator::multiply:
      return "*";
    case Operator::divide:
      return "/";
    case Operator::floor_divide:
      return "//";
    case Operator::modulo:
      return "%";
    default:
      return "**";
  }
}

[[noreturn]] void unsuitable(Operator op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) raise("{}", value->undefined_reason());
  }
  raise("'{}' does not work on '{}' and '{}'", symbol(op), a.type_name(), b.type_name());
}

[[noreturn]] void overflow() {
  raise("the result is not an integer of 64 bits");
}

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  if (b == -1) {
    std::int64_t result = 0;
    if (__builtin_sub_overflow(std::int64_t{0}, a, &result)) overflow();
    return result;
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

Value float_power(double a, double b) {
  if (std::fpclassify(a) == FP_ZERO && b < 0) raise("zero cannot be raised to a negative power");
  const double result = std::pow(a, b);
  if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) raise("the result is no real number");
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) raise("the result is too large");
  return Value(result);
}

Value integer_power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) return float_power(static_cast<double>(base), static_cast<double>(exponent));
  std::int64_t result = 1;
  while (exponent > 0) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result)) overflow();
    exponent /= 2;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow();
  }
  return Value(result);
}

Value integer_arithmetic(Operator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (op) {
    case Operator::add:
      if (__builtin_add_overflow(a, b, &result)) overflow();
      return Value(result);
    case Operator::subtract:
      if (__builtin_sub_overflow(a, b, &result)) overflow();
      return Value(result);
    case Operator::multiply:
      if (__builtin_mul_overflow(a, b, &result)) overflow();
      return Value(result);
    case Operator::power:
      return integer_power(a, b);
    default:
      break;
  }
  if (b == 0) raise("division by zero");
  if (op == Operator::floor_divide) return Value(floor_quotient(a, b));
  if (b == -1) return Value(std::int64_t{0});
  return Value(a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0));
}

Value float_arithmetic(Operator op, double a, double b) {
  switch (op) {
    case Operator::add:
      return Value(a + b);
    case Operator::subtract:
      return Value(a - b);
    case Operator::multiply:
      return Value(a * b);
    case Operator::power:
      return float_power(a, b);
    default:
      break;
  }
  if (std::fpclassify(b) == FP_ZERO) raise("division by zero");
  if (op == Operator::divide) return Value(a / b);
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (std::fpclassify(rest) == FP_ZERO) {
    rest = std::copysign(0.0, b);
  } else if ((rest < 0) != (b < 0)) {
    rest += b;
    quotient -= 1;
  }
  if (op == Operator::modulo) return Value(rest);
  if (std::fpclassify(quotient) == FP_ZERO) return Value(std::copysign(0.0, a / b));
  const double whole = std::floor(quotient);
  return Value(quotient - whole > 0.5 ? whole + 1 : whole);
}

Value repeat(Budget& budget, const Value& value, std::int64_t count) {
  const auto times = static_cast<std::size_t>(std::max<std::int64_t>(count, 0));
  if (value.is_string()) {
    const std::size_t size = value.text().size();
    if (size > 0)
      budget.text(times > budget.limits().output_bytes / size ? SIZE_MAX : size * times);
    Text text;
    for (std::size_t i = 0; size > 0 && i < times; ++i) text.append(value.text());
    return Value(std::move(text));
  }
  const auto& items = value.list().items();
  std::vector<Value> out;
  if (!items.empty()) {
    budget.items(times > budget.limits().list_items / items.size() ? SIZE_MAX
                                                                   : items.size() * times);
    for (std::size_t i = 0; i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  }
  return make_list(budget, std::move(out), value.list().kind());
}

bool is_sequence(const Value& value) {
  return value.is_string() || (value.is_list() && value.list().kind() != List::Kind::lazy &&
                               value.list().kind() != List::Kind::view);
}

}  // namespace

Value negated(Budget& budget, const Value& value) {
  if (const LargeNumber* large = value.large()) {
    const std::string& text = *large->text;
    return Value::from_json(number_value(text[0] == '-' ? text.substr(1) : "-" + text));
  }
  if (value.is_float()) return Value(-value.number());
  return apply_arithmetic(budget, Operator::subtract, Value(std::int64_t{0}), value);
}

Value apply_arithmetic(Budget& budget, Operator op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer() && op != Operator::divide)
      return integer_arithmetic(op, a.integer("a number"), b.integer("a number"));
    return float_arithmetic(op, a.number(), b.number());
  }
  if (op == Operator::add && a.is_string() && b.is_string()) {
    budget.text(a.text().size() + b.text().size());
    Text text = a.text();
    text.append(b.text());
    return Value(std::move(text));
  }
  if (op == Operator::add && a.is_list() && b.is_list() && is_sequence(a) && is_sequence(b) &&
      a.list().kind() == b.list().kind()) {
    std::vector<Value> items = a.list().items();
    items.insert(items.end(), b.list().items().begin(), b.list().items().end());
    return make_list(budget, std::move(items), a.list().kind());
  }
  if (op == Operator::multiply && is_sequence(a) && b.is_integer()) {
    return repeat(budget, a, b.integer("a count"));
  }
  if (op == Operator::multiply && is_sequence(b) && a.is_integer()) {
    return repeat(budget, b, a.integer("a count"));
  }
  if (op == Operator::modulo && a.is_string()) return Value(format_percent(budget, a.text(), b));
  unsuitable(op, a, b);
}

// --- text % values ---

namespace {

struct Directive {
  std::string flags;
  std::size_t width = 0;
  std::optional<std::size_t> precision;
  std::optional<std::string> key;
  char type = 's';
};

class PercentFormatter {
 public:
  PercentFormatter(Budget& budget, const Text& format, const Value& value)
      : budget_(budget), format_(format), value_(value) {
    is_tuple_ = value.is_list() && value.list().kind() == List::Kind::tuple;
  }

  Text run() {
    const std::string& bytes = format_.bytes();
    while (at_ < bytes.size()) {
      const std::size_t percent = std::min(bytes.find('%', at_), bytes.size());
      out_.append(format_, at_, percent);
      at_ = percent;
      if (at_ < bytes.size()) directive();
      budget_.text(out_.size());
    }
    // Whatever can be indexed counts as a mapping.
    const bool mapping =
        value_.is_dict() || (value_.is_list() && !is_tuple_) || value_.is_undefined();
    if (!used_key_ && used_ < available() && !mapping) {
      raise("not all arguments of the format are used");
    }
    return std::move(out_);
  }

 private:
  std::size_t available() const { return is_tuple_ ? value_.list().items().size() : 1; }

  char peek() const {
    if (at_ >= format_.size()) raise("the format ends inside a directive");
    return format_.bytes()[at_];
  }

  std::size_t number() {
    std::size_t value = 0;
    while (peek() >= '0' && peek() <= '9') {
      value = value * 10 + static_cast<std::size_t>(peek() - '0');
      if (value > 10'000) raise("a width or precision of a format is above 10000");
      ++at_;
    }
    return value;
  }

  void directive() {
    ++at_;
    if (peek() == '%') {
      out_.append(format_, at_, at_ + 1);
      ++at_;
      return;
    }
    Directive d;
    if (peek() == '(') {
      const std::size_t end = format_.bytes().find(')', at_);
      if (end == std::string::npos) raise("a key of the format is not closed with ')'");
      d.key = format_.bytes().substr(at_ + 1, end - at_ - 1);
      at_ = end + 1;
    }
    while (std::string_view("-+ 0#").find(peek()) != std::string_view::npos) {
      d.flags += peek();
      ++at_;
    }
    d.width = number();
    if (peek() == '.') {
      ++at_;
      d.precision = number();
    }
    d.type = peek();
    ++at_;
    pad(d, convert(d, argument(d)));
  }

  Value argument(const Directive& d) {
    if (d.key) {
      used_key_ = true;
      if (!value_.is_dict()) raise("a format with keys needs a mapping");
      const Value* found = value_.dict().find(*d.key);
      if (!found) raise("the format's key '{}' is missing", *d.key);
      return *found;
    }
    if (used_ >= available()) raise("not enough arguments for the format");
    return is_tuple_ ? value_.list().items()[used_++] : (++used_, value_);
  }

  Text convert(const Directive& d, const Value& value) const {
    if (d.type == 's' || d.type == 'r') {
      Text text = d.type == 's' ? to_text(budget_, value) : repr(budget_, value);
      if (d.precision) text = text.slice(0, offset_of_character(text.bytes(), *d.precision));
      return text;
    }
    if (!value.is_number()) raise("%{} needs a number, not a '{}'", d.type, value.type_name());
    return Text(number_text(d, value), true);
  }

  static std::string number_text(const Directive& d, const Value& value) {
    std::string text;
    const int precision = static_cast<int>(d.precision.value_or(6));
    switch (d.type) {
      case 'd':
      case 'i':
      case 'u':
        text = value.is_float() ? fmt::format("{:.0f}", std::trunc(value.number()))
                                : integer_text(value);
        break;
      case 'x':
        text = fmt::format("{:x}", value.integer("%x's value"));
        break;
      case 'X':
        text = fmt::format("{:X}", value.integer("%X's value"));
        break;
      case 'o':
        text = fmt::format("{:o}", value.integer("%o's value"));
        break;
      case 'f':
      case 'F':
        text = fmt::format("{:.{}f}", value.number(), precision);
        break;
      case 'e':
        text = fmt::format("{:.{}e}", value.number(), precision);
        break;
      case 'g':
        text = fmt::format("{:.{}g}", value.number(), precision);
        break;
      default:
        raise("the format directive '%{}' is not supported", d.type);
    }
    if (text.front() != '-') {
      if (d.flags.find('+') != std::string::npos) return fmt::format("+{}", text);
      if (d.flags.find(' ') != std::string::npos) return fmt::format(" {}", text);
    }
    return text;
  }

  void pad(const Directive& d, const Text& text) {
    const std::size_t length = count_characters(text.bytes());
    const std::size_t fill = d.width > length ? d.width - length : 0;
    if (d.flags.find('-') != std::string::npos) {
      out_.append(text);
      out_.append(std::string(fill, ' '), true);
    } else if (d.type != 's' && d.type != 'r' && d.flags.find('0') != std::string::npos) {
      const std::size_t sign = text.bytes().find_first_of("+- ") == 0 ? 1 : 0;
      out_.append(text, 0, sign);
      out_.append(std::string(fill, '0'), true);
      out_.append(text, sign, text.size());
    } else {
      out_.append(std::string(fill, ' '), true);
      out_.append(text);
    }
  }

  Budget& budget_;
  const Text& format_;
  const Value& value_;
  bool is_tuple_ = false;
  std::size_t at_ = 0;
  std::size_t used_ = 0;
  bool used_key_ = false;
  Text out_;
};

}  // namespace

Text format_percent(Budget& budget, const Text& format, const Value& value) {
  return PercentFormatter(budget, format, value).run();
}

}  // namespace strata::chat::jinja
