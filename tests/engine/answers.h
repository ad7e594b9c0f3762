// What requests give, to be compared bit by bit.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/engine/tiny_model.h"

namespace strata::test {

// Bits of the probabilities included.
struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  Completion completion;
  bool operator==(const Answer& other) const {
    return tokens == other.tokens && logprobs == other.logprobs &&
           completion.reason == other.completion.reason;
  }
};

inline std::shared_ptr<Collector> submit(Engine& engine, Request request) {
  auto collector = std::make_shared<Collector>();
  request.logprobs = 3;
  const auto id = engine.submit(std::move(request), collector);
  EXPECT_TRUE(id) << id.error().message;
  return collector;
}

inline Answer wait(Collector& collector) {
  Answer answer;
  answer.completion = collector.wait();
  answer.tokens = collector.tokens();
  for (const TokenChances& chances : collector.all_chances()) {
    answer.logprobs.push_back(chances.chosen.logprob);
    for (const auto& other : chances.top) answer.logprobs.push_back(other.logprob);
  }
  return answer;
}

inline Answer run(Engine& engine, Request request) {
  return wait(*submit(engine, std::move(request)));
}

inline EngineOptions without_drafts_and_cache() {
  EngineOptions options;
  options.drafts.depth = 0;
  options.cache.ram_bytes = 0;
  return options;
}

inline std::vector<TokenId> operator+(std::vector<TokenId> left, std::span<const TokenId> right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

}  // namespace strata::test
