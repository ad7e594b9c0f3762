// Loading vocabularies: GGUF metadata, tokenizer.json, and what is refused with which words.
#include <gmock/gmock.h>

#include <functional>

#include "tests/tokenizer/vocabularies.h"
#include "tokenizer/tokenizer.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kDemoJson = "tokenizer.json";

Metadata metadata_of(const Tokenizer::Vocabulary& v) {
  Metadata m;
  MetaValue::Integers types;
  for (const TokenKind kind : v.kinds) types.push_back(static_cast<int>(kind));
  m.set("tokenizer.ggml.model", MetaValue::string("gpt2"));
  m.set("tokenizer.ggml.pre", MetaValue::string("qwen35"));
  m.set("tokenizer.ggml.tokens", MetaValue::strings(v.tokens));
  m.set("tokenizer.ggml.token_type", MetaValue::array(MetaType::i32, std::move(types)));
  m.set("tokenizer.ggml.merges", MetaValue::strings(v.merges));
  return m;
}

Error error_of(const Metadata& metadata) {
  const auto loaded = Tokenizer::from_gguf(metadata);
  return loaded ? Error{ErrorCode::internal, "loaded"} : loaded.error();
}

Error error_of(const Tokenizer::Vocabulary& v) {
  return error_of(metadata_of(v));
}

TEST(GgufVocabulary, ComesBackEqual) {
  const Tokenizer& demo = demo_tokenizer();
  Metadata metadata;
  metadata.set("tokenizer.ggml.model", MetaValue::string("something older"));
  write_tokenizer(demo, metadata);
  EXPECT_EQ(metadata.entries().size(), 5u);
  EXPECT_EQ(*metadata.string("tokenizer.ggml.model"), "gpt2");
  EXPECT_EQ(*metadata.string("tokenizer.ggml.pre"), "qwen35");
  EXPECT_EQ(metadata.find("tokenizer.ggml.token_type")->element, MetaType::i32);
  const auto types = *metadata.integers("tokenizer.ggml.token_type");
  EXPECT_EQ(types[8146], 3);
  EXPECT_EQ(types[8168], 4);
  EXPECT_EQ(types[8191], 5);
  const auto again = Tokenizer::from_gguf(metadata);
  ASSERT_TRUE(again) << message_of(again);
  EXPECT_EQ(again->vocabulary().tokens, demo.vocabulary().tokens);
  EXPECT_EQ(again->vocabulary().kinds, demo.vocabulary().kinds);
  EXPECT_EQ(again->vocabulary().merges, demo.vocabulary().merges);
  const std::string text = "<|im_start|>user\nIt's 12 caf\u00E9s.<|im_end|>\n<think>";
  EXPECT_EQ(again->encode(text), demo.encode(text));
}

TEST(GgufVocabulary, KeepsEveryRule) {
  using enum PreTokenizerKind;
  for (const auto kind : {qwen35, qwen2, llama_bpe, gpt2, gpt4o}) {
    // What the name alone means to other programs needs no key of ours.
    Metadata plain = metadata_of(small_vocabulary());
    plain.set("tokenizer.ggml.pre", MetaValue::string(std::string(name_of(kind))));
    const auto implied = Tokenizer::from_gguf(plain);
    ASSERT_TRUE(implied) << message_of(implied);
    const TokenizerRules rules = implied->vocabulary().rules;
    EXPECT_EQ(rules.pre.kind, kind);
    EXPECT_EQ(rules.pre.long_s, kind == qwen2 || kind == llama_bpe || kind == gpt4o);
    EXPECT_EQ(rules.ignore_merges, kind == llama_bpe);
    EXPECT_FALSE(rules.nfc);
    Metadata written;
    write_tokenizer(*implied, written);
    EXPECT_EQ(written.entries().size(), 5u);

    Metadata kept;  // one after the other into the same metadata
    for (unsigned bits = 0; bits < 8; ++bits) {
      auto v = small_vocabulary();
      v.rules = {{kind, (bits & 1) != 0}, (bits & 2) != 0, (bits & 4) != 0};
      const auto t = Tokenizer::from_vocabulary(v, {});
      ASSERT_TRUE(t) << message_of(t);
      write_tokenizer(*t, kept);
      const auto again = Tokenizer::from_gguf(kept);
      ASSERT_TRUE(again) << message_of(again);
      EXPECT_EQ(again->vocabulary().rules, v.rules);
    }
  }
  Metadata m = metadata_of(small_vocabulary());
  m.set("strata.tokenizer.ignore_merges", MetaValue::string("yes"));
  EXPECT_EQ(error_of(m).code, ErrorCode::corrupt);
}

