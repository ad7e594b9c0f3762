// Attention's kernels: scores of cells, weighted sums of cells, the turning of heads. Part of
// kernels_impl.h. A cell's values become floats, exactly, in registers; the formats differ in
// nothing else, so all have the orders of float32.

constexpr std::size_t kCellStep = 32;  // dimensions that are worked on at a time
// A tile of scores, and heads whose sums fit the registers.
constexpr std::size_t kTileCells = kQueries >= 12 ? 2 : 1;
constexpr std::size_t kTileHeads = kQueries >= 12 ? kQueries : (kQueries + 1) / 2;

// Where the values of dimension d, a multiple of kCellStep, stand in a cell.
template <CellFormat Format>
STRATA_INLINE std::size_t cell_offset(std::size_t d) {
  if constexpr (Format == CellFormat::f32) return 4 * d;
  if constexpr (Format == CellFormat::f16) return 2 * d;
  if constexpr (Format == CellFormat::int8)
    return d / CellBlock8::values * sizeof(CellBlock8) + d % CellBlock8::values;
  return d / quant::BlockQ4_0::values * sizeof(quant::BlockQ4_0);
}

// 16 codes times their scale: a product of 8 and 11 bits, exact.
using Codes = signed char __attribute__((vector_size(16)));
STRATA_INLINE Lanes scaled_codes(const Codes& codes, const Lanes& scale) {
#if defined(STRATA_AVX512)
  return (Lanes)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i)codes)) * scale;
#elif defined(STRATA_AVX2)
  union {
    Lanes whole;
    __m256 half[2];
  } r;
  const auto bytes = (__m128i)codes;
  r.half[0] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  r.half[1] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(bytes, bytes)));
  return r.whole * scale;
#elif defined(STRATA_NEON)
  const int16x8_t low = vmovl_s8(vget_low_s8((int8x16_t)codes));
  const int16x8_t high = vmovl_high_s8((int8x16_t)codes);
  const IntLanes wide(vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low),
                      vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high));
  return to_float(wide) * scale;
#else
  return __builtin_convertvector(codes, Lanes) * scale;
#endif
}
STRATA_INLINE Codes load_codes(const void* p) {
  Codes codes;
  std::memcpy(&codes, p, sizeof codes);
  return codes;
}

// The values of dimensions [d, d + kCellStep).
template <CellFormat Format>
STRATA_INLINE void load_cell(const std::byte* cell, std::size_t d, Lanes* values) {
  const std::byte* at = cell + cell_offset<Format>(d);
  if constexpr (Format == CellFormat::f32) {
    values[0] = load(reinterpret_cast<const float*>(at));
    values[1] = load(reinterpret_cast<const float*>(at) + kLanes);
  } else if constexpr (Format == CellFormat::f16) {
    values[0] = halves(at);
    values[1] = halves(at + 2 * kLanes);
  } else if constexpr (Format == CellFormat::int8) {
    const auto* block = reinterpret_cast<const CellBlock8*>(cell) + d / CellBlock8::values;
    const Lanes scale = all(half_at(block->d));
    const signed char* codes = block->codes + d % CellBlock8::values;
    values[0] = scaled_codes(load_codes(codes), scale);
    values[1] = scaled_codes(load_codes(codes + kLanes), scale);
  } else {
    const auto* block = reinterpret_cast<const quant::BlockQ4_0*>(at);
    const Lanes scale = all(half_at(block->d));
    using Bytes = unsigned char __attribute__((vector_size(16)));
    const auto both = (Bytes)load_codes(block->qs);
    values[0] = scaled_codes((Codes)(both & 15) - 8, scale);
    values[1] = scaled_codes((Codes)(both >> 4) - 8, scale);
  }
}

