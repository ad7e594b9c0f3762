// The engine as a child process: same answers, and what happens when it is killed, stopped, crashes
// or talks nonsense.
#include "server/engine_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "engine/scripted.h"
#include "server/engine_wire.h"
#include "tests/server/scripted_model.h"

namespace strata::server::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class Collector final : public Listener {
 public:
  void progress(std::uint32_t, std::uint32_t) override {
    note([this] { ++progress_; });
  }
  void chances(const TokenChances&) override {
    note([this] { ++chances_; });
  }
  void token(TokenId id) override {
    note([&] { tokens_.push_back(id); });
  }
  void finished(const Completion& completion) override {
    note([&] {
      completion_ = completion;
      ++finished_;
    });
  }
  bool wait_for(const std::function<bool(const Collector&)>& what,
                std::chrono::seconds time = 120s) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return what(*this); });
  }
  bool over() {
    return wait_for([](const Collector& c) { return c.finished_ > 0; });
  }

  std::vector<TokenId> tokens_;
  Completion completion_;
  int progress_ = 0, chances_ = 0, finished_ = 0;

 private:
  void note(const std::function<void()>& change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
};

class EngineProcessTest : public ::testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::off); }

  EngineProcessOptions options(const std::string& scripts) {
    EngineProcessOptions options;
    options.program = STRATA_HELPER_ENGINE;
    options.arguments = {"--model", model_.model(), "--script", model_.script(scripts)};
    options.model_path = model_.model();
    options.ping_time = 50ms;
    options.silence = 30s;  // a machine that measures something else may starve the child
    options.backoff_first = 20ms;
    options.backoff_most = 200ms;
    return options;
  }
  std::unique_ptr<EngineProcess> start(const std::string& scripts) {
    auto engine = EngineProcess::start(real_files(), options(scripts));
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }
  static Request request(Engine& engine, const std::string& prompt = "hello") {
    Request request;
    request.prompt = engine.tokenizer().encode(prompt);
    return request;
  }
  static std::shared_ptr<Collector> submit(Engine& engine, Request request) {
    auto collector = std::make_shared<Collector>();
    const auto id = engine.submit(std::move(request), collector);
    EXPECT_TRUE(id) << id.error().message;
    return collector;
  }
  static bool up_again(EngineProcess& engine, std::uint64_t restarts) {
    for (int i = 0; i < 24'000; ++i) {
      if (engine.health().up() && engine.health().restarts >= restarts) return true;
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }
  static void expect_works(Engine& engine) {
    const auto collector = submit(engine, request(engine));
    ASSERT_TRUE(collector->over());
    EXPECT_EQ(collector->completion_.reason, FinishReason::stop)
        << collector->completion_.error.message;
  }

  ScriptedModel model_;
};

TEST_F(EngineProcessTest, AnswersAsTheEngineItselfDoes) {
  const std::string scripts = R"([{"text":"</think>one two three","piece":3,"cached":1}])";
  const auto engine = start(scripts);
  ASSERT_NE(engine, nullptr);
  ScriptedOptions same;
  same.model_path = model_.model();
  const auto inside =
      open_scripted_engine(real_files(), same, "{\"scripts\":" + scripts + "}").value();
  EXPECT_EQ(engine->facts().model_name, "scripted-model");
  EXPECT_EQ(engine->facts().vocabulary, inside->facts().vocabulary);
  EXPECT_EQ(engine->facts().stop_ids, inside->facts().stop_ids);
  Request work = request(*engine);
  work.logprobs = 1;
  const auto far = submit(*engine, work);
  const auto near = submit(*inside, work);
  ASSERT_TRUE(far->over() && near->over());
  EXPECT_EQ(far->tokens_, near->tokens_);
  EXPECT_EQ(far->chances_, static_cast<int>(far->tokens_.size()));
  EXPECT_EQ(far->completion_.prompt_tokens, near->completion_.prompt_tokens);
  EXPECT_EQ(far->completion_.cached_tokens, near->completion_.cached_tokens);
  EXPECT_EQ(far->completion_.generated_tokens, near->completion_.generated_tokens);
  EXPECT_EQ(engine->counters().requests, 1u);
  EXPECT_EQ(engine->counters().running + engine->counters().waiting, 0u);
}

