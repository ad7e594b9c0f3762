// Grammar texts: what each form means, and what is said about those that are wrong.
#include "constrain/gbnf.h"

#include <gtest/gtest.h>

#include "tests/constrain/texts.h"

namespace strata::constrain {
namespace {

struct Meaning {
  std::string_view grammar;
  std::vector<std::string_view> whole, not_whole;
};

const Meaning kMeanings[] = {
    {R"(root ::= "yes" | "no" # a comment)", {"yes", "no"}, {"", "ye", "yesno", "#"}},
    {R"(root::="a")", {"a"}, {""}},
    {R"(root ::= "a\n\t\r\\\"\[\]\x41\u00e4\U0001F600")", {"a\n\t\r\\\"[]Aä😀"}, {"a"}},
    {R"(root ::= "\xe4")", {"ä"}, {"\xe4"}},
    {R"(root ::= [a-cx-z_-]+)", {"abc", "x-_"}, {"", "d", "ab d"}},
    {R"(root ::= [^a-cä]*)", {"", "xyz", "ö", "\n", "😀"}, {"a", "xa", "ä", "\xff"}},
    {R"(root ::= [\x41-\u0043\]\[\\"]+)", {"ABC][\\\""}, {"D"}},
    {R"(root ::= [^])", {"a", "\n", "€"}, {"", "\x80", "ab"}},
    {R"(root ::= .{2})", {"ab", "ä€", "\n\n"}, {"a", "abc", "\xc3"}},
    {R"(root ::= "ab"* "c"+ "d"?)", {"c", "ababccd"}, {"", "abd", "ac"}},
    {R"(root ::= [ab]{3})", {"aba"}, {"ab", "abab"}},
    {R"(root ::= [ab]{2,})", {"ab", "ababab"}, {"a"}},
    {R"(root ::= [ab]{ 1 , 2 })", {"a", "ab"}, {"", "aba"}},
    {R"(root ::= [ab]{0,2} "c")", {"c", "abc"}, {"abac"}},
    {R"(root ::= "a"{0})", {""}, {"a"}},
    {R"(root ::= ("a" | "b" "c")+)", {"a", "bcabc"}, {"", "b"}},
    {R"(root ::= ("a" |) "b")", {"ab", "b"}, {"a"}},
    {"root ::= (\n  \"a\" # first\n  | \"b\"\n) \"c\"\n", {"ac", "bc"}, {"a"}},
    {"root ::= one |\n  two\none ::= \"1\"\ntwo ::= \"2\"", {"1", "2"}, {"12"}},
    {"root ::=\n  \"a\"\n  | \"b\"\n  \"c\"\r\n\r\nother ::= \"d\"", {"a", "bc"}, {"b", "d"}},
    {"# nothing but this\n\nroot ::= under_score-and-dash2\nunder_score-and-dash2 ::= \"x\"",
     {"x"},
     {""}},
    {"root ::= \"(\" root \")\" | \"x\"", {"x", "((x))"}, {"((x)", ""}},
    {"root ::= root \"+\" n | n\nn ::= [0-9]+", {"1", "1+22+3"}, {"+1", "1+"}},
    {"root ::= a \"x\" | \"r\"\na ::= b \"y\" | root \"z\"\nb ::= a \"w\" | root | \"q\"",
     {"r", "rzx", "ryx", "qyx", "rzwyx", "qyxzx"},
     {"", "qx", "rx"}},
    {"root ::= e? root \"a\" | e\ne ::= \"\" | \"b\"",
     {"", "a", "b", "ba", "bba", "bbaaa"},
     {"ab"}},
    {"root ::= \"<\" %grammar \"root ::= a | \\\"z\\\"\\na ::= \\\"y\\\"\" a\na ::= \"x\"",
     {"<yx", "<zx"},
     {"<xx", "<y"}},
    {R"(root ::= %until "</x>" "</x>")", {"</x>", "a<</x</x>", "ä</x>"}, {"a", "</x></x>"}},
};

