// Rotary positions: the angle each pair of dimensions turns by per position, and how a file may
// declare that positions are stretched beyond those that were trained.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace strata {

enum class RopeScaling : std::uint8_t { none, linear, yarn };
constexpr std::string_view to_string(RopeScaling scaling) {
  return scaling == RopeScaling::none ? "none" : scaling == RopeScaling::linear ? "linear" : "yarn";
}

struct RopeScale {
  RopeScaling type = RopeScaling::none;
  float factor = 1;                    // positions are stretched to so many times their number
  std::uint32_t original_context = 0;  // trained positions
  // Yarn: pairs that turn more often than beta_fast times over the trained positions stay as they
  // are, those below beta_slow are stretched, those between in part.
  float beta_fast = 32, beta_slow = 1;
  bool operator==(const RopeScale&) const = default;
};

// [dims / 2], as HF computes them, in float32.
std::vector<float> inverse_frequencies(std::uint32_t dims, float theta, const RopeScale& scale);
// What cosine and sine are multiplied by: 0.1 ln(factor) + 1 for yarn, else 1.
float rotation_factor(const RopeScale& scale);
// Positions that a model of `context` positions has with this scaling.
std::uint32_t scaled_context(std::uint32_t context, const RopeScale& scale);

}  // namespace strata
