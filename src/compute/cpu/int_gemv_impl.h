// Products of rows with one or a few quantised activations, for decoding: a row's codes stay in
// registers, bytes lie along the row, and only the integers of sixteen rows are turned so that rows
// lie in the lanes. Integers are exact in any order, and the float sums are those of int_blocks.h,
// so the results are the panels' bit for bit. For AVX-512 with byte permutations.

using Zmm = __m512i;
using Permutation = std::array<std::uint8_t, 64>;

STRATA_INLINE Zmm load_zmm(const void* p) {
  return _mm512_loadu_si512(p);
}
STRATA_INLINE Zmm both_halves(const void* p) {  // 32 bytes twice
  return _mm512_broadcast_i64x4(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
STRATA_INLINE Zmm every_byte(int x) {
  return _mm512_set1_epi8(static_cast<char>(x));
}
STRATA_INLINE Zmm low_nibbles(const Zmm& bytes) {
  return _mm512_and_si512(bytes, every_byte(15));
}
STRATA_INLINE Zmm high_nibbles(const Zmm& bytes) {
  return _mm512_and_si512(_mm512_srli_epi16(bytes, 4), every_byte(15));
}
// a & mask | b
STRATA_INLINE Zmm masked_or(const Zmm& a, const Zmm& mask, const Zmm& b) {
  return _mm512_ternarylogic_epi64(a, mask, b, 0xea);
}
// Sums of 16 vectors of 16 dwords, vector r in lane r.
STRATA_INLINE Zmm sum_each(const Zmm* v, std::size_t stride) {
  Zmm u[4];
  for (std::size_t q = 0; q < 4; ++q) {
    const Zmm a = v[4 * q * stride], b = v[(4 * q + 1) * stride], c = v[(4 * q + 2) * stride],
              d = v[(4 * q + 3) * stride];
    const Zmm ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const Zmm cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    u[q] = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  }
  const auto halves = [](const Zmm& a, const Zmm& b) {
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
  };
  return halves(halves(u[0], u[1]), halves(u[2], u[3]));
}

// The order in which a format's codes come out of its registers: value at byte i of vector j.
using CodeOrder = std::array<std::uint8_t, kBlock>;
template <class Value>
static constexpr CodeOrder code_order(const Value& value) {
  CodeOrder order{};
  for (std::size_t p = 0; p < kBlock; ++p) order[p] = static_cast<std::uint8_t>(value(p));
  return order;
}
constexpr CodeOrder kInOrder = code_order([](std::size_t p) { return p; });
// Low nibbles of 16 bytes are a group's first half, high nibbles its second: vectors 0 and 1 hold
// groups 0 to 3, vectors 2 and 3 the others.
constexpr CodeOrder kSplitOrder = code_order([](std::size_t p) {
  const std::size_t vector = p / 64, group = p / 16 % 4 + 4 * (vector / 2);
  return 32 * group + 16 * (vector % 2) + p % 16;
});
// Q4_K, Q5_K: 64 bytes hold two runs of 32 low and 32 high nibbles.
constexpr CodeOrder kPairOrder = code_order([](std::size_t p) {
  const std::size_t vector = p / 64, byte = p % 64;
  return 128 * (vector / 2) + 64 * (byte / 32) + 32 * (vector % 2) + byte % 32;
});
// Q2_K, Q3_K: vector l holds the bit pairs l of both halves.
constexpr CodeOrder kBitPairOrder =
    code_order([](std::size_t p) { return 128 * (p % 64 / 32) + 32 * (p / 64) + p % 32; });
// Q2_0: byte i of a block holds values 4 i to 4 i + 3.
constexpr CodeOrder kQuadOrder =
    code_order([](std::size_t p) { return 64 * (p % 64 / 16) + 4 * (p % 16) + p / 64; });

// Where the bytes of output vector j of an order come from: two of the four input vectors.
struct OrderSource {
  std::uint8_t first = 0, second = 0;
  alignas(64) Permutation index{};
};
static constexpr std::array<OrderSource, 4> order_sources(const CodeOrder& order) {
  std::array<OrderSource, 4> sources{};
  for (std::size_t j = 0; j < 4; ++j) {
    OrderSource& s = sources[j];
    s.first = order[64 * j] / 64;
    s.second = s.first;
    for (std::size_t i = 0; i < 64; ++i)
      if (order[64 * j + i] / 64 != s.first) s.second = order[64 * j + i] / 64;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint8_t value = order[64 * j + i];
      const bool second = value / 64 != s.first;
      s.index[i] = static_cast<std::uint8_t>(value % 64 + (second ? 64 : 0));
    }
  }
  return sources;
}
template <const CodeOrder& Order>
struct OrderTable {
  static constexpr std::array<OrderSource, 4> sources = order_sources(Order);
};

// 256 activations in a format's order.
template <const CodeOrder& Order>
STRATA_INLINE void reorder(const std::int8_t* values, Zmm* out) {
  if constexpr (&Order == &kQuadOrder) {
    // Every fourth byte of 64 to a 128-bit lane, then the lanes of four vectors turned.
    alignas(64) static constexpr Permutation fourths = [] {
      Permutation p{};
      for (std::size_t i = 0; i < 64; ++i) p[i] = static_cast<std::uint8_t>(4 * (i % 16) + i / 16);
      return p;
    }();
    Zmm v[4];
    for (int i = 0; i < 4; ++i)
      v[i] = _mm512_permutexvar_epi8(load_zmm(fourths.data()), load_zmm(values + 64 * i));
    const Zmm a = _mm512_shuffle_i32x4(v[0], v[1], 0x88),
              b = _mm512_shuffle_i32x4(v[2], v[3], 0x88);
    const Zmm c = _mm512_shuffle_i32x4(v[0], v[1], 0xdd),
              d = _mm512_shuffle_i32x4(v[2], v[3], 0xdd);
    out[0] = _mm512_shuffle_i32x4(a, b, 0x88);
    out[1] = _mm512_shuffle_i32x4(c, d, 0x88);
    out[2] = _mm512_shuffle_i32x4(a, b, 0xdd);
    out[3] = _mm512_shuffle_i32x4(c, d, 0xdd);
    return;
  }
  for (std::size_t j = 0; j < 4; ++j) {
    const OrderSource& s = OrderTable<Order>::sources[j];
    out[j] = _mm512_permutex2var_epi8(load_zmm(values + 64 * s.first), load_zmm(s.index.data()),
                                      load_zmm(values + 64 * s.second));
  }
}

// --- formats with integer scales ---------------------------------------------------------------

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

STRATA_INLINE void bit_pairs(const Zmm& bytes, Zmm* codes) {
  const Zmm three = every_byte(3);
  codes[0] = _mm512_and_si512(bytes, three);
  codes[1] = _mm512_and_si512(_mm512_srli_epi16(bytes, 2), three);
  codes[2] = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), three);
  codes[3] = _mm512_and_si512(_mm512_srli_epi16(bytes, 6), three);
}

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

