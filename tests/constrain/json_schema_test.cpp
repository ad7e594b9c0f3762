// Schemas with valid and invalid documents (json_schema_cases.json, which tests/peers also gives to
// ajv and jsonschema), and what cannot stand in such a list: spellings, order, places in messages.
#include "constrain/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <iterator>
#include <map>

#include "tests/constrain/schema_documents.h"

namespace strata::constrain {
namespace {

namespace json = boost::json;
using testing::HasSubstr;

json::value read_cases() {
  std::ifstream file(STRATA_SOURCE_DIR "/tests/constrain/json_schema_cases.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return *parse_json(text, "json_schema_cases.json", 256);
}

// The document as a line of JSON, numbers without an exponent.
std::string text_of(const json::value& value) {
  std::string out;
  if (const double* number = value.if_double()) return fmt::format("{}", *number);
  const json::array* items = value.if_array();
  const json::object* members = value.if_object();
  if (items == nullptr && members == nullptr) return json::serialize(value);
  std::string_view between;
  for (std::size_t i = 0; items != nullptr && i < items->size(); ++i) {
    out.append(between).append(text_of((*items)[i]));
    between = ",";
  }
  if (items != nullptr) return fmt::format("[{}]", out);
  for (const auto& member : *members) {
    out.append(between).append(json::serialize(json::value(member.key()))).append(":");
    out.append(text_of(member.value()));
    between = ",";
  }
  return fmt::format("{{{}}}", out);
}

SchemaDocuments documents(std::string_view schema) {
  Result<SchemaDocuments> made =
      SchemaDocuments::make(*parse_json_exact(schema, "the schema", 256));
  EXPECT_TRUE(made) << schema << ": " << made.error().message;
  return *std::move(made);
}

std::string refusal(std::string_view schema) {
  const json::value parsed = *parse_json_exact(schema, "the schema", 256);
  const Result<SchemaDocuments> made = SchemaDocuments::make(parsed);
  EXPECT_FALSE(made) << schema;
  return made ? "" : made.error().message;
}

TEST(JsonSchema, DocumentsOfTheList) {
  std::size_t schemas = 0, instances = 0;
  const json::value cases = read_cases();
  for (const json::value& it : cases.as_array()) {
    const json::object& entry = it.as_object();
    const std::string schema = json::serialize(entry.at("schema"));
    const Result<SchemaDocuments> made = SchemaDocuments::make(entry.at("schema"));
    ++schemas;
    if (const json::value* refused = entry.if_contains("refused")) {
      ASSERT_FALSE(made) << schema;
      EXPECT_THAT(made.error().message, HasSubstr(std::string(refused->as_string()))) << schema;
      continue;
    }
    ASSERT_TRUE(made) << schema << ": " << made.error().message;
    for (const char* kind : {"valid", "invalid"}) {
      for (const json::value& document : entry.at(kind).as_array()) {
        const std::string text = text_of(document);
        EXPECT_EQ(made->accepts(text), std::string_view(kind) == "valid")
            << schema << " " << text << " from byte " << made->refused_at(text);
        ++instances;
      }
    }
  }
  EXPECT_GE(schemas, 300U);
  EXPECT_GE(instances, 1'500U);
}

void count_keywords(const json::value& value, std::map<std::string, int>& found, bool names) {
  if (const json::array* items = value.if_array()) {
    for (const json::value& item : *items) count_keywords(item, found, false);
  }
  if (const json::object* members = value.if_object()) {
    for (const auto& member : *members) {
      const std::string key = member.key();
      if (!names) ++found[key];
      // Their members are names, not keywords; values stand for themselves.
      const bool holds_names = key == "properties" || key == "$defs" || key == "definitions" ||
                               key == "patternProperties" || key == "dependentSchemas" ||
                               key == "dependencies";
      if (key != "const" && key != "enum" && key != "default" && key != "examples")
        count_keywords(member.value(), found, !names && holds_names);
    }
  }
}

// Every keyword of drafts 2020-12 and 7 is in schemas of the list that have valid and invalid
// documents.
TEST(JsonSchema, TheListHasEveryKeyword) {
  constexpr std::string_view kKeywords[] = {"$schema",
                                            "$id",
                                            "$ref",
                                            "$anchor",
                                            "$dynamicRef",
                                            "$dynamicAnchor",
                                            "$vocabulary",
                                            "$comment",
                                            "$defs",
                                            "definitions",
                                            "prefixItems",
                                            "items",
                                            "additionalItems",
                                            "contains",
                                            "properties",
                                            "additionalProperties",
                                            "patternProperties",
                                            "dependentSchemas",
                                            "dependencies",
                                            "propertyNames",
                                            "if",
                                            "then",
                                            "else",
                                            "allOf",
                                            "anyOf",
                                            "oneOf",
                                            "not",
                                            "unevaluatedItems",
                                            "unevaluatedProperties",
                                            "type",
                                            "enum",
                                            "const",
                                            "multipleOf",
                                            "maximum",
                                            "exclusiveMaximum",
                                            "minimum",
                                            "exclusiveMinimum",
                                            "maxLength",
                                            "minLength",
                                            "pattern",
                                            "maxItems",
                                            "minItems",
                                            "uniqueItems",
                                            "maxContains",
                                            "minContains",
                                            "maxProperties",
                                            "minProperties",
                                            "required",
                                            "dependentRequired",
                                            "format",
                                            "contentEncoding",
                                            "contentMediaType",
                                            "contentSchema",
                                            "title",
                                            "description",
                                            "default",
                                            "deprecated",
                                            "readOnly",
                                            "writeOnly",
                                            "examples"};
  std::map<std::string, int> valid, invalid;
  const json::value cases = read_cases();
  for (const json::value& it : cases.as_array()) {
    const json::object& entry = it.as_object();
    if (entry.contains("refused")) continue;
    if (!entry.at("valid").as_array().empty()) count_keywords(entry.at("schema"), valid, false);
    if (!entry.at("invalid").as_array().empty()) count_keywords(entry.at("schema"), invalid, false);
  }
  for (const std::string_view keyword : kKeywords) {
    EXPECT_GT(valid[std::string(keyword)], 0) << keyword;
    EXPECT_GT(invalid[std::string(keyword)], 0) << keyword;
  }
}

TEST(JsonSchema, EverySpellingOfAString) {
  const SchemaDocuments it = documents(R"({"const": "a/\"é😀\n"})");
  for (const char* text : {R"("a/\"é😀\n")", R"("\u0061\/\u0022\u00e9\ud83d\ude00\u000a")",
                           R"("\u0061\u002F\"\u00E9\uD83D\uDE00\n")"})
    EXPECT_TRUE(it.accepts(text)) << text;
  for (const char* text : {"\"a/\\\"é😀\n\"", R"("a/\"é\ud83d\n")", R"("A/\"é😀\n")", R"(a)"})
    EXPECT_FALSE(it.accepts(text)) << text;
}

TEST(JsonSchema, EverySpellingOfAName) {
  const SchemaDocuments it = documents(
      R"({"type": "object", "properties": {"ab": {"type": "null"}},
          "additionalProperties": {"type": "integer"}})");
  EXPECT_TRUE(it.accepts(R"({"\u0061b":null})"));
  EXPECT_TRUE(it.accepts(R"({"a\u0062":null,"\u0061c":5})"));
  // A listed name must not come back in disguise among the others.
  EXPECT_FALSE(it.accepts(R"({"\u0061b":5})"));
  EXPECT_FALSE(it.accepts(R"({"ab":null,"a\u0062":5})"));
  EXPECT_FALSE(it.accepts(R"({"ab":null,"ab":null})"));
}

// Zeros that say nothing end, as white space does.
TEST(JsonSchema, WholeNumbersAreNotPadded) {
  const std::string zeros(16, '0');
  for (const char* schema : {R"({"type":"integer"})", R"({"const":2})", R"({"enum":[1,2]})",
                             R"({"type":"integer","minimum":1,"maximum":9})"}) {
    const SchemaDocuments it = documents(schema);
    EXPECT_TRUE(it.accepts("2." + zeros)) << schema;
    EXPECT_FALSE(it.accepts("2." + zeros + "0")) << schema;
  }
}

TEST(JsonSchema, SpellingsOfNumbers) {
  const SchemaDocuments whole = documents(R"({"type": "integer"})");
  for (const char* text : {"0", "-0", "10", "1.0", "-12.000"}) EXPECT_TRUE(whole.accepts(text));
  for (const char* text : {"01", "1.", ".5", "+1", "1.5", "--1", "1e"})
    EXPECT_FALSE(whole.accepts(text)) << text;
  const SchemaDocuments any = documents(R"({"type": "number"})");
  for (const char* text : {"1e5", "1E-7", "-0.5e+10", "123456789012345678901234567890"})
    EXPECT_TRUE(any.accepts(text)) << text;
  const SchemaDocuments bounded = documents(R"({"type": "number", "minimum": 0.5, "maximum": 2})");
  for (const char* text : {"0.5", "0.50", "2.000", "1.9999999999999999999999"})
    EXPECT_TRUE(bounded.accepts(text)) << text;
  for (const char* text : {"0.4999999999999999999999", "2.0000000000000000000001", "-1"})
    EXPECT_FALSE(bounded.accepts(text)) << text;
}

TEST(JsonSchema, WhiteSpaceIsBounded) {
  const SchemaDocuments it = documents(
      R"({"type": "object", "properties": {"a": {"type": "array"}, "b": {}}, "required": ["a"]})");
  EXPECT_TRUE(it.accepts("{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}"));
  EXPECT_TRUE(it.accepts("{ \"a\" : [1, 2] , \"b\" : {} }"));
  EXPECT_TRUE(it.accepts("{\n\t\"a\": []\n}"));
  EXPECT_TRUE(it.accepts("{\n" + std::string(32, ' ') + "\"a\":[]}"));
  EXPECT_FALSE(it.accepts("{\n" + std::string(33, ' ') + "\"a\":[]}"));
  EXPECT_FALSE(it.accepts("{   \"a\":[]}"));
  EXPECT_FALSE(it.accepts("{\n\n\"a\":[]}"));
  EXPECT_FALSE(it.accepts(" {\"a\":[]}"));
  EXPECT_FALSE(it.accepts("{\"a\":[]} "));
}

TEST(JsonSchema, PropertiesComeInTheSchemasOrder) {
  const SchemaDocuments it =
      documents(R"({"type": "object", "properties": {"z": {}, "a": {}}, "required": ["a", "m"]})");
  EXPECT_TRUE(it.accepts(R"({"z":1,"a":1,"m":1,"q":1,"b":1})"));
  EXPECT_FALSE(it.accepts(R"({"a":1,"z":1,"m":1})"));
  EXPECT_FALSE(it.accepts(R"({"a":1,"q":1,"m":1})"));
  // Of schemas that are merged: as the text has them, a reference where it stands.
  const SchemaDocuments merged = documents(
      R"({"allOf": [{"required": ["own"]}, {"$ref": "#/$defs/base"}],
          "properties": {"own": {}}, "type": "object", "additionalProperties": true,
          "$defs": {"base": {"properties": {"id": {}, "kind": {}}}}})");
  EXPECT_TRUE(merged.accepts(R"({"id":1,"kind":2,"own":3,"x":4})"));
  EXPECT_FALSE(merged.accepts(R"({"own":3,"id":1})"));
}

TEST(JsonSchema, ErrorsNameThePlaceAndWhatToDo) {
  EXPECT_THAT(refusal(R"({"properties": {"a/b": {"items": {"type": "strin"}}}})"),
              HasSubstr("#/properties/a~1b/items: type: 'strin' is no type of JSON"));
  EXPECT_THAT(refusal(R"({"properties": {"tags": {"uniqueItems": true}}})"),
              HasSubstr("#/properties/tags: uniqueItems can be enforced for items of an enum"));
  EXPECT_THAT(refusal(R"({"items": {"$ref": "other.json#/x"}})"),
              HasSubstr("#/items: $ref: 'other.json#/x' is not in this schema"));
  EXPECT_THAT(refusal(R"({"properties": {"a": 5}})"),
              HasSubstr("#/properties/a: a schema is an object, true or false"));
  EXPECT_THAT(refusal(R"([])"), HasSubstr("#: a schema is an object, true or false"));
  EXPECT_THAT(refusal(R"({"oneOf": [{"type": "array", "uniqueItems": true, "maxItems": 1},
                                    {"type": "array"}]})"),
              HasSubstr("alternatives 1 and 0 overlap"));
}

TEST(JsonSchema, AnyValueAndAnyObject) {
  Grammar values;
  const Result<Grammar::Expr> value = json_value(values);
  ASSERT_TRUE(value);
  const SchemaDocuments any = *SchemaDocuments::make(values, *value);
  for (const char* text : {"1", "\"\"", "null", "[]", "{}", R"({"a":[1,{"b":"\u00e9"}],"a":2})"})
    EXPECT_TRUE(any.accepts(text)) << text;
  for (const char* text : {"", "[", "[1,]", "{\"a\"}", "nul", "\"\\x\"", "\"\\ud800\"", "\x80"})
    EXPECT_FALSE(any.accepts(text)) << text;
  Grammar objects;
  const Result<Grammar::Expr> object = json_object(objects);
  ASSERT_TRUE(object);
  const SchemaDocuments only = *SchemaDocuments::make(objects, *object);
  EXPECT_TRUE(only.accepts(R"({"a": 1})"));
  EXPECT_FALSE(only.accepts("[1]"));
}

class Fields : public testing::Test {
 protected:
  static constexpr FieldMarks kMarks{"<p=", ">\n", "\n</p>\n"};
  static Result<SchemaDocuments> make(
      std::string_view schema,
      std::string_view read = R"({"named": {"s": ["string"], "p": ["string"], "t": ["string"]}})") {
    const json::value parsed = *parse_json_exact(schema, "the schema");
    STRATA_ASSIGN(const FieldReader reader,
                  FieldReader::of(*parse_json_exact(read, "how fields are read")));
    Grammar grammar;
    STRATA_ASSIGN(const Grammar::Expr root, json_fields(grammar, parsed, kMarks, reader));
    return SchemaDocuments::make(grammar, root);
  }
};

TEST_F(Fields, StringsStandAsTheyAreAndTheRestIsJson) {
  const Result<SchemaDocuments> it = make(
      R"({"type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "integer"},
          "o": {"type": "object", "properties": {"k": {"type": "string"}}}},
          "required": ["s"], "additionalProperties": false})");
  ASSERT_TRUE(it) << it.error().message;
  EXPECT_TRUE(it->accepts("<p=s>\nany \"text\"\n\\ <p>\n</p>\n"));
  EXPECT_TRUE(it->accepts("<p=s>\n\n</p>\n<p=n>\n-5\n</p>\n<p=o>\n{\"k\": \"x\"}\n</p>\n"));
  EXPECT_FALSE(it->accepts("<p=n>\n5\n</p>\n"));
  EXPECT_FALSE(it->accepts("<p=s>\nx\n</p>\n<p=n>\nfive\n</p>\n"));
  EXPECT_FALSE(it->accepts("<p=s>\nx\n</p>\n<p=z>\n5\n</p>\n"));
  EXPECT_FALSE(it->accepts("<p=s>\na\n</p>\nb\n</p>\n"));
}

