// Pages that are given ahead: in place, with what they held, and no longer than wanted.
#include "base/pages_ahead.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <thread>

namespace strata {
namespace {

class PagesAheadTest : public testing::Test {
 protected:
  static constexpr std::size_t kSize = std::size_t{32} << 20, kPage = 4096;
  void SetUp() override {
    void* start =
        ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(start, MAP_FAILED);
    memory_ = {static_cast<std::byte*>(start), kSize};
  }
  void TearDown() override { ::munmap(memory_.data(), kSize); }
  std::size_t resident() {
    std::vector<unsigned char> pages(kSize / kPage);
    EXPECT_EQ(::mincore(memory_.data(), kSize, pages.data()), 0);
    std::size_t count = 0;
    for (const unsigned char page : pages) count += page & 1;
    return count;
  }
  std::span<std::byte> memory_;
};

TEST_F(PagesAheadTest, PlacesGetTheirPagesAndKeepWhatTheyHold) {
  if (::madvise(memory_.data(), kPage, 23 /* MADV_POPULATE_WRITE */) != 0)
    GTEST_SKIP() << "this kernel gives no pages ahead";
  std::memset(memory_.data() + kPage, 0x5a, 3 * kPage);
  {
    const PagesAhead ahead({memory_.first(kSize / 2), memory_.subspan(kSize / 2 + 100, 5000)});
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (resident() < kSize / 2 / kPage + 2 && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(resident(), kSize / 2 / kPage + 2);
  for (std::size_t at = 0; at < kSize; at += kPage / 2)
    EXPECT_EQ(memory_[at], at / kPage >= 1 && at / kPage < 4 ? std::byte{0x5a} : std::byte{0});
}

TEST_F(PagesAheadTest, EndsWheneverItMust) {
  for (int i = 0; i < 20; ++i) {
    const PagesAhead ahead({memory_, memory_});
  }
  const PagesAhead none({});
}

}  // namespace
}  // namespace strata
