// Blocks of sixteen rows into a panel, for products of many tokens; compiled once for each
// instruction set like kernels_impl.h. The stored words of the rows are turned first, so that each
// row has a lane, and taken apart then: a turn moves packed codes, two to four times as many as
// single ones. Formats without a way of their own are unpacked row by row.

// Codes below 16 (or 10, or 4) times inputs of at most 127 times scales below 32: less than 2^24
// for a whole block, which floats hold exactly.
static bool exact_in_floats(const IntFormat& format) {
  return format.type == TensorType::IQ3_S || format.type == TensorType::IQ1_S ||
         format.type == TensorType::IQ1_M || format.type == TensorType::Q3_K;
}

constexpr std::size_t kIntVectors = 2, kIntRows = kIntVectors * kLanes;

// A block of up to kIntRows rows, rows in the lanes of kIntVectors vectors.
struct IntPanel {
  // Four signed bytes a lane: code minus zero. Of group_words two 16-bit integers a lane.
  IntLanes codes[kBlock / 2][kIntVectors];
  IntLanes start[16][kIntVectors];  // by group: -128 times the sum of its codes; not with minima
  union {
    IntLanes scales[16][kIntVectors];
    Lanes float_scales[16][kIntVectors];  // of formats that are exact_in_floats
  };
  IntLanes mins[8][kIntVectors];  // two groups' 16-bit minima a lane
  Lanes d[kIntVectors], dmin[kIntVectors];
  Lanes group_d[8][kIntVectors], group_m[8][kIntVectors];
};

// A block (256 values, or `groups` times 32 of a multiple of fill_groups()) of each of 16 rows into
// vector v of the panel: everything but `start`.
using Fill = void (*)(const std::byte* const* rows, std::size_t groups, std::size_t v,
                      IntPanel& panel);

// A few bytes in each lane, as bytes.
STRATA_INLINE IntLanes bytes_minus(const IntLanes& bytes, std::int32_t zero) {
  const auto all = static_cast<std::int32_t>(static_cast<std::uint32_t>(zero) * 0x01010101u);
  return (IntLanes)((UnsignedBytes64)bytes - (UnsignedBytes64)all_int(all));
}
constexpr std::int32_t kNibbles = 0x0f0f0f0f;

// 16 bytes at byte `offset` of 16 rows, as four columns of dwords.
STRATA_INLINE void column_heads(const std::byte* const* rows, std::size_t offset,
                                IntLanes* columns) {
#if defined(STRATA_AVX512)
  __m512i z[4];
  for (int i = 0; i < 4; ++i) {  // 128-bit lane l: row 4 l + i
    const auto head = [&](int l) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[4 * l + i] + offset));
    };
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(head(0)), head(1), 1);
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(head(2)), head(3), 1);
    z[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
  const __m512i a = _mm512_unpacklo_epi32(z[0], z[1]), b = _mm512_unpacklo_epi32(z[2], z[3]);
  const __m512i c = _mm512_unpackhi_epi32(z[0], z[1]), d = _mm512_unpackhi_epi32(z[2], z[3]);
  columns[0] = (IntLanes)_mm512_unpacklo_epi64(a, b);
  columns[1] = (IntLanes)_mm512_unpackhi_epi64(a, b);
  columns[2] = (IntLanes)_mm512_unpacklo_epi64(c, d);
  columns[3] = (IntLanes)_mm512_unpackhi_epi64(c, d);
#else
  for (std::size_t r = 0; r < kLanes; ++r) {
    std::int32_t head[4];
    std::memcpy(head, rows[r] + offset, sizeof head);
    for (std::size_t i = 0; i < 4; ++i) columns[i][r] = head[i];
  }
#endif
}

// The halves at byte `offset` of 16 rows.
STRATA_INLINE Lanes row_halves(const std::byte* const* rows, std::size_t offset) {
#if defined(STRATA_AVX512)
  alignas(32) std::uint16_t halves[kLanes];
  for (std::size_t r = 0; r < kLanes; ++r) std::memcpy(&halves[r], rows[r] + offset, 2);
  return (Lanes)_mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(halves)));
#else
  Lanes result;
  for (std::size_t r = 0; r < kLanes; ++r)
    result[r] = half_at(reinterpret_cast<const q::Byte*>(rows[r] + offset));
  return result;
#endif
}

// --- formats with integer scales ----------------------------------------------------------------

// Byte j of each lane's dword, unsigned.
STRATA_INLINE IntLanes byte_of(const IntLanes& dwords, std::size_t j) {
  return (dwords >> static_cast<int>(8 * j)) & 255;
}

// Scales and minima of Q4_K and Q5_K: three dwords hold eight of each, six bits wide.
STRATA_INLINE void fill_k4_scales(const IntLanes* head, std::size_t v, IntPanel& panel) {
  const IntLanes &a = head[0], &b = head[1], &c = head[2];
  const IntLanes scales[2] = {a & 0x3f3f3f3f, (c & kNibbles) | ((a >> 2) & 0x30303030)};
  const IntLanes mins[2] = {b & 0x3f3f3f3f, ((c >> 4) & kNibbles) | ((b >> 2) & 0x30303030)};
  for (std::size_t w = 0; w < 2; ++w) {
    for (std::size_t j = 0; j < 4; ++j) panel.scales[4 * w + j][v] = byte_of(scales[w], j);
    panel.mins[2 * w][v] = byte_of(mins[w], 0) | (byte_of(mins[w], 1) << 16);
    panel.mins[2 * w + 1][v] = byte_of(mins[w], 2) | (byte_of(mins[w], 3) << 16);
  }
}

