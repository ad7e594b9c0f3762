// Products of rows with several quantised activations, for small windows; and with one where rows
// are short. Sixteen rows are unpacked and turned once, so that rows lie in the lanes: a token then
// costs a product of bytes for each four inputs, and no sums across lanes. Integers are exact in
// any order, and the float sums are those of int_blocks.h. Included by int_gemv_impl.h, inside the
// kernels.

constexpr std::size_t kLead = 4096;  // how far ahead of the next rows' bytes they are asked for

// A block of sixteen rows. Column p holds inputs 4 p to 4 p + 3 of every row.
struct TurnedRows {
  Zmm columns[kBlock / 4];
  Zmm scales[16], mins[8];  // of integers: by group; two groups' 16-bit minima a lane
  Zmm start[16];            // of formats with signs: -128 times the sum of a group's codes
  Lanes d, dmin;
  Lanes group_d[8], group_m[8];  // of floats
};

// Which column dword c of code vector j is: groups side by side, in the order of the inputs.
struct ColumnPlaces {
  std::array<std::uint8_t, 64> of{};
  std::array<std::uint8_t, kBlock> input{};  // that byte i of the columns meets
  bool natural = true;                       // byte i meets input i
};
static constexpr ColumnPlaces column_places(const CodeOrder& order) {
  ColumnPlaces places;
  for (std::size_t k = 0; k < 64; ++k) {
    const std::uint8_t first = order[4 * k];
    std::size_t place = first / 32 * 8;
    for (std::size_t other = 0; other < 64; ++other)
      if (order[4 * other] / 32 == first / 32 && order[4 * other] < first) ++place;
    places.of[k] = static_cast<std::uint8_t>(place);
    for (std::size_t b = 0; b < 4; ++b) {
      places.input[4 * place + b] = order[4 * k + b];
      places.natural = places.natural && order[4 * k + b] == 4 * place + b;
    }
  }
  return places;
}
template <const CodeOrder& Order>
struct Columns {
  static constexpr ColumnPlaces places = column_places(Order);
  // Vectors of codes that hold the first groups.
  static constexpr std::size_t vectors(std::size_t groups) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < kBlock; ++i)
      if (Order[i] / 32 < groups) count = i / 64 + 1;
    return count;
  }
};

// Vector j of the codes of sixteen rows to its columns.
template <class F>
STRATA_INLINE void turn_codes(Zmm* v, std::size_t j, Zmm* columns) {
  turn_dwords(v);
  for (std::size_t c = 0; c < kLanes; ++c)
    columns[Columns<F::order>::places.of[kLanes * j + c]] = v[c];
}

// Where the fifth bits of four inputs stand: byte b of a dword gets bit 16 h + 4 i + b at place 4.
struct FifthBits {
  alignas(64) Permutation of[2][4];
};
static constexpr FifthBits kFifthBits = [] {
  FifthBits bits{};
  for (std::size_t h = 0; h < 2; ++h)
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t b = 0; b < 64; ++b)
        bits.of[h][i][b] =
            static_cast<std::uint8_t>((60 + 8 * (b & 4) + 16 * h + 4 * i + b % 4) % 64);
  return bits;
}();