TEST(GgufVocabulary, IsRefusedIfItIsOfAnotherKind) {
  Metadata m = metadata_of(small_vocabulary());
  ASSERT_EQ(error_of(m).message, "loaded");
  m.set("strata.tokenizer.normalizer", MetaValue::string("nfkc"));
  EXPECT_EQ(error_of(m).message,
            "strata.tokenizer.normalizer is 'nfkc'; this program knows 'nfc' and 'none'");
  EXPECT_EQ(error_of(m).code, ErrorCode::unsupported);
  m.set("tokenizer.ggml.pre", MetaValue::string("deepseek-llm"));
  EXPECT_EQ(error_of(m).code, ErrorCode::unsupported);
  EXPECT_EQ(error_of(m).message,
            "tokenizer.ggml.pre is 'deepseek-llm'; this program knows qwen35, qwen2, llama-bpe, "
            "gpt-2, gpt-4o");
  m.set("tokenizer.ggml.model", MetaValue::string("llama"));
  EXPECT_EQ(error_of(m).message, "tokenizer.ggml.model is 'llama'; this program reads 'gpt2' only");
  m.set("tokenizer.ggml.model", MetaValue::u32(3));
  EXPECT_EQ(error_of(m).code, ErrorCode::corrupt);
  EXPECT_EQ(error_of(Metadata()).code, ErrorCode::not_found);
  EXPECT_THAT(error_of(Metadata()).message, HasSubstr("tokenizer.ggml.model"));
}

