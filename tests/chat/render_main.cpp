// Renders templates for scripts that compare (tests/peers/jinja_equality.py).
//
// stdin: {"contexts": [{...}, ...], "templates": ["...", ...]}. stdout: for each template a line,
// an array with {"text": "..."} or {"error": "..."} for each context; {"error": "..."} instead of
// the array if the template does not compile.
#include <boost/json.hpp>
#include <iostream>
#include <iterator>

#include "base/json_number.h"
#include "chat/jinja/jinja.h"

namespace {

namespace json = boost::json;
using namespace strata::chat::jinja;
using Variables = std::vector<std::pair<std::string, Value>>;

json::object failure(const strata::Error& error) {
  return {{"error", error.message}};
}

json::value render_all(std::string_view source, const std::vector<Variables>& contexts) {
  const auto compiled = Template::parse(source);
  if (!compiled) return failure(compiled.error());
  json::array results;
  for (const Variables& context : contexts) {
    const auto text = compiled->render(context);
    results.push_back(text ? json::object{{"text", text->bytes()}} : failure(text.error()));
  }
  return results;
}

}  // namespace

int main() {
  const std::string input(std::istreambuf_iterator<char>(std::cin), {});
  const auto parsed = strata::parse_json_exact(input, "the request", 256);
  if (!parsed) {
    std::cerr << parsed.error().message << "\n";
    return 2;
  }
  const json::value& request = *parsed;
  std::vector<Variables> contexts;
  for (const json::value& context : request.at("contexts").as_array()) {
    Variables& variables = contexts.emplace_back();
    for (const auto& [name, value] : context.as_object()) {
      variables.emplace_back(name, Value::from_json(value));
    }
  }
  for (const json::value& source : request.at("templates").as_array()) {
    std::cout << json::serialize(render_all(source.as_string(), contexts)) << "\n";
  }
}
