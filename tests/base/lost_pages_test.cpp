// A mapped file that becomes shorter while it is in use.
#include "base/lost_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <numeric>

#include "base/file.h"

namespace strata {
namespace {

using testing::HasSubstr;

class LostPages : public testing::Test {
 protected:
  static constexpr std::size_t kSize = 64 * 4096;

  void SetUp() override {
    path_ = fmt::format("{}strata-lost-pages-{}", testing::TempDir(), ::getpid());
    auto file = real_files().create(path_);
    ASSERT_TRUE(file) << file.error().message;
    ASSERT_TRUE((*file)->write(Bytes(kSize, std::byte{1})));
    ASSERT_TRUE((*file)->finish());
  }
  void TearDown() override { ::unlink(path_.c_str()); }

  std::shared_ptr<const Mapping> map() { return real_files().open(path_).value()->map().value(); }
  void cut(std::size_t size) { ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(size)), 0); }
  static unsigned sum(const Mapping& mapping) {
    unsigned total = 0;
    for (const std::byte byte : mapping.bytes()) total += std::to_integer<unsigned>(byte);
    return total;
  }

  std::string path_;
};

TEST_F(LostPages, UnderAWatchReadAsZerosAndTheFileIsNamed) {
  const LostPagesWatch watch;
  {
    const auto mapping = map();
    EXPECT_EQ(sum(*mapping), kSize);
    EXPECT_EQ(lost_file(), std::nullopt);
    cut(4096 * 3);
    EXPECT_EQ(sum(*mapping), 4096u * 3);
    EXPECT_EQ(lost_file(), path_);
    EXPECT_EQ(sum(*mapping), 4096u * 3);
    const auto other = map();  // as long as the file is now
    EXPECT_EQ(sum(*other), 4096u * 3);
  }
  EXPECT_EQ(lost_file(), std::nullopt);
  const auto again = map();
  EXPECT_EQ(sum(*again), 4096u * 3);
}

TEST_F(LostPages, WithoutAWatchTheProgramEndsWithASentence) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        const auto mapping = map();
        cut(0);
        ::_exit(static_cast<int>(sum(*mapping)) + 7);
      },
      testing::ExitedWithCode(1),
      "strata: '.*strata-lost-pages-.*' cannot be read any more: it became shorter");
}

TEST_F(LostPages, OtherBusErrorsStayWhatTheyAre) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto die = [&] {
    const LostPagesWatch watch;
    const auto mapping = map();
    ::raise(SIGBUS);
    ::raise(SIGBUS);
  };
  EXPECT_DEATH(die(), "");
}

TEST_F(LostPages, ManyMappingsComeAndGo) {
  const LostPagesWatch watch;
  std::vector<std::shared_ptr<const Mapping>> mappings;
  for (int i = 0; i < 1200; ++i) mappings.push_back(map());
  mappings.erase(mappings.begin() + 1, mappings.end());
  cut(4096);
  EXPECT_EQ(sum(*mappings[0]), 4096u);
  EXPECT_EQ(lost_file(), path_);
}

}  // namespace
}  // namespace strata
