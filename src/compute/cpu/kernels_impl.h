// The bodies of the kernels, compiled once for each instruction set: the including file sets the
// target and the namespace. Sixteen lanes are a vector of the compiler, which splits it where
// registers are narrower (lanes_neon.h says what it is on ARM). No include guard: included once a
// file, inside it.

#if defined(STRATA_SANITIZED)  // cmake/StrataBuild.cmake says why
#define STRATA_INLINE static inline
#define STRATA_METHOD inline
#else
#pragma GCC optimize("O3")
#define STRATA_INLINE static inline __attribute__((always_inline))
#define STRATA_METHOD inline __attribute__((always_inline))
#endif

#if defined(STRATA_NEON)
#include "compute/cpu/lanes_neon.h"
#else
using Lanes = float __attribute__((vector_size(64)));
using IntLanes = std::int32_t __attribute__((vector_size(64)));
using WrappingLanes = std::uint32_t __attribute__((vector_size(64)));  // sums may overflow
using LaneMask = IntLanes;
#endif

// Asks for a run of bytes. Decoding reads a matrix in groups of 16 rows; while it works on one, it
// asks for the next, in the order of the memory: with any other pattern this takes twice the time.
STRATA_INLINE void prefetch_run(const std::byte* from, std::size_t bytes) {
  for (std::size_t line = 0; line < bytes; line += 64) __builtin_prefetch(from + line);
}
// The same for what comes much later: it must not push out what is at work in the first cache.
STRATA_INLINE void prefetch_later(const std::byte* from, std::size_t bytes) {
  for (std::size_t line = 0; line < bytes; line += 64) __builtin_prefetch(from + line, 0, 2);
}

STRATA_INLINE float fma_one(float a, float b, float c) {
#if defined(__x86_64__) && !defined(STRATA_AVX2)
  return fused(a, b, c);  // there may be no instruction for it
#else
  return std::fma(a, b, c);
#endif
}

#if !defined(STRATA_NEON)
STRATA_INLINE Lanes fma_lanes(const Lanes& a, const Lanes& b, const Lanes& c) {
#if defined(STRATA_AVX512)
  return (Lanes)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(STRATA_AVX2)
  union Halves {
    Lanes whole;
    __m256 half[2];
  };
  Halves x{a}, y{b}, z{c}, r;
  r.half[0] = _mm256_fmadd_ps(x.half[0], y.half[0], z.half[0]);
  r.half[1] = _mm256_fmadd_ps(x.half[1], y.half[1], z.half[1]);
  return r.whole;
#else
  Lanes r;
  for (std::size_t i = 0; i < kLanes; ++i) r[i] = fma_one(a[i], b[i], c[i]);
  return r;
#endif
}

