// Decoding: rows of formats with integer scales. Included by int_gemv_impl.h, inside the kernels.

// A block of one row.
struct IntegerRow {
  Zmm codes[4];          // at most 128: products of pairs stay in 16 bits
  __mmask64 minus[4];    // of formats with signs: where the code counts negative
  __m256i scales, mins;  // 16-bit, one a group
};

STRATA_INLINE __m256i widen_signed(const void* bytes16) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(bytes16)));
}
STRATA_INLINE std::uint64_t load_u64(const void* p) {
  std::uint64_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
STRATA_INLINE std::uint64_t spread_nibbles(std::uint32_t nibbles) {
  return _pdep_u64(nibbles, 0x0f0f0f0f0f0f0f0full);
}
// Signed bytes to magnitudes and signs.
STRATA_INLINE void split_sign(const Zmm& value, Zmm& magnitude, __mmask64& minus) {
  minus = _mm512_movepi8_mask(value);
  magnitude = _mm512_abs_epi8(value);
}

// Every format says: its block, the order of its codes, values a scale, the zero, whether it has
// signs and minima, and a power of two that its d is multiplied with.
template <class Block, const CodeOrder& Order, std::size_t Group, int Zero = 0>
struct IntegerFormat {
  using Stored = Block;
  static constexpr const CodeOrder& order = Order;
  static constexpr std::size_t group = Group;
  static constexpr int zero = Zero;
  static constexpr bool signs = false, minima = false;
  static constexpr float factor = 1.0f;
  STRATA_INLINE void half_of(const Block& b, std::uint16_t& d) { std::memcpy(&d, b.d, sizeof d); }
};

// Scales and minima of Q4_K and Q5_K, eight each.
STRATA_INLINE void k4_scale_words(const q::Byte* scales, IntegerRow& row) {
  const std::uint64_t ab = load_u64(scales);
  const std::uint32_t c = q::load_u32(scales + 8);
  // Bytes 0 to 3 of a (scales) and b (minima) hold groups 0 to 3; the rest is made of c's nibbles
  // and the top bits of a and b.
  const std::uint64_t low = ab & 0x3f3f3f3f3f3f3f3full, top = (ab >> 2) & 0x3030303030303030ull;
  const std::uint64_t scale =
      (low & 0xffffffffu) | ((std::uint64_t{c & 0x0f0f0f0fu} | (top & 0xffffffffu)) << 32);
  const std::uint64_t min =
      (low >> 32) | ((std::uint64_t{(c >> 4) & 0x0f0f0f0fu} | (top >> 32)) << 32);
  row.scales = _mm256_cvtepu8_epi16(_mm_cvtsi64_si128(static_cast<long long>(scale)));
  row.mins = _mm256_cvtepu8_epi16(_mm_cvtsi64_si128(static_cast<long long>(min)));
}

struct GemvQ4_K : IntegerFormat<q::BlockQ4_K, kPairOrder, 32> {
  static constexpr bool minima = true;
  STRATA_INLINE void load(const Stored& b, IntegerRow& row) {
    for (int i = 0; i < 2; ++i) {
      const Zmm bytes = load_zmm(b.qs + 64 * i);
      row.codes[2 * i] = low_nibbles(bytes);
      row.codes[2 * i + 1] = high_nibbles(bytes);
    }
    k4_scale_words(b.scales, row);
  }
};

struct GemvQ5_K : IntegerFormat<q::BlockQ5_K, kPairOrder, 32> {
  static constexpr bool minima = true;
  STRATA_INLINE void load(const Stored& b, IntegerRow& row) {
    const Zmm high = both_halves(b.qh), fifth = every_byte(16);
    // Vector 2 i + n needs bits 4 i + n (first half) and 4 i + n + 2 at place 4.
    const Zmm places = _mm512_setr_epi32(4, 4, 4, 4, 4, 4, 4, 4, 2, 2, 2, 2, 2, 2, 2, 2);
    const auto rotated = [&](int by) {
      return _mm512_rolv_epi32(high, _mm512_sub_epi32(places, _mm512_set1_epi32(by)));
    };
    for (int i = 0; i < 2; ++i) {
      const Zmm bytes = load_zmm(b.qs + 64 * i);
      row.codes[2 * i] = masked_or(rotated(4 * i), fifth, low_nibbles(bytes));
      row.codes[2 * i + 1] = masked_or(rotated(4 * i + 1), fifth, high_nibbles(bytes));
    }
    k4_scale_words(b.scales, row);
  }
};

struct GemvQ6_K : IntegerFormat<q::BlockQ6_K, kInOrder, 16, 32> {
  STRATA_INLINE void load(const Stored& b, IntegerRow& row) {
    const Zmm top = every_byte(0x30);
    for (int half = 0; half < 2; ++half) {
      const Zmm bytes = load_zmm(b.ql + 64 * half), high = both_halves(b.qh + 32 * half);
      const Zmm first = _mm512_rolv_epi32(
          high, _mm512_setr_epi32(4, 4, 4, 4, 4, 4, 4, 4, 2, 2, 2, 2, 2, 2, 2, 2));
      const Zmm second = _mm512_rolv_epi32(
          high, _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 30, 30, 30, 30, 30, 30, 30, 30));
      row.codes[2 * half] = masked_or(first, top, low_nibbles(bytes));
      row.codes[2 * half + 1] = masked_or(second, top, high_nibbles(bytes));
    }
    row.scales = widen_signed(b.scales);
  }
};

