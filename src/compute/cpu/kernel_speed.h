// The matrix products alone: how fast each one reads a matrix that is larger than the caches for
// one token, and how many multiply-accumulates a second it makes for many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace strata {

// Rows of the products for many tokens: what an expert meets in a prompt of 2,048, and what makes
// unpacking the weights cheap.
constexpr std::size_t kFewSpeedRows = 40, kManySpeedRows = 384;

struct KernelSpeed {
  std::string format, inputs;                    // "Q4_K", "bytes"
  std::string few_way, many_way;                 // as in the registry
  double cache_gbps = 0;                         // one token, a matrix in each core's second cache
  double memory_gbps = 0;                        // one token, a matrix of the size asked for
  double few_rows_gops = 0, many_rows_gops = 0;  // two operations a product; 0 of floats
};

// The products in integers, and those of floats without panels, all formats, with `threads` threads
// (0: usable_cpus()) and matrices of `bytes`; some seconds. `format` limits it to one. The results
// of the products are not looked at.
Result<std::vector<KernelSpeed>> measure_kernels(std::uint32_t threads, std::size_t bytes,
                                                 const std::string& isa = "",
                                                 const std::string& format = "");

}  // namespace strata
