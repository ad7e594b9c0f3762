// Integer products of a panel of 16 rows with quantised activations, compiled once for each
// instruction set like kernels_impl.h. Order of the sums: int_blocks.h.

using ShortLanes = std::int16_t __attribute__((vector_size(32)));
using ByteLanes = std::int8_t __attribute__((vector_size(16)));

STRATA_INLINE IntLanes all_int(std::int32_t x) {
  return IntLanes{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}
template <class T>
STRATA_INLINE IntLanes load_int(const T* p) {
  IntLanes v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
STRATA_INLINE Lanes to_float(const IntLanes& v) {
  return __builtin_convertvector(v, Lanes);
}

// sum[r] += codes[r][0..3] . x[0..3], unsigned by signed bytes, exact.
STRATA_INLINE IntLanes dot4(const IntLanes& sum, const std::uint8_t* codes, const std::int8_t* x) {
  std::int32_t four;
  std::memcpy(&four, x, 4);
#if defined(STRATA_AVX512)
  return (IntLanes)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)load_int(codes),
                                       _mm512_set1_epi32(four));
#elif defined(STRATA_AVX2)
  // 16-bit products of even and odd bytes: vpmaddubsw would saturate.
  union Halves {
    IntLanes whole;
    __m256i half[2];
  };
  const __m256i bytes = _mm256_set1_epi32(four);
  const __m256i x_even = _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8);
  const __m256i x_odd = _mm256_srai_epi16(bytes, 8);
  Halves c{load_int(codes)}, s{sum};
  for (__m256i* h : {&c.half[0], &c.half[1]}) {
    const __m256i even = _mm256_and_si256(*h, _mm256_set1_epi16(255));
    const __m256i odd = _mm256_srli_epi16(*h, 8);
    *h = _mm256_add_epi32(_mm256_madd_epi16(even, x_even), _mm256_madd_epi16(odd, x_odd));
  }
  s.half[0] = _mm256_add_epi32(s.half[0], c.half[0]);
  s.half[1] = _mm256_add_epi32(s.half[1], c.half[1]);
  return s.whole;
#else
  IntLanes result = sum;
  for (std::size_t r = 0; r < kLanes; ++r) {
    std::int32_t dot = 0;
    for (std::size_t i = 0; i < 4; ++i) dot += std::int32_t{codes[4 * r + i]} * x[i];
    result[r] += dot;
  }
  return result;
#endif
}

// Unpacks block `block` of 16 rows (null: zeros) into a panel.
static void fill_panel(const IntFormat& format, Unpack unpack, const std::byte* const* rows,
                       std::size_t offset, std::size_t groups, IntBlock* scratch, IntPanel& panel) {
  for (std::size_t r = 0; r < kLanes; ++r) {
    if (rows[r]) {
      unpack(rows[r] + offset, groups, scratch[r]);
    } else {
      scratch[r] = IntBlock{};
    }
  }
  for (std::size_t k = 0; k < groups * 32; k += 64) {
    const void* sources[kLanes];
    for (std::size_t r = 0; r < kLanes; ++r) sources[r] = scratch[r].codes + k;
    transpose_dwords(sources, panel.codes[k / 4]);
  }
  const void* sources[kLanes];
  if (format.kind == BlockKind::group_floats) {
    for (std::size_t r = 0; r < kLanes; ++r) sources[r] = scratch[r].group_d;
    transpose_dwords(sources, panel.group_d);  // and group_m behind it
    return;
  }
  alignas(64) std::int32_t pairs[16][kLanes];  // two 16-bit integers a row: scales, then mins
  for (std::size_t r = 0; r < kLanes; ++r) sources[r] = scratch[r].scales;
  transpose_dwords(sources, pairs);
  const auto widen = [](const std::int32_t(*from)[kLanes], std::int32_t(*to)[kLanes]) {
    for (std::size_t i = 0; i < 8; ++i) {
      const IntLanes both = load_int(from[i]);
      const IntLanes low = (both << 16) >> 16, high = both >> 16;
      std::memcpy(to[2 * i], &low, sizeof low);
      std::memcpy(to[2 * i + 1], &high, sizeof high);
    }
  };
  widen(pairs, panel.scales);
  for (std::size_t r = 0; r < kLanes; ++r) panel.d[r] = scratch[r].d;
  if (!format.minima) return;
  widen(pairs + 8, panel.mins);
  for (std::size_t r = 0; r < kLanes; ++r) panel.dmin[r] = scratch[r].dmin;
}