TEST(GgufVocabulary, NamesTheArrayAndTheNumberOfWhatIsWrong) {
  using V = Tokenizer::Vocabulary;
  const auto broken = [](const std::function<void(V&)>& change) {
    V v = small_vocabulary({"a b", "ab c"}, {{"<s>", TokenKind::control}});
    change(v);
    const Error error = error_of(v);
    EXPECT_EQ(error.code, ErrorCode::corrupt) << error.message;
    return error.message;
  };
  EXPECT_EQ(
      broken([](V& v) { v.kinds.pop_back(); }),
      "tokenizer.ggml.token_type has 258 entries but tokenizer.ggml.tokens has 259; they must "
      "be equal in number");
  EXPECT_EQ(broken([](V& v) { v.kinds[4] = static_cast<TokenKind>(9); }),
            "tokenizer.ggml.token_type[4] is 9; token types are 1 to 6");
  EXPECT_EQ(broken([](V& v) { v.kinds[4] = static_cast<TokenKind>(0); }),
            "tokenizer.ggml.token_type[4] is 0; token types are 1 to 6");
  EXPECT_EQ(broken([](V& v) { v.tokens[257] = "ab"; }),
            "tokenizer.ggml.tokens[257] ('ab') repeats [256]; the texts of tokens must differ");
  EXPECT_EQ(broken([](V& v) { v.tokens[258] = "a"; }),
            "tokenizer.ggml.tokens[258] ('a') repeats [97]; the texts of tokens must differ");
  EXPECT_EQ(broken([](V& v) { v.tokens[258].clear(); }), "tokenizer.ggml.tokens[258] is empty");
  EXPECT_EQ(broken([](V& v) { v.tokens[258] = "<\xFF>"; }),
            "tokenizer.ggml.tokens[258] ('<\\xff>') is not valid UTF-8");
  EXPECT_EQ(broken([](V& v) { v.tokens[257] = "a b"; }),
            "tokenizer.ggml.tokens[257] ('a b'): the character U+0020 at offset 1 stands for no "
            "byte");
  EXPECT_EQ(broken([](V& v) { v.tokens[257] = "\u4E00"; }),
            "tokenizer.ggml.tokens[257] ('\u4E00'): the character U+4E00 at offset 0 stands for no "
            "byte");
  EXPECT_EQ(broken([](V& v) { v.tokens[257] = "ab\xC3"; }),
            "tokenizer.ggml.tokens[257] ('ab\\xc3'): byte 0xc3 at offset 2 is not UTF-8");
  EXPECT_EQ(broken([](V& v) { v.kinds[32] = TokenKind::unused; }),
            "tokenizer.ggml.tokens has no normal token for the byte 0x20 ('\u0120'), so text that "
            "holds it could not be encoded");
  EXPECT_EQ(broken([](V& v) { v.kinds[32] = TokenKind::control; }),
            "tokenizer.ggml.tokens has no normal token for the byte 0x20 ('\u0120'), so text that "
            "holds it could not be encoded");
  EXPECT_EQ(broken([](V& v) { v = {}; }),
            "tokenizer.ggml.tokens has no normal token for the byte 0x00 ('\u0100'), so text that "
            "holds it could not be encoded");
  for (const std::string merge : {"ab", "", " ", "a ", " b", "a b c", "a  b"}) {
    EXPECT_EQ(broken([&](V& v) { v.merges[1] = merge; }),
              "tokenizer.ggml.merges[1] is '" + merge +
                  "'; a merge is two tokens with one space between");
  }
  EXPECT_EQ(broken([](V& v) { v.merges[1] = "a b"; }),
            "tokenizer.ggml.merges[1] ('a b') repeats [0]; a pair has one rank");
  EXPECT_EQ(broken([](V& v) { v.merges[1] = "xy c"; }),
            "tokenizer.ggml.merges[1] ('xy c') needs 'xy', which is no token of "
            "tokenizer.ggml.tokens");
  EXPECT_EQ(broken([](V& v) { v.merges[1] = "c ab"; }),
            "tokenizer.ggml.merges[1] ('c ab') needs 'cab', which is no token of "
            "tokenizer.ggml.tokens");
  // Else plain text could give a special token.
  EXPECT_EQ(broken([](V& v) { v.kinds[257] = TokenKind::user_defined; }),
            "tokenizer.ggml.merges[1] ('ab c') needs 'abc', which is no normal token of "
            "tokenizer.ggml.tokens");
}

TEST(GgufVocabulary, RefusesWhatItDoesNotReadAndWhatIsTooLarge) {
  auto v = small_vocabulary({}, {{"<0x41>", TokenKind::byte}});
  EXPECT_EQ(error_of(v).code, ErrorCode::unsupported);
  EXPECT_THAT(error_of(v).message, StartsWith("tokenizer.ggml.token_type[256] is 6 (byte)"));
  v = small_vocabulary({}, {{std::string(257, 'x'), TokenKind::user_defined}});
  EXPECT_EQ(error_of(v).code, ErrorCode::exhausted);
  EXPECT_EQ(error_of(v).message, "tokenizer.ggml.tokens[256] ('" + std::string(40, 'x') +
                                     "...') is a special token of 257 bytes; the limit is 256");
  Metadata m = metadata_of(small_vocabulary());
  MetaValue::Integers types(256, 1);
  types[3] = 257;  // 1 in eight bits
  m.set("tokenizer.ggml.token_type", MetaValue::array(MetaType::i32, types));
  EXPECT_EQ(error_of(m).message, "tokenizer.ggml.token_type[3] is 257; token types are 1 to 6");
}

