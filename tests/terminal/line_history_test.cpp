// The history file: what it holds, who may read it, what happens to broken ones.
#include "terminal/line_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace strata::terminal {
namespace {

using testing::ElementsAre;

class LineHistoryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "strata-history-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = (folder_ / "state/strata/history").string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static unsigned mode(const std::string& path) {
    struct stat status{};
    EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
    return status.st_mode & 0777;
  }
  LineHistory open() {
    auto history = LineHistory::open(path_);
    EXPECT_TRUE(history) << history.error().message;
    return std::move(*history);
  }

  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(LineHistoryTest, WhatWasTypedComesBack) {
  LineHistory history = open();
  for (const char* text : {"one", "two\nlines \\n and a backslash \\",
                           "two\nlines \\n and a backslash \\", " secret", "", "日本"})
    EXPECT_TRUE(history.add(text));
  EXPECT_THAT(open().entries(), ElementsAre("one", "two\nlines \\n and a backslash \\", "日本"));
  EXPECT_EQ(mode(path_), 0600u);
  EXPECT_EQ(mode((folder_ / "state/strata").string()), 0700u);
}

TEST_F(LineHistoryTest, OthersLoseTheirRights) {
  open();
  std::filesystem::permissions(path_, std::filesystem::perms(0644));
  open();
  EXPECT_EQ(mode(path_), 0600u);
}

TEST_F(LineHistoryTest, OldEntriesGo) {
  std::filesystem::create_directories(folder_ / "state/strata");
  {
    std::ofstream file(path_);
    for (int i = 0; i < 5000; ++i) file << "entry " << i << "\n";
  }
  const LineHistory history = open();
  ASSERT_EQ(history.entries().size(), LineHistory::kMostEntries);
  EXPECT_EQ(history.entries().back(), "entry 4999");
  EXPECT_LT(std::filesystem::file_size(path_), 20'000u);
  EXPECT_EQ(open().entries(), history.entries());
}

TEST_F(LineHistoryTest, ManyMayWriteAtOnce) {
  open();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      auto history = LineHistory::open(path_);
      for (int i = 0; i < 50; ++i) EXPECT_TRUE(history->add(std::to_string(t * 1000 + i)));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(open().entries().size(), 200u);
}

TEST_F(LineHistoryTest, WhatIsNoFileIsRefused) {
  std::filesystem::create_directories(folder_ / "state/strata");
  std::filesystem::create_symlink(folder_ / "elsewhere", path_);
  EXPECT_FALSE(LineHistory::open(path_));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "elsewhere"));
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_FALSE(LineHistory::open(path_));
}

TEST_F(LineHistoryTest, WhereItLies) {
  const auto path = [](const char* state, const char* home) {
    return LineHistory::usual_path(
        [=](const char* name) { return std::string_view(name) == "HOME" ? home : state; });
  };
  EXPECT_EQ(path("/x", "/h"), "/x/strata/history");
  EXPECT_EQ(path(nullptr, "/h"), "/h/.local/state/strata/history");
  EXPECT_EQ(path("relative", "/h"), "/h/.local/state/strata/history");
  EXPECT_EQ(path(nullptr, nullptr), "");
  EXPECT_TRUE(LineHistory::open("")->add("kept nowhere"));
}

}  // namespace
}  // namespace strata::terminal
