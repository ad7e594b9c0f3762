#include "engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "engine/sampling_chain.h"
#include "tests/engine/tiny_model.h"

namespace strata {
namespace {

std::vector<float> random_logits(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> logits(n);
  for (float& l : logits) l = normal(random);
  return logits;
}

// The distribution by the plainest means: sort everything, cut, divide.
std::map<TokenId, double> expected_distribution(std::span<const float> logits, const Sampling& s) {
  std::vector<TokenId> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<TokenId>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  if (s.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(s.top_k)));
  double total = 0, sum = 0;
  for (const TokenId id : order) total += std::exp(double{logits[id]});
  std::size_t kept = 0;
  while (kept < order.size() && sum < double{s.top_p} * total)
    sum += std::exp(double{logits[order[kept++]]});
  if (s.top_p == 1.0f) kept = order.size();
  order.resize(kept);
  std::map<TokenId, double> p;
  double mass = 0;
  for (const TokenId id : order) {
    if (std::exp(double{logits[id]} - logits[order[0]]) < double{s.min_p}) break;
    mass += p[id] = std::exp(double{logits[id]} / double{s.temperature});
  }
  for (auto& [id, value] : p) value /= mass;
  return p;
}

TEST(Sampler, GreedyTakesTheLowestOfTheBest) {
  EXPECT_EQ(sample(std::vector<float>{1, 3, 3, 2}, {}, 0), 1);
  EXPECT_EQ(sample(std::vector<float>{-1}, {}, 9), 0);
}

TEST(Sampler, DrawsTheDistribution) {
  const std::vector<float> logits = random_logits(300, 1);
  for (const Sampling& s :
       {Sampling{1.0f}, Sampling{0.7f, 20}, Sampling{1.0f, 20, 0.95f}, Sampling{1.3f, 0, 0.8f},
        Sampling{1.0f, 0, 1.0f, 0.1f}, Sampling{0.5f, 50, 0.9f, 0.02f}}) {
    const auto expected = expected_distribution(logits, s);
    constexpr int kDraws = 40000;
    std::map<TokenId, int> counts;
    for (int i = 0; i < kDraws; ++i) ++counts[sample(logits, s, static_cast<std::uint64_t>(i))];
    double chi = 0, rest = 0;
    int degrees = -1, rest_count = 0;
    for (const auto& [id, count] : counts) ASSERT_TRUE(expected.contains(id)) << id;
    for (const auto& [id, p] : expected) {
      if (p * kDraws < 10) {  // too rare for the test on its own
        rest += p * kDraws;
        rest_count += counts[id];
        continue;
      }
      const double difference = counts[id] - p * kDraws;
      chi += difference * difference / (p * kDraws);
      ++degrees;
    }
    if (rest >= 10) {
      chi += (rest_count - rest) * (rest_count - rest) / rest;
      ++degrees;
    }
    // five standard deviations of the chi-square distribution
    EXPECT_LT(chi, degrees + 5 * std::sqrt(2.0 * degrees) + 5) << "temperature " << s.temperature;
  }
}

TEST(Sampler, IsAFunctionOfSeedAndPosition) {
  const std::vector<float> logits = random_logits(1000, 2);
  Sampling s{1.0f};
  int equal = 0;
  for (std::uint64_t position = 0; position < 200; ++position) {
    s.seed = 1;
    const TokenId first = sample(logits, s, position);
    EXPECT_EQ(sample(logits, s, position), first);
    s.seed = 2;
    equal += sample(logits, s, position) == first;
  }
  EXPECT_LT(equal, 40);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    EXPECT_GE(uniform_at(i, i * i), 0.0);
    EXPECT_LT(uniform_at(i, i * i), 1.0);
  }
}

TEST(Sampler, TiesAtTheCutGoToTheLowestIds) {
  const std::vector<float> logits(100, 1.0f);
  Sampling s{1.0f, 3};
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_LT(sample(logits, s, i), 3);
}