// Formats of nibbles: these are turned as they lie, and become codes afterwards.
template <class F, std::size_t Groups>
STRATA_INLINE void turn_nibbles(const std::byte* const* rows, std::size_t offset,
                                const std::byte* next, TurnedRows& turned) {
  constexpr std::size_t bytes = F::bytes / 8 * Groups;
  Zmm nibbles[2][kLanes], heads[kLanes];
  for (std::size_t r = 0; r < kLanes; ++r) {
    Zmm codes[2], fields[2];
    F::Fields::template load<Groups>(reinterpret_cast<const q::Byte*>(rows[r] + offset), codes,
                                     fields);
    prefetch_run(next + r * bytes, bytes);
    for (std::size_t half = 0; half < Groups / 4; ++half) nibbles[half][r] = codes[half];
    heads[r] = _mm512_inserti64x4(fields[0], _mm512_castsi512_si256(fields[1]), 1);
  }
  // Dword 8 half + 2 f + k: field f of groups 2 k and 2 k + 1 of the half.
  turn_dwords(heads);
  for (std::size_t half = 0; half < Groups / 4; ++half) turn_dwords(nibbles[half]);
  for (std::size_t g = 0; g < Groups; ++g) {
    const std::size_t half = g / 4, second = g % 2;
    const auto field = [&](std::size_t f) { return heads[8 * half + 2 * f + g % 4 / 2]; };
    const auto floats = [&](std::size_t f) {
      const IntLanes pair = (IntLanes)field(f);
      return half_lanes(second == 1 ? pair >> 16 : pair);
    };
    turned.group_d[g] = floats(0);
    if constexpr (F::minima) turned.group_m[g] = floats(1);
    for (std::size_t i = 0; i < 4; ++i) {
      const Zmm packed = nibbles[half][4 * (g % 4) + i];
      Zmm code[2] = {low_nibbles(packed), high_nibbles(packed)};
      for (std::size_t n = 0; n < 2; ++n) {
        if constexpr (F::fifth) {
          const Zmm bits = _mm512_multishift_epi64_epi8(load_zmm(kFifthBits.of[second][i].data()),
                                                        field((F::minima ? 2 : 1) + n));
          code[n] = masked_or(bits, every_byte(16), code[n]);
        }
        if constexpr (F::levels)
          code[n] = _mm512_shuffle_epi8(load_zmm(kIq4Levels.data()), code[n]);
        turned.columns[8 * g + 4 * n + i] = code[n];
      }
    }
  }
}

// `Groups` of 32 values: all of a block, or what is left at the end of a row.
template <class F, std::size_t Groups>
STRATA_INLINE void turn_floats(const std::byte* const* rows, std::size_t offset,
                               const std::byte* next, TurnedRows& turned) {
  if constexpr (requires { typename F::Fields; }) {
    return turn_nibbles<F, Groups>(rows, offset, next, turned);
  } else {
    constexpr std::size_t vectors = Columns<F::order>::vectors(Groups);
    constexpr std::size_t bytes = F::bytes / 8 * Groups;
    const auto block = [&](std::size_t r) {
      return reinterpret_cast<const q::Byte*>(rows[r] + offset);
    };
    __m128i halves[kLanes];
    if constexpr (requires { F::codes(nullptr, 0); }) {
      for (std::size_t r = 0; r < kLanes; ++r) {
        prefetch_run(next + r * bytes, bytes);
        halves[r] = F::template halves<Groups>(block(r));
      }
      for (std::size_t j = 0; j < vectors; ++j) {
        Zmm v[kLanes];
        for (std::size_t r = 0; r < kLanes; ++r) v[r] = F::codes(block(r), j);
        turn_codes<F>(v, j, turned.columns);
      }
    } else {
      Zmm codes[vectors][kLanes];
      for (std::size_t r = 0; r < kLanes; ++r) {
        FloatRow row;
        F::template load<8>(block(r), row);
        prefetch_run(next + r * bytes, bytes);
        for (std::size_t j = 0; j < vectors; ++j) codes[j][r] = row.codes[j];
        halves[r] = row.d;
      }
      for (std::size_t j = 0; j < vectors; ++j) turn_codes<F>(codes[j], j, turned.columns);
    }
    turn_halves(halves, turned.group_d);
  }
}

