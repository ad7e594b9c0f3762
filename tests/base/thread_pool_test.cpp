#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/cpus.h"

namespace strata {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kRounds = 40'000;
#else
constexpr std::size_t kRounds = 1'000'000;
#endif

constexpr std::size_t kPartCounts[] = {0, 1, 2, 7, 100};

class ThreadPoolTest : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 4));

// Every part once and only once, in batches so short that late wakers meet later batches.
TEST_P(ThreadPoolTest, TinyBatchesRunEachPartOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.threads(), GetParam());
  std::vector<std::uint64_t> calls(100, 0);  // not atomic: a part run twice at once is a race
  std::vector<std::uint64_t> expected(100, 0);
  const std::size_t rounds = kRounds / std::size(kPartCounts);
  std::uint64_t current = 0;
  const std::function<void(std::size_t)> body = [&](std::size_t part) { calls[part] += current; };
  for (std::size_t round = 0; round < rounds; ++round) {
    for (const std::size_t parts : kPartCounts) {
      ++current;
      pool.run(parts, body);
      for (std::size_t part = 0; part < parts; ++part) expected[part] += current;
    }
    if (round % 1024 == 0) {
      ASSERT_EQ(calls, expected) << "in round " << round;
    }
    // Long enough for the workers to sleep, so that the next batch must wake them.
    if (round % 2048 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
  EXPECT_EQ(calls, expected);
}

TEST_P(ThreadPoolTest, NearPartsRunOnceEachAndAShareIsWorkedInOrder) {
  ThreadPool pool(GetParam());
  for (std::size_t round = 0; round < 2000; ++round) {
    const std::size_t parts = round % 97;
    std::vector<std::uint32_t> calls(parts, 0);
    pool.run_near(parts, [&](std::size_t part) { ++calls[part]; });
    ASSERT_EQ(calls, std::vector<std::uint32_t>(parts, 1)) << parts << " parts";
  }
  // One thread takes its share from the front.
  if (GetParam() == 1) {
    std::vector<std::size_t> order;
    pool.run_near(5, [&](std::size_t part) { order.push_back(part); });
    EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3, 4}));
  }
}

