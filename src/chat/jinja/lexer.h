// Tokens of a template, with Jinja's white space rules as Hugging Face sets them: trim_blocks and
// lstrip_blocks on, one line break at the end of the template dropped, "-" and "+" honoured.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja/value.h"

namespace strata::chat::jinja {

struct Token {
  enum class Kind {
    data,            // text outside of tags
    variable_begin,  // {{
    variable_end,    // }}
    block_begin,     // {%
    block_end,       // %}
    name,
    string,  // text: the unescaped content
    integer,
    floating,
    symbol,  // text: the operator
    end,
  };
  Kind kind = Kind::end;
  std::string text;
  Value number;  // of integer and floating
  int line = 1;
};

// Throws Failure. The last token is `end`.
std::vector<Token> tokenize(std::string_view source);

}  // namespace strata::chat::jinja