// One block of 16 rows with `Tokens` inputs.
template <class F, std::size_t Tokens>
STRATA_INLINE void integer_rows(const std::byte* const* rows, std::size_t offset,
                                const std::byte* next, const IntegerInput* const* in, Lanes* acc) {
  using Stored = typename F::Stored;
  Zmm part[kLanes][Tokens], low[kLanes][Tokens];
  alignas(64) std::uint16_t halves[2][kLanes];
  Zmm scale_index[4];
  for (std::size_t j = 0; j < 4; ++j)
    scale_index[j] = load_zmm(ScaleIndex<F::order, F::group>::table.of[j].data());
  const auto use = [&](std::size_t r, const Stored& block, const IntegerRow& row) {
    std::memcpy(&halves[0][r], block.d, 2);
    if constexpr (F::minima) std::memcpy(&halves[1][r], block.dmin, 2);
    for (std::size_t t = 0; t < Tokens; ++t) {
      Zmm sum = _mm512_setzero_si512();
      if constexpr (F::zero != 0) {
        constexpr int shift = F::zero == 32 ? 5 : 2;
        static_assert(F::zero == 1 << shift);
        const __m256i zeros = _mm256_slli_epi32(_mm256_madd_epi16(row.scales, in[t]->sums), shift);
        sum = _mm512_sub_epi32(sum, _mm512_zextsi256_si512(zeros));
      }
      for (std::size_t j = 0; j < 4; ++j) {
        Zmm x = in[t]->values[j];
        if constexpr (F::signs)
          x = _mm512_mask_sub_epi8(x, row.minus[j], _mm512_setzero_si512(), x);
        const Zmm scales =
            _mm512_permutexvar_epi16(scale_index[j], _mm512_castsi256_si512(row.scales));
        sum = _mm512_dpwssd_epi32(sum, _mm512_maddubs_epi16(row.codes[j], x), scales);
      }
      part[r][t] = sum;
      if constexpr (F::minima)
        low[r][t] = _mm512_zextsi256_si512(_mm256_madd_epi16(row.mins, in[t]->sums));
    }
  };
  for (std::size_t r = 0; r < kLanes; r += 2) {
    const auto& first = *reinterpret_cast<const Stored*>(rows[r] + offset);
    const auto& second = *reinterpret_cast<const Stored*>(rows[r + 1] + offset);
    prefetch_run(next + r * sizeof(Stored), 2 * sizeof(Stored));
    if constexpr (requires { F::load_two; }) {
      IntegerRow two[2];
      F::load_two(first, second, two);
      use(r, first, two[0]);
      use(r + 1, second, two[1]);
    } else {
      IntegerRow row;
      F::load(first, row);
      use(r, first, row);
      F::load(second, row);
      use(r + 1, second, row);
    }
  }
  const auto floats = [&](std::size_t i) {
    return (Lanes)_mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(halves[i])));
  };
  Lanes d = floats(0);
  if constexpr (F::factor != 1.0f) d = d * all(F::factor);
  for (std::size_t t = 0; t < Tokens; ++t) {
    const Lanes dx = all(in[t]->scale);
    acc[t] = fma_lanes(to_float((IntLanes)sum_each(&part[0][t], Tokens)), d * dx, acc[t]);
    if constexpr (F::minima)
      acc[t] =
          fma_lanes(to_float((IntLanes)sum_each(&low[0][t], Tokens)), -(floats(1) * dx), acc[t]);
  }
}