struct GemvQ2_K : IntegerFormat<q::BlockQ2_K, kBitPairOrder, 16> {
  static constexpr bool minima = true;
  STRATA_INLINE void load(const Stored& b, IntegerRow& row) {
    bit_pairs(load_zmm(b.qs), row.codes);
    const __m256i both =
        _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b.scales)));
    row.scales = _mm256_and_si256(both, _mm256_set1_epi16(15));
    row.mins = _mm256_srli_epi16(both, 4);
  }
};

struct GemvQ3_K : IntegerFormat<q::BlockQ3_K, kBitPairOrder, 16, 4> {
  STRATA_INLINE void load(const Stored& b, IntegerRow& row) {
    bit_pairs(load_zmm(b.qs), row.codes);
    const Zmm high = both_halves(b.hmask), third = every_byte(4);
    // Vector l needs bit l in the first half and bit 4 + l in the second at place 2.
    const Zmm places = _mm512_setr_epi32(2, 2, 2, 2, 2, 2, 2, 2, 30, 30, 30, 30, 30, 30, 30, 30);
    for (int l = 0; l < 4; ++l)
      row.codes[l] =
          masked_or(_mm512_rolv_epi32(high, _mm512_sub_epi32(places, _mm512_set1_epi32(l))), third,
                    row.codes[l]);
    // Scales 0 to 15: low nibbles, high nibbles of eight bytes, and two bits each of four more.
    const std::uint64_t low = load_u64(b.scales);
    const std::uint32_t top = q::load_u32(b.scales + 8);
    const auto pairs = [&](int k) { return std::uint64_t{(top >> (2 * k)) & 0x03030303u} << 4; };
    const std::uint64_t first = (low & 0x0f0f0f0f0f0f0f0full) | pairs(0) | (pairs(1) << 32);
    const std::uint64_t second = ((low >> 4) & 0x0f0f0f0f0f0f0f0full) | pairs(2) | (pairs(3) << 32);
    const __m128i bytes =
        _mm_set_epi64x(static_cast<long long>(second), static_cast<long long>(first));
    row.scales = _mm256_cvtepi8_epi16(_mm_sub_epi8(bytes, _mm_set1_epi8(32)));
  }
};

// Magnitudes of the IQ4 table; its first eight values are negative.
alignas(64) static constexpr auto kIq4Magnitudes = [] {
  std::array<std::uint8_t, 64> table{};
  for (std::size_t i = 0; i < 64; ++i) {
    const int value = q::iq4_values[i % 16];
    table[i] = static_cast<std::uint8_t>(value < 0 ? -value : value);
  }
  return table;
}();

struct GemvIQ4_XS : IntegerFormat<q::BlockIQ4_XS, kSplitOrder, 32> {
  static constexpr bool signs = true;
  STRATA_INLINE void load(const Stored& b, IntegerRow& row) {
    const Zmm table = load_zmm(kIq4Magnitudes.data());
    for (int i = 0; i < 2; ++i) {
      const Zmm bytes = load_zmm(b.qs + 64 * i);
      row.codes[2 * i] = _mm512_shuffle_epi8(table, low_nibbles(bytes));
      row.codes[2 * i + 1] = _mm512_shuffle_epi8(table, high_nibbles(bytes));
      row.minus[2 * i] = _mm512_testn_epi8_mask(bytes, every_byte(8));
      row.minus[2 * i + 1] = _mm512_testn_epi8_mask(bytes, every_byte(0x80));
    }
    const std::uint64_t scales = spread_nibbles(q::load_u32(b.scales_l)) |
                                 (_pdep_u64(q::load_u16(b.scales_h), 0x0303030303030303ull) << 4);
    const __m128i bytes = _mm_cvtsi64_si128(static_cast<long long>(scales));
    row.scales = _mm256_cvtepi8_epi16(_mm_sub_epi8(bytes, _mm_set1_epi8(32)));
  }
};

// Odd scales 2 n + 1 of eight nibbles.
STRATA_INLINE __m256i odd_scales(std::uint64_t nibbles) {
  const __m128i bytes = _mm_cvtsi64_si128(static_cast<long long>(nibbles));
  return _mm256_cvtepu8_epi16(_mm_or_si128(_mm_add_epi8(bytes, bytes), _mm_set1_epi8(1)));
}
STRATA_INLINE void load_signs(const void* words, __mmask64* minus) {
  for (std::size_t w = 0; w < 4; ++w)
    minus[w] = load_u64(static_cast<const std::uint64_t*>(words) + w);
}

