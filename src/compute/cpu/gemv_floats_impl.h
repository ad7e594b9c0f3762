// Decoding: rows of formats with a float scale for each 32 or 64 values. Included by
// int_gemv_impl.h, inside the kernels.

// A block of 256 of one row: codes and the halves of its groups.
struct FloatRow {
  Zmm codes[4];
  __m128i d, m;
};

// Copies bytes of a block into a vector: byte i from place[i] of `Bytes`, at most 192 bytes on.
template <std::size_t Bytes>
STRATA_INLINE Zmm pick_bytes(const void* source, const Permutation& index, std::size_t from) {
  const auto* bytes = static_cast<const std::byte*>(source) + from;
  return _mm512_permutex2var_epi8(load_zmm(bytes), load_zmm(index.data()),
                                  load_zmm(bytes + Bytes - 64));
}
// Index for pick_bytes: byte i of the result is byte place(i) behind `from`, places below 64 from
// the first vector, the others from the second, which starts at Bytes - 64.
template <std::size_t Bytes, class Place>
static constexpr Permutation pick_index(const Place& place) {
  Permutation index{};
  for (std::size_t i = 0; i < 64; ++i) {
    const std::size_t p = place(i);
    index[i] = static_cast<std::uint8_t>(p < 64 ? p : p - (Bytes - 64) + 64);
  }
  return index;
}

