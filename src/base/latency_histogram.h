// Counts of durations in microseconds, for percentiles. 16 steps an octave: a percentile is at most
// 6 % above the true value. 8 KB whatever it holds.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace strata {

class LatencyHistogram {
 public:
  void add(std::uint64_t microseconds) {
    ++counts_[bucket(microseconds)];
    ++total_;
  }
  void clear() { *this = {}; }
  std::uint64_t count() const { return total_; }
  // The value below or at which this share (0..1) of all durations lie; 0 when there are none.
  std::uint64_t percentile(double share) const {
    const double wanted = share * static_cast<double>(total_);
    std::uint64_t seen = 0;
    for (std::size_t b = 0; b < counts_.size(); ++b) {
      seen += counts_[b];
      if (seen > 0 && static_cast<double>(seen) >= wanted) return highest(b);
    }
    return 0;
  }

 private:
  static constexpr unsigned kSteps = 16;  // of an octave
  // Values below kSteps have a bucket each; above, the four bits below the highest one count.
  static std::size_t bucket(std::uint64_t value) {
    if (value < kSteps) return value;
    const unsigned octave = static_cast<unsigned>(std::bit_width(value)) - 5;
    return (octave + 1) * kSteps + ((value >> octave) - kSteps);
  }
  static std::uint64_t highest(std::size_t bucket) {
    if (bucket < kSteps) return bucket;
    const std::size_t octave = bucket / kSteps - 1;
    return ((bucket % kSteps + kSteps + 1) << octave) - 1;
  }

  std::array<std::uint64_t, 61 * kSteps> counts_ = {};
  std::uint64_t total_ = 0;
};

}  // namespace strata
