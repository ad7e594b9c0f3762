// Experts in a memory budget, seen from requests: the same answers, errors that stay with those who
// met them, and starts that run out of memory.
#include <gmock/gmock.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "tests/engine/answers.h"
#include "tests/engine/conversation_fixture.h"

namespace strata {
namespace {

using namespace test;
using testing::HasSubstr;

class ExpertBudget : public testing::Test {
 protected:
  static EngineOptions options(const char* experts) {
    EngineOptions o;
    o.model_path = STRATA_SOURCE_DIR "/models/demo/strata-demo-46m.gguf";
    o.threads = 2;
    o.cache.ram_bytes = 0;
    o.expert_ram = *expert_ram_from(experts);
    return o;
  }
  static std::unique_ptr<Engine> open(FileSystem& files, const EngineOptions& options) {
    auto engine = Engine::open(files, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }
  static Request request(const Engine& engine, std::uint32_t tokens = 40) {
    Request r;
    r.prompt = engine.tokenizer().encode(
        "Once upon a time there was a small library at the end of the street.", Specials::none);
    r.max_tokens = tokens;
    return r;
  }
};

TEST_F(ExpertBudget, TheSameAnswersWithAndWithoutDrafts) {
  const auto all = open(real_files(), options("all"));
  const Answer expected = run(*all, request(*all));
  EXPECT_GT(all->counters().experts.pinned_hits, 0u);
  EXPECT_EQ(all->counters().experts.resident_bytes, all->counters().experts.total_bytes);
  for (const char* experts : {"99%", "50%", "25%", "10%"}) {
    for (const std::optional<std::uint32_t> depth : {std::optional(0u), std::optional(3u)}) {
      EngineOptions o = options(experts);
      o.drafts.depth = depth;
      const auto engine = open(real_files(), o);
      EXPECT_EQ(run(*engine, request(*engine)), expected) << experts;
      const ExpertCounters counters = engine->counters().experts;
      EXPECT_GT(counters.core_hits + counters.recent_hits, 0u) << experts;
      EXPECT_GT(counters.read_bytes, 0u) << experts;
      EXPECT_EQ(counters.pinned_hits, 0u);
      EXPECT_LT(counters.resident_bytes, counters.total_bytes * 3 / 2);
    }
  }
}

TEST_F(ExpertBudget, AReadErrorFailsOneRequestAndTheNextWorks) {
  std::atomic<bool> broken = false;
  FaultyFileSystem files(
      real_files(),
      [&](const FaultyFileSystem::Call& call) -> Result<std::size_t> {
        if (broken && call.operation == FaultyFileSystem::Operation::read)
          return fail(ErrorCode::io, "the disk is gone");
        return call.size;
      },
      [&](std::uint64_t, std::size_t) {
        FaultyFileSystem::QueuedFault fault;
        if (broken) fault.error = EIO;
        return fault;
      });
  const auto engine = open(files, options("10%"));
  const Answer before = run(*engine, request(*engine));
  broken = true;
  const Completion failed = run(*engine, request(*engine)).completion;
  EXPECT_EQ(failed.reason, FinishReason::error);
  EXPECT_THAT(failed.error.message, HasSubstr("of layer"));
  EXPECT_THAT(failed.error.message, HasSubstr("the disk is gone"));
  EXPECT_GT(engine->counters().experts.failed, 0u);
  broken = false;
  EXPECT_EQ(run(*engine, request(*engine)), before);
}

TEST_F(ExpertBudget, ABudgetThatIsTooSmallIsRefused) {
  EngineOptions o = options("1%");
  const auto engine = Engine::open(real_files(), o);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::exhausted);
  EXPECT_THAT(engine.error().message, HasSubstr("is the least"));
}

// Every 37th allocation of a start fails once, or each one (STRATA_ALLOCATION_STEP=1).
TEST(OutOfMemory, AStartIsAnEngineOrASentence) {
  const auto model = test::tiny_draft_model();
  ASSERT_NE(model, nullptr);
  const conversations::TemporaryFolder folder;
  const std::string path = folder.path() + "/model.gguf";
  auto file = real_files().create(path);
  ASSERT_TRUE(file);
  ASSERT_TRUE((*file)->write(*model->files.get("model.gguf")));
  ASSERT_TRUE((*file)->finish());
  const char* step = std::getenv("STRATA_ALLOCATION_STEP");
  const std::string command = fmt::format("{} {} {} {}", STRATA_HELPER_OUT_OF_MEMORY, path,
                                          folder.path(), step ? step : "37");
  std::FILE* program = ::popen(command.c_str(), "r");
  ASSERT_NE(program, nullptr);
  long failures = 0;
  EXPECT_EQ(std::fscanf(program, "%ld", &failures), 1);
  EXPECT_EQ(::pclose(program), 0);
  EXPECT_GT(failures, 100);
}

}  // namespace
}  // namespace strata
