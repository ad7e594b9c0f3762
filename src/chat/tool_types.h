// Types of tool arguments, as the tools' schemas declare them. The model writes every argument as
// text; these rules turn it into JSON.
//
// Of a schema all keywords hold together: type, enum, const, $ref (to places of the same schema),
// allOf, and one of anyOf or oneOf; `nullable` adds null. Parameters are those of `properties`,
// also behind $ref, allOf, anyOf and oneOf; others have the type of `additionalProperties`. What
// these rules do not understand, or what is nested too deep, counts as untyped.
#pragma once

#include <boost/json.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace strata::chat {

// What a schema allows for one parameter.
struct ParameterType {
  bool any = false;  // nothing is declared, or the tool or the parameter is unknown
  bool string = false;
  bool integer = false;
  bool number = false;
  bool boolean = false;
  bool null = false;
  bool array = false;
  bool object = false;
  std::vector<std::string> words;  // strings of an enum or const

  // The schema, for what is nested in arrays and objects; null if nothing is declared. It is a part
  // of `root`, which its references mean.
  const boost::json::value* schema = nullptr;
  std::shared_ptr<const boost::json::value> root;

  // Text of such a parameter is taken as it stands.
  bool only_string() const {
    return string && !any && !integer && !number && !boolean && !null && !array && !object;
  }
};

class ToolTypes {
 public:
  // Tools in OpenAI's form; what does not look like one is skipped.
  explicit ToolTypes(const boost::json::array& tools);

  bool empty() const { return tools_.empty(); }
  bool declares(std::string_view tool) const;
  const ParameterType& parameter(std::string_view tool, std::string_view name) const;
  // Calls use(name, type) for each declared parameter, then others(type) for the rest's type.
  void each(std::string_view tool,
            const std::function<void(const std::string&, const ParameterType&)>& use,
            const std::function<void(const ParameterType&)>& others) const;

 private:
  struct Tool {
    std::map<std::string, ParameterType, std::less<>> parameters;
    ParameterType others;
  };
  std::map<std::string, Tool, std::less<>> tools_;
};

// The argument's value. A string if only strings are allowed, or if it is one of the words; else
// the text's JSON value if its type is allowed; else, of an untyped parameter, whatever JSON it is;
// else the text as a string.
// - A whole number for an integer is an integer: 5.0 is 5, also where it is nested. Numbers that no
//   double holds stay as they are written, of any size.
// - Python's True, False and None count where a boolean or null is allowed, and Python's way to
//   write lists and dicts where an array or object is.
// - Where strings are allowed as well, a number counts only in JSON's plain form, without an
// exponent
//   and without zeros at the end of a fraction: 1.10, 5.0, 1e5 and 007 are strings then.
boost::json::value argument_value(const ParameterType& type, std::string_view text);

}  // namespace strata::chat
