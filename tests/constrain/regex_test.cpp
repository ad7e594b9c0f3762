#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "constrain/regular.h"

namespace strata::constrain {
namespace {

using testing::HasSubstr;

struct Case {
  std::string_view pattern;
  std::vector<std::string_view> matching, others;
};

void check(const Case& it, Match match = Match::anywhere) {
  const auto language = regex(it.pattern, match);
  ASSERT_TRUE(language) << it.pattern << ": " << language.error().message;
  for (const std::string_view text : it.matching)
    EXPECT_TRUE(language->accepts(text)) << it.pattern << " and '" << text << "'";
  for (const std::string_view text : it.others)
    EXPECT_FALSE(language->accepts(text)) << it.pattern << " but '" << text << "'";
}

TEST(Regex, Constructs) {
  check({"abc", {"abc", "xabcx"}, {"", "ab", "ab c"}});
  check({"^abc$", {"abc"}, {"xabc", "abcx", ""}});
  check({"^a|b$", {"a", "ax", "b", "xb", "a\n"}, {"xa", "bx"}});
  check({"", {"", "x"}, {"\xFF"}});
  check({"^$", {""}, {"x", "\n"}});
  check({"^.$", {"x", "\u00e9", "\U0001F600"}, {"", "\n", "\r", "\u2028", "xx"}});
  check({"^[^]$", {"x", "\n"}, {"", "xx"}});
  check({"[]", {}, {"", "x"}});
  check({"^[a-c\\d_-]+$", {"a1_-", "-"}, {"", "d"}});
  check({"^[\\w-.]+$", {"a-.", "_"}, {"/"}});
  check({"^[^a-c]$", {"d", "\u20ac"}, {"a", ""}});
  check({"^[\\b]$", {"\b"}, {"b"}});
  check({"^\\d\\D\\w\\W\\s\\S$", {"1xa- x"}, {"1xa-xx"}});
  check({"^\\s$", {" ", "\t", "\u00a0", "\ufeff", "\u2029"}, {"x", "\u200b"}});
  check({"^\\x41\\u00e9\\u{1F600}\\uD83D\\uDE00\\cJ\\0$",
         {std::string_view("A\u00e9\U0001F600\U0001F600\n\0", 13)},
         {"A"}});
  check({"^\\-\\_\\/\\.\\@\\'$", {"-_/.@'"}, {"x"}});
  check({"^(a)(?:b)(?<name>c)$", {"abc"}, {"ab"}});
  check({"^a{2}b{2,}c{2,3}$", {"aabbcc", "aabbbccc"}, {"abbcc", "aabcc", "aabbc", "aabbcccc"}});
  check({"^a*?b+?c??d{1,2}?$", {"bd", "aabbcdd"}, {"ad", "bccd"}});
  check({"^{a}]x{,2}$", {"{a}]x{,2}"}, {"a"}});
  check({"^\\uD800$", {}, {"", "x"}});
  check({"^(|a)$", {"", "a"}, {"aa"}});
  check({"^\\p{Lu}\\p{L}*\\P{L}$", {"\u00c9tat1", "A-"}, {"\u00e9tat1", "Ax"}});
  check({"^\\p{gc=Decimal_Number}\\p{Any}\\p{ASCII}$", {"5\u20acx", "\u0665\nx"}, {"x\u20acx"}});
}

TEST(Regex, PlacesAnywhere) {
  check({"a$|^b|c", {"xa", "bx", "xcx"}, {"ax", "xb"}});
  check({"(^a|b)c", {"ac", "xbc", "acx"}, {"xac"}});
  check({"(^|,)x(,|$)", {"x", "a,x", "x,b", "a,x,b"}, {"ax", "xa", "a,xb"}});
  check({"a^b", {}, {"ab", "a", "b"}});
  check({"(a$)+", {"a", "ba"}, {"ab"}});
  check({"^^a$$", {"a"}, {"aa"}});
  check({"\\bfoo\\b", {"foo", "a foo!", "\u00e9foo\u00e9"}, {"food", "afoo", "foo_"}});
  check({"\\Bfoo", {"afoo"}, {"foo", "a foo"}});
  check({"^\\b", {"a"}, {"", " a"}});
  check({"^\\B$", {""}, {"a", " a "}});
  check({"a\\b$\\b", {"a"}, {"ab"}});
  check({"^(\\ba|\\Bb)*$", {"", "ab", "abb"}, {"aa", "b"}});
  check({"^abc$", {"abc"}, {"abcd"}}, Match::whole);
  check({"abc|d", {"abc", "d"}, {"abcd", "xd"}}, Match::whole);
  check({"(^a|^b)c$", {"ac", "bc"}, {"c"}}, Match::whole);
}

TEST(Regex, Lookaround) {
  check({"^(?!foo)[a-z]+$", {"bar", "fo", "xfoo"}, {"foo", "foobar", ""}});
  check({"^(?=.*\\d)(?=.*[a-z]).{4,8}$", {"abc1", "1234567a"}, {"abcd", "1234", "a1"}});
  check({"^(?!.*--)[a-z-]+$", {"a-b-c"}, {"a--b"}});
  check({"^(?!(?:foo|bar)$).*$", {"foox", "", "ba"}, {"foo", "bar"}});
  check({"q(?!u)", {"q", "qa", "quq"}, {"qu", "a"}});
  check({"q(?=u)", {"qu", "aqua"}, {"q", "qa"}});
  check({"^(?:(?!ab).)*$", {"", "ba", "aacb"}, {"ab", "xaby"}});
  check({"(?<=a)b", {"ab"}, {"b", "cb"}});
  check({"(?<!a)b", {"b", "cb"}, {"ab"}});
  check({"^(?!.*(?<!x)y)", {"xy", "a"}, {"y", "xyy"}});
  check({"(?=\\bx)(?!xy$)", {"x", "xyz", "a x"}, {"ax", "xy"}});
  check({"(?=$)(?<=^a)", {"a"}, {"", "ba", "ab"}});
  check({"^(?!\\s*$).+", {"a", " a"}, {"", "  "}});
}

TEST(Regex, ErrorsNameThePlace) {
  const auto code = [](std::string_view pattern) {
    const auto language = regex(pattern, Match::anywhere);
    return language ? std::optional<ErrorCode>() : language.error().code;
  };
  for (const std::string_view bad :
       {"(",     ")",           "(a",    "a)",     "[a",      "[",
        "a**",   "*a",          "+",     "?",      "a{2}{3}", "{2}",
        "^*",    "\\b+",        "\\",    "[b-a]",  "a{3,2}",  "\\x4",
        "\\u12", "\\u{110000}", "\\u{}", "\\u{12", "\\c1",    "\\A",
        "\\Z",   "\\h",         "\\01",  "[\\1]",  "(?<1>a)", "(?<a>x)(?<a>y)",
        "(?<a",  "\\p",         "\\pL",  "\\p{L",  "\xFF",    "[\xC3]",
        "[a-"})
    EXPECT_EQ(code(bad), ErrorCode::invalid_argument) << bad;
  for (const std::string_view beyond :
       {"(a)\\1", "\\k<a>", "(?i:a)", "(?P<n>a)", "(?>a)", "\\p{Nonsense}", "\\p{x=y}"})
    EXPECT_EQ(code(beyond), ErrorCode::unsupported) << beyond;
  EXPECT_EQ(regex("ab(c", Match::whole).error().message,
            "the pattern at byte 4: a '(' is not closed");
  EXPECT_THAT(regex("x(a)\\1", Match::whole).error().message,
              HasSubstr("at byte 5: back references cannot be matched"));
}

TEST(Regex, LimitsHold) {
  const auto code = [](const std::string& pattern) {
    const auto language = regex(pattern, Match::anywhere);
    return language ? std::optional<ErrorCode>() : language.error().code;
  };
  const auto times = [](std::string_view part, std::size_t n) {
    std::string text;
    for (std::size_t i = 0; i < n; ++i) text += part;
    return text;
  };
  EXPECT_EQ(code("(a|b)*a(a|b){60}$"), ErrorCode::exhausted);
  EXPECT_EQ(code("((((a{0,1000}){0,1000}){0,1000}){0,1000}){0,1000}b"), ErrorCode::exhausted);
  EXPECT_EQ(code("^a{0,99999999999}$"), ErrorCode::exhausted);
  EXPECT_EQ(code(times("(", 10'000)), ErrorCode::exhausted);
  EXPECT_EQ(code(times("a", 100'000)), ErrorCode::exhausted);
  EXPECT_EQ(code(times("(?=a)", 10)), ErrorCode::unsupported);
  EXPECT_EQ(code(fmt::format("^{}$", times("(((a*)*)*)*", 30))), std::nullopt);
  EXPECT_EQ(code(fmt::format("^{}{}$", times("a?", 200), times("a", 200))), std::nullopt);
  EXPECT_EQ(code("^(a|aa|aaa){0,500}$"), std::nullopt);
  EXPECT_EQ(code("^([a-z]+)*([a-z]+)*!$"), std::nullopt);
  code(times("[a-z]?", 5'000));  // whatever it says, soon
  code(times("\\p{L}*", 5'000));
  code(fmt::format("{}{}x", times("(?!a)", 9), times(".?", 300)));
}

}  // namespace
}  // namespace strata::constrain
