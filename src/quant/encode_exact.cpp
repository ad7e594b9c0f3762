// Encoders with one right result: the plain types by rounding to nearest even, the simple blocks by
// ggml's reference rule (the scale comes from the extreme values, codes from the scale before it is
// rounded to a half).
#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/encoders.h"

namespace strata::quant {
namespace {

bool encode_f32(const float* values, BlockF32& block) {
  store_u32(block.bits, std::bit_cast<std::uint32_t>(*values));
  return true;
}

bool encode_f16(const float* values, BlockF16& block) {
  const std::uint16_t half = float_to_half(*values);
  store_u16(block.bits, half);
  return is_finite_half(half);
}

bool encode_bf16(const float* values, BlockBF16& block) {
  const std::uint16_t bits = float_to_bf16(*values);
  store_u16(block.bits, bits);
  return (bits & 0x7f80u) != 0x7f80u;
}

// 1 / d, and 0 where d is zero or so small that its inverse is no number: such a scale is zero as a
// half, so the codes do not matter.
float inverse(float d) {
  const float inv = d != 0.0f ? 1.0f / d : 0.0f;
  return std::abs(inv) <= std::numeric_limits<float>::max() ? inv : 0.0f;
}

// Writes a scale (or minimum); false if it is no finite half.
bool store_scale(Byte* to, float value) {
  const std::uint16_t half = float_to_half(value);
  store_u16(to, half);
  return is_finite_half(half);
}

// The first value of the largest magnitude, with its sign.
float signed_extreme(const float* values) {
  float extreme = 0.0f;
  for (int i = 0; i < 32; ++i) {
    if (std::abs(values[i]) > std::abs(extreme)) extreme = values[i];
  }
  return extreme;
}

struct Range {
  float min;
  float max;
};
Range range_of(const float* values) {
  const auto [min, max] = std::minmax_element(values, values + 32);
  return {*min, *max};
}

// Low nibbles hold the first 16 codes, high nibbles the next.
void pack_nibbles(const int* codes, Byte* qs) {
  for (int j = 0; j < 16; ++j) {
    qs[j] = static_cast<Byte>((codes[j] & 15) | ((codes[j + 16] & 15) << 4));
  }
}

void pack_fifth_bits(const int* codes, Byte* qh) {
  std::uint32_t high = 0;
  for (int i = 0; i < 32; ++i) high |= static_cast<std::uint32_t>(codes[i] >> 4) << i;
  store_u32(qh, high);
}

// Codes around an offset of 2^(bits-1): the extreme value gets code 0.
template <int bits>
bool symmetric_codes(const float* values, Byte* d_out, int* codes) {
  constexpr int offset = 1 << (bits - 1);
  const float d = signed_extreme(values) / static_cast<float>(-offset);
  const float inv = inverse(d);
  for (int i = 0; i < 32; ++i) {
    const float code = values[i] * inv + (static_cast<float>(offset) + 0.5f);
    codes[i] = std::min(2 * offset - 1, static_cast<int>(code));
  }
  return store_scale(d_out, d);
}

// Codes from the minimum up.
template <int bits>
bool affine_codes(const float* values, Byte* d_out, Byte* m_out, int* codes) {
  constexpr int top = (1 << bits) - 1;
  const Range range = range_of(values);
  const float d = (range.max - range.min) / static_cast<float>(top);
  if (!store_scale(d_out, d) || !store_scale(m_out, range.min)) return false;
  const float inv = inverse(d);
  for (int i = 0; i < 32; ++i) {
    const float code = (values[i] - range.min) * inv + 0.5f;
    codes[i] = std::min(top, static_cast<int>(code));
  }
  return true;
}

bool encode_q4_0(const float* values, BlockQ4_0& block) {
  int codes[32];
  if (!symmetric_codes<4>(values, block.d, codes)) return false;
  pack_nibbles(codes, block.qs);
  return true;
}

bool encode_q4_1(const float* values, BlockQ4_1& block) {
  int codes[32];
  if (!affine_codes<4>(values, block.d, block.m, codes)) return false;
  pack_nibbles(codes, block.qs);
  return true;
}

bool encode_q5_0(const float* values, BlockQ5_0& block) {
  int codes[32];
  if (!symmetric_codes<5>(values, block.d, codes)) return false;
  pack_nibbles(codes, block.qs);
  pack_fifth_bits(codes, block.qh);
  return true;
}

bool encode_q5_1(const float* values, BlockQ5_1& block) {
  int codes[32];
  if (!affine_codes<5>(values, block.d, block.m, codes)) return false;
  pack_nibbles(codes, block.qs);
  pack_fifth_bits(codes, block.qh);
  return true;
}

bool encode_q8_0(const float* values, BlockQ8_0& block) {
  const float d = std::abs(signed_extreme(values)) / 127.0f;
  const float inv = inverse(d);
  for (int i = 0; i < 32; ++i) {  // halves round away from zero
    block.qs[i] = static_cast<Byte>(static_cast<int>(std::round(values[i] * inv)));
  }
  return store_scale(block.d, d);
}

}  // namespace

RowEncoder exact_encoder(TensorType type) {
  switch (type) {
    case TensorType::F32:
      return encode_blocks<BlockF32, encode_f32>;
    case TensorType::F16:
      return encode_blocks<BlockF16, encode_f16>;
    case TensorType::BF16:
      return encode_blocks<BlockBF16, encode_bf16>;
    case TensorType::Q4_0:
      return encode_blocks<BlockQ4_0, encode_q4_0>;
    case TensorType::Q4_1:
      return encode_blocks<BlockQ4_1, encode_q4_1>;
    case TensorType::Q5_0:
      return encode_blocks<BlockQ5_0, encode_q5_0>;
    case TensorType::Q5_1:
      return encode_blocks<BlockQ5_1, encode_q5_1>;
    case TensorType::Q8_0:
      return encode_blocks<BlockQ8_0, encode_q8_0>;
    default:
      return nullptr;
  }
}

}  // namespace strata::quant
