#include "chat/jinja/jinja.h"

#include <exception>
#include <new>

#include "chat/jinja/evaluator.h"
#include "chat/jinja/parser.h"

namespace strata::chat::jinja {

Result<Template> Template::parse(std::string_view source) {
  try {
    return Template(parse_template(source));
  } catch (const Failure& failure) {
    return fail(failure.code, "{}", failure.message);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::exhausted, "no memory to parse the template");
  } catch (const std::exception& error) {
    return fail(ErrorCode::internal, "parsing the template: {}", error.what());
  }
}

Result<Text> Template::render(const std::vector<std::pair<std::string, Value>>& variables,
                              const Limits& limits) const {
  try {
    Evaluator evaluator(limits);
    try {
      return evaluator.render(block_, variables);
    } catch (const Failure& failure) {
      if (failure.own_words) return fail(failure.code, "{}", failure.message);
      return fail(failure.code, "line {}: {}", evaluator.line(), failure.message);
    }
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::exhausted, "no memory to render the template");
  } catch (const std::exception& error) {
    return fail(ErrorCode::internal, "rendering the template: {}", error.what());
  }
}

}  // namespace strata::chat::jinja