// Bit 4 i + v of eight words of 32 bits, for all i: the signs of the values v of entries of four.
STRATA_INLINE void entry_signs(const __m256i& words, __mmask64* minus) {
  const Zmm each = _mm512_cvtepu32_epi64(words);
  const Zmm places = _mm512_set1_epi64(0x1c18'1410'0c08'0400ll);
  for (int v = 0; v < 4; ++v)
    minus[v] = _mm512_bitshuffle_epi64_mask(each, _mm512_or_si512(places, every_byte(v)));
}

// IQ3_S: entries of four odd numbers below 16, as nibbles in two planes of bytes. Vector v of the
// codes is the values v of all entries.
struct GemvIQ3_S : IntegerFormat<q::BlockIQ3_S, kQuadOrder, 32> {
  static constexpr bool signs = true;
  struct Nibbles {
    alignas(64) std::uint8_t plane[2][512];
    Nibbles() {
      for (std::size_t i = 0; i < 512; ++i)
        for (std::size_t p = 0; p < 2; ++p) {
          const std::uint32_t two = q::iq3s_grid[i] >> (16 * p);
          plane[p][i] = static_cast<std::uint8_t>((two & 15) | ((two >> 4) & 0xf0));
        }
    }
  };
  STRATA_INLINE void load(const Stored& b, IntegerRow& row) {
    static const Nibbles nibbles;
    const Zmm index = load_zmm(b.qs);
    const std::uint64_t ninth = load_u64(b.qh);
    for (int p = 0; p < 2; ++p) {
      const Zmm two = look_up<512>(nibbles.plane[p], index, ninth);
      row.codes[2 * p] = low_nibbles(two);
      row.codes[2 * p + 1] = high_nibbles(two);
    }
    entry_signs(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b.signs)), row.minus);
    row.scales = odd_scales(spread_nibbles(q::load_u32(b.scales)));
  }
};

// Sign bytes of seven-bit indices: the eighth bit makes the number of ones even. As a product of
// bit matrices (row 7 - i of the matrix makes bit i).
STRATA_INLINE __m256i even_signs(const __m256i& index) {
  const __m256i matrix = _mm256_set1_epi64x(0x01020408102040'7fll);
  return _mm256_gf2p8affine_epi64_epi8(index, matrix, 0);
}

// IQ3_XXS: the same with one of eight levels in each nibble.
struct GemvIQ3_XXS : IntegerFormat<q::BlockIQ3_XXS, kQuadOrder, 32> {
  static constexpr bool signs = true;
  static constexpr float factor = 0.25f;
  static constexpr std::array<std::uint8_t, 8> levels = {4, 12, 20, 28, 36, 44, 52, 62};
  struct Nibbles {
    alignas(64) std::uint8_t plane[2][256] = {};
    Nibbles() {
      for (std::size_t i = 0; i < 256; ++i)
        for (std::size_t v = 0; v < 4; ++v) {
          const auto value = static_cast<std::uint8_t>(q::iq3xxs_grid[i] >> (8 * v));
          const auto level = std::find(levels.begin(), levels.end(), value) - levels.begin();
          plane[v / 2][i] |= static_cast<std::uint8_t>(level << (4 * (v % 2)));
        }
    }
  };
  STRATA_INLINE void load(const Stored& b, IntegerRow& row) {
    static const Nibbles nibbles;
    alignas(64) static constexpr Permutation values = [] {
      Permutation p{};
      for (std::size_t i = 0; i < 64; ++i) p[i] = levels[i % 8];
      return p;
    }();
    const Zmm index = load_zmm(b.qs), table = load_zmm(values.data());
    for (int p = 0; p < 2; ++p) {
      const Zmm two = look_up<256>(nibbles.plane[p], index, 0);
      row.codes[2 * p] = _mm512_permutexvar_epi8(two, table);  // six bits count, three differ
      row.codes[2 * p + 1] = _mm512_permutexvar_epi8(_mm512_srli_epi16(two, 4), table);
    }
    entry_signs(tail_signs(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b.scales_signs)),
                           row.scales),
                row.minus);
  }
  // Eight words of four 7-bit sign indices and a 4-bit scale.
  STRATA_INLINE __m256i tail_signs(const __m256i& tail, __m256i& scales) {
    const __m256i doubled = _mm256_srli_epi32(tail, 27);  // twice the scale, and a bit of an index
    scales = _mm256_zextsi128_si256(
        _mm256_cvtepi32_epi16(_mm256_or_si256(doubled, _mm256_set1_epi32(1))));
    // Index l of a word starts at bit 7 l: one byte each.
    const __m256i shifts = _mm256_set1_epi64x(0x352e'2720'150e'0700ll);
    return even_signs(
        _mm256_and_si256(_mm256_multishift_epi64_epi8(shifts, tail), _mm256_set1_epi8(127)));
  }
};