// Dots of one group of `Width` values (from value k on) with each token, minus zero times its sum.
template <std::size_t Tokens, std::size_t Width>
STRATA_INLINE void group_dots(const IntPanel& panel, std::size_t k, std::int32_t zero,
                              const QuantizedRow* x, std::size_t at, IntLanes* dots) {
  for (std::size_t t = 0; t < Tokens; ++t) {
    std::int32_t sum = x[t].sums[(at + k) / 16];
    if constexpr (Width == 32) sum += x[t].sums[(at + k) / 16 + 1];
    dots[t] = all_int(-zero * sum);
  }
  for (std::size_t i = 0; i < Width; i += 4)
    for (std::size_t t = 0; t < Tokens; ++t)
      dots[t] = dot4(dots[t], &panel.codes[(k + i) / 4][0][0], x[t].values + at + k + i);
}

// One block for `Tokens` tokens, formats with integer scales. `at` is the block's first value.
template <std::size_t Tokens, std::size_t Width, bool Minima>
static void integer_block(const IntFormat& format, const IntPanel& panel, std::size_t,
                          const QuantizedRow* x, std::size_t at, Lanes* acc) {
  IntLanes total[Tokens];
  for (std::size_t t = 0; t < Tokens; ++t) total[t] = all_int(0);
  for (std::size_t g = 0; g < kBlock / Width; ++g) {
    IntLanes dots[Tokens];
    group_dots<Tokens, Width>(panel, g * Width, format.zero, x, at, dots);
    const IntLanes scale = load_int(panel.scales[g]);
    for (std::size_t t = 0; t < Tokens; ++t) total[t] += dots[t] * scale;
  }
  for (std::size_t t = 0; t < Tokens; ++t) {
    const Lanes dx = all(x[t].scales[at / kBlock]);
    acc[t] = fma_lanes(to_float(total[t]), load(panel.d) * dx, acc[t]);
    if constexpr (Minima) {
      IntLanes low = all_int(0);
      for (std::size_t g = 0; g < kBlock / Width; ++g) {
        const std::int16_t* sums = x[t].sums + (at + g * Width) / 16;
        low += load_int(panel.mins[g]) * all_int(Width == 32 ? sums[0] + sums[1] : sums[0]);
      }
      acc[t] = fma_lanes(to_float(low), -(load(panel.dmin) * dx), acc[t]);
    }
  }
}

// The same for formats with a float scale for each 32 values.
template <std::size_t Tokens, bool Minima>
static void float_block(const IntFormat& format, const IntPanel& panel, std::size_t groups,
                        const QuantizedRow* x, std::size_t at, Lanes* acc) {
  for (std::size_t g = 0; g < groups; ++g) {
    IntLanes dots[Tokens];
    group_dots<Tokens, 32>(panel, g * 32, format.zero, x, at, dots);
    const Lanes d = load(panel.group_d[g]);
    for (std::size_t t = 0; t < Tokens; ++t) {
      const Lanes dx = all(x[t].scales[at / 32 + g]);
      acc[t] = fma_lanes(to_float(dots[t]), d * dx, acc[t]);
      if constexpr (Minima) {
        const std::int16_t* sums = x[t].sums + (at + g * 32) / 16;
        const auto sum = static_cast<float>(sums[0] + sums[1]);
        acc[t] = fma_lanes(all(sum), load(panel.group_m[g]) * dx, acc[t]);
      }
    }
  }
}

