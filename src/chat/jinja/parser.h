// Template text to syntax tree.
#pragma once

#include <string_view>

#include "chat/jinja/ast.h"

namespace strata::chat::jinja {

// Levels of brackets, blocks and operators in one template: above it parsing fails, so that neither
// the parser nor the tree can exhaust the stack.
inline constexpr std::size_t kMaxNesting = 400;  // about four a pair of brackets
inline constexpr std::size_t kMaxExpressionDepth = 400;
inline constexpr std::size_t kMaxTemplateBytes = 4u << 20;

// Throws Failure; the message starts with the line.
Block parse_template(std::string_view source);

}  // namespace strata::chat::jinja