// The next `Bytes` bytes, at most 64, and zeros. Vectors of a block lie side by side: such as
// overlap cost up to half of the speed, because most of them span two cache lines.
template <std::size_t Bytes>
STRATA_INLINE Zmm load_part(const q::Byte* p) {
  if constexpr (Bytes >= 64) {
    return load_zmm(p);
  } else if constexpr (Bytes == 32) {
    return _mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  } else if constexpr (Bytes == 16) {
    return _mm512_zextsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  } else if constexpr (Bytes == 8) {
    return _mm512_zextsi128_si512(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  } else {
    return _mm512_maskz_loadu_epi8((std::uint64_t{1} << Bytes) - 1, p);
  }
}
// Byte i comes from place(i) of two vectors side by side.
template <class Place>
static constexpr Permutation place_index(const Place& place) {
  Permutation index{};
  for (std::size_t i = 0; i < 64; ++i) index[i] = static_cast<std::uint8_t>(place(i));
  return index;
}
STRATA_INLINE Zmm pick_two(const Zmm& a, const Permutation& index, const Zmm& b) {
  return _mm512_permutex2var_epi8(a, load_zmm(index.data()), b);
}

// Nibbles of groups of Stride bytes, codes from byte Codes on: 64 bytes for four groups. The second
// four begin in the second vector.
template <std::size_t Stride, std::size_t Codes>
struct NibbleGroups {
  static constexpr std::size_t span = 4 * Stride;
  alignas(64) static constexpr Permutation codes = pick_index<span>([](std::size_t i) {
    return Stride * (i / 16) + Codes + i % 16;
  });
  // The eight bytes in front of the codes of eight groups would need three vectors: four groups at
  // a time, first bytes first.
  alignas(64) static constexpr Permutation head = pick_index<span>([](std::size_t i) {
    // Fields of two bytes: field f of group g stands at 8 f + 2 g.
    const std::size_t field = i / 8 % 4, group = i % 8 / 2;
    return Stride * group + 2 * field + i % 2;
  });
  static constexpr std::size_t start(std::size_t half) { return half * (4 * Stride - 64); }
  static constexpr Permutation codes_of(std::size_t half) {
    return place_index(
        [=](std::size_t i) { return start(half) + Stride * (i / 16) + Codes + i % 16; });
  }
  // Fields of two bytes in front of the codes: field f of group g stands at 8 f + 2 g.
  static constexpr Permutation head_of(std::size_t half) {
    return place_index([=](std::size_t i) {
      return start(half) + Stride * (i % 8 / 2) + std::min(2 * (i / 8 % 4), Codes - 2) + i % 2;
    });
  }
  alignas(64) static constexpr Permutation codes_at[2] = {codes_of(0), codes_of(1)};
  alignas(64) static constexpr Permutation heads_at[2] = {head_of(0), head_of(1)};
  // The first four groups, or all eight.
  template <std::size_t Groups>
  STRATA_INLINE void load(const q::Byte* block, Zmm* bytes, Zmm* heads) {
    constexpr std::size_t size = Groups * Stride;
    heads[1] = _mm512_setzero_si512();
    const Zmm v[2] = {load_zmm(block), load_part<size - 64>(block + 64)};
    bytes[0] = pick_two(v[0], codes_at[0], v[1]);
    heads[0] = pick_two(v[0], heads_at[0], v[1]);
    if constexpr (Groups == 8) {
      const Zmm last = load_part<size - 128>(block + 128);
      bytes[1] = pick_two(v[1], codes_at[1], last);
      heads[1] = pick_two(v[1], heads_at[1], last);
    }
  }
  // Field f of all eight groups.
  template <int Field>
  STRATA_INLINE __m128i field(const Zmm* heads) {
    const __m128i a = _mm512_extracti32x4_epi32(heads[0], Field / 2);
    const __m128i b = _mm512_extracti32x4_epi32(heads[1], Field / 2);
    return Field % 2 == 0 ? _mm_unpacklo_epi64(a, b) : _mm_unpackhi_epi64(a, b);
  }
};

template <std::size_t Bytes, const CodeOrder& Order, int Zero, bool Minima>
struct FloatFormat {
  static constexpr std::size_t bytes = Bytes;  // of 256 values
  static constexpr const CodeOrder& order = Order;
  static constexpr int zero = Zero;
  static constexpr bool minima = Minima, words = false;
  static constexpr std::size_t least_groups = 4;  // as few can be loaded by themselves
  using Row = FloatRow;
};

// Q4_0, Q4_1, Q5_0, Q5_1: nibbles, with a fifth bit or without.
template <std::size_t Stride, bool Minima, bool Fifth, int Zero>
struct GemvNibbles : FloatFormat<8 * Stride, kSplitOrder, Zero, Minima> {
  static constexpr bool fifth = Fifth, levels = false;
  using Fields = NibbleGroups<Stride, Stride - 16>;
  template <std::size_t Groups>
  STRATA_INLINE void load(const q::Byte* block, FloatRow& row) {
    Zmm bytes[2], heads[2];
    Fields::template load<Groups>(block, bytes, heads);
    row.d = Fields::template field<0>(heads);
    if constexpr (Minima) row.m = Fields::template field<1>(heads);
    for (std::size_t half = 0; half < Groups / 4; ++half) {
      row.codes[2 * half] = low_nibbles(bytes[half]);
      row.codes[2 * half + 1] = high_nibbles(bytes[half]);
    }
    if constexpr (Fifth) {
      // Two fields of 16 bits: first halves, second halves.
      constexpr int at = Minima ? 2 : 1;
      alignas(16) std::uint64_t first[2], second[2];
      _mm_store_si128(reinterpret_cast<__m128i*>(first), Fields::template field<at>(heads));
      _mm_store_si128(reinterpret_cast<__m128i*>(second), Fields::template field<at + 1>(heads));
      for (std::size_t half = 0; half < Groups / 4; ++half) {
        Zmm *low = &row.codes[2 * half], *high = low + 1;
        *low = _mm512_mask_add_epi8(*low, first[half], *low, every_byte(16));
        *high = _mm512_mask_add_epi8(*high, second[half], *high, every_byte(16));
      }
    }
  }
};
alignas(64) static constexpr Permutation kIq4Levels = [] {
  Permutation p{};
  for (std::size_t i = 0; i < 64; ++i) p[i] = kIq4Codes[i % 16];
  return p;
}();
struct GemvIQ4_NL : FloatFormat<8 * 18, kSplitOrder, 128, false> {
  static constexpr bool fifth = false, levels = true;
  using Fields = NibbleGroups<18, 2>;
  template <std::size_t Groups>
  STRATA_INLINE void load(const q::Byte* block, FloatRow& row) {
    const Zmm table = load_zmm(kIq4Levels.data());
    Zmm bytes[2], heads[2];
    Fields::load<Groups>(block, bytes, heads);
    row.d = Fields::field<0>(heads);
    for (std::size_t half = 0; half < Groups / 4; ++half) {
      row.codes[2 * half] = _mm512_shuffle_epi8(table, low_nibbles(bytes[half]));
      row.codes[2 * half + 1] = _mm512_shuffle_epi8(table, high_nibbles(bytes[half]));
    }
  }
};

// Q8_0: codes of groups 2 j and 2 j + 1, signed. (Vectors side by side, picked from, take longer.)
STRATA_INLINE Zmm q8_0_codes(const q::Byte* block, std::size_t j) {
  const q::Byte* two = block + 68 * j;
  const Zmm first =
      _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(two + 2)));
  return _mm512_inserti64x4(first, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(two + 36)),
                            1);
}
// By way of integer registers: what is stored in pieces must not be loaded as a whole at once.
template <std::size_t Groups>
STRATA_INLINE __m128i q8_0_halves(const q::Byte* block) {
  std::uint64_t d[2] = {};
  for (std::size_t g = 0; g < Groups; ++g)
    d[g / 4] |= std::uint64_t{q::load_u16(block + 34 * g)} << (16 * (g % 4));
  return _mm_set_epi64x(static_cast<long long>(d[1]), static_cast<long long>(d[0]));
}
STRATA_INLINE Zmm other_sign(const Zmm& codes) {  // signed codes to codes from zero on, and back
  return _mm512_xor_si512(codes, every_byte(-128));
}
struct GemvQ8_0 : FloatFormat<8 * 34, kInOrder, 128, false> {
  static constexpr std::size_t least_groups = 2;
  template <std::size_t Groups>
  STRATA_INLINE void load(const q::Byte* block, FloatRow& row) {
    for (std::size_t j = 0; j < Groups / 2; ++j) row.codes[j] = codes(block, j);
    row.d = halves<Groups>(block);
  }
  // One vector of codes.
  STRATA_INLINE Zmm codes(const q::Byte* block, std::size_t j) {
    return other_sign(q8_0_codes(block, j));
  }
  template <std::size_t Groups>
  STRATA_INLINE __m128i halves(const q::Byte* block) {
    return q8_0_halves<Groups>(block);
  }
};