TEST(GgufVocabulary, MayRepeatUnusedTokens) {
  const auto t =
      Tokenizer::from_gguf(metadata_of(small_vocabulary({}, {{"[PAD]", TokenKind::unused},
                                                             {"[PAD]", TokenKind::unused},
                                                             {"", TokenKind::unused},
                                                             {"<unk>", TokenKind::unknown}})));
  ASSERT_TRUE(t) << message_of(t);
  EXPECT_EQ(t->bytes(257), "[PAD]");
  EXPECT_EQ(t->bytes(259), "<unk>");
  EXPECT_EQ(t->encode("[PAD]<unk>").size(), 10u);
}

// A vocabulary of the bytes, "ab" = 256 and the parts given, as tokenizer.json.
std::string small_json(const std::string& merges = R"(["a b"])",
                       const std::string& added = R"([{"id":258,"content":"<s>","special":true}])",
                       const std::string& extra = "", const std::string& model_extra = "",
                       const std::string& head = "(?i:'s|'t|'re|'ve|'m|'ll|'d)") {
  std::string vocab;
  for (unsigned b = 0; b < 256; ++b) {
    std::string key(printable(static_cast<std::uint8_t>(b)));
    if (key == "\"" || key == "\\") key = "\\" + key;
    vocab += "\"" + key + "\":" + std::to_string(b) + ",";
  }
  vocab += "\"ab\":256";
  const std::string tail =
      R"(|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|)"
      R"(\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)";
  return R"({"added_tokens":)" + added + "," + extra +
         R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":")" +
         head + tail +
         R"("},"behavior":"Isolated","invert":false},)"
         R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},)"
         R"("model":{"type":"BPE",)" +
         model_extra + R"("vocab":{)" + vocab + R"(},"merges":)" + merges + "}}";
}

Error json_error(const std::string& text, std::size_t size = 0) {
  const auto loaded = Tokenizer::from_tokenizer_json(text, size);
  return loaded ? Error{ErrorCode::internal, "loaded"} : loaded.error();
}

TEST(JsonVocabulary, ReadsBothFormsOfMergesAndFillsGaps) {
  for (const char* merges : {R"(["a b"])", R"([["a","b"]])"}) {
    const auto t = Tokenizer::from_tokenizer_json(small_json(merges), 261);
    ASSERT_TRUE(t) << message_of(t);
    EXPECT_THAT(t->vocabulary().merges, ElementsAre("a b"));
    EXPECT_EQ(t->size(), 261u);
    EXPECT_EQ(t->vocabulary().tokens[257], "[PAD257]");
    EXPECT_EQ(t->vocabulary().tokens[260], "[PAD260]");
    EXPECT_EQ(t->kind(257), TokenKind::unused);
    EXPECT_THAT(t->encode("ab<s>[PAD257]").front(), 256);
    EXPECT_EQ(t->encode("[PAD257]").size(), 8u);
  }
  const auto t = Tokenizer::from_tokenizer_json(small_json());
  ASSERT_TRUE(t) << message_of(t);
  EXPECT_EQ(t->size(), 259u);
  EXPECT_EQ(t->kind(258), TokenKind::control);
}

TEST(JsonVocabulary, TakesAddedTokensThatTheVocabularyListsToo) {
  const auto t = Tokenizer::from_tokenizer_json(
      small_json("[]", R"([{"id":256,"content":"ab","special":false}])"));
  ASSERT_TRUE(t) << message_of(t);
  EXPECT_EQ(t->kind(256), TokenKind::user_defined);
  EXPECT_THAT(t->encode("ab"), ElementsAre(256));
  EXPECT_THAT(t->encode("ab", Specials::none), ElementsAre('a', 'b'));
}

