// Memory for all that a request may become is there before it starts: it waits for others, or is
// refused with the numbers.
#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "tests/engine/answers.h"
#include "tests/engine/conversation_fixture.h"

namespace strata {
namespace {

using namespace test;
using testing::HasSubstr;
using testing::MatchesRegex;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kFloor = 128 * kMiB;  // what the engine leaves to others

class Memory : public testing::Test {
 protected:
  std::unique_ptr<Engine> open(EngineOptions options = {}) {
    options.model_path = STRATA_SOURCE_DIR "/models/demo/strata-demo-46m.gguf";
    options.threads = 1;
    options.test_memory = [this] { return kFloor + free_; };
    if (!options.cache.ram_bytes) options.cache.ram_bytes = 0;
    auto engine = Engine::open(real_files(), options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }
  static Request request(std::uint32_t tokens, TokenId first = 7) {
    Request r;
    r.prompt.assign(200, first);
    r.max_tokens = tokens - 200;
    return r;
  }
  static std::uint32_t open_requests(const Engine& engine) {
    return engine.counters().running + engine.counters().waiting;
  }
  // What a request of so many tokens needs, from the sentence that refuses it.
  std::uint64_t needed(Engine& engine, std::uint32_t tokens) {
    const std::uint64_t before = free_.exchange(0);
    const Completion completion = run(engine, request(tokens)).completion;
    free_ = before;
    EXPECT_EQ(completion.reason, FinishReason::error);
    EXPECT_EQ(completion.error.code, ErrorCode::exhausted);
    unsigned said = 0, mib = 0;
    EXPECT_EQ(std::sscanf(completion.error.message.c_str(),
                          "%u tokens of prompt and answer need %u MiB of memory and 0 are free",
                          &said, &mib),
              2)
        << completion.error.message;
    EXPECT_EQ(said, tokens);
    return mib * kMiB;
  }

  std::atomic<std::uint64_t> free_{1024 * kMiB};
};

TEST_F(Memory, WhatCouldNeverStartIsRefusedWithTheNumbers) {
  const auto engine = open();
  const std::uint64_t need = needed(*engine, 8000);
  EXPECT_GT(need, 10 * kMiB);
  free_ = need / 2;
  const Completion refused = run(*engine, request(8000)).completion;
  EXPECT_EQ(refused.reason, FinishReason::error);
  EXPECT_THAT(refused.error.message,
              MatchesRegex("8000 tokens of prompt and answer need [0-9]+ MiB of memory and [0-9]+ "
                           "are free; ask for fewer tokens, or start with a smaller --ctx"));
  // A smaller one is served, and so is the same one when there is memory.
  EXPECT_EQ(run(*engine, request(220)).completion.reason, FinishReason::length);
  free_ = need;
  const auto heard = submit(*engine, request(8000));
  heard->wait_for_tokens(1);
  EXPECT_EQ(open_requests(*engine), 1u);
}

TEST_F(Memory, WhatFitsAloneWaitsForOthers) {
  const auto engine = open();
  free_ = needed(*engine, 8000) + kMiB;
  auto one = std::make_shared<Collector>();
  const auto id = engine->submit(request(8000), one);
  ASSERT_TRUE(id);
  one->wait_for_tokens(1);
  const auto two = submit(*engine, request(7000, 8));
  const auto three = submit(*engine, request(220, 9));  // would fit, but comes later
  one->wait_for_tokens(50);
  EXPECT_EQ(engine->counters().running, 1u);
  EXPECT_EQ(engine->counters().waiting, 2u);
  EXPECT_GT(engine->counters().reserved_bytes, 0u);
  engine->cancel(*id);
  EXPECT_EQ(one->wait().reason, FinishReason::cancelled);
  two->wait_for_tokens(1);
  EXPECT_EQ(three->wait().reason, FinishReason::length);
}

TEST_F(Memory, ConversationsMakeRoom) {
  const conversations::TemporaryFolder folder;
  EngineOptions options;
  options.cache.folder = folder.path();
  options.cache.ram_bytes = 64 * kMiB;
  const auto engine = open(options);
  run(*engine, request(210));
  EXPECT_GT(engine->counters().cache.checkpoints, 0u);
  free_ = 0;
  EXPECT_EQ(run(*engine, request(210, 8)).completion.reason, FinishReason::error);
  EXPECT_EQ(engine->counters().cache.checkpoints, 0u);
  EXPECT_EQ(engine->counters().cache.bytes, 0u);
  EXPECT_GT(engine->counters().cache.evicted, 0u);
}

// When a request ends, there is memory.
class Frees final : public Listener {
 public:
  explicit Frees(std::atomic<std::uint64_t>& free) : free_(free) {}
  void token(TokenId id) override { heard_.token(id); }
  void finished(const Completion& completion) override {
    free_ = 1024 * kMiB;
    heard_.finished(completion);
  }
  Collector& heard() { return heard_; }

 private:
  std::atomic<std::uint64_t>& free_;
  Collector heard_;
};

// A request whose beginning came from the disk and for which there was no memory then starts when
// the last other one has ended, although nothing else happens.
TEST_F(Memory, WhatCameFromTheDiskWaitsForOthersToo) {
  const conversations::TemporaryFolder folder;
  EngineOptions options;
  options.cache.folder = folder.path();
  options.cache.ram_bytes = 64 * kMiB;
  Request next = request(300);
  {
    const auto engine = open(options);
    next.prompt = next.prompt + run(*engine, request(210)).tokens + std::vector<TokenId>{11};
  }
  const auto engine = open(options);
  const auto one = std::make_shared<Frees>(free_);
  ASSERT_TRUE(engine->submit(request(700, 9), one));
  one->heard().wait_for_tokens(1);
  free_ = 0;
  const auto two = submit(*engine, next);
  one->heard().wait_for_tokens(200);
  EXPECT_EQ(open_requests(*engine), 2u);
  EXPECT_EQ(two->tokens().size(), 0u);
  EXPECT_EQ(one->heard().wait().reason, FinishReason::length);
  const Completion done = two->wait();
  EXPECT_EQ(done.reason, FinishReason::length);
  EXPECT_GT(done.cached_disk_tokens, 200u);
}

// A beginning that the disk turns out not to have is not counted as had: what was to be written
// after it has no room, and the request says so instead of taking it.
TEST_F(Memory, WhatTheDiskHasOnlyInDamagedFilesNeedsRoom) {
  const conversations::TemporaryFolder folder;
  EngineOptions options;
  options.cache.folder = folder.path();
  options.cache.ram_bytes = 64 * kMiB;
  Request next = request(1640);
  {
    const auto engine = open(options);
    Request first = request(1610);
    next.prompt = next.prompt + run(*engine, first).tokens + std::vector<TokenId>{11};
    next.max_tokens = 20;
  }
  const auto total = static_cast<std::uint32_t>(next.prompt.size()) + next.max_tokens;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().extension() != ".page") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x55');
  }
  const auto engine = open(options);
  // Room for what comes after the beginning, and not for all of it.
  free_ = needed(*engine, total) / 2;
  const Completion done = run(*engine, next).completion;
  EXPECT_EQ(done.reason, FinishReason::error);
  EXPECT_EQ(done.error.code, ErrorCode::exhausted) << done.error.message;
  free_ = 1024 * kMiB;
  const Answer answer = run(*engine, next);
  EXPECT_EQ(answer.completion.reason, FinishReason::length);
  EXPECT_EQ(answer.completion.cached_disk_tokens, 0u);
}

}  // namespace
}  // namespace strata