STRATA_INLINE Lanes all(float x) {
  return Lanes{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}
STRATA_INLINE IntLanes all_int(std::int32_t x) {
  return IntLanes{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}
STRATA_INLINE Lanes load(const float* p) {
  Lanes v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
STRATA_INLINE IntLanes load_int(const T* p) {
  IntLanes v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
STRATA_INLINE void store(float* p, const Lanes& v) {
  std::memcpy(p, &v, sizeof v);
}
STRATA_INLINE Lanes to_float(const IntLanes& v) {
  return __builtin_convertvector(v, Lanes);
}
// The low halves, and the low bytes, of the lanes.
STRATA_INLINE void store_words(std::int16_t* p, const IntLanes& v) {
  using Words = std::int16_t __attribute__((vector_size(32)));
  const Words words = __builtin_convertvector(v, Words);
  std::memcpy(p, &words, sizeof words);
}
template <class Byte>
STRATA_INLINE void store_bytes(Byte* p, const IntLanes& v) {
  using Bytes = std::int8_t __attribute__((vector_size(16)));
  const Bytes bytes = __builtin_convertvector(v, Bytes);
  std::memcpy(p, &bytes, sizeof bytes);
}
STRATA_INLINE Lanes select(const LaneMask& mask, const Lanes& a, const Lanes& b) {
  return mask ? a : b;
}
#endif
// The first n values, zeros behind them.
STRATA_INLINE Lanes load_some(const float* p, std::size_t n) {
  Lanes v = all(0.0f);
  std::memcpy(&v, p, n * sizeof(float));
  return v;
}
STRATA_INLINE void store_some(float* p, const Lanes& v, std::size_t n) {
  std::memcpy(p, &v, n * sizeof(float));
}

STRATA_INLINE float sum_lanes(const Lanes& v) {
#if defined(STRATA_AVX512)
  const auto x = (__m512)v;
  const __m256 eight = _mm512_castps512_ps256(x) + _mm512_extractf32x8_ps(x, 1);
  const __m128 four = _mm256_castps256_ps128(eight) + _mm256_extractf128_ps(eight, 1);
  const __m128 two = four + _mm_movehl_ps(four, four);
  return two[0] + two[1];
#else
  float s[kLanes];
  store(s, v);
  for (std::size_t step = kLanes / 2; step > 0; step /= 2)
    for (std::size_t i = 0; i < step; ++i) s[i] += s[i + step];
  return s[0];
#endif
}

// a where it is larger, else b: b too where one of them is no number.
STRATA_INLINE Lanes larger(const Lanes& a, const Lanes& b) {
#if defined(STRATA_AVX512)
  return (Lanes)_mm512_max_ps((__m512)a, (__m512)b);
#else
  return select(a > b, a, b);
#endif
}
STRATA_INLINE Lanes magnitude(const Lanes& v) {
  return (Lanes)((IntLanes)v & 0x7fffffff);
}

STRATA_INLINE Lanes exp_lanes(const Lanes& x) {
  using C = ExpConstants;
  const Lanes clamped = select(x > all(C::high), all(C::high), x);
  const Lanes t = fma_lanes(clamped, all(C::log2e), all(C::magic));
  const Lanes n = t - all(C::magic);
  Lanes r = fma_lanes(-n, all(C::ln2_high), clamped);
  r = fma_lanes(-n, all(C::ln2_low), r);
  Lanes p = all(C::c7);
  p = fma_lanes(p, r, all(C::c6));
  p = fma_lanes(p, r, all(C::c5));
  p = fma_lanes(p, r, all(C::c4));
  p = fma_lanes(p, r, all(C::c3));
  p = fma_lanes(p, r, all(C::c2));
  p = fma_lanes(p, r, all(1.0f));
  p = fma_lanes(p, r, all(1.0f));
  // Of lanes below `low` these are anything.
  const WrappingLanes exponent = (WrappingLanes)t - (WrappingLanes)all(C::magic);
  Lanes result = (Lanes)((WrappingLanes)p + (exponent << 23));
  result = select(x < all(C::low), all(0.0f), result);
  return select(x == x, result, x);
}
STRATA_INLINE Lanes sigmoid_lanes(const Lanes& x) {
  return all(1.0f) / (all(1.0f) + exp_lanes(-x));
}

// softplus() of math.h, in its steps.
STRATA_INLINE Lanes softplus_lanes(const Lanes& x) {
#if defined(STRATA_AVX512)
  const auto y = (__m512)exp_lanes(-magnitude(x)), wide = (__m512)x;
  const auto half = [](const __m256& small, const __m256& value) {
    const __m512d e = _mm512_cvtps_pd(small), v = _mm512_cvtps_pd(value);
    const __m512d s = _mm512_div_pd(e, _mm512_add_pd(_mm512_set1_pd(2.0), e));
    const __m512d square = _mm512_mul_pd(s, s);
    __m512d sum = _mm512_setzero_pd();
#pragma GCC unroll 14
    for (int k = 27; k >= 1; k -= 2) sum = _mm512_fmadd_pd(sum, square, _mm512_set1_pd(1.0 / k));
    const __m512d above =
        _mm512_maskz_mov_pd(_mm512_cmp_pd_mask(v, _mm512_setzero_pd(), _CMP_GT_OQ), v);
    const __m512d logarithm = _mm512_mul_pd(_mm512_mul_pd(_mm512_set1_pd(2.0), s), sum);
    return _mm512_cvtpd_ps(_mm512_add_pd(above, logarithm));
  };
  const __m256 low = half(_mm512_castps512_ps256(y), _mm512_castps512_ps256(wide));
  const __m256 high = half(_mm512_extractf32x8_ps(y, 1), _mm512_extractf32x8_ps(wide, 1));
  return (Lanes)_mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
#else
  float lanes[kLanes];
  store(lanes, x);
  for (float& v : lanes) v = softplus(v);
  return load(lanes);
#endif
}

// Calls body(offset, count) for runs of at most 16 values.
template <class Body>
STRATA_INLINE void for_runs(std::size_t n, const Body& body) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  if (i < n) body(i, n - i);
}
STRATA_INLINE Lanes load_run(const float* p, std::size_t count) {
  return count == kLanes ? load(p) : load_some(p, count);
}
STRATA_INLINE void store_run(float* p, const Lanes& v, std::size_t count) {
  if (count == kLanes) {
    store(p, v);
  } else {
    store_some(p, v, count);
  }
}

constexpr std::size_t kVectors = kPanelRows / kLanes;

#if defined(STRATA_AVX512)
// 16 rows of 16 dwords become 16 columns.
STRATA_INLINE void turn_dwords(__m512i* r) {
  __m512i t[16];
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 4; ++i) {
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  for (int c = 0; c < 4; ++c) {  // 128-bit lane L of r[4 i + c] is column 4 L + c of rows 4 i ...
    const __m512i a0 = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88);
    const __m512i a1 = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
    const __m512i b0 = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd);
    const __m512i b1 = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
    t[c] = _mm512_shuffle_i32x4(a0, a1, 0x88);
    t[4 + c] = _mm512_shuffle_i32x4(b0, b1, 0x88);
    t[8 + c] = _mm512_shuffle_i32x4(a0, a1, 0xdd);
    t[12 + c] = _mm512_shuffle_i32x4(b0, b1, 0xdd);
  }
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}
#endif

#if defined(STRATA_AVX2) && !defined(STRATA_AVX512)
// Eight dwords of eight rows as columns, sixteen dwords apart.
STRATA_INLINE void turn_eight(const void* const* rows, std::size_t offset, std::uint32_t* out) {
  __m256i r[8], t[8];
  for (int i = 0; i < 8; ++i)
    r[i] = _mm256_loadu_si256(
        reinterpret_cast<const __m256i*>(static_cast<const std::byte*>(rows[i]) + offset));
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    r[4 * i] = _mm256_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm256_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm256_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm256_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  for (int c = 0; c < 4; ++c) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 16 * c),
                        _mm256_permute2x128_si256(r[c], r[4 + c], 0x20));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 16 * (4 + c)),
                        _mm256_permute2x128_si256(r[c], r[4 + c], 0x31));
  }
}
#endif

