#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace strata {
namespace {

// The pair, as a real number, that turns `rotations` times over the trained positions.
double pair_of(double rotations, std::uint32_t dims, float theta, const RopeScale& scale) {
  const double turns = scale.original_context / (rotations * 2 * std::numbers::pi);
  return dims * std::log(turns) / (2 * std::log(double{theta}));
}

}  // namespace

std::vector<float> inverse_frequencies(std::uint32_t dims, float theta, const RopeScale& scale) {
  std::vector<float> frequencies(dims / 2);
  double low = 0, high = 0;
  if (scale.type == RopeScaling::yarn) {
    low = std::max(std::floor(pair_of(double{scale.beta_fast}, dims, theta, scale)), 0.0);
    high = std::min(std::ceil(pair_of(double{scale.beta_slow}, dims, theta, scale)), dims - 1.0);
    if (low == high) high += 0.001;
  }
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const auto exponent = static_cast<float>(2 * i) / static_cast<float>(dims);
    const auto period = static_cast<float>(std::pow(double{theta}, double{exponent}));
    const float kept = 1.0f / period;
    frequencies[i] = kept;
    if (scale.type == RopeScaling::linear) frequencies[i] = kept / scale.factor;
    if (scale.type != RopeScaling::yarn) continue;
    const float stretched = 1.0f / (scale.factor * period);
    const auto place =
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float share = 1.0f - std::clamp(place, 0.0f, 1.0f);  // of what is kept
    frequencies[i] = stretched * (1.0f - share) + kept * share;
  }
  return frequencies;
}

float rotation_factor(const RopeScale& scale) {
  if (scale.type != RopeScaling::yarn) return 1;
  return static_cast<float>(0.1 * std::log(double{scale.factor}) + 1);
}

std::uint32_t scaled_context(std::uint32_t context, const RopeScale& scale) {
  if (scale.type == RopeScaling::none) return context;
  const double scaled = double{scale.factor} * scale.original_context;
  return std::max(context, static_cast<std::uint32_t>(std::min(scaled, 4294967295.0)));
}

}  // namespace strata
