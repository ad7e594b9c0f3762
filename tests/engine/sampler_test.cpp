#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <vector>

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

}  // namespace
}  // namespace strata
