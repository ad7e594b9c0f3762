// Sixteen lanes in four registers of 64-bit ARM: what kernels_impl.h makes of a vector of the
// compiler where registers are wide. (The compiler keeps its own vectors of 64 bytes in memory
// here.) Included once a file, inside its namespace.

// Of a comparison: all bits of a lane set, or none.
struct LaneMask {
  uint32x4_t a, b, c, d;
};
struct Lanes;
struct IntLanes {
  int32x4_t a, b, c, d;
  IntLanes() = default;
  STRATA_METHOD IntLanes(int32x4_t w, int32x4_t x, int32x4_t y, int32x4_t z)
      : a(w), b(x), c(y), d(z) {}
  STRATA_METHOD explicit IntLanes(const Lanes& bits);
  STRATA_METHOD std::int32_t& operator[](std::size_t i) {
    return reinterpret_cast<std::int32_t*>(this)[i];
  }
  STRATA_METHOD std::int32_t operator[](std::size_t i) const {
    return reinterpret_cast<const std::int32_t*>(this)[i];
  }
};
struct Lanes {
  float32x4_t a, b, c, d;
  Lanes() = default;
  STRATA_METHOD Lanes(float32x4_t w, float32x4_t x, float32x4_t y, float32x4_t z)
      : a(w), b(x), c(y), d(z) {}
  STRATA_METHOD explicit Lanes(const IntLanes& bits)
      : a((float32x4_t)bits.a),
        b((float32x4_t)bits.b),
        c((float32x4_t)bits.c),
        d((float32x4_t)bits.d) {}
  STRATA_METHOD float& operator[](std::size_t i) { return reinterpret_cast<float*>(this)[i]; }
  STRATA_METHOD float operator[](std::size_t i) const {
    return reinterpret_cast<const float*>(this)[i];
  }
};
STRATA_METHOD IntLanes::IntLanes(const Lanes& bits)
    : a((int32x4_t)bits.a), b((int32x4_t)bits.b), c((int32x4_t)bits.c), d((int32x4_t)bits.d) {}

STRATA_INLINE Lanes operator+(const Lanes& x, const Lanes& y) {
  return {x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d};
}
STRATA_INLINE Lanes operator-(const Lanes& x, const Lanes& y) {
  return {x.a - y.a, x.b - y.b, x.c - y.c, x.d - y.d};
}
STRATA_INLINE Lanes operator*(const Lanes& x, const Lanes& y) {
  return {x.a * y.a, x.b * y.b, x.c * y.c, x.d * y.d};
}
STRATA_INLINE Lanes operator/(const Lanes& x, const Lanes& y) {
  return {x.a / y.a, x.b / y.b, x.c / y.c, x.d / y.d};
}
STRATA_INLINE Lanes operator-(const Lanes& x) {
  return {-x.a, -x.b, -x.c, -x.d};
}
STRATA_INLINE LaneMask operator>(const Lanes& x, const Lanes& y) {
  return {vcgtq_f32(x.a, y.a), vcgtq_f32(x.b, y.b), vcgtq_f32(x.c, y.c), vcgtq_f32(x.d, y.d)};
}
STRATA_INLINE LaneMask operator<(const Lanes& x, const Lanes& y) {
  return y > x;
}
STRATA_INLINE LaneMask operator==(const Lanes& x, const Lanes& y) {
  return {vceqq_f32(x.a, y.a), vceqq_f32(x.b, y.b), vceqq_f32(x.c, y.c), vceqq_f32(x.d, y.d)};
}
STRATA_INLINE Lanes select(const LaneMask& m, const Lanes& x, const Lanes& y) {
  return {vbslq_f32(m.a, x.a, y.a), vbslq_f32(m.b, x.b, y.b), vbslq_f32(m.c, x.c, y.c),
          vbslq_f32(m.d, x.d, y.d)};
}

// Sums wrap, as those of registers do.
using WrappingLanes = IntLanes;
STRATA_INLINE int32x4_t wrapping_sum(int32x4_t x, int32x4_t y) {
  return (int32x4_t)((uint32x4_t)x + (uint32x4_t)y);
}
STRATA_INLINE int32x4_t wrapping_difference(int32x4_t x, int32x4_t y) {
  return (int32x4_t)((uint32x4_t)x - (uint32x4_t)y);
}
STRATA_INLINE IntLanes operator+(const IntLanes& x, const IntLanes& y) {
  return {wrapping_sum(x.a, y.a), wrapping_sum(x.b, y.b), wrapping_sum(x.c, y.c),
          wrapping_sum(x.d, y.d)};
}
STRATA_INLINE IntLanes operator-(const IntLanes& x, const IntLanes& y) {
  return {wrapping_difference(x.a, y.a), wrapping_difference(x.b, y.b),
          wrapping_difference(x.c, y.c), wrapping_difference(x.d, y.d)};
}
STRATA_INLINE IntLanes operator&(const IntLanes& x, std::int32_t y) {
  const int32x4_t v = vdupq_n_s32(y);
  return {x.a & v, x.b & v, x.c & v, x.d & v};
}
STRATA_INLINE IntLanes operator|(const IntLanes& x, const IntLanes& y) {
  return {x.a | y.a, x.b | y.b, x.c | y.c, x.d | y.d};
}
STRATA_INLINE IntLanes operator^(const IntLanes& x, const IntLanes& y) {
  return {x.a ^ y.a, x.b ^ y.b, x.c ^ y.c, x.d ^ y.d};
}
STRATA_INLINE IntLanes operator<<(const IntLanes& x, int n) {
  return {x.a << n, x.b << n, x.c << n, x.d << n};
}
STRATA_INLINE IntLanes operator>>(const IntLanes& x, int n) {
  return {x.a >> n, x.b >> n, x.c >> n, x.d >> n};
}
STRATA_INLINE IntLanes& operator^=(IntLanes& x, const IntLanes& y) {
  return x = x ^ y;
}

