// The n-gram table from the disk, through the engine: the same tokens in every mode, and a disk
// that fails costs the request that needed the row and no other.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "engine/engine.h"
#include "tests/engine/tiny_model.h"

namespace strata {
namespace {

using test::Collector;
using testing::HasSubstr;
using Fault = FaultyFileSystem::QueuedFault;

class NgramTable : public testing::Test {
 protected:
  void SetUp() override {
    model_ = test::tiny_model();
    ASSERT_NE(model_, nullptr);
  }

  std::unique_ptr<Engine> open(FileSystem& files, TableMode mode, std::uint64_t cache = 1 << 22) {
    EngineOptions options;
    options.model_path = "model.gguf";
    options.prompt_chunk = 16;
    options.ngram_table.mode = mode;
    options.ngram_table.cache_bytes = cache;
    options.ngram_table.queue_depth = 8;
    auto engine = Engine::open(files, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }

  static Request request(std::size_t tokens, TokenId first) {
    Request r;
    for (std::size_t i = 0; i < tokens; ++i)
      r.prompt.push_back(static_cast<TokenId>((first + 37 * i) % 256));
    r.max_tokens = 12;
    return r;
  }

  static std::shared_ptr<Collector> start(Engine& engine, Request r) {
    auto collector = std::make_shared<Collector>();
    EXPECT_TRUE(engine.submit(std::move(r), collector));
    return collector;
  }

  std::unique_ptr<test::Converted> model_;
};

TEST_F(NgramTable, SameTokensInEveryMode) {
  std::vector<TokenId> expected;
  for (const auto& [mode, cache] :
       std::initializer_list<std::pair<TableMode, std::uint64_t>>{{TableMode::mapped, 0},
                                                                  {TableMode::resident, 0},
                                                                  {TableMode::direct, 1 << 22},
                                                                  {TableMode::direct, 0},
                                                                  {TableMode::threads, 1 << 18}}) {
    const auto engine = open(model_->files, mode, cache);
    const auto answer = start(*engine, request(70, 3));
    const Completion done = answer->wait();
    EXPECT_EQ(done.reason, FinishReason::length) << done.error.message;
    if (expected.empty()) expected = answer->tokens();
    EXPECT_EQ(answer->tokens(), expected) << to_string(mode);
    EXPECT_GT(done.ngram_rows.requested, 0u);
    const EngineCounters counters = engine->counters();
    ASSERT_EQ(counters.ngram_tables.size(), 1u);
    const TableStats& stats = counters.ngram_tables[0];
    EXPECT_EQ(stats.rows.requested, done.ngram_rows.requested);
    if (mode != TableMode::direct || cache == 0) continue;
    // Chunks but the first and tokens but the first of the answer were asked for ahead of time.
    EXPECT_GT(stats.prefetched, 0u);
    EXPECT_GT(done.ngram_rows.prefetched_used, 0u);
    EXPECT_EQ(done.ngram_rows.requested,
              done.ngram_rows.cache_hits + done.ngram_rows.joined + done.ngram_rows.read);
  }
}

TEST_F(NgramTable, AFailingDiskFailsTheRequestThatNeededTheRow) {
  std::atomic<bool> sick = false;
  FaultyFileSystem files(
      model_->files, [](const FaultyFileSystem::Call& call) { return call.size; },
      [&](std::uint64_t, std::size_t) -> Fault { return {.error = sick ? EIO : 0}; });
  const auto engine = open(files, TableMode::direct);
  const auto healthy = start(*engine, request(40, 7));
  const std::vector<TokenId> expected = (healthy->wait(), healthy->tokens());

  // Its rows are in the cache now; those of the other prompt are not. Both share windows.
  sick = true;
  const auto good = start(*engine, request(40, 7));
  const auto bad = start(*engine, request(40, 90));
  const Completion failed = bad->wait(), fine = good->wait();
  EXPECT_EQ(failed.reason, FinishReason::error);
  EXPECT_EQ(failed.error.code, ErrorCode::io);
  EXPECT_THAT(failed.error.message, HasSubstr("of the n-gram table, bytes "));
  EXPECT_THAT(failed.error.message, HasSubstr("Input/output error (errno 5)"));
  EXPECT_EQ(fine.reason, FinishReason::length) << fine.error.message;
  EXPECT_EQ(good->tokens(), expected);

  sick = false;
  const auto next = start(*engine, request(40, 90));
  EXPECT_EQ(next->wait().reason, FinishReason::length);
  const auto mapped = open(model_->files, TableMode::mapped);
  const auto right = start(*mapped, request(40, 90));
  right->wait();
  EXPECT_EQ(next->tokens(), right->tokens());
}

TEST_F(NgramTable, SlowAndReorderedReadsChangeNothing) {
  std::atomic<unsigned> count = 0;
  FaultyFileSystem files(
      model_->files, [](const FaultyFileSystem::Call& call) { return call.size; },
      [&](std::uint64_t, std::size_t) -> Fault {
        return {.delay = std::chrono::microseconds(++count * 7919 % 2000)};
      });
  const auto slow = open(files, TableMode::direct, 0);
  const auto mapped = open(model_->files, TableMode::mapped);
  std::vector<std::shared_ptr<Collector>> a, b;
  for (TokenId first = 0; first < 8; ++first) {
    a.push_back(start(*slow, request(20 + 5 * static_cast<std::size_t>(first), first)));
    b.push_back(start(*mapped, request(20 + 5 * static_cast<std::size_t>(first), first)));
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i]->wait().reason, FinishReason::length);
    b[i]->wait();
    EXPECT_EQ(a[i]->tokens(), b[i]->tokens());
  }
  EXPECT_GT(slow->counters().ngram_tables[0].rows.wait_seconds, 0);
}

TEST_F(NgramTable, AnEngineEndsWithReadsInFlight) {
  FaultyFileSystem files(
      model_->files, [](const FaultyFileSystem::Call& call) { return call.size; },
      [](std::uint64_t, std::size_t) -> Fault { return {.delay = std::chrono::milliseconds(20)}; });
  auto engine = open(files, TableMode::direct);
  const auto answer = start(*engine, request(60, 1));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  engine.reset();
  EXPECT_EQ(answer->times_finished(), 1);
}

}  // namespace
}  // namespace strata