TEST(JsonVocabulary, AcceptsWhatDoesNotChangeIds) {
  EXPECT_EQ(
      json_error(small_json(R"(["a b"])", "[]",
                            R"("normalizer":{"type":"NFC"},"decoder":{"type":"ByteLevel"},)"
                            R"("post_processor":{"type":"ByteLevel"},"truncation":null,)",
                            R"("byte_fallback":false,"end_of_word_suffix":"","dropout":null,)"))
          .message,
      "loaded");
}

// The pre_tokenizer of `small_json` replaced.
std::string with_pre_tokenizer(const std::string& pre) {
  std::string text = small_json("[]", "[]");
  const auto begin = text.find(R"("pre_tokenizer":)") + 16;
  text.replace(begin, text.find(R"(,"model":)") - begin, pre);
  return text;
}

TEST(JsonVocabulary, ReadsTheRules) {
  const auto rules = [](const std::string& text) {
    const auto t = Tokenizer::from_tokenizer_json(text);
    EXPECT_TRUE(t) << message_of(t);
    return t ? t->vocabulary().rules : TokenizerRules{};
  };
  using enum PreTokenizerKind;
  EXPECT_EQ(rules(small_json()), (TokenizerRules{{qwen35, true}, false, false}));
  EXPECT_EQ(
      rules(small_json("[]", "[]", R"("normalizer":{"type":"NFC"},)", R"("ignore_merges":true,)",
                       "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])")),
      (TokenizerRules{{qwen35, false}, true, true}));
  const std::string level = R"({"type":"ByteLevel","add_prefix_space":false)";
  EXPECT_EQ(rules(with_pre_tokenizer(level + "}")), (TokenizerRules{{gpt2, false}, false, false}));
  EXPECT_EQ(rules(with_pre_tokenizer(level + R"(,"use_regex":true})")).pre.kind, gpt2);
  const std::string pattern =
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+)";
  const auto sequence = [&](const std::string& how, const std::string& last) {
    return with_pre_tokenizer(R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":)"
                              R"({"Regex":")" +
                              pattern + R"("},)" + how + "}," + last + "]}");
  };
  const std::string quiet = level + R"(,"use_regex":false})";
  for (const char* how :
       {R"("behavior":"Isolated","invert":false)", R"("behavior":"Removed","invert":true)"}) {
    EXPECT_EQ(rules(sequence(how, quiet)).pre.kind, gpt2);
  }
  const std::string ours = "; this program knows a ByteLevel";
  EXPECT_THAT(json_error(sequence(R"("behavior":"Removed","invert":false)", quiet)).message,
              StartsWith("pre_tokenizer does not isolate the matches" + ours));
  EXPECT_THAT(json_error(sequence(R"("behavior":"Isolated")", level + "}")).message,
              StartsWith("pre_tokenizer has a ByteLevel that splits again" + ours));
  EXPECT_THAT(json_error(with_pre_tokenizer(quiet)).message,
              StartsWith("pre_tokenizer does not split" + ours));
  EXPECT_THAT(json_error(with_pre_tokenizer(R"({"type":"ByteLevel"})")).message,
              StartsWith("pre_tokenizer has a ByteLevel that adds a space" + ours));
}

