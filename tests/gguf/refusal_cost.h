// What refusing a file may cost: 50 ms (the median of several times) and 1 MB of memory, beyond
// what goes with the file's own size. Builds with sanitizers measure neither.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/clock.h"

namespace strata::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kMeasures = false;
#else
inline constexpr bool kMeasures = true;
#endif

// Bytes that operator new gave to this thread so far (refusal_cost_test.cpp replaces it).
std::size_t allocated_bytes();

// A number in the file may become eight in memory, with its parts.
inline constexpr std::size_t kBytesForEach = 20;
inline constexpr std::size_t kBytesAtMost = 1'000'000;
inline constexpr double kSecondsAtMost = 0.050;
inline constexpr double kSecondsForEach = 10e-9;  // byte of the file, which is copied first

// `refuse` opens a file of that size and says whether it was refused.
template <class Refuse>
void expect_cheap(std::size_t file_bytes, Refuse refuse) {
  if (!kMeasures) return;
  const std::size_t before = allocated_bytes();
  ASSERT_TRUE(refuse());
  EXPECT_LT(allocated_bytes() - before, kBytesAtMost + kBytesForEach * file_bytes);
  std::array<double, 5> seconds = {};
  for (double& one : seconds) {
    const double start = monotonic_seconds();
    ASSERT_TRUE(refuse());
    one = monotonic_seconds() - start;
  }
  std::nth_element(seconds.begin(), seconds.begin() + 2, seconds.end());
  EXPECT_LT(seconds[2], kSecondsAtMost + kSecondsForEach * static_cast<double>(file_bytes))
      << "for a file of " << file_bytes << " bytes";
}

}  // namespace strata::test
