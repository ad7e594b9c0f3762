// Decoders of the IQ formats: groups of 8 (IQ1, IQ2) or 4 (IQ3) values are entries of a lattice
// table, with signs beside them; IQ4 has a table of 16 values. The group's float scale is rounded
// first, then multiplied by the table's value.
#include "quant/codebooks.h"
#include "quant/decoders.h"

namespace strata::quant {
namespace {

// out[j] = +-scale * (byte j of entry), negative where bit j of signs is set; `count` is 4 or 8.
template <int count, class Word>
void signed_entry(Word entry, std::uint32_t signs, float scale, float* __restrict out) {
  for (int j = 0; j < count; ++j) {
    const float value = scale * static_cast<float>(static_cast<int>((entry >> (8 * j)) & 255u));
    const std::uint32_t flip = (signs & (1u << j)) != 0 ? 0x80000000u : 0u;
    out[j] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ flip);
  }
}

// out[j] = scale * (signed byte j of entry + delta)
void ternary_entry(std::uint64_t entry, float delta, float scale, float* __restrict out) {
  for (int j = 0; j < 8; ++j) {
    const auto level = static_cast<std::int8_t>((entry >> (8 * j)) & 255u);
    out[j] = scale * (static_cast<float>(level) + delta);
  }
}

constexpr float iq1_delta = 0.125f;

void decode_iq1_s(const BlockIQ1_S& block, float* __restrict out) {
  const float d = load_half(block.d);
  for (int group = 0; group < 8; ++group) {
    const std::uint32_t high = load_u16(block.qh + 2 * group);
    const float scale = d * static_cast<float>(2 * ((high >> 12) & 7u) + 1);
    const float delta = (high & 0x8000u) != 0 ? -iq1_delta : iq1_delta;
    for (int l = 0; l < 4; ++l) {
      const std::uint32_t index = block.qs[4 * group + l] | (((high >> (3 * l)) & 7u) << 8);
      ternary_entry(iq1s_grid[index], delta, scale, out + 32 * group + 8 * l);
    }
  }
}

// The scale of an IQ1_M block lies in the top four bits of its four scale words.
float iq1_m_d(const Byte* scales) {
  std::uint32_t half = 0;
  for (int k = 0; k < 4; ++k) half |= (load_u16(scales + 2 * k) >> 12) << (4 * k);
  return half_to_float(static_cast<std::uint16_t>(half));
}

void decode_iq1_m(const BlockIQ1_M& block, float* __restrict out) {
  const float d = iq1_m_d(block.scales);
  for (int l = 0; l < 32; ++l) {  // eight values each; a scale for two of them
    const std::uint32_t high = (block.qh[l / 2] >> (4 * (l % 2))) & 15u;
    const int group = l / 2;
    const std::uint32_t scale_code =
        (std::uint32_t{load_u16(block.scales + 2 * (group / 4))} >> (3 * (group % 4))) & 7u;
    const float scale = d * static_cast<float>(2 * scale_code + 1);
    const float delta = (high & 8u) != 0 ? -iq1_delta : iq1_delta;
    const std::uint32_t index = block.qs[l] | ((high & 7u) << 8);
    ternary_entry(iq1s_grid[index], delta, scale, out + 8 * l);
  }
}

void decode_iq2_xxs(const BlockIQ2_XXS& block, float* __restrict out) {
  const float d = load_half(block.d);
  for (int group = 0; group < 8; ++group) {
    const Byte* indices = block.qs + 8 * group;
    const std::uint32_t tail = load_u32(indices + 4);
    const float scale = d * (0.5f + static_cast<float>(tail >> 28)) * 0.25f;
    for (int l = 0; l < 4; ++l) {
      signed_entry<8>(iq2xxs_grid[indices[l]], signs_of_index(tail >> (7 * l)), scale,
                      out + 32 * group + 8 * l);
    }
  }
}

// The scale of the eight values l (0 to 3) of a 32-value group: a nibble for each half.
float iq2_scale(float d, Byte scales, int l) {
  return d * (0.5f + static_cast<float>((scales >> (4 * (l / 2))) & 15)) * 0.25f;
}

void decode_iq2_xs(const BlockIQ2_XS& block, float* __restrict out) {
  const float d = load_half(block.d);
  for (int group = 0; group < 8; ++group) {
    for (int l = 0; l < 4; ++l) {
      const std::uint32_t code = load_u16(block.qs + 2 * (4 * group + l));
      signed_entry<8>(iq2xs_grid[code & 511u], signs_of_index(code >> 9),
                      iq2_scale(d, block.scales[group], l), out + 32 * group + 8 * l);
    }
  }
}

void decode_iq2_s(const BlockIQ2_S& block, float* __restrict out) {
  const float d = load_half(block.d);
  for (int group = 0; group < 8; ++group) {
    for (int l = 0; l < 4; ++l) {
      const int at = 4 * group + l;
      const std::uint32_t index = block.qs[at] | (((block.qh[group] >> (2 * l)) & 3u) << 8);
      signed_entry<8>(iq2s_grid[index], block.signs[at], iq2_scale(d, block.scales[group], l),
                      out + 32 * group + 8 * l);
    }
  }
}

void decode_iq3_xxs(const BlockIQ3_XXS& block, float* __restrict out) {
  const float d = load_half(block.d);
  for (int group = 0; group < 8; ++group) {
    const Byte* indices = block.qs + 8 * group;
    const std::uint32_t tail = load_u32(block.scales_signs + 4 * group);
    const float scale = d * (0.5f + static_cast<float>(tail >> 28)) * 0.5f;
    for (int l = 0; l < 4; ++l) {
      const std::uint32_t signs = signs_of_index(tail >> (7 * l));
      float* y = out + 32 * group + 8 * l;
      signed_entry<4>(iq3xxs_grid[indices[2 * l]], signs, scale, y);
      signed_entry<4>(iq3xxs_grid[indices[2 * l + 1]], signs >> 4, scale, y + 4);
    }
  }
}

void decode_iq3_s(const BlockIQ3_S& block, float* __restrict out) {
  const float d = load_half(block.d);
  for (int group = 0; group < 8; ++group) {
    const int scale_code = (block.scales[group / 2] >> (4 * (group % 2))) & 15;
    const float scale = d * static_cast<float>(1 + 2 * scale_code);
    for (int l = 0; l < 8; ++l) {
      const std::uint32_t index = block.qs[8 * group + l] | (((block.qh[group] >> l) & 1u) << 8);
      const std::uint32_t signs = block.signs[4 * group + l / 2] >> (4 * (l % 2));
      signed_entry<4>(iq3s_grid[index], signs, scale, out + 32 * group + 4 * l);
    }
  }
}

// Codes in split halves: low nibbles are the first 16 values, high nibbles the next.
void iq4_group(const Byte* codes, float scale, float* __restrict out) {
  for (int j = 0; j < 16; ++j) {
    out[j] = scale * static_cast<float>(iq4_values[codes[j] & 15]);
    out[j + 16] = scale * static_cast<float>(iq4_values[codes[j] >> 4]);
  }
}

void decode_iq4_nl(const BlockIQ4_NL& block, float* __restrict out) {
  iq4_group(block.qs, load_half(block.d), out);
}

void decode_iq4_xs(const BlockIQ4_XS& block, float* __restrict out) {
  const float d = load_half(block.d);
  for (int group = 0; group < 8; ++group) {
    const float scale = d * static_cast<float>(iq4_xs_scale(block, group));
    iq4_group(block.qs + 16 * group, scale, out + 32 * group);
  }
}

}  // namespace

RowDecoder codebook_decoder(TensorType type) {
  switch (type) {
    case TensorType::IQ1_S:
      return decode_blocks<BlockIQ1_S, decode_iq1_s>;
    case TensorType::IQ1_M:
      return decode_blocks<BlockIQ1_M, decode_iq1_m>;
    case TensorType::IQ2_XXS:
      return decode_blocks<BlockIQ2_XXS, decode_iq2_xxs>;
    case TensorType::IQ2_XS:
      return decode_blocks<BlockIQ2_XS, decode_iq2_xs>;
    case TensorType::IQ2_S:
      return decode_blocks<BlockIQ2_S, decode_iq2_s>;
    case TensorType::IQ3_XXS:
      return decode_blocks<BlockIQ3_XXS, decode_iq3_xxs>;
    case TensorType::IQ3_S:
      return decode_blocks<BlockIQ3_S, decode_iq3_s>;
    case TensorType::IQ4_NL:
      return decode_blocks<BlockIQ4_NL, decode_iq4_nl>;
    case TensorType::IQ4_XS:
      return decode_blocks<BlockIQ4_XS, decode_iq4_xs>;
    default:
      return nullptr;
  }
}

}  // namespace strata::quant