// What a reader would take for another value is not written; its words are.
TEST_F(Fields, ValuesThatMayBeEitherAreWrittenAsTheyAreRead) {
  const Result<SchemaDocuments> it = make(
      R"({"type": "object", "properties": {
          "u": {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 5},
                          {"type": "string", "maxLength": 8}]},
          "w": {"enum": ["7", 7, "x", null]}, "n": {"type": "number"},
          "l": {"anyOf": [{"type": "string"}, {"type": "array"}]}}, "additionalProperties": false})",
      R"({"named": {"n": ["number"], "u": ["string", "number"], "l": ["string", "list"],
                    "w": ["string", "number", "null"]}, "words": {"w": ["7", "x"]}})");
  ASSERT_TRUE(it) << it.error().message;
  const auto takes = [&](std::string_view name, std::string_view value) {
    return it->accepts(fmt::format("<p={}>\n{}\n</p>\n", name, value));
  };
  for (const char* value : {"1", "5", "abc", "007", "1.2.3", "-", "tru", "nul", "[a", "5 x", "true",
                            "None", "[4]", "\"a\""})
    EXPECT_TRUE(takes("u", value)) << value;
  for (const char* value : {"6", "42", "5.5", "1e3", "-0", "4.0", " 42 "})
    EXPECT_FALSE(takes("u", value)) << value;
  for (const char* value : {"7", "x", "null"}) EXPECT_TRUE(takes("w", value)) << value;
  EXPECT_FALSE(takes("w", "7.0"));
  for (const char* value : {"4.0", "1e5", "-0.5"}) EXPECT_TRUE(takes("n", value)) << value;
  EXPECT_TRUE(takes("l", "[1, \"a\"]"));
  EXPECT_FALSE(takes("l", "[a]"));
  EXPECT_TRUE(takes("l", "[a] b"));
  EXPECT_TRUE(takes("l", "42"));
}

