#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(Json, ParsesAndNamesThePlaceOfAnError) {
  EXPECT_TRUE(parse_json(" {\"a\": [1, 2.5, null]} \n", "it"));
  const auto broken = parse_json("{\n  \"a\": ]\n}", "the request body");
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(broken.error().message,
            "the request body is no valid JSON: syntax error at byte 9 (line 2, column 8)");
  const auto file = parse_json("[1, 2", JsonSource("'x.json'", ErrorCode::corrupt));
  EXPECT_EQ(file.error().code, ErrorCode::corrupt);
  EXPECT_EQ(file.error().message,
            "'x.json' is no valid JSON: incomplete JSON at byte 5 (line 1, column 6)");
  EXPECT_THAT(parse_json("{} x", "it").error().message, HasSubstr("at byte 3"));
  EXPECT_FALSE(parse_json("", "it"));
}

TEST(Json, DepthIsBounded) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(parse_json(nested(kJsonDepth), "it"));
  EXPECT_FALSE(parse_json(nested(kJsonDepth + 1), "it"));
  EXPECT_TRUE(parse_json(nested(3), "it", 3));
  EXPECT_FALSE(parse_json(nested(4), "it", 3));
  EXPECT_FALSE(parse_json(std::string(1'000'000, '['), "it"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_FALSE(parse_json(objects, "it"));
}

TEST(Json, WhatIsTooDeepIsToldTheLimit) {
  EXPECT_EQ(parse_json("[[[1]]]", "it", 2).error().message,
            "it is nested deeper than 2 levels of objects and arrays");
}

TEST(Json, WhatPeopleWriteHasNoNameTwice) {
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"a":1,"a":2})",
       "'x.json' has 'a' twice in one object: at line 1, column 2 and at line 1, column 8"},
      {"{\n \"a\": {\"b\": [1, {}], \"c\": \"b\"},\n \"d\": 0,\n \"a\": null}",
       "'x.json' has 'a' twice in one object: at line 2, column 2 and at line 4, column 2"},
      {R"([{"x":{"y":1,"z":[],"\u0079":2}}])",
       "'x.json' has 'y' twice in one object: at line 1, column 8 and at line 1, column 21"},
      {R"({"a\"b\\":1,"c":[{},{"a\"b\\":1}],"a\"b\\":2})",
       "'x.json' has 'a\"b\\' twice in one object: at line 1, column 2 and at line 1, column 35"},
  };
  for (const auto& [text, message] : wrong) {
    const auto parsed = parse_written_json(text, "'x.json'");
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().message, message);
    EXPECT_EQ(parsed.error().code, ErrorCode::invalid_argument);
    EXPECT_TRUE(parse_json(text, "'x.json'")) << text;
  }
  for (const char* text : {R"({"a":{"a":1},"b":{"a":1},"c":["a","a",{"a":"a"}],"A":"a"})", "[]",
                           R"("a")", "{}", R"([{"a":1},{"a":1}])", " 1 "})
    EXPECT_TRUE(parse_written_json(text, "it")) << text;
  EXPECT_THAT(parse_written_json("{\"a\":1", "it").error().message, HasSubstr("no valid JSON"));
}

// A long name is cut where a character ends.
TEST(Json, ALongNameIsQuotedByItsBeginning) {
  std::string name(99, 'a');
  name += "é and more";
  EXPECT_EQ(
      parse_written_json(fmt::format(R"({{"{}":1,"{}":1}})", name, name), "it").error().message,
      fmt::format("it has '{}...' twice in one object: at line 1, column 2 and at line 1, "
                  "column {}",
                  name.substr(0, 99), name.size() + 7));
}

TEST(Json, ManyObjectsAndNames) {
  std::string text = "[";
  for (int i = 0; i < 3000; ++i)
    text += fmt::format(R"({{"a{0}":{{"a{0}":[{{}},{{"b":null}}]}},"b":1}},)", i);
  for (int i = 0; i < 3000; ++i) text += fmt::format(R"({}"n{}":0)", i == 0 ? '{' : ',', i);
  EXPECT_TRUE(parse_written_json(text + "}]", "it"));
  EXPECT_THAT(parse_written_json(text + R"(,"n17":0}])", "it").error().message,
              HasSubstr("has 'n17' twice"));
}