TEST_F(EngineProcessTest, ChecksAndCancels) {
  const auto engine = start(R"([{"text":"word ","repeat":true,"pace_ms":2}])");
  ASSERT_NE(engine, nullptr);
  Request bad;
  EXPECT_EQ(engine->submit(bad, std::make_shared<Collector>()).error().code,
            ErrorCode::invalid_argument);
  auto collector = std::make_shared<Collector>();
  const auto id = engine->submit(request(*engine), collector);
  ASSERT_TRUE(collector->wait_for([](const Collector& c) { return c.tokens_.size() > 3; }));
  engine->cancel(*id);
  engine->cancel(*id);
  engine->cancel(9999);
  ASSERT_TRUE(collector->over());
  EXPECT_EQ(collector->completion_.reason, FinishReason::cancelled);
}

TEST_F(EngineProcessTest, KilledWhileItDecodesEndsTheAnswerAndComesBack) {
  const auto engine = start(R"([{"text":"word ","repeat":true,"pace_ms":2},{"text":"fine"}])");
  ASSERT_NE(engine, nullptr);
  const auto collector = submit(*engine, request(*engine));
  ASSERT_TRUE(collector->wait_for([](const Collector& c) { return c.tokens_.size() > 3; }));
  ASSERT_EQ(::kill(engine->health().pid, SIGKILL), 0);
  ASSERT_TRUE(collector->over());
  EXPECT_EQ(collector->completion_.reason, FinishReason::error);
  EXPECT_EQ(collector->completion_.error.code, ErrorCode::unavailable);
  EXPECT_THAT(collector->completion_.error.message, HasSubstr("signal 9"));
  const auto during = engine->submit(request(*engine), std::make_shared<Collector>());
  if (!during) {
    EXPECT_EQ(during.error().code, ErrorCode::unavailable);
  }
  ASSERT_TRUE(up_again(*engine, 1));
  EXPECT_EQ(collector->finished_, 1);
}

TEST_F(EngineProcessTest, WhatHasToldNothingIsRunAgain) {
  const auto engine = start(R"([{"text":"the answer","wait_ms":300}])");
  ASSERT_NE(engine, nullptr);
  const auto collector = submit(*engine, request(*engine));
  std::this_thread::sleep_for(50ms);
  ASSERT_EQ(::kill(engine->health().pid, SIGKILL), 0);
  ASSERT_TRUE(collector->over());
  EXPECT_EQ(collector->completion_.reason, FinishReason::stop);
  EXPECT_EQ(engine->tokenizer().decode(collector->tokens_), "the answer");
  EXPECT_EQ(engine->health().restarts, 1u);
}

TEST_F(EngineProcessTest, ARequestThatKillsEnginesIsGivenUp) {
  const auto engine = start(R"([{"text":"","crash":true,"match":"poison"},{"text":"fine"}])");
  ASSERT_NE(engine, nullptr);
  const auto collector = submit(*engine, request(*engine, "poison"));
  ASSERT_TRUE(collector->over());
  EXPECT_EQ(collector->completion_.reason, FinishReason::error);
  EXPECT_THAT(collector->completion_.error.message, HasSubstr("exit code 70"));
  EXPECT_TRUE(collector->tokens_.empty());
  ASSERT_TRUE(up_again(*engine, kMaxRuns));
  expect_works(*engine);
}

TEST_F(EngineProcessTest, AStoppedEngineIsKilledAndReplaced) {
  auto impatient = options(R"([{"text":"word ","repeat":true,"pace_ms":2,"match":"long"},
                               {"text":"fine"}])");
  impatient.silence = 3s;
  const auto engine = EngineProcess::start(real_files(), impatient).value();
  const auto collector = submit(*engine, request(*engine, "long"));
  ASSERT_TRUE(collector->wait_for([](const Collector& c) { return c.tokens_.size() > 3; }));
  ASSERT_EQ(::kill(engine->health().pid, SIGSTOP), 0);
  // Submitting does not wait for it.
  const auto begun = std::chrono::steady_clock::now();
  const auto second = submit(*engine, request(*engine));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 2s);
  ASSERT_TRUE(collector->over());
  EXPECT_THAT(collector->completion_.error.message, HasSubstr("said nothing for"));
  ASSERT_TRUE(second->over());
  EXPECT_EQ(second->completion_.reason, FinishReason::stop);
}