// Entries of eight values out of three, as two bits each in two planes of bytes.
template <std::size_t Entries>
struct LevelPlanes {
  alignas(64) std::uint8_t plane[2][Entries] = {};
  template <class Grid, class Level>
  LevelPlanes(const Grid& grid, const Level& level) {
    for (std::size_t i = 0; i < Entries; ++i)
      for (std::size_t j = 0; j < 8; ++j) {
        const unsigned bits = level(static_cast<std::uint8_t>(grid[i] >> (8 * j)));
        std::uint8_t& byte = plane[j / 4][i];
        byte = static_cast<std::uint8_t>(byte | bits << (2 * (j % 4)));
      }
  }
};
// IQ2: 8, 25 or 43.
STRATA_INLINE unsigned iq2_level(std::uint8_t value) {
  return value < 16 ? 0 : value < 32 ? 1 : 2;
}
alignas(64) static constexpr Permutation kIq2Levels = [] {
  Permutation table{};
  constexpr std::uint8_t values[4] = {8, 25, 43, 0};
  for (std::size_t i = 0; i < 64; ++i) table[i] = values[i % 4];
  return table;
}();
// Eight entries, one a word from `first` on, to their 64 codes: two level bits each.
STRATA_INLINE Zmm expand_levels(const Zmm& words, int first, const Permutation& levels) {
  const Zmm index = _mm512_add_epi16(_mm512_set1_epi16(static_cast<short>(first)),
                                     _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
  const Zmm shifts = _mm512_set1_epi64(0x0e0c'0a08'0604'0200ll);
  const Zmm spread = _mm512_permutexvar_epi16(index, words);  // a word to the end of each qword
  return _mm512_permutexvar_epi8(_mm512_multishift_epi64_epi8(shifts, spread),
                                 load_zmm(levels.data()));
}
// The codes of two rows of 32 entries, given the 64 look-ups of both planes.
STRATA_INLINE void expand_two(const Zmm& low, const Zmm& high, const Permutation& levels,
                              IntegerRow* rows) {
  // 128-bit lane L of the two: words of entries 16 L .. + 7, and of the eight behind them.
  const Zmm even = _mm512_unpacklo_epi8(low, high), odd = _mm512_unpackhi_epi8(low, high);
  for (int w = 0; w < 8; ++w)
    rows[w / 4].codes[w % 4] = expand_levels(w % 2 == 0 ? even : odd, 8 * (w / 2), levels);
}
STRATA_INLINE Zmm both_rows(const __m256i& first, const __m256i& second) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
}
STRATA_INLINE Zmm both_rows(const void* first, const void* second) {
  return both_rows(_mm256_loadu_si256(static_cast<const __m256i*>(first)),
                   _mm256_loadu_si256(static_cast<const __m256i*>(second)));
}
// Eight 16-bit scales for 32 values each, as words for 16.
STRATA_INLINE __m256i scales_twice(const __m128i& scales) {
  const __m256i each = _mm256_cvtepu16_epi32(scales);
  return _mm256_or_si256(each, _mm256_slli_epi32(each, 16));
}
STRATA_INLINE __m256i nibble_scales16(const q::Byte* nibbles) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(nibbles));
  const __m128i low = _mm_and_si128(bytes, _mm_set1_epi8(15));
  const __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), _mm_set1_epi8(15));
  const __m128i each = _mm_unpacklo_epi8(low, high);
  return _mm256_cvtepu8_epi16(_mm_or_si128(_mm_add_epi8(each, each), _mm_set1_epi8(1)));
}

// What two blocks say of their 64 entries: level bits in two planes, signs, a byte each.
struct EntryLevels {
  Zmm low, high, signs;
};
// Vector v is the values v of all entries, so that a word of two is sixteen inputs of one block.
struct EntryPair {
  Zmm codes[8];
  __mmask64 minus[8];  // of formats with signs
  Zmm scales;          // a word for each of codes
};
STRATA_INLINE void entry_codes(const EntryLevels& entries, EntryPair& two) {
  for (int v = 0; v < 8; ++v) {
    const Zmm& plane = v < 4 ? entries.low : entries.high;
    const Zmm levels = _mm512_srli_epi16(plane, 2 * (v % 4));  // the two lowest of six bits
    two.codes[v] = _mm512_permutexvar_epi8(levels, load_zmm(kIq2Levels.data()));
    two.minus[v] = _mm512_test_epi8_mask(entries.signs, every_byte(1 << v));
  }
}
// As rows of their own, with codes in the order of the inputs.
STRATA_INLINE void entry_rows(const EntryLevels& entries, IntegerRow* rows) {
  expand_two(entries.low, entries.high, kIq2Levels, rows);
  alignas(64) std::uint64_t words[8];
  _mm512_store_si512(words, entries.signs);
  load_signs(words, rows[0].minus);
  load_signs(words + 4, rows[1].minus);
}

