// Answers of a model that come back in the next prompt: their ids are used as they were written, as
// far as the text and the special tokens are those of a full encoding.
#include <gmock/gmock.h>

#include <iostream>

#include "tests/tokenizer/random_prompts.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/prompt_encoder.h"

namespace strata {
namespace {

using Ids = std::vector<TokenId>;
using Limits = PromptEncoder::Limits;
using Range = Tokenizer::Range;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint32_t kRounds = 500;
#else
constexpr std::uint32_t kRounds = 10'000;
#endif

bool is_special(const Tokenizer& t, TokenId id) {
  return t.kind(id) == TokenKind::control || t.kind(id) == TokenKind::user_defined;
}

struct Placed {
  std::size_t at;  // in the decoded text
  TokenId id;
  bool operator==(const Placed&) const = default;
};

std::vector<Placed> specials_of(const Tokenizer& t, const Ids& ids) {
  std::vector<Placed> found;
  std::size_t at = 0;
  for (const TokenId id : ids) {
    if (is_special(t, id)) found.push_back({at, id});
    at += t.bytes(id).size();
  }
  return found;
}

std::string nfc(std::string_view text) {
  std::string storage;
  return std::string(to_nfc(text, storage));
}

// What a model may write: pieces of text cut anywhere, special tokens, and literals of those
// spelled out in plain tokens.
Ids written(const Tokenizer& t, Random& random) {
  Ids ids;
  for (std::size_t n = 1 + below(random, 8); n > 0; --n) {
    const std::string text = random_text(random, 2);
    if (chance(random, 0.4)) {
      const Ids whole = t.encode(text, Specials::all);
      ids.insert(ids.end(), whole.begin(), whole.end());
      continue;
    }
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = 1 + below(random, 4);
      for (const TokenId id : t.encode(std::string_view(text).substr(at, size), Specials::none)) {
        ids.push_back(id);
      }
      at += size;
    }
  }
  return ids;
}

// The reply as the next prompt carries it: special tokens by the template, the rest by whom it may
// be.
void carry(TestPrompt& prompt, const Tokenizer& t, const Ids& ids, Random& random) {
  const std::size_t begin = prompt.text.size();
  const std::size_t manner = below(random, 4);
  for (const TokenId id : ids) {
    const bool trusted = manner == 0 || (manner == 1 ? is_special(t, id) : chance(random, 0.5));
    prompt.append(t.bytes(id), manner != 2 && trusted);
  }
  if (chance(random, 0.3) && prompt.text.size() > begin) {
    prompt.cut(begin + below(random, prompt.text.size() - begin));
  }
  if (chance(random, 0.2) && prompt.text.size() > begin) {
    prompt.text[begin + below(random, prompt.text.size() - begin)] ^= 1;
  }
  if (chance(random, 0.8)) prompt.append(random_text(random, 5), chance(random, 0.7));
}

struct Tally {
  std::size_t cases = 0, reused = 0, whole = 0, cut = 0;
};

class Replies {
 public:
  Replies(const Tokenizer& tokenizer, Tally& tally) : t_(tokenizer), tally_(tally) {}

  void round(std::uint32_t seed) {
    Random random(seed);
    PromptEncoder encoder(t_, {.entries = 1 + below(random, 4), .replies = 1 + below(random, 3)});
    TestPrompt prompt;
    for (std::size_t n = 1 + below(random, 3); n > 0; --n) change(prompt, random);
    Ids ids = encoder.encode(prompt.text, prompt.ranges());
    for (int turn = 0; turn < 4; ++turn) {
      const TestPrompt earlier = prompt;
      Ids reply;
      for (std::size_t n = 1 + below(random, 2); n > 0; --n) {
        reply = written(t_, random);
        encoder.remember_reply(ids, reply);
      }
      carry(prompt, t_, reply, random);
      const auto before = encoder.counters();
      ids = encoder.encode(prompt.text, prompt.ranges());
      const std::size_t used = encoder.counters().reply_tokens - before.reply_tokens;
      ++tally_.cases;
      tally_.reused += used > 0;
      tally_.whole += used == reply.size();
      tally_.cut += used > 0 && used < reply.size();
      check(prompt, ids, seed);
      check_alone(earlier, reply, prompt, seed);
      // Forks and edits of what now holds written ids.
      TestPrompt other = prompt;
      change(other, random);
      check(other, encoder.encode(other.text, other.ranges(), {.store = chance(random, 0.5)}),
            seed);
      ASSERT_EQ(encoder.encode(prompt.text, prompt.ranges(), {.store = false, .replies = false}),
                t_.encode(prompt.text, prompt.ranges()))
          << "seed " << seed;
      if (prompt.text.size() > 300) break;
    }
  }