#if !defined(STRATA_NEON)
STRATA_INLINE void transpose_dwords(const void* const* rows, void* columns) {
#if defined(STRATA_AVX512)
  __m512i r[16];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(rows[i]);
  turn_dwords(r);
  for (int i = 0; i < 16; ++i) _mm512_store_si512(static_cast<__m512i*>(columns) + i, r[i]);
#elif defined(STRATA_AVX2)
  auto* out = static_cast<std::uint32_t*>(columns);
  for (std::size_t i = 0; i < 16; i += 8)
    for (std::size_t c = 0; c < 16; c += 8) turn_eight(rows + i, 4 * c, out + 16 * c + i);
#else
  auto* out = static_cast<std::uint32_t*>(columns);
  for (std::size_t i = 0; i < 16; ++i) {
    std::uint32_t row[16];
    std::memcpy(row, rows[i], sizeof row);
    for (std::size_t c = 0; c < 16; ++c) out[16 * c + i] = row[c];
  }
#endif
}
#endif

// The dwords at byte `offset` of 16 rows, as 16 columns.
STRATA_INLINE void column_dwords(const std::byte* const* rows, std::size_t offset, void* columns) {
#if defined(STRATA_AVX512)
  // Not through transpose_dwords(): the compiler would make vectors of the pointers.
  __m512i r[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) r[i] = _mm512_loadu_si512(rows[i] + offset);
  turn_dwords(r);
  for (std::size_t i = 0; i < kLanes; ++i)
    _mm512_store_si512(static_cast<__m512i*>(columns) + i, r[i]);
#else
  const void* sources[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) sources[i] = rows[i] + offset;
  transpose_dwords(sources, columns);
#endif
}