STRATA_INLINE EntryLevels iq2_xs_levels(const q::BlockIQ2_XS& a, const q::BlockIQ2_XS& b) {
  static const LevelPlanes<512> levels(q::iq2xs_grid, iq2_level);
  static constexpr auto every_other = [](std::size_t first) {
    Permutation p{};
    for (std::size_t i = 0; i < 64; ++i) p[i] = static_cast<std::uint8_t>(2 * i + first);
    return p;
  };
  alignas(64) static constexpr Permutation low = every_other(0), high = every_other(1);
  // 64 words: nine bits of index, seven of signs.
  const Zmm first = load_zmm(a.qs), second = load_zmm(b.qs);
  const Zmm index = _mm512_permutex2var_epi8(first, load_zmm(low.data()), second);
  const Zmm rest = _mm512_permutex2var_epi8(first, load_zmm(high.data()), second);
  const std::uint64_t ninth = _mm512_test_epi8_mask(rest, every_byte(1));
  // As even_signs, of the upper seven bits.
  const Zmm matrix = _mm512_set1_epi64(0x0204'0810'2040'80fell);
  return {look_up<512>(levels.plane[0], index, ninth), look_up<512>(levels.plane[1], index, ninth),
          _mm512_gf2p8affine_epi64_epi8(rest, matrix, 0)};
}
STRATA_INLINE EntryLevels iq2_s_levels(const q::BlockIQ2_S& a, const q::BlockIQ2_S& b) {
  static const LevelPlanes<1024> levels(q::iq2s_grid, iq2_level);
  const Zmm index = both_rows(a.qs, b.qs);
  const auto bits = [&](std::uint64_t which) {  // one of the two in front of each index
    return _pext_u64(load_u64(a.qh), which) | (_pext_u64(load_u64(b.qh), which) << 32);
  };
  const __mmask64 high[2] = {bits(0x5555'5555'5555'5555ull), bits(0xaaaa'aaaa'aaaa'aaaaull)};
  return {look_up_long<1024>(levels.plane[0], index, high),
          look_up_long<1024>(levels.plane[1], index, high), both_rows(a.signs, b.signs)};
}

// IQ2_XS, IQ2_S: a nibble of scale for two entries.
template <class Block, EntryLevels (*levels_of)(const Block&, const Block&)>
struct GemvIQ2 : IntegerFormat<Block, kInOrder, 16> {
  static constexpr bool signs = true;
  static constexpr float factor = 0.125f;
  STRATA_INLINE void load_entries(const Block& a, const Block& b, EntryPair& two) {
    entry_codes(levels_of(a, b), two);
    two.scales = both_rows(nibble_scales16(a.scales), nibble_scales16(b.scales));
  }
  STRATA_INLINE void load_two(const Block& a, const Block& b, IntegerRow* rows) {
    entry_rows(levels_of(a, b), rows);
    rows[0].scales = nibble_scales16(a.scales);
    rows[1].scales = nibble_scales16(b.scales);
  }
};

struct GemvIQ2_XXS : IntegerFormat<q::BlockIQ2_XXS, kInOrder, 32> {
  static constexpr bool signs = true;
  static constexpr float factor = 0.125f;
  STRATA_INLINE EntryLevels levels_of(const Stored& a, const Stored& b, __m256i* scales) {
    static const LevelPlanes<256> levels(q::iq2xxs_grid, iq2_level);
    // Eight qwords a row: four indices, then the signs and the scale.
    const Zmm first = load_zmm(a.qs), second = load_zmm(b.qs);
    const Zmm index = both_rows(_mm512_cvtepi64_epi32(first), _mm512_cvtepi64_epi32(second));
    const auto signs_of = [&](const Zmm& row, int i) {
      return GemvIQ3_XXS::tail_signs(_mm512_cvtepi64_epi32(_mm512_srli_epi64(row, 32)), scales[i]);
    };
    return {look_up<256>(levels.plane[0], index, 0), look_up<256>(levels.plane[1], index, 0),
            both_rows(signs_of(first, 0), signs_of(second, 1))};
  }
  STRATA_INLINE void load_entries(const Stored& a, const Stored& b, EntryPair& two) {
    __m256i scales[2];
    entry_codes(levels_of(a, b, scales), two);
    const auto words = [&](int i) { return scales_twice(_mm256_castsi256_si128(scales[i])); };
    two.scales = both_rows(words(0), words(1));
  }
  STRATA_INLINE void load_two(const Stored& a, const Stored& b, IntegerRow* rows) {
    __m256i scales[2];
    entry_rows(levels_of(a, b, scales), rows);
    rows[0].scales = scales[0];
    rows[1].scales = scales[1];
  }
};

// IQ1: entries of eight values -1, 0 or 1, as levels 0 to 2, and a delta of an eighth for each
// entry. In eighths and 16 more, so that no code is negative: 8 * level + 8 and 1 more or less.
struct TernaryEntries {
  Zmm low, high;    // level bits in two planes, of two blocks
  __mmask64 minus;  // the sign of delta
};
STRATA_INLINE const LevelPlanes<2048>& ternary_planes() {
  static const LevelPlanes<2048> levels(
      q::iq1s_grid, [](std::uint8_t value) { return static_cast<std::uint8_t>(value + 1u); });
  return levels;
}
STRATA_INLINE TernaryEntries ternary_entries(const Zmm& index, const Zmm& top, __mmask64 minus) {
  const LevelPlanes<2048>& levels = ternary_planes();
  const __mmask64 high[3] = {_mm512_test_epi8_mask(top, every_byte(1)),
                             _mm512_test_epi8_mask(top, every_byte(2)),
                             _mm512_test_epi8_mask(top, every_byte(4))};
  return {look_up_long<2048>(levels.plane[0], index, high),
          look_up_long<2048>(levels.plane[1], index, high), minus};
}
STRATA_INLINE void ternary_codes(const TernaryEntries& entries, EntryPair& two) {
  const Zmm delta = _mm512_mask_blend_epi8(entries.minus, every_byte(9), every_byte(7));
  for (int half = 0; half < 2; ++half) {
    const Zmm& plane = half == 0 ? entries.low : entries.high;
    // Two bits of each byte to places 3 and 4.
    const Zmm moved[4] = {_mm512_slli_epi16(plane, 3), _mm512_slli_epi16(plane, 1),
                          _mm512_srli_epi16(plane, 1), _mm512_srli_epi16(plane, 3)};
    for (int v = 0; v < 4; ++v)
      two.codes[4 * half + v] =
          _mm512_add_epi8(_mm512_and_si512(moved[v], every_byte(0x18)), delta);
  }
}
STRATA_INLINE void ternary_rows(const TernaryEntries& entries, IntegerRow* rows) {
  alignas(64) static constexpr Permutation eights = [] {
    Permutation table{};
    for (std::size_t i = 0; i < 64; ++i) table[i] = static_cast<std::uint8_t>(8 * (i % 4));
    return table;
  }();
  expand_two(entries.low, entries.high, eights, rows);
  for (int w = 0; w < 8; ++w) {
    const auto minus = static_cast<__mmask8>(entries.minus >> (8 * w));
    Zmm& codes = rows[w / 4].codes[w % 4];
    codes = _mm512_add_epi8(codes, _mm512_mask_blend_epi64(minus, every_byte(9), every_byte(7)));
  }
}

struct GemvIQ1_S : IntegerFormat<q::BlockIQ1_S, kInOrder, 32, 16> {
  static constexpr float factor = 0.125f;
  // A word for four entries: three bits of each index, three of the scale, the sign of delta.
  STRATA_INLINE TernaryEntries entries_of(const Stored& a, const Stored& b, __m128i* scales) {
    const auto words_of = [](const q::Byte* qh) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(qh));
    };
    const __m128i words[2] = {words_of(a.qh), words_of(b.qh)};
    for (int i = 0; i < 2; ++i)
      scales[i] = _mm_or_si128(_mm_and_si128(_mm_srli_epi16(words[i], 11), _mm_set1_epi16(14)),
                               _mm_set1_epi16(1));
    const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(words[0]), words[1], 1);
    const Zmm top = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x1916'1310'0906'0300ll),
                                                 _mm512_cvtepu32_epi64(both));
    const std::uint64_t minus =
        _pdep_u64(static_cast<std::uint32_t>(_mm256_movepi16_mask(both)), 0x1111'1111'1111'1111ull);
    return ternary_entries(both_rows(a.qs, b.qs), top, minus * 15);
  }
  STRATA_INLINE void load_entries(const Stored& a, const Stored& b, EntryPair& two) {
    __m128i scales[2];
    ternary_codes(entries_of(a, b, scales), two);
    two.scales = both_rows(scales_twice(scales[0]), scales_twice(scales[1]));
  }
  STRATA_INLINE void load_two(const Stored& a, const Stored& b, IntegerRow* rows) {
    __m128i scales[2];
    ternary_rows(entries_of(a, b, scales), rows);
    for (int i = 0; i < 2; ++i) rows[i].scales = _mm256_zextsi128_si256(scales[i]);
  }
};