template <class F>
STRATA_INLINE void turn_integers(const std::byte* const* rows, std::size_t offset,
                                 const std::byte* next, TurnedRows& turned) {
  using Stored = typename F::Stored;
  Zmm codes[4][kLanes], scales[kLanes];
  alignas(64) std::uint16_t halves[2][kLanes];
  const auto keep = [&](std::size_t r, const Stored& block, const IntegerRow& row) {
    prefetch_run(next + r * sizeof(Stored), sizeof(Stored));
    F::half_of(block, halves[0][r]);
    if constexpr (F::minima) std::memcpy(&halves[1][r], block.dmin, 2);
    for (std::size_t j = 0; j < 4; ++j) {
      codes[j][r] = row.codes[j];
      if constexpr (F::signs)
        codes[j][r] =
            _mm512_mask_sub_epi8(codes[j][r], row.minus[j], _mm512_setzero_si512(), codes[j][r]);
    }
    scales[r] = _mm512_castsi256_si512(row.scales);
    if constexpr (F::minima) scales[r] = _mm512_inserti64x4(scales[r], row.mins, 1);
  };
  for (std::size_t r = 0; r < kLanes; r += 2) {
    const auto& first = *reinterpret_cast<const Stored*>(rows[r] + offset);
    const auto& second = *reinterpret_cast<const Stored*>(rows[r + 1] + offset);
    IntegerRow two[2];
    if constexpr (requires { F::load_two; }) {
      F::load_two(first, second, two);
    } else {
      F::load(first, two[0]);
      F::load(second, two[1]);
    }
    keep(r, first, two[0]);
    keep(r + 1, second, two[1]);
  }
  for (std::size_t j = 0; j < 4; ++j) turn_codes<F>(codes[j], j, turned.columns);
  turn_dwords(scales);
  for (std::size_t i = 0; i < 128 / F::group; ++i) {
    turned.scales[2 * i] = _mm512_srai_epi32(_mm512_slli_epi32(scales[i], 16), 16);
    turned.scales[2 * i + 1] = _mm512_srai_epi32(scales[i], 16);
    if constexpr (F::minima) turned.mins[i] = scales[8 + i];
  }
  if constexpr (F::signs) {
    constexpr std::size_t step = F::group / 4;
    for (std::size_t g = 0; g < kBlock / F::group; ++g) {
      Zmm sum = _mm512_setzero_si512();
      for (std::size_t i = 0; i < step; ++i)
        sum = _mm512_dpbusd_epi32(sum, every_byte(-128), turned.columns[g * step + i]);
      turned.start[g] = _mm512_sub_epi32(_mm512_setzero_si512(), sum);
    }
  }
  const auto floats = [&](std::size_t i) {
    return (Lanes)_mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(halves[i])));
  };
  turned.d = floats(0);
  if constexpr (F::factor != 1.0f) turned.d = turned.d * all(F::factor);
  if constexpr (F::minima) turned.dmin = floats(1);
}

// A token's inputs as the columns meet them: bytes, bytes plus 128 (formats with signs), or the
// upper and lower bytes of words.
struct TurnedInput {
  const std::byte *values = nullptr, *lower = nullptr;
  const std::int32_t* start = nullptr;  // of words, by group: what the upper bytes' dots begin with
  const float* scales = nullptr;
  const std::int16_t* sums = nullptr;  // one a group
  const float* scaled_sums = nullptr;
};

STRATA_INLINE Zmm every_dword(const void* p) {
  std::int32_t dword;
  std::memcpy(&dword, p, sizeof dword);
  return _mm512_set1_epi32(dword);
}

