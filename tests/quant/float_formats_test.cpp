#include "quant/float_formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "quant/quant.h"

namespace strata {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

// By the definition, in double.
double half_by_definition(unsigned half) {
  const int exponent = static_cast<int>((half >> 10) & 31);
  const double fraction = half & 1023;
  const double sign = (half & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  if (exponent == 31) return fraction == 0 ? sign * inf : std::nan("");
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Half, EveryValueIsExact) {
  for (unsigned half = 0; half < 65536; ++half) {
    const float value = half_to_float(static_cast<std::uint16_t>(half));
    const auto expected = static_cast<float>(half_by_definition(half));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << half;
      const auto bits = std::bit_cast<std::uint32_t>(value);
      ASSERT_NE(bits & 0x00400000u, 0u) << "not quiet: " << half;
      ASSERT_EQ(bits >> 31, half >> 15) << half;
      ASSERT_EQ(bits & 0x003fffffu, (half & 0x01ffu) << 13) << half;
    } else {
      ASSERT_TRUE(same_bits(value, expected)) << half;
    }
  }
}

TEST(Half, EveryValueSurvivesTheRoundTrip) {
  for (unsigned half = 0; half < 65536; ++half) {
    const float value = half_to_float(static_cast<std::uint16_t>(half));
    const unsigned back = float_to_half(value);
    const bool nan = (half & 0x7fff) > 0x7c00;
    ASSERT_EQ(back, nan ? half | 0x0200 : half);
  }
}

TEST(Half, MidpointsGoToEvenAndTheirNeighboursToTheNearest) {
  for (unsigned half = 0; half < 0x7bff; ++half) {
    const double below = half_by_definition(half);
    const auto middle = static_cast<float>((below + half_by_definition(half + 1)) / 2);  // exact
    const unsigned even = half % 2 == 0 ? half : half + 1;
    ASSERT_EQ(float_to_half(middle), even) << half;
    ASSERT_EQ(float_to_half(-middle), even | 0x8000) << half;
    ASSERT_EQ(float_to_half(std::nextafter(middle, 0.0f)), half);
    ASSERT_EQ(float_to_half(std::nextafter(middle, inf)), half + 1);
  }
}

TEST(Half, OverflowAndSpecials) {
  EXPECT_EQ(float_to_half(65504.0f), 0x7bff);
  EXPECT_EQ(float_to_half(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_half(-1e30f), 0xfc00);
  EXPECT_EQ(float_to_half(inf), 0x7c00);
  EXPECT_EQ(float_to_half(-0.0f), 0x8000);
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::denorm_min()), 0);
  // A NaN whose payload lies in the bits that a half lacks must not become infinity.
  EXPECT_EQ(float_to_half(std::bit_cast<float>(0x7f800001u)) & 0x7e00, 0x7e00);
}

TEST(BFloat16, EveryValueSurvivesTheRoundTrip) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const float value = bf16_to_float(static_cast<std::uint16_t>(bits));
    ASSERT_EQ(std::bit_cast<std::uint32_t>(value), bits << 16);
    const bool nan = (bits & 0x7fff) > 0x7f80;
    ASSERT_EQ(float_to_bf16(value), nan ? bits | 0x40 : bits);
  }
}

TEST(BFloat16, MidpointsGoToEven) {
  for (std::uint32_t bits = 0; bits < 0x7f7f; ++bits) {
    const std::uint32_t middle = (bits << 16) | 0x8000;
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(float_to_bf16(std::bit_cast<float>(middle)), even);
    ASSERT_EQ(float_to_bf16(std::bit_cast<float>(middle - 1)), bits);
    ASSERT_EQ(float_to_bf16(std::bit_cast<float>(middle + 1)), bits + 1);
    ASSERT_EQ(float_to_bf16(std::bit_cast<float>(middle | 0x80000000u)), even | 0x8000);
  }
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x7f800001u)), 0x7fc0);
}

TEST(F8E4M3, EveryValueIsByDefinition) {
  for (unsigned code = 0; code < 256; ++code) {
    const float value = f8_e4m3_to_float(static_cast<std::uint8_t>(code));
    if ((code & 127) == 127) {
      EXPECT_TRUE(std::isnan(value)) << code;
      continue;
    }
    const int exponent = static_cast<int>((code >> 3) & 15);
    const int fraction = static_cast<int>(code & 7);
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
    const auto expected = static_cast<float>(code < 128 ? magnitude : -magnitude);
    EXPECT_TRUE(same_bits(value, expected)) << code << ": " << value;
  }
  EXPECT_EQ(f8_e4m3_to_float(0x7e), 448.0f);
}

TEST(F8E4M3, DecodesWithOneScale) {
  const std::vector<std::byte> bytes = {std::byte{0x38}, std::byte{0xb8}, std::byte{0x01},
                                        std::byte{0x7f}};
  std::vector<float> out(4);
  ASSERT_TRUE(decode_f8_e4m3(bytes, 0.3f, out));
  EXPECT_EQ(out[0], 0.3f);
  EXPECT_EQ(out[1], -0.3f);
  EXPECT_EQ(out[2], 0.3f * 0.001953125f);
  EXPECT_TRUE(std::isnan(out[3]));
  const Status status = decode_f8_e4m3(bytes, 1.0f, std::span(out).first(3));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(status.error().message, "4 bytes of F8_E4M3 cannot fill 3 values");
}

}  // namespace
}  // namespace strata
