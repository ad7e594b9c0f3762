// Encoding and decoding against HF's tokenizers (tests/golden/demo-tokenizer/make_strings.py).
#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>

#include <boost/json.hpp>
#include <chrono>
#include <limits>
#include <random>

#include "base/thread_pool.h"
#include "tests/tokenizer/vocabularies.h"
#include "tokenizer/normalizer.h"

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

TEST(Tokenizer, IgnoresMergesForWholePiecesIfTheVocabularySaysSo) {
  auto v = small_vocabulary({"a b", "b c", "a bc"}, {{"xyz", TokenKind::control}});
  const std::string longest(200, '!');  // longer than what merging handles in place
  v.tokens.push_back(longest);
  v.kinds.push_back(TokenKind::normal);
  v.rules.ignore_merges = true;
  const auto t = Tokenizer::from_vocabulary(std::move(v), {});
  ASSERT_TRUE(t) << message_of(t);
  EXPECT_THAT(t->encode("abc"), ElementsAre(258));
  EXPECT_THAT(t->encode("abcc"), ElementsAre(256, 'c', 'c'));
  EXPECT_THAT(t->encode("xyz", Specials::none), ElementsAre('x', 'y', 'z'));
  EXPECT_THAT(t->encode(longest), ElementsAre(260));
  EXPECT_EQ(t->encode(longest + "!").size(), 201u);
}

using Ranges = std::vector<Tokenizer::Range>;

TEST(Tokenizer, TakesSpecialsOnlyFromTrustedRanges) {
  const auto t = Tokenizer::from_vocabulary(
      small_vocabulary({"a b", "Ġ Ġ"},
                       {{"<s>", TokenKind::control}, {"<t>", TokenKind::user_defined}}),
      {});
  ASSERT_TRUE(t) << message_of(t);
  constexpr TokenId ab = 256, two_spaces = 257, s = 258, u = 259;
  const auto encode = [&](std::string_view text, const Ranges& trusted) {
    return t->encode(text, trusted);
  };
  EXPECT_THAT(encode("<s>", {{0, 3}}), ElementsAre(s));
  EXPECT_THAT(encode("<s>", {}), ElementsAre('<', 's', '>'));
  EXPECT_THAT(encode("<t>", {}), ElementsAre('<', 't', '>'));
  EXPECT_THAT(encode("<s>", {{1, 3}}), ElementsAre('<', 's', '>'));
  EXPECT_THAT(encode("<s>", {{0, 2}}), ElementsAre('<', 's', '>'));
  // Neighbouring ranges do not join.
  EXPECT_THAT(encode("<s>", {{0, 2}, {2, 3}}), ElementsAre('<', 's', '>'));
  EXPECT_THAT(encode("<s>", {{0, 0}, {0, 3}, {3, 3}}), ElementsAre(s));
  EXPECT_THAT(encode("<s><s><t>", {{3, 9}}), ElementsAre('<', 's', '>', s, u));
  EXPECT_THAT(encode("<s><s><t>", {{0, 3}, {6, 9}}), ElementsAre(s, '<', 's', '>', u));
  // A user's text between two pieces of a template cannot complete a special token with them.
  EXPECT_THAT(encode("<s>", {{0, 1}, {2, 3}}), ElementsAre('<', 's', '>'));
  // Plain text is one run wherever the ranges end.
  EXPECT_THAT(encode("ab", {{0, 1}}), ElementsAre(ab));
  EXPECT_THAT(encode("ab", {{1, 2}}), ElementsAre(ab));
  EXPECT_THAT(encode("  <s>", {{1, 5}}), ElementsAre(two_spaces, s));
  EXPECT_THAT(encode("a<s>b", {{1, 4}}), ElementsAre('a', s, 'b'));
  EXPECT_TRUE(encode("", {{0, 0}}).empty());
}

TEST(Tokenizer, TrustInAllOrNothingIsThatOfTheModes) {
  const Tokenizer& t = demo_tokenizer();
  const json::value golden = json::parse(golden_text("strings.json"));
  for (const json::value& row : golden.at("strings").as_array()) {
    const std::string text(row.at(0).as_string());
    ASSERT_EQ(t.encode(text, Ranges{{0, text.size()}}), t.encode(text, Specials::all));
    ASSERT_EQ(t.encode(text, Ranges{}), t.encode(text, Specials::none));
  }
}

