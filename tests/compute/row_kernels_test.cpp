// Kernels that take rows by themselves, on every instruction set, bit for bit beside the plainest
// loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "compute/cpu/int_blocks.h"
#include "compute/cpu/kernels.h"
#include "compute/cpu/math.h"

namespace strata::cpu {
namespace {

bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

std::vector<float> random_values(std::size_t n, std::mt19937& random, float deviation = 1) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}

void expect_same(const std::vector<float>& a, const std::vector<float>& b, const char* what,
                 std::string_view isa) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_TRUE(same(a[i], b[i])) << what << ", " << isa << ", value " << i << ": " << a[i]
                                  << ", not " << b[i];
}

TEST(RowKernels, GatesOfTheDeltaNetAreThoseOfMath) {
  std::mt19937 random(1);
  for (const std::size_t n : {1u, 15u, 16u, 48u, 50u}) {
    std::vector<float> x = random_values(n, random, 12), open = random_values(n, random, 12);
    const std::vector<float> a = random_values(n, random, 3), bias = random_values(n, random);
    for (std::size_t i = 0; i < std::min<std::size_t>(n, 5); ++i)
      x[i] = std::vector<float>{0.0f, -0.0f, 200.0f, -200.0f,
                                std::numeric_limits<float>::quiet_NaN()}[i];
    std::vector<float> decays(n), opens(n);
    for (std::size_t i = 0; i < n; ++i) {
      decays[i] = exp(a[i] * softplus(x[i] + bias[i]));
      opens[i] = sigmoid(open[i]);
    }
    for (const Kernels* kernels : supported_kernels()) {
      std::vector<float> decay = x, gate = open;
      kernels->delta_gates(a.data(), bias.data(), n, decay.data(), gate.data());
      expect_same(decay, decays, "decay", kernels->isa);
      expect_same(gate, opens, "open", kernels->isa);
    }
  }
}

TEST(RowKernels, StepsOfTheDeltaRuleDoNotKnowHowManyTheyAre) {
  std::mt19937 random(2);
  for (const std::size_t key_dim : {1u, 6u, 128u})
    for (const std::size_t stride : {16u, 48u, 64u, 112u})
      for (const std::size_t count : {1u, 2u, 3u, 9u}) {
        const std::vector<float> start = random_values(key_dim * stride, random);
        const std::vector<float> q = random_values(count * key_dim, random);
        const std::vector<float> k = random_values(count * key_dim, random, 0.1f);
        const std::vector<float> v = random_values(count * stride, random);
        std::vector<float> state = start, expected(count * stride), out(count * stride);
        std::vector<DeltaStep> steps;
        for (std::size_t s = 0; s < count; ++s) {
          steps.push_back({&q[s * key_dim], &k[s * key_dim], &v[s * stride],
                           0.5f + 0.1f * static_cast<float>(s % 5), 0.7f, &out[s * stride]});
          for (std::size_t c = 0; c < stride; ++c) {
            float predicted = 0, sum = 0;
            for (std::size_t i = 0; i < key_dim; ++i)
              predicted =
                  std::fma(state[i * stride + c] * steps[s].decay, steps[s].k[i], predicted);
            const float delta = (steps[s].v[c] - predicted) * steps[s].beta;
            for (std::size_t i = 0; i < key_dim; ++i) {
              float& cell = state[i * stride + c];
              cell = std::fma(steps[s].k[i], delta, cell * steps[s].decay);
              sum = std::fma(cell, steps[s].q[i], sum);
            }
            expected[s * stride + c] = sum;
          }
        }
        for (const Kernels* kernels : supported_kernels()) {
          std::vector<float> cells = start;
          kernels->delta_steps(cells.data(), key_dim, stride, steps.data(), count);
          expect_same(cells, state, "state", kernels->isa);
          expect_same(out, expected, "out", kernels->isa);
        }
      }
}

TEST(RowKernels, ConvolutionsEndWithSilu) {
  std::mt19937 random(3);
  for (const std::size_t kernel : {3u, 4u})
    for (const std::size_t channels : {5u, 16u, 50u}) {
      const std::vector<float> taps = random_values(kernel * channels, random);
      const std::vector<float> input = random_values(kernel * channels, random);
      std::vector<const float*> rows;
      for (std::size_t k = 0; k < kernel; ++k) rows.push_back(&input[k * channels]);
      std::vector<float> expected(channels), out(channels);
      for (std::size_t c = 0; c < channels; ++c) {
        float sum = 0;
        for (std::size_t k = 0; k < kernel; ++k)
          sum = std::fma(taps[c * kernel + k], rows[k][c], sum);
        expected[c] = sum * sigmoid(sum);
      }
      for (const Kernels* kernels : supported_kernels()) {
        kernels->convolve(taps.data(), kernel, rows.data(), channels, out.data());
        expect_same(out, expected, "convolution", kernels->isa);
      }
    }
}

