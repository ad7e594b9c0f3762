// Integer products of a panel of 16 rows with quantised activations, compiled once for each
// instruction set like kernels_impl.h. Order of the sums: int_blocks.h.

using ByteLanes64 = std::int8_t __attribute__((vector_size(64)));

// sum[r] += x[0..3] . codes[r][0..3], unsigned by signed bytes, exact.
STRATA_INLINE IntLanes dot4(const IntLanes& sum, const std::uint8_t* x, const IntLanes& codes) {
  std::int32_t four;
  std::memcpy(&four, x, 4);
#if defined(STRATA_AVX512)
  return (IntLanes)_mm512_dpbusd_epi32((__m512i)sum, _mm512_set1_epi32(four), (__m512i)codes);
#elif defined(STRATA_AVX2)
  // 16-bit products of even and odd bytes: vpmaddubsw would saturate.
  union Halves {
    IntLanes whole;
    __m256i half[2];
  };
  const __m256i bytes = _mm256_set1_epi32(four);
  const __m256i x_even = _mm256_and_si256(bytes, _mm256_set1_epi16(255));
  const __m256i x_odd = _mm256_srli_epi16(bytes, 8);
  Halves c{codes}, s{sum};
  for (__m256i* h : {&c.half[0], &c.half[1]}) {
    const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(*h, 8), 8);
    const __m256i odd = _mm256_srai_epi16(*h, 8);
    *h = _mm256_add_epi32(_mm256_madd_epi16(even, x_even), _mm256_madd_epi16(odd, x_odd));
  }
  s.half[0] = _mm256_add_epi32(s.half[0], c.half[0]);
  s.half[1] = _mm256_add_epi32(s.half[1], c.half[1]);
  return s.whole;
#else
  IntLanes result = sum;
  for (std::size_t r = 0; r < kLanes; ++r) {
    std::int32_t dot = 0;
    for (std::size_t i = 0; i < 4; ++i)
      dot += x[i] * static_cast<std::int8_t>((codes[r] >> (8 * i)) & 255);
    result[r] += dot;
  }
  return result;
#endif
}
// sum[r] += codes[r][0..3] . x[0..3], codes of at most 127 by signed bytes, exact.
STRATA_INLINE IntLanes dot4(const IntLanes& sum, const std::int8_t* x, const IntLanes& codes) {
  std::int32_t four;
  std::memcpy(&four, x, 4);
#if defined(STRATA_AVX512)
  return (IntLanes)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)codes, _mm512_set1_epi32(four));
#elif defined(STRATA_AVX2)
  union Halves {
    IntLanes whole;
    __m256i half[2];
  };
  const __m256i bytes = _mm256_set1_epi32(four), ones = _mm256_set1_epi16(1);
  Halves c{codes}, s{sum};
  for (int i = 0; i < 2; ++i) {
    const __m256i pairs = _mm256_maddubs_epi16(c.half[i], bytes);  // two of 127 * 127 fit
    s.half[i] = _mm256_add_epi32(s.half[i], _mm256_madd_epi16(pairs, ones));
  }
  return s.whole;
#else
  IntLanes result = sum;
  for (std::size_t r = 0; r < kLanes; ++r) {
    std::int32_t dot = 0;
    for (std::size_t i = 0; i < 4; ++i) dot += x[i] * ((codes[r] >> (8 * i)) & 127);
    result[r] += dot;
  }
  return result;
#endif
}
// sum[r] += a[r][0..1] . b[0..1], signed 16-bit integers.
STRATA_INLINE IntLanes dot2(const IntLanes& sum, const IntLanes& a, const std::int16_t* b) {
  std::int32_t two;
  std::memcpy(&two, b, sizeof two);
#if defined(STRATA_AVX512)
  return (IntLanes)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, _mm512_set1_epi32(two));
#elif defined(STRATA_AVX2)
  union Halves {
    IntLanes whole;
    __m256i half[2];
  };
  Halves x{a}, s{sum};
  for (int i = 0; i < 2; ++i)
    s.half[i] = _mm256_add_epi32(s.half[i], _mm256_madd_epi16(x.half[i], _mm256_set1_epi32(two)));
  return s.whole;
#else
  return sum + ((a << 16) >> 16) * all_int(b[0]) + (a >> 16) * all_int(b[1]);
#endif
}