// The last `count` < kCellStep dimensions, zeros behind them. Blocks are whole.
template <CellFormat Format>
STRATA_INLINE void load_cell_tail(const std::byte* cell, std::size_t d, std::size_t count,
                                  Lanes* values) {
  if constexpr (Format == CellFormat::f32 || Format == CellFormat::f16) {
    std::byte padded[kCellStep * sizeof(float)] = {};
    std::memcpy(padded, cell + cell_offset<Format>(d), cell_offset<Format>(1) * count);
    load_cell<Format>(padded, 0, values);
  } else {
    load_cell<Format>(cell, d, values);
  }
}
STRATA_INLINE void load_tail(const float* x, std::size_t count, Lanes* values) {
  float padded[kCellStep] = {};
  std::memcpy(padded, x, count * sizeof(float));
  values[0] = load(padded);
  values[1] = load(padded + kLanes);
}

// Cells lie wherever the indexer found them: each is asked for while the one some places before it
// is worked on, a step at a time.
template <CellFormat Format>
STRATA_INLINE void prefetch_step(const std::byte* cell, std::size_t d) {
  __builtin_prefetch(cell + cell_offset<Format>(d));
  if constexpr (Format == CellFormat::f32) __builtin_prefetch(cell + cell_offset<Format>(d) + 64);
}