struct GemvIQ1_M : IntegerFormat<q::BlockIQ1_M, kInOrder, 16, 16> {
  static constexpr float factor = 0.125f;
  // d lies in the top four bits of the four scale words.
  STRATA_INLINE void half_of(const Stored& b, std::uint16_t& d) {
    d = static_cast<std::uint16_t>(_pext_u64(load_u64(b.scales), 0xf000'f000'f000'f000ull));
  }
  // A nibble for each entry: three bits of its index and the sign of delta.
  STRATA_INLINE TernaryEntries entries_of(const Stored& a, const Stored& b) {
    const auto nibbles_of = [](const q::Byte* qh) {
      const __m256i bytes =
          _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(qh)));
      return _mm256_or_si256(bytes, _mm256_slli_epi16(bytes, 4));
    };
    const Zmm top = both_rows(nibbles_of(a.qh), nibbles_of(b.qh));
    return ternary_entries(both_rows(a.qs, b.qs), top, _mm512_test_epi8_mask(top, every_byte(8)));
  }
  // Three bits for 16 values, four to a word.
  STRATA_INLINE __m256i scales_of(const Stored& b) {
    const __m256i words = _mm256_permutexvar_epi16(
        _mm256_setr_epi16(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
        _mm256_castsi128_si256(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b.scales))));
    const __m256i each = _mm256_and_si256(
        _mm256_srlv_epi16(words, _mm256_setr_epi16(0, 3, 6, 9, 0, 3, 6, 9, 0, 3, 6, 9, 0, 3, 6, 9)),
        _mm256_set1_epi16(7));
    return _mm256_or_si256(_mm256_add_epi16(each, each), _mm256_set1_epi16(1));
  }
  STRATA_INLINE void load_entries(const Stored& a, const Stored& b, EntryPair& two) {
    ternary_codes(entries_of(a, b), two);
    two.scales = both_rows(scales_of(a), scales_of(b));
  }
  STRATA_INLINE void load_two(const Stored& a, const Stored& b, IntegerRow* rows) {
    ternary_rows(entries_of(a, b), rows);
    rows[0].scales = scales_of(a);
    rows[1].scales = scales_of(b);
  }
};