#include "compute/cpu/int_rows_impl.h"
#if defined(STRATA_VBMI)
#include "compute/cpu/int_gemv_impl.h"
#endif
#include "compute/cpu/panel_impl.h"

// The compiler would make vectors of the tiles' pointers, which costs more than it saves.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("no-tree-slp-vectorize")
#endif

// Some vectors of rows by some tokens.
template <std::size_t Vectors, std::size_t Tokens>
struct Tile {
  IntLanes whole[Vectors][Tokens];
};

// Vectors v and on of a panel, as a tile reads them: one pointer a table, constant distances.
struct PanelView {
  const IntLanes *codes, *start, *scales, *mins;
  const Lanes *float_scales, *d, *dmin, *group_d, *group_m;
  PanelView(const IntPanel& p, std::size_t v)
      : codes(&p.codes[0][v]),
        start(&p.start[0][v]),
        scales(&p.scales[0][v]),
        mins(&p.mins[0][v]),
        float_scales(&p.float_scales[0][v]),
        d(&p.d[v]),
        dmin(&p.dmin[v]),
        group_d(&p.group_d[0][v]),
        group_m(&p.group_m[0][v]) {}
};

// Inputs as a format's codes meet them: signed ones those plus 128, others (formats with minima,
// whose zero is 0) the inputs themselves.
template <bool Signed>
using InputByte = std::conditional_t<Signed, std::uint8_t, std::int8_t>;
template <bool Signed>
STRATA_INLINE const InputByte<Signed>* inputs_of(const QuantizedRow& x) {
  if constexpr (Signed) {
    return x.biased;
  } else {
    return x.values;
  }
}

// Dots of group g of `Width` values with each token; `x` points at the block.
template <std::size_t Width, class Byte, std::size_t Vectors, std::size_t Tokens>
STRATA_INLINE void group_dots(const PanelView& panel, std::size_t g, const Byte* const* x,
                              Tile<Vectors, Tokens>& dots) {
  for (std::size_t i = 0; i < Vectors; ++i)
    for (std::size_t t = 0; t < Tokens; ++t)
      dots.whole[i][t] =
          std::is_same_v<Byte, std::uint8_t> ? panel.start[g * kVectors + i] : all_int(0);
  const IntLanes* at = panel.codes + g * (Width / 4) * kVectors;
  const Byte* in[Tokens];
  for (std::size_t t = 0; t < Tokens; ++t) in[t] = x[t] + g * Width;
#pragma GCC unroll 8
  for (std::size_t k = 0; k < Width / 4; ++k) {
    IntLanes codes[Vectors];
    for (std::size_t i = 0; i < Vectors; ++i) codes[i] = at[k * kVectors + i];
    for (std::size_t t = 0; t < Tokens; ++t)
      for (std::size_t i = 0; i < Vectors; ++i)
        dots.whole[i][t] = dot4(dots.whole[i][t], in[t] + 4 * k, codes[i]);
  }
}

// The same of 16-bit inputs and groups of 32.
template <std::size_t Vectors, std::size_t Tokens>
STRATA_INLINE void word_dots(const PanelView& panel, std::size_t g, const std::int16_t* const* x,
                             Tile<Vectors, Tokens>& dots) {
  for (std::size_t i = 0; i < Vectors; ++i)
    for (std::size_t t = 0; t < Tokens; ++t) dots.whole[i][t] = all_int(0);
  const IntLanes* at = panel.codes + g * 16 * kVectors;
  const std::int16_t* in[Tokens];
  for (std::size_t t = 0; t < Tokens; ++t) in[t] = x[t] + g * 32;
#pragma GCC unroll 8
  for (std::size_t k = 0; k < 16; ++k) {
    IntLanes codes[Vectors];
    for (std::size_t i = 0; i < Vectors; ++i) codes[i] = at[k * kVectors + i];
    for (std::size_t t = 0; t < Tokens; ++t)
      for (std::size_t i = 0; i < Vectors; ++i)
        dots.whole[i][t] = dot2(dots.whole[i][t], codes[i], in[t] + 2 * k);
  }
}

// One block, formats with integer scales. Where the scaled sums of the whole block stay below 2^24
// (`Exact`) floats hold them as exactly as integers do, in fewer steps.
template <std::size_t Width, bool Exact, bool Minima, std::size_t Vectors, std::size_t Tokens,
          class Before>
