// Numbers of JSON exactly as they are written. A boost::json::value holds whole numbers of 64 bits
// and doubles; parse_json() rounds others. parse_json_exact() keeps their text: a *long number* is
// a whole one beyond 64 bits, or one whose nearest double is another number, such as 1e400 and
// 0.1000000000000000000001.
//
// A long number is an object of one member, whose key no JSON text can have. So whoever wants a
// string, a list or a number does not take it for one, and whoever wants an object asks
// object_of(). The find_* helpers of json.h read long numbers as the numbers they are.
#pragma once

#include <boost/json/value.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace strata {

// As parse_json(); doubles are the nearest ones.
Result<boost::json::value> parse_json_exact(std::string_view text, JsonSource source,
                                            std::size_t depth = kJsonDepth);
// The same for what people and clients write, as parse_written_json().
Result<boost::json::value> parse_written_json_exact(std::string_view text, JsonSource source,
                                                    std::size_t depth = kJsonDepth);

// The text of a long number; absent for every other value.
std::optional<std::string_view> long_number(const boost::json::value& value);
// The members of an object; nullptr for every other value, also for a long number.
const boost::json::object* object_of(const boost::json::value& value);
boost::json::object* object_of(boost::json::value& value);
bool is_number(const boost::json::value& value);  // long ones too

// The value of a number's text, as parse_json_exact() has it.
boost::json::value number_value(std::string_view text);
// A number's text: a long one's own, others' shortest. Empty if the value is no number.
std::string number_text(const boost::json::value& value);

// JSON text: compact, long numbers as they were written, doubles in their shortest form with a
// point or an exponent ("1.0", "1e+20"), infinite ones as null.
std::string write_json(const boost::json::value& value);
std::string write_json(const boost::json::object& object);
void write_json(std::string& out, const boost::json::value& value);

}  // namespace strata