TEST_F(EngineProcessTest, CancelledWhileThereIsNoEngine) {
  auto slow = options(R"([{"text":"x","wait_ms":60000}])");
  slow.backoff_first = 60s;
  slow.backoff_most = 60s;
  auto engine = EngineProcess::start(real_files(), slow).value();
  auto collector = std::make_shared<Collector>();
  const auto id = engine->submit(request(*engine), collector);
  std::this_thread::sleep_for(30ms);
  ::kill(engine->health().pid, SIGKILL);
  for (int i = 0; i < 1000 && engine->health().up(); ++i) std::this_thread::sleep_for(2ms);
  EXPECT_EQ(collector->finished_, 0) << "it waits for the next engine";
  engine->cancel(*id);
  ASSERT_TRUE(collector->over());
  EXPECT_EQ(collector->completion_.reason, FinishReason::cancelled);
}

TEST_F(EngineProcessTest, EndsWhatRunsWhenItIsDestroyed) {
  auto engine = start(R"([{"text":"word ","repeat":true,"pace_ms":2}])");
  ASSERT_NE(engine, nullptr);
  const auto collector = submit(*engine, request(*engine));
  ASSERT_TRUE(collector->wait_for([](const Collector& c) { return c.tokens_.size() > 3; }));
  const int pid = engine->health().pid;
  engine.reset();
  EXPECT_EQ(collector->finished_, 1);
  EXPECT_EQ(collector->completion_.reason, FinishReason::cancelled);
  EXPECT_NE(::kill(pid, 0), 0) << "the process is still there";
}

TEST_F(EngineProcessTest, AStartThatFailsSaysWhy) {
  const auto reason = [&](EngineProcessOptions bad) {
    const auto engine = EngineProcess::start(real_files(), std::move(bad));
    EXPECT_FALSE(engine);
    return engine ? std::string() : engine.error().message;
  };
  EXPECT_THAT(reason(options("[]")), HasSubstr("the script holds no scripts"));
  EXPECT_THAT(reason(options(R"([{"txt":""}])")), HasSubstr("unknown member 'txt'"));
  auto bad = options(R"([{"text":""}])");
  bad.program = "/nonexistent/program";
  EXPECT_THAT(reason(bad), HasSubstr("exit code 127"));
  bad = options(R"([{"text":""}])");
  bad.model_path = "/nonexistent.gguf";
  EXPECT_THAT(reason(bad), HasSubstr("/nonexistent.gguf"));
  for (const char* command : {"printf 'GARBAGE GARBAGE GARBAGE' >&3; sleep 60",
                              "head -c 100000 /dev/urandom >&3; sleep 60",
                              "printf '\\001\\000\\000\\000\\377' >&3; sleep 60"}) {
    bad.model_path = model_.model();
    bad.program = "/bin/sh";
    bad.arguments = {"-c", command};
    EXPECT_FALSE(reason(bad).empty()) << command;
  }
  bad.arguments = {"-c", "sleep 60"};
  bad.silence = 200ms;
  EXPECT_THAT(reason(bad), HasSubstr("said nothing for 200 ms"));
}

// A death in every phase of a request, again and again: every request ends once, and its text is
// whole or it failed.
TEST_F(EngineProcessTest, RandomKillsLoseNothingAndMixNothing) {
  auto impatient =
      options(R"([{"text":"alpha alpha alpha alpha","pace_ms":3,"wait_ms":5,"match":"A"},
                                {"text":"beta beta beta beta","pace_ms":3,"wait_ms":5,"match":"B"},
                                {"text":"fine"}])");
  impatient.silence = 5s;
  const auto engine = EngineProcess::start(real_files(), impatient).value();
  int failed = 0, good = 0;
  for (int round = 0; round < 10; ++round) {
    std::vector<std::pair<bool, std::shared_ptr<Collector>>> all;
    for (int i = 0; i < 8; ++i) {
      const bool first = i % 2 == 0;
      all.emplace_back(first, submit(*engine, request(*engine, first ? "A" : "B")));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(3 * round));
    ::kill(engine->health().pid, round % 5 == 2 ? SIGSTOP : SIGKILL);
    for (const auto& [first, collector] : all) {
      ASSERT_TRUE(collector->over());
      const std::string whole = first ? "alpha alpha alpha alpha" : "beta beta beta beta";
      const std::string text = engine->tokenizer().decode(collector->tokens_);
      EXPECT_TRUE(whole.starts_with(text)) << text;
      if (collector->completion_.reason == FinishReason::stop) {
        ++good;
        EXPECT_EQ(text, whole);
      } else {
        ++failed;
        EXPECT_EQ(collector->completion_.reason, FinishReason::error);
      }
    }
    ASSERT_TRUE(up_again(*engine, static_cast<std::uint64_t>(round) + 1));
    for (const auto& [first, collector] : all) EXPECT_EQ(collector->finished_, 1);
  }
  EXPECT_EQ(good + failed, 80);
  EXPECT_GT(good, 0);
  expect_works(*engine);
}