#if !defined(STRATA_NEON)
// Sixteen 16-bit integers without a sign, and sixteen bytes with one.
STRATA_INLINE IntLanes widened_words(const std::byte* p) {
#if defined(STRATA_AVX512)
  return (IntLanes)_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#else
  using Words = std::uint16_t __attribute__((vector_size(32)));
  Words words;
  std::memcpy(&words, p, sizeof words);
  return __builtin_convertvector(words, IntLanes);
#endif
}
STRATA_INLINE IntLanes widened_bytes(const quant::Byte* p) {
#if defined(STRATA_AVX512)
  return (IntLanes)_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  using Bytes = std::int8_t __attribute__((vector_size(16)));
  Bytes bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  return __builtin_convertvector(bytes, IntLanes);
#endif
}
STRATA_INLINE float half_at(const quant::Byte* bytes) {
#if defined(STRATA_AVX2)
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(quant::load_u16(bytes))));
#else
  return quant::load_half(bytes);
#endif
}

STRATA_INLINE Lanes half_lanes(const IntLanes& halves) {
#if defined(STRATA_AVX512)
  return (Lanes)_mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)halves));
#else
  Lanes result;
  for (std::size_t i = 0; i < kLanes; ++i)
    result[i] = half_to_float(static_cast<std::uint16_t>(halves[i]));
  return result;
#endif
}
// Sixteen of BF16, the upper halves of floats.
STRATA_INLINE Lanes upper_halves(const std::byte* p) {
#if defined(STRATA_AVX512)
  // One permutation, where widening and shifting are two.
  const __m512i words =
      _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  const __m512i places =
      _mm512_setr_epi32(0x0000ffff, 0x0001ffff, 0x0002ffff, 0x0003ffff, 0x0004ffff, 0x0005ffff,
                        0x0006ffff, 0x0007ffff, 0x0008ffff, 0x0009ffff, 0x000affff, 0x000bffff,
                        0x000cffff, 0x000dffff, 0x000effff, 0x000fffff);
  return (Lanes)_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, places, words);
#else
  return (Lanes)(widened_words(p) << 16);
#endif
}
// Sixteen halves of float16.
STRATA_INLINE Lanes halves(const std::byte* p) {
#if defined(STRATA_AVX512)
  return (Lanes)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(STRATA_AVX2)
  union {
    Lanes whole;
    __m256 half[2];
  } result;
  const auto* from = reinterpret_cast<const __m128i*>(p);
  result.half[0] = _mm256_cvtph_ps(_mm_loadu_si128(from));
  result.half[1] = _mm256_cvtph_ps(_mm_loadu_si128(from + 1));
  return result.whole;
#else
  return half_lanes(widened_words(p));
#endif
}
#endif

// 16 rows of one or two Q8_0 blocks: the codes as columns of dwords, and the scales times 2^-24.
STRATA_INLINE void q8_0_dwords(const std::byte* const* rows, std::size_t offset, std::size_t blocks,
                               IntLanes* columns, Lanes* scales) {
  const auto block = [&](std::size_t row, std::size_t b) -> const quant::BlockQ8_0& {
    return reinterpret_cast<const quant::BlockQ8_0*>(rows[row] + offset)[b];
  };
#if defined(STRATA_AVX512)
  __m512i r[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) {
    const auto codes = [&](std::size_t b) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block(i, b).qs));
    };
    r[i] = _mm512_castsi256_si512(codes(0));
    if (blocks == 2) r[i] = _mm512_inserti64x4(r[i], codes(1), 1);
  }
  turn_dwords(r);
  for (std::size_t i = 0; i < kLanes; ++i) columns[i] = (IntLanes)r[i];
  for (std::size_t b = 0; b < blocks; ++b) {
    const auto d = [&](std::size_t i) {
      return static_cast<short>(quant::load_u16(block(i, b).d));
    };
    scales[b] = (Lanes)_mm512_cvtph_ps(_mm256_setr_epi16(d(0), d(1), d(2), d(3), d(4), d(5), d(6),
                                                         d(7), d(8), d(9), d(10), d(11), d(12),
                                                         d(13), d(14), d(15)));
  }