// A word is read as a string even where another alternative means the value it looks like.
TEST_F(Fields, WhatIsReadAsAWordIsNotWrittenAsAValue) {
  const Result<SchemaDocuments> it = make(
      R"({"type": "object", "required": ["k", "v"], "anyOf": [
          {"properties": {"k": {"const": "n"}, "v": {"type": "integer", "minimum": 1, "maximum": 3}},
           "required": ["k", "v"], "additionalProperties": false},
          {"properties": {"k": {"const": "t"}, "v": {"enum": ["1", "[]"]}},
           "required": ["k", "v"], "additionalProperties": false},
          {"properties": {"k": {"const": "l"}, "v": {"type": "array"}},
           "required": ["k", "v"], "additionalProperties": false}]})",
      R"({"named": {"k": ["string"], "v": ["string", "number", "list"]}, "words": {"v": ["1", "[]"]}})");
  ASSERT_TRUE(it) << it.error().message;
  const auto takes = [&](std::string_view kind, std::string_view value) {
    return it->accepts(fmt::format("<p=k>\n{}\n</p>\n<p=v>\n{}\n</p>\n", kind, value));
  };
  EXPECT_TRUE(takes("n", "2"));
  EXPECT_FALSE(takes("n", "1"));
  EXPECT_TRUE(takes("t", "1"));
  EXPECT_TRUE(takes("t", "[]"));
  EXPECT_FALSE(takes("l", "[]"));
}

