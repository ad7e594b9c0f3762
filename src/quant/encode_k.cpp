// Encoders of the blocks of 256 whose groups have integer scales: Q2_K, Q4_K, Q5_K (scale and
// minimum) and Q3_K, Q6_K, IQ4_XS (signed scale). Both kinds go the same way: the best float scale
// of each group by itself; the block's half scale from the largest of them; then, in turns, each
// group's integers move to the neighbours that lower its error, and the half scale to its least
// squares value for the codes at hand.
#include "quant/search.h"

namespace strata::quant {
namespace {

constexpr int block_values = 256;
constexpr int refine_rounds = 2;

// `count` targets from `first` in steps of `step`.
template <std::size_t count>
constexpr std::array<float, count> targets_from(float first, float step) {
  std::array<float, count> targets{};
  for (std::size_t i = 0; i < count; ++i) targets[i] = first + step * static_cast<float>(i);
  return targets;
}

// ---- Signed scales: x = d * scale * grid value ----

template <class Format>
struct SignedPlan {
  std::uint16_t d = 0;
  int scale[block_values / Format::group] = {};
  float group_scale(int g) const { return half_to_float(d) * static_cast<float>(scale[g]); }
};

struct Q3Format {
  using Grid = IntegerGrid<-4, 3>;
  static constexpr int group = 16;
  static constexpr int lowest = -32;
  static constexpr int highest = 31;
  // The extreme value on the long side (-4), rounded there or beyond, and on the short side.
  static constexpr std::array<float, 16> targets = {-5.0f, -4.7f, -4.4f, -4.2f, -4.0f, -3.8f,
                                                    -3.6f, -3.4f, -3.1f, -2.8f, -2.4f, 3.5f,
                                                    3.2f,  2.9f,  2.6f,  2.2f};
};
struct Q6Format {
  using Grid = IntegerGrid<-32, 31>;
  static constexpr int group = 16;
  static constexpr int lowest = -128;
  static constexpr int highest = 127;
  static constexpr auto targets = targets_from<16>(-33.0f, 0.15f);
};
struct Iq4XsFormat {
  using Grid = Iq4Grid;
  static constexpr int group = 32;
  static constexpr int lowest = -32;
  static constexpr int highest = 31;
  static constexpr std::array<float, 16> targets = {-137, -131, -127, -123, -119, -115, -110, -104,
                                                    125,  120,  116,  113,  109,  104,  99,   92};
};

template <class Format>
float plan_error(const SignedPlan<Format>& plan, const float* x) {
  float error = 0.0f;
  for (int g = 0; g < block_values / Format::group; ++g) {
    error += scale_error<typename Format::Grid, Format::group>(x + g * Format::group,
                                                               plan.group_scale(g));
  }
  return error;
}

// Moves each integer scale to a neighbour while that lowers the group's error; the block's error.
template <class Format>
float settle_scales(SignedPlan<Format>& plan, const float* x) {
  const float d = half_to_float(plan.d);
  float total = 0.0f;
  for (int g = 0; g < block_values / Format::group; ++g) {
    const int middle = plan.scale[g];
    float best = 0.0f;
    bool first = true;
    for (const int offset : {0, -1, 1}) {
      const int candidate = middle + offset;
      if (candidate < Format::lowest || candidate > Format::highest) continue;
      const float error = scale_error<typename Format::Grid, Format::group>(
          x + g * Format::group, d * static_cast<float>(candidate));
      if (first || error < best) {
        best = error;
        plan.scale[g] = candidate;
      }
      first = false;
    }
    total += best;
  }
  return total;
}

// The least squares d for the codes that the plan's own scales give.
template <class Format>
float fitted_d(const SignedPlan<Format>& plan, const float* x) {
  float numerator = 0.0f;
  float denominator = 0.0f;
  for (int g = 0; g < block_values / Format::group; ++g) {
    const auto scale = static_cast<float>(plan.scale[g]);
    const auto sums = correlate<typename Format::Grid, Format::group>(
        x + g * Format::group, inverse_or_zero(plan.group_scale(g)));
    numerator += scale * sums.xq;
    denominator += scale * scale * sums.qq;
  }
  return denominator > 0.0f ? numerator / denominator : 0.0f;
}

template <class Format>
SignedPlan<Format> plan_signed(const float* x) {
  constexpr int groups = block_values / Format::group;
  SignedPlan<Format> plan;
  float scales[groups];
  float extreme = 0.0f;
  for (int g = 0; g < groups; ++g) {
    scales[g] =
        search_scale<typename Format::Grid, Format::group>(x + g * Format::group, Format::targets);
    if (std::abs(scales[g]) > std::abs(extreme)) extreme = scales[g];
  }
  if (extreme == 0.0f) return plan;
  plan.d = half_away_from_zero(extreme / static_cast<float>(Format::lowest));
  if (!is_finite_half(plan.d)) return plan;
  for (int g = 0; g < groups; ++g) {
    plan.scale[g] = static_cast<int>(
        round_small(clamp(scales[g] / half_to_float(plan.d), Format::lowest, Format::highest)));
  }
  float error = settle_scales(plan, x);
  for (int round = 0; round < refine_rounds; ++round) {
    SignedPlan<Format> next = plan;
    next.d = float_to_half(fitted_d(plan, x));
    if (next.d == plan.d || !is_finite_half(next.d)) break;
    const float next_error = settle_scales(next, x);
    if (!(next_error < error)) break;
    plan = next;
    error = next_error;
  }
  return plan;
}

// ---- Scale and minimum: x = d * scale * code - dmin * min, codes from 0 ----

template <class Format>
struct AffinePlan {
  std::uint16_t d = 0;
  std::uint16_t dmin = 0;
  int scale[block_values / Format::group] = {};
  int min[block_values / Format::group] = {};
  float group_scale(int g) const { return half_to_float(d) * static_cast<float>(scale[g]); }
  float group_min(int g) const { return half_to_float(dmin) * static_cast<float>(min[g]); }
};

struct Q2Format {
  using Grid = IntegerGrid<0, 3>;
  static constexpr int group = 16;
  static constexpr int highest = 15;  // of scales and minimums
  static constexpr auto targets = targets_from<14>(2.4f, 0.13f);
};
struct Q4Format {
  using Grid = IntegerGrid<0, 15>;
  static constexpr int group = 32;
  static constexpr int highest = 63;
  static constexpr auto targets = targets_from<16>(13.8f, 0.14f);
};
struct Q5Format {
  using Grid = IntegerGrid<0, 31>;
  static constexpr int group = 32;
  static constexpr int highest = 63;
  static constexpr auto targets = targets_from<12>(30.2f, 0.14f);
};

struct AffineFit {
  float scale;
  float min;
};

// Sums over a group with the codes nearest to (x + min) * inverse_scale.
struct AffineSums {
  float x, q, xq, qq;
};
template <class Grid, int n>
AffineSums affine_sums(const float* x, float min, float inverse_scale) {
  float sum_x[lanes] = {};
  float sum_q[lanes] = {};
  float sum_xq[lanes] = {};
  float sum_qq[lanes] = {};
  for (int i = 0; i < n; i += lanes) {
    for (int l = 0; l < lanes; ++l) {
      const float q = Grid::nearest((x[i + l] + min) * inverse_scale);
      sum_x[l] += x[i + l];
      sum_q[l] += q;
      sum_xq[l] += x[i + l] * q;
      sum_qq[l] += q * q;
    }
  }
  return {join(sum_x), join(sum_q), join(sum_xq), join(sum_qq)};
}

template <class Grid, int n>
float affine_error(const float* x, AffineFit fit) {
  const float inverse_scale = inverse_or_zero(fit.scale);
  float error[lanes] = {};
  for (int i = 0; i < n; i += lanes) {
    for (int l = 0; l < lanes; ++l) {
      const float q = Grid::nearest((x[i + l] + fit.min) * inverse_scale);
      const float difference = x[i + l] - (fit.scale * q - fit.min);
      error[l] += difference * difference;
    }
  }
  return join(error);
}

// Least squares scale and minimum, neither negative, for given codes, and what they take off the
// sum of squares.
struct Solution {
  AffineFit fit;
  float gain;
};
template <int n>
Solution solve(const AffineSums& sums) {
  const float determinant = static_cast<float>(n) * sums.qq - sums.q * sums.q;
  if (determinant > 0.0f) {
    const float scale = (static_cast<float>(n) * sums.xq - sums.x * sums.q) / determinant;
    const float offset = (sums.qq * sums.x - sums.q * sums.xq) / determinant;
    if (scale >= 0.0f && offset <= 0.0f) {
      return {{scale, -offset}, scale * sums.xq + offset * sums.x};
    }
  }
  if (sums.qq > 0.0f && sums.xq > 0.0f) {  // a positive offset cannot be stored
    const float scale = sums.xq / sums.qq;
    return {{scale, 0.0f}, scale * sums.xq};
  }
  return {{0.0f, 0.0f}, 0.0f};
}

template <class Format>
AffineFit search_affine(const float* x) {
  using Grid = typename Format::Grid;
  constexpr int n = Format::group;
  const auto [low, high] = std::minmax_element(x, x + n);
  const float min = std::max(0.0f, -*low);
  const float range = *high + min;
  // A constant group, or one whose spread is too small to count: the minimum is everything.
  Solution best{{0.0f, std::max(0.0f, -0.5f * (*low + *high))}, 0.0f};
  if (!(range >= smallest_magnitude)) return best.fit;
  for (const float target : Format::targets) {
    const Solution found = solve<n>(affine_sums<Grid, n>(x, min, target / range));
    if (found.gain > best.gain) best = found;
  }
  const Solution settled =
      solve<n>(affine_sums<Grid, n>(x, best.fit.min, inverse_or_zero(best.fit.scale)));
  return settled.gain > best.gain ? settled.fit : best.fit;
}

// Moves each group's two integers to neighbours while that lowers its error; the block's error.
template <class Format>
float settle_scales(AffinePlan<Format>& plan, const float* x) {
  const float d = half_to_float(plan.d);
  const float dmin = half_to_float(plan.dmin);
  float total = 0.0f;
  for (int g = 0; g < block_values / Format::group; ++g) {
    const int scale = plan.scale[g];
    const int min = plan.min[g];
    const auto error_of = [&](int s, int m) {
      return affine_error<typename Format::Grid, Format::group>(
          x + g * Format::group, {d * static_cast<float>(s), dmin * static_cast<float>(m)});
    };
    float best = error_of(scale, min);
    for (int s = std::max(0, scale - 1); s <= std::min(Format::highest, scale + 1); ++s) {
      for (int m = std::max(0, min - 1); m <= std::min(Format::highest, min + 1); ++m) {
        if (s == scale && m == min) continue;
        const float error = error_of(s, m);
        if (error < best) {
          best = error;
          plan.scale[g] = s;
          plan.min[g] = m;
        }
      }
    }
    total += best;
  }
  return total;
}

// The least squares d and dmin for the codes that the plan's own scales give: with a = scale * q
// and b = min, x = d a - dmin b.
template <class Format>
AffineFit fitted_d(const AffinePlan<Format>& plan, const float* x) {
  float aa = 0.0f, ab = 0.0f, bb = 0.0f, xa = 0.0f, xb = 0.0f;
  for (int g = 0; g < block_values / Format::group; ++g) {
    const auto scale = static_cast<float>(plan.scale[g]);
    const auto min = static_cast<float>(plan.min[g]);
    const AffineSums sums = affine_sums<typename Format::Grid, Format::group>(
        x + g * Format::group, plan.group_min(g), inverse_or_zero(plan.group_scale(g)));
    aa += scale * scale * sums.qq;
    ab += scale * min * sums.q;
    bb += min * min * static_cast<float>(Format::group);
    xa += scale * sums.xq;
    xb += min * sums.x;
  }
  const float determinant = aa * bb - ab * ab;
  if (determinant > 0.0f)
    return {(xa * bb - xb * ab) / determinant, (xa * ab - xb * aa) / determinant};
  return {aa > 0.0f ? xa / aa : 0.0f, bb > 0.0f ? -xb / bb : 0.0f};
}

template <class Format>
AffinePlan<Format> plan_affine(const float* x) {
  constexpr int groups = block_values / Format::group;
  AffinePlan<Format> plan;
  AffineFit fits[groups];
  AffineFit largest{0.0f, 0.0f};
  for (int g = 0; g < groups; ++g) {
    fits[g] = search_affine<Format>(x + g * Format::group);
    largest.scale = std::max(largest.scale, fits[g].scale);
    largest.min = std::max(largest.min, fits[g].min);
  }
  plan.d = half_away_from_zero(largest.scale / static_cast<float>(Format::highest));
  plan.dmin = half_away_from_zero(largest.min / static_cast<float>(Format::highest));
  if (!is_finite_half(plan.d) || !is_finite_half(plan.dmin)) return plan;
  const auto integer = [](float value, std::uint16_t unit) {
    const float units = value * inverse_or_zero(half_to_float(unit));
    return static_cast<int>(round_small(clamp(units, 0.0f, Format::highest)));
  };
  for (int g = 0; g < groups; ++g) {
    plan.scale[g] = integer(fits[g].scale, plan.d);
    plan.min[g] = integer(fits[g].min, plan.dmin);
  }
  float error = settle_scales(plan, x);
  for (int round = 0; round < refine_rounds; ++round) {
    AffinePlan<Format> next = plan;
    const AffineFit fit = fitted_d(plan, x);
    next.d = float_to_half(std::max(0.0f, fit.scale));
    next.dmin = float_to_half(std::max(0.0f, fit.min));
    const bool same = next.d == plan.d && next.dmin == plan.dmin;
    if (same || !is_finite_half(next.d) || !is_finite_half(next.dmin)) break;
    const float next_error = settle_scales(next, x);
    if (!(next_error < error)) break;
    plan = next;
    error = next_error;
  }
  return plan;
}

// ---- Packing ----

bool in_range(const float* x) {
  return largest_magnitude<block_values>(x) <= largest_searched_magnitude;
}

// The codes of all values under the plan.
template <class Format>
void plan_codes(const SignedPlan<Format>& plan, const float* x, int* codes) {
  for (int i = 0; i < block_values; ++i) {
    const float inverse_scale = inverse_or_zero(plan.group_scale(i / Format::group));
    codes[i] = Format::Grid::code(x[i] * inverse_scale);
  }
}
template <class Format>
void plan_codes(const AffinePlan<Format>& plan, const float* x, int* codes) {
  for (int i = 0; i < block_values; ++i) {
    const int g = i / Format::group;
    codes[i] =
        Format::Grid::code((x[i] + plan.group_min(g)) * inverse_or_zero(plan.group_scale(g)));
  }
}

// Makes the plan and the codes; false if a scale is no finite half.
template <class Format>
bool make_plan(const float* x, SignedPlan<Format>& plan, int* codes) {
  if (!in_range(x)) return false;
  plan = plan_signed<Format>(x);
  if (!is_finite_half(plan.d)) return false;
  plan_codes(plan, x, codes);
  return true;
}
template <class Format>
bool make_plan(const float* x, AffinePlan<Format>& plan, int* codes) {
  if (!in_range(x)) return false;
  plan = plan_affine<Format>(x);
  if (!is_finite_half(plan.d) || !is_finite_half(plan.dmin)) return false;
  plan_codes(plan, x, codes);
  return true;
}

// Two-bit fields of Q2_K and Q3_K: byte 32 h + l holds values 128 h + l + {0, 32, 64, 96}.
void pack_pairs(const int* codes, Byte* qs) {
  for (int j = 0; j < 64; ++j) {
    const int* first = codes + 128 * (j / 32) + j % 32;
    int packed = 0;
    for (int k = 0; k < 4; ++k) packed |= (first[32 * k] & 3) << (2 * k);
    qs[j] = static_cast<Byte>(packed);
  }
}

// Nibbles of Q4_K and Q5_K: byte 32 p + l holds values 64 p + l + {0, 32}.
void pack_nibbles(const int* codes, Byte* qs) {
  for (int j = 0; j < 128; ++j) {
    const int* first = codes + 64 * (j / 32) + j % 32;
    qs[j] = static_cast<Byte>((first[0] & 15) | ((first[32] & 15) << 4));
  }
}

// The inverse of k4_scale_min.
void pack_k4_scales(const int* scale, const int* min, Byte* out) {
  for (int j = 0; j < 4; ++j) {
    out[j] = static_cast<Byte>(scale[j] | ((scale[j + 4] >> 4) << 6));
    out[j + 4] = static_cast<Byte>(min[j] | ((min[j + 4] >> 4) << 6));
    out[j + 8] = static_cast<Byte>((scale[j + 4] & 15) | ((min[j + 4] & 15) << 4));
  }
}

bool encode_q2_k(const float* values, BlockQ2_K& block) {
  AffinePlan<Q2Format> plan;
  int codes[block_values];
  if (!make_plan(values, plan, codes)) return false;
  for (int g = 0; g < 16; ++g)
    block.scales[g] = static_cast<Byte>(plan.scale[g] | (plan.min[g] << 4));
  pack_pairs(codes, block.qs);
  store_u16(block.d, plan.d);
  store_u16(block.dmin, plan.dmin);
  return true;
}

bool encode_q3_k(const float* values, BlockQ3_K& block) {
  SignedPlan<Q3Format> plan;
  int codes[block_values];
  if (!make_plan(values, plan, codes)) return false;
  for (int l = 0; l < 32; ++l) {
    int high = 0;
    for (int k = 0; k < 8; ++k) high |= (codes[32 * k + l] >> 2) << k;
    block.hmask[l] = static_cast<Byte>(high);
  }
  pack_pairs(codes, block.qs);
  const auto stored = [&](int k) { return plan.scale[k] + 32; };
  for (int j = 0; j < 8; ++j) {
    block.scales[j] = static_cast<Byte>((stored(j) & 15) | ((stored(j + 8) & 15) << 4));
  }
  for (int j = 0; j < 4; ++j) {
    int high = 0;
    for (int k = 0; k < 4; ++k) high |= (stored(4 * k + j) >> 4) << (2 * k);
    block.scales[8 + j] = static_cast<Byte>(high);
  }
  store_u16(block.d, plan.d);
  return true;
}

bool encode_q4_k(const float* values, BlockQ4_K& block) {
  AffinePlan<Q4Format> plan;
  int codes[block_values];
  if (!make_plan(values, plan, codes)) return false;
  store_u16(block.d, plan.d);
  store_u16(block.dmin, plan.dmin);
  pack_k4_scales(plan.scale, plan.min, block.scales);
  pack_nibbles(codes, block.qs);
  return true;
}

bool encode_q5_k(const float* values, BlockQ5_K& block) {
  AffinePlan<Q5Format> plan;
  int codes[block_values];
  if (!make_plan(values, plan, codes)) return false;
  store_u16(block.d, plan.d);
  store_u16(block.dmin, plan.dmin);
  pack_k4_scales(plan.scale, plan.min, block.scales);
  for (int l = 0; l < 32; ++l) {
    int high = 0;
    for (int g = 0; g < 8; ++g) high |= (codes[32 * g + l] >> 4) << g;
    block.qh[l] = static_cast<Byte>(high);
  }
  pack_nibbles(codes, block.qs);
  return true;
}

bool encode_q6_k(const float* values, BlockQ6_K& block) {
  SignedPlan<Q6Format> plan;
  int codes[block_values];
  if (!make_plan(values, plan, codes)) return false;
  for (int half = 0; half < 2; ++half) {
    for (int l = 0; l < 32; ++l) {
      const int* lane = codes + 128 * half + l;  // values l, l + 32, l + 64, l + 96
      block.ql[64 * half + l] = static_cast<Byte>((lane[0] & 15) | ((lane[64] & 15) << 4));
      block.ql[64 * half + 32 + l] = static_cast<Byte>((lane[32] & 15) | ((lane[96] & 15) << 4));
      block.qh[32 * half + l] = static_cast<Byte>((lane[0] >> 4) | ((lane[32] >> 4) << 2) |
                                                  ((lane[64] >> 4) << 4) | ((lane[96] >> 4) << 6));
    }
  }
  for (int g = 0; g < 16; ++g) block.scales[g] = static_cast<Byte>(plan.scale[g]);
  store_u16(block.d, plan.d);
  return true;
}

bool encode_iq4_xs(const float* values, BlockIQ4_XS& block) {
  SignedPlan<Iq4XsFormat> plan;
  int codes[block_values];
  if (!make_plan(values, plan, codes)) return false;
  store_u16(block.d, plan.d);
  int high = 0;
  for (int g = 0; g < 8; ++g) high |= ((plan.scale[g] + 32) >> 4) << (2 * g);
  store_u16(block.scales_h, static_cast<std::uint16_t>(high));
  for (int j = 0; j < 4; ++j) {
    block.scales_l[j] = static_cast<Byte>(((plan.scale[2 * j] + 32) & 15) |
                                          (((plan.scale[2 * j + 1] + 32) & 15) << 4));
  }
  for (int j = 0; j < 128; ++j) {
    const int* first = codes + 32 * (j / 16) + j % 16;
    block.qs[j] = static_cast<Byte>(first[0] | (first[16] << 4));
  }
  return true;
}

}  // namespace

RowEncoder k_encoder(TensorType type) {
  switch (type) {
    case TensorType::Q2_K:
      return encode_blocks<BlockQ2_K, encode_q2_k>;
    case TensorType::Q3_K:
      return encode_blocks<BlockQ3_K, encode_q3_k>;
    case TensorType::Q4_K:
      return encode_blocks<BlockQ4_K, encode_q4_k>;
    case TensorType::Q5_K:
      return encode_blocks<BlockQ5_K, encode_q5_k>;
    case TensorType::Q6_K:
      return encode_blocks<BlockQ6_K, encode_q6_k>;
    case TensorType::IQ4_XS:
      return encode_blocks<BlockIQ4_XS, encode_iq4_xs>;
    default:
      return nullptr;
  }
}

}  // namespace strata::quant
