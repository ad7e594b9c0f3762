// Conversations on the disk as a client of the engine sees them: what is asked after a restart gets
// the answers of an engine that never had a cache, whatever happened to the files in between.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <random>
#include <thread>

#include "base/log.h"
#include "tests/engine/answers.h"
#include "tests/engine/conversation_fixture.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using namespace test;
using conversations::TemporaryFolder;
using testing::HasSubstr;

constexpr TokenId kTurn = 257;  // <|im_start|>

class Restart : public testing::Test {
 protected:
  void SetUp() override {
    model_ = tiny_draft_model();
    ASSERT_NE(model_, nullptr);
    EngineOptions options = without_drafts_and_cache();
    options.model_path = "model.gguf";
    auto engine = Engine::open(model_->files, options);
    ASSERT_TRUE(engine) << engine.error().message;
    reference_ = std::move(*engine);
  }

  EngineOptions with_folder() const {
    EngineOptions options;
    options.model_path = "model.gguf";
    options.threads = 1;
    options.cache.ram_bytes = std::uint64_t{16} << 20;
    options.cache.folder = folder_.path();
    options.cache.gap = 1;
    return options;
  }
  std::unique_ptr<Engine> open(const EngineOptions& options) {
    auto engine = Engine::open(model_->files, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }

  std::vector<TokenId> text(std::size_t length) {
    std::vector<TokenId> ids;
    const std::size_t period = 3 + random_() % 20;
    for (std::size_t i = 0; i < length; ++i) {
      ids.push_back(i >= period && random_() % 6 != 0 ? ids[i - period]
                                                      : static_cast<TokenId>(random_() % 250));
    }
    return ids;
  }
  // `before`, a question and the opening of the answer.
  std::vector<TokenId> turn(const std::vector<TokenId>& before, std::size_t length) {
    return before + std::vector{kTurn} + text(length) + std::vector<TokenId>{kTurn, 1, 3};
  }
  Request request(const std::vector<TokenId>& prompt, std::uint32_t answer = 12) {
    Request r;
    r.prompt = prompt;
    r.max_tokens = answer;
    if (random_() % 2 == 0) r.sampling = {0.8f, 40, 0.95f, 0, random_()};
    return r;
  }
  // Asks, and compares with the answer of an engine without caches.
  Answer ask(Engine& engine, const Request& r) {
    Answer answer = run(engine, r);
    EXPECT_EQ(answer, run(*reference_, r))
        << "a prompt of " << r.prompt.size() << ", " << answer.completion.cached_tokens
        << " cached, " << answer.completion.cached_disk_tokens << " of the disk";
    return answer;
  }

  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder_.path())) found.push_back(entry.path());
    std::ranges::sort(found);
    return found;
  }

  std::mt19937 random_{31};
  std::unique_ptr<Converted> model_;
  std::unique_ptr<Engine> reference_;
  TemporaryFolder folder_;
};

// Several turns after each restart: what the first one leaves must be as right as what it found.
TEST_F(Restart, EveryTurnAfterItEqualsAFreshOne) {
  for (const std::optional<std::uint32_t> drafts :
       {std::optional(0u), std::optional<std::uint32_t>(), std::optional(3u), std::optional(15u)}) {
    EngineOptions options = with_folder();
    options.drafts.depth = drafts;
    std::vector<TokenId> before = {kTurn, 5};
    for (int start = 0; start < 6; ++start) {
      options.prompt_chunk = start % 2 == 0 ? 512 : 5;
      const auto engine = open(options);
      for (int asked = 0; asked < 4; ++asked) {
        const std::vector<TokenId> prompt = turn(before, 1 + random_() % 30);
        const Answer answer =
            ask(*engine, request(prompt, static_cast<std::uint32_t>(1 + random_() % 20)));
        const Completion& done = answer.completion;
        if (start + asked > 0) {
          // All but the question, and the last token of the answer before it.
          EXPECT_GE(done.cached_tokens + 1, before.size());
        }
        EXPECT_EQ(done.cached_disk_tokens, start > 0 && asked == 0 ? done.cached_tokens : 0u);
        before = prompt + answer.tokens;
      }
    }
    EXPECT_GT(before.size(), 400u);  // over several pages
  }
}

