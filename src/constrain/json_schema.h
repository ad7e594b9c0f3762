// JSON Schema (draft 2020-12 and draft 7) to grammars whose texts are the valid documents, as far
// as that can be decided token by token. Properties come in the schema's order, those that the
// schema does not list after them; white space is bounded. What cannot be enforced is refused by
// name and place ("#/properties/tags: uniqueItems cannot be enforced with ..."), never ignored;
// annotations (title, description, default, examples, $comment, deprecated, readOnly, writeOnly)
// are ignored harmlessly.
#pragma once

#include <boost/json/value.hpp>
#include <map>
#include <string>
#include <string_view>
#include <vector>

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
// As what the values of fields are read. A string is then only written if its reader takes it for
// one: if the field is read as more than strings, it does not look like the others (a number,
// true, True, null, None, a list, an object; for `any` also quoted text), or is one of the `words`,
// which are strings all the same. And beside strings, numbers have no exponent and no zeros at
// their end. A schema that leaves no value then is `unsupported`.
struct FieldReader {
  struct Types {
    bool string = false, number = false, boolean = false, null = false, list = false;  // and object
    bool any = false;
  };
  std::map<std::string, Types, std::less<>> named;
  Types others{.any = true};
  std::map<std::string, std::vector<std::string>, std::less<>> words;

  // {"named": {NAME: [TYPE ...]}, "others": [TYPE ...], "words": {NAME: [TEXT ...]}}, all of it
  // optional; a TYPE is string, number, boolean, null, list or any.
  static Result<FieldReader> of(const boost::json::value& description);
};
Result<Grammar::Expr> json_fields(Grammar& grammar, const boost::json::value& schema,
                                  const FieldMarks& marks, const FieldReader& reader,
                                  const JsonSchemaOptions& options = {});
// The same, or, of a schema that cannot be enforced, fields of any names and texts.
Result<Grammar::Expr> json_fields_if_able(Grammar& grammar, const boost::json::value& schema,
                                          const FieldMarks& marks, const FieldReader& reader,
                                          const JsonSchemaOptions& options = {});

}  // namespace strata::constrain
