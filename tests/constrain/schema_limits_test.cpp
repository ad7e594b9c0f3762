// Schemas that are made to be expensive: each is refused by name, or accepted, in bounded time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "constrain/time_limit.h"
#include "tests/constrain/schema_documents.h"

namespace strata::constrain {
namespace {

namespace json = boost::json;
using testing::HasSubstr;

json::value parsed(std::string_view schema) {
  return *parse_json_exact(schema, "the schema", 256);
}

std::string refusal(const json::value& schema) {
  const Result<SchemaDocuments> made = SchemaDocuments::make(schema);
  EXPECT_FALSE(made);
  return made ? "" : made.error().message;
}

json::value nested(int levels) {
  json::value schema{{"type", "integer"}};
  for (int i = 0; i < levels; ++i)
    schema = json::value{{"type", "object"}, {"properties", {{"a", std::move(schema)}}}};
  return schema;
}

TEST(SchemaLimits, Nesting) {
  EXPECT_TRUE(SchemaDocuments::make(nested(63)));
  json::value last{{"enum", {"a", "b"}}};  // 127 and 128 levels
  for (int i = 0; i < 63; ++i) {
    last = json::value{{"type", "object"},
                       {"properties", {{"a", std::move(last)}}},
                       {"required", {"a"}},
                       {"additionalProperties", false}};
  }
  EXPECT_TRUE(SchemaDocuments::make(last));
  EXPECT_THAT(refusal(nested(64)), HasSubstr("nested deeper than 128 levels"));
  json::value lists{{"type", "integer"}};
  for (int i = 0; i < 64; ++i) lists = json::value{{"type", "array"}, {"items", std::move(lists)}};
  EXPECT_THAT(refusal(lists), HasSubstr("nested deeper than 64 levels"));
  EXPECT_TRUE(SchemaDocuments::make(lists.at("items")));
  EXPECT_THAT(refusal(nested(70)), HasSubstr("nested deeper than"));
  EXPECT_THAT(refusal(nested(5'000)), HasSubstr("nested deeper than"));
}

TEST(SchemaLimits, NumbersBeyondDoublesAreRefused) {
  for (const char* schema : {R"({"const":1e400})", R"({"enum":[1,-1e999]})",
                             R"({"const":{"a":[1e400]}})", R"({"not":{"const":1e400}})"})
    EXPECT_THAT(refusal(parsed(schema)), HasSubstr("larger than 1.8e308")) << schema;
}

TEST(SchemaLimits, ManyProperties) {
  const auto with = [](int count) {
    json::object properties;
    for (int i = 0; i < count; ++i) properties[fmt::format("property{}", i)] = json::object();
    return json::value{
        {"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
  };
  EXPECT_TRUE(SchemaDocuments::make(with(100)));
  EXPECT_THAT(refusal(with(10'000)), HasSubstr("at most 4096"));
  EXPECT_THAT(refusal(with(1'000'000)), HasSubstr("more than"));
}

TEST(SchemaLimits, ReferencesWithoutStructure) {
  EXPECT_THAT(refusal(parsed(R"({"$ref": "#"})")), HasSubstr("refers to itself"));
  EXPECT_THAT(refusal(parsed(R"({"anyOf": [{"type": "null"}, {"not": {"$ref": "#"}}]})")),
              HasSubstr("refers to itself"));
  EXPECT_THAT(refusal(parsed(R"({"$ref": "https://example.com/x"})")),
              HasSubstr("nothing is fetched"));
}

// 2^40 alternatives, all combined.
TEST(SchemaLimits, ProductsOfAlternatives) {
  json::array all;
  for (int i = 0; i < 40; ++i) {
    const std::string name = fmt::format("p{}", i);
    json::object one, other, any;
    one["required"] = json::array{name};
    other["required"] = json::array{name + "x"};
    any["anyOf"] = json::array{one, other};
    all.emplace_back(std::move(any));
  }
  EXPECT_THAT(refusal({{"type", "object"}, {"allOf", all}}), HasSubstr("multiply to more than"));
}

TEST(SchemaLimits, ReferencesThatDouble) {
  json::object defs;
  for (int i = 0; i < 60; ++i) {
    const json::value next{{"$ref", fmt::format("#/$defs/d{}", i + 1)}};
    defs[fmt::format("d{}", i)] = {{"allOf", {next, next}}};
  }
  defs["d60"] = {{"type", "string"}};
  const json::value schema{{"$ref", "#/$defs/d0"}, {"$defs", defs}};
  EXPECT_THAT(refusal(schema),
              testing::AnyOf(HasSubstr("steps to combine"), HasSubstr("stand inside each other")));
}

TEST(SchemaLimits, TinyBounds) {
  for (const char* bound : {"5e-324", "-1e-320", "2.2250738585072011e-308"}) {
    const auto made =
        SchemaDocuments::make(parsed(fmt::format(R"({{"type": "number", "minimum": {}}})", bound)));
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_TRUE(made->accepts("1"));
    EXPECT_FALSE(made->accepts("-1"));
    EXPECT_EQ(made->accepts("0"), bound[0] == '-');
  }
}

TEST(SchemaLimits, GiantBounds) {
  EXPECT_TRUE(SchemaDocuments::make(parsed(R"({"type": "string", "maxLength": 2000000000})")));
  EXPECT_TRUE(SchemaDocuments::make(parsed(R"({"type": "array", "maxItems": 2000000000})")));
  EXPECT_TRUE(SchemaDocuments::make(parsed(R"({"type": "string", "maxLength": 1e300})")));
  EXPECT_THAT(refusal(parsed(R"({"type": "string", "minLength": 2000000000})")),
              HasSubstr("more than any answer has"));
  EXPECT_THAT(refusal(parsed(R"({"type": "array", "minItems": 2000000000})")),
              HasSubstr("more than any answer has"));
  EXPECT_THAT(refusal(parsed(R"({"type": "array", "minItems": 999999999999999999})")),
              HasSubstr("minItems 999999999999999999 is more than any answer has"));
  EXPECT_THAT(refusal(parsed(R"({"type": "array", "minItems": 1e20})")),
              HasSubstr("minItems 10^18 or more is more than any answer has"));
  EXPECT_THAT(refusal(parsed(R"({"type": "string", "not": {"maxLength": 1e400}})")),
              HasSubstr("minLength 10^18 or more is more than any answer has"));
  EXPECT_THAT(refusal(parsed(R"({"type": "object", "minProperties": 1e300})")),
              HasSubstr("minProperties 10^18 or more cannot be enforced"));
  EXPECT_THAT(refusal(parsed(R"({"type": "string", "pattern": "a", "maxLength": 2000000000})")),
              HasSubstr("together with patterns"));
  EXPECT_THAT(refusal(parsed(R"({"type": "array", "contains": {"const": 1},
                                 "minItems": 1000000})")),
              HasSubstr("states"));
  EXPECT_THAT(refusal(parsed(R"({"type": "string", "pattern": "^[a-z]{1000000}$"})")),
              HasSubstr("pattern"));
}

TEST(SchemaLimits, CatastrophicPatternsAreLinear) {
  const Result<SchemaDocuments> it =
      SchemaDocuments::make(parsed(R"({"type": "string", "pattern": "^(a+)+$"})"));
  ASSERT_TRUE(it);
  EXPECT_TRUE(it->accepts("\"" + std::string(50'000, 'a') + "\""));
  EXPECT_FALSE(it->accepts("\"" + std::string(50'000, 'a') + "!\""));
}

TEST(SchemaLimits, OverlappingAlternativesOfManyProperties) {
  json::array alternatives;
  for (int i = 0; i < 12; ++i) {
    json::object properties;
    for (int k = 0; k < 12; ++k) properties[fmt::format("p{}_{}", i, k)] = {{"type", "integer"}};
    json::object alternative{{"type", "object"}};
    alternative["properties"] = std::move(properties);
    alternatives.emplace_back(std::move(alternative));
  }
  EXPECT_THAT(
      refusal({{"oneOf", alternatives}}),
      testing::AnyOf(HasSubstr("cases"), HasSubstr("steps to combine"), HasSubstr("alternatives")));
}

// What ran out of time is never something else instead: a format that was not made in time is no
// unknown one, which would only be an annotation.
TEST(SchemaLimits, AFormatIsNotLeftOutForWantOfTime) {
  const TimeLimit time(0);
  while (!TimeLimit::over()) {
  }
  {
    const TimeLimit inner(3600);
    EXPECT_TRUE(TimeLimit::over()) << "what is over outside is over inside";
  }
  for (const char* name : {"idn-email", "idn-hostname", "date-time", "iri"})
    EXPECT_TRUE(format_text(name)) << name;
  EXPECT_TRUE(TimeLimit::over());
  const auto refused =
      SchemaDocuments::make(boost::json::parse(R"({"type":"string","format":"uuid"})"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::exhausted);
}

}  // namespace
}  // namespace strata::constrain
