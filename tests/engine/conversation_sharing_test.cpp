// Several stores on one folder at a time, in one process and in several, and processes that die in
// the middle of writing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <thread>

#include "tests/engine/conversation_fixture.h"

extern char** environ;

namespace strata::conversations {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// Room for a few of the conversations only.
constexpr std::uint64_t kTight = 40 * 4096;

ConversationFilesOptions options_for(const std::string& folder, std::uint64_t budget = kTight) {
  ConversationFilesOptions options;
  options.folder = folder;
  options.budget_bytes = budget;
  options.shape = small_shape();
  options.rescan_after = 5ms;
  options.retry_after = 5ms;
  return options;
}

std::unique_ptr<ConversationFiles> open(const ConversationFilesOptions& options) {
  auto store = ConversationFiles::open(options);
  EXPECT_TRUE(store) << store.error().message;
  return store ? std::move(*store) : nullptr;
}

std::uint64_t bytes_in(const std::string& folder) {
  std::uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder))
    bytes += (entry.file_size() + 4095) / 4096 * 4096;
  return bytes;
}

pid_t start_worker(const std::string& folder, std::uint64_t seed, int milliseconds,
                   std::uint64_t budget, const std::string& output) {
  std::vector<std::string> words = {STRATA_HELPER_CONVERSATION_WORKER, folder, std::to_string(seed),
                                    std::to_string(milliseconds), std::to_string(budget)};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t pid = -1;
  const int error =
      ::posix_spawn(&pid, words[0].c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(error, 0);
  return pid;
}

int exit_of(pid_t pid) {
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(ConversationSharing, WhatOneProcessSavesAnotherFinds) {
  TemporaryFolder folder;
  auto one = open(options_for(folder.path())), two = open(options_for(folder.path()));
  const Tokens tokens = of_conversation(3, 22);
  one->save(make_point(tokens));
  for (int i = 0; i < 1000 && two->longest(tokens + Tokens{1}) == 0; ++i)
    std::this_thread::sleep_for(5ms);
  EXPECT_EQ(two->longest(tokens + Tokens{1}), 22u);
  // The other's pages are not written again.
  two->save(make_point(of_conversation(3, 26)));
  ASSERT_TRUE(two->flush(60s));
  EXPECT_EQ(two->counters().written_bytes,
            page_file_bytes(small_shape()) + point_file_bytes(small_shape(), 26));
  one->forget(tokens);
  for (int i = 0; i < 1000 && two->longest(tokens + Tokens{1}) != 0; ++i)
    std::this_thread::sleep_for(5ms);
  EXPECT_EQ(two->longest(tokens + Tokens{1}), 0u);
}

TEST(ConversationSharing, StoresOfOneProcessMeetInOneFolder) {
  TemporaryFolder folder;
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> loaded = 0, saved = 0, evicted = 0, damaged = 0;
  std::atomic<bool> right = true;
  for (std::uint64_t i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      const auto store = open(options_for(folder.path()));
      // Two threads at each store.
      std::thread second([&] {
        if (!work_at_random(*store, 2 * i, 1500ms)) right = false;
      });
      if (!work_at_random(*store, 2 * i + 1, 1500ms)) right = false;
      second.join();
      (void)store->flush(60s);
      const auto counters = store->counters();
      loaded += counters.loaded;
      saved += counters.saved;
      evicted += counters.evicted;
      damaged += counters.damaged;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(right);
  EXPECT_EQ(damaged, 0u);
  EXPECT_GT(loaded, 10u);
  EXPECT_GT(saved, 10u);
  EXPECT_GT(evicted, 0u);
  open(options_for(folder.path()))->flush(60s);
  EXPECT_LE(bytes_in(folder.path()), kTight);
}

TEST(ConversationSharing, ProcessesMeetInOneFolder) {
  TemporaryFolder folder, outputs;
  std::vector<pid_t> workers;
  for (std::uint64_t i = 0; i < 3; ++i) {
    workers.push_back(
        start_worker(folder.path(), i, 1500, kTight, outputs.path() + "/" + std::to_string(i)));
  }
  for (const pid_t worker : workers) EXPECT_EQ(exit_of(worker), 0);
  std::uint64_t saved = 0, loaded = 0, evicted = 0, damaged = 0;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    const std::string text =
        real_files().read_text(outputs.path() + "/" + std::to_string(i)).value();
    unsigned long long counts[4] = {};
    ASSERT_EQ(std::sscanf(text.c_str(), "%llu %llu %llu %llu", &counts[0], &counts[1], &counts[2],
                          &counts[3]),
              4);
    saved += counts[0];
    loaded += counts[1];
    evicted += counts[2];
    damaged += counts[3];
  }
  EXPECT_GT(saved, 10u);
  EXPECT_GT(loaded, 10u);
  EXPECT_GT(evicted, 0u);
  EXPECT_EQ(damaged, 0u);
}

TEST(ConversationSharing, KilledWritersLeaveAUsableFolder) {
  TemporaryFolder folder, outputs;
  std::mt19937 random(5);
  for (std::uint64_t i = 0; i < 40; ++i) {
    const pid_t worker = start_worker(folder.path(), i, 60'000, kTight, outputs.path() + "/output");
    std::this_thread::sleep_for(std::chrono::microseconds(2'000 + random() % 60'000));
    ASSERT_EQ(::kill(worker, SIGKILL), 0);
    ASSERT_EQ(exit_of(worker), -SIGKILL) << "it ended before: something loaded was wrong";
  }
  const auto store = open(options_for(folder.path(), 1u << 30));
  EXPECT_TRUE(work_at_random(*store, 99, 300ms));
  ASSERT_TRUE(store->flush(60s));
  EXPECT_EQ(store->counters().damaged, 0u);
  // Whatever the index offers can be loaded.
  for (std::uint32_t which = 0; which < 8; ++which) {
    for (std::size_t count = 1; count <= 41; ++count) {
      const Tokens prompt = of_conversation(which, count);
      const std::uint32_t offered = store->longest(prompt);
      if (offered == 0) continue;
      std::promise<void> ready;
      const auto load = store->load(prompt, [&] { ready.set_value(); });
      ready.get_future().wait();
      const auto point = load->take();
      ASSERT_TRUE(point) << point.error().message;
      EXPECT_EQ(point->tokens.size(), offered);
      EXPECT_TRUE(same_point(*point, of_conversation(which, offered)));
    }
  }
  EXPECT_GT(store->counters().loaded, 0u);
}

}  // namespace
}  // namespace strata::conversations
