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

// IQ3_S: entries of four odd numbers below 16, as nibbles in two planes of bytes.
struct GemvIQ3_S : IntegerFormat<q::BlockIQ3_S, kInOrder, 32> {
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
    const Zmm first = look_up<512>(nibbles.plane[0], index, ninth);
    const Zmm second = look_up<512>(nibbles.plane[1], index, ninth);
    const Zmm plane[4] = {low_nibbles(first), high_nibbles(first), low_nibbles(second),
                          high_nibbles(second)};
    interleave4(plane, row.codes);
    load_signs(b.signs, row.minus);
    row.scales = odd_scales(spread_nibbles(q::load_u32(b.scales)));
  }
};

// Sign bytes of seven-bit indices: the eighth bit makes the number of ones even. As a product of
// bit matrices (row 7 - i of the matrix makes bit i).
STRATA_INLINE __m256i even_signs(const __m256i& index) {
  const __m256i matrix = _mm256_set1_epi64x(0x01020408102040'7fll);
  return _mm256_gf2p8affine_epi64_epi8(index, matrix, 0);
}

struct GemvIQ3_XXS : IntegerFormat<q::BlockIQ3_XXS, kInOrder, 32> {
  static constexpr bool signs = true;
  static constexpr float factor = 0.25f;
  STRATA_INLINE void load(const Stored& b, IntegerRow& row) {
    static const Planes<256, 4> planes(q::iq3xxs_grid);
    const Zmm index = load_zmm(b.qs);
    Zmm plane[4];
    for (int p = 0; p < 4; ++p) plane[p] = look_up<256>(planes.plane[p].data(), index, 0);
    interleave4(plane, row.codes);
    tail_signs(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b.scales_signs)), row);
  }
  // Eight words of four 7-bit sign indices and a 4-bit scale.
  STRATA_INLINE void tail_signs(const __m256i& tail, IntegerRow& row) {
    const __m256i doubled = _mm256_srli_epi32(tail, 27);  // twice the scale, and a bit of an index
    const __m128i scales = _mm256_cvtepi32_epi16(_mm256_or_si256(doubled, _mm256_set1_epi32(1)));
    row.scales = _mm256_zextsi128_si256(scales);
    // Index l of a word starts at bit 7 l: one byte each.
    const __m256i shifts = _mm256_set1_epi64x(0x352e'2720'150e'0700ll);
    const __m256i bytes =
        _mm256_and_si256(_mm256_multishift_epi64_epi8(shifts, tail), _mm256_set1_epi8(127));
    alignas(32) std::uint64_t words[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(words), even_signs(bytes));
    load_signs(words, row.minus);
  }
};

// IQ2: entries of eight values out of three (8, 25, 43), as two bits each in two planes of bytes.
template <std::size_t Entries>
struct LevelPlanes {
  alignas(64) std::uint8_t plane[2][Entries] = {};
  template <class Grid>
  explicit LevelPlanes(const Grid& grid) {
    for (std::size_t i = 0; i < Entries; ++i)
      for (std::size_t j = 0; j < 8; ++j) {
        const std::uint64_t value = (grid[i] >> (8 * j)) & 255;
        const unsigned level = value < 16 ? 0 : value < 32 ? 1 : 2;
        std::uint8_t& byte = plane[j / 4][i];
        byte = static_cast<std::uint8_t>(byte | level << (2 * (j % 4)));
      }
  }
};
alignas(64) static constexpr Permutation kIq2Levels = [] {
  Permutation table{};
  constexpr std::uint8_t values[4] = {8, 25, 43, 0};
  for (std::size_t i = 0; i < 64; ++i) table[i] = values[i % 4];
  return table;
}();
// Eight entries, one a word from `first` on, to their 64 codes: two level bits each.
STRATA_INLINE Zmm expand_levels(const Zmm& words, int first) {
  const Zmm index = _mm512_add_epi16(_mm512_set1_epi16(static_cast<short>(first)),
                                     _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
  const Zmm shifts = _mm512_set1_epi64(0x0e0c'0a08'0604'0200ll);
  const Zmm spread = _mm512_permutexvar_epi16(index, words);  // a word to the end of each qword
  return _mm512_permutexvar_epi8(_mm512_multishift_epi64_epi8(shifts, spread),
                                 load_zmm(kIq2Levels.data()));
}
// The codes of two rows of 32 entries, given the 64 look-ups of both planes.
STRATA_INLINE void expand_two(const Zmm& low, const Zmm& high, IntegerRow* rows) {
  // 128-bit lane L of the two: words of entries 16 L .. + 7, and of the eight behind them.
  const Zmm even = _mm512_unpacklo_epi8(low, high), odd = _mm512_unpackhi_epi8(low, high);
  for (int w = 0; w < 8; ++w)
    rows[w / 4].codes[w % 4] = expand_levels(w % 2 == 0 ? even : odd, 8 * (w / 2));
}
STRATA_INLINE __m256i nibble_scales16(const q::Byte* nibbles) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(nibbles));
  const __m128i low = _mm_and_si128(bytes, _mm_set1_epi8(15));
  const __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), _mm_set1_epi8(15));
  const __m128i each = _mm_unpacklo_epi8(low, high);
  return _mm256_cvtepu8_epi16(_mm_or_si128(_mm_add_epi8(each, each), _mm_set1_epi8(1)));
}