TEST(Gbnf, MeansWhatItShould) {
  const auto vocabulary = byte_vocabulary();
  for (const Meaning& it : kMeanings) {
    SCOPED_TRACE(it.grammar);
    const auto compiled = compile_gbnf(it.grammar, vocabulary);
    ASSERT_TRUE(compiled) << compiled.error().message;
    const Matcher matcher(*compiled, {kByteEnd});
    for (const std::string_view text : it.whole) EXPECT_TRUE(is_whole(matcher, text)) << text;
    for (const std::string_view text : it.not_whole) EXPECT_FALSE(is_whole(matcher, text)) << text;
  }
}

TEST(Gbnf, TokensByIdAndByLiteral) {
  const auto fixed =
      compile_gbnf("root ::= <think> !</think>* <[258]> <[97,98,300]> \"b\"", byte_vocabulary(60));
  ASSERT_TRUE(fixed) << fixed.error().message;
  Matcher matcher(*fixed, {kByteEnd});
  EXPECT_TRUE(allows(matcher.mask(), 257));
  EXPECT_FALSE(allows(matcher.mask(), '<')) << "the letters of a special token are not it";
  ASSERT_TRUE(matcher.accept(257));
  for (const TokenId any : {0, 97, 255, 257, 258, 300, 315})
    EXPECT_TRUE(allows(matcher.mask(), any)) << any;
  EXPECT_FALSE(allows(matcher.mask(), kByteEnd)) << "an end only where the text may end";
  ASSERT_TRUE(matcher.accept(255));
  ASSERT_TRUE(matcher.accept(257));
  ASSERT_TRUE(matcher.accept(258));
  EXPECT_TRUE(allows(matcher.mask(), 97));
  EXPECT_TRUE(allows(matcher.mask(), 300));
  EXPECT_FALSE(allows(matcher.mask(), 99));
  ASSERT_TRUE(matcher.accept(300));
  EXPECT_FALSE(matcher.can_end());
  ASSERT_TRUE(matcher.accept('b'));
  EXPECT_TRUE(matcher.must_end());
  EXPECT_TRUE(matcher.accept(kByteEnd));
  EXPECT_TRUE(matcher.can_end());
  EXPECT_EQ(matcher.accepted(), 7U);
}

struct Wrong {
  std::string_view grammar, message;
};