TEST(RowKernels, SoftmaxBeginsAtTheLargest) {
  std::mt19937 random(4);
  for (const std::size_t n : {1u, 7u, 16u, 100u, 1000u}) {
    std::vector<float> scores = random_values(n, random, 20);
    const auto top = *std::max_element(scores.begin(), scores.end());
    std::vector<float> first;
    for (const Kernels* kernels : supported_kernels()) {
      std::vector<float> weights = scores;
      kernels->softmax(weights.data(), n);
      double sum = 0;
      for (const float w : weights) sum += w;
      EXPECT_NEAR(sum, 1, 1e-5);
      const auto at =
          static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
      for (std::size_t i = 0; i < n; ++i)
        ASSERT_NEAR(weights[i], weights[at] * std::exp(double{scores[i]} - top), 1e-6);
      if (first.empty()) first = weights;
      expect_same(weights, first, "softmax", kernels->isa);
      weights = scores;
      weights.front() = std::numeric_limits<float>::quiet_NaN();
      kernels->softmax(weights.data(), n);
      EXPECT_TRUE(std::isnan(weights.back())) << kernels->isa;
    }
  }
}

// Units of `unit` values as int_blocks.h says.
void check_units(const std::vector<float>& x, std::size_t unit, float most, const float* scales,
                 const auto& code, std::string_view what) {
  const std::size_t padded = (x.size() + kBlock - 1) / kBlock * kBlock;
  for (std::size_t at = 0; at < padded; at += unit) {
    float top = 0, wrong = 0;
    for (std::size_t i = at; i < std::min(at + unit, x.size()); ++i) {
      top = std::fabs(x[i]) > top ? std::fabs(x[i]) : top;
      wrong += x[i] - x[i];
    }
    ASSERT_TRUE(same(scales[at / unit], top / most + wrong)) << what << ", unit at " << at;
    if (std::isnan(wrong)) continue;
    const float inverse = top > 0 ? most / top : 0;
    for (std::size_t i = at; i < at + unit; ++i)
      ASSERT_EQ(code(i), i < x.size() ? std::nearbyint(x[i] * inverse) : 0) << what << " " << i;
  }
}

TEST(RowKernels, RoundedRowsHaveTheScalesOfTheirUnits) {
  std::mt19937 random(5);
  for (const std::size_t n : {1u, 31u, 64u, 300u, 320u, 512u, 640u, 2560u})
    for (const int kind : {0, 1, 2}) {
      std::vector<float> x = random_values(n, random);
      if (kind > 0) std::fill_n(x.begin(), std::min<std::size_t>(n, 40), -0.0f);
      if (kind > 1) x[n / 2] = std::numeric_limits<float>::quiet_NaN();
      if (kind > 1) x[n / 3] = -std::numeric_limits<float>::infinity();
      for (const Kernels* kernels : supported_kernels()) {
        const std::string what = std::string(kernels->isa) + ", " + std::to_string(n);
        QuantizedRows rows;
        rows.resize(1, n, BlockKind::group_words);
        kernels->quantize_words(x.data(), n, rows.row(0));
        check_units(
            x, 32, 32767, rows.row(0).scales, [&](std::size_t i) { return rows.row(0).words[i]; },
            what + " words");
        for (const BlockKind of : {BlockKind::group_floats, BlockKind::group_integers}) {
          rows.resize(1, n, of);
          const QuantizedRow row = rows.row(0);
          kernels->quantize_row(x.data(), n, scale_width(of), row);
          check_units(
              x, scale_width(of), 127, row.scales, [&](std::size_t i) { return row.values[i]; },
              what + " bytes");
          for (std::size_t i = 0; i < (n + kBlock - 1) / kBlock * kBlock; ++i)
            ASSERT_EQ(row.biased[i], static_cast<std::uint8_t>(row.values[i] + 128));
        }
      }
    }
}

}  // namespace
}  // namespace strata::cpu
