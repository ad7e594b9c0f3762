#include "base/json_number.h"

#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/string.hpp>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/decimal.h"

namespace strata {
namespace {

namespace json = boost::json;

constexpr std::string_view kLongNumber = "\xff";  // a byte that no UTF-8 has

json::value long_value(std::string_view text) {
  json::object out;
  out.emplace(kLongNumber, text);
  return out;
}

// Whether the text is no other number than its nearest double, as that is written. Up to 15 digits
// always come back, where doubles are not sparse.
bool is_double(std::string_view text, double nearest) {
  std::size_t digits = 0;
  for (const char c : text) {
    if (c == 'e' || c == 'E') break;
    if (c >= '0' && c <= '9' && (digits > 0 || c != '0')) ++digits;
  }
  const double size = std::abs(nearest);
  if (digits <= 15 && size > 1e-290 && size < 1e290) return true;
  return std::isfinite(nearest) && Decimal::shortest(nearest) == Decimal::of(text);
}

template <class Integer>
std::optional<json::value> integer(std::string_view text) {
  Integer out = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return json::value(out);
}

std::string double_text(double number) {
  if (!std::isfinite(number)) return "null";
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void write_string(std::string& out, std::string_view text) {
  out += '"';
  std::size_t written = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text, written, i - written);
    written = i + 1;
    constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
    const std::size_t known = kEscaped.find(text[i]);
    if (known != std::string_view::npos) {
      out += '\\';
      out += kLetters[known];
    } else {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", c);
    }
  }
  out.append(text, written, text.size() - written);
  out += '"';
}

void write_object(std::string& out, const json::object& object) {
  char before = '{';
  for (const auto& [key, member] : object) {
    out += std::exchange(before, ',');
    write_string(out, key);
    out += ':';
    write_json(out, member);
  }
  out += object.empty() ? "{}" : "}";
}

}  // namespace

std::optional<std::string_view> long_number(const json::value& value) {
  const json::object* object = value.if_object();
  if (object == nullptr || object->size() != 1) return std::nullopt;
  const json::key_value_pair& member = *object->begin();
  if (std::string_view(member.key()) != kLongNumber) return std::nullopt;
  return std::string_view(member.value().get_string());
}

const json::object* object_of(const json::value& value) {
  return long_number(value) ? nullptr : value.if_object();
}

json::object* object_of(json::value& value) {
  return long_number(value) ? nullptr : value.if_object();
}

bool is_number(const json::value& value) {
  return value.is_number() || long_number(value);
}

json::value number_value(std::string_view text) {
  if (text.find_first_of(".eE") == std::string_view::npos) {
    if (auto held = integer<std::int64_t>(text)) return *std::move(held);
    if (auto held = integer<std::uint64_t>(text)) return *std::move(held);
    return long_value(text);
  }
  const double nearest = nearest_double(text);
  return is_double(text, nearest) ? json::value(nearest) : long_value(text);
}

std::string number_text(const json::value& value) {
  if (const auto text = long_number(value)) return std::string(*text);
  return value.is_number() ? write_json(value) : std::string();
}

void write_json(std::string& out, const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      out += "null";
      break;
    case json::kind::bool_:
      out += value.get_bool() ? "true" : "false";
      break;
    case json::kind::int64:
      fmt::format_to(std::back_inserter(out), "{}", value.get_int64());
      break;
    case json::kind::uint64:
      fmt::format_to(std::back_inserter(out), "{}", value.get_uint64());
      break;
    case json::kind::double_:
      out += double_text(value.get_double());
      break;
    case json::kind::string:
      write_string(out, value.get_string());
      break;
    case json::kind::array: {
      char before = '[';
      for (const json::value& item : value.get_array()) {
        out += std::exchange(before, ',');
        write_json(out, item);
      }
      out += value.get_array().empty() ? "[]" : "]";
      break;
    }
    case json::kind::object:
      if (const auto text = long_number(value)) {
        out += *text;
      } else {
        write_object(out, value.get_object());
      }
      break;
  }
}

std::string write_json(const json::value& value) {
  std::string out;
  write_json(out, value);
  return out;
}

std::string write_json(const json::object& object) {
  std::string out;
  write_object(out, object);
  return out;
}

}  // namespace strata