TEST_F(Fields, AValueThatCannotBeWrittenIsRefused) {
  constexpr std::string_view schema =
      R"({"type": "object", "properties": {"d": {"pattern": "^[1-9]$", "not": {"type": ["number",
          "boolean", "null", "array", "object"]}}}, "required": ["d"]})";
  const Result<SchemaDocuments> refused = make(schema);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("properties/d"));
  EXPECT_TRUE(make(schema, R"({"named": {"d": ["string"]}})"));
}

TEST_F(Fields, EnumsPatternsAndLengthsHoldForTheRawText) {
  const Result<SchemaDocuments> it = make(
      R"({"type": "object", "properties": {"e": {"enum": ["a\"b", "c", 5, null]},
          "p": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 3},
          "t": {"type": "string", "minLength": 1, "maxLength": 100}}, "additionalProperties": false})");
  ASSERT_TRUE(it) << it.error().message;
  for (const char* text : {"a\"b", "c", "5", "null"})
    EXPECT_TRUE(it->accepts("<p=e>\n" + std::string(text) + "\n</p>\n")) << text;
  EXPECT_FALSE(it->accepts("<p=e>\n\"c\"\n</p>\n"));
  EXPECT_TRUE(it->accepts("<p=p>\nabc\n</p>\n"));
  EXPECT_FALSE(it->accepts("<p=p>\nabcd\n</p>\n"));
  EXPECT_FALSE(it->accepts("<p=p>\nA\n</p>\n"));
  EXPECT_TRUE(it->accepts("<p=t>\n" + std::string(100, 'x') + "\n</p>\n"));
  EXPECT_FALSE(it->accepts("<p=t>\n" + std::string(101, 'x') + "\n</p>\n"));
  EXPECT_TRUE(it->accepts(""));
}