// Loading and unloading ------------------------------------------------------------------

// What load() or unload() told.
class Told {
 public:
  EngineProcess::Done done() {
    return [state = state_](const Status& status) { state->set_value(status); };
  }
  Status get() {
    auto future = state_->get_future();
    if (future.wait_for(120s) != std::future_status::ready)
      return fail(ErrorCode::internal, "nothing was told");
    return future.get();
  }

 private:
  std::shared_ptr<std::promise<Status>> state_ = std::make_shared<std::promise<Status>>();
};

Status unloaded(EngineProcess& engine) {
  Told told;
  engine.unload(told.done());
  return told.get();
}
Status loaded(EngineProcess& engine) {
  Told told;
  engine.load(told.done());
  return told.get();
}

TEST_F(EngineProcessTest, UnloadedItHasNoProcessAndARequestLoadsIt) {
  const auto engine = start(R"([{"text":"fine"}])");
  ASSERT_NE(engine, nullptr);
  const int pid = engine->health().pid;
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(unloaded(*engine));
    EXPECT_EQ(engine->health().state, EngineProcess::State::unloaded);
    EXPECT_EQ(engine->health().pid, 0);
  }
  EXPECT_NE(::kill(pid, 0), 0) << "the process is still there";
  expect_works(*engine);
  EXPECT_TRUE(engine->health().up());
  EXPECT_EQ(engine->health().restarts, 0u) << "a load is no restart";
  EXPECT_TRUE(unloaded(*engine));
  EXPECT_TRUE(loaded(*engine));
  EXPECT_TRUE(loaded(*engine));
  expect_works(*engine);
  EXPECT_EQ(engine->counters().requests, 2u);
}

TEST_F(EngineProcessTest, WithoutAutoLoadRequestsAreRefusedUntilItIsLoaded) {
  auto manual = options(R"([{"text":"fine"}])");
  manual.auto_load = false;
  const auto engine = EngineProcess::start(real_files(), manual).value();
  EXPECT_TRUE(unloaded(*engine));
  const auto refused = engine->submit(request(*engine), std::make_shared<Collector>());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("POST /load"));
  EXPECT_TRUE(loaded(*engine));
  expect_works(*engine);
}

TEST_F(EngineProcessTest, ABusyEngineIsNotUnloaded) {
  const auto engine = start(R"([{"text":"word ","repeat":true,"pace_ms":2}])");
  ASSERT_NE(engine, nullptr);
  auto collector = std::make_shared<Collector>();
  const auto id = engine->submit(request(*engine), collector);
  EXPECT_EQ(unloaded(*engine).error().code, ErrorCode::exhausted);
  engine->cancel(*id);
  ASSERT_TRUE(collector->over());
  EXPECT_TRUE(unloaded(*engine));
}

TEST_F(EngineProcessTest, UnloadedWhenNobodyAsks) {
  auto idle = options(R"([{"text":"word ","repeat":true,"pace_ms":2,"match":"long"},
                          {"text":"fine"}])");
  idle.idle_time = 300ms;
  const auto engine = EngineProcess::start(real_files(), idle).value();
  const auto rests = [&] {
    for (int i = 0; i < 6'000; ++i) {
      if (engine->health().state == EngineProcess::State::unloaded) return true;
      std::this_thread::sleep_for(5ms);
    }
    return false;
  };
  auto collector = std::make_shared<Collector>();
  const auto id = engine->submit(request(*engine, "long"), collector);
  std::this_thread::sleep_for(600ms);
  EXPECT_TRUE(engine->health().up()) << "it is busy";
  engine->cancel(*id);
  EXPECT_TRUE(collector->over());
  EXPECT_TRUE(rests());
  expect_works(*engine);
  EXPECT_TRUE(rests());
}