// Valid JSON that the parser does not take.
TEST(Json, AnExponentBeyondItsLimitIsNamed) {
  EXPECT_EQ(parse_json("{\n \"a\": [-1.5e99999999999]}", "the request body").error().message,
            "the request body has a number whose exponent is beyond 2147483647: -1.5e99999999999 "
            "at byte 9 (line 2, column 8)");
  EXPECT_THAT(parse_json("1E-2147483648", "it").error().message,
              HasSubstr(": 1E-2147483648 at byte 0 (line 1, column 1)"));
  EXPECT_THAT(parse_json("[7, 1e" + std::string(1000, '9') + " ]", "it").error().message,
              HasSubstr(": 1e" + std::string(58, '9') + "... at byte 4"));
  EXPECT_TRUE(parse_json("1e2147483647", "it"));
}

TEST(Json, RefusesWhatIsNoUnicode) {
  EXPECT_FALSE(parse_json("\"\xc3\"", "it"));
  EXPECT_FALSE(parse_json("\"\xff\"", "it"));
  EXPECT_FALSE(parse_json("\"\\ud800\"", "it"));
  EXPECT_TRUE(parse_json("\"\\ud83d\\ude00\"", "it"));
  EXPECT_FALSE(parse_json(std::string("{\"a\"\0:1}", 8), "it"));
}

class JsonMembers : public testing::Test {
 protected:
  void SetUp() override {
    value_ = parse_json(
                 R"({"text":"x","n":7,"big":18446744073709551615,"minus":-3,"half":1.5,
                     "whole":3.0,"huge":1e300,"yes":true,"none":null,"list":[1,"b"],"map":{"k":1}})",
                 "it")
                 .value();
  }
  const boost::json::object& object() { return value_.as_object(); }
  boost::json::value value_;
};

TEST_F(JsonMembers, FindsEachType) {
  EXPECT_EQ(find_string(object(), "text", "it").value(), "x");
  EXPECT_EQ(find_uint(object(), "n", "it").value(), 7u);
  EXPECT_EQ(find_uint(object(), "big", "it").value(), UINT64_MAX);
  EXPECT_EQ(find_uint(object(), "whole", "it").value(), 3u);
  EXPECT_EQ(find_integer(object(), "minus", "it").value(), -3);
  EXPECT_EQ(find_number(object(), "half", "it").value(), 1.5);
  EXPECT_EQ(find_number(object(), "n", "it").value(), 7.0);
  EXPECT_EQ(find_bool(object(), "yes", "it").value(), true);
  EXPECT_EQ(find_array(object(), "list", "it").value()->size(), 2u);
  EXPECT_EQ(find_object(object(), "map", "it").value()->size(), 1u);
}

TEST_F(JsonMembers, AbsentAndNullAreNotGiven) {
  for (const char* key : {"absent", "none"}) {
    EXPECT_EQ(find_string(object(), key, "it").value(), std::nullopt);
    EXPECT_EQ(find_uint(object(), key, "it").value(), std::nullopt);
    EXPECT_EQ(find_array(object(), key, "it").value(), nullptr);
    EXPECT_EQ(find_object(object(), key, "it").value(), nullptr);
  }
  EXPECT_EQ(required(find_uint(object(), "absent", "it"), "absent", "it").error().message,
            "it: 'absent' is missing");
  EXPECT_EQ(required(find_array(object(), "none", "it"), "none", "it").error().message,
            "it: 'none' is missing");
  EXPECT_EQ(required(find_uint(object(), "n", "it"), "n", "it").value(), 7u);
}

TEST_F(JsonMembers, OtherTypesAreErrorsThatNameThem) {
  EXPECT_EQ(find_string(object(), "n", "it").error().message,
            "it: 'n' is a number where a string is needed");
  EXPECT_EQ(find_string(object(), "list", "it").error().message,
            "it: 'list' is an array where a string is needed");
  EXPECT_EQ(find_uint(object(), "text", "it").error().message,
            "it: 'text' is a string where a whole number of at least 0 is needed");
  EXPECT_EQ(find_uint(object(), "minus", "it").error().message,
            "it: 'minus' is out of range; a whole number of at least 0 is needed");
  EXPECT_FALSE(find_uint(object(), "half", "it"));
  EXPECT_FALSE(find_uint(object(), "huge", "it"));
  EXPECT_FALSE(find_integer(object(), "big", "it"));
  EXPECT_FALSE(find_bool(object(), "n", "it"));
  EXPECT_FALSE(find_array(object(), "map", "it"));
  EXPECT_FALSE(find_object(object(), "list", "it"));
  EXPECT_EQ(json_object(value_.at("n"), "the body").error().message,
            "the body is a number where an object is needed");
  EXPECT_EQ(json_uint(value_.at("text"), "shape", "tensor 'a'").error().message,
            "tensor 'a': 'shape' is a string where a whole number of at least 0 is needed");
}

}  // namespace
}  // namespace strata
