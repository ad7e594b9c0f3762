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

// Nibbles of groups of Stride bytes, codes from byte Codes on: 64 bytes for four groups.
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
  STRATA_INLINE void load(const q::Byte* block, Zmm* bytes, Zmm* heads) {
    for (std::size_t half = 0; half < 2; ++half) {
      bytes[half] = pick_bytes<span>(block, codes, half * span);
      heads[half] = pick_bytes<span>(block, head, half * span);
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
  using Row = FloatRow;
};

// Q4_0, Q4_1, Q5_0, Q5_1: nibbles, with a fifth bit or without.
template <std::size_t Stride, bool Minima, bool Fifth, int Zero>
struct GemvNibbles : FloatFormat<8 * Stride, kSplitOrder, Zero, Minima> {
  using Groups = NibbleGroups<Stride, Stride - 16>;
  STRATA_INLINE void load(const q::Byte* block, FloatRow& row) {
    Zmm bytes[2], heads[2];
    Groups::load(block, bytes, heads);
    row.d = Groups::template field<0>(heads);
    if constexpr (Minima) row.m = Groups::template field<1>(heads);
    for (int half = 0; half < 2; ++half) {
      row.codes[2 * half] = low_nibbles(bytes[half]);
      row.codes[2 * half + 1] = high_nibbles(bytes[half]);
    }
    if constexpr (Fifth) {
      // Two fields of 16 bits: first halves, second halves.
      constexpr int at = Minima ? 2 : 1;
      alignas(16) std::uint64_t first[2], second[2];
      _mm_store_si128(reinterpret_cast<__m128i*>(first), Groups::template field<at>(heads));
      _mm_store_si128(reinterpret_cast<__m128i*>(second), Groups::template field<at + 1>(heads));
      for (int half = 0; half < 2; ++half) {
        Zmm *low = &row.codes[2 * half], *high = low + 1;
        *low = _mm512_mask_add_epi8(*low, first[half], *low, every_byte(16));
        *high = _mm512_mask_add_epi8(*high, second[half], *high, every_byte(16));
      }
    }
  }
};
struct GemvIQ4_NL : FloatFormat<8 * 18, kSplitOrder, 128, false> {
  using Groups = NibbleGroups<18, 2>;
  STRATA_INLINE void load(const q::Byte* block, FloatRow& row) {
    alignas(64) static constexpr Permutation codes = [] {
      Permutation p{};
      for (std::size_t i = 0; i < 64; ++i) p[i] = kIq4Codes[i % 16];
      return p;
    }();
    const Zmm table = load_zmm(codes.data());
    Zmm bytes[2], heads[2];
    Groups::load(block, bytes, heads);
    row.d = Groups::field<0>(heads);
    for (int half = 0; half < 2; ++half) {
      row.codes[2 * half] = _mm512_shuffle_epi8(table, low_nibbles(bytes[half]));
      row.codes[2 * half + 1] = _mm512_shuffle_epi8(table, high_nibbles(bytes[half]));
    }
  }
};

// Q8_0: four groups of 34 bytes would need three vectors; halves are loaded one by one.
struct GemvQ8_0 : FloatFormat<8 * 34, kInOrder, 128, false> {
  STRATA_INLINE void load(const q::Byte* block, FloatRow& row) {
    const Zmm sign = every_byte(-128);
    alignas(16) std::uint16_t d[8];
    for (std::size_t j = 0; j < 4; ++j) {
      const q::Byte* two = block + 68 * j;
      const Zmm first =
          _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(two + 2)));
      const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(two + 36));
      row.codes[j] = _mm512_xor_si512(_mm512_inserti64x4(first, second, 1), sign);
      std::memcpy(&d[2 * j], two, 2);
      std::memcpy(&d[2 * j + 1], two + 34, 2);
    }
    row.d = _mm_load_si128(reinterpret_cast<const __m128i*>(d));
  }
};

struct GemvQ2_0 : FloatFormat<4 * 18, kQuadOrder, 1, false> {
  STRATA_INLINE void load(const q::Byte* block, FloatRow& row) {
    alignas(64) static constexpr Permutation codes =
        pick_index<72>([](std::size_t i) { return 18 * (i / 16) + 2 + i % 16; });
    alignas(64) static constexpr Permutation halves =
        pick_index<72>([](std::size_t i) { return 18 * (i / 4 % 4) + i % 2; });  // each twice
    bit_pairs(pick_bytes<72>(block, codes, 0), row.codes);
    row.d = _mm512_castsi512_si128(pick_bytes<72>(block, halves, 0));
  }
};

struct alignas(64) FloatInput {
  Zmm values[8];  // four, or eight of 16-bit integers
  float scale[8], scaled_sums[8];
  std::int32_t shift[8];  // what the zero adds to a group's dot
};