struct GemvQ2_0 : FloatFormat<4 * 18, kQuadOrder, 1, false> {
  static constexpr std::size_t least_groups = 8;
  template <std::size_t>
  STRATA_INLINE void load(const q::Byte* block, FloatRow& row) {
    alignas(64) static constexpr Permutation codes =
        place_index([](std::size_t i) { return 18 * (i / 16) + 2 + i % 16; });
    alignas(64) static constexpr Permutation halves =
        place_index([](std::size_t i) { return 18 * (i / 4 % 4) + i % 2; });  // each twice
    const Zmm first = load_zmm(block);
    bit_pairs(pick_two(first, codes, load_part<8>(block + 64)), row.codes);
    row.d = _mm512_castsi512_si128(_mm512_permutexvar_epi8(load_zmm(halves.data()), first));
  }
};

struct alignas(64) FloatInput {
  Zmm values[8];  // four; of 16-bit integers four times upper bytes, then lower bytes
  float scale[8], scaled_sums[8];
  std::int32_t shift[8];  // what the zero adds to a group's dot
};

// Q8_0 with activations of 16 bits: their upper bytes are signed and meet codes from zero on, their
// lower bytes are not and meet signed codes. (Products of words would need words of the codes.)
struct GemvWords : FloatFormat<8 * 34, kInOrder, 128, false> {
  static constexpr bool words = true;
  static constexpr std::size_t least_groups = 2;
  template <std::size_t Groups>
  STRATA_INLINE void load(const q::Byte* block, FloatRow& row) {
    for (std::size_t j = 0; j < Groups / 2; ++j) row.codes[j] = codes(block, j);
    row.d = halves<Groups>(block);
  }
  // Of bytes, signed.
  STRATA_INLINE Zmm codes(const q::Byte* block, std::size_t j) { return q8_0_codes(block, j); }
  template <std::size_t Groups>
  STRATA_INLINE __m128i halves(const q::Byte* block) {
    return q8_0_halves<Groups>(block);
  }
};