STRATA_INLINE Lanes fma_lanes(const Lanes& x, const Lanes& y, const Lanes& sum) {
  return {vfmaq_f32(sum.a, x.a, y.a), vfmaq_f32(sum.b, x.b, y.b), vfmaq_f32(sum.c, x.c, y.c),
          vfmaq_f32(sum.d, x.d, y.d)};
}
STRATA_INLINE Lanes all(float x) {
  const float32x4_t v = vdupq_n_f32(x);
  return {v, v, v, v};
}
STRATA_INLINE IntLanes all_int(std::int32_t x) {
  const int32x4_t v = vdupq_n_s32(x);
  return {v, v, v, v};
}
STRATA_INLINE Lanes load(const float* p) {
  return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
template <class T>
STRATA_INLINE IntLanes load_int(const T* p) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(p);
  return {(int32x4_t)vld1q_u8(bytes), (int32x4_t)vld1q_u8(bytes + 16),
          (int32x4_t)vld1q_u8(bytes + 32), (int32x4_t)vld1q_u8(bytes + 48)};
}
STRATA_INLINE void store(float* p, const Lanes& v) {
  vst1q_f32(p, v.a);
  vst1q_f32(p + 4, v.b);
  vst1q_f32(p + 8, v.c);
  vst1q_f32(p + 12, v.d);
}
STRATA_INLINE Lanes to_float(const IntLanes& v) {
  return {vcvtq_f32_s32(v.a), vcvtq_f32_s32(v.b), vcvtq_f32_s32(v.c), vcvtq_f32_s32(v.d)};
}
// The low halves, and the low bytes, of the lanes.
STRATA_INLINE void store_words(std::int16_t* p, const IntLanes& v) {
  vst1q_s16(p, vmovn_high_s32(vmovn_s32(v.a), v.b));
  vst1q_s16(p + 8, vmovn_high_s32(vmovn_s32(v.c), v.d));
}
template <class Byte>
STRATA_INLINE void store_bytes(Byte* p, const IntLanes& v) {
  const int16x8_t low = vmovn_high_s32(vmovn_s32(v.a), v.b);
  const int16x8_t high = vmovn_high_s32(vmovn_s32(v.c), v.d);
  vst1q_s8(reinterpret_cast<std::int8_t*>(p), vmovn_high_s16(vmovn_s16(low), high));
}

// 16 rows of 16 dwords become 16 columns.
STRATA_INLINE void transpose_dwords(const void* const* rows, void* columns) {
  auto* out = static_cast<std::int32_t*>(columns);
  for (std::size_t r = 0; r < 16; r += 4)
    for (std::size_t c = 0; c < 16; c += 4) {
      int32x4_t row[4];
      for (std::size_t i = 0; i < 4; ++i) {
        const auto* bytes = static_cast<const std::uint8_t*>(rows[r + i]);
        row[i] = vreinterpretq_s32_u8(vld1q_u8(bytes + 4 * c));
      }
      const auto low = (int64x2_t)vtrn1q_s32(row[0], row[1]);   // columns 0 and 2
      const auto high = (int64x2_t)vtrn2q_s32(row[0], row[1]);  // columns 1 and 3
      const auto low2 = (int64x2_t)vtrn1q_s32(row[2], row[3]);
      const auto high2 = (int64x2_t)vtrn2q_s32(row[2], row[3]);
      vst1q_s32(out + 16 * c + r, (int32x4_t)vtrn1q_s64(low, low2));
      vst1q_s32(out + 16 * (c + 1) + r, (int32x4_t)vtrn1q_s64(high, high2));
      vst1q_s32(out + 16 * (c + 2) + r, (int32x4_t)vtrn2q_s64(low, low2));
      vst1q_s32(out + 16 * (c + 3) + r, (int32x4_t)vtrn2q_s64(high, high2));
    }
}
STRATA_INLINE float half_at(const quant::Byte* bytes) {
  __fp16 half;
  std::memcpy(&half, bytes, sizeof half);
  return half;
}
STRATA_INLINE IntLanes widened_words(const std::byte* p) {
  const auto* words = reinterpret_cast<const std::uint16_t*>(p);
  const uint16x8_t low = vld1q_u16(words), high = vld1q_u16(words + 8);
  return {(int32x4_t)vmovl_u16(vget_low_u16(low)), (int32x4_t)vmovl_high_u16(low),
          (int32x4_t)vmovl_u16(vget_low_u16(high)), (int32x4_t)vmovl_high_u16(high)};
}
STRATA_INLINE IntLanes widened_bytes(const quant::Byte* p) {
  const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(p));
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
  return {vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)),
          vmovl_high_s16(high)};
}
STRATA_INLINE Lanes upper_halves(const std::byte* p) {
  return (Lanes)(widened_words(p) << 16);
}
STRATA_INLINE Lanes halves(const std::byte* p) {
  const auto four = [&](std::size_t i) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(reinterpret_cast<const std::uint8_t*>(p) + i)));
  };
  return {four(0), four(8), four(16), four(24)};
}
STRATA_INLINE Lanes half_lanes(const IntLanes& halves) {
  const auto widen = [](int32x4_t v) { return vcvt_f32_f16(vreinterpret_f16_s16(vmovn_s32(v))); };
  return {widen(halves.a), widen(halves.b), widen(halves.c), widen(halves.d)};
}
