// What the automata say, for the comparisons of tests/peers: reads lines of JSON, each with a
// "pattern" or the name of a "format" and a list of "texts", and writes for each a line with a 1 or
// a 0 for every text, or the class of the error.
#include <boost/json.hpp>
#include <iostream>
#include <string>

#include "constrain/regular.h"

namespace {

using namespace strata;
using namespace strata::constrain;

Result<Regular> language_of(const boost::json::object& query) {
  if (const auto* pattern = query.if_contains("pattern"))
    return regex(std::string_view(pattern->as_string()), Match::anywhere);
  if (const auto known = format_text(std::string_view(query.at("format").as_string())))
    return *known;
  return fail(ErrorCode::not_found, "no such format");
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const boost::json::object query = boost::json::parse(line).as_object();
    const Result<Regular> language = language_of(query);
    if (!language) {
      std::cout << to_string(language.error().code) << '\n';
      continue;
    }
    for (const auto& text : query.at("texts").as_array())
      std::cout << (language->accepts(std::string_view(text.as_string())) ? '1' : '0');
    std::cout << '\n';
  }
}
