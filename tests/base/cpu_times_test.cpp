// What others take of the CPUs: from /proc/stat, less this process.
#include "base/cpu_times.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "base/clock.h"

namespace strata {
namespace {

void put(MemoryFileSystem& files, const std::string& text) {
  Bytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  files.put("/proc/stat", bytes);
}

// user, nice, system, idle, iowait, irq, softirq, steal in hundredths; two CPUs.
std::string stat_of(int user, int idle, int steal) {
  return "cpu  " + std::to_string(user) + " 0 0 " + std::to_string(idle) + " 900 0 0 " +
         std::to_string(steal) + " 0 0\ncpu0 1 2 3\ncpu1 1 2 3\nintr 5\n";
}

TEST(CpuWatch, counts_what_others_ran) {
  MemoryFileSystem files;
  put(files, stat_of(1000, 5000, 70));
  const CpuWatch watch(files);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  put(files, stat_of(1010, 5030, 80));  // 0.1 s of others and 0.1 s that the host took
  const auto share = watch.others_share();
  ASSERT_TRUE(share);
  // 0.2 s, less 0.02 that are forgiven, of 2 CPUs for at least 0.2 s; this process only slept.
  EXPECT_LE(*share, 0.18 / 0.4);
  EXPECT_GT(*share, 0.1);
}

TEST(CpuWatch, own_time_is_not_the_others) {
  MemoryFileSystem files;
  put(files, stat_of(1000, 5000, 0));
  const CpuWatch watch(files);
  const double start = monotonic_seconds();
  volatile unsigned spin = 0;
  while (monotonic_seconds() < start + 0.2) spin = spin + 1;
  put(files, stat_of(1005, 5000, 0));  // less than this process alone has spun
  const auto share = watch.others_share();
  ASSERT_TRUE(share);
  EXPECT_EQ(*share, 0);
}

TEST(CpuWatch, says_nothing_where_the_system_does_not) {
  MemoryFileSystem files;
  EXPECT_FALSE(CpuWatch(files).others_share());
  put(files, "nonsense");
  EXPECT_FALSE(CpuWatch(files).others_share());
  put(files, "cpu  1 2 3 4 5 6 7 8\n");  // no CPU of its own
  EXPECT_FALSE(CpuWatch(files).others_share());
}

}  // namespace
}  // namespace strata
