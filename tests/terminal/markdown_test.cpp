// Markdown as it streams: what it looks like, that pieces do not matter, and that no input breaks
// it.
#include "terminal/markdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "terminal/text.h"

namespace strata::terminal {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string shown(std::string_view text, int columns = 80, bool colour = true) {
  Typesetter out(colour, [columns] { return columns; });
  Markdown markdown(out);
  markdown.feed(text);
  markdown.finish();
  return out.finish();
}
// Looks as letters in braces, to read: {1}bold{}.
std::string looks(std::string_view text, int columns = 80) {
  std::string out = shown(text, columns);
  for (std::size_t at = 0; (at = out.find("\x1b[", at)) != out.npos;) {
    const std::size_t end = out.find('m', at);
    const std::string codes = out.substr(at + 2, end - at - 2);
    out.replace(at, end - at + 1, codes == "0" ? "{}" : "{" + codes + "}");
  }
  return out;
}

TEST(Markdown, Inline) {
  EXPECT_EQ(looks("a **bold** b"), "a {1}bold{} b");
  EXPECT_EQ(looks("an *italic* and _this_ one"), "an {3}italic{} and {3}this{} one");
  EXPECT_EQ(looks("***both*** here"), "{1;3}both{} here");
  EXPECT_EQ(looks("run `ls -l *` now"), "run {36}ls -l *{} now");
  EXPECT_EQ(looks("``a`b``"), "{36}a`b{}");
  EXPECT_EQ(looks("\\*no\\* \\n"), "*no* \\n");
  EXPECT_EQ(looks("你好**世界**。"), "你好{1}世界{}。");
}

TEST(Markdown, WhatIsNoMarkStays) {
  for (const char* text : {"2 * 3 * 4", "snake_case_name", "a*b*c", "5 ** 2"}) {
    EXPECT_EQ(looks(text), text);
  }
  EXPECT_EQ(looks("#hashtag"), "#hashtag");
  EXPECT_EQ(looks("-5 degrees"), "-5 degrees");
  EXPECT_EQ(looks("2024 was. 1.5 is"), "2024 was. 1.5 is");
  EXPECT_EQ(looks("[a](http://b) <b>x</b>"), "[a](http://b) <b>x</b>");
}

TEST(Markdown, EmphasisEndsWithItsLine) {
  EXPECT_EQ(looks("**open\nnext"), "{1}open{}\nnext");
  EXPECT_EQ(looks("`open\nnext"), "{36}open{}\nnext");
}

TEST(Markdown, Blocks) {
  EXPECT_EQ(looks("# One\ntext"), "{1;4}One{}\ntext");
  EXPECT_EQ(looks("### Three"), "{1}Three{}");
  EXPECT_EQ(looks("- a\n* b\n+ c"), "• a\n• b\n• c");
  EXPECT_EQ(looks("* **Bold** item"), "• {1}Bold{} item");
  EXPECT_EQ(looks("1. one\n12) two"), "1. one\n12) two");
  EXPECT_EQ(looks("  - deep"), "  • deep");
  EXPECT_EQ(looks("> said"), "{2}│ {}{3}said{}");
  EXPECT_THAT(looks("a\n\n---\nb"), HasSubstr("\n\n{2}────"));
  EXPECT_EQ(looks("- - x"), "• - x");
}

TEST(Markdown, FencedCodeIsLeftAlone) {
  EXPECT_EQ(looks("```cpp\nint *a = **b; # no\n\n  x\n```\n**after**"),
            "{2}```cpp{}\n{36}int *a = **b; # no{}\n\n{36}  x{}\n{2}```{}\n{1}after{}");
  EXPECT_EQ(looks("~~~\n```\n~~~"), "{2}~~~{}\n{36}```{}\n{2}~~~{}");
  EXPECT_EQ(looks("````\n```\n````\nx"), "{2}````{}\n{36}```{}\n{2}````{}\nx");
  EXPECT_EQ(looks("```code``` in a line"), "{36}code{} in a line");
  EXPECT_EQ(looks("```\nnever closed"), "{2}```{}\n{36}never closed{}");
  // Long lines of code are not broken: they are to be copied.
  const std::string code(200, 'x');
  EXPECT_THAT(shown("```\n" + code + "\n```", 40), HasSubstr(code));
}

TEST(Markdown, WithoutColourTheMarksStay) {
  const std::string text =
      "# One\n\nSome **bold** and `code`.\n\n- an item\n> said\n\n```\nx\n```\n---\n1. one\n";
  EXPECT_EQ(shown(text, 80, false), text);
}

TEST(Markdown, LinesAreBrokenBetweenWords) {
  EXPECT_EQ(shown("the quick brown fox jumps", 11), "the quick\nbrown fox\njumps");
  EXPECT_EQ(shown("- the quick brown fox", 13), "• the quick\n  brown fox");
  EXPECT_EQ(shown("abcdefghijklmno", 11), "abcdefghij\nklmno");
  EXPECT_EQ(shown("日本語日本語", 8), "日本語\n日本語");
  EXPECT_EQ(looks("**the quick brown**", 11), "{1}the quick{}\n{1}brown{}");
}

std::string random_markdown(std::mt19937& random) {
  static const char* kPieces[] = {
      "**",  "*",    "_",  "`", "```", "~~~", "#", "# ", "- ",   "> ",  "1. ", "\n", "\n\n", "word",
      "a b", "日本", "\\", "|", "---", " ",   "é", "\t", "    ", "***", "12",  ")",  "+ ",   "x\n"};
  std::string text;
  for (int i = 0; i < 40; ++i) text += kPieces[random() % std::size(kPieces)];
  return text;
}

TEST(Markdown, PiecesDoNotMatter) {
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    const std::string text = random_markdown(random);
    const int columns = round % 3 == 0 ? 20 : 5 + static_cast<int>(random() % 70);
    const bool colour = round % 2 == 0;
    const std::string whole = shown(text, columns, colour);
    Typesetter out(colour, [columns] { return columns; });
    Markdown markdown(out);
    std::string parts;
    const std::u32string characters = from_utf8(text);
    for (std::size_t at = 0; at < characters.size();) {
      const std::size_t size = 1 + random() % 5;
      markdown.feed(to_utf8(std::u32string_view(characters).substr(at, size)));
      parts += out.take();
      at += size;
    }
    markdown.finish();
    parts += out.finish();
    ASSERT_EQ(parts, whole) << text;
  }
}