STRATA_INLINE void integer_block(const PanelView& panel, const QuantizedRow* x, std::size_t at,
                                 const Before& before, Lanes (*acc)[Tokens]) {
  const InputByte<!Minima>* in[Tokens];
  for (std::size_t t = 0; t < Tokens; ++t) in[t] = inputs_of<!Minima>(x[t]) + at;
  Tile<Vectors, Tokens> total;
  Lanes scaled[Vectors][Tokens];
  for (std::size_t i = 0; i < Vectors; ++i)
    for (std::size_t t = 0; t < Tokens; ++t) {
      total.whole[i][t] = all_int(0);
      scaled[i][t] = all(0.0f);
    }
  for (std::size_t g = 0; g < kBlock / Width; ++g) {
    Tile<Vectors, Tokens> dots;
    group_dots<Width>(panel, g, in, dots);
    for (std::size_t i = 0; i < Vectors; ++i)
      for (std::size_t t = 0; t < Tokens; ++t) {
        const IntLanes& dot = dots.whole[i][t];
        if constexpr (Exact) {
          const Lanes& scale = panel.float_scales[g * kVectors + i];
          scaled[i][t] = fma_lanes(to_float(dot), scale, scaled[i][t]);
        } else {
          total.whole[i][t] += dot * panel.scales[g * kVectors + i];
        }
      }
  }
  for (std::size_t t = 0; t < Tokens; ++t) {
    const Lanes dx = all(x[t].scales[at / kBlock]);
    for (std::size_t i = 0; i < Vectors; ++i) {
      const Lanes whole = Exact ? scaled[i][t] : to_float(total.whole[i][t]);
      acc[i][t] = fma_lanes(whole, panel.d[i] * dx, before(i, t));
      if constexpr (Minima) {
        const std::int16_t* sums = (Width == 32 ? x[t].sums32 : x[t].sums16) + at / Width;
        IntLanes low = all_int(0);
        for (std::size_t g = 0; g < kBlock / Width; g += 2)
          low = dot2(low, panel.mins[g / 2 * kVectors + i], sums + g);
        acc[i][t] = fma_lanes(to_float(low), -(panel.dmin[i] * dx), acc[i][t]);
      }
    }
  }
}

// The same for formats with a float scale for each 32 values.
template <bool Minima, bool Words, std::size_t Vectors, std::size_t Tokens>
STRATA_INLINE void float_block(const PanelView& panel, std::size_t groups, const QuantizedRow* x,
                               std::size_t at, Lanes (*acc)[Tokens]) {
  const InputByte<!Minima>* bytes[Tokens];
  const std::int16_t* words[Tokens];
  const float *scales[Tokens], *scaled_sums[Tokens];
  for (std::size_t t = 0; t < Tokens; ++t) {
    if constexpr (Words) {
      words[t] = x[t].words + at;
    } else {
      bytes[t] = inputs_of<!Minima>(x[t]) + at;
    }
    scales[t] = x[t].scales + at / 32;
    scaled_sums[t] = x[t].scaled_sums + at / 32;
  }
  if (groups == 0) __builtin_unreachable();
  for (std::size_t g = 0; g < groups; ++g) {
    Tile<Vectors, Tokens> dots;
    if constexpr (Words) {
      word_dots(panel, g, words, dots);
    } else {
      group_dots<32>(panel, g, bytes, dots);
    }
    for (std::size_t t = 0; t < Tokens; ++t) {
      const Lanes dx = all(scales[t][g]);
      for (std::size_t i = 0; i < Vectors; ++i) {
        acc[i][t] =
            fma_lanes(to_float(dots.whole[i][t]), panel.group_d[g * kVectors + i] * dx, acc[i][t]);
        if constexpr (Minima)
          acc[i][t] = fma_lanes(panel.group_m[g * kVectors + i], all(scaled_sums[t][g]), acc[i][t]);
      }
    }
  }
}

enum class TileKind {
  floats,
  floats_minima,
  words,
  integers16,
  integers16_exact,
  integers16_minima,
  integers32,
  integers32_exact,
  integers32_minima
};

// Where a tile's sums come from and go to.
struct TileSums {
  float* kept = nullptr;        // [token][kPanelRows]: those of the blocks before, and after
  bool first = false;           // there are no blocks before
  float* const* out = nullptr;  // by token: rows that they go to instead, after the last block
  bool streamed = false;        // past the caches; the rows begin at cache lines
};