// Q4_K and, with a fifth bit, Q5_K.
template <class Block>
static void fill_k4(const std::byte* const* rows, std::size_t, std::size_t v, IntPanel& panel) {
  constexpr bool fifth = std::is_same_v<Block, q::BlockQ5_K>;
  IntLanes head[4];
  column_heads(rows, 0, head);
  panel.d[v] = half_lanes(head[0] & 0xffff);
  panel.dmin[v] = half_lanes((head[0] >> 16) & 0xffff);
  fill_k4_scales(head + 1, v, panel);
  alignas(64) IntLanes stored[32], high[16];
  column_dwords(rows, sizeof(Block) - 128, stored);
  column_dwords(rows, sizeof(Block) - 64, stored + 16);
  if constexpr (fifth) column_dwords(rows, 16, high);  // eight dwords and what follows
#pragma GCC unroll 4
  for (std::size_t pair = 0; pair < 4; ++pair)
    for (std::size_t i = 0; i < 8; ++i) {
      const IntLanes& word = stored[8 * pair + i];
      IntLanes first = word & kNibbles, second = (word >> 4) & kNibbles;
      if constexpr (fifth) {
        first |= ((high[i] >> static_cast<int>(2 * pair)) & 0x01010101) << 4;
        second |= ((high[i] >> static_cast<int>(2 * pair + 1)) & 0x01010101) << 4;
      }
      panel.codes[16 * pair + i][v] = first;
      panel.codes[16 * pair + 8 + i][v] = second;
    }
}

static void fill_q6_k(const std::byte* const* rows, std::size_t, std::size_t v, IntPanel& panel) {
  alignas(64) IntLanes low[32], high[16];
  column_dwords(rows, 0, low);
  column_dwords(rows, 64, low + 16);
  column_dwords(rows, 128, high);
  for (std::size_t half = 0; half < 2; ++half)
    for (std::size_t i = 0; i < 8; ++i) {
      const IntLanes &a = low[16 * half + i], &b = low[16 * half + 8 + i];
      const IntLanes& top = high[8 * half + i];
      IntLanes(*codes)[kIntVectors] = panel.codes + 32 * half + i;
      codes[0][v] = bytes_minus((a & kNibbles) | ((top << 4) & 0x30303030), 32);
      codes[8][v] = bytes_minus((b & kNibbles) | ((top << 2) & 0x30303030), 32);
      codes[16][v] = bytes_minus(((a >> 4) & kNibbles) | (top & 0x30303030), 32);
      codes[24][v] = bytes_minus(((b >> 4) & kNibbles) | ((top >> 2) & 0x30303030), 32);
    }
  IntLanes scales[4];
  column_heads(rows, 192, scales);
  for (std::size_t g = 0; g < 16; ++g)
    panel.scales[g][v] = (scales[g / 4] << static_cast<int>(24 - 8 * (g % 4))) >> 24;
  panel.d[v] = row_halves(rows, 208);
}

// The IQ4 table's values of a nibble in each byte.
STRATA_INLINE IntLanes iq4_lanes(const IntLanes& nibbles) {
#if defined(STRATA_AVX512)
  const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(q::iq4_values.data()));
  return (IntLanes)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), (__m512i)nibbles);
#elif defined(STRATA_AVX2)
  union Halves {
    IntLanes whole;
    __m256i half[2];
  };
  const __m256i table = _mm256_broadcastsi128_si256(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(q::iq4_values.data())));
  Halves x{nibbles};
  for (__m256i& half : x.half) half = _mm256_shuffle_epi8(table, half);
  return x.whole;
#else
  ByteLanes64 bytes = (ByteLanes64)nibbles;
  for (std::size_t i = 0; i < 64; ++i) bytes[i] = q::iq4_values[static_cast<std::size_t>(bytes[i])];
  return (IntLanes)bytes;
#endif
}

static void fill_iq4_xs(const std::byte* const* rows, std::size_t, std::size_t v, IntPanel& panel) {
  IntLanes head[4];
  column_heads(rows, 0, head);
  panel.d[v] = half_lanes(head[0] & 0xffff);
  alignas(64) IntLanes stored[32];
  column_dwords(rows, 8, stored);
  column_dwords(rows, 72, stored + 16);
#pragma GCC unroll 8
  for (std::size_t g = 0; g < 8; ++g) {
    const IntLanes low = (head[1] >> static_cast<int>(4 * g)) & 15;
    const IntLanes high = (head[0] >> static_cast<int>(16 + 2 * g)) & 3;
    panel.scales[g][v] = (low | (high << 4)) - 32;
    for (std::size_t i = 0; i < 4; ++i) {
      const IntLanes& word = stored[4 * g + i];
      panel.codes[8 * g + i][v] = iq4_lanes(word & kNibbles);
      panel.codes[8 * g + 4 + i][v] = iq4_lanes((word >> 4) & kNibbles);
    }
  }
}

