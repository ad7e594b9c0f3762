// What a hostile model may write: nothing of it reaches the terminal as a control.
#include "terminal/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace strata::terminal {
namespace {

TEST(SafeText, ControlsBecomePictures) {
  EXPECT_EQ(safe_text("a\x1b[31mred\x1b]0;title\x07"), "a␛[31mred␛]0;title␇");
  EXPECT_EQ(safe_text(std::string("\0\x08\x7f", 3)), "␀␈␡");
  EXPECT_EQ(safe_text("C1: \xc2\x9b"
                      "31m \xc2\x9d"),
            "C1: \xEF\xBF\xBD"
            "31m \xEF\xBF\xBD");
  EXPECT_EQ(safe_text("tab\tand\nbreak"), "tab\tand\nbreak");
  EXPECT_EQ(safe_text("a\r\nb\rc\r"), "a\nb␍c␍");
}

TEST(SafeText, NothingReordersOrHides) {
  EXPECT_EQ(safe_text("user\u202Egpj.exe"), "user\uFFFDgpj.exe");
  EXPECT_EQ(safe_text("\u2066x\u2069\u2028"), "\uFFFDx\uFFFD\uFFFD");
  EXPECT_EQ(safe_text("a\U000E0041b"), "a\uFFFDb");
  EXPECT_EQ(safe_text("👩\u200D💻 مرحبا é"), "👩\u200D💻 مرحبا é");  // a joiner is part of it
}

TEST(SafeText, WhatIsNoUtf8IsReplaced) {
  EXPECT_EQ(safe_text("\xff"), "\uFFFD");
  EXPECT_EQ(safe_text("\xc0\x9b"), "\uFFFD\uFFFD");            // an overlong escape
  EXPECT_EQ(safe_text("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(safe_text("\xe4\xbd"), "\uFFFD\uFFFD");
  EXPECT_EQ(safe_text("\x9b"), "\uFFFD");  // CSI of one byte
}

// Wherever it is cut; and never a control but line breaks and tabs.
TEST(SafeText, PiecesDoNotMatter) {
  std::mt19937 random(5);
  const std::string alphabet = "ab \t\n\r\x1b[]\\\x07\x9b\xc2\xe2\x80\xae\xf0\x9f\x98\x80\xff";
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 24; ++i) text += alphabet[random() % alphabet.size()];
    const std::string whole = safe_text(text);
    SafeText safe;
    std::string parts;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = 1 + random() % 4;
      parts += safe.feed(std::string_view(text).substr(at, size));
      at += size;
    }
    parts += safe.flush();
    ASSERT_EQ(parts, whole);
    for (const char32_t c : from_utf8(whole))
      ASSERT_FALSE((c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7F && c < 0xA0) || c == 0x202E);
  }
}

TEST(Widths, CellsOfTheTerminal) {
  EXPECT_EQ(width_of("abc"), 3);
  EXPECT_EQ(width_of("日本"), 4);
  EXPECT_EQ(width_of("e\u0301"), 1);
  EXPECT_EQ(width_of("😀"), 2);
  EXPECT_EQ(fitting("日本語", 5), "日本");
  EXPECT_EQ(fitting("abc", 2), "ab");
  EXPECT_EQ(safe_line("a\nb\tc"), "a␊b␉c");
}

}  // namespace
}  // namespace strata::terminal
