// Scalar functions of the CPU kernels.
#include "compute/cpu/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>

namespace strata::cpu {
namespace {

bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

TEST(Fused, IsTheLibrarysFma) {
  std::mt19937 random(1);
  const auto any = [&] { return std::bit_cast<float>(static_cast<std::uint32_t>(random())); };
  const auto near_one = [&] {  // exponents close together: sums that cancel and that lie halfway
    return std::bit_cast<float>(static_cast<std::uint32_t>((random() & 0x80ffffffu) + 0x3f000000u));
  };
  const auto few_bits = [&] {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(any()) & 0xfff00000u);
  };
  std::size_t inexact = 0;
  for (int i = 0; i < 3'000'000; ++i) {
    const float a = i % 3 == 0 ? any() : near_one(), b = i % 3 == 1 ? near_one() : few_bits();
    float c = i % 3 == 2 ? near_one() : any();
    if (i % 7 == 0) c = -a * b;  // leaves the product's error
    if (i % 7 == 1 && std::isnormal(a * b))
      c = std::ldexp(near_one(), std::ilogb(a * b) - 24);  // half of a last place
    const float expected = std::fma(a, b, c), got = fused(a, b, c);
    ASSERT_TRUE(same(expected, got))
        << std::hexfloat << a << " * " << b << " + " << c << ": " << expected << ", not " << got;
    inexact += expected != a * b + c;
  }
  EXPECT_GT(inexact, 100'000u) << "most of these should need a single rounding";
}

TEST(Fused, RoundsOnce) {
  // The double sum of these lies halfway between two floats, the exact sum does not.
  const float a = 1.0f + 0x1p-12f, b = 1.0f + 0x1p-12f, c = 0x1p-100f;
  EXPECT_EQ(fused(a, b, c), std::fma(a, b, c));
  EXPECT_TRUE(same(fused(a, b, c), 1.0f + 0x1p-11f + 0x1p-23f));
  EXPECT_TRUE(same(fused(a, b, -c), 1.0f + 0x1p-11f));
  EXPECT_TRUE(same(fused(0.0f, 1.0f, -0.0f), 0.0f));
  EXPECT_TRUE(same(fused(-0.0f, 1.0f, -0.0f), -0.0f));
  EXPECT_TRUE(same(fused(INFINITY, 1.0f, -1.0f), INFINITY));
  EXPECT_TRUE(std::isnan(fused(INFINITY, 1.0f, -INFINITY)));
}

}  // namespace
}  // namespace strata::cpu
