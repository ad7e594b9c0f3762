// The memory a process may have: of the machine, and of the control group it runs in.
#pragma once

#include <cstdint>
#include <optional>

#include "base/file.h"

namespace strata {

struct MachineMemory {
  std::uint64_t total = 0;      // bytes that the machine has
  std::uint64_t available = 0;  // that could be taken now without swapping
  // Of the strictest control group (version 1 or 2), if one has a limit: it, and what it leaves.
  std::optional<std::uint64_t> group_limit;
  std::uint64_t group_left = 0;

  // What could be taken now without swapping or being killed.
  std::uint64_t left() const {
    return group_limit && group_left < available ? group_left : available;
  }
};

// Reads /proc and /sys of `files`.
MachineMemory read_machine_memory(FileSystem& files);

// left() of this machine, now.
std::uint64_t available_memory();

// Bytes of memory that this process occupies, mapped files not counted.
std::uint64_t occupied_memory();

// Gives back what this process has freed and its allocator keeps. Takes some time.
void return_unused_memory();

}  // namespace strata