TEST_F(EngineProcessTest, ALoadThatFailsEndsThoseThatWaitAndCanBeTriedAgain) {
  const auto engine = start(R"([{"text":"fine"}])");
  ASSERT_NE(engine, nullptr);
  EXPECT_TRUE(unloaded(*engine));
  model_.script("[]");
  const auto collector = submit(*engine, request(*engine));
  ASSERT_TRUE(collector->over());
  EXPECT_EQ(collector->completion_.reason, FinishReason::error);
  EXPECT_THAT(collector->completion_.error.message, HasSubstr("the script holds no scripts"));
  EXPECT_EQ(engine->health().state, EngineProcess::State::unloaded);
  EXPECT_THAT(engine->health().trouble, HasSubstr("the script holds no scripts"));
  EXPECT_THAT(loaded(*engine).error().message, HasSubstr("the script holds no scripts"));
  model_.script(R"([{"text":"fine"}])");
  expect_works(*engine);
  EXPECT_EQ(engine->health().trouble, "");
}

TEST_F(EngineProcessTest, NobodyWaitsForEverForAnEngineThatDoesNotStart) {
  const auto engine = start(R"([{"text":"fine","wait_ms":60000}])");
  ASSERT_NE(engine, nullptr);
  const auto collector = submit(*engine, request(*engine));
  std::this_thread::sleep_for(30ms);
  model_.script("[]");
  ::kill(engine->health().pid, SIGKILL);
  ASSERT_TRUE(collector->over());
  EXPECT_EQ(collector->completion_.reason, FinishReason::error);
  EXPECT_THAT(collector->completion_.error.message, HasSubstr("the script holds no scripts"));
  EXPECT_EQ(engine->health().state, EngineProcess::State::restarting);
  // Also then it can be put to rest.
  EXPECT_TRUE(unloaded(*engine));
  model_.script(R"([{"text":"fine"}])");
  expect_works(*engine);
}

TEST_F(EngineProcessTest, EndsWhileItIsUnloadedOrLoading) {
  auto engine = start(R"([{"text":"fine"}])");
  ASSERT_NE(engine, nullptr);
  EXPECT_TRUE(unloaded(*engine));
  engine.reset();
  engine = start(R"([{"text":"fine"}])");
  EXPECT_TRUE(unloaded(*engine));
  Told told;
  engine->load(told.done());
  engine.reset();
  told.get();
}

// The frames -------------------------------------------------------------------------------

TEST(Wire, ValuesSurviveTheWay) {
  Request request;
  request.prompt = {1, 2, 3};
  request.sampling = {0.5f, 7, 0.25f, 0.125f, 1ull << 60, 1.5f, -0.5f, 0.75f, -1};
  request.max_tokens = 9;
  request.stop_ids = {4};
  request.logit_bias = {{5, -100}, {6, 0.5f}};
  request.logprobs = 0;
  request.prompt_logprobs = true;
  request.grammar = "root ::= .";
  request.client = 1ull << 63;
  FrameCutter cutter;
  const std::string bytes =
      std::move(WireWriter(FrameKind::submit).u64(42).request(request)).frame();
  for (const char byte : bytes) cutter.feed({&byte, 1});
  const auto frame = cutter.next().value();
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->kind, FrameKind::submit);
  WireReader reader(frame->payload);
  EXPECT_EQ(reader.u64(), 42u);
  const Request read = reader.request();
  EXPECT_TRUE(reader.done());
  EXPECT_EQ(read.prompt, request.prompt);
  EXPECT_EQ(read.sampling.seed, request.sampling.seed);
  EXPECT_EQ(read.sampling.penalty_last_n, -1);
  EXPECT_FLOAT_EQ(read.sampling.frequency_penalty, -0.5f);
  EXPECT_EQ(read.logit_bias[0].id, 5);
  EXPECT_EQ(read.logprobs, 0u);
  EXPECT_TRUE(read.prompt_logprobs);
  EXPECT_EQ(read.grammar, request.grammar);
  EXPECT_EQ(read.client, request.client);
}

