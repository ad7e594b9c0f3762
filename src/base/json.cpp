#include "base/json.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>
#include <cmath>
#include <exception>
#include <type_traits>

#include "base/decimal.h"
#include "base/json_names.h"
#include "base/json_number.h"

namespace strata {
namespace {

namespace json = boost::json;

std::string_view kind_text(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a boolean";
    case json::kind::int64:
    case json::kind::uint64:
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return is_number(value) ? "a number" : "an object";
  }
  return "unknown";
}

tl::unexpected<Error> wrong(const json::value& value, std::string_view key, std::string_view wanted,
                            const JsonSource& source) {
  return fail(source.code, "{}: '{}' is {} where {} is needed", source.name, key, kind_text(value),
              wanted);
}

// nullptr if the member is absent or null.
const json::value* member(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(json::string_view(key.data(), key.size()));
  return value == nullptr || value->is_null() ? nullptr : value;
}

constexpr double kTwoTo53 = 9007199254740992.0;  // doubles above are not exact integers

std::optional<double> as_double(const json::value& value) {
  if (const auto text = long_number(value)) return nearest_double(*text);
  if (const auto* held = value.if_double()) return *held;
  return std::nullopt;
}

std::optional<std::uint64_t> as_uint(const json::value& value) {
  if (const auto* u = value.if_uint64()) return *u;
  if (const auto* i = value.if_int64(); i != nullptr && *i >= 0) {
    return static_cast<std::uint64_t>(*i);
  }
  if (const auto d = as_double(value); d && *d >= 0 && *d <= kTwoTo53) {
    if (std::trunc(*d) == *d) return static_cast<std::uint64_t>(*d);
  }
  return std::nullopt;
}

std::optional<std::int64_t> as_integer(const json::value& value) {
  if (const auto* i = value.if_int64()) return *i;
  if (const auto d = as_double(value); d && std::fabs(*d) <= kTwoTo53) {
    if (std::trunc(*d) == *d) return static_cast<std::int64_t>(*d);
  }
  return std::nullopt;
}

std::optional<double> as_number(const json::value& value) {
  if (const auto d = as_double(value)) {
    return std::isfinite(*d) ? std::optional<double>(*d) : std::nullopt;
  }
  if (const auto* i = value.if_int64()) return static_cast<double>(*i);
  if (const auto* u = value.if_uint64()) return static_cast<double>(*u);
  return std::nullopt;
}

template <class T, class Convert>
Result<std::optional<T>> find_as(const json::object& object, std::string_view key,
                                 const JsonSource& source, std::string_view wanted,
                                 Convert convert) {
  const json::value* value = member(object, key);
  if (value == nullptr) return std::optional<T>();
  std::optional<T> held = convert(*value);
  if (!held) {
    if (is_number(*value) && std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      return fail(source.code, "{}: '{}' is out of range; {} is needed", source.name, key, wanted);
    }
    return wrong(*value, key, wanted, source);
  }
  return held;
}

// The parser takes exponents of 32 bits only: the number that holds the byte, and where it begins.
tl::unexpected<Error> exponent_failure(std::string_view text, std::size_t at,
                                       const JsonSource& source) {
  constexpr std::string_view kParts = "0123456789+-.eE";
  constexpr std::size_t kMostShown = 60;
  const std::size_t before = text.substr(0, at).find_last_not_of(kParts);
  const std::size_t begin = before == text.npos ? 0 : before + 1;
  const std::string_view number =
      text.substr(begin, std::min(text.find_first_not_of(kParts, begin), text.size()) - begin);
  return fail(source.code, "{} has a number whose exponent is beyond {}: {}{} at byte {} ({})",
              source.name, INT32_MAX, number.substr(0, kMostShown),
              number.size() > kMostShown ? "..." : "", begin, json_place(text, begin));
}

tl::unexpected<Error> syntax_failure(std::string_view text, std::size_t at,
                                     const json::error_code& code, const JsonSource& source) {
  at = std::min(at, text.size());
  if (code == json::error::exponent_overflow) return exponent_failure(text, at, source);
  return fail(source.code, "{} is no valid JSON: {} at byte {} ({})", source.name, code.message(),
              at, json_place(text, at));
}

// Members of all objects inside, where a name that an object has twice counts once.
std::size_t members_in(const json::value& value) {
  std::size_t count = 0;
  if (const auto* array = value.if_array()) {
    for (const json::value& item : *array) count += members_in(item);
  } else if (const auto* object = object_of(value)) {
    count = object->size();
    for (const auto& member : *object) count += members_in(member.value());
  }
  return count;
}

// What boost::json::parser does with what it reads, but for numbers, of which this sees the text.
class Values {
 public:
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();

  explicit Values(bool exact) : exact_(exact) { stack_.reset(); }
  json::value release() { return stack_.release(); }
  std::size_t members() const { return members_; }  // as they are written

