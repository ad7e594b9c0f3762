// Thinking that the engine brings to an end, and answers that repeat one token.
#include "engine/answer_watch.h"

#include <gmock/gmock.h>

#include <random>

#include "tests/engine/tiny_model.h"

namespace strata {
namespace {

using test::Collector;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr TokenId kOpen = 300, kClose = 301, kCall = 302, kCallEnd = 303;

ThinkingLimit limit(std::uint32_t budget) {
  return {kOpen, kClose, true, budget, {10, 11, kClose, 12}, kCall, kCallEnd};
}

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

// The watch alone, over a vocabulary of bytes.
class WatchTest : public testing::Test {
 protected:
  AnswerWatch watch(const ThinkingLimit& limit) {
    Request request;
    request.thinking = limit;
    request.stop_ids = {kStop};
    return AnswerWatch(request, tokenizer_);
  }
  static void write(AnswerWatch& watch, std::initializer_list<TokenId> ids) {
    for (const TokenId id : ids) EXPECT_EQ(watch.step([&] { return id; }, 1000).token, id);
  }
  static void write(AnswerWatch& watch, std::string_view text) {
    for (const char c : text) write(watch, {static_cast<unsigned char>(c)});
  }
  static constexpr TokenId kStop = 5;
  const Tokenizer tokenizer_ = test::byte_tokenizer();
};

TEST_F(WatchTest, WaitsForWholeCharactersAndCalls) {
  AnswerWatch whole = watch(limit(2));
  write(whole, {'a', 0xE2, 0x82});  // a character of three bytes has begun
  EXPECT_THAT(whole.forced(), IsEmpty());
  write(whole, {0xAC});
  EXPECT_THAT(whole.forced(), ElementsAre(10, 11, kClose, 12));
  // Whatever the model would say.
  const auto unasked = [] {
    ADD_FAILURE() << "the model was asked";
    return TokenId{0};
  };
  EXPECT_EQ(whole.step(unasked, 100).token, 10);
  EXPECT_THAT(whole.forced(), ElementsAre(11, kClose, 12));
  for (const TokenId id : {11, int{kClose}, 12}) EXPECT_EQ(whole.step(unasked, 100).token, id);
  EXPECT_THAT(whole.forced(), IsEmpty());
  EXPECT_EQ(whole.thinking_cut(), ThinkingCut::budget);
  write(whole, {kOpen});  // one budget a request
  write(whole, "aaaaaaaaaaaaaaaa");
  EXPECT_THAT(whole.forced(), IsEmpty());

  AnswerWatch calling = watch(limit(1));
  write(calling, {kCall, 'x'});
  EXPECT_THAT(calling.forced(), IsEmpty());
  write(calling, {kCallEnd});
  EXPECT_FALSE(calling.forced().empty());

  ThinkingLimit later = limit(2);
  later.begun = false;
  AnswerWatch opened = watch(later);
  write(opened, "aaaaaaaa");
  EXPECT_THAT(opened.forced(), IsEmpty());
  write(opened, {kOpen, 'a'});
  EXPECT_FALSE(opened.forced().empty());

  AnswerWatch in_time = watch(limit(3));
  write(in_time, {'a', kClose});
  write(in_time, "aaaaaaaa");
  EXPECT_THAT(in_time.forced(), IsEmpty());
  AnswerWatch unbound = watch(limit(0));
  write(unbound, "aaaaaaaa");
  EXPECT_THAT(unbound.forced(), IsEmpty());
}

TEST_F(WatchTest, AStopInsideTheThinkingIsTakenBackOnce) {
  ThinkingLimit closing = limit(0);
  closing.closing = {'n', kClose, 'm'};
  const auto stop = [] { return kStop; };
  AnswerWatch silent = watch(closing);
  write(silent, "hm");
  EXPECT_EQ(silent.step(stop, 100).token, 'n');
  EXPECT_THAT(silent.forced(), ElementsAre(kClose, 'm'));
  EXPECT_EQ(silent.thinking_cut(), ThinkingCut::stop);
  write(silent, {kClose, 'm', kOpen, 'x'});
  const auto second = silent.step(stop, 100);
  EXPECT_FALSE(second.token);
  EXPECT_EQ(second.end, FinishReason::stop);

  // Three tokens and one of the answer are needed.
  AnswerWatch narrow = watch(closing);
  EXPECT_EQ(narrow.step(stop, 3).end, FinishReason::length);
  AnswerWatch wide = watch(closing);
  EXPECT_EQ(wide.step(stop, 4).token, 'n');

  // Where there is an answer or a call, or nobody asked, a stop is a stop.
  const auto stops = [&](AnswerWatch other) { return !other.step(stop, 100).token; };
  AnswerWatch answered = watch(closing);
  write(answered, {kClose, 'y', kOpen, 'z'});
  EXPECT_TRUE(stops(answered));
  AnswerWatch called = watch(closing);
  write(called, {kCall, 'f', kCallEnd, '\n'});
  EXPECT_TRUE(stops(called));
  write(called, "or");  // it was a quotation
  EXPECT_FALSE(stops(called));
  AnswerWatch plain = watch(limit(0));
  write(plain, "hm");
  EXPECT_TRUE(stops(plain));
}

// Text with a loop from some place on; the tokens after which it is seen, 0 if never.
std::size_t seen_after(const std::string& text, LoopGuard guard, const ThinkingLimit& limit,
                       StoppedBy* stopped = nullptr, ThinkingCut* cut = nullptr) {
  const Tokenizer tokenizer = test::byte_tokenizer();
  Request request;
  request.thinking = limit;
  request.loop_guard = guard;
  AnswerWatch watch(request, tokenizer);
  std::size_t count = 0;
  for (const char c : text) {
    ++count;
    const auto step = watch.step([&] { return static_cast<unsigned char>(c); }, 1'000'000);
    if (stopped) *stopped = watch.stopped_by();
    if (cut) *cut = watch.thinking_cut();
    if (step.end || !watch.forced().empty()) return count;
  }
  return 0;
}

std::string words(std::size_t count, unsigned seed) {
  std::string text;
  std::mt19937 random(seed);
  for (; count > 0; --count) text.append("w").append(std::to_string(random() % 5000)).append(" ");
  return text;
}

TEST_F(WatchTest, LoopsAreSeenAndOrdinaryTextIsNot) {
  ThinkingLimit answer = limit(0);
  answer.begun = false;
  const std::string passage = words(300, 1);
  const std::string loop = passage + passage + passage + passage;
  StoppedBy stopped{};
  ThinkingCut cut{};
  // A quarter of what stands there repeats: as soon as the third time begins in earnest.
  const std::size_t seen = seen_after(loop, LoopGuard::stop, answer, &stopped);
  EXPECT_GT(seen, 2 * passage.size());
  EXPECT_LE(seen, 3 * passage.size());
  EXPECT_EQ(seen % 512, 0u);
  EXPECT_EQ(stopped, StoppedBy::loop);
  EXPECT_EQ(seen_after(loop, LoopGuard::off, answer), 0u);
  EXPECT_EQ(seen_after(passage + passage + words(300, 2), LoopGuard::stop, answer), 0u);
  EXPECT_EQ(seen_after(words(20'000, 3), LoopGuard::stop, answer), 0u);

  // Characters that have a short period, without a space anywhere.
  std::string dots;
  while (dots.size() < 4096) dots += "/\\_";
  EXPECT_EQ(seen_after(dots, LoopGuard::stop, answer, &stopped), 2048u);
  std::string han;
  while (han.size() < 3 * 4096) han += "\u4e00\u4e8c\u4e09";
  EXPECT_GT(seen_after(han, LoopGuard::stop, answer, &stopped), 0u);

  // In the thinking: its end or the answer's.
  EXPECT_GT(seen_after(loop, LoopGuard::stop, limit(0), &stopped, &cut), 0u);
  EXPECT_EQ(stopped, StoppedBy::loop);
  EXPECT_EQ(cut, ThinkingCut::none);
  EXPECT_GT(seen_after(loop, LoopGuard::recover, limit(0), &stopped, &cut), 0u);
  EXPECT_EQ(stopped, StoppedBy::none);
  EXPECT_EQ(cut, ThinkingCut::loop);
}

TEST_F(WatchTest, WhatCallsHoldIsNoLoop) {
  Request request;
  request.thinking = limit(0);
  request.thinking->begun = false;
  request.loop_guard = LoopGuard::recover;
  AnswerWatch watch(request, tokenizer_);
  write(watch, {kCall});
  for (int i = 0; i < 2000; ++i) write(watch, "0, ");
  write(watch, {kCallEnd});
  EXPECT_EQ(watch.stopped_by(), StoppedBy::none);
}

TEST_F(ThinkingTest, TheEngineWritesTheWrapUpAndTheModelGoesOn) {
  const auto engine = open();
  Request free = request(1);
  free.thinking.reset();
  const std::vector<TokenId> thoughts = run(*engine, free).tokens;
  for (const std::uint32_t budget : {1u, 5u, 16u}) {
    const Answer answer = run(*engine, request(budget));
    EXPECT_EQ(answer.completion.thinking_cut, ThinkingCut::budget);
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

// The model has to stop at once; the engine closes its thinking, with drafts and without.
TEST_F(ThinkingTest, ThinkingThatTheModelLeavesOpenIsClosed) {
  Request r = request(0);
  r.stop_ids = {77};
  r.logit_bias = {{77, 90.0f}};
  r.thinking->closing = {20, kClose, 21};
  for (const std::uint32_t depth : {0u, 3u}) {
    const Answer answer = run(*open(depth), r);
    EXPECT_EQ(answer.tokens, (std::vector<TokenId>{20, kClose, 21}));
    EXPECT_EQ(answer.completion.thinking_cut, ThinkingCut::stop);
    EXPECT_EQ(answer.completion.reason, FinishReason::stop);
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
    EXPECT_EQ(answer.completion.stopped_by, StoppedBy::repeat);
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
  ThinkingLimit no_end = limit(0);
  no_end.closing = {10};
  EXPECT_THAT(refusal(no_end), testing::HasSubstr("does not end the thinking"));
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