TEST(ThreadPool, NearPartsOfASlowThreadAreTakenByTheOther) {
  ThreadPool pool(2);
  std::atomic<std::uint32_t> others{0};
  std::atomic<bool> slow_began{false};
  // Whoever gets part 0 waits until all other parts are done: nobody else must wait for it.
  pool.run_near(64, [&](std::size_t part) {
    if (part != 0) {
      ++others;
      return;
    }
    slow_began = true;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (others < 63 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  });
  EXPECT_TRUE(slow_began);
  EXPECT_EQ(others, 63u);
}

// Each batch has a body of its own that is destroyed right after: a thread that ran a part late
// would touch freed memory, and one that ran the wrong body would count for the wrong batch.
TEST_P(ThreadPoolTest, NoPartRunsAfterItsBatch) {
  ThreadPool pool(GetParam());
  for (std::size_t batch = 0; batch < kRounds / 20; ++batch) {
    const std::size_t parts = kPartCounts[batch % std::size(kPartCounts)];
    auto calls = std::make_unique<std::atomic<std::size_t>>(0);
    {
      const std::function<void(std::size_t)> body = [own = calls.get()](std::size_t) { ++*own; };
      pool.run(parts, body);
    }
    ASSERT_EQ(*calls, parts);
  }
}

TEST_P(ThreadPoolTest, TwoCallersAreSerialised) {
  ThreadPool pool(GetParam());
  std::array<std::atomic<int>, 2> running{};
  std::atomic<int> overlaps{0};
  const auto caller = [&](std::size_t self) {
    std::uint64_t sum = 0;
    for (int batch = 0; batch < 2000; ++batch) {
      std::vector<std::uint64_t> results(7, 0);
      pool.run(results.size(), [&](std::size_t part) {
        ++running[self];
        if (running[1 - self] != 0) ++overlaps;
        results[part] = part + 1;
        if (part == 6) std::this_thread::yield();
        --running[self];
      });
      sum += std::accumulate(results.begin(), results.end(), std::uint64_t{0});
    }
    EXPECT_EQ(sum, 2000u * 28u);
  };
  std::thread other(caller, 1);
  caller(0);
  other.join();
  EXPECT_EQ(overlaps, 0);
}

TEST(ThreadPool, MorePartsThanOneBatchHolds) {
  ThreadPool pool(2);
  constexpr std::size_t kParts = (std::size_t{1} << 24) + 5;
  std::vector<std::uint8_t> calls(kParts, 0);
  pool.run(kParts, [&](std::size_t part) { ++calls[part]; });
  EXPECT_EQ(std::count(calls.begin(), calls.end(), 1), static_cast<std::ptrdiff_t>(kParts));
}

// The parts of a batch run at the same time: each waits for the other.
TEST(ThreadPool, WorkersWakeAndWorkBesideTheCaller) {
  ThreadPool pool(3);
  for (int round = 0; round < 200; ++round) {
    if (round % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> arrived{0};
    pool.run(3, [&](std::size_t) {
      ++arrived;
      const double start = monotonic_seconds();
      while (arrived < 3 && monotonic_seconds() - start < 30) std::this_thread::yield();
    });
    ASSERT_EQ(arrived, 3);
  }
}

// A slow part on a worker makes the caller sleep; it must be woken.
TEST(ThreadPool, CallerSleepsUntilTheLastPartIsDone) {
  ThreadPool pool(2);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> done{0};
    pool.run(2, [&](std::size_t) {
      std::this_thread::sleep_for(std::chrono::microseconds(round % 2 == 0 ? 2000 : 50));
      ++done;
    });
    ASSERT_EQ(done, 2);
  }
}

TEST(ThreadPool, ComesAndGoesWithoutWork) {
  for (int i = 0; i < 200; ++i) {
    ThreadPool pool(1 + static_cast<std::size_t>(i) % 4);
    if (i % 3 == 0) pool.run(5, [](std::size_t) {});
  }
  EXPECT_EQ(ThreadPool(0).threads(), usable_cpus());
  EXPECT_GE(usable_cpus(), 1u);
}

class CgroupTest : public testing::Test {
 protected:
  void put(const std::string& path, std::string_view text) {
    const auto raw = std::as_bytes(std::span(text));
    files_.put(path, Bytes(raw.begin(), raw.end()));
  }
  MemoryFileSystem files_;
};

TEST_F(CgroupTest, NoQuota) {
  EXPECT_EQ(cgroup_cpus(files_), std::nullopt);
  put("/proc/self/cgroup", "0::/a\n");
  EXPECT_EQ(cgroup_cpus(files_), std::nullopt);
  put("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cpus(files_), std::nullopt);
  put("/sys/fs/cgroup/a/cpu.max", "nonsense\n");
  EXPECT_EQ(cgroup_cpus(files_), std::nullopt);
}

TEST_F(CgroupTest, Version2TakesTheTightestAncestor) {
  put("/proc/self/cgroup", "0::/a/b\n");
  put("/sys/fs/cgroup/a/b/cpu.max", "400000 100000\n");
  EXPECT_EQ(cgroup_cpus(files_), 4u);
  put("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(cgroup_cpus(files_), 2u);
  put("/sys/fs/cgroup/cpu.max", "10000 100000\n");
  EXPECT_EQ(cgroup_cpus(files_), 1u);
}

TEST_F(CgroupTest, Version2InAContainerThatSeesOnlyItsRoot) {
  put("/proc/self/cgroup", "0::/docker/0123\n");
  put("/sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_EQ(cgroup_cpus(files_), 3u);
}

TEST_F(CgroupTest, Version1) {
  put("/proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/x\n");
  put("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "250000\n");
  put("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpus(files_), 3u);
  put("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cgroup_cpus(files_), std::nullopt);
}

}  // namespace
}  // namespace strata
