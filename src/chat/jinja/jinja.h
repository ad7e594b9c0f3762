// The template language of chat templates: Jinja as Hugging Face's tokenizers configure it
// (trim_blocks, lstrip_blocks, loop controls, generation blocks, an immutable sandbox, tojson as
// json.dumps without ASCII escapes), with Python's semantics of values.
//
// Where this interpreter is more lenient than Jinja: filters that give generators give lists that
// may be visited twice, and so does range. Where it is stricter: integers have 64 bits, and
// str.format takes no format specifications. There is no include, import, extends or block.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "chat/jinja/ast.h"
#include "chat/jinja/value.h"

namespace strata::chat::jinja {

class Template {
 public:
  // `invalid_argument` with the line and the reason.
  static Result<Template> parse(std::string_view source);

  // Thread safe. Names of variables hide functions of the same name. Errors start with the line,
  // except those of raise_exception.
  Result<Text> render(const std::vector<std::pair<std::string, Value>>& variables,
                      const Limits& limits = {}) const;

 private:
  explicit Template(Block block) : block_(std::move(block)) {}
  Block block_;
};

}  // namespace strata::chat::jinja
