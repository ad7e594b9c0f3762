// Machines made of the files that theirs say of themselves.
#include "base/topology.h"

#include <gtest/gtest.h>

#include <numeric>

namespace strata {
namespace {

class TopologyTest : public testing::Test {
 protected:
  void put(const std::string& path, std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    files_.put(path, Bytes(bytes.begin(), bytes.end()));
  }
  void cpu(std::uint32_t id, std::string_view siblings) {
    put(fmt::format("/sys/devices/system/cpu/cpu{}/topology/core_cpus_list", id),
        fmt::format("{}\n", siblings));
  }
  void says(std::uint32_t id, const char* file, std::uint32_t value) {
    put(fmt::format("/sys/devices/system/cpu/cpu{}/{}", id, file), fmt::format("{}\n", value));
  }
  void node(std::uint32_t id, std::string_view cpus) {
    put(fmt::format("/sys/devices/system/node/node{}/cpulist", id), fmt::format("{}\n", cpus));
  }
  Topology read(std::uint32_t cpus) {
    std::vector<std::uint32_t> all(cpus);
    std::iota(all.begin(), all.end(), 0u);
    return read_topology(files_, all);
  }

  MemoryFileSystem files_;
};

TEST_F(TopologyTest, AMachineThatSaysNothing) {
  const Topology topology = read(4);
  EXPECT_EQ(topology.cores(), 4u);
  EXPECT_EQ(topology.nodes, std::vector<std::uint32_t>{0});
  EXPECT_EQ(working_threads(topology), 4u);
  EXPECT_EQ(to_string(topology), "4 cores of 4 CPUs");
}

TEST_F(TopologyTest, TwoThreadsOfACoreAreOneWorker) {
  for (std::uint32_t id = 0; id < 16; ++id) cpu(id, fmt::format("{},{}", id % 8, id % 8 + 8));
  EXPECT_EQ(working_threads(read(16)), 8u);
  // Neighbouring numbers, as other machines have them.
  for (std::uint32_t id = 0; id < 16; ++id)
    cpu(id, fmt::format("{}-{}", id / 2 * 2, id / 2 * 2 + 1));
  EXPECT_EQ(working_threads(read(16)), 8u);
}

TEST_F(TopologyTest, OlderKernelsCallThemSiblings) {
  for (std::uint32_t id = 0; id < 4; ++id)
    put(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", id),
        fmt::format("{},{}\n", id % 2, id % 2 + 2));
  EXPECT_EQ(working_threads(read(4)), 2u);
}

// 8 fast cores with two threads each, 8 small ones with one.
TEST_F(TopologyTest, SmallCoresOfHalfTheSpeedWork) {
  for (std::uint32_t id = 0; id < 16; ++id)
    cpu(id, fmt::format("{}-{}", id / 2 * 2, id / 2 * 2 + 1));
  for (std::uint32_t id = 16; id < 24; ++id) cpu(id, fmt::format("{}", id));
  put("/sys/devices/cpu_atom/cpus", "16-23\n");
  Topology topology = read(24);
  EXPECT_EQ(topology.cpus[3].speed, 1024u);
  EXPECT_EQ(topology.cpus[20].speed, 512u);
  EXPECT_EQ(working_threads(topology), 16u);
  for (std::uint32_t id = 0; id < 24; ++id)
    says(id, "cpufreq/cpuinfo_max_freq", id < 16 ? 5'400'000 : 4'200'000);
  topology = read(24);
  EXPECT_EQ(topology.cpus[20].speed, 796u);
  EXPECT_EQ(working_threads(topology), 16u);
}

// big, middle and LITTLE: the last would keep the others waiting.
TEST_F(TopologyTest, VerySlowCoresDoNot) {
  for (std::uint32_t id = 0; id < 8; ++id) {
    cpu(id, fmt::format("{}", id));
    says(id, "cpu_capacity", id < 4 ? 250 : id < 7 ? 760 : 1024);
  }
  const Topology topology = read(8);
  EXPECT_EQ(topology.cores(), 8u);
  EXPECT_EQ(topology.fast_cores(), 4u);
  EXPECT_EQ(working_threads(topology), 4u);
  EXPECT_EQ(to_string(topology), "8 cores of 8 CPUs, 4 of them fast");
}

// Where the process is bound to the small cores they are what there is.
TEST_F(TopologyTest, BoundToSlowCores) {
  for (std::uint32_t id = 0; id < 8; ++id) says(id, "cpu_capacity", id < 4 ? 250 : 1024);
  EXPECT_EQ(working_threads(read_topology(files_, std::vector<std::uint32_t>{0, 1, 2, 3})), 4u);
}

TEST_F(TopologyTest, TwoSockets) {
  put("/sys/devices/system/node/online", "0-1\n");
  node(0, "0-31,64-95");
  node(1, "32-63,96-127");
  for (std::uint32_t id = 0; id < 128; ++id) cpu(id, fmt::format("{},{}", id % 64, id % 64 + 64));
  const Topology topology = read(128);
  EXPECT_EQ(topology.nodes, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(topology.cpus[40].node, 1u);
  EXPECT_EQ(working_threads(topology), 64u);
  EXPECT_EQ(to_string(topology), "64 cores of 128 CPUs, 2 nodes");
  // Bound to one of them.
  std::vector<std::uint32_t> one(32);
  std::iota(one.begin(), one.end(), 32u);
  EXPECT_EQ(read_topology(files_, one).nodes, std::vector<std::uint32_t>{1});
}

TEST_F(TopologyTest, AQuotaIsWhatCanBePaid) {
  put("/proc/self/cgroup", "0::/box\n");
  put("/sys/fs/cgroup/box/cpu.max", "250000 100000\n");
  const Topology topology = read(16);
  EXPECT_EQ(topology.quota, 3u);
  EXPECT_EQ(working_threads(topology), 3u);
}

TEST_F(TopologyTest, Nonsense) {
  put("/sys/devices/system/node/online", "0-4000000000\n");
  cpu(0, "1-0");
  cpu(1, "a,b");
  says(0, "cpu_capacity", 0);
  EXPECT_EQ(working_threads(read(2)), 2u);
}

TEST(ThisTopology, HasAWorker) {
  EXPECT_GE(working_threads(this_topology()), 1u);
  EXPECT_FALSE(this_topology().nodes.empty());
}

}  // namespace
}  // namespace strata
