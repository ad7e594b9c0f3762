// Types of tool arguments, as the tools' schemas declare them. The model writes every argument as
// text; these rules turn it into JSON.
#pragma once

#include <boost/json.hpp>
#include <map>
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

 private:
  using Parameters = std::map<std::string, ParameterType, std::less<>>;
  std::map<std::string, Parameters, std::less<>> tools_;
};

// The argument's value. A string if only strings are allowed; else the text's JSON value if its
// type is allowed (5.0 for an integer is 5, Python's True, False and None count where a boolean or
// null is allowed); else, of an untyped parameter, whatever JSON it is; else the text as a string.
boost::json::value argument_value(const ParameterType& type, std::string_view text);

// JSON text of arguments: compact, numbers in their shortest form.
std::string arguments_text(const boost::json::value& value);

}  // namespace strata::chat
