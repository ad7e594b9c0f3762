// Streamed text against Python's decoder (tests/golden/demo-tokenizer/make_strings.py).
#include "tokenizer/utf8_stream.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "tests/tokenizer/vocabularies.h"

namespace strata {
namespace {

std::string unhex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

TEST(Utf8Stream, EqualsPythonsReplacementHoweverTheBytesAreCut) {
  const auto golden = boost::json::parse(golden_text("strings.json"));
  const auto& cases = golden.at("utf8").as_array();
  ASSERT_GE(cases.size(), 300u);
  for (const auto& row : cases) {
    const std::string bytes = unhex(std::string(row.at(0).as_string()));
    const std::string expected(row.at(1).as_string());
    for (std::size_t step = 1; step <= bytes.size() + 1; ++step) {
      Utf8Stream stream;
      std::string text;
      for (std::size_t at = 0; at < bytes.size(); at += step) {
        text += stream.feed(std::string_view(bytes).substr(at, step));
        ASSERT_LE(stream.held(), 3u);
      }
      text += stream.flush();
      ASSERT_EQ(text, expected) << row << " by " << step;
      ASSERT_EQ(stream.flush(), "");
    }
  }
}

TEST(Utf8Stream, HoldsAnUnfinishedCharacterBackAndNothingElse) {
  Utf8Stream stream;
  EXPECT_EQ(stream.feed("a\xF0\x9F"), "a");
  EXPECT_EQ(stream.held(), 2u);
  EXPECT_EQ(stream.feed(""), "");
  EXPECT_EQ(stream.feed("\x98"), "");
  EXPECT_EQ(stream.feed("\x80!"), "\U0001F600!");
  EXPECT_EQ(stream.held(), 0u);
  EXPECT_EQ(stream.feed("\xE2\x82"), "");
  EXPECT_EQ(stream.feed("x"), "\uFFFDx");
  EXPECT_EQ(stream.feed("\xC3"), "");
  EXPECT_EQ(stream.flush(), "\uFFFD");
  EXPECT_EQ(stream.feed("\xA9"), "\uFFFD");
}

TEST(Utf8Stream, StreamsTheTokensOfAText) {
  const Tokenizer& t = demo_tokenizer();
  const std::string text = "Gr\u00FC\u00DFe \U0001F469\u200D\U0001F680 \u4F60\u597D <think>";
  Utf8Stream stream;
  std::string streamed;
  for (const TokenId id : t.encode(text)) streamed += stream.feed(t.bytes(id));
  EXPECT_EQ(stream.held(), 0u);
  EXPECT_EQ(streamed + stream.flush(), text);
}

}  // namespace
}  // namespace strata
