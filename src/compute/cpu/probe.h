// What this machine gives: read bandwidth of its memory and integer multiply-accumulates, measured
// with the instruction set and the threads that the kernels use. Speeds are quoted as shares of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace strata {

struct MachineLimits {
  double read_gbps = 0;       // GB/s, the best access pattern (one to four streams, prefetched)
  double int8_peak_gops = 0;  // 1e9 operations/s, two for each multiply-accumulate of bytes
};

// Takes `bytes` of memory (well above the last cache) and about a second. `threads` 0 means
// usable_cpus(). `exhausted` when the memory is not there.
Result<MachineLimits> measure_machine(std::uint32_t threads, std::size_t bytes,
                                      const std::string& isa = "");

}  // namespace strata
