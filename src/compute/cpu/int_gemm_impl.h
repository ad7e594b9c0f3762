// Integer products of a panel of 16 rows with quantised activations, compiled once for each
// instruction set like kernels_impl.h. Order of the sums: int_blocks.h.

using ByteLanes64 = std::int8_t __attribute__((vector_size(64)));
using UnsignedBytes64 = std::uint8_t __attribute__((vector_size(64)));

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
          std::is_same_v<Byte, std::uint8_t> ? panel.start[g * kIntVectors + i] : all_int(0);
  const IntLanes* at = panel.codes + g * (Width / 4) * kIntVectors;
  const Byte* in[Tokens];
  for (std::size_t t = 0; t < Tokens; ++t) in[t] = x[t] + g * Width;
#pragma GCC unroll 8
  for (std::size_t k = 0; k < Width / 4; ++k) {
    IntLanes codes[Vectors];
    for (std::size_t i = 0; i < Vectors; ++i) codes[i] = at[k * kIntVectors + i];
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
  const IntLanes* at = panel.codes + g * 16 * kIntVectors;
  const std::int16_t* in[Tokens];
  for (std::size_t t = 0; t < Tokens; ++t) in[t] = x[t] + g * 32;
#pragma GCC unroll 8
  for (std::size_t k = 0; k < 16; ++k) {
    IntLanes codes[Vectors];
    for (std::size_t i = 0; i < Vectors; ++i) codes[i] = at[k * kIntVectors + i];
    for (std::size_t t = 0; t < Tokens; ++t)
      for (std::size_t i = 0; i < Vectors; ++i)
        dots.whole[i][t] = dot2(dots.whole[i][t], codes[i], in[t] + 2 * k);
  }
}

// Lines of what comes later that a tile of few tokens asks for, some with each group: such tiles
// are soon over, and asked for at once they would keep what is loaded next waiting.
struct Ahead {
  const std::byte* at = nullptr;
  std::size_t each = 0, groups = 0;  // lines a group, groups that still ask

  Ahead() = default;
  Ahead(const std::byte* from, std::size_t lines, std::size_t of)
      : at(from), each((lines + of - 1) / of), groups(each == 0 ? 0 : (lines + each - 1) / each) {}
  STRATA_METHOD void ask() {
    if (groups == 0) return;
    --groups;
    for (std::size_t i = 0; i < each; ++i, at += 64) __builtin_prefetch(at);
  }
};
struct NothingAhead {
  NothingAhead() = default;
  STRATA_METHOD explicit NothingAhead(const Ahead&) {}
  STRATA_METHOD void ask() {}
};

// One block, formats with integer scales. Where the scaled sums of the whole block stay below 2^24
// (`Exact`) floats hold them as exactly as integers do, in fewer steps.
template <std::size_t Width, bool Exact, bool Minima, std::size_t Vectors, std::size_t Tokens,
          class Before, class Asked>
STRATA_INLINE void integer_block(const PanelView& panel, const QuantizedRow* x, std::size_t at,
                                 const Before& before, Asked& ahead, Lanes (*acc)[Tokens]) {
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
    if (Width == 32 || g % 2 == 0) ahead.ask();
    Tile<Vectors, Tokens> dots;
    group_dots<Width>(panel, g, in, dots);
    for (std::size_t i = 0; i < Vectors; ++i)
      for (std::size_t t = 0; t < Tokens; ++t) {
        const IntLanes& dot = dots.whole[i][t];
        if constexpr (Exact) {
          const Lanes& scale = panel.float_scales[g * kIntVectors + i];
          scaled[i][t] = fma_lanes(to_float(dot), scale, scaled[i][t]);
        } else {
          total.whole[i][t] += dot * panel.scales[g * kIntVectors + i];
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
          low = dot2(low, panel.mins[g / 2 * kIntVectors + i], sums + g);
        acc[i][t] = fma_lanes(to_float(low), -(panel.dmin[i] * dx), acc[i][t]);
      }
    }
  }
}