// Q8_0 with activations of 16 bits.
struct GemvWords {
  static constexpr std::size_t bytes = 8 * 34;
  static constexpr int zero = 0;
  static constexpr bool minima = false, words = true;
  static constexpr const CodeOrder& order = kInOrder;
  struct Row {
    Zmm codes[8];
    __m128i d;
  };
  // Vectors 2 j and 2 j + 1: the first and the second half of groups 2 j and 2 j + 1.
  STRATA_INLINE void load(const q::Byte* block, Row& row) {
    const auto half = [](const q::Byte* p) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    };
    alignas(16) std::uint16_t d[8];
    for (std::size_t j = 0; j < 4; ++j) {
      const q::Byte *a = block + 68 * j, *b = a + 34;
      row.codes[2 * j] = _mm512_cvtepi8_epi16(_mm256_set_m128i(half(b + 2), half(a + 2)));
      row.codes[2 * j + 1] = _mm512_cvtepi8_epi16(_mm256_set_m128i(half(b + 18), half(a + 18)));
      std::memcpy(&d[2 * j], a, 2);
      std::memcpy(&d[2 * j + 1], b, 2);
    }
    row.d = _mm_load_si128(reinterpret_cast<const __m128i*>(d));
  }
};

template <class F>
STRATA_INLINE void float_input(const QuantizedRow& x, std::size_t at, FloatInput& in) {
  if constexpr (F::words) {
    const auto half = [](const std::int16_t* p) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    };
    for (std::size_t j = 0; j < 8; ++j) {
      const std::int16_t* first = x.words + at + 64 * (j / 2) + 16 * (j % 2);
      in.values[j] = _mm512_inserti64x4(_mm512_castsi256_si512(half(first)), half(first + 32), 1);
    }
    std::memcpy(in.scale, x.scales + at / 32, sizeof in.scale);
    return;
  } else {
    reorder<F::order>(x.values + at, in.values);
  }
  std::memcpy(in.scale, x.scales + at / 32, sizeof in.scale);
  std::memcpy(in.scaled_sums, x.scaled_sums + at / 32, sizeof in.scaled_sums);
  for (std::size_t h = 0; h < 8; ++h) in.shift[h] = F::zero * x.sums32[at / 32 + h];
}

// The dots of two rows' eight groups side by side: [row a: groups 0..7 | row b: groups 0..7].
template <class F>
STRATA_INLINE Zmm group_sums(const typename F::Row& a, const typename F::Row& b, const Zmm* x) {
  using Row = typename F::Row;
  const auto dot = [&](const Row& row, const Zmm& sum, int j) {
    if constexpr (F::words) {
      return _mm512_dpwssd_epi32(sum, row.codes[j], x[j]);
    } else {
      return _mm512_dpbusd_epi32(sum, row.codes[j], x[j]);
    }
  };
  const Zmm none = _mm512_setzero_si512();
  const auto add = [](const Zmm& p, const Zmm& q) { return _mm512_add_epi32(p, q); };
  if constexpr (&F::order == &kSplitOrder) {
    // 128-bit lane i of vectors 0, 1: group i, of vectors 2, 3: group 4 + i.
    const auto pairs = [&](const Row& row) {
      const Zmm p = dot(row, dot(row, none, 0), 1), q = dot(row, dot(row, none, 2), 3);
      return add(_mm512_unpacklo_epi32(p, q), _mm512_unpackhi_epi32(p, q));
    };
    const Zmm pa = pairs(a), pb = pairs(b);
    const Zmm sums = add(_mm512_unpacklo_epi64(pa, pb), _mm512_unpackhi_epi64(pa, pb));
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), sums);
  } else if constexpr (&F::order == &kQuadOrder) {
    // 128-bit lane b: two dwords of group 2 b, two of group 2 b + 1.
    const auto quads = [&](const Row& row) {
      return (__m512)dot(row, dot(row, dot(row, dot(row, none, 0), 1), 2), 3);
    };
    const __m512 qa = quads(a), qb = quads(b);
    const Zmm sums =
        add((Zmm)_mm512_shuffle_ps(qa, qb, 0x88), (Zmm)_mm512_shuffle_ps(qa, qb, 0xdd));
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15), sums);
  } else {
    // Vector j: group 2 j in its lower half, 2 j + 1 in its upper.
    const auto fours = [&](const Row& row) {
      Zmm v[4];
      for (int j = 0; j < 4; ++j) {
        if constexpr (F::words) {
          v[j] = dot(row, dot(row, none, 2 * j), 2 * j + 1);
        } else {
          v[j] = dot(row, none, j);
        }
      }
      const Zmm p = add(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
      const Zmm q = add(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
      return add(_mm512_unpacklo_epi64(p, q), _mm512_unpackhi_epi64(p, q));
    };
    const Zmm fa = fours(a), fb = fours(b);
    const Zmm sums = add(_mm512_shuffle_i32x4(fa, fb, 0x88), _mm512_shuffle_i32x4(fa, fb, 0xdd));
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15), sums);
  }
}

