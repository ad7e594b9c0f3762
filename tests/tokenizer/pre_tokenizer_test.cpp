// The cut into pieces, and the character classes against another library's.
#include "tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <utf8proc.h>

#include <set>
#include <string>
#include <vector>

#include "tokenizer/unicode_generated.h"
#include "tokenizer/utf8.h"

namespace strata {
namespace {

using testing::ElementsAre;

std::vector<std::string> pieces(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = piece_end(text, at);
    EXPECT_GT(end, at);
    out.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

TEST(PreTokenizer, FollowsThePattern) {
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
    std::string c;
    append_utf8(c, code);
    ASSERT_EQ(seen_class(c), expected) << "U+" << std::hex << static_cast<unsigned>(code);
  }
}

}  // namespace
}  // namespace strata