// Which 16-bit scale belongs to each pair of codes.
template <const CodeOrder& Order, std::size_t Group>
struct ScaleIndex {
  struct Table {
    alignas(64) std::array<std::array<std::uint16_t, 32>, 4> of{};
  };
  static constexpr Table table = [] {
    Table t;
    for (std::size_t j = 0; j < 4; ++j)
      for (std::size_t i = 0; i < 32; ++i)
        t.of[j][i] = static_cast<std::uint16_t>(Order[64 * j + 2 * i] / Group);
    return t;
  }();
};

// 256 activations for a format.
struct alignas(64) IntegerInput {
  Zmm values[8];  // four; of formats with entries eight of a first block for itself and the second
  __m256i sums;   // 16-bit, one a group; of formats with entries one for 16
  float scale = 0;
};

// 256 activations of each of two blocks as EntryPair has the codes.
STRATA_INLINE void entry_inputs(const std::int8_t* first, const std::int8_t* second, Zmm* out) {
  alignas(64) static constexpr Permutation eighths = [] {
    Permutation p{};
    for (std::size_t i = 0; i < 64; ++i) p[i] = static_cast<std::uint8_t>(8 * (i % 8) + i / 8);
    return p;
  }();
  alignas(64) std::uint64_t words[8][8];  // values v of eight entries
  for (std::size_t i = 0; i < 8; ++i) {
    const Zmm v = load_zmm((i < 4 ? first : second) + 64 * (i % 4));
    _mm512_store_si512(words[i], _mm512_permutexvar_epi8(load_zmm(eighths.data()), v));
  }
  const auto word = [&](std::size_t i, std::size_t v) {
    return static_cast<long long>(words[i][v]);
  };
  for (std::size_t v = 0; v < 8; ++v)
    out[v] = _mm512_setr_epi64(word(0, v), word(1, v), word(2, v), word(3, v), word(4, v),
                               word(5, v), word(6, v), word(7, v));
}

template <class F>
constexpr bool kHasEntries = requires { F::load_entries; };

// The block at `at` of `width` activations.
template <class F>
STRATA_INLINE void integer_input(const QuantizedRow& x, std::size_t at, std::size_t width,
                                 IntegerInput& in) {
  in.scale = x.scales[at / kBlock];
  if constexpr (kHasEntries<F>) {
    if (at / kBlock % 2 == 0)
      entry_inputs(x.values + at, x.values + (at + kBlock < width ? at + kBlock : at), in.values);
  } else {
    reorder<F::order>(x.values + at, in.values);
  }
  if constexpr (kHasEntries<F> || F::group == 16) {
    in.sums = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x.sums16 + at / 16));
  } else {
    in.sums = _mm256_zextsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(x.sums32 + at / 32)));
  }
}

// A strip of sixteen rows: their sums, and their scales.
template <class F, std::size_t Tokens>
struct IntegerTile {
  using Stored = typename F::Stored;
  static constexpr std::size_t blocks = kStripBlocks / Tokens, bytes = sizeof(Stored);
  // Sixteen parts of a sum; eight of formats with minima, and eight of those; eight of formats with
  // entries, and eight of the next block's.
  Zmm sums[blocks][Tokens][kLanes];
  alignas(64) std::uint16_t d[blocks][kLanes], dmin[F::minima ? blocks : 1][kLanes];

