// Decoders of the K formats: 256 values in groups, each group with a small integer scale (and, in
// Q2_K, Q4_K and Q5_K, a small integer minimum). The group's float scale is rounded first, then
// multiplied by the code: (d * scale) * code - (dmin * min).
#include "quant/decoders.h"

namespace strata::quant {
namespace {

void decode_q2_k(const BlockQ2_K& block, float* __restrict out) {
  const float d = load_half(block.d);
  const float dmin = load_half(block.dmin);
  for (int group = 0; group < 16; ++group) {  // 16 values; eight groups share 32 bytes of codes
    const Byte* codes = block.qs + 32 * (group / 8) + 16 * (group % 2);
    const int shift = 2 * ((group / 2) % 4);
    const float scale = d * static_cast<float>(block.scales[group] & 15);
    const float min = dmin * static_cast<float>(block.scales[group] >> 4);
    for (int l = 0; l < 16; ++l) {
      out[16 * group + l] = scale * static_cast<float>((codes[l] >> shift) & 3) - min;
    }
  }
}

void decode_q3_k(const BlockQ3_K& block, float* __restrict out) {
  const float d = load_half(block.d);
  for (int group = 0; group < 16; ++group) {
    const Byte* codes = block.qs + 32 * (group / 8) + 16 * (group % 2);
    const Byte* high = block.hmask + 16 * (group % 2);
    const int shift = 2 * ((group / 2) % 4);
    const int high_shift = group / 2;  // bit 0 to 7: one for each 32 values
    const float scale = d * static_cast<float>(q3_k_scale(block.scales, group));
    for (int l = 0; l < 16; ++l) {
      const int code = ((codes[l] >> shift) & 3) | (((high[l] >> high_shift) & 1) << 2);
      out[16 * group + l] = scale * static_cast<float>(code - 4);
    }
  }
}

void decode_q4_k(const BlockQ4_K& block, float* __restrict out) {
  const float d = load_half(block.d);
  const float dmin = load_half(block.dmin);
  for (int pair = 0; pair < 4; ++pair) {  // two groups of 32 share 32 bytes
    const ScaleMin low = k4_scale_min(block.scales, 2 * pair);
    const ScaleMin high = k4_scale_min(block.scales, 2 * pair + 1);
    const float low_scale = d * static_cast<float>(low.scale);
    const float low_min = dmin * static_cast<float>(low.min);
    const float high_scale = d * static_cast<float>(high.scale);
    const float high_min = dmin * static_cast<float>(high.min);
    const Byte* codes = block.qs + 32 * pair;
    float* y = out + 64 * pair;
    for (int l = 0; l < 32; ++l) {
      y[l] = low_scale * static_cast<float>(codes[l] & 15) - low_min;
      y[l + 32] = high_scale * static_cast<float>(codes[l] >> 4) - high_min;
    }
  }
}

void decode_q5_k(const BlockQ5_K& block, float* __restrict out) {
  const float d = load_half(block.d);
  const float dmin = load_half(block.dmin);
  for (int group = 0; group < 8; ++group) {
    const ScaleMin sm = k4_scale_min(block.scales, group);
    const float scale = d * static_cast<float>(sm.scale);
    const float min = dmin * static_cast<float>(sm.min);
    const Byte* codes = block.qs + 32 * (group / 2);
    const int shift = 4 * (group % 2);
    for (int l = 0; l < 32; ++l) {
      const int code = ((codes[l] >> shift) & 15) | (((block.qh[l] >> group) & 1) << 4);
      out[32 * group + l] = scale * static_cast<float>(code) - min;
    }
  }
}

void decode_q6_k(const BlockQ6_K& block, float* __restrict out) {
  const float d = load_half(block.d);
  for (int group = 0; group < 16; ++group) {
    const int half = group / 8;         // 128 values: 64 bytes of ql, 32 of qh
    const int lane = (group % 8) / 2;   // 32 values
    const int part = 16 * (group % 2);  // 16 values
    const Byte* low = block.ql + 64 * half + 32 * (lane % 2) + part;
    const Byte* high = block.qh + 32 * half + part;
    const int low_shift = 4 * (lane / 2);
    const int high_shift = 2 * lane;
    const float scale = d * static_cast<float>(static_cast<std::int8_t>(block.scales[group]));
    for (int l = 0; l < 16; ++l) {
      const int code = ((low[l] >> low_shift) & 15) | (((high[l] >> high_shift) & 3) << 4);
      out[16 * group + l] = scale * static_cast<float>(code - 32);
    }
  }
}

}  // namespace

RowDecoder k_decoder(TensorType type) {
  switch (type) {
    case TensorType::Q2_K:
      return decode_blocks<BlockQ2_K, decode_q2_k>;
    case TensorType::Q3_K:
      return decode_blocks<BlockQ3_K, decode_q3_k>;
    case TensorType::Q4_K:
      return decode_blocks<BlockQ4_K, decode_q4_k>;
    case TensorType::Q5_K:
      return decode_blocks<BlockQ5_K, decode_q5_k>;
    case TensorType::Q6_K:
      return decode_blocks<BlockQ6_K, decode_q6_k>;
    default:
      return nullptr;
  }
}

}  // namespace strata::quant