struct GemvIQ2_XS : IntegerFormat<q::BlockIQ2_XS, kInOrder, 16> {
  static constexpr bool signs = true;
  static constexpr float factor = 0.125f;
  static constexpr Permutation every_other(std::size_t first) {
    Permutation p{};
    for (std::size_t i = 0; i < 64; ++i) p[i] = static_cast<std::uint8_t>(2 * i + first);
    return p;
  }
  STRATA_INLINE void load_two(const Stored& a, const Stored& b, IntegerRow* rows) {
    static const LevelPlanes<512> levels(q::iq2xs_grid);
    alignas(64) static constexpr Permutation low = every_other(0), high = every_other(1);
    // 64 words: nine bits of index, seven of signs.
    const Zmm first = load_zmm(a.qs), second = load_zmm(b.qs);
    const Zmm index = _mm512_permutex2var_epi8(first, load_zmm(low.data()), second);
    const Zmm rest = _mm512_permutex2var_epi8(first, load_zmm(high.data()), second);
    const std::uint64_t ninth = _mm512_test_epi8_mask(rest, every_byte(1));
    expand_two(look_up<512>(levels.plane[0], index, ninth),
               look_up<512>(levels.plane[1], index, ninth), rows);
    // As even_signs, of the upper seven bits.
    const Zmm matrix = _mm512_set1_epi64(0x0204'0810'2040'80fell);
    alignas(64) std::uint64_t words[8];
    _mm512_store_si512(words, _mm512_gf2p8affine_epi64_epi8(rest, matrix, 0));
    load_signs(words, rows[0].minus);
    load_signs(words + 4, rows[1].minus);
    rows[0].scales = nibble_scales16(a.scales);
    rows[1].scales = nibble_scales16(b.scales);
  }
};

struct GemvIQ2_XXS : IntegerFormat<q::BlockIQ2_XXS, kInOrder, 32> {
  static constexpr bool signs = true;
  static constexpr float factor = 0.125f;
  STRATA_INLINE void load_two(const Stored& a, const Stored& b, IntegerRow* rows) {
    static const LevelPlanes<256> levels(q::iq2xxs_grid);
    // Eight qwords a row: four indices, then the signs and the scale.
    const Zmm first = load_zmm(a.qs), second = load_zmm(b.qs);
    const Zmm index = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi64_epi32(first)),
                                         _mm512_cvtepi64_epi32(second), 1);
    expand_two(look_up<256>(levels.plane[0], index, 0), look_up<256>(levels.plane[1], index, 0),
               rows);
    GemvIQ3_XXS::tail_signs(_mm512_cvtepi64_epi32(_mm512_srli_epi64(first, 32)), rows[0]);
    GemvIQ3_XXS::tail_signs(_mm512_cvtepi64_epi32(_mm512_srli_epi64(second, 32)), rows[1]);
  }
};

// Formats without a way of their own: unpacked to memory, then loaded.
template <class Block, void (*unpack)(const std::byte*, std::size_t, IntBlock&), std::size_t Group,
          int Zero>
