// The block layouts as structs of bytes: alignment 1, no padding, fields in file order, integers
// and halves little-endian. docs/formats/blocks.md explains the fields.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/float_formats.h"

namespace strata::quant {

using Byte = std::uint8_t;

inline std::uint16_t load_u16(const Byte* bytes) {
  return static_cast<std::uint16_t>(bytes[0] | (bytes[1] << 8));
}
inline std::uint32_t load_u32(const Byte* bytes) {
  return bytes[0] | (std::uint32_t{bytes[1]} << 8) | (std::uint32_t{bytes[2]} << 16) |
         (std::uint32_t{bytes[3]} << 24);
}
inline float load_half(const Byte* bytes) {
  return half_to_float(load_u16(bytes));
}

inline void store_u16(Byte* bytes, std::uint16_t value) {
  bytes[0] = static_cast<Byte>(value & 0xff);
  bytes[1] = static_cast<Byte>(value >> 8);
}
inline void store_u32(Byte* bytes, std::uint32_t value) {
  store_u16(bytes, static_cast<std::uint16_t>(value & 0xffff));
  store_u16(bytes + 2, static_cast<std::uint16_t>(value >> 16));
}

// Every struct: `values` weights in sizeof(struct) bytes. d, dmin, m are halves.
struct BlockF32 {
  static constexpr std::size_t values = 1;
  Byte bits[4];
};
struct BlockF16 {
  static constexpr std::size_t values = 1;
  Byte bits[2];
};
struct BlockBF16 {
  static constexpr std::size_t values = 1;
  Byte bits[2];
};
struct BlockQ4_0 {
  static constexpr std::size_t values = 32;
  Byte d[2];
  Byte qs[16];
};
struct BlockQ4_1 {
  static constexpr std::size_t values = 32;
  Byte d[2];
  Byte m[2];
  Byte qs[16];
};
struct BlockQ5_0 {
  static constexpr std::size_t values = 32;
  Byte d[2];
  Byte qh[4];
  Byte qs[16];
};
struct BlockQ5_1 {
  static constexpr std::size_t values = 32;
  Byte d[2];
  Byte m[2];
  Byte qh[4];
  Byte qs[16];
};
struct BlockQ8_0 {
  static constexpr std::size_t values = 32;
  Byte d[2];
  Byte qs[32];
};
struct BlockQ2_0 {
  static constexpr std::size_t values = 64;
  Byte d[2];
  Byte qs[16];
};
struct BlockQ2_K {
  static constexpr std::size_t values = 256;
  Byte scales[16];
  Byte qs[64];
  Byte d[2];
  Byte dmin[2];
};
struct BlockQ3_K {
  static constexpr std::size_t values = 256;
  Byte hmask[32];
  Byte qs[64];
  Byte scales[12];
  Byte d[2];
};
struct BlockQ4_K {
  static constexpr std::size_t values = 256;
  Byte d[2];
  Byte dmin[2];
  Byte scales[12];
  Byte qs[128];
};
struct BlockQ5_K {
  static constexpr std::size_t values = 256;
  Byte d[2];
  Byte dmin[2];
  Byte scales[12];
  Byte qh[32];
  Byte qs[128];
};
struct BlockQ6_K {
  static constexpr std::size_t values = 256;
  Byte ql[128];
  Byte qh[64];
  Byte scales[16];
  Byte d[2];
};
struct BlockIQ1_S {
  static constexpr std::size_t values = 256;
  Byte d[2];
  Byte qs[32];
  Byte qh[16];
};
struct BlockIQ1_M {
  static constexpr std::size_t values = 256;
  Byte qs[32];
  Byte qh[16];
  Byte scales[8];
};
struct BlockIQ2_XXS {
  static constexpr std::size_t values = 256;
  Byte d[2];
  Byte qs[64];
};
struct BlockIQ2_XS {
  static constexpr std::size_t values = 256;
  Byte d[2];
  Byte qs[64];
  Byte scales[8];
};
struct BlockIQ2_S {
  static constexpr std::size_t values = 256;
  Byte d[2];
  Byte qs[32];
  Byte signs[32];
  Byte qh[8];
  Byte scales[8];
};
struct BlockIQ3_XXS {
  static constexpr std::size_t values = 256;
  Byte d[2];
  Byte qs[64];
  Byte scales_signs[32];
};
struct BlockIQ3_S {
  static constexpr std::size_t values = 256;
  Byte d[2];
  Byte qs[64];
  Byte qh[8];
  Byte signs[32];
  Byte scales[4];
};
struct BlockIQ4_NL {
  static constexpr std::size_t values = 32;
  Byte d[2];
  Byte qs[16];
};
struct BlockIQ4_XS {
  static constexpr std::size_t values = 256;
  Byte d[2];
  Byte scales_h[2];
  Byte scales_l[4];
  Byte qs[128];
};

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34 && sizeof(BlockQ2_0) == 18);
static_assert(sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210);
static_assert(sizeof(BlockIQ1_S) == 50 && sizeof(BlockIQ1_M) == 56);
static_assert(sizeof(BlockIQ2_XXS) == 66 && sizeof(BlockIQ2_XS) == 74 && sizeof(BlockIQ2_S) == 82);
static_assert(sizeof(BlockIQ3_XXS) == 98 && sizeof(BlockIQ3_S) == 110);
static_assert(sizeof(BlockIQ4_NL) == 18 && sizeof(BlockIQ4_XS) == 136);
static_assert(alignof(BlockQ6_K) == 1);

// The scale (low) and minimum (high) of group j of a Q4_K or Q5_K block: six bits each.
struct ScaleMin {
  int scale;
  int min;
};
inline ScaleMin k4_scale_min(const Byte* scales, int j) {
  if (j < 4) return {scales[j] & 63, scales[j + 4] & 63};
  return {(scales[j + 4] & 15) | ((scales[j - 4] >> 6) << 4),
          (scales[j + 4] >> 4) | ((scales[j] >> 6) << 4)};
}

// Scale k of a Q3_K block: six bits, stored with an offset of 32.
inline int q3_k_scale(const Byte* scales, int k) {
  const int low = k < 8 ? scales[k] & 15 : scales[k - 8] >> 4;
  return (low | (((scales[8 + k % 4] >> (2 * (k / 4))) & 3) << 4)) - 32;
}

// Scale ib of an IQ4_XS block: six bits, stored with an offset of 32.
inline int iq4_xs_scale(const BlockIQ4_XS& block, int ib) {
  const int low = (block.scales_l[ib / 2] >> (4 * (ib % 2))) & 15;
  return (low | (((load_u16(block.scales_h) >> (2 * ib)) & 3) << 4)) - 32;
}

}  // namespace strata::quant