TEST(Tokenizer, BringsTextToNfcIfTheVocabularySaysSo) {
  auto v = small_vocabulary({"Ã ©"}, {{"<K>", TokenKind::control}});
  const auto plain = Tokenizer::from_vocabulary(v, {});
  v.rules.nfc = true;
  const auto t = Tokenizer::from_vocabulary(std::move(v), {});
  ASSERT_TRUE(plain && t);
  constexpr TokenId e_acute = 256, special = 257;
  EXPECT_THAT(t->encode("e\u0301"), ElementsAre(e_acute));
  EXPECT_THAT(t->encode("\u00E9"), ElementsAre(e_acute));
  EXPECT_THAT(plain->encode("e\u0301"), ElementsAre('e', 0xCC, 0x81));
  EXPECT_EQ(t->decode(t->encode("xe\u0301")), "x\u00E9");
  // U+212A is a K after normalisation, and still no part of a special token.
  EXPECT_EQ(t->decode(t->encode("<\u212A>")), "<K>");
  EXPECT_THAT(t->encode("<\u212A><K>"), ElementsAre('<', 'K', '>', special));
  // A special token is seen before a mark behind it can change its last character.
  EXPECT_THAT(t->encode("<K>\u0338"), ElementsAre(special, 0xCC, 0xB8));
}

TEST(Tokenizer, EncodesTheSameOnSeveralThreads) {
  const std::vector<std::string> parts = {"<|im_start|>",
                                          "<think>",
                                          "</tool_call>",
                                          "<|",
                                          "a ",
                                          "The quick brown fox ",
                                          "\n",
                                          "\r\n",
                                          "    ",
                                          "\xC3",
                                          "\xFF",
                                          "\u6587\u5B57",
                                          "e\u0301",
                                          "\u0301\u0316",
                                          "it's ",
                                          "1234567",
                                          "!/",
                                          "\n/",
                                          "\u3000",
                                          "isNaN",
                                          "\u1100\u1161\u11A8",
                                          "x",
                                          "\u0938\u093F"};
  std::mt19937 random(3);
  ThreadPool two(2), three(3);
  using enum PreTokenizerKind;
  for (const auto kind : {qwen35, qwen2, llama_bpe, gpt2, gpt4o}) {
    auto vocabulary = demo_tokenizer().vocabulary();
    vocabulary.rules = {{kind, true}, kind == llama_bpe, kind == qwen2};
    const auto t = Tokenizer::from_vocabulary(std::move(vocabulary), {});
    ASSERT_TRUE(t) << message_of(t);
    for (int round = 0; round < 8; ++round) {
      // From few parts, so that some texts have no border for long, up to all of them.
      const std::size_t variety = 1 + random() % parts.size();
      const std::size_t first = random() % parts.size();
      std::string text;
      const std::size_t size = 70000 + random() % 150000;
      while (text.size() < size) text += parts[(first + random() % variety) % parts.size()];
      for (ThreadPool* pool : {&two, &three}) {
        for (const Specials specials : {Specials::none, Specials::user_defined, Specials::all}) {
          ASSERT_EQ(t->encode(text, specials, *pool), t->encode(text, specials));
        }
        Ranges trusted;
        for (std::size_t at = random() % 1000; at < text.size();) {
          const std::size_t end = std::min(text.size(), at + random() % 20000);
          trusted.push_back({at, end});
          at = end + random() % 20000;
        }
        ASSERT_EQ(t->encode(text, trusted, *pool), t->encode(text, trusted));
      }
    }
    for (const std::string& part : parts) {
      std::string text;
      while (text.size() < 80000) text += part;
      ASSERT_EQ(t->encode(text, Specials::all, three), t->encode(text)) << part;
    }
  }
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
  std::vector<Tokenizer> others;  // the demo's tokens with every other way to cut
  using enum PreTokenizerKind;
  for (const auto kind : {qwen2, llama_bpe, gpt2, gpt4o}) {
    auto v = demo.vocabulary();
    v.rules = {{kind, true}, false, true};
    others.push_back(Tokenizer::from_vocabulary(std::move(v), {}).value());
  }
  for (const std::string_view unit : {"a",           "A",
                                      " ",           "\n",
                                      "\r\n",        "!",
                                      "1",           "\U0001F600",
                                      "\u0301",      "\u0301\u0316",
                                      "\u4E00",      "\u3000",
                                      " \n",         "<",
                                      "<|im_start|", "<think>",
                                      "'s",          "\xFF",
                                      "\xE2\x82",    "ab",
                                      "\u4E00A",     "\u1100\u1161\u11A8",
                                      "aA1",         "'",
                                      " '",          "/\n",
                                      "e\u0301",     "the quick brown fox, "}) {
    std::string text;
    while (text.size() < (1u << 20)) text += unit;
    std::vector<const Tokenizer*> all = {&demo, &*doubling};
    for (const Tokenizer& t : others) all.push_back(&t);
    for (const Tokenizer* t : all) {
      const auto start = std::chrono::steady_clock::now();
      const auto ids = t->encode(text);
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
      EXPECT_LT(time.count(), kSecondsForAMegabyte) << testing::PrintToString(unit);
      std::string storage;
      const bool nfc = t->vocabulary().rules.nfc;
      EXPECT_EQ(t->decode(ids), nfc ? to_nfc(text, storage) : text);
    }
  }
  EXPECT_THAT(doubling->encode(std::string(1u << 17, 'a')), ElementsAre(256 + 15, 256 + 15));
}

}  // namespace
}  // namespace strata