// Each expected number is written out from the definition in engine.h.
TEST(SamplingChain, PenaltiesAndBiasesByHand) {
  const std::vector<TokenId> history{0, 1, 1, 2, 1};
  Sampling s;
  s.repetition_penalty = 2;
  s.frequency_penalty = 0.5f;
  s.presence_penalty = 0.25f;
  std::vector<float> logits{4, 3, -1, 7};
  penalty_hook(s)->apply(logits, history);
  EXPECT_THAT(logits, testing::ElementsAre(2 - 0.75f, 1.5f - 1.75f, -2 - 0.75f, 7));

  s.penalty_last_n = 3;  // 1 2 1
  logits = {4, 3, -1, 7};
  penalty_hook(s)->apply(logits, history);
  EXPECT_THAT(logits, testing::ElementsAre(4, 1.5f - 1.25f, -2 - 0.75f, 7));

  logits = {4, 3, -1, 7};
  bias_hook({{3, -100}, {0, 1.5f}})->apply(logits, history);
  EXPECT_THAT(logits, testing::ElementsAre(5.5f, 3, -1, -std::numeric_limits<float>::infinity()));

  // Biases come first: what is divided is the biased logit.
  Request request;
  request.sampling.repetition_penalty = 2;
  request.logit_bias = {{1, 8}};  // 3 + 8, then halved: less than 7
  logits = {4, 3, -1, 7};
  const Tokenizer tokenizer = test::byte_tokenizer();
  const TokenBytes tokens(tokenizer);
  EXPECT_EQ(SamplingChain(request, 0, tokens).pick(logits, history), 3);
  EXPECT_EQ(SamplingChain(request, 0, tokens).pick(logits, {}), 1);
  EXPECT_EQ(SamplingChain().pick(logits, history), 3);
}

TEST(SamplingChain, WindowsLongerThanTheSequenceAreTheWholeSequence) {
  Sampling s;
  s.presence_penalty = 1;
  for (const std::int32_t window : {-1, 100}) {
    s.penalty_last_n = window;
    std::vector<float> logits{1, 1, 1};
    penalty_hook(s)->apply(logits, std::vector<TokenId>{0, 2});
    EXPECT_THAT(logits, testing::ElementsAre(0, 1, 0));
  }
}

// Against the definition, place by place.
TEST(SamplingChain, DryLooksAtTheLongestRepeatedRun) {
  const Tokenizer tokenizer = test::byte_tokenizer();
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    DryPenalty dry;
    dry.multiplier = 0.8f;
    dry.base = 1.5f;
    dry.allowed_length = 1 + static_cast<std::int32_t>(random() % 3);
    dry.last_n = random() % 3 == 0 ? static_cast<std::int32_t>(random() % 30) : -1;
    dry.breakers.clear();
    if (random() % 2 == 0) dry.breakers = {std::string(1, '\0')};
    std::vector<TokenId> history;
    for (std::size_t i = random() % 60; i > 0; --i)
      history.push_back(static_cast<TokenId>(random() % 4));
    std::vector<float> logits(4, 1.0f), expected = logits;
    dry_hook(dry, tokenizer)->apply(logits, history);

    if (dry.last_n >= 0 && history.size() > static_cast<std::size_t>(dry.last_n))
      history.erase(history.begin(), history.end() - dry.last_n);
    std::vector<int> longest(4, 0);
    for (std::size_t at = 0; at + 1 < history.size(); ++at) {
      int run = 0;
      while (static_cast<std::size_t>(run) <= at &&
             history[at - static_cast<std::size_t>(run)] ==
                 history[history.size() - 1 - static_cast<std::size_t>(run)] &&
             (dry.breakers.empty() || history[at - static_cast<std::size_t>(run)] != 0))
        ++run;
      int& best = longest[static_cast<std::size_t>(history[at + 1])];
      best = std::max(best, run);
    }
    for (std::size_t id = 0; id < 4; ++id)
      if (longest[id] >= dry.allowed_length)
        expected[id] -= static_cast<float>(0.8f * std::pow(1.5, longest[id] - dry.allowed_length));
    for (std::size_t id = 0; id < 4; ++id) ASSERT_NEAR(logits[id], expected[id], 1e-4) << round;
  }
}