// The dots of a row's groups in a few parts each, which join_sums() adds.
template <class F, std::size_t Groups>
STRATA_INLINE Zmm part_sums(const FloatRow& row, const Zmm* x) {
  const Zmm none = _mm512_setzero_si512();
  const auto add = [](const Zmm& p, const Zmm& q) { return _mm512_add_epi32(p, q); };
  const auto dot = [&](const Zmm& sum, int j) {
    return _mm512_dpbusd_epi32(sum, row.codes[j], x[j]);
  };
  if constexpr (&F::order == &kSplitOrder) {
    // 128-bit lane i of vectors 0, 1: group i, of vectors 2, 3: group 4 + i.
    const Zmm p = dot(dot(none, 0), 1), q = Groups > 4 ? dot(dot(none, 2), 3) : none;
    return add(_mm512_unpacklo_epi32(p, q), _mm512_unpackhi_epi32(p, q));
  } else if constexpr (&F::order == &kQuadOrder) {
    // 128-bit lane b: two dwords of group 2 b, two of group 2 b + 1.
    return dot(dot(dot(dot(none, 0), 1), 2), 3);
  } else {
    // Vector j: group 2 j in its lower half, 2 j + 1 in its upper.
    Zmm v[4] = {none, none, none, none};
    for (int j = 0; j < static_cast<int>(Groups / 2); ++j) {
      if constexpr (F::words) {
        const Zmm upper = _mm512_dpbusd_epi32(none, other_sign(row.codes[j]), x[j]);
        v[j] = _mm512_dpbusd_epi32(_mm512_slli_epi32(upper, 8), x[4 + j], row.codes[j]);
      } else {
        v[j] = dot(none, j);
      }
    }
    const Zmm p = add(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    if constexpr (Groups <= 4)
      return add(_mm512_unpacklo_epi64(p, none), _mm512_unpackhi_epi64(p, none));
    const Zmm q = add(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    return add(_mm512_unpacklo_epi64(p, q), _mm512_unpackhi_epi64(p, q));
  }
}
// Two blocks' dots side by side: [a: groups 0..7 | b: groups 0..7].
template <class F>
STRATA_INLINE Zmm join_sums(const Zmm& a, const Zmm& b) {
  if constexpr (&F::order == &kSplitOrder) {
    const Zmm sums = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), sums);
  } else if constexpr (&F::order == &kQuadOrder) {
    const Zmm even = (Zmm)_mm512_shuffle_ps((__m512)a, (__m512)b, 0x88);
    const Zmm odd = (Zmm)_mm512_shuffle_ps((__m512)a, (__m512)b, 0xdd);
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15),
        _mm512_add_epi32(even, odd));
  } else {
    const Zmm sums =
        _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15), sums);
  }
}

// 256 words: their bytes, and what the upper ones' codes have too much.
STRATA_INLINE void split_words(const std::int16_t* words, FloatInput& in) {
  alignas(64) static constexpr Permutation even = [] {
    Permutation p{};
    for (std::size_t i = 0; i < 64; ++i) p[i] = static_cast<std::uint8_t>(2 * i);
    return p;
  }();
  const Zmm lower = load_zmm(even.data()), upper = _mm512_or_si512(lower, every_byte(1));
  FloatRow row;  // -128 everywhere
  for (std::size_t j = 0; j < 4; ++j) {
    const Zmm a = load_zmm(words + 64 * j), b = load_zmm(words + 64 * j + 32);
    in.values[j] = _mm512_permutex2var_epi8(a, upper, b);
    in.values[4 + j] = _mm512_permutex2var_epi8(a, lower, b);
    row.codes[j] = every_byte(-128);
  }
  const Zmm none = _mm512_setzero_si512();
  const Zmm sums = join_sums<GemvQ8_0>(part_sums<GemvQ8_0, 8>(row, in.values), none);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(in.shift),
                      _mm512_castsi512_si256(_mm512_slli_epi32(sums, 8)));
}

template <class F>
STRATA_INLINE void float_input(const QuantizedRow& x, std::size_t at, FloatInput& in) {
  std::memcpy(in.scale, x.scales + at / 32, sizeof in.scale);
  if constexpr (F::words) {
    split_words(x.words + at, in);
  } else {
    reorder<F::order>(x.values + at, in.values);
    std::memcpy(in.scaled_sums, x.scaled_sums + at / 32, sizeof in.scaled_sums);
    for (std::size_t h = 0; h < 8; ++h) in.shift[h] = F::zero * x.sums32[at / 32 + h];
  }
}