// The same for formats with a float scale for each 32 values.
template <bool Minima, bool Words, std::size_t Vectors, std::size_t Tokens, class Asked>
STRATA_INLINE void float_block(const PanelView& panel, std::size_t groups, const QuantizedRow* x,
                               std::size_t at, Asked& ahead, Lanes (*acc)[Tokens]) {
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
    ahead.ask();
    Tile<Vectors, Tokens> dots;
    if constexpr (Words) {
      word_dots(panel, g, words, dots);
    } else {
      group_dots<32>(panel, g, bytes, dots);
    }
    for (std::size_t t = 0; t < Tokens; ++t) {
      const Lanes dx = all(scales[t][g]);
      for (std::size_t i = 0; i < Vectors; ++i) {
        acc[i][t] = fma_lanes(to_float(dots.whole[i][t]), panel.group_d[g * kIntVectors + i] * dx,
                              acc[i][t]);
        if constexpr (Minima)
          acc[i][t] =
              fma_lanes(panel.group_m[g * kIntVectors + i], all(scaled_sums[t][g]), acc[i][t]);
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
  const float* before = nullptr;  // those of the blocks before, of the first token
  std::size_t stride = 0;         // from each token's to the next one's
  float* const* after = nullptr;  // by token: the row that they go to
  bool streamed = false;          // past the caches; rows begin at cache lines
};

STRATA_INLINE void store_past(float* p, const Lanes& v) {
#if defined(STRATA_AVX512)
  _mm512_stream_ps(p, (__m512)v);
#else
  store(p, v);
#endif
}

// `groups` times 32 inputs of the panels' vectors from v on for `Tokens` tokens.
template <TileKind Kind, std::size_t Vectors, std::size_t Tokens, class Asked>
static void block_tile(const IntPanel* panels, std::size_t v, std::size_t groups,
                       const QuantizedRow* x, std::size_t at, const TileSums& sums,
                       const Ahead& asked) {
  Asked ahead(asked);
  constexpr std::size_t block_groups = kBlock / 32;
  Lanes acc[Vectors][Tokens];
  const auto before = [&](std::size_t i, std::size_t t) {
    return load(sums.before + t * sums.stride + (v + i) * kLanes);
  };
  using enum TileKind;
  if constexpr (Kind == floats || Kind == floats_minima || Kind == words) {
    for (std::size_t i = 0; i < Vectors; ++i)
      for (std::size_t t = 0; t < Tokens; ++t) acc[i][t] = before(i, t);
    for (std::size_t g = 0; g < groups; g += block_groups)
      float_block<Kind == floats_minima, Kind == words, Vectors, Tokens>(
          PanelView(*panels++, v % kIntVectors), std::min(block_groups, groups - g), x, at + 32 * g,
          ahead, acc);
  } else {
    constexpr bool minima = Kind == integers32_minima || Kind == integers16_minima;
    constexpr bool exact = Kind == integers32_exact || Kind == integers16_exact;
    constexpr std::size_t width = Kind >= integers32 ? 32 : 16;
    integer_block<width, exact, minima, Vectors, Tokens>(PanelView(*panels++, v % kIntVectors), x,
                                                         at, before, ahead, acc);
    const auto so_far = [&](std::size_t i, std::size_t t) { return acc[i][t]; };
    for (std::size_t g = block_groups; g < groups; g += block_groups)
      integer_block<width, exact, minima, Vectors, Tokens>(PanelView(*panels++, v % kIntVectors), x,
                                                           at + 32 * g, so_far, ahead, acc);
  }
  float* to[Tokens];
  for (std::size_t t = 0; t < Tokens; ++t) to[t] = sums.after[t] + v * kLanes;
  if (sums.streamed) {
    for (std::size_t t = 0; t < Tokens; ++t)
      for (std::size_t i = 0; i < Vectors; ++i) store_past(to[t] + i * kLanes, acc[i][t]);
  } else {
    for (std::size_t t = 0; t < Tokens; ++t)
      for (std::size_t i = 0; i < Vectors; ++i) store(to[t] + i * kLanes, acc[i][t]);
  }
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

using BlockTile = void (*)(const IntPanel* panels, std::size_t v, std::size_t groups,
                           const QuantizedRow* x, std::size_t at, const TileSums& sums,
                           const Ahead& asked);
// Whether they ask ahead, by vectors (1 to kTileVectors) and tokens (1 to kIntTokens).
struct TileTable {
  BlockTile of[2][kTileVectors][kIntTokens];
};
template <TileKind Kind, std::size_t Vectors, std::size_t... Token>
static constexpr void fill_tiles(TileTable& table, std::index_sequence<Token...>) {
  ((table.of[0][Vectors - 1][Token] = block_tile<Kind, Vectors, Token + 1, NothingAhead>), ...);
  ((table.of[1][Vectors - 1][Token] = block_tile<Kind, Vectors, Token + 1, Ahead>), ...);
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

// What is unpacked at a time: as much as the first cache holds beside the inputs of a tile. Two
// blocks of fewer rows halve the comings and goings of the sums; many words a row are read from
// further away than the second cache, and meet more rows each time.
struct PanelShape {
  std::size_t rows = kIntRows, blocks = 2;
};
static PanelShape panel_shape(const IntFormat& format, std::size_t width) {
  if (format.kind == BlockKind::group_words && width > 2 * kBlock) return {2 * kIntRows, 1};
  return {};
}
constexpr std::size_t kMostPanels = 2, kMostRows = 2 * kIntRows;

// Up to `shape.rows` rows, unpacked some blocks at a time, with every token; `next` is the panel
// that is unpacked after it, if that is another.
static void int_panel(const IntFormat& format, const PanelShape& shape, const std::byte* matrix,
                      std::size_t row_bytes, std::size_t row_count, std::size_t width,
                      const QuantizedRow* x, float* const* y, std::size_t tokens,
                      const std::byte* next, bool streamed) {
  const TypeTraits& type = traits(format.type);
  const Fill fill = fill_of(format);
  const TileTable& tiles = tiles_of(format);
  struct alignas(64) Scratch {
    IntPanel panels[kMostPanels];
    std::vector<float, HugeAllocator<float>>
        sums;                  // [tokens][shape.rows]: close together, where y's rows are far apart
    std::vector<float*> kept;  // by token
    std::size_t rows = 0;
  };
  thread_local std::unique_ptr<Scratch> own = std::make_unique<Scratch>();
  Scratch& scratch = *own;
  if (scratch.kept.size() < tokens || scratch.rows != shape.rows) {
    scratch.rows = shape.rows;
    scratch.kept.resize(std::max(tokens, scratch.kept.size()));
    scratch.sums.resize(scratch.kept.size() * kMostRows);
    for (std::size_t t = 0; t < scratch.kept.size(); ++t)
      scratch.kept[t] = scratch.sums.data() + t * shape.rows;
  }
  alignas(64) static constexpr float zeros[kMostRows] = {};
  const std::byte* rows[kMostRows];
  const std::size_t vectors = (row_count + kLanes - 1) / kLanes;
  for (std::size_t r = 0; r < vectors * kLanes; ++r)
    rows[r] = matrix + std::min(r, row_count - 1) * row_bytes;
  // Whole vectors go to their rows from the registers.
  const bool direct = row_count % kLanes == 0;
  for (std::size_t t = 0; t < tokens && streamed; ++t)
    streamed = reinterpret_cast<std::uintptr_t>(y[t]) % 64 == 0;
  // As many tokens a tile as there is room for, in tiles of about one size; one less where floats
  // are scaled with each group, which leaves the registers no room to move.
  const std::size_t most =
      format.kind == BlockKind::group_floats ? std::min<std::size_t>(kIntTokens, 5) : kIntTokens;
  const std::size_t turns = (tokens + most - 1) / most;
  const std::size_t least = tokens / turns, larger_ones = tokens % turns;
  const bool asks = turns <= 3, many = turns > 16;  // asks: while they multiply
  constexpr std::size_t block_groups = kBlock / 32;
  const std::size_t deep = shape.blocks * kBlock;
  for (std::size_t at = 0; at < width; at += deep) {
    const std::size_t groups = std::min(deep, width - at) / 32;
    const std::size_t offset = at / type.block_values * type.block_bytes;
    const std::size_t bytes = groups * 32 / type.block_values * type.block_bytes;
    const bool last = at + deep >= width;
    for (std::size_t b = 0; b * block_groups < groups; ++b) {
      const std::size_t some = std::min(block_groups, groups - b * block_groups);
      const std::size_t from = offset + b * kBlock / type.block_values * type.block_bytes;
      const std::size_t some_bytes = some * 32 / type.block_values * type.block_bytes;
      for (std::size_t v = 0; v < vectors; ++v)
        fill_panel(format, fill, rows + v * kLanes, from, some, some_bytes, v % kIntVectors,
                   scratch.panels[v / kIntVectors * shape.blocks + b]);
    }
    // The same blocks of the next panel, a little with each tile: all at once, the requests would
    // keep those of the next fill waiting. Inputs of many tokens would push them out of the second
    // cache until then: so many ask for this panel's next blocks.
    const std::size_t lines = next ? (row_count * bytes / turns + 63) / 64 : 0;
    const std::byte* later = next ? next + row_count * offset : matrix;
    TileSums sums{at == 0 ? zeros : scratch.sums.data(), at == 0 ? 0 : shape.rows,
                  last && direct ? y : scratch.kept.data(), last && direct && streamed};
    const std::byte* soon = last ? next : matrix + offset + bytes;
    const std::size_t soon_rows = soon ? row_count : 0;
    std::size_t t = 0, row = 0;
    for (std::size_t turn = 0; turn < turns; ++turn, later += 64 * lines) {
      const std::size_t count = turn < larger_ones ? least + 1 : least;
      if (many) {
        for (; row < (turn + 1) * soon_rows / turns; ++row)
          prefetch_run(soon + row * row_bytes, bytes);
      } else if (!asks) {
        prefetch_run(later, 64 * lines);
      }
      for (std::size_t v = 0; v < vectors; v += kTileVectors) {
        const std::size_t height = std::min(kTileVectors, vectors - v);
        const bool asking = asks && v == 0;
        tiles.of[asking][height - 1][count - 1](scratch.panels + v / kIntVectors * shape.blocks, v,
                                                groups, x + t, at, sums,
                                                asking ? Ahead(later, lines, groups) : Ahead());
      }
      t += count;
      sums.before += count * sums.stride;
      sums.after += count;
    }
  }
  for (std::size_t t = 0; t < tokens && !direct; ++t)
    std::memcpy(y[t], scratch.kept[t], row_count * sizeof(float));
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
  // More tokens are quicker by panels, if those are quickly made.
  constexpr std::size_t always = 5;
  const std::size_t most = fills_quickly(format) ? always : kRowTokens;
  if (const Gemv few = gemv_of(format); few && tokens <= most)
    return few(matrix, row_bytes, row_count, width, x, y, tokens, after);
#elif defined(STRATA_AVX2)
  if (tokens <= kFewTokens && has_rows(format.type))
    return int_rows(format, matrix, row_bytes, row_count, width, x, y, tokens, after);
#endif
  thread_local std::vector<float*> out;
  out.resize(tokens);
  const PanelShape shape = panel_shape(format, width);
  for (std::size_t row = 0; row < row_count; row += shape.rows) {
    for (std::size_t t = 0; t < tokens; ++t) out[t] = y[t] + row;
    const std::size_t rest = row_count - row;
    const std::byte* next = rest > shape.rows ? matrix + (row + shape.rows) * row_bytes : after;
    int_panel(format, shape, matrix + row * row_bytes, row_bytes, std::min(shape.rows, rest), width,
              x, out.data(), tokens, next, streamed);
  }
#if defined(STRATA_AVX512)
  if (streamed) _mm_sfence();
#endif
}
