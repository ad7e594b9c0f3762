// Thinking that the engine brings to an end, and answers that repeat one token.
#include "engine/thinking.h"

#include <gmock/gmock.h>

#include "tests/engine/tiny_model.h"

namespace strata {
namespace {

using test::Collector;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr TokenId kOpen = 300, kClose = 301, kCall = 302, kCallEnd = 303;

class ThinkingTest : public testing::Test {
 protected:
  void SetUp() override {
    model_ = test::tiny_draft_model();
    ASSERT_NE(model_, nullptr);
  }
  std::unique_ptr<Engine> open(std::optional<std::uint32_t> depth = 0) {
    EngineOptions options;
    options.model_path = "model.gguf";
    options.drafts.depth = depth;
    options.cache.ram_bytes = 0;
    auto engine = Engine::open(model_->files, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }
  static ThinkingLimit limit(std::uint32_t budget) {
    return {kOpen, kClose, true, budget, {10, 11, kClose, 12}, kCall, kCallEnd};
  }
  static Request request(std::uint32_t budget) {
    Request r;
    r.prompt = {5, 6, 7, 8, kOpen};
    r.max_tokens = 40;
    r.thinking = limit(budget);
    return r;
  }
  struct Answer {
    std::vector<TokenId> tokens;
    Completion completion;
  };
  static Answer run(Engine& engine, Request r) {
    auto collector = std::make_shared<Collector>();
    const auto id = engine.submit(std::move(r), collector);
    EXPECT_TRUE(id) << id.error().message;
    if (!id) return {};
    const Completion done = collector->wait();
    return {collector->tokens(), done};
  }

  std::unique_ptr<test::Converted> model_;
};

TEST_F(ThinkingTest, TheWatchWaitsForWholeCharactersAndCalls) {
  const auto engine = open();
  const Tokenizer& tokenizer = engine->tokenizer();
  ThinkingWatch watch(limit(2), tokenizer);
  watch.wrote('a');
  EXPECT_THAT(watch.forced(), IsEmpty());
  watch.wrote(0xE2);  // the first byte of a character of three
  EXPECT_THAT(watch.forced(), IsEmpty());
  watch.wrote(0x82);
  EXPECT_THAT(watch.forced(), IsEmpty());
  watch.wrote(0xAC);
  EXPECT_THAT(watch.forced(), ElementsAre(10, 11, kClose, 12));
  watch.wrote(10);
  EXPECT_THAT(watch.forced(), ElementsAre(11, kClose, 12));
  for (const TokenId id : {11, int{kClose}, 12}) watch.wrote(id);
  EXPECT_THAT(watch.forced(), IsEmpty());
  watch.wrote(kOpen);  // one budget a request
  for (int i = 0; i < 20; ++i) watch.wrote('a');
  EXPECT_THAT(watch.forced(), IsEmpty());

  ThinkingWatch calling(limit(1), tokenizer);
  calling.wrote(kCall);
  calling.wrote('x');
  EXPECT_THAT(calling.forced(), IsEmpty());
  calling.wrote(kCallEnd);
  EXPECT_FALSE(calling.forced().empty());

  ThinkingLimit later = limit(2);
  later.begun = false;
  ThinkingWatch opened(later, tokenizer);
  for (int i = 0; i < 9; ++i) opened.wrote('a');
  EXPECT_THAT(opened.forced(), IsEmpty());
  opened.wrote(kOpen);
  opened.wrote('a');
  EXPECT_FALSE(opened.forced().empty());

  ThinkingWatch in_time(limit(3), tokenizer);
  in_time.wrote('a');
  in_time.wrote(kClose);
  for (int i = 0; i < 9; ++i) in_time.wrote('a');
  EXPECT_THAT(in_time.forced(), IsEmpty());
  EXPECT_THAT(ThinkingWatch().forced(), IsEmpty());
}

TEST_F(ThinkingTest, TheEngineWritesTheWrapUpAndTheModelGoesOn) {
  const auto engine = open();
  Request free = request(1);
  free.thinking.reset();
  const std::vector<TokenId> thoughts = run(*engine, free).tokens;
  for (const std::uint32_t budget : {1u, 5u, 16u}) {
    const Answer answer = run(*engine, request(budget));
    EXPECT_TRUE(answer.completion.thinking_cut);
    ASSERT_EQ(answer.tokens.size(), 40u);
    // The model's own tokens, the wrap-up, and what the model makes of that.
    std::vector<TokenId> expected(thoughts.begin(), thoughts.begin() + budget);
    for (const TokenId id : {10, 11, int{kClose}, 12}) expected.push_back(id);
    Request rest;
    rest.prompt = request(budget).prompt;
    rest.prompt.insert(rest.prompt.end(), expected.begin(), expected.end());
    rest.max_tokens = static_cast<std::uint32_t>(40 - expected.size());
    for (const TokenId id : run(*engine, rest).tokens) expected.push_back(id);
    EXPECT_EQ(answer.tokens, expected) << "budget " << budget;
    for (const std::optional<std::uint32_t> depth :
         {std::optional<std::uint32_t>(), std::optional(1u), std::optional(15u)}) {
      EXPECT_EQ(run(*open(depth), request(budget)).tokens, expected);
    }
  }
}

TEST_F(ThinkingTest, WithoutRoomForAnAnswerItEndsAsLength) {
  const auto engine = open();
  Request r = request(5);
  r.max_tokens = 9;  // five, the wrap-up, nothing behind it
  const Answer answer = run(*engine, r);
  EXPECT_EQ(answer.completion.reason, FinishReason::length);
  EXPECT_EQ(answer.tokens.size(), 5u);
  r.max_tokens = 10;
  EXPECT_EQ(run(*engine, r).tokens.size(), 10u);
}

TEST_F(ThinkingTest, ATokenThatRepeatsEndsTheAnswer) {
  for (const std::uint32_t depth : {0u, 3u}) {
    const auto engine = open(depth);
    Request r = request(1);
    r.thinking.reset();
    r.logit_bias = {{77, 90.0f}};  // nothing else has a chance
    r.repeat_limit = 7;
    const Answer answer = run(*engine, r);
    EXPECT_EQ(answer.completion.reason, FinishReason::length);
    EXPECT_EQ(answer.tokens, std::vector<TokenId>(7, 77));
    r.repeat_limit = 0;
    EXPECT_EQ(run(*engine, r).tokens.size(), 40u);
  }
}

TEST_F(ThinkingTest, LimitsThatMakeNoSenseAreRefused) {
  const auto engine = open();
  const auto refusal = [&](const ThinkingLimit& bad) {
    Request r = request(1);
    r.thinking = bad;
    const auto id = engine->submit(r, std::make_shared<Collector>());
    return id ? std::string() : id.error().message;
  };
  EXPECT_THAT(refusal(limit(0)), testing::HasSubstr("a thinking budget of no tokens"));
  ThinkingLimit open_end = limit(1);
  open_end.wrap_up = {10};
  EXPECT_THAT(refusal(open_end), testing::HasSubstr("does not end the thinking"));
  ThinkingLimit outside = limit(1);
  outside.wrap_up.push_back(512);
  EXPECT_THAT(refusal(outside), testing::HasSubstr("token id 512"));
  ThinkingLimit long_one = limit(1);
  long_one.wrap_up.resize(kMaxWrapUp + 1, kClose);
  EXPECT_THAT(refusal(long_one), testing::HasSubstr("257 tokens"));
}

}  // namespace
}  // namespace strata