#else
  alignas(64) std::byte codes[kLanes][64];
  const void* sources[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) {
    sources[i] = codes[i];
    for (std::size_t b = 0; b < blocks; ++b) {
      std::memcpy(codes[i] + 32 * b, block(i, b).qs, sizeof block(i, b).qs);
      scales[b][i] = half_at(block(i, b).d);
    }
  }
  transpose_dwords(sources, columns);
#endif
  for (std::size_t b = 0; b < blocks; ++b) scales[b] = scales[b] * all(0x1p-24f);
}

static float dot(const float* a, const float* b, std::size_t n) {
  Lanes sum = all(0.0f);
  for_runs(n, [&](std::size_t i, std::size_t count) {
    sum = fma_lanes(load_run(a + i, count), load_run(b + i, count), sum);
  });
  return sum_lanes(sum);
}

static void rms_norm(const float* x, const float* gain, std::size_t n, float epsilon, float* y) {
  const float scale = 1.0f / std::sqrt(dot(x, x, n) / static_cast<float>(n) + epsilon);
  for_runs(n, [&](std::size_t i, std::size_t count) {
    store_run(y + i, load_run(x + i, count) * all(scale) * load_run(gain + i, count), count);
  });
}

// Four sums of squares side by side: one alone waits for itself.
static void rms_norms(const float* x, const float* gain, std::size_t streams, std::size_t n,
                      float epsilon, float* y) {
  constexpr std::size_t together = 4;
  std::size_t s = 0;
  for (; s + together <= streams && n % kLanes == 0; s += together) {
    Lanes sum[together];
    for (Lanes& v : sum) v = all(0.0f);
    for (std::size_t i = 0; i < n; i += kLanes)
      for (std::size_t j = 0; j < together; ++j) {
        const Lanes v = load(x + (s + j) * n + i);
        sum[j] = fma_lanes(v, v, sum[j]);
      }
    for (std::size_t j = 0; j < together; ++j) {
      const std::size_t at = (s + j) * n;
      const float scale = 1.0f / std::sqrt(sum_lanes(sum[j]) / static_cast<float>(n) + epsilon);
      for (std::size_t i = at; i < at + n; i += kLanes)
        store(y + i, load(x + i) * all(scale) * load(gain + i));
    }
  }
  for (; s < streams; ++s) rms_norm(x + s * n, gain + s * n, n, epsilon, y + s * n);
}

static void l2_norm(const float* x, std::size_t n, float factor, float* y) {
  const float scale = factor / std::sqrt(dot(x, x, n) + 1e-6f);
  for_runs(n, [&](std::size_t i, std::size_t count) {
    store_run(y + i, load_run(x + i, count) * all(scale), count);
  });
}

static void silu_divided(float* x, std::size_t n, float divisor) {
  for_runs(n, [&](std::size_t i, std::size_t count) {
    const Lanes v = load_run(x + i, count) / all(divisor);
    store_run(x + i, v * sigmoid_lanes(v), count);
  });
}

static float sigmoid_one(float x) {
  return sigmoid(x);
}

static void exp_above(float* x, std::size_t n, float top) {
  for_runs(n, [&](std::size_t i, std::size_t count) {
    store_run(x + i, exp_lanes(load_run(x + i, count) - all(top)), count);
  });
}