// Words of 16 rows of eight groups, four rows a vector: vector i gets those of groups 2 i and
// 2 i + 1.
STRATA_INLINE void turn_words(const Zmm* z, Zmm* out) {
  for (int pair = 0; pair < 4; ++pair) {
    alignas(64) std::uint16_t index[32];
    for (int i = 0; i < 32; ++i) {
      const int row = i % 8, group = 2 * pair + i / 16;
      index[i] = static_cast<std::uint16_t>(8 * (row % 4) + group + (row / 4 ? 32 : 0));
    }
    const Zmm place = load_zmm(index);
    const Zmm first = _mm512_permutex2var_epi16(z[0], place, z[1]);
    const Zmm second = _mm512_permutex2var_epi16(z[2], place, z[3]);
    out[pair] = _mm512_mask_blend_epi16(0xff00ff00u, first, second);
  }
}
STRATA_INLINE void turn_words(const std::uint16_t* words, Zmm* out) {
  Zmm z[4];
  for (int i = 0; i < 4; ++i) z[i] = load_zmm(words + 32 * i);
  turn_words(z, out);
}
STRATA_INLINE void word_floats(const Zmm* pairs, Lanes* out) {
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = (Lanes)_mm512_cvtph_ps(_mm512_castsi512_si256(pairs[i]));
    out[2 * i + 1] = (Lanes)_mm512_cvtph_ps(_mm512_extracti64x4_epi64(pairs[i], 1));
  }
}
// Halves of 16 rows of eight groups become eight vectors of floats.
STRATA_INLINE void turn_halves(const std::uint16_t* halves, Lanes* out) {
  Zmm pairs[4];
  turn_words(halves, pairs);
  word_floats(pairs, out);
}
// Of rows in registers: what is stored in pieces must not be loaded as a whole at once.
STRATA_INLINE void turn_halves(const __m128i* halves, Lanes* out) {
  Zmm z[4], pairs[4];
  for (int i = 0; i < 4; ++i) {
    const __m128i* four = halves + 4 * i;
    z[i] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(four[1], four[0])),
                              _mm256_set_m128i(four[3], four[2]), 1);
  }
  turn_words(z, pairs);
  word_floats(pairs, out);
}

// A strip of sixteen rows: the dots of their groups, and their scales.
template <class F, std::size_t Tokens>
struct FloatTile {
  static constexpr std::size_t blocks = kStripBlocks / Tokens, bytes = F::bytes;
  Zmm sums[blocks / 2][Tokens][kLanes];  // sixteen groups each
  alignas(64) std::uint16_t d[blocks][kLanes][8];
  alignas(64) std::uint16_t m[F::minima ? blocks : 1][kLanes][8];

  // Blocks b (even) and b + 1 of row r, as far as they are there: that many groups.
  template <std::size_t First, std::size_t Second>
  STRATA_METHOD void take(std::size_t r, std::size_t b, const std::byte* at, const FloatInput* in,
                          std::size_t stride) {
    const auto* block = reinterpret_cast<const q::Byte*>(at);
    FloatRow one, two;
    F::template load<First>(block, one);
    keep(r, b, one);
    if constexpr (Second > 0) {
      F::template load<Second>(block + F::bytes, two);
      keep(r, b + 1, two);
    }
    for (std::size_t t = 0; t < Tokens; ++t) {
      const FloatInput* x = in + t * stride;
      const Zmm a = part_sums<F, First>(one, x[0].values);
      Zmm c = _mm512_setzero_si512();
      if constexpr (Second > 0) c = part_sums<F, Second>(two, x[1].values);
      sums[b / 2][t][r] = join_sums<F>(a, c);
    }
  }
  STRATA_METHOD void keep(std::size_t r, std::size_t b, const FloatRow& row) {
    _mm_store_si128(reinterpret_cast<__m128i*>(d[b][r]), row.d);
    if constexpr (F::minima) _mm_store_si128(reinterpret_cast<__m128i*>(m[b][r]), row.m);
  }
  // The same blocks of all rows, with `groups` groups together.
  STRATA_METHOD void add(std::size_t b, std::size_t groups, const FloatInput* in,
                         std::size_t stride, Lanes* acc) {
    Zmm dots[Tokens][16];
    for (std::size_t t = 0; t < Tokens; ++t) {
      for (std::size_t r = 0; r < kLanes; ++r) dots[t][r] = sums[b / 2][t][r];
      turn_dwords(dots[t]);
    }
    for (std::size_t i = 0; 8 * i < groups; ++i) {
      Lanes scale[8], least[8];
      turn_halves(&d[b + i][0][0], scale);
      if constexpr (F::minima) turn_halves(&m[b + i][0][0], least);
      const std::size_t count = std::min<std::size_t>(8, groups - 8 * i);
      for (std::size_t t = 0; t < Tokens; ++t) {
        const FloatInput& x = in[t * stride + i];
        Lanes sum = acc[t];
        for (std::size_t h = 0; h < count; ++h) {
          const Lanes dx = all(x.scale[h]);
          const IntLanes whole = (IntLanes)dots[t][8 * i + h] - all_int(x.shift[h]);
          sum = fma_lanes(to_float(whole), scale[h] * dx, sum);
          if constexpr (F::minima) sum = fma_lanes(least[h], all(x.scaled_sums[h]), sum);
        }
        acc[t] = sum;
      }
    }
  }
};