// The dots of group `group` of the inputs with its eight columns of each of `Strips` times sixteen
// rows: what is loaded of a token meets all of them.
template <int Zero, std::size_t Strips, std::size_t Tokens>
STRATA_INLINE void dot_bytes(const Zmm* const* columns, const TurnedInput* x, std::size_t group,
                             Zmm (*dots)[Tokens]) {
  for (std::size_t t = 0; t < Tokens; ++t)
    for (std::size_t s = 0; s < Strips; ++s)
      dots[s][t] = _mm512_set1_epi32(-Zero * x[t].sums[group]);
  for (std::size_t i = 0; i < 8; ++i) {
    Zmm column[Strips];
    for (std::size_t s = 0; s < Strips; ++s) column[s] = columns[s][i];
    for (std::size_t t = 0; t < Tokens; ++t) {
      const Zmm input = every_dword(x[t].values + 4 * (8 * group + i));
      for (std::size_t s = 0; s < Strips; ++s)
        dots[s][t] = _mm512_dpbusd_epi32(dots[s][t], column[s], input);
    }
  }
}
// Words as GemvWords multiplies them: upper bytes with codes from zero on, lower bytes with signed
// codes.
template <std::size_t Strips, std::size_t Tokens>
STRATA_INLINE void dot_words(const Zmm* const* columns, const TurnedInput* x, std::size_t group,
                             Zmm (*dots)[Tokens]) {
  Zmm lower[Strips][Tokens];
  for (std::size_t t = 0; t < Tokens; ++t)
    for (std::size_t s = 0; s < Strips; ++s) {
      dots[s][t] = _mm512_set1_epi32(x[t].start[group]);
      lower[s][t] = _mm512_setzero_si512();
    }
  for (std::size_t i = 0; i < 8; ++i) {
    Zmm column[Strips], from_zero[Strips];
    for (std::size_t s = 0; s < Strips; ++s) {
      column[s] = columns[s][i];
      from_zero[s] = other_sign(column[s]);
    }
    for (std::size_t t = 0; t < Tokens; ++t) {
      const std::size_t at = 4 * (8 * group + i);
      const Zmm high = every_dword(x[t].values + at), low = every_dword(x[t].lower + at);
      for (std::size_t s = 0; s < Strips; ++s) {
        dots[s][t] = _mm512_dpbusd_epi32(dots[s][t], from_zero[s], high);
        lower[s][t] = _mm512_dpbusd_epi32(lower[s][t], low, column[s]);
      }
    }
  }
  for (std::size_t s = 0; s < Strips; ++s)
    for (std::size_t t = 0; t < Tokens; ++t)
      dots[s][t] = _mm512_add_epi32(_mm512_slli_epi32(dots[s][t], 8), lower[s][t]);
}
template <bool Words, int Zero, std::size_t Strips, std::size_t Tokens>
STRATA_INLINE void dot_group(const Zmm* const* columns, const TurnedInput* x, std::size_t group,
                             Zmm (*dots)[Tokens]) {
  if constexpr (Words) {
    dot_words<Strips, Tokens>(columns, x, group, dots);
  } else {
    dot_bytes<Zero, Strips, Tokens>(columns, x, group, dots);
  }
}

// Block `block` of `Tokens` tokens.
template <bool Words, bool Minima, int Zero, std::size_t Groups, std::size_t Tokens>
static void multiply_floats(const TurnedRows* rows, std::size_t groups, const TurnedInput* x,
                            std::size_t block, Lanes (*acc)[kTurnedTokens]) {
  for (std::size_t h = 0; h < groups; ++h) {
    const std::size_t group = 8 * block + h;
    const Zmm* columns[Groups];
    for (std::size_t g = 0; g < Groups; ++g) columns[g] = rows[g].columns + 8 * h;
    Zmm dots[Groups][Tokens];
    dot_group<Words, Zero, Groups, Tokens>(columns, x, group, dots);
    for (std::size_t t = 0; t < Tokens; ++t) {
      const Lanes dx = all(x[t].scales[group]);
      for (std::size_t g = 0; g < Groups; ++g) {
        Lanes& sum = acc[g][t];
        sum = fma_lanes(to_float((IntLanes)dots[g][t]), rows[g].group_d[h] * dx, sum);
        if constexpr (Minima)
          sum = fma_lanes(rows[g].group_m[h], all(x[t].scaled_sums[group]), sum);
      }
    }
  }
}

template <bool Signs, bool Minima, int Zero, std::size_t Group, std::size_t Groups,
          std::size_t Tokens>