 private:
  // The text, and the special tokens of a full encoding.
  void check(const TestPrompt& prompt, const Ids& ids, std::uint32_t seed) {
    const Ids full = t_.encode(prompt.text, prompt.ranges());
    const std::string text = t_.decode(ids);
    if (t_.vocabulary().rules.nfc) {
      ASSERT_EQ(nfc(text), nfc(prompt.text)) << "seed " << seed;
      Ids expected, found;
      for (const Placed& one : specials_of(t_, full)) expected.push_back(one.id);
      for (const Placed& one : specials_of(t_, ids)) found.push_back(one.id);
      ASSERT_EQ(found, expected) << "seed " << seed;
    } else {
      ASSERT_EQ(text, prompt.text) << "seed " << seed;
      ASSERT_EQ(specials_of(t_, ids), specials_of(t_, full)) << "seed " << seed;
    }
  }

  // One reply alone. It is used up to a place between characters; wholly, if the text carries it
  // with the same special tokens and goes on with a new character.
  void check_alone(const TestPrompt& earlier, const Ids& reply, const TestPrompt& prompt,
                   std::uint32_t seed) {
    PromptEncoder encoder(t_, {});
    Ids expected = encoder.encode(earlier.text, earlier.ranges());
    encoder.remember_reply(expected, reply);
    const Ids ids = encoder.encode(prompt.text, prompt.ranges());
    const std::size_t used = encoder.counters().reply_tokens;
    const bool carried = carries(prompt, earlier, expected, reply);
    ASSERT_TRUE(!carried || used == reply.size()) << "seed " << seed;
    all_used_ += carried;
    if (used == 0) return;
    expected.insert(expected.end(), reply.begin(),
                    reply.begin() + static_cast<std::ptrdiff_t>(used));
    ASSERT_GE(ids.size(), expected.size()) << "seed " << seed;
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), ids.begin())) << "seed " << seed;
    const std::string text = earlier.text + t_.decode(std::span(reply).first(used));
    ASSERT_TRUE(prompt.text.starts_with(text)) << "seed " << seed;
    ASSERT_TRUE(begins_a_character(prompt.text, text.size()) || is_special(t_, reply[used - 1]))
        << "seed " << seed;
  }

  static bool begins_a_character(const std::string& text, std::size_t at) {
    return at == text.size() || (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
  }

  bool carries(const TestPrompt& prompt, const TestPrompt& earlier, Ids ids,
               const Ids& reply) const {
    const std::string text = earlier.text + t_.decode(reply);
    if (t_.vocabulary().rules.nfc || !prompt.text.starts_with(text)) return false;
    if (!std::equal(earlier.trust.begin(), earlier.trust.end(), prompt.trust.begin())) return false;
    if (!begins_a_character(prompt.text, text.size())) return false;
    ids.insert(ids.end(), reply.begin(), reply.end());
    auto specials = specials_of(t_, t_.encode(prompt.text, prompt.ranges()));
    std::erase_if(specials, [&](const Placed& one) { return one.at >= text.size(); });
    return specials == specials_of(t_, ids);
  }

  const Tokenizer& t_;
  Tally& tally_;

 public:
  std::size_t all_used_ = 0;
};