  // Blocks b and b + 1 of row r, or b alone.
  template <std::size_t, std::size_t Second>
  STRATA_METHOD void take(std::size_t r, std::size_t b, const std::byte* at, const IntegerInput* in,
                          std::size_t stride) {
    const auto* block = reinterpret_cast<const Stored*>(at);
    if constexpr (kHasEntries<F>) {
      EntryPair two;
      F::load_entries(block[0], block[Second > 0 ? 1 : 0], two);
      F::half_of(block[0], d[b][r]);
      if constexpr (Second > 0) F::half_of(block[1], d[b + 1][r]);
      for (std::size_t t = 0; t < Tokens; ++t) {
        const IntegerInput* input = in + t * stride;
        Zmm sum = _mm512_setzero_si512();
        if constexpr (F::zero != 0) {
          static_assert(F::zero == 16);
          const Zmm sums16 = both_rows(input[0].sums, input[Second > 0 ? 1 : 0].sums);
          sum = _mm512_sub_epi32(sum, _mm512_slli_epi32(_mm512_madd_epi16(two.scales, sums16), 4));
        }
        for (std::size_t v = 0; v < 8; ++v) {
          Zmm x = input->values[v];
          if constexpr (F::signs)
            x = _mm512_mask_sub_epi8(x, two.minus[v], _mm512_setzero_si512(), x);
          sum = _mm512_dpwssd_epi32(sum, _mm512_maddubs_epi16(two.codes[v], x), two.scales);
        }
        sums[b][t][r] = sum;
      }
    } else {
      IntegerRow row;
      F::load(block[0], row);
      keep(r, b, block[0], row, in, stride);
      if constexpr (Second > 0) {
        F::load(block[1], row);
        keep(r, b + 1, block[1], row, in + 1, stride);
      }
    }
  }
  STRATA_METHOD void keep(std::size_t r, std::size_t b, const Stored& block, const IntegerRow& row,
                          const IntegerInput* in, std::size_t stride) {
    F::half_of(block, d[b][r]);
    if constexpr (F::minima) std::memcpy(&dmin[b][r], block.dmin, 2);
    // Values v of entries of four: a dword of four is inputs of one group, in all vectors.
    constexpr bool entries = &F::order == &kQuadOrder;
    Zmm scales[4];
    if constexpr (entries) {
      static_assert(F::group == 32 && F::signs);
      scales[0] = _mm512_permutexvar_epi32(
          _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
          _mm512_cvtepi16_epi32(row.scales));
    } else {
      for (std::size_t j = 0; j < 4; ++j)
        scales[j] =
            _mm512_permutexvar_epi16(load_zmm(ScaleIndex<F::order, F::group>::table.of[j].data()),
                                     _mm512_castsi256_si512(row.scales));
    }
    for (std::size_t t = 0; t < Tokens; ++t) {
      const IntegerInput& input = in[t * stride];
      Zmm sum = _mm512_setzero_si512();
      if constexpr (F::zero != 0) {
        constexpr int shift = F::zero == 32 ? 5 : 2;
        static_assert(F::zero == 1 << shift);
        const __m256i zeros = _mm256_slli_epi32(_mm256_madd_epi16(row.scales, input.sums), shift);
        sum = _mm512_sub_epi32(sum, _mm512_zextsi256_si512(zeros));
      }
      for (std::size_t j = 0; j < 4; ++j) {
        Zmm x = input.values[j];
        if constexpr (F::signs)
          x = _mm512_mask_sub_epi8(x, row.minus[j], _mm512_setzero_si512(), x);
        if constexpr (entries) {
          sum = _mm512_dpbusd_epi32(sum, row.codes[j], x);
        } else {
          sum = _mm512_dpwssd_epi32(sum, _mm512_maddubs_epi16(row.codes[j], x), scales[j]);
        }
      }
      if constexpr (entries) sum = _mm512_mullo_epi32(sum, scales[0]);
      if constexpr (F::minima) {
        const __m256i eight =
            _mm256_add_epi32(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
        sum = _mm512_inserti64x4(_mm512_castsi256_si512(eight),
                                 _mm256_madd_epi16(row.mins, input.sums), 1);
      }
      sums[b][t][r] = sum;
    }
  }
  // The same blocks of all rows.
  STRATA_METHOD void add(std::size_t b, std::size_t groups, const IntegerInput* in,
                         std::size_t stride, Lanes* acc) {
    const auto floats = [](const std::uint16_t* halves) {
      return (Lanes)_mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(halves)));
    };
    const auto fused = [](const Zmm& whole, const Lanes& factor, Lanes& sum) {
      sum = fma_lanes(to_float((IntLanes)whole), factor, sum);
    };
    const auto scale_of = [&](std::size_t block) {
      const Lanes scale = floats(d[block]);
      return F::factor == 1.0f ? scale : scale * all(F::factor);
    };
    if constexpr (kHasEntries<F>) {
      const Lanes first = scale_of(b), second = scale_of(b + 1);
      for (std::size_t t = 0; t < Tokens; ++t) {
        const IntegerInput* x = in + t * stride;
        Zmm sum, next;
        sum_both(sums[b][t], sum, next);
        fused(sum, first * all(x[0].scale), acc[t]);
        if (groups > 8) fused(next, second * all(x[1].scale), acc[t]);
      }
    } else {
      for (std::size_t i = 0; 8 * i < groups; ++i) {
        const Lanes scale = scale_of(b + i);
        for (std::size_t t = 0; t < Tokens; ++t) {
          const Lanes dx = all(in[t * stride + i].scale);
          if constexpr (F::minima) {
            Zmm sum, low;
            sum_both(sums[b + i][t], sum, low);
            fused(sum, scale * dx, acc[t]);
            fused(low, -(floats(dmin[b + i]) * dx), acc[t]);
          } else {
            fused(sum_each(sums[b + i][t]), scale * dx, acc[t]);
          }
        }
      }
    }
  }
};
