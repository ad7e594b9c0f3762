// The float products: with and without panels, on every instruction set, the same bits; and near
// the plainest arithmetic.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "compute/cpu/kernels.h"
#include "quant/quant.h"

namespace strata::cpu {
namespace {

class FloatProducts : public testing::TestWithParam<TensorType> {};

// y by panels, as prompts are multiplied.
std::vector<float> by_panels(const Kernels& kernels, TensorType type,
                             const std::vector<std::byte>& weights, std::size_t rows,
                             std::size_t depth, const std::vector<float>& x, std::size_t tokens) {
  const std::size_t row_bytes = weights.size() / rows;
  std::vector<float> y(tokens * rows, NAN), panel(kRun * kPanelRows);
  for (std::size_t first = 0; first < rows; first += kPanelRows) {
    const std::size_t count = std::min(kPanelRows, rows - first);
    for (std::size_t k = 0; k < depth; k += kRun) {
      const std::size_t run = std::min(kRun, depth - k);
      for (std::size_t group = 0; group < count; group += kLanes) {
        const std::byte* stored[kLanes];
        for (std::size_t i = 0; i < kLanes; ++i) {
          const std::size_t row = first + std::min(group + i, count - 1);
          stored[i] = weights.data() + row * row_bytes + *bytes_of(type, k);
        }
        if (kernels.pack(type, stored, run, panel.data() + group)) continue;
        std::vector<std::vector<float>> decoded(kLanes, std::vector<float>(run));
        const float* in[kLanes];
        for (std::size_t i = 0; i < kLanes; ++i) {
          EXPECT_TRUE(decode(type, {stored[i], *bytes_of(type, run)}, decoded[i]));
          in[i] = decoded[i].data();
        }
        kernels.pack_floats(in, run, panel.data() + group);
      }
      std::vector<const float*> in(tokens);
      std::vector<float*> out(tokens);
      for (std::size_t t = 0; t < tokens; ++t) {
        in[t] = x.data() + t * depth + k;
        out[t] = y.data() + t * rows + first;
      }
      kernels.gemm(panel.data(), run, in.data(), out.data(), tokens, count, k == 0);
    }
  }
  return y;
}

// The same for a few rows, four runs at a time.
std::vector<float> by_narrow_panels(const Kernels& kernels, const std::vector<float>& values,
                                    std::size_t rows, std::size_t depth,
                                    const std::vector<float>& x, std::size_t tokens) {
  std::vector<float> y(tokens * rows, NAN), panel(kRun * kLanes, 0.0f);
  for (std::size_t k = 0; k < depth; k += kNarrowRuns * kRun) {
    for (std::size_t i = 0; i < kRun; ++i)
      for (std::size_t run = 0; run < kNarrowRuns; ++run)
        for (std::size_t r = 0; r < rows; ++r)
          panel[i * kLanes + run * kNarrowRows + r] = values[r * depth + k + run * kRun + i];
    std::vector<const float*> in(tokens);
    std::vector<float*> out(tokens);
    for (std::size_t t = 0; t < tokens; ++t) {
      in[t] = x.data() + t * depth + k;
      out[t] = y.data() + t * rows;
    }
    kernels.gemm_narrow(panel.data(), in.data(), out.data(), tokens, rows, k == 0);
  }
  return y;
}

TEST_P(FloatProducts, HaveTheSameBitsWithAndWithoutPanelsOnEveryInstructionSet) {
  const TensorType type = GetParam();
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const std::size_t depth : {32u, 64u, 96u, 128u, 160u, 320u, 576u, 1024u, 2560u}) {
    for (const std::size_t rows : {1u, 4u, 16u, 48u, 64u, 75u}) {
      std::vector<float> values(rows * depth);
      for (float& v : values) v = normal(random);
      std::vector<std::byte> weights(*bytes_of(type, values.size()));
      ASSERT_TRUE(encode(type, values, weights));
      ASSERT_TRUE(decode(type, weights, values));
      constexpr std::size_t tokens = 7;
      std::vector<float> x(tokens * depth);
      for (float& v : x) v = normal(random);
      std::vector<float> first;
      for (const Kernels* kernels : supported_kernels()) {
        if (!first.empty() && kernels->gemm_narrow && rows <= kNarrowRows &&
            depth % (kNarrowRuns * kRun) == 0) {
          const auto y = by_narrow_panels(*kernels, values, rows, depth, x, tokens);
          ASSERT_EQ(std::memcmp(first.data(), y.data(), y.size() * sizeof(float)), 0)
              << to_string(type) << " " << kernels->isa << ", narrow, " << rows << " x " << depth;
        }
        const auto y = by_panels(*kernels, type, weights, rows, depth, x, tokens);
        if (first.empty()) first = y;
        ASSERT_EQ(std::memcmp(first.data(), y.data(), y.size() * sizeof(float)), 0)
            << to_string(type) << " " << kernels->isa << " " << rows << " x " << depth;
        for (const std::size_t few : {1u, 2u, 3u, 4u, 7u}) {
          if (few > kernels->few_tokens) continue;
          std::vector<float> z(few * rows, NAN);
          std::vector<const float*> in(few);
          std::vector<float*> out(few);
          for (std::size_t t = 0; t < few; ++t) {
            in[t] = x.data() + t * depth;
            out[t] = z.data() + t * rows;
          }
          if (!kernels->float_gemv(type, weights.data(), weights.size() / rows, rows, depth,
                                   in.data(), out.data(), few, weights.data())) {
            ASSERT_NE(depth % 64, 0u) << "whole steps have a way without panels";
            continue;
          }
          ASSERT_EQ(std::memcmp(first.data(), z.data(), z.size() * sizeof(float)), 0)
              << to_string(type) << " " << kernels->isa << " " << rows << " x " << depth << " for "
              << few;
        }
      }
      for (std::size_t t = 0; t < tokens; ++t)
        for (std::size_t r = 0; r < rows; ++r) {
          double sum = 0, size = 0;
          for (std::size_t k = 0; k < depth; ++k) {
            const double product = double{values[r * depth + k]} * double{x[t * depth + k]};
            sum += product;
            size += std::fabs(product);
          }
          ASSERT_NEAR(first[t * rows + r], sum, 1e-6 * size);
        }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, FloatProducts,
                         testing::Values(TensorType::F32, TensorType::F16, TensorType::BF16,
                                         TensorType::Q8_0),
                         [](const auto& type) { return std::string(to_string(type.param)); });

}  // namespace
}  // namespace strata::cpu
