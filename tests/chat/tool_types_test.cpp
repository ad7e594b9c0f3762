// Arguments by schema: what a schema allows, and schemas that were not written to be read.
#include "chat/tool_types.h"

#include <gtest/gtest.h>

#include <ctime>

#include "base/json_number.h"

namespace strata::chat {
namespace {

namespace json = boost::json;

// The argument `text` of a parameter "p" with this schema.
std::string typed(std::string_view schema, std::string_view text, std::string_view defs = "{}") {
  const json::array tools = {{{"function",
                               {{"name", "f"},
                                {"parameters",
                                 {{"properties", {{"p", *parse_json_exact(schema, "the schema")}}},
                                  {"$defs", json::parse(defs)}}}}}}};
  const ToolTypes types(tools);
  return write_json(argument_value(types.parameter("f", "p"), text));
}

TEST(ToolTypes, KeywordsHoldTogether) {
  const std::tuple<std::string_view, std::string_view, std::string_view> cases[] = {
      {R"({"type": "string", "enum": ["1", "2"]})", "1", R"("1")"},
      {R"({"enum": ["auto", 1, true, null]})", "auto", R"("auto")"},
      {R"({"enum": ["auto", 1, true, null]})", "1", "1"},
      {R"({"enum": ["auto", 1, true, null]})", "True", "true"},
      {R"({"enum": ["auto", 1, true, null]})", "null", "null"},
      {R"({"enum": ["auto", 1, true, null]})", "7.50", R"("7.50")"},
      {R"({"enum": ["null", null]})", "null", R"("null")"},
      {R"({"const": 5})", "5", "5"},
      {R"({"const": "5"})", "5", R"("5")"},
      {R"({"type": "integer", "enum": [1, 2]})", "2.0", "2"},
      {R"({"allOf": [{"type": "string"}, {"maxLength": 5}]})", "12", R"("12")"},
      {R"({"allOf": [{"type": ["string", "integer"]}, {"type": "integer"}]})", "12", "12"},
      {R"({"allOf": [{"type": "number"}, {"type": "integer"}]})", "12.0", "12"},
      {R"({"anyOf": [{"type": "string"}, {"type": "null"}]})", "None", "null"},
      {R"({"anyOf": [{"type": "string"}, {"type": "null"}]})", "4", R"("4")"},
      {R"({"oneOf": [{"type": "boolean"}, {"type": "array"}]})", "[1]", "[1]"},
      {R"({"oneOf": [{"type": "boolean"}, {"type": "array"}]})", "{}", R"("{}")"},
      {R"({"type": "string", "nullable": true})", "null", "null"},
      {R"({"type": "string", "nullable": true})", "5", R"("5")"},
      {R"({"type": "string", "anyOf": [{"minLength": 1}, {"pattern": "x"}]})", "5", R"("5")"},
      {R"({"description": "Whatever."})", R"("quoted")", R"("quoted")"},
      {R"({"description": "Whatever."})", "True", R"("True")"},
      {R"(true)", "5", "5"},
      {R"({"type": 5})", "5", "5"},
      {R"({"type": "strange"})", "5", "5"},
      {R"({"type": ["string", "integer"]})", "5", "5"},
      {R"({"type": ["string", "integer"]})", "5.0", R"("5.0")"},
      {R"({"type": ["string", "integer"]})", "05", R"("05")"},
      {R"({"type": ["string", "number"]})", "1.10", R"("1.10")"},
      {R"({"type": ["string", "number"]})", "1.5", "1.5"},
      {R"({"type": ["string", "number"]})", "12345678901234567890123", "12345678901234567890123"},
      {R"({"type": "integer"})", "-12345678901234567890123", "-12345678901234567890123"},
      {R"({"type": "integer"})", "12345678901234567890123.0", "12345678901234567890123"},
      {R"({"type": "integer"})", "1e20", "100000000000000000000"},
      {R"({"type": "number"})", "1e20", "1e+20"},
      {R"({"type": "number"})", "0.1000000000000000000001", "0.1000000000000000000001"},
      {R"({"const": 18446744073709551616})", "18446744073709551616", "18446744073709551616"},
      {R"({"type": "array", "items": {"type": "integer"}})", "[18446744073709551616, 2.0]",
       "[18446744073709551616,2]"},
      {R"({"type": "object"})", "18446744073709551616", R"("18446744073709551616")"},
      {R"({})", "{\"a\": 18446744073709551616}", "{\"a\":18446744073709551616}"},
      {R"({"type": "integer"})", "-0", "0"},
      {R"({"type": "number"})", "NaN", R"("NaN")"},
      {R"({"type": "number"})", "1e400", "1e400"},
      {R"({"type": "array"})", "[[-1e400]]", "[[-1e400]]"},
      {R"({})", "{\"a\": 1e400}", "{\"a\":1e400}"},
  };
  for (const auto& [schema, text, expected] : cases) {
    EXPECT_EQ(typed(schema, text), expected) << schema << " " << text;
  }
}

// The model writes strings and numbers alike, without quotes. Where a schema allows both, text that
// is a number in JSON's plain form (white space around it aside) is the number, and every other
// text is a string as it stands: a whole number loses nothing by it, while 007, 5.0 and 1.10 would
// not come back as written. Where no number is allowed, it is a string.
TEST(ToolTypes, OfStringsAndNumbersPlainNumbersAreNumbers) {
  for (const char* schema : {R"({"type": ["string", "integer"]})",
                             R"({"anyOf": [{"type": "string"}, {"type": "integer"}]})",
                             R"({"oneOf": [{"type": "integer"}, {"type": "string"}]})"}) {
    for (const auto& [text, json] :
         {std::pair{"5", "5"}, std::pair{"-12", "-12"}, std::pair{"0", "0"},
          std::pair{"\"5\"", R"("\"5\"")"}, std::pair{"007", R"("007")"},
          std::pair{"5.0", R"("5.0")"}, std::pair{"1e3", R"("1e3")"}, std::pair{"+5", R"("+5")"},
          std::pair{" 5", "5"}, std::pair{"five", R"("five")"}, std::pair{"", R"("")"}}) {
      EXPECT_EQ(typed(schema, text), json) << schema << " with " << text;
    }
  }
  EXPECT_EQ(typed(R"({"type": ["string", "null"]})", "4"), R"("4")");
  EXPECT_EQ(typed(R"({"type": "string"})", "5"), R"("5")");
}

TEST(ToolTypes, ReferencesInsideTheSchema) {
  const std::string_view defs =
      R"({"n": {"type": "integer"}, "a/b~c": {"type": "string"}, "list": [{"type": "boolean"}],
          "loop": {"$ref": "#/$defs/loop"}, "chain": {"$ref": "#/$defs/n"}})";
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"({"$ref": "#/$defs/n"})", "5"},
      {R"({"$ref": "#/$defs/chain", "description": "d"})", "5"},
      {R"({"$ref": "#/$defs/a~1b~0c"})", R"("5.0")"},
      {R"({"$ref": "#/$defs/list/0"})", R"("5.0")"},
      {R"({"$ref": "#/$defs/loop"})", "5.0"},
      {R"({"$ref": "#/$defs/none"})", "5.0"},
      {R"({"$ref": "elsewhere.json"})", "5.0"},
      {R"({"$ref": 5})", "5.0"},
      {R"({"$ref": "#"})", "5.0"},
      {R"({"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]})", "5"},
  };
  for (const auto& [schema, expected] : cases) EXPECT_EQ(typed(schema, "5.0", defs), expected);
}

TEST(ToolTypes, NestedValues) {
  const std::string_view defs = R"({"node": {"type": "object", "properties": {
      "n": {"type": "integer"}, "x": {"type": "number"}, "next": {"$ref": "#/$defs/node"},
      "all": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}}})";
  const std::string_view node = R"({"$ref": "#/$defs/node"})";
  EXPECT_EQ(
      typed(node, R"({"n": 5.0, "x": 5.0, "y": 5.0, "next": {"n": -2e3}, "all": [1.0, null]})",
            defs),
      R"({"n":5,"x":5.0,"y":5.0,"next":{"n":-2000},"all":[1,null]})");
  EXPECT_EQ(typed(node, R"({"n": 5.5, "next": [5.0]})", defs), R"({"n":5.5,"next":[5.0]})");
  EXPECT_EQ(typed(R"({"type": "array", "items": {"type": "integer"}})", "[1.0, 2.5, \"3.0\"]"),
            R"([1,2.5,"3.0"])");
  // As Python writes it.
  EXPECT_EQ(typed(node, R"({'n': 5.0, "it's": 'a "b" \'c\' \x41\n', 'True': [True, None]})", defs),
            R"({"n":5,"it's":"a \"b\" 'c' A\n","True":[true,null]})");
  EXPECT_EQ(typed(node, "{'n': 5", defs), R"("{'n': 5")");
  EXPECT_EQ(typed(node, "{'n': '\\", defs), R"("{'n': '\\")");
  EXPECT_EQ(typed(R"({"type": "array"})", "a, b"), R"("a, b")");
}

TEST(ToolTypes, ParametersStandInManyPlaces) {
  const json::array tools = json::parse(R"([{"name": "bare", "parameters": {
      "$ref": "#/$defs/Args", "$defs": {"Args": {
        "properties": {"a": {"type": "integer"}},
        "allOf": [{"properties": {"b": {"type": "integer"}}}],
        "anyOf": [{"properties": {"c": {"type": "integer"}}},
                  {"properties": {"c": {"type": "null"}}, "required": ["c"]}],
        "additionalProperties": {"type": "string"}}}}},
      {"type": "function", "function": {"name": "closed", "parameters": {
        "properties": {"a": {"type": "string"}}, "additionalProperties": false}}},
      5, {"function": 5}, {"function": {"name": 5}}, {"function": {"name": "empty"}},
      {"function": {"name": "odd", "parameters": {"properties": {"a": 5}}}}])")
                                .as_array();
  const ToolTypes types(tools);
  EXPECT_TRUE(types.parameter("bare", "a").integer);
  EXPECT_TRUE(types.parameter("bare", "b").integer);
  EXPECT_TRUE(types.parameter("bare", "c").integer && types.parameter("bare", "c").null);
  EXPECT_TRUE(types.parameter("bare", "other").only_string());
  EXPECT_TRUE(types.parameter("closed", "a").only_string());
  EXPECT_TRUE(types.parameter("closed", "b").any);
  EXPECT_TRUE(types.parameter("empty", "a").any);
  EXPECT_TRUE(types.parameter("odd", "a").any);
  EXPECT_TRUE(types.parameter("nobody", "a").any);
  EXPECT_TRUE(types.declares("empty"));
  EXPECT_FALSE(types.declares("nobody"));
}

// Each level of this schema has 30 ways to the next, without end.
TEST(ToolTypes, SchemasThatMultiplyEnd) {
  const json::object next = {{"$ref", "#/$defs/t"}};
  json::array choices(30, next);
  choices.push_back(json::parse(R"({"type": "integer"})"));
  choices.push_back(
      json::object{{"properties", {{"p", next}, {"q", next}}}, {"items", {{"$ref", "#"}}}});
  const json::object multiplying = {{"anyOf", choices}, {"oneOf", choices}, {"allOf", choices}};
  const std::string defs = json::serialize(json::object{{"t", multiplying}});
  const std::clock_t begin = std::clock();
  (void)typed(R"({"$ref": "#/$defs/t"})", "5.0", defs);
  std::string deep;
  for (int i = 0; i < 20; ++i) deep += "[{\"p\": 5.0, \"q\": ";
  deep += "1.0";
  for (int i = 0; i < 20; ++i) deep += "}]";
  (void)typed(R"({"$ref": "#/$defs/t"})", deep, defs);
  EXPECT_LT(std::clock() - begin, 5 * CLOCKS_PER_SEC);
}

}  // namespace
}  // namespace strata::chat