static void multiply_integers(const TurnedRows* rows, const TurnedInput* x, std::size_t block,
                              Lanes (*acc)[kTurnedTokens]) {
  constexpr std::size_t columns = Group / 4, scales = kBlock / Group;
  Zmm sum[Groups][Tokens], low[Groups][Tokens];
  for (std::size_t g = 0; g < Groups; ++g)
    for (std::size_t t = 0; t < Tokens; ++t) sum[g][t] = low[g][t] = _mm512_setzero_si512();
  for (std::size_t s = 0; s < scales; ++s) {
    Zmm dots[Groups][Tokens];
    for (std::size_t t = 0; t < Tokens; ++t) {
      for (std::size_t g = 0; g < Groups; ++g) {
        if constexpr (Signs) {
          dots[g][t] = rows[g].start[s];
        } else {
          dots[g][t] = _mm512_set1_epi32(-Zero * x[t].sums[scales * block + s]);
        }
      }
    }
    for (std::size_t i = 0; i < columns; ++i) {
      Zmm column[Groups];
      for (std::size_t g = 0; g < Groups; ++g) column[g] = rows[g].columns[s * columns + i];
      for (std::size_t t = 0; t < Tokens; ++t) {
        const Zmm input = every_dword(x[t].values + kBlock * block + 4 * (s * columns + i));
        for (std::size_t g = 0; g < Groups; ++g)
          dots[g][t] = Signs ? _mm512_dpbusd_epi32(dots[g][t], input, column[g])
                             : _mm512_dpbusd_epi32(dots[g][t], column[g], input);
      }
    }
    for (std::size_t g = 0; g < Groups; ++g)
      for (std::size_t t = 0; t < Tokens; ++t)
        sum[g][t] = _mm512_add_epi32(sum[g][t], _mm512_mullo_epi32(dots[g][t], rows[g].scales[s]));
  }
  if constexpr (Minima) {
    for (std::size_t p = 0; p < scales / 2; ++p)
      for (std::size_t t = 0; t < Tokens; ++t)
        for (std::size_t g = 0; g < Groups; ++g)
          low[g][t] = _mm512_dpwssd_epi32(low[g][t], rows[g].mins[p],
                                          every_dword(x[t].sums + scales * block + 2 * p));
  }
  for (std::size_t t = 0; t < Tokens; ++t) {
    const Lanes dx = all(x[t].scales[block]);
    for (std::size_t g = 0; g < Groups; ++g) {
      Lanes& to = acc[g][t];
      to = fma_lanes(to_float((IntLanes)sum[g][t]), rows[g].d * dx, to);
      if constexpr (Minima) to = fma_lanes(to_float((IntLanes)low[g][t]), -(rows[g].dmin * dx), to);
    }
  }
}

// Calls run(tokens together as a constant, first) for all of them.
template <class Run>
STRATA_INLINE void for_tokens(std::size_t tokens, const Run& run) {
  std::size_t t = 0;
  for (; t + 8 <= tokens; t += 8) run(std::integral_constant<std::size_t, 8>(), t);
  for (; t + 4 <= tokens; t += 4) run(std::integral_constant<std::size_t, 4>(), t);
  if (tokens - t >= 2) {
    run(std::integral_constant<std::size_t, 2>(), t);
    t += 2;
  }
  if (t < tokens) run(std::integral_constant<std::size_t, 1>(), t);
}

template <class F>
constexpr bool kTurnsIntegers = requires { typename F::Stored; };
template <class F>
constexpr bool words_of() {
  if constexpr (kTurnsIntegers<F>) {
    return false;
  } else {
    return F::words;
  }
}