// What a reader would take for something else is not written: names that it would cut, and ends of
// fields inside a text.
TEST_F(Fields, NothingThatAReaderWouldCut) {
  for (const char* name : {"a>b", "a\\nb", " a", "a ", "\\t", ">"}) {
    const auto refused =
        make(fmt::format(R"({{"type": "object", "properties": {{"{}": {{"const": 1}}}}}})", name));
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
    EXPECT_THAT(refused.error().message, HasSubstr("cannot be written as a field"));
  }
  const Result<SchemaDocuments> it =
      make(R"({"type": "object", "properties": {"s": {"type": "string"}, "a b": {"const": 1}}})");
  ASSERT_TRUE(it) << it.error().message;
  EXPECT_TRUE(it->accepts("<p=a b>\n1\n</p>\n"));
  for (const char* text : {"x</p>", "x</p> y", "</p>.<p=", "<p=s>"})
    EXPECT_TRUE(it->accepts(fmt::format("<p=s>\n{}\n</p>\n", text))) << text;
  for (const char* text : {"x</p>\n<p=t>\ny", "x</p><p=", "x</p> \n</f>\n"})
    EXPECT_FALSE(it->accepts(fmt::format("<p=s>\n{}\n</p>\n", text))) << text;
  EXPECT_TRUE(it->accepts("<p=z>\n5\n</p>\n"));
  for (const char* name : {" z", "z ", "z\ny", "z>y"})
    EXPECT_FALSE(it->accepts(fmt::format("<p={}>\n5\n</p>\n", name))) << name;
}

TEST_F(Fields, OtherNamesAndOpenSchemas) {
  const Result<SchemaDocuments> it = make(R"({"properties": {"a": {"type": "integer"}}})");
  ASSERT_TRUE(it) << it.error().message;
  EXPECT_TRUE(it->accepts("<p=a>\n1\n</p>\n<p=b>\nanything at all\n</p>\n"));
  EXPECT_FALSE(it->accepts("<p=b>\nx\n</p>\n<p=a>\n1\n</p>\n"));
  const Result<SchemaDocuments> any = make("{}");
  ASSERT_TRUE(any) << any.error().message;
  EXPECT_TRUE(any->accepts("<p=x>\n1\n</p>\n<p=y>\n{\n</p>\n"));
  EXPECT_FALSE(make(R"({"type": "string"})"));
}

}  // namespace
}  // namespace strata::constrain