// Outside code no line is longer than the terminal; letters neither vanish nor come twice.
TEST(Markdown, LinesFitAndLettersStay) {
  std::mt19937 random(12);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    int letters = 0;
    for (int i = 0; i < 60; ++i) {
      const auto kind = random() % 10;
      letters += kind >= 4 ? 1 : 0;
      text += kind == 0 ? "\n" : kind == 1 ? "**" : kind < 4 ? " " : kind == 4 ? "語" : "w";
    }
    const int columns = 6 + static_cast<int>(random() % 30);
    const std::string out = shown(text, columns);
    int seen = 0, width = 0;
    const std::u32string all = from_utf8(out);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i] == 0x1b) {
        while (all[i] != 'm') ++i;
        continue;
      }
      seen += all[i] == 'w' || all[i] == U'語' ? 1 : 0;
      width = all[i] == '\n' ? 0 : width + width_of(all[i]);
      ASSERT_LT(width, columns) << text;
    }
    ASSERT_EQ(seen, letters) << text;
  }
}

// A line of marks must not cost its length squared.
TEST(Markdown, LongLinesOfMarksArePlainText) {
  for (const char* mark : {"-", "*", "`", "~", "#", "> ", " ", "1", "|", "_ "}) {
    std::string text;
    for (int i = 0; i < 200'000; ++i) text += mark;
    shown(text, 40);
    shown("```\n" + text, 40);
  }
}

}  // namespace
}  // namespace strata::terminal