struct GemvUnpacked : IntegerFormat<Block, kInOrder, Group> {
  static constexpr bool signs = true;
  STRATA_INLINE void load(const Block& b, IntegerRow& row) {
    IntBlock block;
    unpack(reinterpret_cast<const std::byte*>(&b), 8, block);
    for (int j = 0; j < 4; ++j)
      split_sign(_mm512_sub_epi8(load_zmm(block.codes + 64 * j), every_byte(Zero)), row.codes[j],
                 row.minus[j]);
    row.scales = _mm256_load_si256(reinterpret_cast<const __m256i*>(block.scales));
  }
};
struct GemvIQ2_S : GemvUnpacked<q::BlockIQ2_S, unpack_iq2_s, 16, 128> {
  static constexpr float factor = 0.125f;
};
struct GemvIQ1_S : GemvUnpacked<q::BlockIQ1_S, unpack_iq1_s, 32, 16> {
  static constexpr float factor = 0.125f;
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
  Zmm values[4];
  __m256i sums;  // 16-bit, one a group
  float scale = 0;
};

template <class F>
STRATA_INLINE void integer_input(const QuantizedRow& x, std::size_t at, IntegerInput& in) {
  reorder<F::order>(x.values + at, in.values);
  if constexpr (F::group == 16) {
    in.sums = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x.sums16 + at / 16));
  } else {
    in.sums = _mm256_zextsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(x.sums32 + at / 32)));
  }
  in.scale = x.scales[at / kBlock];
}

// A strip of sixteen rows: their sums, and their scales.
template <class F, std::size_t Tokens>
struct IntegerTile {
  using Stored = typename F::Stored;
  static constexpr std::size_t blocks = kStripBlocks / Tokens, bytes = sizeof(Stored);
  // Sixteen parts of a sum; of formats with minima eight, and eight of those.
  Zmm sums[blocks][Tokens][kLanes];
  alignas(64) std::uint16_t d[blocks][kLanes], dmin[F::minima ? blocks : 1][kLanes];

  // Blocks b and b + 1 of row r, or b alone.
  template <std::size_t, std::size_t Second>
  STRATA_METHOD void take(std::size_t r, std::size_t b, const std::byte* at, const IntegerInput* in,
                          std::size_t stride) {
    const auto* block = reinterpret_cast<const Stored*>(at);
    if constexpr (requires { F::load_two; }) {
      IntegerRow two[2];
      F::load_two(block[0], block[Second > 0 ? 1 : 0], two);
      keep(r, b, block[0], two[0], in, stride);
      if constexpr (Second > 0) keep(r, b + 1, block[1], two[1], in + 1, stride);
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
    std::memcpy(&d[b][r], block.d, 2);
    if constexpr (F::minima) std::memcpy(&dmin[b][r], block.dmin, 2);
    Zmm scales[4];
    for (std::size_t j = 0; j < 4; ++j)
      scales[j] =
          _mm512_permutexvar_epi16(load_zmm(ScaleIndex<F::order, F::group>::table.of[j].data()),
                                   _mm512_castsi256_si512(row.scales));
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
        sum = _mm512_dpwssd_epi32(sum, _mm512_maddubs_epi16(row.codes[j], x), scales[j]);
      }
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
    for (std::size_t i = 0; 8 * i < groups; ++i) {
      Lanes scale = floats(d[b + i]);
      if constexpr (F::factor != 1.0f) scale = scale * all(F::factor);
      for (std::size_t t = 0; t < Tokens; ++t) {
        const Lanes dx = all(in[t * stride + i].scale);
        if constexpr (F::minima) {
          Zmm sum, low;
          sum_both(sums[b + i][t], sum, low);
          acc[t] = fma_lanes(to_float((IntLanes)sum), scale * dx, acc[t]);
          acc[t] = fma_lanes(to_float((IntLanes)low), -(floats(dmin[b + i]) * dx), acc[t]);
        } else {
          acc[t] = fma_lanes(to_float((IntLanes)sum_each(sums[b + i][t])), scale * dx, acc[t]);
        }
      }
    }
  }
};