  using Code = json::error_code;
  using Text = json::string_view;
  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }
  bool on_object_begin(Code&) { return true; }
  bool on_object_end(std::size_t members, Code&) {
    members_ += members;
    return stack_.push_object(members), true;
  }
  bool on_array_begin(Code&) { return true; }
  bool on_array_end(std::size_t items, Code&) { return stack_.push_array(items), true; }
  bool on_key_part(Text text, std::size_t, Code&) { return stack_.push_chars(text), true; }
  bool on_key(Text text, std::size_t, Code&) { return stack_.push_key(text), true; }
  bool on_string_part(Text text, std::size_t, Code&) { return stack_.push_chars(text), true; }
  bool on_string(Text text, std::size_t, Code&) { return stack_.push_string(text), true; }
  bool on_number_part(Text, Code&) { return true; }  // of text that comes in parts
  bool on_int64(std::int64_t number, Text, Code&) { return stack_.push_int64(number), true; }
  bool on_uint64(std::uint64_t number, Text, Code&) { return stack_.push_uint64(number), true; }
  bool on_double(double rounded, Text text, Code&) {
    if (!exact_) return stack_.push_double(rounded), true;
    const json::value value = number_value(text);
    if (const auto* nearest = value.if_double()) return stack_.push_double(*nearest), true;
    stack_.push_key(value.get_object().begin()->key());
    stack_.push_string(text);
    return stack_.push_object(1), true;
  }
  bool on_bool(bool value, Code&) { return stack_.push_bool(value), true; }
  bool on_null(Code&) { return stack_.push_null(), true; }
  bool on_comment_part(Text, Code&) { return true; }
  bool on_comment(Text, Code&) { return true; }

 private:
  json::value_stack stack_;
  bool exact_;
  std::size_t members_ = 0;
};

struct Reading {
  bool exact = false;  // numbers keep their text
  bool once = false;   // each name stands once in its object
};

Result<json::value> parse(std::string_view text, const JsonSource& source, std::size_t depth,
                          Reading how) {
  // The parser reports values that exceed its own limits by throwing.
  try {
    json::parse_options options;
    options.max_depth = depth;
    json::basic_parser<Values> parser(options, how.exact);
    json::error_code code;
    std::size_t consumed = parser.write_some(false, text.data(), text.size(), code);
    if (!code && consumed < text.size()) code = json::error::extra_data;
    if (code == json::error::too_deep) {
      return fail(source.code, "{} is nested deeper than {} levels of objects and arrays",
                  source.name, depth);
    }
    if (code) return syntax_failure(text, consumed, code, source);
    json::value value = parser.handler().release();
    // Which name it is takes time that only wrong texts need.
    if (how.once && members_in(value) != parser.handler().members())
      STRATA_TRY(check_names(text, source));
    return value;
  } catch (const std::exception& caught) {
    return fail(ErrorCode::exhausted, "{} is too large to parse: {}", source.name, caught.what());
  }
}

}  // namespace

Result<json::value> parse_json(std::string_view text, JsonSource source, std::size_t depth) {
  return parse(text, source, depth, {});
}

Result<json::value> parse_written_json(std::string_view text, JsonSource source,
                                       std::size_t depth) {
  return parse(text, source, depth, {.once = true});
}

Result<json::value> parse_json_exact(std::string_view text, JsonSource source, std::size_t depth) {
  return parse(text, source, depth, {.exact = true});
}

Result<json::value> parse_written_json_exact(std::string_view text, JsonSource source,
                                             std::size_t depth) {
  return parse(text, source, depth, {.exact = true, .once = true});
}

Result<const json::object*> json_object(const json::value& value, JsonSource source) {
  if (const auto* object = object_of(value)) return object;
  return fail(source.code, "{} is {} where an object is needed", source.name, kind_text(value));
}

Result<std::optional<std::string>> find_string(const json::object& object, std::string_view key,
                                               JsonSource source) {
  return find_as<std::string>(object, key, source, "a string", [](const json::value& value) {
    const auto* text = value.if_string();
    return text == nullptr ? std::nullopt : std::optional(std::string(text->data(), text->size()));
  });
}

Result<std::optional<std::uint64_t>> find_uint(const json::object& object, std::string_view key,
                                               JsonSource source) {
  return find_as<std::uint64_t>(object, key, source, "a whole number of at least 0", as_uint);
}

Result<std::optional<std::int64_t>> find_integer(const json::object& object, std::string_view key,
                                                 JsonSource source) {
  return find_as<std::int64_t>(object, key, source, "a whole number", as_integer);
}

Result<std::optional<double>> find_number(const json::object& object, std::string_view key,
                                          JsonSource source) {
  return find_as<double>(object, key, source, "a finite number", as_number);
}

Result<std::optional<bool>> find_bool(const json::object& object, std::string_view key,
                                      JsonSource source) {
  return find_as<bool>(object, key, source, "true or false", [](const json::value& value) {
    const auto* flag = value.if_bool();
    return flag == nullptr ? std::nullopt : std::optional(*flag);
  });
}

Result<const json::array*> find_array(const json::object& object, std::string_view key,
                                      JsonSource source) {
  const json::value* value = member(object, key);
  if (value == nullptr) return nullptr;
  if (const auto* array = value->if_array()) return array;
  return wrong(*value, key, "an array", source);
}

Result<const json::object*> find_object(const json::object& object, std::string_view key,
                                        JsonSource source) {
  const json::value* value = member(object, key);
  if (value == nullptr) return nullptr;
  if (const auto* inner = object_of(*value)) return inner;
  return wrong(*value, key, "an object", source);
}

Result<std::uint64_t> json_uint(const json::value& value, std::string_view place,
                                JsonSource source) {
  if (const auto number = as_uint(value)) return *number;
  return wrong(value, place, "a whole number of at least 0", source);
}

}  // namespace strata
