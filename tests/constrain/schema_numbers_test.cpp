// Numbers of schemas exactly, and as readers see them who have doubles.
#include "constrain/schema_numbers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json_number.h"
#include "tests/constrain/schema_documents.h"

namespace strata::constrain {
namespace {

using testing::HasSubstr;

Result<SchemaDocuments> made(std::string_view schema) {
  return SchemaDocuments::make(*parse_json_exact(schema, "the schema", 256));
}

void expect(std::string_view schema, std::initializer_list<const char*> valid,
            std::initializer_list<const char*> invalid) {
  const Result<SchemaDocuments> it = made(schema);
  ASSERT_TRUE(it) << schema << ": " << it.error().message;
  for (const char* text : valid) EXPECT_TRUE(it->accepts(text)) << schema << " with " << text;
  for (const char* text : invalid) EXPECT_FALSE(it->accepts(text)) << schema << " with " << text;
}

TEST(SchemaNumbers, ConstantsBeyond64Bits) {
  expect(R"({"const":18446744073709551616})", {"18446744073709551616"},
         {"18446744073709552000", "18446744073709551615", "18446744073709551617"});
  expect(R"({"const":-9223372036854775809})", {"-9223372036854775809"},
         {"-9223372036854775808", "-9223372036854775808.0", "9223372036854775809"});
  expect(R"({"enum":[9007199254740993,100000000000000000000000000000000000000000000000000]})",
         {"9007199254740993", "100000000000000000000000000000000000000000000000000"},
         {"9007199254740992", "9007199254740994",
          "100000000000000007629769841091887003294964970946560",
          // Python reads another number than the constant.
          "9007199254740993.0", "100000000000000000000000000000000000000000000000000.0"});
  expect(R"({"const":0.1000000000000000000001})", {"0.1000000000000000000001"},
         {"0.1", "0.1000000000000000000002"});
  expect(R"({"const":{"a":[36893488147419103232]}})", {R"({"a":[36893488147419103232]})"},
         {R"({"a":[36893488147419103233]})"});
}

// 1e50 is read as a double: a text of its digits is, for Python, another number.
TEST(SchemaNumbers, ConstantsThatAreRead) {
  const std::string digits = "1" + std::string(50, '0');
  expect(R"({"const":1e50})", {(digits + ".0").c_str()}, {digits.c_str(), "1"});
  expect(R"({"const":1e22})", {"10000000000000000000000", "10000000000000000000000.0"},
         {"10000000000000000000001"});
  expect(R"({"const":1e2})", {"100", "100.0"}, {"1", "10", "1000"});
  expect(R"({"maximum":1e23})", {"99999999999999991611392", "100000000000000000000000.0"},
         {"100000000000000000000000", "99999999999999991611393"});
  expect(R"({"minimum":1e23})", {"100000000000000000000000", "100000000000000000000000.0"},
         {"99999999999999991611392"});
}

TEST(SchemaNumbers, Bounds) {
  expect(R"({"minimum":18446744073709551617,"maximum":18446744073709551619})",
         {"18446744073709551617", "18446744073709551619"},
         {"18446744073709551616", "18446744073709551620", "18446744073709551618.5"});
  expect(R"({"exclusiveMinimum":18446744073709551617,"type":"integer"})",
         {"18446744073709551618", "18446744073709555712.0", "99999999999999999999999999"},
         {"18446744073709551617", "18446744073709551618.0"});
  expect(R"({"exclusiveMaximum":-9223372036854775809})",
         {"-9223372036854775810", "-9223372036854777856.0"},
         {"-9223372036854775809", "-9223372036854775809.5", "-9223372036854775810.0"});
  expect(R"({"exclusiveMaximum":0.1})", {"0.09999999999999999", "0", "-5", "-1.5"},
         {"0.1", "0.10", "0.09999999999999999999999", "1"});
  expect(R"({"exclusiveMinimum":0})", {"1", "0.5", "0.000001"}, {"0", "-0", "0.0", "-1", "-0.5"});
  const std::string tiny = "0." + std::string(330, '0') + "1";
  expect(R"({"exclusiveMinimum":0})", {}, {tiny.c_str()});
  expect(R"({"minimum":0.1000000000000000000001})", {"0.1000000000000000000001", "0.11", "1"},
         {"0.1", "0"});
}

TEST(SchemaNumbers, EqualInEverySpelling) {
  expect(R"({"allOf":[{"enum":[1.0,2,1e2]},{"enum":[1,100,3]}]})", {"1", "1.0", "100"}, {"2", "3"});
  expect(R"({"allOf":[{"const":{"a":1e2}},{"const":{"a":100.0}}]})", {R"({"a":100})"}, {});
  expect(R"({"not":{"enum":[18446744073709551616,1.0]},"type":"integer"})",
         {"18446744073709551615", "18446744073709551617", "0", "2.0"},
         {"18446744073709551616", "1", "1.0"});
  expect(R"({"uniqueItems":true,"items":{"enum":[1,1.0,18446744073709551616,18446744073709551617]},
             "minItems":3})",
         {"[1,18446744073709551616,18446744073709551617]"},
         {"[1,1.0,18446744073709551616]", "[18446744073709551616,18446744073709551616,1]"});
  const auto apart = made(R"({"allOf":[{"const":18446744073709551616},
                                       {"const":18446744073709551617}]})");
  ASSERT_FALSE(apart);
  EXPECT_THAT(apart.error().message, HasSubstr("no document"));
  expect(R"({"oneOf":[{"type":"integer","minimum":18446744073709551616},
                      {"type":"integer","maximum":18446744073709551615}]})",
         {"18446744073709551615", "18446744073709551616"}, {"0.5"});
}

