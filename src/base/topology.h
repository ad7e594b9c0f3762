// Which CPUs a process has and what they share: cores, threads of a core (SMT), fast and slow cores
// (P and E, big and LITTLE), memory nodes (NUMA), and the quota of its control groups.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace strata {

struct Topology {
  struct Cpu {
    std::uint32_t id = 0;
    std::uint32_t core = 0;      // the lowest CPU that shares its core
    std::uint32_t node = 0;      // of memory
    std::uint32_t speed = 1024;  // of the fastest's 1024
  };
  std::vector<Cpu> cpus;             // that this process may use, ascending
  std::vector<std::uint32_t> nodes;  // of these CPUs, ascending
  std::optional<std::size_t> quota;  // whole CPUs' worth of time

  std::size_t cores() const;       // of which it has a CPU
  std::size_t fast_cores() const;  // of these, those that work is worth giving to
};

// Reads /sys and /proc of `files` for the CPUs in `allowed`. What is not said there is taken for a
// machine of equal cores with one thread each and one node.
Topology read_topology(FileSystem& files, std::span<const std::uint32_t> allowed);

// This process on this machine.
Topology this_topology();

// Threads for work that is limited by memory or by the arithmetic of a core: one for each core, as
// the threads of a core share both; none for a core with less than a third of the fastest one's
// speed, which the others would wait for; no more than the quota pays for.
std::size_t working_threads(const Topology& topology);

// "8 cores of 16 CPUs, 2 nodes, quota 4"
std::string to_string(const Topology& topology);

// Spreads the pages of memory that is not touched yet over all nodes of this process, if there are
// several: threads on any of them then have the bandwidth of all. An advice.
void spread_over_nodes(void* start, std::size_t bytes);

}  // namespace strata
