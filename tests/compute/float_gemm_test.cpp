// The float products: on every instruction set, for one token or many, the bits of the order that
// kernels.h states; and near the plainest arithmetic.
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

// The order as it is written down.
float in_order(const float* row, const float* x, std::size_t depth) {
  float y = 0;
  for (std::size_t k = 0; k < depth; k += kRun) {
    float sums[kLanes] = {};
    for (std::size_t i = k; i < std::min(k + kRun, depth); ++i)
      sums[i % kLanes] = std::fma(row[i], x[i], sums[i % kLanes]);
    for (std::size_t step = kLanes / 2; step > 0; step /= 2)
      for (std::size_t i = 0; i < step; ++i) sums[i] += sums[i + step];
    y = k == 0 ? sums[0] : y + sums[0];
  }
  return y;
}

std::vector<float> random_floats(std::size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& v : values) v = normal(random);
  return values;
}

TEST_P(FloatProducts, HaveTheBitsOfTheStatedOrderOnEveryInstructionSet) {
  const TensorType type = GetParam();
  constexpr std::size_t most = 29;
  std::mt19937 random(3);
  for (const std::size_t depth : {1u, 15u, 16u, 32u, 40u, 64u, 96u, 160u, 320u, 576u, 1024u, 1280u,
                                  1344u, 1312u, 2560u, 2700u}) {
    if (depth % traits(type).block_values != 0) continue;
    for (const std::size_t rows : {1u, 2u, 4u, 6u, 16u, 48u, 64u, 75u}) {
      std::vector<float> values = random_floats(rows * depth, random);
      std::vector<std::byte> weights(*bytes_of(type, values.size()));
      ASSERT_TRUE(encode(type, values, weights));
      ASSERT_TRUE(decode(type, weights, values));
      const std::vector<float> x = random_floats(most * depth, random);
      std::vector<float> wanted(most * rows);
      for (std::size_t t = 0; t < most; ++t)
        for (std::size_t r = 0; r < rows; ++r) {
          wanted[t * rows + r] = in_order(values.data() + r * depth, x.data() + t * depth, depth);
          double sum = 0, size = 0;
          for (std::size_t k = 0; k < depth; ++k) {
            const double product = double{values[r * depth + k]} * double{x[t * depth + k]};
            sum += product;
            size += std::fabs(product);
          }
          ASSERT_NEAR(wanted[t * rows + r], sum, 1e-6 * size);
        }
      for (const Kernels* kernels : supported_kernels())
        for (const std::size_t tokens : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 16u, 17u, 29u}) {
          std::vector<float> y(tokens * rows, NAN);
          std::vector<const float*> in(tokens);
          std::vector<float*> out(tokens);
          for (std::size_t t = 0; t < tokens; ++t) {
            in[t] = x.data() + t * depth;
            out[t] = y.data() + t * rows;
          }
          const auto multiply = [&](bool first) {
            return kernels->float_gemm(type, weights.data(), weights.size() / rows, rows, depth,
                                       in.data(), out.data(), tokens, weights.data(), first);
          };
          ASSERT_TRUE(multiply(true));
          ASSERT_EQ(std::memcmp(wanted.data(), y.data(), y.size() * sizeof(float)), 0)
              << to_string(type) << " " << kernels->isa << " " << rows << " x " << depth << " for "
              << tokens;
          if (depth > kRun) continue;
          ASSERT_TRUE(multiply(false));
          for (std::size_t i = 0; i < y.size(); ++i)
            ASSERT_EQ(y[i], wanted[i] + wanted[i]) << kernels->isa << ", added";
        }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, FloatProducts,
                         testing::Values(TensorType::F32, TensorType::F16, TensorType::BF16,
                                         TensorType::Q8_0),
                         [](const auto& type) { return std::string(to_string(type.param)); });

TEST(FloatProducts, RefuseTypesThatMustBeDecoded) {
  const std::byte* const none = nullptr;
  for (const Kernels* kernels : supported_kernels())
    EXPECT_FALSE(
        kernels->float_gemm(TensorType::Q4_K, none, 0, 0, 0, nullptr, nullptr, 0, none, true));
}

}  // namespace
}  // namespace strata::cpu