#if defined(STRATA_VBMI)
// Fields of each lane's dword: byte j takes eight bits from bit place(j) of the dword on, round the
// qword that it is half of.
template <class Place>
static constexpr std::int64_t shift_bytes(const Place& place) {
  std::uint64_t shifts = 0;
  for (int half = 0; half < 2; ++half)
    for (int j = 0; j < 4; ++j)
      shifts |= static_cast<std::uint64_t>((32 * half + place(j)) & 63) << (32 * half + 8 * j);
  return static_cast<std::int64_t>(shifts);
}
STRATA_INLINE Zmm fields(std::int64_t shifts, const Zmm& dwords) {
  return _mm512_multishift_epi64_epi8(_mm512_set1_epi64(shifts), dwords);
}
// Bits first, first + step ... of each dword as a mask of its bytes.
STRATA_INLINE __mmask64 byte_mask(const Zmm& dwords, int first, int step = 1) {
  return _mm512_movepi8_mask(
      fields(shift_bytes([&](int j) { return first + step * j - 7; }), dwords));
}
STRATA_INLINE IntLanes negated(const Zmm& bytes, __mmask64 minus) {
  return (IntLanes)_mm512_mask_sub_epi8(bytes, minus, _mm512_setzero_si512(), bytes);
}

// Four entries of eight values in each lane, as levels in two planes with a byte of signs each, are
// dwords `first` to `first` + 7.
STRATA_INLINE void put_entries(const Zmm* plane, const Zmm& signs, std::size_t first, std::size_t v,
                               IntPanel& panel) {
  const Zmm values = load_zmm(kIq2Levels.data());
#pragma GCC unroll 4
  for (int e = 0; e < 4; ++e)
    for (int half = 0; half < 2; ++half) {
      const std::int64_t place = shift_bytes([&](int j) { return 8 * e + 2 * j; });
      const Zmm codes = _mm512_permutexvar_epi8(fields(place, plane[half]), values);
      panel.codes[first + static_cast<std::size_t>(2 * e + half)][v] =
          negated(codes, byte_mask(signs, 8 * e + 4 * half));
    }
}
// Sixteen scales from nibbles.
STRATA_INLINE void put_nibble_scales(const IntLanes* eights, std::size_t v, IntPanel& panel) {
  for (std::size_t g = 0; g < 16; ++g) {
    const IntLanes nibble = (eights[g / 8] >> static_cast<int>(4 * (g % 8))) & 15;
    panel.scales[g][v] = nibble + nibble + 1;
  }
}