// A block of some groups of sixteen rows: unpacked, and multiplied with all tokens.
template <class F, std::size_t Groups>
STRATA_INLINE void turned_block(const std::byte* const* rows, std::size_t offset,
                                const std::byte* next, std::size_t scales, std::size_t block,
                                const TurnedInput* x, std::size_t tokens,
                                Lanes (*acc)[kTurnedTokens]) {
  TurnedRows turned[Groups];
  for (std::size_t g = 0; g < Groups; ++g) {
    const std::byte* const* some = rows + g * kLanes;
    const std::byte* later = next + g * kLanes * static_cast<std::size_t>(rows[1] - rows[0]);
    if constexpr (kTurnsIntegers<F>) {
      turn_integers<F>(some, offset, later, turned[g]);
    } else if (scales == 8) {
      turn_floats<F, 8>(some, offset, later, turned[g]);
    } else if (scales == 4) {
      if constexpr (F::least_groups <= 4) turn_floats<F, 4>(some, offset, later, turned[g]);
    } else {
      if constexpr (F::least_groups <= 2) turn_floats<F, 2>(some, offset, later, turned[g]);
    }
  }
  const auto at = [&](std::size_t t) {
    return reinterpret_cast<Lanes(*)[kTurnedTokens]>(&acc[0][t]);
  };
  for_tokens(tokens, [&](auto together, std::size_t t) {
    if constexpr (kTurnsIntegers<F>) {
      multiply_integers<F::signs, F::minima, F::zero, F::group, Groups, together.value>(
          turned, x + t, block, at(t));
    } else {
      multiply_floats<F::words, F::minima, F::zero, Groups, together.value>(turned, scales, x + t,
                                                                            block, at(t));
    }
  });
}

// Whether rows of this width can be turned: they end with a block, or with a part of one that is
// loaded without what lies behind it.
template <class F>
constexpr bool can_turn(std::size_t width) {
  const std::size_t groups = width % kBlock / 32;
  if (width % 32 != 0) return false;
  if constexpr (kTurnsIntegers<F>) {
    return groups == 0;
  } else {
    return groups == 0 || ((groups == 2 || groups == 4) && groups >= F::least_groups);
  }
}

// Tokens from which on that is faster, in the caches.
template <class F>
constexpr std::size_t least_turned() {
  return kTurnsIntegers<F> || words_of<F>() ? kFewTokens + 1 : 2;
}

// Inputs of formats whose columns do not meet them in their order.
template <class F>
STRATA_INLINE const std::byte* reordered(const std::byte* values, std::size_t blocks,
                                         std::byte* into) {
  for (std::size_t i = 0; i < blocks * kBlock; ++i)
    into[i] = values[i / kBlock * kBlock + Columns<F::order>::places.input[i % kBlock]];
  return into;
}

// Words' upper bytes, their lower bytes, and 128 times the sums of the upper ones, negative.
STRATA_INLINE void split_words(const std::int16_t* words, std::size_t blocks, std::byte* upper,
                               std::byte* lower, std::int32_t* start) {
  for (std::size_t block = 0; block < blocks; ++block) {
    FloatInput in;
    split_words(words + block * kBlock, in);
    for (std::size_t j = 0; j < 4; ++j) {
      _mm512_storeu_si512(upper + block * kBlock + 64 * j, in.values[j]);
      _mm512_storeu_si512(lower + block * kBlock + 64 * j, in.values[4 + j]);
    }
    for (std::size_t h = 0; h < 8; ++h) start[8 * block + h] = -(in.shift[h] >> 8);
  }
}

