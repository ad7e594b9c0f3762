// Same tokens whatever the path: drafts, caches, batches, chunks.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "tests/engine/answers.h"

namespace strata {
namespace {

using namespace test;

class SameTokens : public testing::Test {
 protected:
  void SetUp() override {
    model_ = test::tiny_draft_model();
    ASSERT_NE(model_, nullptr);
  }

  std::unique_ptr<Engine> open(EngineOptions options = {}) {
    options.model_path = "model.gguf";
    if (!options.cache.ram_bytes) options.cache.ram_bytes = std::uint64_t{64} << 20;
    auto engine = Engine::open(model_->files, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }
  // Prompts that repeat themselves, so that all sources have something to guess.
  static Request request(std::mt19937& random) {
    Request r;
    const std::size_t length = 1 + random() % 80, period = 3 + random() % 9;
    for (std::size_t i = 0; i < length; ++i) {
      r.prompt.push_back(i >= period && random() % 8 != 0 ? r.prompt[i - period]
                                                          : static_cast<TokenId>(random() % 512));
    }
    r.max_tokens = static_cast<std::uint32_t>(1 + random() % 40);
    r.stop_ids = {2, 77};
    if (random() % 2 == 0)
      r.sampling = {0.3f + static_cast<float>(random() % 10) / 10, 40, 0.95f, 0.01f, random()};
    if (random() % 3 == 0) {
      r.sampling.repetition_penalty = 1.2f;
      r.sampling.presence_penalty = 0.3f;
    }
    if (random() % 4 == 0) r.logit_bias = {{5, 2.0f}, {9, -100}};
    return r;
  }

  std::unique_ptr<test::Converted> model_;
};

TEST_F(SameTokens, WithAndWithoutDrafts) {
  std::mt19937 random(21);
  std::vector<Request> requests;
  for (int i = 0; i < 50; ++i) requests.push_back(request(random));
  std::vector<Answer> expected;
  {
    const auto engine = open(without_drafts_and_cache());
    for (const Request& r : requests) expected.push_back(run(*engine, r));
    EXPECT_EQ(engine->counters().drafts.drafted, 0u);
  }
  for (const std::optional<std::uint32_t> depth :
       {std::optional<std::uint32_t>(), std::optional(1u), std::optional(3u), std::optional(15u)}) {
    for (const DraftSource source : {DraftSource::mtp, DraftSource::lookup, DraftSource::both}) {
      EngineOptions options;
      options.drafts.depth = depth;
      options.drafts.source = source;
      options.cache.ram_bytes = 0;
      const auto engine = open(options);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        ASSERT_EQ(run(*engine, requests[i]), expected[i])
            << "request " << i << ", " << to_string(source) << ", depth " << depth.value_or(99);
      }
      const auto counters = engine->counters().drafts;
      if (!depth) continue;  // a policy may find that nothing pays
      EXPECT_GT(counters.drafted, 0u) << to_string(source);
      EXPECT_LE(counters.accepted, counters.drafted);
      EXPECT_GT(counters.drafted_at[0], 0u);
      EXPECT_EQ(counters.accepted, std::accumulate(counters.accepted_at.begin(),
                                                   counters.accepted_at.end(), std::uint64_t{0}));
    }
  }
}

TEST_F(SameTokens, AloneOrEightAtOnceInAnyChunks) {
  std::mt19937 random(22);
  std::vector<Request> requests;
  for (int i = 0; i < 24; ++i) requests.push_back(request(random));
  std::vector<Answer> expected;
  {
    const auto engine = open(without_drafts_and_cache());
    for (const Request& r : requests) expected.push_back(run(*engine, r));
  }
  for (const std::uint32_t chunk : {1u, 2u, 3u, 7u, 64u, 2048u}) {
    EngineOptions options;
    options.prompt_chunk = chunk;
    options.parallel = 8;
    options.cache.gap = 1;
    const auto engine = open(options);
    std::vector<std::shared_ptr<Collector>> collectors;
    for (const Request& r : requests) collectors.push_back(submit(*engine, r));
    for (std::size_t i = 0; i < requests.size(); ++i)
      EXPECT_EQ(wait(*collectors[i]), expected[i]) << "request " << i << ", chunks of " << chunk;
  }
}

// A conversation of 300 tokens, cut everywhere: the second request begins with the first.
TEST_F(SameTokens, CachedOrFreshAtEveryCut) {
  std::mt19937 random(23);
  Request whole;
  for (int i = 0; i < 300; ++i)
    whole.prompt.push_back(i % 37 == 0 ? 257 : static_cast<TokenId>(random() % 250));
  whole.max_tokens = 6;
  Answer expected;
  {
    const auto engine = open(without_drafts_and_cache());
    expected = run(*engine, whole);
  }
  for (std::size_t cut = 1; cut < whole.prompt.size(); ++cut) {
    EngineOptions options;
    options.cache.gap = 1;
    options.prompt_chunk = 64;
    const auto engine = open(options);
    Request first = whole;
    first.prompt.resize(cut);
    first.max_tokens = 1;
    run(*engine, first);
    const Answer answer = run(*engine, whole);
    ASSERT_EQ(answer, expected) << "cut at " << cut;
    EXPECT_EQ(answer.completion.cached_tokens, cut);
    // Regenerating reads the end of the prompt only.
    const Answer again = run(*engine, whole);
    ASSERT_EQ(again, expected) << "again, cut at " << cut;
    EXPECT_GE(again.completion.cached_tokens + kMaxDrafts, whole.prompt.size());
  }
}

TEST_F(SameTokens, TurnsBranchesAndEditsReadOnlyWhatIsNew) {
  std::mt19937 random(24);
  const TokenId turn = 257;  // <|im_start|>
  const auto text = [&](std::size_t length) {
    std::vector<TokenId> ids;
    for (std::size_t i = 0; i < length; ++i) ids.push_back(static_cast<TokenId>(random() % 250));
    return ids;
  };
  const auto plus = [](std::vector<TokenId> a, const std::vector<TokenId>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  const auto reference = open(without_drafts_and_cache());
  EngineOptions options;
  options.prompt_chunk = 64;
  const auto engine = open(options);
  const auto ask = [&](const std::vector<TokenId>& prompt) {
    Request r;
    r.prompt = prompt;
    r.max_tokens = 12;
    const Answer answer = run(*engine, r);
    EXPECT_EQ(answer, run(*reference, r));
    return answer;
  };
  // system turn, question, opening of the answer
  const std::vector<TokenId> system = plus({turn}, text(100));
  const std::vector<TokenId> first = plus(plus(system, plus({turn}, text(50))), {turn, 1, 3});
  const Answer one = ask(first);
  EXPECT_EQ(one.completion.cached_tokens, 0u);
  // The next turn goes on from the end of the answer.
  const std::vector<TokenId> second =
      plus(plus(plus(first, one.tokens), plus({turn}, text(40))), {turn, 1, 3});
  EXPECT_EQ(ask(second).completion.cached_tokens, first.size() + one.tokens.size() - 1);
  // Again: from the opening of the answer.
  EXPECT_EQ(ask(second).completion.cached_tokens, second.size() - 3);
  // Another question after the same answer, and another first question.
  const std::vector<TokenId> edited =
      plus(plus(plus(first, one.tokens), plus({turn}, text(30))), {turn, 1, 3});
  EXPECT_EQ(ask(edited).completion.cached_tokens, first.size() + one.tokens.size() - 1);
  const std::vector<TokenId> other = plus(plus(system, plus({turn}, text(60))), {turn, 1, 3});
  EXPECT_EQ(ask(other).completion.cached_tokens, system.size());
  // The client drops what was thought: from the opening of that answer.
  const std::vector<TokenId> dropped = plus(plus(first, text(3)), plus({turn}, text(40)));
  EXPECT_EQ(ask(dropped).completion.cached_tokens, first.size() - 3);
  EXPECT_GT(engine->counters().cache.tokens, 0u);
}

TEST_F(SameTokens, OneShotRequestsUseTheCacheAndLeaveNothing) {
  EngineOptions options;
  options.cache.gap = 1;
  const auto engine = open(options);
  Request r;
  r.prompt.assign(50, 7);
  r.max_tokens = 3;
  r.keep = false;
  run(*engine, r);
  EXPECT_EQ(engine->counters().cache.checkpoints, 0u);
  r.keep = true;
  run(*engine, r);
  const auto kept = engine->counters().cache.checkpoints;
  EXPECT_GT(kept, 0u);
  r.keep = false;
  r.prompt.push_back(8);
  EXPECT_EQ(run(*engine, r).completion.cached_tokens, 49u);
  EXPECT_EQ(engine->counters().cache.checkpoints, kept);
}

TEST_F(SameTokens, ASmallCacheEvictsAndStaysInItsBounds) {
  std::mt19937 random(25);
  const auto reference = open(without_drafts_and_cache());
  EngineOptions options;
  options.cache.gap = 1;
  options.cache.ram_bytes = 3 << 20;
  const auto engine = open(options);
  std::vector<std::vector<TokenId>> prompts;
  for (int i = 0; i < 60; ++i) {
    Request r = request(random);
    if (!prompts.empty() && random() % 2 == 0) {
      const auto& before = prompts[random() % prompts.size()];
      r.prompt.insert(r.prompt.begin(), before.begin(), before.end());
    }
    r.max_tokens = 5;
    if (r.prompt.size() > 400) r.prompt.resize(400);
    prompts.push_back(r.prompt);
    ASSERT_EQ(run(*engine, r), run(*reference, r)) << "request " << i;
    const auto cache = engine->counters().cache;
    EXPECT_LE(cache.bytes, cache.limit);
  }
  EXPECT_GT(engine->counters().cache.evicted, 0u);
  EXPECT_GT(engine->counters().cache.tokens, 0u);
}

// Tokens follow the model's distribution although guesses are kept where they are right: a
// chi-square test over many seeds, for each beginning of an answer.
TEST(Sampling, WithDraftsKeepsTheDistribution) {
  constexpr std::size_t kCandidates = 4;
  constexpr int kRuns = 800;
  EngineOptions options;
  options.model_path = STRATA_SOURCE_DIR "/models/demo/strata-demo-46m.gguf";
  options.drafts.depth = 3;
  const auto opened = Engine::open(real_files(), options);
  ASSERT_TRUE(opened) << opened.error().message;
  Engine& engine = **opened;
  const std::vector<TokenId> prompt = engine.tokenizer().encode(
      "<|im_start|>user\nTell me a story about a cat.<|im_end|>\n<|im_start|>assistant\n<think>\n\n"
      "</think>\n\n");
  struct Place {
    std::vector<TokenChances::Chance> candidates;
    std::map<TokenId, int> counts;
    int runs = 0;
  };
  std::map<std::vector<TokenId>, Place> places;  // by what was generated before
  for (int run = 0; run < kRuns; ++run) {
    Request r;
    r.prompt = prompt;
    r.max_tokens = 12;
    r.sampling.temperature = 2.0f;
    r.sampling.top_k = kCandidates;
    r.sampling.seed = static_cast<std::uint64_t>(run) * 7919 + 1;
    r.logprobs = kCandidates;
    auto collector = std::make_shared<Collector>();
    ASSERT_TRUE(engine.submit(r, collector));
    collector->wait();
    const auto tokens = collector->tokens();
    const auto chances = collector->all_chances();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      Place& place = places[{tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(i)}];
      place.candidates = chances[i].top;
      ++place.counts[tokens[i]];
      ++place.runs;
    }
  }
  EXPECT_GT(engine.counters().drafts.accepted, 500u);
  double chi = 0, freedom = 0;
  for (const auto& [before, place] : places) {
    double total = 0, least = 1;
    const auto weight = [](const auto& c) { return std::exp(double{c.logprob} / 2.0); };
    for (const auto& c : place.candidates) total += weight(c);
    for (const auto& c : place.candidates) least = std::min(least, weight(c));
    if (place.runs * least / total < 8) continue;
    for (const auto& c : place.candidates) {
      const double expected = place.runs * weight(c) / total;
      const auto found = place.counts.find(c.id);
      const double seen = found == place.counts.end() ? 0 : found->second;
      chi += (seen - expected) * (seen - expected) / expected;
    }
    freedom += kCandidates - 1;
  }
  ASSERT_GE(freedom, 30);
  // Far beyond the 99.9 % point, which lies below this for any number of degrees of freedom.
  EXPECT_LT(chi, freedom + 3.3 * std::sqrt(2 * freedom) + 8);
  EXPECT_GT(chi, freedom - 4 * std::sqrt(2 * freedom));
}

}  // namespace
}  // namespace strata