// Eight vectors of two rows and eight dwords become eight vectors of 16 rows.
STRATA_INLINE void turn_groups(const Zmm* in, Zmm* out) {
  Zmm a[4], b[4], c[4], d[4];
  for (int i = 0; i < 4; ++i) {  // 128-bit lanes: rows 4 i .. 4 i + 3, groups 0..3 and 4..7
    a[i] = _mm512_shuffle_i32x4(in[2 * i], in[2 * i + 1], 0x88);
    b[i] = _mm512_shuffle_i32x4(in[2 * i], in[2 * i + 1], 0xdd);
  }
  // Lane i of c[k] gets group k of rows 4 i ..: turn 4 x 4 lanes of four dwords.
  const auto turn = [](const Zmm* v, Zmm* to) {
    const Zmm p0 = _mm512_unpacklo_epi32(v[0], v[1]), p1 = _mm512_unpackhi_epi32(v[0], v[1]);
    const Zmm p2 = _mm512_unpacklo_epi32(v[2], v[3]), p3 = _mm512_unpackhi_epi32(v[2], v[3]);
    to[0] = _mm512_unpacklo_epi64(p0, p2);
    to[1] = _mm512_unpackhi_epi64(p0, p2);
    to[2] = _mm512_unpacklo_epi64(p1, p3);
    to[3] = _mm512_unpackhi_epi64(p1, p3);
  };
  turn(a, c);
  turn(b, d);
  // Lane r of c[k]: group k of rows r, 4 + r, 8 + r, 12 + r.
  const Zmm order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  for (int k = 0; k < 4; ++k) {
    out[k] = _mm512_permutexvar_epi32(order, c[k]);
    out[4 + k] = _mm512_permutexvar_epi32(order, d[k]);
  }
}

// Words of 16 rows of eight groups: vector i gets those of groups 2 i and 2 i + 1.
STRATA_INLINE void turn_words(const std::uint16_t* words, Zmm* out) {
  Zmm z[4];
  for (int i = 0; i < 4; ++i) z[i] = load_zmm(words + 32 * i);
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
// Halves of 16 rows of eight groups become eight vectors of floats.
STRATA_INLINE void turn_halves(const std::uint16_t* halves, Lanes* out) {
  Zmm pairs[4];
  turn_words(halves, pairs);
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = (Lanes)_mm512_cvtph_ps(_mm512_castsi512_si256(pairs[i]));
    out[2 * i + 1] = (Lanes)_mm512_cvtph_ps(_mm512_extracti64x4_epi64(pairs[i], 1));
  }
}

template <class F, std::size_t Tokens>
STRATA_INLINE void float_rows(const std::byte* const* rows, std::size_t offset, std::size_t groups,
                              const std::byte* next, const FloatInput* const* in, Lanes* acc) {
  Zmm sums[Tokens][8];
  alignas(64) std::uint16_t halves[2][kLanes][8];
  for (std::size_t r = 0; r < kLanes; r += 2) {
    typename F::Row two[2];
    for (std::size_t i = 0; i < 2; ++i) {
      F::load(reinterpret_cast<const q::Byte*>(rows[r + i] + offset), two[i]);
      prefetch_run(next + (r + i) * F::bytes, F::bytes);
      _mm_store_si128(reinterpret_cast<__m128i*>(halves[0][r + i]), two[i].d);
      if constexpr (F::minima)
        _mm_store_si128(reinterpret_cast<__m128i*>(halves[1][r + i]), two[i].m);
    }
    for (std::size_t t = 0; t < Tokens; ++t)
      sums[t][r / 2] = group_sums<F>(two[0], two[1], in[t]->values);
  }
  Lanes d[8], m[8];
  turn_halves(&halves[0][0][0], d);
  if constexpr (F::minima) turn_halves(&halves[1][0][0], m);
  for (std::size_t t = 0; t < Tokens; ++t) {
    Zmm dots[8];
    turn_groups(sums[t], dots);
    for (std::size_t h = 0; h < groups; ++h) {
      const Lanes dx = all(in[t]->scale[h]);
      const IntLanes whole = (IntLanes)dots[h] - all_int(in[t]->shift[h]);
      acc[t] = fma_lanes(to_float(whole), d[h] * dx, acc[t]);
      if constexpr (F::minima) acc[t] = fma_lanes(m[h], all(in[t]->scaled_sums[h]), acc[t]);
    }
  }
}