// What only the disk has is found there, also while the engine runs.
TEST_F(Restart, WhatMemoryHasNoRoomForComesFromTheDisk) {
  EngineOptions options = with_folder();
  options.cache.ram_bytes = 1;
  const auto engine = open(options);
  std::vector<std::vector<TokenId>> talks(5);
  std::uint64_t from_disk = 0;
  for (int i = 0; i < 40; ++i) {
    std::vector<TokenId>& talk = talks[random_() % talks.size()];
    talk = turn(talk.empty() ? text(40) : talk, 1 + random_() % 20);
    const Answer answer = ask(*engine, request(talk));
    talk = talk + answer.tokens;
    if (talk.size() > 300) talk.clear();
    from_disk += answer.completion.cached_disk_tokens;
  }
  EXPECT_GT(from_disk, 1000u);
  EXPECT_EQ(engine->counters().cache.disk_tokens, from_disk);
}

// Files of another type of keys and values are never applied: they cost a line, and the prompt is
// read again.
TEST_F(Restart, AnotherTypeOfKeysAndValuesIsAMissAndALine) {
  const std::vector<TokenId> prompt = turn(text(150), 20);
  for (const KvType type : kKvTypes) {
    EngineOptions options = with_folder();
    options.kv_type = type;
    const auto engine = open(options);
    const Answer first = run(*engine, request(prompt));
    EXPECT_EQ(first.completion.cached_disk_tokens, 0u) << to_string(type);
  }
  for (const KvType type : kKvTypes) {  // and each finds its own
    EngineOptions options = with_folder();
    options.kv_type = type;
    testing::internal::CaptureStderr();
    const auto engine = open(options);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_THAT(log, HasSubstr("are another model's, or of another kv_type, and are not used"));
    EXPECT_EQ(std::ranges::count(log, '\n'), 1) << log;
    const Answer again = run(*engine, request(turn(prompt, 5)));
    EXPECT_GE(again.completion.cached_disk_tokens, 170u) << to_string(type);
    options = without_drafts_and_cache();
    options.model_path = "model.gguf";
    options.kv_type = type;
    const Request r = request(prompt);
    EXPECT_EQ(run(*engine, r), run(*open(options), r)) << to_string(type);
  }
}

TEST_F(Restart, EnginesMeetInOneFolder) {
  std::vector<std::vector<TokenId>> talks;
  for (int i = 0; i < 4; ++i) talks.push_back(text(100));
  std::vector<std::vector<TokenId>> prompts;
  for (int i = 0; i < 60; ++i) {
    auto talk = talks[random_() % talks.size()];
    talk.resize(40 + random_() % 60);
    prompts.push_back(turn(talk, random_() % 10));
  }
  std::vector<Request> requests;
  std::vector<Answer> expected;
  for (const auto& prompt : prompts) {
    requests.push_back(request(prompt, 5));
    expected.push_back(run(*reference_, requests.back()));
  }
  EngineOptions options = with_folder();
  options.cache.ram_bytes = 1;
  options.cache.disk_bytes = 1 << 20;
  set_log_level(LogLevel::error);  // one removes what the other is about to use, and says so
  std::atomic<std::uint64_t> from_disk{0};
  const auto client = [&](std::uint32_t seed) {
    std::mt19937 random(seed);
    for (int round = 0; round < 3; ++round) {
      const auto engine = open(options);
      for (int i = 0; i < 30; ++i) {
        const std::size_t which = random() % requests.size();
        const Answer answer = run(*engine, requests[which]);
        EXPECT_EQ(answer, expected[which]);
        from_disk += answer.completion.cached_disk_tokens;
      }
    }
  };
  std::thread one(client, 1), two(client, 2);
  one.join();
  two.join();
  set_log_level(LogLevel::info);
  EXPECT_GT(from_disk, 0u);
}

// --- damage ---

// Asks for the next turn with a folder in which `change` did something; the log lines it cost.
class DamagedFolder : public Restart {
 protected:
  void SetUp() override {
    Restart::SetUp();
    {
      const auto engine = open(with_folder());
      const std::vector<TokenId> first = turn({}, 150);
      next_ = request(turn(first + ask(*engine, request(first)).tokens, 20), 4);
    }
    expected_ = run(*reference_, next_);
    for (const fs::path& file : files()) {
      std::ifstream in(file, std::ios::binary);
      contents_[file] = {std::istreambuf_iterator<char>(in), {}};
    }
    ASSERT_GE(contents_.size(), 3u);  // pages and a point
  }