TEST(JsonVocabulary, RefusesWhatWouldChangeIds) {
  const auto extra = [](const std::string& text) {
    return json_error(small_json("[]", "[]", text));
  };
  const auto model = [](const std::string& text) {
    return json_error(small_json("[]", "[]", "", text));
  };
  const auto added = [](const std::string& text) { return json_error(small_json("[]", text)); };
  EXPECT_EQ(extra(R"("normalizer":{"type":"Lowercase"},)").code, ErrorCode::unsupported);
  EXPECT_EQ(extra(R"("normalizer":{"type":"Lowercase"},)").message,
            "normalizer has the type 'Lowercase'; this program reads NFC there");
  EXPECT_THAT(extra(R"("post_processor":{"type":"TemplateProcessing"},)").message,
              StartsWith("post_processor has the type 'TemplateProcessing'"));
  EXPECT_EQ(model(R"("byte_fallback":true,)").message,
            "model.byte_fallback is on; this program encodes without it");
  EXPECT_EQ(model(R"("end_of_word_suffix":"</w>",)").message,
            "model.end_of_word_suffix is set; this program encodes without it");
  EXPECT_EQ(added(R"([{"id":257,"content":"<s>","special":true,"lstrip":true}])").message,
            "added_tokens[0] ('<s>') has lstrip on; this program matches the literal only");
  EXPECT_EQ(
      json_error(small_json("[]", "[]", "", "", "(?:'s)")).message,
      "pre_tokenizer has another pattern; this program knows a ByteLevel, and the sequence of a "
      "Split with the pattern of qwen35, qwen2, llama-bpe, gpt-2, gpt-4o and a ByteLevel");
  EXPECT_EQ(json_error(R"({"model":{"type":"Unigram"}})").message,
            "model.type is 'Unigram'; this program reads BPE only");
  EXPECT_THAT(json_error(R"({"model":{"type":"BPE","vocab":{},"merges":[]}})").message,
              StartsWith("pre_tokenizer is absent"));
}

TEST(JsonVocabulary, NamesThePlaceOfWhatIsWrong) {
  EXPECT_THAT(json_error("{").message, StartsWith("tokenizer.json is no valid JSON: "));
  EXPECT_EQ(json_error("").code, ErrorCode::corrupt);
  EXPECT_EQ(json_error("[]").message, "tokenizer.json has no object 'model'");
  EXPECT_EQ(json_error(R"({"model":3})").message, "tokenizer.json has no object 'model'");
  EXPECT_EQ(json_error(small_json("3")).message, "model.merges is no array");
  EXPECT_EQ(json_error(small_json(R"(["a b",["a"]])")).message,
            "model.merges[1] is neither a string nor an array of two strings");
  EXPECT_EQ(json_error(small_json(R"([["a","x y"]])")).message,
            "model.merges[0] is 'a x y'; a merge is two tokens with one space between");
  EXPECT_EQ(json_error(small_json(R"(["a c"])")).message,
            "model.merges[0] ('a c') needs 'ac', which is no token of model.vocab");
  EXPECT_EQ(json_error(small_json("[]", R"([{"id":5}])")).message,
            "added_tokens[0] lacks an id or a content");
  EXPECT_EQ(json_error(small_json("[]", R"([{"id":5,"content":"<s>"}])")).message,
            "added_tokens[0] gives the id 5 to '<s>', but it is the id of '\u0105'");
  for (const char* id : {"-1", "4194304", "1.5", "\"7\"", "1e300"}) {
    EXPECT_EQ(
        json_error(small_json("[]", std::string(R"([{"content":"<s>","id":)") + id + "}]")).message,
        "added_tokens[0] gives '<s>' an id that is no number from 0 to 4194303");
  }
  EXPECT_EQ(json_error(small_json(), 200).code, ErrorCode::invalid_argument);
  EXPECT_EQ(json_error(small_json(), 200).message,
            "the file has a token 258, but the vocabulary is to have 200 tokens only");
  EXPECT_EQ(json_error(small_json(), std::size_t{1} << 40).code, ErrorCode::exhausted);
}

TEST(JsonVocabulary, SurvivesEveryTruncationAndManyChanges) {
  const std::string whole = golden_text(kDemoJson);
  for (std::size_t size = 0; size < whole.size(); size += 9973) {
    EXPECT_FALSE(Tokenizer::from_tokenizer_json(whole.substr(0, size)));
  }
  EXPECT_FALSE(Tokenizer::from_tokenizer_json(std::string(100000, '[')));
  const std::string text = small_json();
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    if (const auto t = Tokenizer::from_tokenizer_json(changed)) {
      ASSERT_EQ(t->decode(t->encode("ab it's <s>\n")), "ab it's <s>\n");
    }
  }
}

}  // namespace
}  // namespace strata