TEST(PromptReply, KeepsTextAndSpecialTokensOfAFullEncoding) {
  for (const auto& [kind, is_nfc] :
       {std::pair{PreTokenizerKind::qwen35, false}, std::pair{PreTokenizerKind::qwen35, true},
        std::pair{PreTokenizerKind::gpt4o, false}}) {
    const Tokenizer tokenizer = awkward_tokenizer(kind, is_nfc);
    Tally tally;
    Replies replies(tokenizer, tally);
    const auto first = static_cast<std::uint32_t>(kind) * 100'000 + (is_nfc ? 50'000 : 0);
    for (std::uint32_t seed = first; seed < first + kRounds; ++seed) {
      replies.round(seed);
      if (::testing::Test::HasFatalFailure()) return;
    }
    std::cout << tally.cases << " cases, a reply used in " << tally.reused << ", in " << tally.cut
              << " up to a cut\n";
    EXPECT_GE(tally.reused, tally.cases / 3);
    EXPECT_GE(tally.cut, tally.cases / 10);
    EXPECT_GE(tally.whole, tally.cases / 10);
    EXPECT_TRUE(is_nfc || replies.all_used_ >= tally.cases / 20) << replies.all_used_;
  }
}

// Cases in which one rule decides.
class PromptReplyTest : public ::testing::Test {
 protected:
  // The ids of `next` after `reply` was written to `prompt`; all text is trusted but `plain`.
  Ids after(const std::string& prompt, const Ids& reply, const std::string& next,
            std::vector<Range> trusted) {
    PromptEncoder encoder(t_, {});
    const Ids ids = encoder.encode(prompt, {{0, prompt.size()}});
    encoder.remember_reply(ids, reply);
    return encoder.encode(next, std::move(trusted));
  }
  TokenId special(std::string_view literal) const { return *t_.special(literal); }
  const Tokenizer t_ = awkward_tokenizer(PreTokenizerKind::qwen35, false);
  static constexpr TokenId kAb = 256, kAbc = 258;
};

TEST_F(PromptReplyTest, UsesPiecesThatEncodingWouldHaveMerged) {
  const TokenId think = special("<think>"), end = special("</think>");
  EXPECT_EQ(after("<think>a", {'b', 'c', end}, "<think>abc</think>abc", {{0, 18}}),
            (Ids{think, 'a', 'b', 'c', end, kAbc}));
  // Without the reply.
  EXPECT_EQ(after("<think>a", {'x'}, "<think>abc</think>abc", {{0, 18}}),
            (Ids{think, kAbc, end, kAbc}));
}

TEST_F(PromptReplyTest, GoesUpToTheFirstDifference) {
  const TokenId think = special("<think>");
  EXPECT_EQ(after("<think>", {'a', 'b', 'c'}, "<think>abd", {{0, 7}}), (Ids{think, 'a', 'b', 'd'}));
  // A token is used as a whole or not at all.
  EXPECT_EQ(after("<think>", {'a', 'b', kAbc}, "<think>ababd", {{0, 7}}),
            (Ids{think, 'a', 'b', kAb, 'd'}));
  EXPECT_EQ(after("<think>", {'a', 'b'}, "<think>a", {{0, 7}}), (Ids{think, 'a'}));
}

TEST_F(PromptReplyTest, ASpecialTokenIsOnlyUsedWhereTheTemplateWroteIt) {
  const TokenId think = special("<think>"), end = special("</think>");
  const std::string next = "<think>ab</think>ab";
  EXPECT_EQ(after("<think>", {'a', 'b', end, 'a', 'b'}, next, {{0, 17}}),
            (Ids{think, 'a', 'b', end, 'a', 'b'}));
  const Ids quoted = after("<think>", {'a', 'b', end, 'a', 'b'}, next, {{0, 7}});
  EXPECT_EQ(quoted, (Ids{think, 'a', 'b', '<', '/', 't', 'h', 'i', 'n', 'k', '>', kAb}));
  // A border inside the literal.
  EXPECT_EQ(after("<think>", {'a', 'b', end, 'a', 'b'}, next, {{0, 12}, {12, 19}}), quoted);
}

