// The cut into pieces, as HF's tokenizers cut with the same patterns, and the character classes
// against another library's. tests/peers/tokenizer_equality.py compares many more strings.
#include "tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <utf8proc.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "tokenizer/unicode.h"

namespace strata {
namespace {

using testing::ElementsAre;

using Kind = PreTokenizerKind;

std::vector<std::string> pieces(std::string_view text, PreTokenizer pre = {}) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = piece_end(pre, text, at);
    EXPECT_GT(end, at);
    out.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

TEST(PreTokenizer, CutsAsQwen35) {
  EXPECT_THAT(pieces("Hello world"), ElementsAre("Hello", " world"));
  EXPECT_THAT(pieces("it's we'LL I'm 'tis"),
              ElementsAre("it", "'s", " we", "'LL", " I", "'m", " '", "tis"));
  EXPECT_THAT(pieces("'stop"), ElementsAre("'s", "top"));
  EXPECT_THAT(pieces("'\u017Fx"), ElementsAre("'\u017Fx"));
  EXPECT_THAT(pieces("'l 'r"), ElementsAre("'l", " '", "r"));
  EXPECT_THAT(pieces("'lx 'ex"), ElementsAre("'lx", " '", "ex"));
  EXPECT_THAT(pieces("\nb\rc\td"), ElementsAre("\n", "b", "\r", "c", "\td"));
  EXPECT_THAT(pieces("a1234"), ElementsAre("a", "1", "2", "3", "4"));
  EXPECT_THAT(pieces(" 1"), ElementsAre(" ", "1"));
  EXPECT_THAT(pieces("e\u0301\u0301x \u0301y"), ElementsAre("e\u0301\u0301x", " \u0301y"));
  EXPECT_THAT(pieces("f(x) += {};\r\n\n  y"),
              ElementsAre("f", "(x", ")", " +=", " {};\r\n\n", " ", " y"));
  EXPECT_THAT(pieces("a  \n \n  b"), ElementsAre("a", "  \n \n", " ", " b"));
  EXPECT_THAT(pieces("a   "), ElementsAre("a", "   "));
  EXPECT_THAT(pieces("\n\nb"), ElementsAre("\n\n", "b"));
  EXPECT_THAT(pieces("\u3000\u3000b"), ElementsAre("\u3000", "\u3000b"));
  EXPECT_THAT(pieces("\u00A0!"), ElementsAre("\u00A0", "!"));
  EXPECT_THAT(pieces("\u0085\u0085"), ElementsAre("\u0085\u0085"));
}

TEST(PreTokenizer, CutsAsQwen2) {
  const auto cut = [](std::string_view text) { return pieces(text, {Kind::qwen2, true}); };
  EXPECT_THAT(cut("Hello world"), ElementsAre("Hello", " world"));
  EXPECT_THAT(cut("it's we'LL I'm 'tis"),
              ElementsAre("it", "'s", " we", "'LL", " I", "'m", " '", "tis"));
  EXPECT_THAT(cut("a1234 5"), ElementsAre("a", "1", "2", "3", "4", " ", "5"));
  EXPECT_THAT(cut("e\u0301\u0301x \u0301y"), ElementsAre("e", "\u0301\u0301", "x", " \u0301", "y"));
  EXPECT_THAT(cut("!\u0301a \u0301"), ElementsAre("!\u0301", "a", " \u0301"));
  EXPECT_THAT(cut("f(x) += {};\r\n\n  y"),
              ElementsAre("f", "(x", ")", " +=", " {};\r\n\n", " ", " y"));
  EXPECT_THAT(cut("a  \n \n  b"), ElementsAre("a", "  \n \n", " ", " b"));
  EXPECT_THAT(cut("'\u017Fx it'\u017F"), ElementsAre("'\u017F", "x", " it", "'\u017F"));
  EXPECT_THAT(cut("a\u3000\u3000b"), ElementsAre("a", "\u3000", "\u3000b"));
  EXPECT_THAT(cut("\u00BD\u00B2x"), ElementsAre("\u00BD", "\u00B2", "x"));
}

TEST(PreTokenizer, CutsAsLlamaBpe) {
  const auto cut = [](std::string_view text) { return pieces(text, {Kind::llama_bpe, true}); };
  EXPECT_THAT(cut("a1234567 12"), ElementsAre("a", "123", "456", "7", " ", "12"));
  EXPECT_THAT(cut("it's we'LL"), ElementsAre("it", "'s", " we", "'LL"));
  EXPECT_THAT(cut("e\u0301x"), ElementsAre("e", "\u0301x"));
  EXPECT_THAT(cut("!\u0301a"), ElementsAre("!\u0301", "a"));
  EXPECT_THAT(cut("1\u0301 \u06F1\u06F2\u06F3\u06F4"),
              ElementsAre("1", "\u0301", " ", "\u06F1\u06F2\u06F3", "\u06F4"));
  EXPECT_THAT(cut("x  \n\n y"), ElementsAre("x", "  \n\n", " y"));
}

TEST(PreTokenizer, CutsAsGpt2) {
  const auto cut = [](std::string_view text) { return pieces(text, {Kind::gpt2, true}); };
  EXPECT_THAT(cut("it's It'S 'LL 'll 'lL"),
              ElementsAre("it", "'s", " It", "'", "S", " '", "LL", " '", "ll", " '", "lL"));
  EXPECT_THAT(cut("a1234 567!"), ElementsAre("a", "1234", " 567", "!"));
  EXPECT_THAT(cut("  hi  \n x\n\ny"), ElementsAre(" ", " hi", "  \n", " x", "\n", "\n", "y"));
  EXPECT_THAT(cut("e\u0301x \u0301\u0301!a"),
              ElementsAre("e", "\u0301", "x", " \u0301\u0301!", "a"));
  EXPECT_THAT(cut("don't!!\n\nX"), ElementsAre("don", "'t", "!!", "\n", "\n", "X"));
  EXPECT_THAT(cut("\t\tif(a)\n"), ElementsAre("\t", "\t", "if", "(", "a", ")", "\n"));
  EXPECT_THAT(cut("a\u00A0b \u00A0"), ElementsAre("a", "\u00A0", "b", " \u00A0"));
  EXPECT_THAT(cut("'re're'Re"), ElementsAre("'re", "'re", "'", "Re"));
}

TEST(PreTokenizer, CutsAsGpt4o) {
  const auto cut = [](std::string_view text) { return pieces(text, {Kind::gpt4o, true}); };
  EXPECT_THAT(cut("XMLHttpRequest isNaN"), ElementsAre("XMLHttp", "Request", " is", "Na", "N"));
  EXPECT_THAT(cut("it's IT'LL x'S!"), ElementsAre("it's", " IT'LL", " x'S", "!"));
  EXPECT_THAT(cut("\u65E5\u672CABC \u65E5ABCdef"),
              ElementsAre("\u65E5\u672C", "ABC", " \u65E5ABCdef"));
  EXPECT_THAT(cut("\u0301ABC a\u0301B\u0301c"),
              ElementsAre("\u0301", "ABC", " a\u0301", "B\u0301c"));
  EXPECT_THAT(cut("\u01C5a \u02B0A"), ElementsAre("\u01C5a", " \u02B0", "A"));
  EXPECT_THAT(cut("12345 a1b22"), ElementsAre("123", "45", " a", "1", "b", "22"));
  EXPECT_THAT(cut("a//b !/\n/\nx"), ElementsAre("a", "//", "b", " !/\n/\n", "x"));
  EXPECT_THAT(cut("HELLOworld'llx McDonald's"),
              ElementsAre("HELLOworld'll", "x", " Mc", "Donald's"));
  EXPECT_THAT(cut("\u00AAB \u00DF'\u017Fs"), ElementsAre("\u00AA", "B", " \u00DF'\u017F", "s"));
  EXPECT_THAT(cut("(\u6587Aa"), ElementsAre("(\u6587Aa"));
  EXPECT_THAT(cut("  \n\n  x\n/"), ElementsAre("  \n\n", " ", " x", "\n", "/"));
}

TEST(PreTokenizer, TakesALongSForAnSOnlyWhereThePatternSaysAnyCase) {
  for (const Kind kind : {Kind::qwen35, Kind::qwen2, Kind::llama_bpe}) {
    EXPECT_THAT(pieces("a'\u017Fb", {kind, false}), ElementsAre("a", "'\u017Fb"));
    EXPECT_THAT(pieces("a'\u017Fb", {kind, true}), ElementsAre("a", "'\u017F", "b"));
  }
  EXPECT_THAT(pieces("a'\u017Fb", {Kind::gpt4o, false}), ElementsAre("a", "'\u017Fb"));
  EXPECT_THAT(pieces("a'\u017Fb", {Kind::gpt4o, true}), ElementsAre("a'\u017F", "b"));
  EXPECT_THAT(pieces("a'\u017Fb", {Kind::gpt2, true}), ElementsAre("a", "'", "\u017Fb"));
}

TEST(PreTokenizer, IsKnownByNameAndByPattern) {
  const std::string tail = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string any_case = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
  const std::string spelled = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
  const std::string word = R"(|[^\r\n\p{L}\p{N}]?\p{L}+)";
  EXPECT_EQ(pre_tokenizer_by_pattern(any_case + word + R"(|\p{N})" + tail),
            (PreTokenizer{Kind::qwen2, true}));
  EXPECT_EQ(pre_tokenizer_by_pattern(spelled + word + R"(|\p{N})" + tail),
            (PreTokenizer{Kind::qwen2, false}));
  EXPECT_EQ(pre_tokenizer_by_pattern(any_case + word + R"(|\p{N}{1,3})" + tail),
            (PreTokenizer{Kind::llama_bpe, true}));
  EXPECT_EQ(pre_tokenizer_by_pattern(any_case + word + R"(|\p{N}{1,2})" + tail), std::nullopt);
  EXPECT_EQ(pre_tokenizer_by_pattern(""), std::nullopt);
  std::string names;
  for (const Kind kind : {Kind::qwen35, Kind::qwen2, Kind::llama_bpe, Kind::gpt2, Kind::gpt4o}) {
    EXPECT_EQ(pre_tokenizer_by_name(name_of(kind)), kind);
    names += (names.empty() ? "" : ", ") + std::string(name_of(kind));
  }
  EXPECT_EQ(names, kPreTokenizerNames);
  EXPECT_EQ(pre_tokenizer_by_name("qwen"), std::nullopt);
}

// Wherever a search for a certain border begins, what it finds is a border for every pattern.
TEST(PreTokenizer, FindsOnlyBordersThatAreSure) {
  const std::vector<std::string> parts = {
      "a",      "B",        "\u01C5", "\u02B0", "\u6587",      "\u0301",  "\u093F",
      "1",      "\u0664",   " ",      "\n",     "\r\n",        "\t",      "\u3000",
      "\u0085", "'",        "'s",     "'LL",    "/",           "!",       "\U0001F600",
      "\xFF",   "\xE2\x82", "\xC5",   "\x80",   "word",        "'\u017F", "ll",
      "\u2028", "  ",       "\u00A0", "\u200D", "\xF0\x9F\x98"};
  std::mt19937 random(5);
  std::size_t found = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (std::size_t i = random() % 14; i > 0; --i) text += parts[random() % parts.size()];
    std::set<std::size_t> borders;
    for (std::size_t from = 0; from < text.size(); ++from) {
      const std::size_t border = certain_border(text, from, text.size());
      if (border == std::string_view::npos) continue;
      ASSERT_GT(border, from);
      ASSERT_LT(border, text.size());
      ASSERT_NE(certain_border(text, from, border + 1), std::string_view::npos);
      ASSERT_EQ(certain_border(text, from, border), std::string_view::npos);
      borders.insert(border);
    }
    found += borders.size();
    for (const Kind kind : {Kind::qwen35, Kind::qwen2, Kind::llama_bpe, Kind::gpt2, Kind::gpt4o}) {
      for (const bool long_s : {false, true}) {
        std::set<std::size_t> ends;
        for (std::size_t at = 0; at < text.size();) {
          at = piece_end({kind, long_s}, text, at);
          ends.insert(at);
        }
        for (const std::size_t border : borders) {
          ASSERT_TRUE(ends.contains(border))
              << name_of(kind) << " " << testing::PrintToString(text) << " at " << border;
        }
      }
    }
  }
  EXPECT_GT(found, 20000u);  // and there are enough of them
}

TEST(PreTokenizer, TakesStrayBytesForSymbols) {
  EXPECT_THAT(pieces("\xFF\xFE!\n"), ElementsAre("\xFF\xFE!\n"));
  EXPECT_THAT(pieces("\xFFword"), ElementsAre("\xFFword"));
  EXPECT_THAT(pieces("ab\xC3"), ElementsAre("ab", "\xC3"));
  EXPECT_THAT(pieces(" \xE2\x82"), ElementsAre(" \xE2\x82"));
}

// What kind of character `c` is, seen from outside through the pieces around it.
char seen_class(const std::string& c) {
  if (pieces("a" + c + "a").size() == 1) return 'L';
  if (pieces("!" + c + "!").size() == 1) return 'O';
  return pieces(c + c).size() == 2 ? 'N' : 'S';
}

TEST(PreTokenizer, ClassesAreThoseOfUnicode) {
  if (unicode::kVersion != utf8proc_unicode_version()) {
    GTEST_SKIP() << "the oracle knows Unicode " << utf8proc_unicode_version();
  }
  const std::set<char32_t> spaces = {9,      10,     11,     12,     13,     0x20,   0x85,
                                     0xA0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004,
                                     0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200A, 0x2028,
                                     0x2029, 0x202F, 0x205F, 0x3000};
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
    char expected = 'O';
    if (spaces.count(code) != 0) expected = 'S';
    if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_ME) expected = 'L';
    if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) expected = 'N';
    if (expected == 'L' && category <= UTF8PROC_CATEGORY_LO) {
      const bool upper = category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LT;
      ASSERT_EQ(unicode::class_of(code), upper                              ? CharClass::upper
                                         : category == UTF8PROC_CATEGORY_LL ? CharClass::lower
                                                                            : CharClass::caseless);
    } else if (expected == 'L') {
      ASSERT_EQ(unicode::class_of(code), CharClass::mark);
    }
    std::string c;
    append_utf8(c, code);
    ASSERT_EQ(seen_class(c), expected) << "U+" << std::hex << static_cast<unsigned>(code);
  }
}

}  // namespace
}  // namespace strata