// --- formats with a float scale for each 32 or 64 values ---------------------------------------

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
  struct Row {
    Zmm codes[8];
    __m128i d;
  };
  STRATA_INLINE void load(const q::Byte* block, Row& row) {
    alignas(16) std::uint16_t d[8];
    for (std::size_t g = 0; g < 8; ++g) {
      const q::Byte* group = block + 34 * g;
      row.codes[g] =
          _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(group + 2)));
      std::memcpy(&d[g], group, 2);
    }
    row.d = _mm_load_si128(reinterpret_cast<const __m128i*>(d));
  }
};

template <class F>
STRATA_INLINE void float_input(const QuantizedRow& x, std::size_t at, FloatInput& in) {
  if constexpr (F::words) {
    for (std::size_t g = 0; g < 8; ++g) in.values[g] = load_zmm(x.words + at + 32 * g);
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
  if constexpr (F::words) {
    // Vector g: group g.
    const auto eights = [&](const Row& row) {
      Zmm u[2];
      for (int i = 0; i < 2; ++i) {
        Zmm v[4];
        for (int j = 0; j < 4; ++j) v[j] = dot(row, none, 4 * i + j);
        const Zmm p = add(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
        const Zmm q = add(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
        u[i] = add(_mm512_unpacklo_epi64(p, q), _mm512_unpackhi_epi64(p, q));
      }
      return add(_mm512_shuffle_i32x4(u[0], u[1], 0x88), _mm512_shuffle_i32x4(u[0], u[1], 0xdd));
    };
    const Zmm ea = eights(a), eb = eights(b);
    return add(_mm512_shuffle_i32x4(ea, eb, 0x88), _mm512_shuffle_i32x4(ea, eb, 0xdd));
  } else if constexpr (&F::order == &kSplitOrder) {
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
      for (int j = 0; j < 4; ++j) v[j] = dot(row, none, j);
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

// Halves of 16 rows of eight groups become eight vectors of floats.
STRATA_INLINE void turn_halves(const std::uint16_t* halves, Lanes* out) {
  Zmm z[4];
  for (int i = 0; i < 4; ++i) z[i] = load_zmm(halves + 32 * i);
  for (int pair = 0; pair < 4; ++pair) {
    alignas(64) std::uint16_t index[32];
    for (int i = 0; i < 32; ++i) {
      const int row = i % 8, group = 2 * pair + i / 16;
      index[i] = static_cast<std::uint16_t>(8 * (row % 4) + group + (row / 4 ? 32 : 0));
    }
    const Zmm place = load_zmm(index);
    const Zmm first = _mm512_permutex2var_epi16(z[0], place, z[1]);
    const Zmm second = _mm512_permutex2var_epi16(z[2], place, z[3]);
    const Zmm both = _mm512_mask_blend_epi16(0xff00ff00u, first, second);
    out[2 * pair] = (Lanes)_mm512_cvtph_ps(_mm512_castsi512_si256(both));
    out[2 * pair + 1] = (Lanes)_mm512_cvtph_ps(_mm512_extracti64x4_epi64(both, 1));
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

// --- rows of a matrix ---------------------------------------------------------------------------

// All blocks of 16 rows; rows behind the last are that row again and are not stored.
template <class F, std::size_t Tokens, class Input>
static void gemv_lanes(const std::byte* const* rows, [[maybe_unused]] std::size_t row_bytes,
                       std::size_t width, const std::byte* next,
                       [[maybe_unused]] const std::byte* end, const Input* in, std::size_t stride,
                       float* const* y, std::size_t count) {
  Lanes acc[Tokens];
  for (std::size_t t = 0; t < Tokens; ++t) acc[t] = all(0.0f);
  std::size_t offset = 0;
  for (std::size_t at = 0, b = 0; at < width; at += kBlock, ++b) {
    const Input* inputs[Tokens];
    for (std::size_t t = 0; t < Tokens; ++t) inputs[t] = in + t * stride + b;
    if constexpr (std::is_same_v<Input, IntegerInput>) {
      integer_rows<F, Tokens>(rows, offset, next + kLanes * offset, inputs, acc);
      offset += sizeof(typename F::Stored);
    } else {
      if (width - at >= kBlock) {
        float_rows<F, Tokens>(rows, offset, 8, next + kLanes * offset, inputs, acc);
      } else {
        // The rows' ends. What lies behind a row counts for nothing, but it must be there to load.
        alignas(64) std::byte copies[kLanes][F::bytes];
        const std::byte* ends[kLanes];
        for (std::size_t r = 0; r < kLanes; ++r) {
          ends[r] = rows[r] + offset;
          if (ends[r] + F::bytes <= end) continue;
          std::memcpy(copies[r], ends[r], row_bytes - offset);
          std::memset(copies[r] + (row_bytes - offset), 0, F::bytes - (row_bytes - offset));
          ends[r] = copies[r];
        }
        float_rows<F, Tokens>(ends, 0, (width - at) / 32, next + kLanes * offset, inputs, acc);
      }
      offset += F::bytes;
    }
  }
  for (std::size_t t = 0; t < Tokens; ++t) store_run(y[t], acc[t], count);
}

template <class F, class Input>
static void gemv(const std::byte* matrix, std::size_t row_bytes, std::size_t row_count,
                 std::size_t width, const QuantizedRow* x, float* const* y, std::size_t tokens,
                 const std::byte* after) {
  constexpr std::size_t most = 2;
  thread_local std::vector<Input> inputs;
  const std::size_t blocks = (width + kBlock - 1) / kBlock;
  inputs.resize(tokens * blocks);
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t b = 0; b < blocks; ++b) {
      if constexpr (std::is_same_v<Input, IntegerInput>) {
        integer_input<F>(x[t], b * kBlock, inputs[t * blocks + b]);
      } else {
        float_input<F>(x[t], b * kBlock, inputs[t * blocks + b]);
      }
    }
  const std::byte* end = matrix + row_count * row_bytes;
  for (std::size_t row = 0; row < row_count; row += kLanes) {
    const std::size_t count = std::min(kLanes, row_count - row);
    const std::byte* rows[kLanes];
    for (std::size_t r = 0; r < kLanes; ++r)
      rows[r] = matrix + (row + std::min(r, count - 1)) * row_bytes;
    const std::byte* next = row + kLanes < row_count ? rows[0] + kLanes * row_bytes : after;
    for (std::size_t t = 0; t < tokens;) {
      float* out[most];
      const std::size_t n = std::min(most, tokens - t);
      for (std::size_t i = 0; i < n; ++i) out[i] = y[t + i] + row;
      const Input* in = inputs.data() + t * blocks;
      if (n == 2) {
        gemv_lanes<F, 2>(rows, row_bytes, width, next, end, in, blocks, out, count);
      } else {
        gemv_lanes<F, 1>(rows, row_bytes, width, next, end, in, blocks, out, count);
      }
      t += n;
    }
  }
}

using Gemv = void (*)(const std::byte* matrix, std::size_t row_bytes, std::size_t row_count,
                      std::size_t width, const QuantizedRow* x, float* const* y, std::size_t tokens,
                      const std::byte* after);

// nullptr for formats whose rows go through panels.
static Gemv gemv_of(const IntFormat& format) {
  if (format.kind == BlockKind::group_words) return gemv<GemvWords, FloatInput>;
  switch (format.type) {
    case TensorType::Q4_0:
      return gemv<GemvNibbles<18, false, false, 8>, FloatInput>;
    case TensorType::Q4_1:
      return gemv<GemvNibbles<20, true, false, 0>, FloatInput>;
    case TensorType::Q5_0:
      return gemv<GemvNibbles<22, false, true, 16>, FloatInput>;
    case TensorType::Q5_1:
      return gemv<GemvNibbles<24, true, true, 0>, FloatInput>;
    case TensorType::Q8_0:
      return gemv<GemvQ8_0, FloatInput>;
    case TensorType::IQ4_NL:
      return gemv<GemvIQ4_NL, FloatInput>;
    case TensorType::Q2_0:
      return gemv<GemvQ2_0, FloatInput>;
    case TensorType::Q2_K:
      return gemv<GemvQ2_K, IntegerInput>;
    case TensorType::Q3_K:
      return gemv<GemvQ3_K, IntegerInput>;
    case TensorType::Q4_K:
      return gemv<GemvQ4_K, IntegerInput>;
    case TensorType::Q5_K:
      return gemv<GemvQ5_K, IntegerInput>;
    case TensorType::Q6_K:
      return gemv<GemvQ6_K, IntegerInput>;
    case TensorType::IQ4_XS:
      return gemv<GemvIQ4_XS, IntegerInput>;
    case TensorType::IQ3_S:
      return gemv<GemvIQ3_S, IntegerInput>;
    case TensorType::IQ3_XXS:
      return gemv<GemvIQ3_XXS, IntegerInput>;
    case TensorType::IQ2_XXS:
      return gemv<GemvIQ2_XXS, IntegerInput>;
    case TensorType::IQ2_XS:
      return gemv<GemvIQ2_XS, IntegerInput>;
    case TensorType::IQ2_S:
      return gemv<GemvIQ2_S, IntegerInput>;
    case TensorType::IQ1_S:
      return gemv<GemvIQ1_S, IntegerInput>;
    default:
      return nullptr;
  }
}
