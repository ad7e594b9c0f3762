// How many CPUs this process may use. See also usable_cpus() in thread_pool.h, and topology.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/file.h"

namespace strata {

// The CPU quota of the process's control groups (v2 or v1, the tightest of the group and its
// ancestors), rounded up to whole CPUs; nullopt without a quota. Reads /proc and /sys of `files`.
std::optional<std::size_t> cgroup_cpus(FileSystem& files);

// The CPUs that this process may run on, ascending; at least one.
std::vector<std::uint32_t> affinity();

}  // namespace strata