template <std::size_t Tokens>
STRATA_INLINE void block_tile(const IntFormat& format, const IntPanel& panel, std::size_t groups,
                              const QuantizedRow* x, std::size_t at, float* const* y,
                              std::size_t rows, bool first) {
  Lanes acc[Tokens];
  for (std::size_t t = 0; t < Tokens; ++t) acc[t] = first ? all(0.0f) : load_run(y[t], rows);
  if (format.kind == BlockKind::group_floats) {
    if (format.minima) {
      float_block<Tokens, true>(format, panel, groups, x, at, acc);
    } else {
      float_block<Tokens, false>(format, panel, groups, x, at, acc);
    }
  } else if (format.group == 32) {
    if (format.minima) {
      integer_block<Tokens, 32, true>(format, panel, groups, x, at, acc);
    } else {
      integer_block<Tokens, 32, false>(format, panel, groups, x, at, acc);
    }
  } else if (format.minima) {
    integer_block<Tokens, 16, true>(format, panel, groups, x, at, acc);
  } else {
    integer_block<Tokens, 16, false>(format, panel, groups, x, at, acc);
  }
  for (std::size_t t = 0; t < Tokens; ++t) store_run(y[t], acc[t], rows);
}

// Asks for the bytes that every row needs some blocks from now. Behind a row's end that is the same
// row of the next 16, which lies 15 rows further on (matrices are stored row after row).
STRATA_INLINE void prefetch_blocks(const std::byte* const* rows, std::size_t row_count,
                                   std::size_t offset, std::size_t step, std::size_t row_bytes) {
  constexpr std::size_t ahead = 1024;
  std::size_t at = offset + ahead;
  if (at >= row_bytes) at += (kLanes - 1) * row_bytes;
  for (std::size_t r = 0; r < row_count; ++r)
    for (std::size_t line = 0; line < step; line += 64) __builtin_prefetch(rows[r] + at + line);
}

// Up to 16 rows, unpacked block by block.
static void int_panel(const IntFormat& format, const std::byte* const* rows, std::size_t row_count,
                      std::size_t row_bytes, std::size_t width, const QuantizedRow* x,
                      float* const* y, std::size_t tokens) {
  const TypeTraits& type = traits(format.type);
  const Unpack unpack = unpack_of(format.type);
  const std::size_t step = kBlock / type.block_values * type.block_bytes;
  struct Scratch {
    IntBlock blocks[kLanes];
    IntPanel panel;
  };
  thread_local std::unique_ptr<Scratch> scratch = std::make_unique<Scratch>();
  for (std::size_t at = 0; at < width; at += kBlock) {
    const std::size_t groups = std::min(kBlock, width - at) / 32;
    const std::size_t offset = at / type.block_values * type.block_bytes;
    prefetch_blocks(rows, row_count, offset, step, row_bytes);
    fill_panel(format, unpack, rows, offset, groups, scratch->blocks, scratch->panel);
    std::size_t t = 0;
    for (; t + kIntTokens <= tokens; t += kIntTokens)
      block_tile<kIntTokens>(format, scratch->panel, groups, x + t, at, y + t, row_count, at == 0);
    for (; t + 4 <= tokens; t += 4)
      block_tile<4>(format, scratch->panel, groups, x + t, at, y + t, row_count, at == 0);
    for (; t < tokens; ++t)
      block_tile<1>(format, scratch->panel, groups, x + t, at, y + t, row_count, at == 0);
  }
}

#if defined(STRATA_VBMI)
#include "compute/cpu/int_gemv_impl.h"
#endif

static void int_gemm(const IntFormat& format, const std::byte* matrix, std::size_t row_bytes,
                     std::size_t row_count, std::size_t width, const QuantizedRow* x,
                     float* const* y, std::size_t tokens, [[maybe_unused]] const std::byte* after) {
#if defined(STRATA_VBMI)
  if (const Gemv few = gemv_of(format.type); few && tokens <= kFewTokens)
    return few(matrix, row_bytes, row_count, width, x, y, tokens, after);
#endif
  thread_local std::vector<float*> out;
  out.resize(tokens);
  for (std::size_t row = 0; row < row_count; row += kLanes) {
    const std::size_t count = std::min(kLanes, row_count - row);
    const std::byte* rows[kLanes] = {};
    for (std::size_t r = 0; r < count; ++r) rows[r] = matrix + (row + r) * row_bytes;
    for (std::size_t t = 0; t < tokens; ++t) out[t] = y[t] + row;
    int_panel(format, rows, count, row_bytes, width, x, out.data(), tokens);
  }
}