const Wrong kWrong[] = {
    {"", "the grammar has no rule 'root'; name the rule of the whole answer so"},
    {"other ::= \"a\"", "the grammar has no rule 'root'; name the rule of the whole answer so"},
    {"root \"a\"", "grammar, line 1, column 6: '::=' is expected behind the name 'root'"},
    {"root ::= \"a", "grammar, line 1, column 10: this literal is not closed by '\"' in its line"},
    {"root ::= \"ä\" [a\n]",
     "grammar, line 1, column 14: this '[' is not closed by ']' in its line"},
    {"root ::= []",
     "grammar, line 1, column 10: a class without characters matches nothing; write \"\" for the "
     "empty text"},
    {"root ::= [b-a]", "grammar, line 1, column 13: the range ends before it begins"},
    {"root ::= \"\\d\"",
     "grammar, line 1, column 11: an escape is one of \\n \\r \\t \\\\ \\\" \\[ \\] \\xHH \\uHHHH "
     "\\UHHHHHHHH; write other characters as they are, and a backslash as \\\\"},
    {"root ::= \"\\u12G4\"", "grammar, line 1, column 13: 4 hexadecimal digits are expected"},
    {"root ::= \"\\ud800\"", "grammar, line 1, column 13: U+D800 is not a character"},
    {"root ::= \"\xff\"", "grammar, line 1, column 11: the text is not valid UTF-8 here"},
    {"root ::= (\"a\"\n", "grammar, line 1, column 10: this '(' is not closed"},
    {"root ::= \"a\")",
     "grammar, line 1, column 13: ')' is not expected here; a rule ends with its line"},
    {"root ::= \"a\"{,3}",
     "grammar, line 1, column 14: a number is expected before ','; write {0,n}"},
    {"root ::= \"a\"{3,2}", "grammar, line 1, column 17: a repetition of at least 3 and at most 2"},
    {"root ::= \"a\"{99999999999}",
     "grammar, line 1, column 14: a number of at most 4294967295 is expected"},
    {"root ::= *", "grammar, line 1, column 10: '*' is not expected here"},
    {"root ::= \"a\"\n\nroot ::= \"b\"",
     "grammar, line 3, column 1: the rule 'root' is defined twice; join the two with '|'"},
    {"root ::= \"a\" |\n  missing",
     "grammar, line 2, column 3: the rule 'missing' is used but not defined; add a line 'missing "
     "::= ...'"},
    {"root ::= <nobody>",
     "grammar, line 1, column 10: '<nobody>' is not a special token of this model"},
    {"root ::= <[1", "grammar, line 1, column 13: ']>' is expected behind the ids of tokens"},
    {"root ::= <[999]>", "the rule 'root' names the token 999, but the vocabulary has 264 tokens"},
    {"root ::= \"a\" again\nagain ::= \"b\" again",
     "the rule 'again' can never end: each of its alternatives needs it again"},
    {"root ::= root", "the rule 'root' can never end: each of its alternatives needs it again"},
    {"root ::= %xml",
     "grammar, line 1, column 10: '%xml' is not one of %json %object %value "
     "%fields %fields-if-able %regex %until %grammar"},
    {"root ::= %until \"\"", "grammar, line 1, column 19: the text behind %until is empty"},
    {R"(root ::= %json {"const": 1, "const": 2})",
     "grammar, line 1, column 16: the JSON behind it has 'const' twice in one object: at line 1, "
     "column 2 and at line 1, column 14"},
    {"root ::= %regex 5",
     "grammar, line 1, column 18: a JSON string in quotes is expected before this"},
};

TEST(Gbnf, SaysWhatIsWrongAndWhere) {
  const auto vocabulary = byte_vocabulary();
  for (const Wrong& it : kWrong) {
    const auto compiled = compile_gbnf(it.grammar, vocabulary);
    ASSERT_FALSE(compiled) << it.grammar;
    EXPECT_EQ(compiled.error().message, it.message) << it.grammar;
  }
}

// A schema that cannot be enforced leaves fields of any names; one that can holds.
TEST(Gbnf, FieldsIfAble) {
  const auto vocabulary = byte_vocabulary();
  const auto takes = [&](std::string_view schema, std::string_view text) {
    const auto compiled = compile_gbnf(
        fmt::format("root ::= %fields-if-able \"\\n<p=\" \">\\n\" \"\\n</p>\" {} {{}}", schema),
        vocabulary);
    EXPECT_TRUE(compiled) << compiled.error().message;
    return compiled && is_whole(Matcher(*compiled, {kByteEnd}), text);
  };
  constexpr std::string_view kAble =
      R"({"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false})";
  constexpr std::string_view kUnable =
      R"({"type":"object","properties":{"n":{"type":"array","uniqueItems":true}}})";
  EXPECT_TRUE(takes(kAble, "\n<p=n>\n7\n</p>"));
  EXPECT_FALSE(takes(kAble, "\n<p=n>\nseven\n</p>"));
  EXPECT_TRUE(takes(kUnable, "\n<p=n>\nseven\n</p>\n<p=other>\n\n</p>"));
  EXPECT_TRUE(takes(kUnable, ""));
  EXPECT_FALSE(takes(kUnable, "\n<p=>\nseven\n</p>"));
  EXPECT_FALSE(takes(kUnable, "\n<p=a>b>\nseven\n</p>"));
}

}  // namespace
}  // namespace strata::constrain
