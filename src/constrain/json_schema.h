// JSON Schema (draft 2020-12 and draft 7) to grammars whose texts are the valid documents, as far
// as that can be decided token by token. Properties come in the schema's order, those that the
// schema does not list after them; white space is bounded. What cannot be enforced is refused by
// name and place ("#/properties/tags: uniqueItems cannot be enforced with ..."), never ignored;
// annotations (title, description, default, examples, $comment, deprecated, readOnly, writeOnly)
// are ignored harmlessly.
#pragma once

#include <boost/json/value.hpp>
#include <string_view>

#include "base/result.h"
#include "constrain/grammar.h"

namespace strata::constrain {

struct JsonSchemaOptions {
  // White space: behind an opening bracket or a comma and before a closing bracket nothing, a
  // space, or a line break with up to `indent` spaces or tabs; around a colon and before a comma
  // nothing or a space.
  std::uint32_t indent = 32;
  std::uint32_t depth = 64;  // of nested subschemas, after references
};

// The documents of `schema`, as an expression of `grammar`.
Result<Grammar::Expr> json_schema(Grammar& grammar, const boost::json::value& schema,
                                  const JsonSchemaOptions& options = {});
// Any JSON document; any object.
Result<Grammar::Expr> json_value(Grammar& grammar, const JsonSchemaOptions& options = {});
Result<Grammar::Expr> json_object(Grammar& grammar, const JsonSchemaOptions& options = {});

// The properties of an object schema as marked fields, as some models write the arguments of a
// call: for each property `open` NAME `middle` VALUE `close`. Strings stand as they are, without
// quotes, up to `close`, which they cannot contain; all other values are JSON. A value that may be
// both may be written either way. `close` should begin with a line break: inside the strings of an
// array or object it is not looked for, and there no line break can stand.
struct FieldMarks {
  std::string_view open, middle, close;
};
Result<Grammar::Expr> json_fields(Grammar& grammar, const boost::json::value& schema,
                                  const FieldMarks& marks, const JsonSchemaOptions& options = {});
// The same, or, of a schema that cannot be enforced, fields of any names and texts.
Result<Grammar::Expr> json_fields_if_able(Grammar& grammar, const boost::json::value& schema,
                                          const FieldMarks& marks,
                                          const JsonSchemaOptions& options = {});

}  // namespace strata::constrain
