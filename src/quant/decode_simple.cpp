// Decoders of the plain types and of the blocks with one scale (Q4_0 to Q8_0, Q2_0).
#include "quant/decoders.h"

namespace strata::quant {
namespace {

void decode_f32(const std::byte* blocks, float* __restrict out, std::size_t count) {
  const auto* block = reinterpret_cast<const BlockF32*>(blocks);
  for (std::size_t i = 0; i < count; ++i) out[i] = std::bit_cast<float>(load_u32(block[i].bits));
}

void decode_f16(const std::byte* blocks, float* __restrict out, std::size_t count) {
  const auto* block = reinterpret_cast<const BlockF16*>(blocks);
  for (std::size_t i = 0; i < count; ++i) out[i] = load_half(block[i].bits);
}

void decode_bf16(const std::byte* blocks, float* __restrict out, std::size_t count) {
  const auto* block = reinterpret_cast<const BlockBF16*>(blocks);
  for (std::size_t i = 0; i < count; ++i) out[i] = bf16_to_float(load_u16(block[i].bits));
}

void decode_q4_0(const BlockQ4_0& block, float* __restrict out) {
  const float d = load_half(block.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>((block.qs[j] & 15) - 8) * d;
    out[j + 16] = static_cast<float>((block.qs[j] >> 4) - 8) * d;
  }
}

void decode_q4_1(const BlockQ4_1& block, float* __restrict out) {
  const float d = load_half(block.d);
  const float m = load_half(block.m);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(block.qs[j] & 15) * d + m;
    out[j + 16] = static_cast<float>(block.qs[j] >> 4) * d + m;
  }
}

// The codes of a Q5 block: four bits from qs and the fifth from bit i of the word qh.
template <class Block>
void unpack_q5(const Block& block, std::uint8_t* __restrict codes) {
  const std::uint32_t high = load_u32(block.qh);
  for (int j = 0; j < 16; ++j) {
    codes[j] = static_cast<std::uint8_t>((block.qs[j] & 15u) | (((high >> j) & 1u) << 4));
    codes[j + 16] =
        static_cast<std::uint8_t>((block.qs[j] >> 4) | (((high >> (j + 16)) & 1u) << 4));
  }
}

void decode_q5_0(const BlockQ5_0& block, float* __restrict out) {
  const float d = load_half(block.d);
  std::uint8_t codes[32];
  unpack_q5(block, codes);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(codes[i] - 16) * d;
}

void decode_q5_1(const BlockQ5_1& block, float* __restrict out) {
  const float d = load_half(block.d);
  const float m = load_half(block.m);
  std::uint8_t codes[32];
  unpack_q5(block, codes);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(codes[i]) * d + m;
}

void decode_q8_0(const BlockQ8_0& block, float* __restrict out) {
  const float d = load_half(block.d);
  for (int j = 0; j < 32; ++j) {
    out[j] = static_cast<float>(static_cast<std::int8_t>(block.qs[j])) * d;
  }
}

void decode_q2_0(const BlockQ2_0& block, float* __restrict out) {
  const float d = load_half(block.d);
  for (int j = 0; j < 16; ++j) {
    for (int k = 0; k < 4; ++k) {
      out[4 * j + k] = static_cast<float>(((block.qs[j] >> (2 * k)) & 3) - 1) * d;
    }
  }
}

}  // namespace

RowDecoder plain_decoder(TensorType type) {
  switch (type) {
    case TensorType::F32:
      return decode_f32;
    case TensorType::F16:
      return decode_f16;
    case TensorType::BF16:
      return decode_bf16;
    default:
      return nullptr;
  }
}

RowDecoder simple_decoder(TensorType type) {
  switch (type) {
    case TensorType::Q4_0:
      return decode_blocks<BlockQ4_0, decode_q4_0>;
    case TensorType::Q4_1:
      return decode_blocks<BlockQ4_1, decode_q4_1>;
    case TensorType::Q5_0:
      return decode_blocks<BlockQ5_0, decode_q5_0>;
    case TensorType::Q5_1:
      return decode_blocks<BlockQ5_1, decode_q5_1>;
    case TensorType::Q8_0:
      return decode_blocks<BlockQ8_0, decode_q8_0>;
    case TensorType::Q2_0:
      return decode_blocks<BlockQ2_0, decode_q2_0>;
    default:
      return nullptr;
  }
}

}  // namespace strata::quant
