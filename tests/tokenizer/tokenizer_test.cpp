// Encoding and decoding against HF's tokenizers (tests/golden/demo-tokenizer/make_strings.py).
#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>

#include <boost/json.hpp>
#include <chrono>
#include <limits>
#include <random>

#include "tests/tokenizer/vocabularies.h"

namespace strata {
namespace {

using testing::ElementsAre;
namespace json = boost::json;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSecondsForAMegabyte = 30;
#else
constexpr double kSecondsForAMegabyte = 1;
#endif

bool is_special(const Tokenizer& t, TokenId id) {
  return t.kind(id) == TokenKind::control || t.kind(id) == TokenKind::user_defined;
}

std::vector<TokenId> ids_of(const json::value& value) {
  return json::value_to<std::vector<TokenId>>(value);
}

TEST(Tokenizer, GivesTheIdsOfHfTokenizers) {
  const Tokenizer& t = demo_tokenizer();
  const json::value golden = json::parse(golden_text("strings.json"));
  const json::array& strings = golden.at("strings").as_array();
  ASSERT_GE(strings.size(), 3000u);
  std::size_t with_specials = 0;
  for (const json::value& row : strings) {
    const std::string text(row.at(0).as_string());
    const auto all = ids_of(row.at(1));
    const auto user_defined = row.at(2).is_null() ? all : ids_of(row.at(2));
    const auto none = row.at(3).is_null() ? user_defined : ids_of(row.at(3));
    ASSERT_EQ(t.encode(text), all) << row;
    ASSERT_EQ(t.encode(text, Specials::user_defined), user_defined) << row;
    ASSERT_EQ(t.encode(text, Specials::none), none) << row;
    ASSERT_EQ(t.decode(all), text);
    ASSERT_EQ(t.decode(user_defined), text);
    ASSERT_EQ(t.decode(none), text);
    with_specials += all != none;
  }
  EXPECT_GE(with_specials, 500u);
}

TEST(Tokenizer, RestoresEveryByteStringAndKeepsSpecialsOutOfPlainText) {
  const Tokenizer& t = demo_tokenizer();
  std::mt19937 random(7);
  const std::vector<std::string> parts = {
      "<|im_start|>", "<think>",  "</tool_call>", "<|",       "a",        " ",
      "\n",           "\r\n",     "\xC3",         "\xE2\x82", "\xE2\x80", "\xF0\x9F",
      "\xFF",         "\xC3\xA9", "\xED\xA0\x80", "'s",       "12",       "hello"};
  for (int round = 0; round < 4000; ++round) {
    std::string text;
    const std::size_t length = random() % 40;
    for (std::size_t i = 0; i < length; ++i) {
      if (round % 2 == 0) {
        text.push_back(static_cast<char>(random()));
      } else {
        text += parts[random() % parts.size()];
      }
    }
    for (const Specials specials : {Specials::none, Specials::user_defined, Specials::all}) {
      const auto ids = t.encode(text, specials);
      ASSERT_EQ(t.decode(ids), text);
      for (const TokenId id : ids) {
        ASSERT_TRUE(specials != Specials::none || !is_special(t, id));
        ASSERT_TRUE(specials == Specials::all || t.kind(id) != TokenKind::control);
      }
    }
  }
}

TEST(Tokenizer, EncodesInvalidBytesOneByOneWhereNothingMergesThem) {
  const auto t = Tokenizer::from_vocabulary(small_vocabulary({"a b"}), {});
  ASSERT_TRUE(t) << message_of(t);
  EXPECT_THAT(t->encode("\xFF\xFE"), ElementsAre(0xFF, 0xFE));
  EXPECT_THAT(t->encode("\xE2\x82"
                        "ab"),
              ElementsAre(0xE2, 0x82, 256));
  EXPECT_THAT(t->encode(std::string_view("\0ab", 3)), ElementsAre(0, 256));
}

TEST(Tokenizer, MergesEvenWhereTheWholePieceIsAToken) {
  // "ab" comes first, so the token "abc" is reached in no text of its own.
  const auto t = Tokenizer::from_vocabulary(small_vocabulary({"a b", "b c", "a bc"}), {});
  ASSERT_TRUE(t) << message_of(t);
  EXPECT_THAT(t->encode("abc"), ElementsAre(256, 'c'));
  EXPECT_THAT(t->encode("bc"), ElementsAre(257));
}

TEST(Tokenizer, TakesTheLongestSpecialAndOnlyAllowedOnes) {
  const auto t = Tokenizer::from_vocabulary(small_vocabulary({}, {{"<a", TokenKind::user_defined},
                                                                  {"<ab>", TokenKind::control},
                                                                  {"<abc", TokenKind::user_defined},
                                                                  {"b>", TokenKind::control}}),
                                            {});
  ASSERT_TRUE(t) << message_of(t);
  EXPECT_THAT(t->encode("<ab>"), ElementsAre(257));
  EXPECT_THAT(t->encode("<ab>", Specials::user_defined), ElementsAre(256, 'b', '>'));
  EXPECT_THAT(t->encode("<ab>", Specials::none), ElementsAre('<', 'a', 'b', '>'));
  EXPECT_THAT(t->encode("<abc<ab"), ElementsAre(258, 256, 'b'));
  EXPECT_THAT(t->encode("<<ab>b>"), ElementsAre('<', 257, 259));
  EXPECT_THAT(t->encode("<a<a"), ElementsAre(256, 256));
}

TEST(Tokenizer, CutsPlainTextAtSpecials) {
  // "  " before a special is the end of its text: one piece of two spaces, not one and one.
  const auto t = Tokenizer::from_vocabulary(
      small_vocabulary({"Ġ Ġ", "a b"}, {{"<s>", TokenKind::control}}), {});
  ASSERT_TRUE(t) << message_of(t);
  EXPECT_THAT(t->encode("  <s>x"), ElementsAre(256, 258, 'x'));
  EXPECT_THAT(t->encode("  x"), ElementsAre(' ', ' ', 'x'));
  EXPECT_THAT(t->encode("a<s>b"), ElementsAre('a', 258, 'b'));
}

TEST(Tokenizer, AnswersForEveryId) {
  const Tokenizer& t = demo_tokenizer();
  ASSERT_EQ(t.size(), 8192u);
  EXPECT_EQ(t.special("<|im_end|>"), 8146);
  EXPECT_EQ(t.special("<think>"), 8168);
  EXPECT_EQ(t.special("<|im_en"), std::nullopt);
  EXPECT_EQ(t.special("<|im_end|>x"), std::nullopt);
  EXPECT_EQ(t.special(""), std::nullopt);
  EXPECT_EQ(t.special("the"), std::nullopt);
  EXPECT_EQ(t.kind(8146), TokenKind::control);
  EXPECT_EQ(t.kind(8168), TokenKind::user_defined);
  EXPECT_EQ(t.kind(0), TokenKind::normal);
  EXPECT_EQ(t.kind(8191), TokenKind::unused);
  EXPECT_EQ(t.bytes(8146), "<|im_end|>");
  EXPECT_EQ(t.bytes(8191), "[PAD8191]");
  for (const TokenId id : {-1, 8192, std::numeric_limits<TokenId>::max()}) {
    EXPECT_EQ(t.bytes(id), "");
    EXPECT_EQ(t.kind(id), TokenKind::unknown);
  }
  EXPECT_EQ(t.decode(std::vector<TokenId>{-5, 8168, 99999}), "<think>");
  EXPECT_TRUE(t.encode("").empty());
}

TEST(Tokenizer, EncodesAMegabyteOfAnythingInTime) {
  const Tokenizer& demo = demo_tokenizer();
  // Here every pair of neighbours merges, up to tokens of 2^16 letters: the heap's hardest case.
  std::vector<std::string> merges;
  for (std::string half = "a"; half.size() < (1u << 16); half += half) {
    merges.push_back(half + " " + half);
  }
  const auto doubling = Tokenizer::from_vocabulary(small_vocabulary(std::move(merges)), {});
  ASSERT_TRUE(doubling) << message_of(doubling);
  for (const std::string_view unit :
       {"a", " ", "\n", "\r\n", "!", "1", "\U0001F600", "\u0301", "\u4E00", "\u3000", " \n", "<",
        "<|im_start|", "<think>", "'s", "\xFF", "\xE2\x82", "ab", "the quick brown fox, "}) {
    std::string text;
    while (text.size() < (1u << 20)) text += unit;
    for (const Tokenizer* t : {&demo, &*doubling}) {
      const auto start = std::chrono::steady_clock::now();
      const auto ids = t->encode(text);
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
      EXPECT_LT(time.count(), kSecondsForAMegabyte) << testing::PrintToString(unit);
      EXPECT_EQ(t->decode(ids), text);
    }
  }
  EXPECT_THAT(doubling->encode(std::string(1u << 17, 'a')), ElementsAre(256 + 15, 256 + 15));
}

}  // namespace
}  // namespace strata