static void open_gates(float* w, std::size_t n, float divisor) {
  for_runs(n, [&](std::size_t i, std::size_t count) {
    store_run(w + i, all(2.0f) * sigmoid_lanes(load_run(w + i, count) / all(divisor)), count);
  });
}

static void rotation(float position, const float* frequencies, std::size_t n, float factor,
                     float* cos_sin) {
  for (std::size_t i = 0; i < n; ++i) {
    const SinCos v = sin_cos(position * frequencies[i]);
    cos_sin[i] = v.cos * factor;
    cos_sin[n + i] = v.sin * factor;
  }
}

static void silu_product(float* gate, const float* up, std::size_t n) {
  for_runs(n, [&](std::size_t i, std::size_t count) {
    const Lanes g = load_run(gate + i, count);
    store_run(gate + i, g * sigmoid_lanes(g) * load_run(up + i, count), count);
  });
}

static void sigmoid_product(float* y, const float* z, std::size_t n) {
  for_runs(n, [&](std::size_t i, std::size_t count) {
    store_run(y + i, load_run(y + i, count) * sigmoid_lanes(load_run(z + i, count)), count);
  });
}

static void add_scaled(float* y, const float* x, float scale, std::size_t n) {
  for_runs(n, [&](std::size_t i, std::size_t count) {
    store_run(y + i, fma_lanes(load_run(x + i, count), all(scale), load_run(y + i, count)), count);
  });
}

static void mix_streams(const float* gate, std::size_t gate_stride, const float* normed,
                        std::size_t normed_stride, std::size_t streams, std::size_t n, float* out) {
  for_runs(n, [&](std::size_t d, std::size_t count) {
    Lanes sum = all(0.0f);
    for (std::size_t s = 0; s < streams; ++s) {
      const Lanes open = sigmoid_lanes(load_run(gate + s * gate_stride + d, count));
      sum = fma_lanes(open, load_run(normed + s * normed_stride + d, count), sum);
    }
    store_run(out + d, sum / all(static_cast<float>(streams)), count);
  });
}

#if defined(STRATA_AVX512)
// Taps of 16 channels, four a channel, turned: tap k of every channel.
STRATA_INLINE void turn_taps(const float* taps, Lanes* turned) {
  const __m512 a = _mm512_loadu_ps(taps), b = _mm512_loadu_ps(taps + 16);
  const __m512 c = _mm512_loadu_ps(taps + 32), d = _mm512_loadu_ps(taps + 48);
  for (int k = 0; k < 4; ++k) {
    const __m512i place = _mm512_add_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28),
        _mm512_set1_epi32(k));
    turned[k] = (Lanes)_mm512_mask_blend_ps(0xff00, _mm512_permutex2var_ps(a, place, b),
                                            _mm512_permutex2var_ps(c, place, d));
  }
}
#endif

static void convolve(const float* taps, std::size_t kernel, const float* const* rows,
                     std::size_t channels, float* out) {
  std::size_t c = 0;
#if defined(STRATA_AVX512)
  if (kernel == 4) {
    for (; c + kLanes <= channels; c += kLanes) {
      Lanes turned[4], sum = all(0.0f);
      turn_taps(taps + 4 * c, turned);
      for (std::size_t k = 0; k < 4; ++k) sum = fma_lanes(turned[k], load(rows[k] + c), sum);
      store(out + c, sum * sigmoid_lanes(sum));
    }
  }
#endif
  const std::size_t rest = c;
  for (; c < channels; ++c) {
    float sum = 0.0f;
    for (std::size_t k = 0; k < kernel; ++k) sum = fma_one(taps[c * kernel + k], rows[k][c], sum);
    out[c] = sum;
  }
  silu_divided(out + rest, channels - rest, 1.0f);
}

static void delta_gates(const float* a, const float* bias, std::size_t heads, float* decay,
                        float* open) {
  for_runs(heads, [&](std::size_t i, std::size_t count) {
    const Lanes x = load_run(decay + i, count) + load_run(bias + i, count);
    store_run(decay + i, exp_lanes(load_run(a + i, count) * softplus_lanes(x)), count);
    store_run(open + i, sigmoid_lanes(load_run(open + i, count)), count);
  });
}

