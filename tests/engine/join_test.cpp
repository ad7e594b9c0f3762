// Requests that come at once with one long beginning: it is read once, whatever becomes of the one
// that reads it, and nobody's answer changes.
#include <gtest/gtest.h>

#include <thread>

#include "tests/engine/answers.h"

namespace strata {
namespace {

using namespace test;

constexpr TokenId kTurn = 257;  // <|im_start|>

class Join : public testing::Test {
 protected:
  void SetUp() override {
    model_ = tiny_draft_model();
    ASSERT_NE(model_, nullptr);
    reference_ = open(without_drafts_and_cache());
  }
  std::unique_ptr<Engine> open(EngineOptions options) {
    options.model_path = "model.gguf";
    options.threads = 1;
    auto engine = Engine::open(model_->files, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }
  static EngineOptions options() {
    EngineOptions some;
    some.cache.ram_bytes = std::uint64_t{64} << 20;
    some.prompt_chunk = 16;
    return some;
  }
  // A system text, then a question and the opening of the answer.
  static std::vector<TokenId> prompt(std::size_t size, TokenId question) {
    std::vector<TokenId> tokens = {kTurn, 5};
    while (tokens.size() + 12 < size)
      tokens.push_back(static_cast<TokenId>((tokens.size() * 7) % 250));
    tokens.push_back(kTurn);
    for (int i = 0; i < 8; ++i) tokens.push_back(question);
    for (const TokenId last : {kTurn, 1, 3}) tokens.push_back(last);
    return tokens;
  }
  static Request request(std::vector<TokenId> tokens, std::uint64_t seed = 0) {
    Request r;
    r.prompt = std::move(tokens);
    r.max_tokens = 6;
    if (seed > 0) r.sampling = {0.9f, 40, 0.95f, 0, seed};
    return r;
  }
  // The answer, which must be that of an engine without caches; tokens not read again.
  std::uint32_t cached(Collector& collector, const Request& asked) {
    const Answer answer = wait(collector);
    EXPECT_EQ(answer, run(*reference_, asked));
    return answer.completion.cached_tokens;
  }

  std::unique_ptr<Converted> model_;
  std::unique_ptr<Engine> reference_;
};

TEST_F(Join, TheAnswersOfOnePromptReadItOnce) {
  for (const std::uint32_t chunk : {16u, 512u}) {
    EngineOptions some = options();
    some.prompt_chunk = chunk;
    const auto engine = open(some);
    std::vector<Request> asked;
    std::vector<std::shared_ptr<Collector>> answers;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      asked.push_back(request(prompt(400, 9), seed));
      answers.push_back(submit(*engine, asked.back()));
    }
    std::uint32_t read = 0;
    for (std::size_t i = 0; i < asked.size(); ++i) read += 400 - cached(*answers[i], asked[i]);
    EXPECT_LT(read, 2 * 400u) << chunk;
  }
}

TEST_F(Join, QuestionsBehindOneSystemTextReadItOnce) {
  const auto engine = open(options());
  std::vector<Request> asked;
  std::vector<std::shared_ptr<Collector>> answers;
  for (const TokenId question : {9, 10, 11, 12, 13, 14}) {
    asked.push_back(request(prompt(400, question)));
    answers.push_back(submit(*engine, asked.back()));
  }
  std::uint32_t read = 0;
  for (std::size_t i = 0; i < asked.size(); ++i) read += 400 - cached(*answers[i], asked[i]);
  EXPECT_LT(read, 2 * 400u);
}

// Whoever reads for the others goes away at any moment; so do those that wait.
TEST_F(Join, WhoGoesHoldsUpNobody) {
  for (std::uint64_t round = 0; round < 12; ++round) {
    const auto engine = open(options());
    std::vector<Request> asked;
    std::vector<std::shared_ptr<Collector>> answers;
    std::vector<RequestId> ids;
    for (const TokenId question : {9, 10, 11, 12}) {
      asked.push_back(request(prompt(400, question)));
      asked.back().logprobs = 3;
      answers.push_back(std::make_shared<Collector>());
      ids.push_back(engine->submit(asked.back(), answers.back()).value());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(round * 3));
    engine->cancel(ids[round % 4]);
    engine->cancel(ids[(round + 1) % 4]);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const Answer answer = wait(*answers[i]);
      if (answer.completion.reason != FinishReason::cancelled) {
        EXPECT_EQ(answer, run(*reference_, asked[i]));
      }
    }
  }
}

TEST_F(Join, NobodyWaitsWhereNothingIsKept) {
  EngineOptions some = options();
  some.cache.ram_bytes = 0;
  const auto without = open(some);
  const auto engine = open(options());
  Request oneshot = request(prompt(400, 9));
  oneshot.keep = false;
  for (const auto& [where, asked] :
       {std::pair{without.get(), request(prompt(400, 9))}, std::pair{engine.get(), oneshot}}) {
    const auto one = submit(*where, asked), two = submit(*where, asked);
    EXPECT_EQ(cached(*one, asked), 0u);
    EXPECT_EQ(cached(*two, asked), 0u);
  }
}

}  // namespace
}  // namespace strata
