// Scalar functions of the CPU kernels: built from add, multiply, fma, divide and sqrt alone, so
// that every machine, compiler and instruction set gives the same bits (libm promises no such
// thing). They are part of whatever calls them: in the kernels, which are compiled for instruction
// sets with fma, a step is an instruction; elsewhere it is a call of the library.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace strata::cpu {

// std::fma(a, b, c) in a few plain operations, for lanes on machines that have no instruction for
// it, where the library's function takes long. The product is exact in double; the sum is rounded
// to odd (of the two doubles around it, the one with an odd last bit), so that rounding it once
// more to float gives what a single rounding would.
inline float fused(float a, float b, float c) {
  const double product = double{a} * double{b}, addend = c, sum = product + addend;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (addend - part);  // exact
  const auto bits = std::bit_cast<std::int64_t>(sum);
  const auto apart = static_cast<std::uint64_t>(bits ^ std::bit_cast<std::int64_t>(error)) >> 63;
  const std::int64_t step = 1 - 2 * static_cast<std::int64_t>(apart);  // towards the exact sum
  const std::int64_t inexact = std::fabs(error) > 0 ? -1 : 0, even = (bits & 1) - 1;
  return static_cast<float>(std::bit_cast<double>(bits + (step & inexact & even)));
}

// e^x within 2 ulp; 0 below -87.3, NaN stays NaN. kernels_impl.h has the same steps on lanes.
struct ExpConstants {
  static constexpr float low = -87.3f, high = 88.0f;
  static constexpr float log2e = 1.44269504f;
  static constexpr float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  static constexpr float ln2_high = 0.693145751953125f, ln2_low = 1.42860677e-6f;
  static constexpr float c2 = 0.5f, c3 = 1.0f / 6, c4 = 1.0f / 24, c5 = 1.0f / 120, c6 = 1.0f / 720,
                         c7 = 1.0f / 5040;
};

[[gnu::always_inline]] inline float exp(float x) {
  using C = ExpConstants;
  if (!(x >= C::low)) return x < C::low ? 0.0f : x;
  x = x > C::high ? C::high : x;
  const float t = std::fma(x, C::log2e, C::magic);
  const float n = t - C::magic;
  float r = std::fma(-n, C::ln2_high, x);
  r = std::fma(-n, C::ln2_low, r);
  float p = C::c7;
  p = std::fma(p, r, C::c6);
  p = std::fma(p, r, C::c5);
  p = std::fma(p, r, C::c4);
  p = std::fma(p, r, C::c3);
  p = std::fma(p, r, C::c2);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  const std::int32_t exponent =
      std::bit_cast<std::int32_t>(t) - std::bit_cast<std::int32_t>(C::magic);
  return std::bit_cast<float>(std::bit_cast<std::int32_t>(p) + (exponent << 23));
}

[[gnu::always_inline]] inline float sigmoid(float x) {
  return 1.0f / (1.0f + exp(-x));
}

// ln(1 + e^x) = max(x, 0) + log1p(e^-|x|), the logarithm as 2 atanh(y / (2 + y)).
[[gnu::always_inline]] inline float softplus(float x) {
  const double y = exp(-std::fabs(x));
  const double s = y / (2.0 + y), square = s * s;
  double sum = 0;
  for (int k = 27; k >= 1; k -= 2) sum = std::fma(sum, square, 1.0 / k);
  return static_cast<float>((x > 0 ? double{x} : 0.0) + 2.0 * s * sum);
}

struct SinCos {
  float sin, cos;
};

// For |angle| below 2^30 (positions times frequencies of at most 1).
[[gnu::always_inline]] inline SinCos sin_cos(float angle) {
  constexpr double two_over_pi = 0.63661977236758134308;
  constexpr double half_pi_high = 1.57079632679489655800, half_pi_low = 6.12323399573676603587e-17;
  constexpr double magic = 6755399441055744.0;  // 1.5 * 2^52
  const double t = double{angle} * two_over_pi + magic;
  const double n = t - magic;
  double r = std::fma(-n, half_pi_high, double{angle});
  r = std::fma(-n, half_pi_low, r);
  const double z = r * r;
  double s = 0, c = 0;
  for (int k = 8; k >= 1; --k) {  // Taylor: |r| <= pi/4 leaves less than 1e-17
    s = std::fma(s, z, 1.0) * (-1.0 / ((2 * k) * (2 * k + 1)));
    c = std::fma(c, z, 1.0) * (-1.0 / ((2 * k - 1) * (2 * k)));
  }
  s = r * std::fma(s, z, 1.0);
  c = std::fma(c, z, 1.0);
  const auto quadrant = std::bit_cast<std::uint64_t>(t) & 3;
  const double sine = quadrant & 1 ? c : s, cosine = quadrant & 1 ? s : c;
  return {static_cast<float>(quadrant & 2 ? -sine : sine),
          static_cast<float>((quadrant + 1) & 2 ? -cosine : cosine)};
}

}  // namespace strata::cpu