static void fill_iq2_xs(const std::byte* const* rows, std::size_t, std::size_t v, IntPanel& panel) {
  static const LevelPlanes<512> levels(q::iq2xs_grid, iq2_level);
  alignas(64) static constexpr auto pick = [](std::size_t first) {
    Permutation p{};  // byte 2 e + first of the four words of two columns
    for (std::size_t i = 0; i < 64; ++i)
      p[i] = static_cast<std::uint8_t>(i / 4 * 4 + i % 2 * 2 + first + (i % 4 / 2) * 64);
    return p;
  };
  alignas(64) static constexpr Permutation low = pick(0), high = pick(1);
  alignas(64) IntLanes stored[kLanes];
  column_dwords(rows, 2, stored);
#pragma GCC unroll 8
  for (std::size_t c = 0; c < 16; c += 2) {
    const Zmm a = (Zmm)stored[c], b = (Zmm)stored[c + 1];
    const Zmm index = _mm512_permutex2var_epi8(a, load_zmm(low.data()), b);
    const Zmm rest = _mm512_permutex2var_epi8(a, load_zmm(high.data()), b);
    const std::uint64_t ninth = _mm512_test_epi8_mask(rest, every_byte(1));
    const Zmm plane[2] = {look_up<512>(levels.plane[0], index, ninth),
                          look_up<512>(levels.plane[1], index, ninth)};
    // Signs of all eight values: as even_signs, of the upper seven bits.
    const Zmm signs =
        _mm512_gf2p8affine_epi64_epi8(rest, _mm512_set1_epi64(0x0204'0810'2040'80fell), 0);
    put_entries(plane, signs, 4 * c, v, panel);
  }
  IntLanes tail[4];
  column_heads(rows, 58, tail);  // ends with eight bytes of scales
  put_nibble_scales(tail + 2, v, panel);
  panel.d[v] = row_halves(rows, 0) * all(0.125f);
}

static void fill_iq2_s(const std::byte* const* rows, std::size_t, std::size_t v, IntPanel& panel) {
  static const LevelPlanes<1024> levels(q::iq2s_grid, iq2_level);
  alignas(64) IntLanes stored[kLanes], tail[4];
  column_dwords(rows, 2, stored);  // indices (8), signs (8)
  column_heads(rows, 66, tail);    // ninth and tenth bits (2), scales (2)
#pragma GCC unroll 8
  for (std::size_t c = 0; c < 8; ++c) {
    const Zmm index = (Zmm)stored[c], bits = (Zmm)tail[c / 4];
    const int first = static_cast<int>(8 * (c % 4));
    const __mmask64 high[2] = {byte_mask(bits, first, 2), byte_mask(bits, first + 1, 2)};
    const Zmm plane[2] = {look_up_long<1024>(levels.plane[0], index, high),
                          look_up_long<1024>(levels.plane[1], index, high)};
    put_entries(plane, (Zmm)stored[8 + c], 8 * c, v, panel);
  }
  put_nibble_scales(tail + 2, v, panel);
  panel.d[v] = row_halves(rows, 0) * all(0.125f);
}

// Four ternary entries a lane: low bytes of their indices, and a dword whose bits `first` and on
// are three more for each, `step` apart. minus[e]: all bits where entry e has a negative delta.
STRATA_INLINE void put_ternary(const IntLanes& low, const IntLanes& more, int first, int step,
                               const IntLanes* minus, std::size_t at, std::size_t v,
                               IntPanel& panel) {
  alignas(64) static constexpr Permutation eights = [] {
    Permutation table{};
    for (std::size_t i = 0; i < 64; ++i)
      table[i] = static_cast<std::uint8_t>(8 * static_cast<int>(i % 4) - 8);
    return table;
  }();
  const LevelPlanes<2048>& levels = ternary_planes();
  const Zmm bits = (Zmm)more, index = (Zmm)low;
  const __mmask64 high[3] = {byte_mask(bits, first, step), byte_mask(bits, first + 1, step),
                             byte_mask(bits, first + 2, step)};
  const Zmm plane[2] = {look_up_long<2048>(levels.plane[0], index, high),
                        look_up_long<2048>(levels.plane[1], index, high)};
#pragma GCC unroll 4
  for (int e = 0; e < 4; ++e) {
    const Zmm delta = (Zmm)(minus[e] | all_int(0x01010101));  // a byte of 1 or -1
    for (int half = 0; half < 2; ++half) {
      const std::int64_t place = shift_bytes([&](int j) { return 8 * e + 2 * j; });
      const Zmm codes =
          _mm512_permutexvar_epi8(fields(place, plane[half]), load_zmm(eights.data()));
      panel.codes[at + static_cast<std::size_t>(2 * e + half)][v] =
          (IntLanes)_mm512_add_epi8(codes, delta);
    }
  }
}

static void fill_iq1_s(const std::byte* const* rows, std::size_t, std::size_t v, IntPanel& panel) {
  IntLanes indices[8], words[4];
  column_heads(rows, 2, indices);
  column_heads(rows, 18, indices + 4);
  column_heads(rows, 34, words);  // two to a dword: three bits of each of four indices, the scale
#pragma GCC unroll 8
  for (std::size_t g = 0; g < 8; ++g) {
    const int first = static_cast<int>(16 * (g % 2));
    const IntLanes& pair = words[g / 2];
    const IntLanes sign = (pair << (16 - first)) >> 31, minus[4] = {sign, sign, sign, sign};
    put_ternary(indices[g], pair, first, 3, minus, 8 * g, v, panel);
    const IntLanes scale = (pair >> (first + 12)) & 7;
    panel.float_scales[g][v] = to_float(scale + scale + 1);
  }
  panel.d[v] = row_halves(rows, 0) * all(0.125f);
}

static void fill_iq1_m(const std::byte* const* rows, std::size_t, std::size_t v, IntPanel& panel) {
  IntLanes indices[8], nibbles[4], tail[4];
  column_heads(rows, 0, indices);
  column_heads(rows, 16, indices + 4);
  column_heads(rows, 32, nibbles);  // for each entry three bits of its index and the sign of delta
  column_heads(rows, 40, tail);     // ends with the four words of scales
#pragma GCC unroll 8
  for (std::size_t c = 0; c < 8; ++c) {
    const int first = static_cast<int>(16 * (c % 2));
    IntLanes minus[4];
    for (int e = 0; e < 4; ++e) minus[e] = (nibbles[c / 2] << (28 - first - 4 * e)) >> 31;
    put_ternary(indices[c], nibbles[c / 2], first, 4, minus, 8 * c, v, panel);
  }
  for (std::size_t g = 0; g < 16; ++g) {
    const IntLanes scale =
        (tail[2 + g / 8] >> static_cast<int>(16 * (g / 4 % 2) + 3 * (g % 4))) & 7;
    panel.float_scales[g][v] = to_float(scale + scale + 1);
  }
  // d lies in the top four bits of the words.
  const IntLanes d = ((tail[2] >> 12) & 15) | ((tail[2] >> 24) & 0xf0) | ((tail[3] >> 4) & 0xf00) |
                     ((tail[3] >> 16) & 0xf000);
  panel.d[v] = half_lanes(d) * all(0.125f);
}

static void fill_iq3_s(const std::byte* const* rows, std::size_t, std::size_t v, IntPanel& panel) {
  static const GemvIQ3_S::Nibbles nibbles;
  alignas(64) IntLanes stored[kLanes], tail[kLanes];
  column_dwords(rows, 2, stored);
  column_dwords(rows, 46, tail);  // from dword 5 on: ninth bits (2), signs (8), scales (1)
#pragma GCC unroll 16
  for (std::size_t c = 0; c < 16; ++c) {
    const Zmm index = (Zmm)stored[c];
    const std::uint64_t ninth = byte_mask((Zmm)tail[5 + c / 8], static_cast<int>(4 * (c % 8)));
    const Zmm first = look_up<512>(nibbles.plane[0], index, ninth);
    const Zmm second = look_up<512>(nibbles.plane[1], index, ninth);
#pragma GCC unroll 4
    for (int e = 0; e < 4; ++e) {
      const std::int64_t place = shift_bytes([&](int j) { return 8 * e + 4 * (j % 2); });
      const Zmm codes = _mm512_mask_multishift_epi64_epi8(
          fields(place, first), 0xccccccccccccccccull, _mm512_set1_epi64(place), second);
      const __mmask64 minus =
          byte_mask((Zmm)tail[7 + c / 2], static_cast<int>(16 * (c % 2)) + 4 * e);
      panel.codes[4 * c + static_cast<std::size_t>(e)][v] = negated(low_nibbles(codes), minus);
    }
  }
  for (std::size_t g = 0; g < 8; ++g) {
    const IntLanes nibble = (tail[15] >> static_cast<int>(4 * g)) & 15;
    panel.float_scales[g][v] = to_float(nibble + nibble + 1);
  }
  panel.d[v] = row_halves(rows, 0);
}
#endif

// --- formats with float scales ------------------------------------------------------------------

#if !defined(STRATA_VBMI)
// The codes of four or eight groups of Stride bytes whose last 16 hold nibbles: dword i of group g
// at 4 g + i.
template <std::size_t Stride>
STRATA_INLINE void nibble_columns(const std::byte* const* rows, std::size_t groups,
                                  IntLanes* columns) {
  alignas(64) std::byte codes[kLanes][128];
  const std::byte* sources[kLanes];
  for (std::size_t r = 0; r < kLanes; ++r) {
    sources[r] = codes[r];
    for (std::size_t g = 0; g < groups; ++g)
      std::memcpy(codes[r] + 16 * g, rows[r] + Stride * (g + 1) - 16, 16);
  }
  column_dwords(sources, 0, columns);
  if (groups > 4) column_dwords(sources, 64, columns + 16);
}

// What stands before the nibbles of a group, four or eight groups of sixteen rows: words[field] of
// 16 bits.
template <std::size_t Stride>
struct GroupHeads {
  static constexpr std::size_t fields = (Stride - 16) / 2;
  alignas(64) std::uint16_t words[fields][kLanes][8];

  STRATA_INLINE void load(const std::byte* const* rows, std::size_t groups, GroupHeads& heads) {
    for (std::size_t r = 0; r < kLanes; ++r) {
      for (std::size_t g = 0; g < 8; ++g)
        for (std::size_t f = 0; f < fields; ++f)
          std::memcpy(&heads.words[f][r][g], rows[r] + Stride * (g % groups) + 2 * f, 2);
    }
  }
  // A field as floats, by group.
  STRATA_INLINE void halves(const GroupHeads& heads, std::size_t field, Lanes* out) {
    for (std::size_t g = 0; g < 8; ++g)
      for (std::size_t r = 0; r < kLanes; ++r)
        out[g][r] = half_at(reinterpret_cast<const q::Byte*>(&heads.words[field][r][g]));
  }
  // Two fields as dwords, by group.
  STRATA_INLINE void dwords(const GroupHeads& heads, std::size_t field, IntLanes* out) {
    for (std::size_t g = 0; g < 8; ++g)
      for (std::size_t r = 0; r < kLanes; ++r)
        out[g][r] = static_cast<std::int32_t>(heads.words[field][r][g] |
                                              std::uint32_t{heads.words[field + 1][r][g]} << 16);
  }
};

// Bits 4 n to 4 n + 3 of each dword as the fifth bits of four codes.
STRATA_INLINE IntLanes with_fifth(const IntLanes& codes, const IntLanes& bits, int n) {
  const IntLanes four = (bits >> (4 * n)) & 15;
  return codes | (((four | (four << 7) | (four << 14) | (four << 21)) & 0x01010101) << 4);
}

#else
// Their fields are turned as they lie, two of 16 bits a dword: of the first four groups field f of
// groups 2 k and 2 k + 1 at 2 f + k, of the others at 8 + 2 f + k.
template <std::size_t Stride, bool Minima, bool Fifth, std::int32_t Zero, bool Table,
          std::size_t Groups>
STRATA_INLINE void fill_fields(const std::byte* const* rows, std::size_t v, IntPanel& panel) {
  using Fields = NibbleGroups<Stride, Stride - 16>;
  const auto load = [&](std::size_t r, Zmm* codes, Zmm* fields) {
    Fields::template load<Groups>(reinterpret_cast<const q::Byte*>(rows[r]), codes, fields);
  };
  Zmm heads[kLanes], codes[2], fields[2];
  for (std::size_t r = 0; r < kLanes; ++r) {
    load(r, codes, fields);
    heads[r] = _mm512_inserti64x4(fields[0], _mm512_castsi512_si256(fields[1]), 1);
  }
  turn_dwords(heads);
#pragma GCC unroll 2
  for (std::size_t half = 0; half < Groups / 4; ++half) {
    Zmm nibbles[kLanes];
    for (std::size_t r = 0; r < kLanes; ++r) {
      load(r, codes, fields);
      nibbles[r] = codes[half];
    }
    turn_dwords(nibbles);
#pragma GCC unroll 4
    for (std::size_t four = 0; four < 4; ++four) {
      const std::size_t g = 4 * half + four, second = four % 2;
      const auto field = [&](std::size_t f) { return heads[8 * half + 2 * f + four / 2]; };
      const auto floats = [&](std::size_t f) {
        const IntLanes pair = (IntLanes)field(f);
        return half_lanes(second == 1 ? pair >> 16 : pair);
      };
      panel.group_d[g][v] = floats(0);
      if constexpr (Minima) panel.group_m[g][v] = floats(1);
#pragma GCC unroll 4
      for (std::size_t i = 0; i < 4; ++i) {
        const Zmm packed = nibbles[4 * four + i];
        const Zmm code[2] = {low_nibbles(packed), high_nibbles(packed)};
#pragma GCC unroll 2
        for (std::size_t n = 0; n < 2; ++n) {
          auto whole = (IntLanes)code[n];
          if constexpr (Fifth) {
            const Zmm bits = _mm512_multishift_epi64_epi8(load_zmm(kFifthBits.of[second][i].data()),
                                                          field((Minima ? 2 : 1) + n));
            whole = (IntLanes)masked_or(bits, every_byte(16), code[n]);
          }
          if constexpr (Table) whole = iq4_lanes(whole);
          panel.codes[8 * g + 4 * n + i][v] = Zero == 0 ? whole : bytes_minus(whole, Zero);
        }
      }
    }
  }
}
#endif

// Q4_0, Q4_1, Q5_0, Q5_1, and IQ4_NL with its table.
template <std::size_t Stride, bool Minima, bool Fifth, std::int32_t Zero, bool Table = false>
static void fill_nibbles(const std::byte* const* rows, std::size_t groups, std::size_t v,
                         IntPanel& panel) {
#if defined(STRATA_VBMI)
  if (groups == 8) return fill_fields<Stride, Minima, Fifth, Zero, Table, 8>(rows, v, panel);
  return fill_fields<Stride, Minima, Fifth, Zero, Table, 4>(rows, v, panel);
#else
  using Heads = GroupHeads<Stride>;
  Heads heads;
  Heads::load(rows, groups, heads);
  alignas(64) IntLanes stored[32];
  nibble_columns<Stride>(rows, groups, stored);
  Lanes floats[8];
  Heads::halves(heads, 0, floats);
  for (std::size_t g = 0; g < 8; ++g) panel.group_d[g][v] = floats[g];
  if constexpr (Minima) {
    Heads::halves(heads, 1, floats);
    for (std::size_t g = 0; g < 8; ++g) panel.group_m[g][v] = floats[g];
  }
  IntLanes fifth[8];
  if constexpr (Fifth) Heads::dwords(heads, Minima ? 2 : 1, fifth);
  for (std::size_t g = 0; g < groups; ++g)
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const std::size_t place = 8 * g + static_cast<std::size_t>(i);
      const IntLanes& word = stored[4 * g + static_cast<std::size_t>(i)];
      IntLanes low = word & kNibbles, high = (word >> 4) & kNibbles;
      if constexpr (Table) {
        low = iq4_lanes(low);
        high = iq4_lanes(high);
      }
      if constexpr (Fifth) {
        low = with_fifth(low, fifth[g], i);
        high = with_fifth(high, fifth[g], i + 4);
      }
      panel.codes[place][v] = Zero == 0 ? low : bytes_minus(low, Zero);
      panel.codes[place + 4][v] = Zero == 0 ? high : bytes_minus(high, Zero);
    }
#endif
}

#if defined(STRATA_VBMI)
// A whole block of Q8_0: its scales, and put(i, dwords) for each column of codes.
template <class Put>
STRATA_INLINE void whole_q8_0(const std::byte* const* rows, std::size_t v, IntPanel& panel,
                              const Put& put) {
  alignas(64) static constexpr std::array<std::uint16_t, 32> fourths = [] {
    std::array<std::uint16_t, 32> index{};  // words 0, 17, 34 and 51: of the scales
    for (std::size_t i = 0; i < 4; ++i) index[i] = static_cast<std::uint16_t>(17 * i);
    return index;
  }();
  __m128i halves[kLanes];
  for (std::size_t r = 0; r < kLanes; ++r) {
    const auto four = [&](std::size_t from) {
      return _mm512_castsi512_si128(_mm512_permutex2var_epi16(
          load_zmm(rows[r] + from), load_zmm(fourths.data()), load_zmm(rows[r] + from + 64)));
    };
    halves[r] = _mm_unpacklo_epi64(four(0), four(4 * sizeof(q::BlockQ8_0)));
  }
  Lanes scales[8];
  turn_halves(halves, scales);
  for (std::size_t g = 0; g < 8; ++g) panel.group_d[g][v] = scales[g];
  for (std::size_t j = 0; j < 4; ++j) {
    Zmm codes[kLanes];
    for (std::size_t r = 0; r < kLanes; ++r)
      codes[r] = q8_0_codes(reinterpret_cast<const q::Byte*>(rows[r]), j);
    turn_dwords(codes);
    for (std::size_t i = 0; i < kLanes; ++i) put(kLanes * j + i, codes[i]);
  }
}
#endif

static void fill_q8_0(const std::byte* const* rows, std::size_t groups, std::size_t v,
                      IntPanel& panel) {
#if defined(STRATA_VBMI)
  if (groups == 8)
    return whole_q8_0(rows, v, panel, [&](std::size_t i, const Zmm& codes) {
      panel.codes[i][v] = (IntLanes)codes;
    });
#endif
  for (std::size_t g = 0; g < groups; g += 2) {
    alignas(64) IntLanes columns[kLanes];
    Lanes scales[2];
    q8_0_dwords(rows, g * sizeof(q::BlockQ8_0), 2, columns, scales);
    for (std::size_t i = 0; i < 16; ++i) panel.codes[8 * g + i][v] = columns[i];
    for (std::size_t b = 0; b < 2; ++b) panel.group_d[g + b][v] = scales[b] * all(0x1p24f);
  }
}

#if defined(STRATA_VBMI)
static void fill_q2_0(const std::byte* const* rows, std::size_t, std::size_t v, IntPanel& panel) {
  alignas(64) static constexpr Permutation codes =
      pick_index<72>([](std::size_t i) { return 18 * (i / 16) + 2 + i % 16; });
  alignas(64) static constexpr Permutation halves =
      pick_index<72>([](std::size_t i) { return 18 * (i / 4 % 4) + i % 2; });  // each twice
  alignas(64) std::uint16_t words[kLanes][8];
  Zmm r[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) {
    r[i] = pick_bytes<72>(rows[i], codes, 0);
    _mm_store_si128(reinterpret_cast<__m128i*>(words[i]),
                    _mm512_castsi512_si128(pick_bytes<72>(rows[i], halves, 0)));
  }
  turn_dwords(r);
  for (std::size_t c = 0; c < kLanes; ++c)
#pragma GCC unroll 4
    for (int b = 0; b < 4; ++b) {
      const Zmm two_bits = _mm512_and_si512(
          fields(shift_bytes([&](int j) { return 8 * b + 2 * j; }), r[c]), every_byte(3));
      panel.codes[4 * c + static_cast<std::size_t>(b)][v] = bytes_minus((IntLanes)two_bits, 1);
    }
  Lanes floats[8];
  turn_halves(&words[0][0], floats);
  for (std::size_t g = 0; g < 8; ++g) panel.group_d[g][v] = floats[g];
}
#endif

// --- all formats --------------------------------------------------------------------------------

// Unpacked row by row, then turned.
template <TensorType Type>
static void fill_unpacked(const std::byte* const* rows, std::size_t, std::size_t v,
                          IntPanel& panel) {
  const IntFormat& format = *int_format(Type);
  alignas(64) IntBlock blocks[kLanes];
  const Unpack unpack = unpack_of(Type);
  for (std::size_t r = 0; r < kLanes; ++r) unpack(rows[r], kBlock / 32, blocks[r]);
  const void* sources[kLanes];
  alignas(64) IntLanes columns[kLanes];
  for (std::size_t k = 0; k < kBlock; k += 64) {
    for (std::size_t r = 0; r < kLanes; ++r) sources[r] = blocks[r].codes + k;
    transpose_dwords(sources, columns);
    for (std::size_t i = 0; i < kLanes; ++i)
      panel.codes[k / 4 + i][v] = bytes_minus(columns[i], format.zero);
  }
  if (format.kind == BlockKind::group_floats) {
    for (std::size_t r = 0; r < kLanes; ++r) sources[r] = blocks[r].group_d;
    transpose_dwords(sources, columns);  // and group_m behind it
    for (std::size_t g = 0; g < 8; ++g) {
      panel.group_d[g][v] = (Lanes)columns[g];
      panel.group_m[g][v] = (Lanes)columns[8 + g];
    }
    return;
  }
  for (std::size_t r = 0; r < kLanes; ++r) sources[r] = blocks[r].scales;
  transpose_dwords(sources, columns);  // two 16-bit integers a row: scales, then minima
  for (std::size_t i = 0; i < 8; ++i) {
    const IntLanes pair[2] = {(columns[i] << 16) >> 16, columns[i] >> 16};
    for (std::size_t n = 0; n < 2; ++n) {
      if (exact_in_floats(format)) {
        panel.float_scales[2 * i + n][v] = to_float(pair[n]);
      } else {
        panel.scales[2 * i + n][v] = pair[n];
      }
    }
    panel.mins[i][v] = columns[8 + i];
  }
  for (std::size_t r = 0; r < kLanes; ++r) panel.d[v][r] = blocks[r].d;
  if (!format.minima) return;
  for (std::size_t r = 0; r < kLanes; ++r) panel.dmin[v][r] = blocks[r].dmin;
}

// Q8_0 for inputs of 16 bits.
static void fill_words(const std::byte* const* rows, std::size_t groups, std::size_t v,
                       IntPanel& panel) {
#if defined(STRATA_VBMI)
  if (groups == 8)
    return whole_q8_0(rows, v, panel, [&](std::size_t i, const Zmm& codes) {
      // Bytes 0 and 1, 2 and 3 to the upper halves of two words.
      const auto pair = [&](int first) {
        const Zmm index = _mm512_add_epi8(_mm512_set1_epi32((first << 8) | ((first + 1) << 24)),
                                          _mm512_set4_epi32(0x0c000c00, 0x08000800, 0x04000400, 0));
        return (IntLanes)_mm512_srai_epi16(_mm512_shuffle_epi8(codes, index), 8);
      };
      panel.codes[2 * i][v] = pair(0);
      panel.codes[2 * i + 1][v] = pair(2);
    });
#endif
  for (std::size_t g = 0; g < groups; g += 2) {
    alignas(64) IntLanes columns[kLanes];
    Lanes scales[2];
    q8_0_dwords(rows, g * sizeof(q::BlockQ8_0), 2, columns, scales);
    for (std::size_t i = 0; i < 16; ++i) {
      const IntLanes c = columns[i];
      IntLanes* pairs = &panel.codes[16 * g + 2 * i][v];
      pairs[0] = (((c << 24) >> 24) & 0xffff) | (((c << 16) >> 24) << 16);
      pairs[kIntVectors] = (((c << 8) >> 24) & 0xffff) | ((c >> 24) << 16);
    }
    for (std::size_t b = 0; b < 2; ++b) panel.group_d[g + b][v] = scales[b] * all(0x1p24f);
  }
}

#if defined(STRATA_VBMI)
// Whether that is quick enough for a few tokens, too.
static bool fills_quickly(const IntFormat& format) {
  using enum TensorType;
  return format.type != Q2_K && format.type != Q3_K && format.type != IQ2_XXS &&
         format.type != IQ3_XXS;
}
#endif

// Groups of a block's beginning that a fill can do alone, without reading behind them.
static std::size_t fill_groups(const IntFormat& format) {
  using enum TensorType;
  switch (format.type) {
    case Q8_0:
      return 2;
    case Q4_0:
    case Q4_1:
    case Q5_0:
    case Q5_1:
    case IQ4_NL:
      return 4;
    default:
      return 8;
  }
}

static Fill fill_of(const IntFormat& format) {
  if (format.kind == BlockKind::group_words) return fill_words;
  using enum TensorType;
  switch (format.type) {
    case Q4_0:
      return fill_nibbles<18, false, false, 8>;
    case Q4_1:
      return fill_nibbles<20, true, false, 0>;
    case Q5_0:
      return fill_nibbles<22, false, true, 16>;
    case Q5_1:
      return fill_nibbles<24, true, true, 0>;
    case IQ4_NL:
      return fill_nibbles<18, false, false, 0, true>;
    case Q8_0:
      return fill_q8_0;
    case Q4_K:
      return fill_k4<q::BlockQ4_K>;
    case Q5_K:
      return fill_k4<q::BlockQ5_K>;
    case Q6_K:
      return fill_q6_k;
    case IQ4_XS:
      return fill_iq4_xs;
    case Q2_K:
      return fill_unpacked<Q2_K>;
    case Q3_K:
      return fill_unpacked<Q3_K>;
    case IQ2_XXS:
      return fill_unpacked<IQ2_XXS>;
    case IQ3_XXS:
      return fill_unpacked<IQ3_XXS>;
#if defined(STRATA_VBMI)
    case IQ1_S:
      return fill_iq1_s;
    case IQ1_M:
      return fill_iq1_m;
    case IQ2_XS:
      return fill_iq2_xs;
    case IQ2_S:
      return fill_iq2_s;
    case IQ3_S:
      return fill_iq3_s;
    case Q2_0:
      return fill_q2_0;
#else
    case IQ1_S:
      return fill_unpacked<IQ1_S>;
    case IQ1_M:
      return fill_unpacked<IQ1_M>;
    case IQ2_XS:
      return fill_unpacked<IQ2_XS>;
    case IQ2_S:
      return fill_unpacked<IQ2_S>;
    case IQ3_S:
      return fill_unpacked<IQ3_S>;
    case Q2_0:
      return fill_unpacked<Q2_0>;
#endif
    default:
      return nullptr;
  }
}

// -128 times the sums of each group, from which products with inputs plus 128 begin.
STRATA_INLINE void fill_starts(const IntFormat& format, std::size_t groups, std::size_t v,
                               IntPanel& panel) {
  const std::size_t step = format.group / 4;
  alignas(4) static constexpr std::uint8_t middle[4] = {128, 128, 128, 128};
  for (std::size_t g = 0; g < groups * 32 / format.group; ++g) {
    IntLanes sum = all_int(0);
    for (std::size_t i = 0; i < step; ++i) sum = dot4(sum, middle, panel.codes[g * step + i][v]);
    panel.start[g][v] = -sum;
  }
}

// A block of `groups` times 32 values at byte `offset` of 16 rows. Where a fill cannot do so few,
// zeros stand in for the rest.
STRATA_INLINE void fill_panel(const IntFormat& format, Fill fill, const std::byte* const* rows,
                              std::size_t offset, std::size_t groups, std::size_t bytes,
                              std::size_t v, IntPanel& panel) {
  constexpr std::size_t most = 8 * sizeof(q::BlockQ8_0);  // of formats that have short blocks
  alignas(64) std::byte copies[kLanes][most];
  const std::byte* blocks[kLanes];
  const std::size_t least = fill_groups(format), whole = (groups + least - 1) / least * least;
  for (std::size_t r = 0; r < kLanes; ++r) {
    blocks[r] = rows[r] + offset;
    if (whole == groups) continue;
    std::memcpy(copies[r], blocks[r], bytes);
    std::memset(copies[r] + bytes, 0, most - bytes);
    blocks[r] = copies[r];
  }
  fill(blocks, whole, v, panel);
  if (format.kind != BlockKind::group_words && !format.minima)
    fill_starts(format, groups, v, panel);
}