#if defined(STRATA_AVX512)
// Lane i of the result is v[i] put together by both(), in the order of sum_lanes().
template <class Both>
STRATA_INLINE Lanes across_sixteen(const Lanes* v, const Both& both) {
  __m512 t[8], u[4];
  for (int i = 0; i < 8; ++i) {  // [cell 2 i: 8 sums, cell 2 i + 1: 8 sums]
    const auto a = (__m512)v[2 * i], b = (__m512)v[2 * i + 1];
    t[i] = both(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
  for (int i = 0; i < 4; ++i)  // four sums of each of four cells
    u[i] = both(_mm512_shuffle_f32x4(t[2 * i], t[2 * i + 1], 0x88),
                _mm512_shuffle_f32x4(t[2 * i], t[2 * i + 1], 0xdd));
  const auto two = [&](const __m512& a, const __m512& b) {
    const auto x = (__m512d)a, y = (__m512d)b;
    return both((__m512)_mm512_unpacklo_pd(x, y), (__m512)_mm512_unpackhi_pd(x, y));
  };
  const __m512 a = two(u[0], u[1]), b = two(u[2], u[3]);
  const __m512 all = both(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
  const __m512i places = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return (Lanes)_mm512_permutexvar_ps(places, all);
}
#endif

// Lane i of the result is sum_lanes(v[i]).
STRATA_INLINE Lanes sum_sixteen(const Lanes* v) {
#if defined(STRATA_AVX512)
  return across_sixteen(v, [](const __m512& a, const __m512& b) { return a + b; });
#elif defined(STRATA_AVX2)
  union {
    Lanes whole;
    __m256 half[2];
  } r;
  for (int h = 0; h < 2; ++h) {
    __m256 t[8], u[4];
    for (int i = 0; i < 8; ++i) {
      union {
        Lanes whole;
        __m256 half[2];
      } x{v[8 * h + i]};
      t[i] = x.half[0] + x.half[1];
    }
    for (int i = 0; i < 4; ++i)
      u[i] = _mm256_permute2f128_ps(t[2 * i], t[2 * i + 1], 0x20) +
             _mm256_permute2f128_ps(t[2 * i], t[2 * i + 1], 0x31);
    const auto two = [](const __m256& a, const __m256& b) {
      const auto x = (__m256d)a, y = (__m256d)b;
      return (__m256)_mm256_unpacklo_pd(x, y) + (__m256)_mm256_unpackhi_pd(x, y);
    };
    const __m256 a = two(u[0], u[1]), b = two(u[2], u[3]);
    const __m256 sums = _mm256_shuffle_ps(a, b, 0x88) + _mm256_shuffle_ps(a, b, 0xdd);
    r.half[h] = _mm256_permutevar8x32_ps(sums, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }
  return r.whole;
#elif defined(STRATA_NEON)
  const auto four = [&](std::size_t first) {
    const auto sums = [&](std::size_t i) {
      return (float64x2_t)((v[i].a + v[i].c) + (v[i].b + v[i].d));
    };
    const auto two = [&](std::size_t i) {
      const float64x2_t x = sums(i), y = sums(i + 1);
      return (float32x4_t)vzip1q_f64(x, y) + (float32x4_t)vzip2q_f64(x, y);
    };
    const float32x4_t x = two(first), y = two(first + 2);
    return vuzp1q_f32(x, y) + vuzp2q_f32(x, y);
  };
  return {four(0), four(4), four(8), four(12)};
#else
  Lanes r;
  for (std::size_t i = 0; i < kLanes; ++i) r[i] = sum_lanes(v[i]);
  return r;
#endif
}

// Products of some cells with some queries, not summed over the lanes yet: sums[q * kLanes + cell].
template <CellFormat Format, std::size_t Cells, std::size_t Queries>
STRATA_INLINE void score_tile(const std::byte* const* cells, const std::byte* const* next,
                              std::size_t dim, const float* const* queries, Lanes* sums) {
  Lanes sum[Queries][Cells];
#pragma GCC unroll 16
  for (std::size_t q = 0; q < Queries; ++q)
    for (std::size_t c = 0; c < Cells; ++c) sum[q][c] = all(0.0f);
  for (std::size_t d = 0; d < dim; d += kCellStep) {
    Lanes k[Cells][2];
#pragma GCC unroll 4
    for (std::size_t c = 0; c < Cells; ++c) {
      load_cell<Format>(cells[c], d, k[c]);
      prefetch_step<Format>(next[c], d);
    }
#pragma GCC unroll 2
    for (std::size_t v = 0; v < 2; ++v)
#pragma GCC unroll 16
      for (std::size_t q = 0; q < Queries; ++q) {
        const Lanes x = load(queries[q] + d + v * kLanes);
#pragma GCC unroll 4
        for (std::size_t c = 0; c < Cells; ++c) sum[q][c] = fma_lanes(k[c][v], x, sum[q][c]);
      }
  }
#pragma GCC unroll 16
  for (std::size_t q = 0; q < Queries; ++q)
#pragma GCC unroll 4
    for (std::size_t c = 0; c < Cells; ++c) sums[q * kLanes + c] = sum[q][c];
}

// What is left behind whole steps.
template <CellFormat Format>
static void score_tail(const std::byte* const* cells, std::size_t dim, const float* const* queries,
                       std::size_t count, Lanes* sums) {
  const std::size_t d = dim / kCellStep * kCellStep;
  for (std::size_t c = 0; c < kLanes; ++c) {
    Lanes k[2], x[2];
    load_cell_tail<Format>(cells[c], d, dim - d, k);
    for (std::size_t q = 0; q < count; ++q) {
      load_tail(queries[q] + d, dim - d, x);
      for (std::size_t v = 0; v < 2; ++v) {
        Lanes& sum = sums[q * kLanes + c];
        sum = fma_lanes(k[v], x[v], sum);
      }
    }
  }
}

// 16 cells and some queries.
template <CellFormat Format, std::size_t Cells, std::size_t Queries>
static void score_some(const std::byte* const* cells, const std::byte* const* next, std::size_t dim,
                       const float* const* queries, float scale, float* const* scores,
                       std::size_t at) {
  Lanes sums[Queries * kLanes];
  for (std::size_t c = 0; c < kLanes; c += Cells)
    score_tile<Format, Cells, Queries>(cells + c, next + c, dim / kCellStep * kCellStep, queries,
                                       sums + c);
  if (dim % kCellStep != 0) score_tail<Format>(cells, dim, queries, Queries, sums);
  for (std::size_t q = 0; q < Queries; ++q)
    store(scores[q] + at, sum_sixteen(sums + q * kLanes) * all(scale));
}

template <CellFormat Format>
static void score_format(const std::byte* const* cells, std::size_t count, std::size_t dim,
                         const float* const* queries, std::size_t query_count, float scale,
                         float* const* scores) {
  for (std::size_t at = 0; at < count; at += kLanes) {
    const std::byte *here[kLanes], *next[kLanes];
    for (std::size_t i = 0; i < kLanes; ++i) {
      here[i] = cells[std::min(at + i, count - 1)];
      next[i] = cells[std::min(at + kLanes + i, count - 1)];
    }
    std::size_t q = 0;
    for (; q + kQueries <= query_count; q += kQueries)
      score_some<Format, kTileCells, kQueries>(here, next, dim, queries + q, scale, scores + q, at);
    if constexpr (kQueries > 4)
      for (; q + 4 <= query_count; q += 4)
        score_some<Format, 2 * kTileCells, 4>(here, next, dim, queries + q, scale, scores + q, at);
    for (; q < query_count; ++q)
      score_some<Format, 4, 1>(here, next, dim, queries + q, scale, scores + q, at);
  }
}

static void score_cells(CellFormat format, const std::byte* const* cells, std::size_t count,
                        std::size_t dim, const float* const* queries, std::size_t query_count,
                        float scale, float* const* scores) {
  const auto run = [&](auto body) { body(cells, count, dim, queries, query_count, scale, scores); };
  switch (format) {
    case CellFormat::f32:
      return run(score_format<CellFormat::f32>);
    case CellFormat::f16:
      return run(score_format<CellFormat::f16>);
    case CellFormat::int8:
      return run(score_format<CellFormat::int8>);
    case CellFormat::q4_0:
      return run(score_format<CellFormat::q4_0>);
  }
}

// One step of dimensions of some heads. `following` cells stand behind the `count`.
template <CellFormat Format, std::size_t Heads>
STRATA_INLINE void weigh_tile(const std::byte* const* cells, std::size_t count,
                              std::size_t following, std::size_t d, const float* const* weights,
                              float* const* out, bool first) {
  Lanes sum[Heads][2];
#pragma GCC unroll 16
  for (std::size_t h = 0; h < Heads; ++h)
#pragma GCC unroll 2
    for (std::size_t v = 0; v < 2; ++v)
      sum[h][v] = first ? all(0.0f) : load(out[h] + d + v * kLanes);
  for (std::size_t i = 0; i < count; ++i) {
    Lanes row[2];
    load_cell<Format>(cells[i], d, row);
    prefetch_step<Format>(cells[std::min(i + count, count + following - 1)], d);
#pragma GCC unroll 16
    for (std::size_t h = 0; h < Heads; ++h) {
      const Lanes weight = all(weights[h][i]);
#pragma GCC unroll 2
      for (std::size_t v = 0; v < 2; ++v) sum[h][v] = fma_lanes(row[v], weight, sum[h][v]);
    }
  }
#pragma GCC unroll 16
  for (std::size_t h = 0; h < Heads; ++h)
#pragma GCC unroll 2
    for (std::size_t v = 0; v < 2; ++v) store(out[h] + d + v * kLanes, sum[h][v]);
}

template <CellFormat Format>
static void weigh_tail(const std::byte* const* cells, std::size_t count, std::size_t dim,
                       const float* weights, float* out, bool first) {
  const std::size_t d = dim / kCellStep * kCellStep;
  Lanes sum[2] = {all(0.0f), all(0.0f)};
  if (!first) load_tail(out + d, dim - d, sum);
  for (std::size_t i = 0; i < count; ++i) {
    Lanes row[2];
    load_cell_tail<Format>(cells[i], d, dim - d, row);
    for (std::size_t v = 0; v < 2; ++v) sum[v] = fma_lanes(row[v], all(weights[i]), sum[v]);
  }
  std::memcpy(out + d, sum, (dim - d) * sizeof(float));
}

template <CellFormat Format>
static void weigh_format(const std::byte* const* cells, std::size_t count, std::size_t following,
                         std::size_t dim, const float* const* weights, std::size_t heads,
                         float* const* out, bool first) {
  for (std::size_t d = 0; d + kCellStep <= dim; d += kCellStep) {
    std::size_t h = 0;
    for (; h + kTileHeads <= heads; h += kTileHeads)
      weigh_tile<Format, kTileHeads>(cells, count, following, d, weights + h, out + h, first);
    for (; h < heads; ++h)
      weigh_tile<Format, 1>(cells, count, following, d, weights + h, out + h, first);
  }
  if (dim % kCellStep == 0) return;
  for (std::size_t h = 0; h < heads; ++h)
    weigh_tail<Format>(cells, count, dim, weights[h], out[h], first);
}

static void weigh_cells(CellFormat format, const std::byte* const* cells, std::size_t count,
                        std::size_t following, std::size_t dim, const float* const* weights,
                        std::size_t heads, float* const* out, bool first) {
  const auto run = [&](auto body) {
    body(cells, count, following, dim, weights, heads, out, first);
  };
  switch (format) {
    case CellFormat::f32:
      return run(weigh_format<CellFormat::f32>);
    case CellFormat::f16:
      return run(weigh_format<CellFormat::f16>);
    case CellFormat::int8:
      return run(weigh_format<CellFormat::int8>);
    case CellFormat::q4_0:
      return run(weigh_format<CellFormat::q4_0>);
  }
}

// Sums and differences of what stands `Stride` lanes apart.
template <int Stride>
STRATA_INLINE Lanes butterfly(const Lanes& v) {
  constexpr int s = Stride;
#if defined(STRATA_NEON)
  if constexpr (s == 8) return {v.a + v.c, v.b + v.d, v.a - v.c, v.b - v.d};
  if constexpr (s == 4) return {v.a + v.b, v.a - v.b, v.c + v.d, v.c - v.d};
  const auto each = [](float32x4_t x) {
    const float32x4_t other = s == 2 ? vextq_f32(x, x, 2) : vrev64q_f32(x);
    const float32x4_t sign = s == 2 ? float32x4_t{1, 1, -1, -1} : float32x4_t{1, -1, 1, -1};
    return other + x * sign;
  };
  return {each(v.a), each(v.b), each(v.c), each(v.d)};
#else
  const Lanes other =
      __builtin_shufflevector(v, v, 0 ^ s, 1 ^ s, 2 ^ s, 3 ^ s, 4 ^ s, 5 ^ s, 6 ^ s, 7 ^ s, 8 ^ s,
                              9 ^ s, 10 ^ s, 11 ^ s, 12 ^ s, 13 ^ s, 14 ^ s, 15 ^ s);
  const IntLanes lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const IntLanes upper = (lane & s) != 0;  // all ones there
  return other + (Lanes)((IntLanes)v ^ (upper & INT32_MIN));
#endif
}

static void turn_head(float* x, std::size_t n) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(n));
  std::size_t stride = n / 2;
  for (; stride >= std::min(n, kLanes); stride /= 2)
    for (std::size_t i = 0; i < n; i += 2 * stride)
      for (std::size_t j = i; j < i + stride; j += kLanes) {
        const Lanes a = load(x + j), b = load(x + j + stride);
        store(x + j, a + b);
        store(x + j + stride, a - b);
      }
  if (n >= kLanes) {
    for (std::size_t i = 0; i < n; i += kLanes) {
      const Lanes v = butterfly<1>(butterfly<2>(butterfly<4>(butterfly<8>(load(x + i)))));
      store(x + i, v * all(scale));
    }
    return;
  }
  for (; stride > 0; stride /= 2)
    for (std::size_t i = 0; i < n; ++i)
      if ((i & stride) == 0) {
        const float a = x[i], b = x[i + stride];
        x[i] = a + b;
        x[i + stride] = a - b;
      }
  for (std::size_t i = 0; i < n; ++i) x[i] *= scale;
}