TEST(Wire, ConversationsSurviveTheWay) {
  const ConversationTask task{ConversationTask::Kind::restore, {1, 2, 3}, "a/b"};
  const std::string bytes =
      std::move(WireWriter(FrameKind::conversation).task(task)).frame().substr(5);
  WireReader reader(bytes);
  const ConversationTask read = reader.task();
  EXPECT_TRUE(reader.done());
  EXPECT_EQ(read.kind, task.kind);
  EXPECT_EQ(read.tokens, task.tokens);
  EXPECT_EQ(read.path, task.path);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    WireReader shorter(std::string_view(bytes).substr(0, cut));
    (void)shorter.task();
    EXPECT_FALSE(shorter.done()) << cut;
  }
  for (const Result<ConversationResult>& result :
       {Result<ConversationResult>(ConversationResult{{4, 5}, 77}),
        Result<ConversationResult>(fail(ErrorCode::corrupt, "damaged"))}) {
    const std::string sent =
        std::move(WireWriter(FrameKind::conversed).result(result)).frame().substr(5);
    WireReader back(sent);
    const auto told = back.result();
    EXPECT_TRUE(back.done());
    ASSERT_EQ(told.has_value(), result.has_value());
    if (told) {
      EXPECT_EQ(told->tokens, result->tokens);
      EXPECT_EQ(told->bytes, 77u);
    } else {
      EXPECT_EQ(told.error().message, "damaged");
      EXPECT_EQ(told.error().code, ErrorCode::corrupt);
    }
  }
}

TEST(Wire, CountersSurviveTheWay) {
  EngineCounters counters;
  counters.running = 1;
  counters.generated_tokens = 1ull << 40;
  counters.drafts.rounds = 11;
  counters.drafts.drafted_at[14] = 12;
  counters.drafts.accepted_at[0] = 13;
  counters.cache.limit = 14;
  counters.cache.disk_misses = 15;
  counters.reserved_bytes = 16;
  counters.experts.wait_microseconds = 17;
  counters.experts.total_bytes = 18;
  counters.ngram_tables.resize(2);
  counters.ngram_tables[1].how = "mapped";
  counters.ngram_tables[1].rows.requested = 7;
  counters.ngram_tables[1].rows.wait_seconds = 0.25;
  counters.ngram_tables[1].memory_bytes = 9;
  const std::string bytes =
      std::move(WireWriter(FrameKind::pong).u64(3).counters(counters)).frame().substr(5);
  WireReader reader(bytes);
  EXPECT_EQ(reader.u64(), 3u);
  const EngineCounters read = reader.counters();
  EXPECT_TRUE(reader.done());
  EXPECT_EQ(read.running, 1u);
  EXPECT_EQ(read.generated_tokens, 1ull << 40);
  EXPECT_EQ(read.drafts.rounds, 11u);
  EXPECT_EQ(read.drafts.drafted_at, counters.drafts.drafted_at);
  EXPECT_EQ(read.drafts.accepted_at, counters.drafts.accepted_at);
  EXPECT_EQ(read.cache.limit, 14u);
  EXPECT_EQ(read.cache.disk_misses, 15u);
  EXPECT_EQ(read.reserved_bytes, 16u);
  EXPECT_EQ(read.experts.wait_microseconds, 17u);
  EXPECT_EQ(read.experts.total_bytes, 18u);
  ASSERT_EQ(read.ngram_tables.size(), 2u);
  EXPECT_EQ(read.ngram_tables[1].how, "mapped");
  EXPECT_EQ(read.ngram_tables[1].rows.requested, 7u);
  EXPECT_EQ(read.ngram_tables[1].rows.wait_seconds, 0.25);
  EXPECT_EQ(read.ngram_tables[1].memory_bytes, 9u);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    WireReader shorter(cut);
    shorter.u64();
    shorter.counters();
    EXPECT_FALSE(shorter.done());
  }
}

TEST(Wire, EveryCutAndEveryLongerFrameIsRefused) {
  TokenChances chances{{7, -1}, {{1, -2}, {2, -3}}};
  std::string bytes = std::move(WireWriter(FrameKind::token).u64(1).u32(7).u8(1).chances(chances))
                          .frame()
                          .substr(5);
  const auto read = [](const std::string& text) {
    WireReader reader(text);
    reader.u64();
    reader.u32();
    reader.u8();
    reader.chances();
    return reader.done();
  };
  EXPECT_TRUE(read(bytes));
  for (std::size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(read(bytes.substr(0, size)));
  EXPECT_FALSE(read(bytes + "x"));
  bytes[21] = '\xff';  // the count of alternatives
  bytes[24] = '\xff';
  EXPECT_FALSE(read(bytes));
}

TEST(Wire, AbsurdLengthsAreRefusedAtOnce) {
  for (const char* head : {"\x00\x00\x00\x00", "\xff\xff\xff\xff", "GARB"}) {
    FrameCutter cutter;
    cutter.feed({head, 4});
    EXPECT_FALSE(cutter.next());
  }
}

}  // namespace
}  // namespace strata::server::testing