// What the first step's key says of `Vectors` vectors of columns.
template <std::size_t Vectors>
STRATA_INLINE void delta_predict(const float* columns, std::size_t key_dim, std::size_t stride,
                                 const DeltaStep& step, Lanes* predicted) {
  const Lanes decay = all(step.decay);
  for (std::size_t v = 0; v < Vectors; ++v) predicted[v] = all(0.0f);
  for (std::size_t i = 0; i < key_dim; ++i) {
    const Lanes k = all(step.k[i]);
    for (std::size_t v = 0; v < Vectors; ++v)
      predicted[v] = fma_lanes(load(columns + i * stride + v * kLanes) * decay, k, predicted[v]);
  }
}

// A step on those columns. One pass makes this step and the next one's prediction: the state lies
// decayed for the step that comes, so the `First` one has to decay it and the `Last` one leaves it.
template <std::size_t Vectors, bool First, bool Last>
STRATA_INLINE void delta_columns(float* columns, std::size_t key_dim, std::size_t stride,
                                 const DeltaStep step, const DeltaStep next, std::size_t column,
                                 Lanes* predicted) {
  Lanes delta[Vectors], sum[Vectors], coming[Vectors];
  for (std::size_t v = 0; v < Vectors; ++v) {
    delta[v] = (load(step.v + column + v * kLanes) - predicted[v]) * all(step.beta);
    sum[v] = coming[v] = all(0.0f);
  }
  const Lanes decay = all(First ? step.decay : 1.0f), later = all(next.decay);
  for (std::size_t i = 0; i < key_dim; ++i) {
    // Read before the state is written: the compiler cannot know that they do not overlap.
    const Lanes k = all(step.k[i]), q = all(step.q[i]), following = all(next.k[i]);
    Lanes s[Vectors];
    for (std::size_t v = 0; v < Vectors; ++v) {
      s[v] = load(columns + i * stride + v * kLanes);
      if constexpr (First) s[v] = s[v] * decay;
      s[v] = fma_lanes(k, delta[v], s[v]);
    }
    for (std::size_t v = 0; v < Vectors; ++v) {
      sum[v] = fma_lanes(s[v], q, sum[v]);
      if constexpr (!Last) {
        s[v] = s[v] * later;
        coming[v] = fma_lanes(s[v], following, coming[v]);
      }
      store(columns + i * stride + v * kLanes, s[v]);
    }
  }
  for (std::size_t v = 0; v < Vectors; ++v) {
    store(step.out + column + v * kLanes, sum[v]);
    predicted[v] = coming[v];
  }
}

// All steps on some columns.
template <std::size_t Vectors>
static void delta_run(float* state, std::size_t key_dim, std::size_t stride, const DeltaStep* steps,
                      std::size_t count, std::size_t column) {
  float* const columns = state + column;
  const DeltaStep &first = steps[0], &last = steps[count - 1];
  Lanes predicted[Vectors];
  delta_predict<Vectors>(columns, key_dim, stride, first, predicted);
  if (count == 1)
    return delta_columns<Vectors, true, true>(columns, key_dim, stride, first, first, column,
                                              predicted);
  delta_columns<Vectors, true, false>(columns, key_dim, stride, first, steps[1], column, predicted);
  for (std::size_t i = 1; i + 1 < count; ++i)
    delta_columns<Vectors, false, false>(columns, key_dim, stride, steps[i], steps[i + 1], column,
                                         predicted);
  delta_columns<Vectors, false, true>(columns, key_dim, stride, last, last, column, predicted);
}

// Columns do not know of each other: a slice of them takes all steps while it is in the first
// cache.
static void delta_steps(float* state, std::size_t key_dim, std::size_t stride,
                        const DeltaStep* steps, std::size_t count) {
  if (count == 0) return;
  std::size_t column = 0;
  for (; column + kDeltaVectors * kLanes <= stride; column += kDeltaVectors * kLanes)
    delta_run<kDeltaVectors>(state, key_dim, stride, steps, count, column);
  if constexpr (kDeltaVectors > 2)
    for (; column + 2 * kLanes <= stride; column += 2 * kLanes)
      delta_run<2>(state, key_dim, stride, steps, count, column);
  for (; column < stride; column += kLanes)
    delta_run<1>(state, key_dim, stride, steps, count, column);
}

