// The memory a process may have: of the machine, and of the control group it runs in.
#pragma once

#include <cstdint>

namespace strata {

// Bytes that could be taken now without swapping or being killed.
std::uint64_t available_memory();

// Gives back what this process has freed and its allocator keeps. Takes some time.
void return_unused_memory();

}  // namespace strata
