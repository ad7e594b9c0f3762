// The incremental encoder beside a full encoding of the same text.
#include "tokenizer/prompt_encoder.h"

#include <gmock/gmock.h>
#include <malloc.h>

#include <chrono>
#include <iostream>
#include <limits>
#include <thread>

#include "tests/tokenizer/random_prompts.h"

namespace strata {
namespace {

using Limits = PromptEncoder::Limits;
using Use = PromptEncoder::Use;
using Range = Tokenizer::Range;

constexpr Use kLook{.store = false, .replies = true};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

struct Kind {
  PreTokenizerKind pre;
  bool nfc;
};
constexpr Kind kKinds[] = {{PreTokenizerKind::qwen35, false}, {PreTokenizerKind::qwen35, true},
                           {PreTokenizerKind::gpt2, false},   {PreTokenizerKind::gpt4o, true},
                           {PreTokenizerKind::qwen2, true},   {PreTokenizerKind::llama_bpe, false}};

struct Tally {
  std::uint64_t cases = 0, resumed = 0, mismatches = 0;
};

// A few conversations over one encoder; every step is compared with a full encoding.
void converse(const Tokenizer& tokenizer, std::uint32_t seed, std::size_t steps, Tally& tally) {
  Random random(seed);
  PromptEncoder encoder(tokenizer, {.entries = 1 + below(random, 16), .replies = 4});
  std::vector<TestPrompt> prompts(1 + below(random, 5));
  for (std::size_t step = 0; step < steps; ++step) {
    TestPrompt& prompt = prompts[below(random, prompts.size())];
    if (chance(random, 0.05)) prompt = prompts[below(random, prompts.size())];
    if (chance(random, 0.95)) change(prompt, random);
    const auto ranges = prompt.ranges();
    const auto expected = tokenizer.encode(prompt.text, ranges);
    const auto before = encoder.counters();
    const Use use{.store = chance(random, 0.8), .replies = false};
    const auto ids = encoder.encode(prompt.text, ranges, use);
    ++tally.cases;
    tally.resumed += encoder.counters().reused_tokens > before.reused_tokens;
    if (ids != expected) {
      ++tally.mismatches;
      ADD_FAILURE() << "seed " << seed << ", step " << step << ": '" << prompt.text << "'";
      return;
    }
    if (chance(random, 0.02)) encoder.forget(ids);
    // Replies must not show where they are not wanted.
    if (chance(random, 0.2)) {
      const std::string reply = random_text(random, 6);
      std::vector<TokenId> written;
      for (const char byte : reply) written.push_back(static_cast<unsigned char>(byte));
      encoder.remember_reply(ids, written);
      TestPrompt next = prompt;
      next.append(reply, chance(random, 0.5));
      next.append(random_text(random, 4), true);
      encoder.encode(next.text, next.ranges(), {.store = chance(random, 0.5), .replies = true});
      if (chance(random, 0.7)) prompt = next;
    }
  }
}

TEST(PromptEncoder, GivesTheIdsOfAFullEncoding) {
  Tally tally;
  const std::size_t rounds = kSanitized ? 10 : 500;
  for (const Kind kind : kKinds) {
    const Tokenizer tokenizer = awkward_tokenizer(kind.pre, kind.nfc);
    for (std::uint32_t seed = 0; seed < rounds; ++seed) converse(tokenizer, seed, 100, tally);
  }
  EXPECT_EQ(tally.mismatches, 0u);
  EXPECT_GE(tally.cases, kSanitized ? 6'000u : 300'000u);
  EXPECT_GE(tally.resumed, tally.cases / 2);
  std::cout << tally.cases << " cases, " << tally.resumed << " resumed, " << tally.mismatches
            << " mismatches\n";
}

// Cases in which one of the conditions decides.

class PromptEncoderTest : public ::testing::Test {
 protected:
  // After `first`, `second` must still be encoded as if alone. The number of ids that were reused.
  std::size_t reused_after(const std::string& first, const std::vector<Range>& first_trust,
                           const std::string& second, const std::vector<Range>& second_trust) {
    PromptEncoder encoder(tokenizer_, {});
    encoder.encode(first, first_trust);
    EXPECT_EQ(encoder.encode(second, second_trust), tokenizer_.encode(second, second_trust))
        << second;
    return encoder.counters().reused_tokens;
  }
  std::size_t reused_after(const std::string& first, const std::string& second) {
    return reused_after(first, {{0, first.size()}}, second, {{0, second.size()}});
  }
  const Tokenizer tokenizer_ = awkward_tokenizer(PreTokenizerKind::qwen35, false);
  const std::string far_ = std::string(30, 'x');  // longer than every literal
};

TEST_F(PromptEncoderTest, ResumesBehindTheLastSpecialTokenThatIsFarEnoughFromAnyChange) {
  EXPECT_EQ(reused_after("<think>" + far_, "<think>" + far_ + "abc"), 1u);
  EXPECT_EQ(reused_after("abc<think>" + far_, "abc<think>" + far_ + "<think>"), 2u);
  // The literal may become a longer one.
  EXPECT_EQ(reused_after("<a", "<ab>"), 0u);
  EXPECT_EQ(reused_after("<think><a", "<think><ab>"), 0u);
  EXPECT_EQ(reused_after("<|im_end|>", "<|im_end|>\n"), 0u);
  // A literal that had not begun to be one. The longest has 26 bytes.
  const std::string beginning = "<|a_rather_long_one_here|";
  EXPECT_EQ(reused_after(beginning + "b>", beginning + ">"), 0u);
  EXPECT_EQ(reused_after("<think>" + beginning, "<think>" + beginning + ">"), 1u);
  EXPECT_EQ(reused_after("<|a_rather_long", "<|a_rather_long_one_here|>"), 0u);
}

TEST_F(PromptEncoderTest, TrustMustBeTheSame) {
  const std::string text = "<think>" + far_ + "<think>" + far_;
  const std::size_t second = 7 + far_.size();
  EXPECT_EQ(reused_after(text, {{0, text.size()}}, text, {{0, text.size()}}), 2 + 2 * far_.size());
  EXPECT_EQ(reused_after(text, {{0, text.size()}}, text, {}), 0u);
  EXPECT_EQ(reused_after(text, {}, text, {{0, text.size()}}), 0u);
  // Alike up to the second one.
  EXPECT_EQ(reused_after(text, {{0, text.size()}}, text, {{0, second}}), 1u);
  EXPECT_EQ(reused_after(text, {{0, second}}, text, {{0, second}, {second, text.size()}}), 1u);
  // A border inside a literal, and one that is not there.
  EXPECT_EQ(reused_after(text, {{0, 4}, {4, text.size()}}, text, {{0, text.size()}}), 0u);
  EXPECT_EQ(reused_after(text, {{0, text.size()}}, text, {{0, 4}, {4, text.size()}}), 0u);
  // Trust that ends behind what was compared makes no difference.
  EXPECT_EQ(reused_after(text, {{0, 7}}, text + "abc", {{0, 7}}), 1u);
}

TEST_F(PromptEncoderTest, TheSameTextIsNotEncodedAgain) {
  PromptEncoder encoder(tokenizer_, {});
  const std::string text = "<think>abc\u6587";
  auto ids = encoder.encode(text, {{0, 7}});
  const auto expected = ids;
  const auto before = encoder.counters();
  ids.assign(ids.size(), 0);  // they are the caller's own
  EXPECT_EQ(encoder.encode(text, {{0, 7}}), expected);
  EXPECT_EQ(encoder.counters().encoded_bytes, before.encoded_bytes);
  EXPECT_EQ(encoder.counters().entries, 1u);
}

TEST_F(PromptEncoderTest, WhatIsNotStoredLeavesNoTrace) {
  PromptEncoder encoder(tokenizer_, {.entries = 2});
  const auto reuses = [&](const std::string& text) {
    const auto before = encoder.counters().reused_tokens;
    encoder.encode(text, {{0, text.size()}}, kLook);
    return encoder.counters().reused_tokens > before;
  };
  const std::string a = "<think>a" + far_, b = "<think>b" + far_, c = "<a c" + far_;
  encoder.encode(a, {{0, a.size()}});
  encoder.encode(b, {{0, b.size()}});
  const auto before = encoder.counters();
  EXPECT_TRUE(reuses(a));  // and does not make it the latest
  EXPECT_FALSE(reuses(c));
  EXPECT_FALSE(reuses(c));
  EXPECT_EQ(encoder.counters().entries, before.entries);
  EXPECT_EQ(encoder.counters().held_bytes, before.held_bytes);
  encoder.encode(c, {{0, c.size()}});
  encoder.encode(b, {{0, b.size()}});
  EXPECT_TRUE(reuses(b));
  EXPECT_TRUE(reuses(c));
}

TEST_F(PromptEncoderTest, ForgetsOnePrompt) {
  PromptEncoder encoder(tokenizer_, {});
  const std::string a = "<think>" + far_, b = "<|im_start|>" + far_;
  const auto ids = encoder.encode(a, {{0, a.size()}});
  encoder.encode(b, {{0, b.size()}});
  encoder.forget(ids);
  EXPECT_EQ(encoder.counters().entries, 1u);
  encoder.encode(a + "x", {{0, a.size()}});
  EXPECT_EQ(encoder.counters().reused_tokens, 0u);
  encoder.encode(b + "x", {{0, b.size()}});
  EXPECT_EQ(encoder.counters().reused_tokens, 1u);
  encoder.forget(std::vector<TokenId>{1, 2, 3});
  EXPECT_EQ(encoder.counters().entries, 3u);
}

TEST_F(PromptEncoderTest, KeepsNoMoreEntriesThanAsked) {
  for (const std::size_t entries : {std::size_t{0}, std::size_t{1}, std::size_t{4}, std::size_t{16},
                                    std::numeric_limits<std::size_t>::max()}) {
    PromptEncoder encoder(tokenizer_, {.entries = entries});
    for (char c = 'A'; c < 'A' + 40; ++c) {
      const std::string text = "<think>" + std::string(1, c);
      EXPECT_EQ(encoder.encode(text, {{0, 7}}),
                tokenizer_.encode(text, std::vector<Range>{{0, 7}}));
    }
    EXPECT_EQ(encoder.counters().entries, std::min(entries, PromptEncoder::kMostEntries));
  }
}

// As many conversations as entries, in turn: each is resumed where it was left, since prompts that
// later ones carry are the first to go.
TEST_F(PromptEncoderTest, OneEntryAConversationIsEnough) {
  PromptEncoder encoder(tokenizer_, {.entries = 4});
  std::vector<std::string> texts = {"<think>1", "<think>2", "<think>3", "<think>4"};
  Random random(1);
  for (auto& text : texts) encoder.encode(text, {{0, text.size()}});
  for (int turn = 0; turn < 200; ++turn) {
    std::string& text = texts[turn < 100 ? below(random, 4) : 2];
    const std::string added = far_ + "<|im_start|>" + far_;
    const auto before = encoder.counters();
    text += added;
    encoder.encode(text, {{0, text.size()}});
    const auto after = encoder.counters();
    ASSERT_LE(after.encoded_bytes - before.encoded_bytes, added.size() + far_.size() + 8) << turn;
  }
}

// Memory --------------------------------------------------------------------------------------

std::size_t allocated() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST(PromptEncoderMemory, StaysWithinItsBytes) {
  const Tokenizer tokenizer = awkward_tokenizer(PreTokenizerKind::qwen35, true);
  constexpr std::size_t kBytes = 300'000;
  Random random(5);
  const std::size_t before = allocated();
  {
    PromptEncoder encoder(tokenizer, {.entries = 16, .bytes = kBytes, .replies = 16});
    std::size_t fullest = 0, most = 0;
    for (int step = 0; step < (kSanitized ? 100 : 600); ++step) {
      const std::size_t size = 1 + below(random, chance(random, 0.1) ? 120'000 : 12'000);
      std::string text;
      while (text.size() < size) text += kParts[below(random, std::size(kParts))];
      const std::size_t trusted = below(random, text.size());
      const auto ids = encoder.encode(text, {{0, trusted}});
      for (std::size_t n = below(random, 5); n > 0; --n) {
        encoder.remember_reply(ids,
                               std::vector<TokenId>(below(random, 5000), static_cast<TokenId>(n)));
      }
      const auto counters = encoder.counters();
      ASSERT_LE(counters.held_bytes, kBytes);
      fullest = std::max(fullest, counters.held_bytes);
      most = std::max(most, counters.entries);
    }
    EXPECT_GT(fullest, kBytes * 9 / 10);
    EXPECT_GT(most, 4u);
    // A prompt or a reply that alone is too long is not kept, and drives nothing out.
    const auto held = encoder.counters();
    encoder.encode(std::string(kBytes, 'a'), {});
    EXPECT_EQ(encoder.counters().held_bytes, held.held_bytes);
    const auto ids = encoder.encode("abc", {});
    const auto kept = encoder.counters();
    encoder.remember_reply(ids, std::vector<TokenId>(kBytes / 4, 'a'));
    EXPECT_EQ(encoder.counters().held_bytes, kept.held_bytes);
    // What the system's allocator says, if it is there.
    if (const std::size_t now = allocated(); now > before) {
      EXPECT_LE(now - before, encoder.counters().held_bytes + 8'000);
    }
    encoder.forget(ids);
  }
}

// Threads -------------------------------------------------------------------------------------

TEST(PromptEncoderThreads, EachGetsItsOwnIds) {
  const Tokenizer tokenizer = awkward_tokenizer(PreTokenizerKind::qwen35, true);
  PromptEncoder encoder(tokenizer, {.entries = 3, .bytes = 20'000});
  const auto work = [&](std::uint32_t seed) {
    Random random(seed);
    TestPrompt prompt;
    prompt.append("<think>begin", true);  // the same in all threads
    for (int step = 0; step < 400; ++step) {
      change(prompt, random);
      const auto ranges = prompt.ranges();
      const Use use{.store = chance(random, 0.7), .replies = false};
      const auto ids = encoder.encode(prompt.text, ranges, use);
      ASSERT_EQ(ids, tokenizer.encode(prompt.text, ranges));
      if (chance(random, 0.1)) encoder.forget(ids);
      if (chance(random, 0.3)) encoder.remember_reply(ids, std::vector<TokenId>{'a', 'b'});
      if (chance(random, 0.3)) encoder.encode(prompt.text + "ab", ranges);
      ASSERT_LE(encoder.counters().entries, 3u);
    }
  };
  std::vector<std::thread> threads;
  for (std::uint32_t seed = 1; seed <= 4; ++seed) threads.emplace_back(work, seed);
  for (auto& thread : threads) thread.join();
}

// Time ----------------------------------------------------------------------------------------

std::string turn_of(Random& random, std::string_view role, std::size_t size) {
  static const std::vector<std::string> words = {
      "the ",    "engine ", "reads ",        "a ",
      "window ", "of ",     "rows, ",        "for (int i = 0; i < n; ++i)\n",
      "sums ",   "them.\n", "\u6587\u5B57 ", "3.14 "};
  std::string text = "<|im_start|>" + std::string(role) + "\n";
  while (text.size() < size) text += words[below(random, words.size())];
  return text + "<|im_end|>\n";
}

struct Medians {
  double turn, whole;  // microseconds
};

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

template <class Function>
double microseconds(const Function& function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  const auto time = std::chrono::steady_clock::now() - start;
  return std::chrono::duration<double, std::micro>(time).count();
}

// Of one turn appended to a conversation of 400 KB, when the encoder holds `entries` of its kind,
// and of encoding all of it.
Medians medians(std::size_t entries) {
  const Tokenizer& tokenizer = demo_tokenizer();
  Random random(9);
  PromptEncoder encoder(tokenizer, {.entries = entries});
  const auto whole = [](const std::string& text) { return std::vector<Range>{{0, text.size()}}; };
  std::string text;
  while (text.size() < 400'000) {
    text += turn_of(random, "user", 1500) + turn_of(random, "assistant", 1500);
  }
  // Longer branches that part at the end, so that all of the text is compared with each.
  for (std::size_t i = 0; i < entries; ++i) {
    const std::string branch =
        text + "<|im_start|>" + std::to_string(i) + turn_of(random, "user", 100'000);
    encoder.encode(branch, whole(branch));
  }
  encoder.encode(text, whole(text));
  std::vector<double> turns, wholes;
  for (int turn = 0; turn < (kSanitized ? 5 : 41); ++turn) {
    text += turn_of(random, "user", 800) + turn_of(random, "assistant", 1200);
    std::string copy = text;
    auto ranges = whole(copy);
    std::vector<TokenId> ids, expected;
    turns.push_back(
        microseconds([&] { ids = encoder.encode(std::move(copy), std::move(ranges)); }));
    wholes.push_back(microseconds([&] { expected = tokenizer.encode(text, whole(text)); }));
    EXPECT_EQ(ids, expected);
  }
  return {median(turns), median(wholes)};
}

TEST(PromptEncoderTime, AppendingATurnTo400KbTakesLessThanAMillisecond) {
  for (const std::size_t entries : {1, 4, 16}) {
    const Medians time = medians(entries);
    std::cout << entries << " entries: a turn in " << time.turn << " us, all of it in "
              << time.whole << " us, medians of 41\n";
    // Time to spare for a machine that does other things; docs/results/tokenizer.md has the figure.
    EXPECT_LT(time.turn, kSanitized ? 200'000 : 5'000);
  }
}

}  // namespace
}  // namespace strata