static void softmax(float* scores, std::size_t n) {
  Lanes most = all(scores[0]);  // if that is no number, nothing is larger
  const std::size_t whole = n / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) most = larger(load(scores + i), most);
  float lanes[kLanes], top = scores[0];
  store(lanes, most);
  for (const float lane : lanes) top = lane > top ? lane : top;
  for (std::size_t i = whole; i < n; ++i) top = scores[i] > top ? scores[i] : top;
  Lanes sum = all(0.0f);
  for_runs(n, [&](std::size_t i, std::size_t count) {
    const Lanes e = exp_lanes(load_run(scores + i, count) - all(top));
    store_run(scores + i, e, count);
    sum = sum + load_run(scores + i, count);
  });
  const float total = sum_lanes(sum);
  for_runs(n, [&](std::size_t i, std::size_t count) {
    store_run(scores + i, load_run(scores + i, count) / all(total), count);
  });
}

#include "compute/cpu/cells_impl.h"

// Tokens of a window that goes without panels.
#if defined(STRATA_VBMI)
constexpr std::size_t kRowTokens = kTurnedTokens;
#else
constexpr std::size_t kRowTokens = kFewTokens;
#endif
#include "compute/cpu/float_gemm_impl.h"

// Unpacking first: the products use it.
#include "compute/cpu/unpack_impl.h"
// The products.
#if defined(STRATA_NEON)
#include "compute/cpu/int_gemm_neon_impl.h"
#else
#include "compute/cpu/int_gemm_impl.h"
#endif
// Activations and probes.
#include "compute/cpu/quantize_impl.h"

static std::string_view way(TensorType type, Inputs inputs, bool few) {
  if (inputs == Inputs::floats) {
    return has_float_gemm(type) ? "rows" : "decoded rows";
  }
  const IntFormat* format = inputs == Inputs::bytes ? int_format(type) : word_format(type);
  if (!format) return "";
  return few && has_gemv(*format) ? "rows" : "panels";
}

static constexpr Kernels make_table(std::string_view isa) {
  Kernels table{};
  table.isa = isa;
  table.few_tokens = kRowTokens;
  table.way = way;
  table.float_gemm = float_gemm;
  table.dot = dot;
  table.rms_norm = rms_norm;
  table.rms_norms = rms_norms;
  table.l2_norm = l2_norm;
  table.sigmoid = sigmoid_one;
  table.exp_above = exp_above;
  table.open_gates = open_gates;
  table.silu_divided = silu_divided;
  table.silu_product = silu_product;
  table.sigmoid_product = sigmoid_product;
  table.add_scaled = add_scaled;
  table.mix_streams = mix_streams;
  table.convolve = convolve;
  table.delta_gates = delta_gates;
  table.rotation = rotation;
  table.delta_steps = delta_steps;
  table.softmax = softmax;
  table.score_cells = score_cells;
  table.weigh_cells = weigh_cells;
  table.turn_head = turn_head;
  table.quantize_row = quantize_row;
  table.quantize_words = quantize_words;
  table.int_gemm = int_gemm;
#if defined(STRATA_VBMI)
  table.turned_bytes = turned_bytes;
  table.turn_rows = turn_rows;
  table.turned_gemm = turned_gemm;
#else
  table.turned_bytes = [](const IntFormat&, std::size_t, std::size_t) { return std::size_t{0}; };
#endif
  table.read_streams = read_streams;
  table.int8_loop = int8_loop;
  table.unpack = [](TensorType type, const std::byte* source, std::size_t groups, IntBlock& out) {
    unpack_of(type)(source, groups, out);
  };
  return table;
}

#undef STRATA_INLINE
#undef STRATA_METHOD