  void write(const fs::path& file, const std::string& content) const {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << content;
  }
  void restore() const {
    for (const fs::path& file : files()) fs::remove_all(file);
    for (const auto& [file, content] : contents_) write(file, content);
  }
  // Lines in the log. What is damaged may be what a shorter beginning needs, or a longer one.
  std::size_t lines_of_next_turn() {
    testing::internal::CaptureStderr();
    {
      const auto engine = open(with_folder());
      const Answer answer = run(*engine, next_);
      EXPECT_EQ(answer, expected_);
      cached_ = answer.completion.cached_tokens;
      // And the one after it, from what that left.
      Request after = next_;
      after.prompt = next_.prompt + answer.tokens + std::vector<TokenId>{kTurn, 9, 9};
      EXPECT_EQ(run(*engine, after), run(*reference_, after));
    }
    log_ = testing::internal::GetCapturedStderr();
    return static_cast<std::size_t>(std::ranges::count(log_, '\n'));
  }

  Request next_;
  Answer expected_;
  std::map<fs::path, std::string> contents_;
  std::string log_;
  std::uint32_t cached_ = 0;  // of the next turn
};

TEST_F(DamagedFolder, AnyByteOfAnyFileIsAMissAndALine) {
  restore();
  const auto whole = static_cast<std::uint32_t>(next_.prompt.size() - 20 - 4 - 1);
  EXPECT_EQ(lines_of_next_turn(), 0u) << log_;
  EXPECT_EQ(cached_, whole);
  std::size_t missed = 0, all = 0;
  for (const auto& [file, content] : contents_) {
    std::vector<std::size_t> places;
    for (std::size_t at = 0; at < 128; at += 8) places.push_back(at + random_() % 8);
    for (int i = 0; i < 8; ++i) places.push_back(128 + random_() % (content.size() - 128));
    places.push_back(content.size() - 1);
    for (const std::size_t at : places) {
      restore();
      std::string damaged = content;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << random_() % 8));
      write(file, damaged);
      const std::size_t lines = lines_of_next_turn();
      EXPECT_LE(lines, 1u) << file << " at " << at << ": " << log_;
      EXPECT_TRUE(lines == 1 || cached_ == whole) << file << " at " << at;
      missed += cached_ < whole;
      ++all;
    }
  }
  EXPECT_GT(missed, all / 2);
}

TEST_F(DamagedFolder, CutSwappedMissingAndForeignFilesAreAMiss) {
  for (const auto& [file, content] : contents_) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{127},
                                   std::size_t{128}, content.size() / 2, content.size() - 1}) {
      restore();
      write(file, content.substr(0, size));
      EXPECT_LE(lines_of_next_turn(), 1u) << file << " of " << size << ": " << log_;
    }
    restore();
    write(file, content + "x");
    EXPECT_LE(lines_of_next_turn(), 1u) << log_;
    restore();
    fs::remove(file);
    EXPECT_LE(lines_of_next_turn(), 1u) << log_;
    restore();
    fs::rename(file, folder_.path() + "/elsewhere");
    fs::create_symlink(folder_.path() + "/elsewhere", file);
    // Another line says that nothing is saved there.
    EXPECT_LE(lines_of_next_turn(), 2u) << log_;
    for (const auto& [other, others] : contents_) {
      if (other == file) continue;
      restore();
      write(file, others);
      EXPECT_LE(lines_of_next_turn(), 1u) << log_;
    }
  }
}

// No file may grow beyond a limit: as a full disk, and without rights that tests do not have.
TEST_F(Restart, ADiskThatTakesNothingMoreCostsALine) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  testing::internal::CaptureStderr();
  {
    EngineOptions options = with_folder();
    options.cache.ram_bytes = 1;
    const auto engine = open(options);
    std::vector<TokenId> talk = turn(text(100), 10);
    talk = talk + ask(*engine, request(talk)).tokens;
    const rlimit limit = {1000, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int i = 0; i < 5; ++i) {
      talk = turn(talk, 20);
      talk = talk + ask(*engine, request(talk)).tokens;
    }
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(log, '\n'), 1) << log;
}

TEST_F(Restart, AnImpossibleFolderCostsALine) {
  EngineOptions options = with_folder();
  options.cache.folder = folder_.path() + "/file";
  std::ofstream(options.cache.folder) << "x";
  testing::internal::CaptureStderr();
  const auto engine = open(options);
  ask(*engine, request(turn({}, 20)));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("conversations are not kept on the disk"));
}

}  // namespace
}  // namespace strata
