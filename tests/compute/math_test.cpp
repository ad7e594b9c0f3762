// Scalar functions of the CPU kernels, and norms side by side.
#include "compute/cpu/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <vector>

#include "compute/cpu/kernels.h"

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

TEST(Norms, SideBySideAreThoseOfOneAfterTheOther) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (const Kernels* kernels : supported_kernels())
    for (const std::size_t streams : {1u, 3u, 4u, 9u})
      for (const std::size_t n : {16u, 40u, 256u}) {
        std::vector<float> x(streams * n), gain(x.size()), y(x.size()), expected(x.size());
        for (float& v : x) v = normal(random);
        for (float& v : gain) v = normal(random);
        for (std::size_t at = 0; at < x.size(); at += n)
          kPortable.rms_norm(x.data() + at, gain.data() + at, n, 1e-6f, expected.data() + at);
        kernels->rms_norms(x.data(), gain.data(), streams, n, 1e-6f, y.data());
        EXPECT_EQ(y, expected) << kernels->isa << ", " << streams << " of " << n;
        kernels->rms_norms(x.data(), gain.data(), streams, n, 1e-6f, x.data());
        EXPECT_EQ(x, expected) << kernels->isa << " in place";
      }
}

// What the kernels do on lanes, or with instructions, is what math.h says for one value.
TEST(ScalarFunctions, AreTheSameInAllKernels) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0f, 20.0f);
  std::vector<float> values = {0.0f,   -0.0f,  1e-30f, -87.3f,   -87.31f,   88.0f,
                               200.0f, -200.f, 1e30f,  INFINITY, -INFINITY, NAN};
  while (values.size() < 4'003) values.push_back(normal(random));
  const auto n = values.size();
  for (const Kernels* kernels : supported_kernels()) {
    std::vector<float> powers = values, gates = values, decay = values, open = values;
    kernels->exp_above(powers.data(), n, 1.5f);
    kernels->open_gates(gates.data(), n, 4.0f);
    std::vector<float> a(n), bias(n);
    for (float& v : a) v = -std::fabs(normal(random)) / 20;
    for (float& v : bias) v = normal(random) / 20;
    kernels->delta_gates(a.data(), bias.data(), n, decay.data(), open.data());
    for (std::size_t i = 0; i < n; ++i) {
      const float x = values[i];
      ASSERT_TRUE(same(powers[i], exp(x - 1.5f))) << kernels->isa << ": exp of " << x << " - 1.5";
      ASSERT_TRUE(same(gates[i], 2.0f * sigmoid(x / 4.0f))) << kernels->isa << ": gate of " << x;
      ASSERT_TRUE(same(decay[i], exp(a[i] * softplus(x + bias[i])))) << kernels->isa << ": " << x;
      ASSERT_TRUE(same(open[i], sigmoid(x))) << kernels->isa << ": sigmoid of " << x;
      ASSERT_TRUE(same(kernels->sigmoid(x), sigmoid(x))) << kernels->isa << ": sigmoid of " << x;
    }
    const std::vector<float> frequencies = {1.0f, 0.5f, 0.031f, 1e-4f, 3e-7f};
    for (const float position : {0.0f, 1.0f, 77.0f, 8'191.0f, 1e6f}) {
      std::vector<float> turns(2 * frequencies.size());
      kernels->rotation(position, frequencies.data(), frequencies.size(), 1.25f, turns.data());
      for (std::size_t i = 0; i < frequencies.size(); ++i) {
        const SinCos expected = sin_cos(position * frequencies[i]);
        EXPECT_TRUE(same(turns[i], expected.cos * 1.25f)) << kernels->isa << " at " << position;
        EXPECT_TRUE(same(turns[frequencies.size() + i], expected.sin * 1.25f)) << kernels->isa;
      }
    }
  }
}

}  // namespace
}  // namespace strata::cpu