// Of at most kTurnedTokens tokens. They hold until the thread's next call.
template <class F>
STRATA_INLINE void turned_inputs(const QuantizedRow* x, std::size_t tokens, std::size_t blocks,
                                 TurnedInput* inputs) {
  constexpr bool words = words_of<F>();
  [[maybe_unused]] thread_local std::vector<std::byte> copies;
  [[maybe_unused]] thread_local std::vector<std::int32_t> starts;
  if constexpr (words || !Columns<F::order>::places.natural)
    copies.resize(tokens * blocks * kBlock * (words ? 2 : 1));
  if constexpr (words) starts.resize(tokens * blocks * 8);
  for (std::size_t t = 0; t < tokens; ++t) {
    TurnedInput& in = inputs[t];
    in.scales = x[t].scales;
    in.scaled_sums = x[t].scaled_sums;
    in.sums = x[t].sums32;
    const void* values = x[t].values;
    if constexpr (kTurnsIntegers<F>) {
      if constexpr (F::group == 16) in.sums = x[t].sums16;
      if constexpr (F::signs) values = x[t].biased;
    } else if constexpr (words) {
      std::byte* const upper = copies.data() + 2 * t * blocks * kBlock;
      std::byte* const lower = upper + blocks * kBlock;
      std::int32_t* const start = starts.data() + t * blocks * 8;
      split_words(x[t].words, blocks, upper, lower, start);
      in.lower = lower;
      in.start = start;
      values = upper;
    }
    in.values = static_cast<const std::byte*>(values);
    if constexpr (!Columns<F::order>::places.natural)
      in.values = reordered<F>(in.values, blocks, copies.data() + t * blocks * kBlock);
  }
}

template <class F>
static void gemv_turned(const std::byte* matrix, std::size_t row_bytes, std::size_t row_count,
                        std::size_t width, const QuantizedRow* x, float* const* y,
                        std::size_t tokens, const std::byte* after) {
  const std::size_t blocks = (width + kBlock - 1) / kBlock;
  TurnedInput inputs[kTurnedTokens];
  turned_inputs<F>(x, tokens, blocks, inputs);
  const auto run = [&](auto groups, std::size_t row) {
    constexpr std::size_t some = groups.value * kLanes;
    const std::size_t count = std::min(some, row_count - row);
    const std::byte* rows[some];
    for (std::size_t r = 0; r < some; ++r)
      rows[r] = matrix + (row + std::min(r, count - 1)) * row_bytes;
    const std::byte* next = (row + some < row_count ? rows[0] + some * row_bytes : after) + kLead;
    Lanes acc[groups.value][kTurnedTokens];
    for (auto& of : acc) std::fill_n(of, tokens, all(0.0f));
    std::size_t offset = 0;
    for (std::size_t block = 0; block < blocks; ++block) {
      const std::size_t scales = std::min<std::size_t>(8, (width - block * kBlock) / 32);
      turned_block<F, groups.value>(rows, offset, next + kLanes * offset, scales, block, inputs,
                                    tokens, acc);
      if constexpr (kTurnsIntegers<F>) {
        offset += sizeof(typename F::Stored);
      } else {
        offset += F::bytes;
      }
    }
    for (std::size_t t = 0; t < tokens; ++t)
      for (std::size_t g = 0; g < groups.value; ++g)
        store_run(y[t] + row + g * kLanes, acc[g][t], std::min(kLanes, count - g * kLanes));
  };
  std::size_t row = 0;
  // Words of many tokens have enough to do with one group.
  if (!words_of<F>() || tokens <= kFewTokens)
    for (; row + kLanes < row_count; row += 2 * kLanes)
      run(std::integral_constant<std::size_t, 2>(), row);
  for (; row < row_count; row += kLanes) run(std::integral_constant<std::size_t, 1>(), row);
}

// --- rows turned beforehand ---------------------------------------------------------------------

// Sixteen rows of a group of Q8_0; their groups follow each other, then come the next rows.
struct StoredGroup {
  Zmm columns[8];  // codes from zero on, or signed ones for words
  Lanes d;
};

static std::size_t turned_bytes(const IntFormat& format, std::size_t row_count, std::size_t width) {
  if (format.type != TensorType::Q8_0 || width % 32 != 0) return 0;
  return (row_count + kLanes - 1) / kLanes * (width / 32) * sizeof(StoredGroup);
}