TEST(SchemaNumbers, MultiplesAndCounts) {
  expect(R"({"multipleOf":1e1})", {"10", "20.0"}, {"15"});
  expect(R"({"multipleOf":0.010})", {"0.01", "1.25"}, {"0.001"});
  expect(R"({"multipleOf":5,"minimum":18446744073709551616})", {"18446744073709551620"},
         {"18446744073709551615", "18446744073709551617"});
  for (const char* step : {"0.3", "1.5", "0.00001", "10001", "1e30", "0.1000000000000000000001"}) {
    const auto it = made(fmt::format(R"({{"multipleOf":{}}})", step));
    ASSERT_FALSE(it) << step;
    EXPECT_THAT(it.error().message, HasSubstr("multipleOf")) << step;
  }
  expect(R"({"type":"array","maxItems":1e400,"items":{"type":"null"}})", {"[null]"}, {"[1]"});
  expect(R"({"type":"string","minLength":2.0000})", {"\"ab\""}, {"\"a\""});
  EXPECT_FALSE(made(R"({"minLength":1.00000000000000000000001})"));
}

TEST(SchemaNumbers, LimitsNameThePlace) {
  const std::string digits(5'000, '7');
  const std::pair<std::string, const char*> refused[] = {
      {R"({"properties":{"a":{"minimum":1e400}}})",
       "#/properties/a: minimum: the number is larger than 1.8e308"},
      {R"({"enum":[1,-1e999]})", "#/enum/1: the number is larger than 1.8e308"},
      {R"({"const":)" + digits + "}", "#/const: the number has more than 2000 digits"},
      {R"({"maximum":)" + digits + "}", "#: maximum: the number has more than 2000 digits"},
      {R"({"maximum":1e-5000})", "#: maximum: the number has more than 2000 digits"},
      {R"({"multipleOf":1e400})", "#: multipleOf: the number is larger than 1.8e308"},
      {R"({"minimum":"1"})", "#: minimum: a number is needed"},
      {R"({"properties":1e400})", "#: properties: an object is needed"},
      {R"({"items":1e400})", "#/items: a schema is an object, true or false"},
  };
  for (const auto& [schema, message] : refused) {
    const auto it = made(schema);
    ASSERT_FALSE(it) << schema.substr(0, 80);
    EXPECT_THAT(it.error().message, HasSubstr(message));
  }
  expect(R"({"default":1e400,"examples":[1e-999,)" + digits + R"(],"type":"null"})", {"null"}, {});
  expect(R"({"const":)" + std::string(2'000, '7') + "}", {std::string(2'000, '7').c_str()}, {"7"});
}

// Who writes a constant comes to its end.
TEST(SchemaNumbers, ZerosBehindAConstantAreBounded) {
  const SchemaDocuments it =
      *SchemaDocuments::make(*parse_json_exact(R"({"enum":[0.1,-2.5]})", "s"));
  for (const std::string number : {"0.1", "-2.5"}) {
    EXPECT_TRUE(it.accepts(number + std::string(16, '0'))) << number;
    EXPECT_FALSE(it.accepts(number + std::string(17, '0'))) << number;
  }
}

}  // namespace
}  // namespace strata::constrain