// Tokens 'a', 'b' again and again: what stands between them decides how far a run reaches.
TEST(SamplingChain, DryBreakersAreTexts) {
  const Tokenizer tokenizer = test::byte_tokenizer();
  const auto lost = [&](std::vector<std::string> breakers) {
    DryPenalty dry;
    dry.multiplier = 1;
    dry.base = 2;
    dry.allowed_length = 1;
    dry.breakers = std::move(breakers);
    std::vector<float> logits(tokenizer.size(), 0.0f);
    dry_hook(dry, tokenizer)->apply(logits, tokenizer.encode("abcxabc", Specials::none));
    return -logits['x'];
  };
  EXPECT_EQ(lost({}), 4);     // "abc" was followed by x: 2^(3 - 1)
  EXPECT_EQ(lost({"a"}), 2);  // "bc"
  EXPECT_EQ(lost({"q", "b"}), 1);
  EXPECT_EQ(lost({"c"}), 0);
  EXPECT_EQ(lost({"ab"}), 2);  // over two tokens: it begins in the first of them
  EXPECT_EQ(lost({"cx"}), 4);  // not behind the end
}

TEST(SamplingChain, BannedStringsNeverComeToBe) {
  const Tokenizer tokenizer = test::byte_tokenizer();
  const TokenBytes tokens(tokenizer);
  const auto banned = [&](std::vector<std::string> strings, std::string_view text,
                          std::size_t prompt = 0) {
    const auto history = tokenizer.encode(text, Specials::none);
    std::vector<float> logits(tokenizer.size(), 1.0f);
    banned_strings_hook(std::move(strings), prompt, tokens)->apply(logits, history);
    std::string ids;
    for (std::size_t id = 0; id < logits.size(); ++id)
      if (std::isinf(logits[id])) ids += tokenizer.bytes(static_cast<TokenId>(id));
    return ids;
  };
  EXPECT_EQ(banned({"abc"}, "xab"), "c");
  EXPECT_EQ(banned({"abc"}, "xa"), "");
  EXPECT_EQ(banned({"abc", "bd"}, "ab"), "cd");
  EXPECT_EQ(banned({"aab"}, "aaa"), "b");
  EXPECT_EQ(banned({"z"}, "anything"), "z");
  EXPECT_EQ(banned({"abc"}, "ab", 1), "");  // the prompt's part does not count
  EXPECT_EQ(banned({"<|im_end|>"}, ""), "<|im_end|>");
}

TEST(Chances, AreALogSoftmaxWithTiesById) {
  const std::vector<float> logits{0, 2, 2, -1};
  const double total = std::exp(0.0) + 2 * std::exp(2.0) + std::exp(-1.0);
  const TokenChances chances = chances_of(logits, 3, 3);
  EXPECT_EQ(chances.chosen.id, 3);
  EXPECT_NEAR(chances.chosen.logprob, -1 - std::log(total), 1e-6);
  ASSERT_EQ(chances.top.size(), 3u);
  EXPECT_EQ(chances.top[0].id, 1);
  EXPECT_EQ(chances.top[1].id, 2);
  EXPECT_EQ(chances.top[2].id, 0);
  EXPECT_NEAR(chances.top[2].logprob, -std::log(total), 1e-6);
  EXPECT_TRUE(chances_of(logits, 0, 0).top.empty());
  EXPECT_EQ(chances_of(logits, 0, 20).top.size(), 4u);
}

TEST(Validate, NamesThePenalty) {
  Sampling s;
  s.repetition_penalty = 0;
  EXPECT_THAT(validate(s).error().message, testing::StartsWith("repetition_penalty is 0"));
  s = {};
  s.presence_penalty = 3;
  EXPECT_THAT(validate(s).error().message, testing::StartsWith("presence_penalty is 3"));
  s = {};
  s.frequency_penalty = std::nanf("");
  EXPECT_FALSE(validate(s));
  s = {};
  s.penalty_last_n = -2;
  EXPECT_THAT(validate(s).error().message, testing::StartsWith("penalty_last_n is -2"));
}

}  // namespace
}  // namespace strata