static void turn_rows(const IntFormat& format, const std::byte* matrix, std::size_t row_bytes,
                      std::size_t row_count, std::size_t width, std::byte* into) {
  constexpr std::size_t bytes = 34;
  for (std::size_t row = 0; row < row_count; row += kLanes)
    for (std::size_t group = 0; group < width / 32; ++group) {
      StoredGroup turned;
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const std::size_t of = std::min(row + lane, row_count - 1);
        const auto* block =
            reinterpret_cast<const q::Byte*>(matrix + of * row_bytes) + group * bytes;
        turned.d[lane] = _cvtsh_ss(q::load_u16(block));
        for (std::size_t i = 0; i < 8; ++i) {
          std::uint32_t four = q::load_u32(block + 2 + 4 * i);
          if (format.kind != BlockKind::group_words) four ^= 0x80808080u;
          std::memcpy(reinterpret_cast<std::byte*>(&turned.columns[i]) + 4 * lane, &four, 4);
        }
      }
      std::memcpy(into, &turned, sizeof turned);
      into += sizeof turned;
    }
}

// `Strips` times sixteen rows from `row` on.
template <bool Words, std::size_t Strips, std::size_t Tokens>
static void multiply_stored(const StoredGroup* first, std::size_t groups, const TurnedInput* x,
                            float* const* y, std::size_t row, std::size_t row_count) {
  Lanes acc[Strips][Tokens];
  for (auto& of : acc)
    for (Lanes& sum : of) sum = all(0.0f);
  for (std::size_t group = 0; group < groups; ++group) {
    const StoredGroup* at[Strips];
    const Zmm* columns[Strips];
    for (std::size_t s = 0; s < Strips; ++s) {
      at[s] = first + s * groups + group;
      columns[s] = at[s]->columns;
    }
    Zmm dots[Strips][Tokens];
    dot_group<Words, 128, Strips, Tokens>(columns, x, group, dots);
    for (std::size_t t = 0; t < Tokens; ++t) {
      const Lanes dx = all(x[t].scales[group]);
      for (std::size_t s = 0; s < Strips; ++s)
        acc[s][t] = fma_lanes(to_float((IntLanes)dots[s][t]), at[s]->d * dx, acc[s][t]);
    }
  }
  for (std::size_t s = 0; s < Strips; ++s)
    for (std::size_t t = 0; t < Tokens; ++t)
      store_run(y[t] + row + s * kLanes, acc[s][t], std::min(kLanes, row_count - s * kLanes));
}

template <bool Words>
static void turned_gemm_of(const std::byte* turned, std::size_t row_count, std::size_t width,
                           const TurnedInput* inputs, float* const* y, std::size_t tokens) {
  const auto* first = reinterpret_cast<const StoredGroup*>(turned);
  const std::size_t groups = width / 32;
  for_tokens(tokens, [&](auto together, std::size_t t) {
    constexpr std::size_t count = together.value;
    constexpr std::size_t most = count >= 8 ? 1 : count == 4 || (Words && count == 2) ? 2 : 4;
    std::size_t row = 0;
    const auto run = [&](auto strips) {
      for (; row + (strips.value - 1) * kLanes < row_count; row += strips.value * kLanes)
        multiply_stored<Words, strips.value, count>(first + row / kLanes * groups, groups,
                                                    inputs + t, y + t, row, row_count - row);
    };
    run(std::integral_constant<std::size_t, most>());
    if constexpr (most > 2) run(std::integral_constant<std::size_t, 2>());
    if constexpr (most > 1) run(std::integral_constant<std::size_t, 1>());
  });
}

static void turned_gemm(const IntFormat& format, const std::byte* turned, std::size_t row_count,
                        std::size_t width, const QuantizedRow* x, float* const* y,
                        std::size_t tokens) {
  const std::size_t blocks = (width + kBlock - 1) / kBlock;
  TurnedInput inputs[kTurnedTokens];
  if (format.kind == BlockKind::group_words) {
    turned_inputs<GemvWords>(x, tokens, blocks, inputs);
    turned_gemm_of<true>(turned, row_count, width, inputs, y, tokens);
  } else {
    turned_inputs<GemvQ8_0>(x, tokens, blocks, inputs);
    turned_gemm_of<false>(turned, row_count, width, inputs, y, tokens);
  }
}
