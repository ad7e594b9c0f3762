#include "base/json_number.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "base/decimal.h"

namespace strata {
namespace {

namespace json = boost::json;

json::value exact(std::string_view text) {
  const auto value = parse_json_exact(text, "it");
  EXPECT_TRUE(value) << text;
  return value ? *value : json::value();
}

TEST(JsonNumber, LongNumbersKeepTheirText) {
  for (const char* text : {"18446744073709551616", "-9223372036854775809", "100000000000000000000",
                           "0.1000000000000000000001", "1e400", "-1e400", "1e-400",
                           "1.00000000000000000000000001e5", "9007199254740993.5",
                           "9007199254740993.0e0", "123456789012345678901234567890e-5", "1E+999"}) {
    const json::value value = exact(text);
    ASSERT_TRUE(long_number(value)) << text;
    EXPECT_EQ(*long_number(value), text);
    EXPECT_EQ(write_json(value), text);
    EXPECT_TRUE(is_number(value));
    EXPECT_EQ(object_of(value), nullptr);
    EXPECT_FALSE(value.is_number() || value.is_string());
    EXPECT_EQ(number_value(text), value);
    EXPECT_EQ(write_json(exact(fmt::format(" {{\"a\" : [ {} ,1]}} ", text))),
              fmt::format("{{\"a\":[{},1]}}", text));
  }
}

TEST(JsonNumber, OthersAreWhatTheyWere) {
  EXPECT_EQ(exact("18446744073709551615"), json::value(UINT64_MAX));
  EXPECT_EQ(exact("-9223372036854775808"), json::value(INT64_MIN));
  for (const char* text :
       {"0.1", "0.10", "1e23", "5e-324", "1.7976931348623157e308", "1.0", "-0.0",
        "0.3000000000000000", "0.30000000000000004", "1e22", "0e400", "2.50", "123456789.125"}) {
    const json::value value = exact(text);
    ASSERT_TRUE(value.is_double()) << text;
    EXPECT_EQ(value.get_double(), std::strtod(text, nullptr)) << text;
    EXPECT_EQ(Decimal::of(write_json(value)), Decimal::of(text)) << text;
  }
  EXPECT_EQ(parse_json("100000000000000000000", "it")->get_double(), 1e20);  // rounded, as ever
}

TEST(JsonNumber, NoTextIsALongNumber) {
  for (const char* text : {R"({"\u00ff": "1e400"})", R"({"": "1"})", R"({"ÿ": "1"})", "{}"}) {
    const json::value value = exact(text);
    EXPECT_FALSE(long_number(value)) << text;
    EXPECT_NE(object_of(value), nullptr);
  }
  EXPECT_FALSE(parse_json_exact("{\"\xff\": \"1e400\"}", "it"));
}

TEST(JsonNumber, MembersReadThemAsNumbers) {
  const json::value value =
      exact(R"({"a": 0.70000000000000000001, "b": 100000000000000000000, "c": 3.0000000000000000000,
                "d": 1e400, "e": 2.0000000000000000000001})");
  const json::object& object = value.get_object();
  EXPECT_EQ(*find_number(object, "a", "it"), 0.7);
  EXPECT_EQ(*find_number(object, "b", "it"), 1e20);
  EXPECT_EQ(*find_integer(object, "c", "it"), 3);
  EXPECT_EQ(*find_uint(object, "e", "it"), 2u);
  EXPECT_EQ(find_uint(object, "b", "it").error().message,
            "it: 'b' is out of range; a whole number of at least 0 is needed");
  EXPECT_EQ(find_number(object, "d", "it").error().message,
            "it: 'd' is out of range; a finite number is needed");
  EXPECT_EQ(find_string(object, "b", "it").error().message,
            "it: 'b' is a number where a string is needed");
  EXPECT_EQ(find_object(object, "b", "it").error().message,
            "it: 'b' is a number where an object is needed");
  EXPECT_EQ(json_object(object.at("b"), "it").error().message,
            "it is a number where an object is needed");
}

TEST(JsonNumber, WritesWhatBoostReads) {
  for (const char* text :
       {"[]", "{}", "[1,-2,true,false,null]",
        R"({"a":{"b":[[],{}]},"c":"\"\\\b\f\n\r\t\u0001é😀/"})", R"("")", "[1.0,0.1,1e+20,-0.0]"}) {
    EXPECT_EQ(write_json(exact(text)), text);
    EXPECT_EQ(json::parse(write_json(exact(text))), json::parse(text));
  }
  EXPECT_EQ(write_json(json::object{{"a", 1}}), "{\"a\":1}");
}

// A long number is no object, whose names would be counted.
TEST(JsonNumber, NamesStandOnceInWhatIsWritten) {
  for (const char* text :
       {R"([{"a":1e400,"b":[1e400,{"a":1e400}]},18446744073709551616])", "1e400"})
    EXPECT_EQ(write_json(*parse_written_json_exact(text, "it")), text);
  EXPECT_EQ(parse_written_json_exact(R"({"a":1e400,"a":1e400})", "it").error().message,
            "it has 'a' twice in one object: at line 1, column 2 and at line 1, column 12");
  EXPECT_TRUE(parse_json_exact(R"({"a":1e400,"a":1e400})", "it"));
}

TEST(JsonNumber, ErrorsAreThoseOfOtherJson) {
  for (const char* text : {"{\n  \"a\": ]\n}", "[1, 2", "{} x", "", "01", "1.", "-", "1e", "+1"})
    EXPECT_EQ(parse_json_exact(text, "it").error().message, parse_json(text, "it").error().message);
}

}  // namespace
}  // namespace strata