TEST_F(PromptReplyTest, ASpecialTokenOfTheTemplateIsNeverPlainBytes) {
  const TokenId think = special("<think>"), end = special("</think>");
  // The model spelled it out; in the next prompt the template has it at the same place.
  EXPECT_EQ(after("<think>", {'a', 'b', '<', '/', 't', 'h', 'i', 'n', 'k', '>'},
                  "<think>ab</think>", {{0, 17}}),
            (Ids{think, 'a', 'b', end}));
  // It straddles the reply's end.
  EXPECT_EQ(after("<think>", {'a', 'b', '<', '/', 't', 'h'}, "<think>ab</think>", {{0, 17}}),
            (Ids{think, 'a', 'b', end}));
  // It straddles the prompt's end.
  EXPECT_EQ(after("<think>ab</th", {'i', 'n', 'k', '>'}, "<think>ab</think>", {{0, 17}}),
            (Ids{think, kAb, end}));
  // A longer one than the reply has.
  EXPECT_EQ(after("<think>", {special("<|im_end|>")}, "<think><|im_end|>\n", {{0, 18}}),
            (Ids{think, special("<|im_end|>\n")}));
}

TEST_F(PromptReplyTest, CutsAreBetweenCharacters) {
  const TokenId think = special("<think>");
  // One byte of an e with an accent, then another one than in the text.
  EXPECT_EQ(after("<think>", {'a', 0xC3, 0xA8}, "<think>a\u00E9", {{0, 7}}),
            (Ids{think, 'a', 263}));
  EXPECT_EQ(after("<think>", {'a', 0xC3}, "<think>a\u00E9", {{0, 7}}), (Ids{think, 'a', 263}));
  EXPECT_EQ(after("<think>", {'a', 0xC3, 0xA9}, "<think>a\u00E9", {{0, 7}}),
            (Ids{think, 'a', 0xC3, 0xA9}));
}

TEST_F(PromptReplyTest, OneOfSeveralRepliesOrNone) {
  PromptEncoder encoder(t_, {.replies = 2});
  const Ids ids = encoder.encode("<think>", {{0, 7}});
  encoder.remember_reply(ids, Ids{'x', 'y'});
  encoder.remember_reply(ids, Ids{'a', 'b'});
  encoder.remember_reply(ids, Ids{'b', 'c'});
  encoder.remember_reply(Ids{1, 2}, Ids{'b', 'c'});  // of a prompt that nobody knows
  const auto look = [&](const std::string& text) {
    return encoder.encode(text, {{0, 7}}, {.store = false});
  };
  const TokenId think = ids[0];
  EXPECT_EQ(look("<think>ab"), (Ids{think, 'a', 'b'}));
  EXPECT_EQ(look("<think>bc"), (Ids{think, 'b', 'c'}));
  EXPECT_EQ(encoder.counters().reply_tokens, 4u);
  look("<think>xy");  // the oldest made room
  EXPECT_EQ(encoder.counters().reply_tokens, 4u);
  EXPECT_EQ(encoder.encode("<think>ab", {{0, 7}}, {.store = false, .replies = false}),
            (Ids{think, kAb}));
  encoder.forget(ids);
  EXPECT_EQ(look("<think>ab"), (Ids{think, kAb}));

  PromptEncoder none(t_, {.replies = 0});
  const Ids same = none.encode("<think>", {{0, 7}});
  none.remember_reply(same, Ids{'a', 'b'});
  EXPECT_EQ(none.encode("<think>ab", {{0, 7}}), (Ids{think, kAb}));
}

TEST_F(PromptReplyTest, LaterTurnsKeepWhatWasWritten) {
  PromptEncoder encoder(t_, {.entries = 2});
  std::string text = "<think>";
  Ids ids = encoder.encode(text, {{0, text.size()}});
  Ids sent = ids;
  for (int turn = 0; turn < 20; ++turn) {
    const Ids reply = {'a', 'b', 'c', 'a', 'b', special("</think>"), 'b', 'c'};
    encoder.remember_reply(ids, reply);
    sent.insert(sent.end(), reply.begin(), reply.end());
    text += t_.decode(reply);
    text += "<|im_end|>next abc<|im_start|>";
    ids = encoder.encode(text, {{0, text.size()}});
    ASSERT_GE(ids.size(), sent.size());
    ASSERT_TRUE(std::equal(sent.begin(), sent.end(), ids.begin())) << turn;
    sent = ids;
  }
}

}  // namespace
}  // namespace strata
