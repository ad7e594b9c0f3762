// The small float formats: IEEE half, bfloat16 and FP8 E4M3. Exact, free of branches that depend on
// the value where a loop over them should vectorise, independent of the denormal mode (half) and of
// the instruction set. Always inlined, so that files compiled for different instruction sets share
// no out-of-line copy.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace strata {

// Exact. Signalling NaN becomes quiet, the payload's bits stay.
[[gnu::always_inline]] constexpr float half_to_float(std::uint16_t half) {
  const std::uint32_t magnitude = half & 0x7fffu;
  const std::uint32_t sign = (half & 0x8000u) << 16;
  // Infinity and NaN move the exponent a second time, from 31 + 112 to 255.
  const std::uint32_t special = magnitude >= 0x7c00u ? 112u << 23 : 0u;
  const std::uint32_t quiet = magnitude > 0x7c00u ? 1u << 22 : 0u;
  const std::uint32_t normal = ((magnitude << 13) + (112u << 23) + special) | quiet;
  // 0.5 has an ulp of 2^-24, a subnormal half's unit: add the fraction there and take 0.5 away.
  const float fraction = std::bit_cast<float>((126u << 23) | magnitude) - 0.5f;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(fraction);
  return std::bit_cast<float>((magnitude < 0x0400u ? subnormal : normal) | sign);
}

// Rounds to nearest even; overflow gives infinity, NaN stays NaN (quiet).
[[gnu::always_inline]] constexpr std::uint16_t float_to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x01ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520 and more, the midpoint above 65504 included
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: the addition rounds to multiples of 2^-24
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - (126u << 23);
  } else {
    half = (magnitude + 0x0fffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
  }
  return static_cast<std::uint16_t>(half | sign);
}

// Exact.
[[gnu::always_inline]] constexpr float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Rounds to nearest even; overflow gives infinity, NaN stays NaN (quiet).
[[gnu::always_inline]] constexpr std::uint16_t float_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

namespace detail {

constexpr std::array<float, 256> f8_e4m3_table() {
  std::array<float, 256> table{};
  for (std::uint32_t code = 0; code < 256; ++code) {
    const std::uint32_t sign = (code & 0x80u) << 24;
    const std::uint32_t exponent = (code >> 3) & 15u;
    const std::uint32_t fraction = code & 7u;
    std::uint32_t bits = ((exponent + 120u) << 23) | (fraction << 20);
    if (exponent == 0) {  // steps of 2^-9
      bits = std::bit_cast<std::uint32_t>(static_cast<float>(fraction) * 0.001953125f);
    }
    if ((code & 0x7fu) == 0x7fu) bits = 0x7fc00000u;
    table[code] = std::bit_cast<float>(bits | sign);
  }
  return table;
}

inline constexpr std::array<float, 256> f8_e4m3_values = f8_e4m3_table();

}  // namespace detail

// E4M3 "fn": 0x7F and 0xFF are NaN, no infinities, largest 448.
[[gnu::always_inline]] constexpr float f8_e4m3_to_float(std::uint8_t bits) {
  return detail::f8_e4m3_values[bits];
}

}  // namespace strata
