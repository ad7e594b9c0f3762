// What a process may have, read from made-up machines.
#include "base/memory.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

class Memory : public testing::Test {
 protected:
  void put(const std::string& path, std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    files_.put(path, Bytes(bytes.begin(), bytes.end()));
  }
  void machine(std::uint64_t total_gib, std::uint64_t available_gib) {
    put("/proc/meminfo",
        fmt::format("MemTotal:       {} kB\nMemFree:        1 kB\nMemAvailable:   {} kB\n",
                    total_gib * kGiB / 1024, available_gib * kGiB / 1024));
  }
  MachineMemory read() { return read_machine_memory(files_); }

  MemoryFileSystem files_;
};

TEST_F(Memory, WithoutGroups) {
  machine(64, 60);
  EXPECT_EQ(read().total, 64 * kGiB);
  EXPECT_EQ(read().left(), 60 * kGiB);
  EXPECT_FALSE(read().group_limit);
}

TEST_F(Memory, NothingIsKnown) {
  EXPECT_EQ(read().left(), 0u);
  put("/proc/meminfo", "MemTotal: lots\nMemAvailable:\n");
  put("/proc/self/cgroup", "nonsense\n::\n4:memory\n");
  EXPECT_EQ(read().left(), 0u);
}

TEST_F(Memory, OldKernelsSayWhatIsFreeAndCached) {
  put("/proc/meminfo", "MemTotal:  8192 kB\nMemFree:  1000 kB\nBuffers: 5 kB\nCached:  2000 kB\n");
  EXPECT_EQ(read().left(), 3000u * 1024);
}

TEST_F(Memory, Version2TheStrictestOfTheGroupAndThoseAboveIt) {
  machine(64, 60);
  put("/proc/self/cgroup", "0::/user/strata\n");
  put("/sys/fs/cgroup/user/strata/memory.max", "max\n");
  put("/sys/fs/cgroup/user/memory.max", fmt::format("{}\n", 8 * kGiB));
  put("/sys/fs/cgroup/user/memory.current", fmt::format("{}\n", 3 * kGiB));
  put("/sys/fs/cgroup/user/memory.stat",
      fmt::format("anon 5\ninactive_file {}\nactive_file {}\n", kGiB / 2, kGiB / 2));
  EXPECT_EQ(read().group_limit, 8 * kGiB);
  EXPECT_EQ(read().left(), 6 * kGiB);  // files that can be read again count as free
}

TEST_F(Memory, Version1AndItsWordForNoLimit) {
  machine(64, 60);
  put("/proc/self/cgroup", "4:cpu:/x\n5:memory:/box\n0::/\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(read().left(), 60 * kGiB);
  put("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", fmt::format("{}\n", 4 * kGiB));
  put("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", fmt::format("{}\n", kGiB));
  EXPECT_EQ(read().left(), 3 * kGiB);
}

// A container sees the path that it has outside; inside, the root is its group.
TEST_F(Memory, AContainersRootIsItsGroup) {
  machine(64, 60);
  put("/proc/self/cgroup", "5:cpuacct,memory:/docker/abc\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", fmt::format("{}\n", 2 * kGiB));
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", fmt::format("{}\n", 3 * kGiB));
  EXPECT_EQ(read().group_left, 0u);
  EXPECT_EQ(read().left(), 0u);
}

TEST(OccupiedMemory, GrowsWithWhatIsTouched) {
  const std::uint64_t before = occupied_memory();
  EXPECT_GT(before, 0u);
  const std::vector<char> much(std::size_t{64} << 20, 1);
  EXPECT_GT(occupied_memory(), before + much.size() / 2);
}

}  // namespace
}  // namespace strata
