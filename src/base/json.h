// JSON text from outside: files, requests, configurations. Parsing is bounded in depth, refuses
// invalid UTF-8 and trailing text, and never throws. The find_* helpers read members of an object:
// absent and null are both "not given"; a member of another type is an error that names it.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace strata {

// What the JSON is, for messages, and the class of errors about it: invalid_argument for what a
// caller sent, corrupt for files. Converts from a plain name.
struct JsonSource {
  std::string_view name;  // "the request body", "'config.json'"
  ErrorCode code = ErrorCode::invalid_argument;

  JsonSource(std::string_view n, ErrorCode c = ErrorCode::invalid_argument) : name(n), code(c) {}
  JsonSource(const char* n) : name(n) {}
  JsonSource(const std::string& n) : name(n) {}
};

// Levels of objects and arrays inside each other. A schema of the depth that constraints take and a
// document as deep as they let one be written (docs/constrain.md) fit in a request with this.
inline constexpr std::size_t kJsonDepth = 288;

// "the request body is no valid JSON: syntax error at byte 17 (line 2, column 5)"
Result<boost::json::value> parse_json(std::string_view text, JsonSource source,
                                      std::size_t depth = kJsonDepth);
// The same for what people write: a name that an object has twice is an error with both places,
// where a reader would silently take one of the values.
Result<boost::json::value> parse_written_json(std::string_view text, JsonSource source,
                                              std::size_t depth = kJsonDepth);

// The value as an object; `source` names the value.
Result<const boost::json::object*> json_object(const boost::json::value& value, JsonSource source);

Result<std::optional<std::string>> find_string(const boost::json::object& object,
                                               std::string_view key, JsonSource source);
// Whole numbers; 3.0 counts as 3.
Result<std::optional<std::uint64_t>> find_uint(const boost::json::object& object,
                                               std::string_view key, JsonSource source);
Result<std::optional<std::int64_t>> find_integer(const boost::json::object& object,
                                                 std::string_view key, JsonSource source);
Result<std::optional<double>> find_number(const boost::json::object& object, std::string_view key,
                                          JsonSource source);  // finite
Result<std::optional<bool>> find_bool(const boost::json::object& object, std::string_view key,
                                      JsonSource source);
// nullptr if not given; the pointer lives as long as `object`.
Result<const boost::json::array*> find_array(const boost::json::object& object,
                                             std::string_view key, JsonSource source);
Result<const boost::json::object*> find_object(const boost::json::object& object,
                                               std::string_view key, JsonSource source);

// One JSON number as a whole number, for elements of arrays; `place` names it in the message.
Result<std::uint64_t> json_uint(const boost::json::value& value, std::string_view place,
                                JsonSource source);

// Turns "not given" into an error: required(find_uint(o, "vocab_size", s), "vocab_size", s).
template <class T>
Result<T> required(Result<std::optional<T>> found, std::string_view key, JsonSource source) {
  if (!found) return tl::unexpected<Error>(std::move(found).error());
  std::optional<T> held = *std::move(found);
  if (!held) return fail(source.code, "{}: '{}' is missing", source.name, key);
  return *std::move(held);
}
template <class T>
Result<const T*> required(Result<const T*> found, std::string_view key, JsonSource source) {
  if (found && *found == nullptr) {
    return fail(source.code, "{}: '{}' is missing", source.name, key);
  }
  return found;
}

}  // namespace strata
