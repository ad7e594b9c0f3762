// Grammar texts: llama.cpp's GBNF, with additions of ours, which is also how constraints travel to
// the engine.
//
//   root    ::= greeting " " [a-zäöü]{1,8} ("!" | "?")* # a comment
//   <[151657]>   !<[151645]>    one token by id; any token but it. <[1,2,3]>: any of them
//   <think>                     one token by its literal
//   .                           any character
//   %json { ... }               the documents of a JSON Schema, inline
//   %object                     any JSON object;  %value: any JSON value
//   %fields "OPEN" "MIDDLE" "CLOSE" {SCHEMA} {READER}    json_fields() of json_schema.h
//   %fields-if-able ...         the same, or any fields if the schema cannot be enforced
//   %regex "ECMA-262 pattern"   the whole of it
//   %until "text"               any text without it
//   %grammar "root ::= ..."     a whole grammar with rules of its own
//
// What stands in quotes behind a % is a JSON string. A line of a rule that does not end it (a '|',
// a literal ...) may follow on the next lines.
//
// The rule `root` is the answer. Errors name line and column.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "constrain/grammar.h"

namespace strata::constrain {

// Gives a special token's id by its literal.
using TokenNames = std::function<std::optional<TokenId>(std::string_view literal)>;

inline constexpr std::size_t kMaxGrammarBytes = std::size_t{1} << 20;
Result<Grammar> parse_gbnf(std::string_view text, const TokenNames& names);

}  // namespace strata::constrain
