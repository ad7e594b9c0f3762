// Inside of src/quant: the pieces that the searched encoders share. A *grid* is the set of values
// that a code stands for (in units of the group's scale); a group's squared error for given codes q
// and its best scale is sum(x^2) - sum(x q)^2 / sum(q^2), so the searches compare the subtrahend.
//
// Sums run in eight lanes that meet in a fixed order: the same result with every compiler flag that
// keeps float semantics, and a loop that vectorises.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "quant/codebooks.h"
#include "quant/encoders.h"

namespace strata::quant {

inline constexpr int lanes = 8;

inline float join(const float (&lane)[lanes]) {
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

// To nearest even, for |value| below 2^22.
inline float round_small(float value) {
  constexpr float shift = 12582912.0f;  // 1.5 * 2^23: its ulp is 1
  return (value + shift) - shift;
}

// Comparisons as the vector minimum and maximum make them.
inline float clamp(float value, float low, float high) {
  const float raised = value < low ? low : value;
  return raised > high ? high : raised;
}

template <int n>
float largest_magnitude(const float* x) {
  float largest = 0.0f;
  for (int i = 0; i < n; ++i) largest = std::max(largest, std::abs(x[i]));
  return largest;
}

// The first value of the largest magnitude, with its sign.
template <int n>
float signed_extreme(const float* x) {
  float extreme = 0.0f;
  for (int i = 0; i < n; ++i) extreme = std::abs(x[i]) > std::abs(extreme) ? x[i] : extreme;
  return extreme;
}

// Magnitudes that the searches take: below, half an ulp of the smallest half scale, zero is the
// nearest value of every format; above, no format's scale fits a half (and sums stay finite).
inline constexpr float smallest_magnitude = 0x1p-25f;
inline constexpr float largest_searched_magnitude = 3e8f;

// The half next to `value` that is not nearer to zero: integer scales in its units do not overflow
// even where halves are sparse (subnormal).
inline std::uint16_t half_away_from_zero(float value) {
  const std::uint16_t half = float_to_half(value);
  const bool nearer = std::abs(half_to_float(half)) < std::abs(value);
  return static_cast<std::uint16_t>(half + (nearer ? 1 : 0));
}

inline float inverse_or_zero(float scale) {
  return scale != 0.0f ? 1.0f / scale : 0.0f;
}

// The integers low..high; code = value - low.
template <int low, int high>
struct IntegerGrid {
  static float nearest(float value) {
    return round_small(clamp(value, static_cast<float>(low), static_cast<float>(high)));
  }
  static int code(float value) { return static_cast<int>(nearest(value)) - low; }
};

// The sixteen values of IQ4_NL. Midpoints of neighbours are multiples of a half, so the cell of
// width one half that a number falls in decides.
struct Iq4Grid {
  static constexpr int cells = 512;
  static constexpr float zero_cell = 256.0f;
  struct Tables {
    std::array<float, cells> value;
    std::array<std::uint8_t, cells> code;
  };
  static constexpr Tables make_tables() {
    Tables made{};
    for (int cell = 0; cell < cells; ++cell) {
      const float middle = (static_cast<float>(cell) - zero_cell) * 0.5f + 0.25f;
      std::size_t code = 0;
      while (code + 1 < iq4_values.size() &&
             2.0f * middle > static_cast<float>(iq4_values[code] + iq4_values[code + 1])) {
        ++code;
      }
      made.value[static_cast<std::size_t>(cell)] = static_cast<float>(iq4_values[code]);
      made.code[static_cast<std::size_t>(cell)] = static_cast<std::uint8_t>(code);
    }
    return made;
  }
  static const Tables tables;

  static std::size_t cell_of(float value) {
    const float cell = value * 2.0f + zero_cell;
    return static_cast<std::size_t>(static_cast<int>(clamp(cell, 0.0f, cells - 1)));
  }
  static float nearest(float value) { return tables.value[cell_of(value)]; }
  static int code(float value) { return tables.code[cell_of(value)]; }
};
inline constexpr Iq4Grid::Tables Iq4Grid::tables = Iq4Grid::make_tables();

// Sums over a group with the codes nearest to x * inverse_scale.
struct Correlation {
  float xq;
  float qq;
  float gain() const { return qq > 0.0f ? xq * xq / qq : 0.0f; }
};
template <class Grid, int n>
Correlation correlate(const float* x, float inverse_scale) {
  float xq[lanes] = {};
  float qq[lanes] = {};
  for (int i = 0; i < n; i += lanes) {
    for (int l = 0; l < lanes; ++l) {
      const float q = Grid::nearest(x[i + l] * inverse_scale);
      xq[l] += x[i + l] * q;
      qq[l] += q * q;
    }
  }
  return {join(xq), join(qq)};
}

// Squared error of a group under a given scale.
template <class Grid, int n>
float scale_error(const float* x, float scale) {
  const float inverse_scale = inverse_or_zero(scale);
  float error[lanes] = {};
  for (int i = 0; i < n; i += lanes) {
    for (int l = 0; l < lanes; ++l) {
      const float difference = x[i + l] - scale * Grid::nearest(x[i + l] * inverse_scale);
      error[l] += difference * difference;
    }
  }
  return join(error);
}

// The best scale of a group: tries scales that put the extreme value at each of `targets`, then
// lets codes and scale settle.
template <class Grid, int n, std::size_t count>
float search_scale(const float* x, const std::array<float, count>& targets) {
  const float extreme = signed_extreme<n>(x);
  if (std::abs(extreme) < smallest_magnitude) return 0.0f;
  Correlation best{0.0f, 0.0f};
  for (const float target : targets) {
    const Correlation found = correlate<Grid, n>(x, target / extreme);
    if (found.gain() > best.gain()) best = found;
  }
  for (int step = 0; step < 2 && best.xq != 0.0f; ++step) {
    const Correlation found = correlate<Grid, n>(x, best.qq / best.xq);
    if (!(found.gain() > best.gain())) break;
    best = found;
  }
  return best.qq > 0.0f ? best.xq / best.qq : 0.0f;
}

// Of the two halves around `scale`, the one with the smaller error.
template <class Grid, int n>
std::uint16_t best_half(const float* x, float scale) {
  const std::uint16_t away = half_away_from_zero(scale);
  if ((away & 0x7fffu) == 0 || half_to_float(away) == scale) return away;
  if (!is_finite_half(away)) return float_to_half(scale);
  const auto toward = static_cast<std::uint16_t>(away - 1);
  const float error_away = scale_error<Grid, n>(x, half_to_float(away));
  return scale_error<Grid, n>(x, half_to_float(toward)) <= error_away ? toward : away;
}

}  // namespace strata::quant