STRATA_INLINE void store_past(float* p, const Lanes& v) {
#if defined(STRATA_AVX512)
  _mm512_stream_ps(p, (__m512)v);
#else
  store(p, v);
#endif
}

// A block of the panel's vectors from v on for `Tokens` tokens.
template <TileKind Kind, std::size_t Vectors, std::size_t Tokens>
static void block_tile(const IntPanel& panel, std::size_t v, std::size_t groups,
                       const QuantizedRow* x, std::size_t at, const TileSums& sums) {
  Lanes acc[Vectors][Tokens];
  const auto kept = [&](std::size_t i, std::size_t t) {
    return sums.kept + t * kPanelRows + (v + i) * kLanes;
  };
  const auto before = [&](std::size_t i, std::size_t t) {
    return sums.first ? all(0.0f) : load(kept(i, t));
  };
  const PanelView view(panel, v);
  using enum TileKind;
  if constexpr (Kind == floats || Kind == floats_minima || Kind == words) {
    for (std::size_t i = 0; i < Vectors; ++i)
      for (std::size_t t = 0; t < Tokens; ++t) acc[i][t] = before(i, t);
    float_block<Kind == floats_minima, Kind == words, Vectors, Tokens>(view, groups, x, at, acc);
  } else {
    constexpr bool minima = Kind == integers32_minima || Kind == integers16_minima;
    constexpr bool exact = Kind == integers32_exact || Kind == integers16_exact;
    constexpr std::size_t width = Kind >= integers32 ? 32 : 16;
    integer_block<width, exact, minima, Vectors, Tokens>(view, x, at, before, acc);
  }
  for (std::size_t i = 0; i < Vectors; ++i)
    for (std::size_t t = 0; t < Tokens; ++t) {
      if (!sums.out) {
        store(kept(i, t), acc[i][t]);
      } else if (sums.streamed) {
        store_past(sums.out[t] + (v + i) * kLanes, acc[i][t]);
      } else {
        store(sums.out[t] + (v + i) * kLanes, acc[i][t]);
      }
    }
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

using BlockTile = void (*)(const IntPanel& panel, std::size_t v, std::size_t groups,
                           const QuantizedRow* x, std::size_t at, const TileSums& sums);
// By vectors (1 to kTileVectors) and tokens (1 to kIntTokens).
struct TileTable {
  BlockTile of[kTileVectors][kIntTokens];
};
template <TileKind Kind, std::size_t Vectors, std::size_t... Token>
static constexpr void fill_tiles(TileTable& table, std::index_sequence<Token...>) {
  ((table.of[Vectors - 1][Token] = block_tile<Kind, Vectors, Token + 1>), ...);
}
template <TileKind Kind>
static const TileTable& tiles() {
  static constexpr TileTable table = [] {
    TileTable t{};
    fill_tiles<Kind, 1>(t, std::make_index_sequence<kIntTokens>{});
    if constexpr (kTileVectors > 1)
      fill_tiles<Kind, kTileVectors>(t, std::make_index_sequence<kIntTokens>{});
    return t;
  }();
  return table;
}
static const TileTable& tiles_of(const IntFormat& format) {
  using enum TileKind;
  if (format.kind == BlockKind::group_words) return tiles<words>();
  if (format.kind == BlockKind::group_floats)
    return format.minima ? tiles<floats_minima>() : tiles<floats>();
  if (format.group == 32) {
    if (format.minima) return tiles<integers32_minima>();
    return exact_in_floats(format) ? tiles<integers32_exact>() : tiles<integers32>();
  }
  if (format.minima) return tiles<integers16_minima>();
  return exact_in_floats(format) ? tiles<integers16_exact>() : tiles<integers16>();
}

// Up to kPanelRows rows, unpacked block by block, with every token; `next` is the panel that is
// unpacked after it, if that is another.
static void int_panel(const IntFormat& format, const std::byte* matrix, std::size_t row_bytes,
                      std::size_t row_count, std::size_t width, const QuantizedRow* x,
                      float* const* y, std::size_t tokens, const std::byte* next, bool streamed) {
  const TypeTraits& type = traits(format.type);
  const Fill fill = fill_of(format);
  const TileTable& tiles = tiles_of(format);
  struct alignas(64) Scratch {
    IntPanel panel;
    std::vector<float, HugeAllocator<float>>
        sums;  // [tokens][kPanelRows]: close together, where y's rows are far apart
  };
  thread_local std::unique_ptr<Scratch> scratch = std::make_unique<Scratch>();
  if (scratch->sums.size() < tokens * kPanelRows) scratch->sums.resize(tokens * kPanelRows);
  const std::byte* rows[kPanelRows];
  const std::size_t vectors = (row_count + kLanes - 1) / kLanes;
  for (std::size_t r = 0; r < vectors * kLanes; ++r)
    rows[r] = matrix + std::min(r, row_count - 1) * row_bytes;
  // Whole vectors go to their rows from the registers.
  const bool direct = row_count % kLanes == 0;
  for (std::size_t t = 0; t < tokens && streamed; ++t)
    streamed = reinterpret_cast<std::uintptr_t>(y[t]) % 64 == 0;
  for (std::size_t at = 0; at < width; at += kBlock) {
    const std::size_t groups = std::min(kBlock, width - at) / 32;
    const std::size_t offset = at / type.block_values * type.block_bytes;
    const std::size_t bytes = groups * 32 / type.block_values * type.block_bytes;
    for (std::size_t v = 0; v < vectors; ++v)
      fill_panel(format, fill, rows + v * kLanes, offset, groups, bytes, v, scratch->panel);
    // As many tokens a tile as there is room for, in tiles of about one size.
    const std::size_t turns = (tokens + kIntTokens - 1) / kIntTokens;
    for (std::size_t turn = 0; turn < turns; ++turn) {
      const std::size_t t = tokens * turn / turns, count = tokens * (turn + 1) / turns - t;
      // The same block of the next panel, a little before each tile: all at once, the requests
      // would keep those of the next fill waiting. The second cache keeps it until then; from there
      // the next block of this panel is asked for.
      const std::size_t from = row_count * bytes * turn / turns;
      if (next)
        prefetch_run(next + row_count * offset + from,
                     row_count * bytes * (turn + 1) / turns - from);
      if (at + kBlock < width)
        for (std::size_t r = row_count * turn / turns; r < row_count * (turn + 1) / turns; ++r)
          prefetch_run(rows[r] + offset + bytes, bytes);
      const bool last = at + kBlock >= width;
      const TileSums sums{scratch->sums.data() + t * kPanelRows, at == 0,
                          last && direct ? y + t : nullptr, streamed};
      for (std::size_t v = 0; v < vectors; v += kTileVectors) {
        const std::size_t height = vectors - v >= kTileVectors ? kTileVectors : 1;
        for (std::size_t i = v; i < std::min(vectors, v + kTileVectors); i += height)
          tiles.of[height - 1][count - 1](scratch->panel, i, groups, x + t, at, sums);
      }
    }
  }
  for (std::size_t t = 0; t < tokens && !direct; ++t)
    std::memcpy(y[t], scratch->sums.data() + t * kPanelRows, row_count * sizeof(float));
}

static bool has_gemv([[maybe_unused]] const IntFormat& format) {
#if defined(STRATA_VBMI)
  return gemv_of(format) != nullptr;
#elif defined(STRATA_AVX2)
  return has_rows(format.type);
#else
  return false;
#endif
}

static void int_gemm(const IntFormat& format, const std::byte* matrix, std::size_t row_bytes,
                     std::size_t row_count, std::size_t width, const QuantizedRow* x,
                     float* const* y, std::size_t tokens, const std::byte* after, bool streamed) {
#if defined(STRATA_VBMI)
  if (const Gemv few = gemv_of(format); few && tokens <= kRowTokens)
    return few(matrix, row_bytes, row_count, width, x, y, tokens, after);
#elif defined(STRATA_AVX2)
  if (tokens <= kFewTokens && has_rows(format.type))
    return int_rows(format, matrix, row_bytes, row_count, width, x, y, tokens, after);
#endif
  thread_local std::vector<float*> out;
  out.resize(tokens);
  for (std::size_t row = 0; row < row_count; row += kPanelRows) {
    for (std::size_t t = 0; t < tokens; ++t) out[t] = y[t] + row;
    const std::byte* next =
        row + kPanelRows < row_count ? matrix + (row + kPanelRows) * row_bytes : after;
    int_panel(format, matrix + row * row_bytes, row_bytes, std::min(kPanelRows, row_count - row),
              width, x, out.data(), tokens, next, streamed);
  }
#if defined(STRATA_AVX512)
  if (streamed) _mm_sfence();
#endif
}