// Bytes, a scale for each `unit` values (largest magnitude / 127; 32 or 256) and the sums of
// each 16. A value that is no number makes its unit's scale NaN.
static void quantize_row(const float* x, std::size_t n, std::size_t unit, std::int8_t* values,
                         float* scales, std::int16_t* sums) {
  const std::size_t padded = (n + kBlock - 1) / kBlock * kBlock;
  for (std::size_t at = 0; at < padded; at += unit) {
    const std::size_t count = at < n ? std::min(unit, n - at) : 0;
    Lanes largest = all(0.0f), poison = all(0.0f);
    for_runs(count, [&](std::size_t i, std::size_t run) {
      const Lanes v = load_run(x + at + i, run);
      const Lanes magnitude = v < all(0.0f) ? -v : v;
      largest = magnitude > largest ? magnitude : largest;
      poison = fma_lanes(v, all(0.0f), poison);
    });
    float lanes[kLanes], top = 0.0f;
    store(lanes, largest);
    for (const float l : lanes) top = std::max(top, l);
    scales[at / unit] = top / 127.0f + sum_lanes(poison);
    const float inverse = top > 0.0f ? 127.0f / top : 0.0f;
    std::size_t i = 0;
    for (; i < count; i += kLanes) {
      const std::size_t run = std::min(kLanes, count - i);
      const Lanes magic = all(ExpConstants::magic);  // rounds to nearest even
      const Lanes rounded = load_run(x + at + i, run) * all(inverse) + magic;
      const IntLanes whole = (IntLanes)rounded - (IntLanes)magic;
      const ByteLanes bytes = __builtin_convertvector(whole, ByteLanes);
      std::memcpy(values + at + i, &bytes, sizeof bytes);
      std::int32_t sum = 0;
      for (std::size_t j = 0; j < kLanes; ++j) sum += whole[j];
      sums[(at + i) / 16] = static_cast<std::int16_t>(sum);
    }
    for (; i < unit; i += kLanes) {  // behind the row's end
      std::memset(values + at + i, 0, kLanes);
      sums[(at + i) / 16] = 0;
    }
  }
}

// --- probes -------------------------------------------------------------------------------------

template <std::size_t Streams>
STRATA_INLINE std::uint64_t read_bytes(const std::byte* data, std::size_t bytes) {
  constexpr std::size_t ahead = 2048;
  const std::size_t part = bytes / Streams;
  IntLanes sum[Streams][2] = {};
  for (std::size_t at = 0; at + 128 <= part; at += 128) {
    for (std::size_t s = 0; s < Streams; ++s) {
      const std::byte* from = data + s * part + at;
      __builtin_prefetch(from + ahead);
      __builtin_prefetch(from + ahead + 64);
      sum[s][0] ^= load_int(from);
      sum[s][1] ^= load_int(from + 64);
    }
  }
  IntLanes total = sum[0][0];
  for (std::size_t s = 0; s < Streams; ++s) total ^= sum[s][0] ^ sum[s][1];
  return static_cast<std::uint64_t>(total[0] ^ total[7] ^ total[15]);
}

static std::uint64_t read_streams(const std::byte* data, std::size_t bytes, std::size_t streams) {
  if (streams >= 4) return read_bytes<4>(data, bytes);
  if (streams == 2) return read_bytes<2>(data, bytes);
  return read_bytes<1>(data, bytes);
}

static std::uint64_t int8_loop(std::size_t iterations) {
  constexpr std::size_t kSums = kInt8LoopProducts / 64;
  alignas(64) std::uint8_t codes[64];
  std::memset(codes, 3, sizeof codes);
  const std::int8_t x[4] = {1, 2, 3, 4};
  IntLanes sum[kSums];  // different from the start, or the compiler would keep one of them
  for (std::size_t s = 0; s < kSums; ++s) sum[s] = all_int(static_cast<std::int32_t>(s));
  for (std::size_t i = 0; i < iterations; ++i)
    for (std::size_t s = 0; s < kSums; ++s) sum[s] = dot4(sum[s], codes, x);
  std::uint64_t total = 0;
  for (std::size_t s = 0; s < kSums; ++s) total += static_cast<std::uint64_t>(sum[s][s % kLanes]);
  return total;
}
