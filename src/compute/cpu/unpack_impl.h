// Block formats to IntBlock, compiled once for each instruction set like kernels_impl.h. `groups`
// counts the 32-value groups that the block really has (8, or fewer at the end of a row); formats
// of 256 always have 8.

namespace q = strata::quant;

using Unpack = void (*)(const std::byte* source, std::size_t groups, IntBlock& block);

// --- groups with a float scale -----------------------------------------------------------------

template <class Block, void (*group)(const Block&, std::uint8_t* __restrict)>
static void unpack_groups(const std::byte* source, std::size_t groups, IntBlock& out) {
  const auto* blocks = reinterpret_cast<const Block*>(source);
  for (std::size_t g = 0; g < groups; ++g) {
    group(blocks[g], out.codes + 32 * g);
    out.group_d[g] = half_at(blocks[g].d);
    if constexpr (requires { blocks[g].m; }) out.group_m[g] = half_at(blocks[g].m);
  }
}

STRATA_INLINE void split_nibbles(const q::Byte* source, std::uint8_t* __restrict codes) {
#if defined(STRATA_AVX2)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
  const __m256i both = _mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes),
                      _mm256_and_si256(both, _mm256_set1_epi8(15)));
#elif defined(STRATA_NEON)
  const uint8x16_t bytes = vld1q_u8(reinterpret_cast<const std::uint8_t*>(source));
  vst1q_u8(codes, vandq_u8(bytes, vdupq_n_u8(15)));
  vst1q_u8(codes + 16, vshrq_n_u8(bytes, 4));
#else
  for (int i = 0; i < 16; ++i) {
    codes[i] = source[i] & 15;
    codes[i + 16] = source[i] >> 4;
  }
#endif
}
// Adds bit i of the 32 high bits to code i as its fifth bit.
STRATA_INLINE void add_fifth_bits(const q::Byte* high, std::uint8_t* __restrict codes) {
#if defined(STRATA_AVX2)
  const __m256i spread = _mm256_setr_epi64x(0x0000000000000000, 0x0101010101010101,
                                            0x0202020202020202, 0x0303030303030303);
  const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ull));
  const __m256i bytes =
      _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(q::load_u32(high))), spread);
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
  auto* all_codes = reinterpret_cast<__m256i*>(codes);
  _mm256_storeu_si256(all_codes, _mm256_or_si256(_mm256_loadu_si256(all_codes),
                                                 _mm256_and_si256(set, _mm256_set1_epi8(16))));
#elif defined(STRATA_NEON)
  const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201ull));
  for (int half = 0; half < 2; ++half) {
    const uint8x16_t bytes = vcombine_u8(vdup_n_u8(high[2 * half]), vdup_n_u8(high[2 * half + 1]));
    const uint8x16_t fifth = vandq_u8(vtstq_u8(bytes, bit), vdupq_n_u8(16));
    vst1q_u8(codes + 16 * half, vorrq_u8(vld1q_u8(codes + 16 * half), fifth));
  }
#else
  for (int i = 0; i < 32; ++i)
    codes[i] = static_cast<std::uint8_t>(codes[i] | ((high[i / 8] >> (i % 8) & 1) << 4));
#endif
}
template <class Block>
static void nibble_codes(const Block& b, std::uint8_t* __restrict codes) {
  split_nibbles(b.qs, codes);
}
template <class Block>
static void five_bit_codes(const Block& b, std::uint8_t* __restrict codes) {
  split_nibbles(b.qs, codes);
  add_fifth_bits(b.qh, codes);
}
static void q8_0_codes(const q::BlockQ8_0& b, std::uint8_t* __restrict codes) {
  for (int i = 0; i < 32; ++i) codes[i] = b.qs[i] ^ 0x80;
}
alignas(64) static constexpr auto kIq4Codes = [] {
  std::array<std::uint8_t, 16> codes{};
  for (std::size_t i = 0; i < 16; ++i) codes[i] = static_cast<std::uint8_t>(q::iq4_values[i] + 128);
  return codes;
}();
STRATA_INLINE void iq4_codes(const q::Byte* source, std::uint8_t* __restrict codes) {
#if defined(STRATA_AVX2)
  const __m128i table = _mm_load_si128(reinterpret_cast<const __m128i*>(kIq4Codes.data()));
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
  const __m128i low = _mm_and_si128(bytes, _mm_set1_epi8(15));
  const __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), _mm_set1_epi8(15));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm_shuffle_epi8(table, low));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + 16), _mm_shuffle_epi8(table, high));
#elif defined(STRATA_NEON)
  const uint8x16_t table = vld1q_u8(kIq4Codes.data());
  const uint8x16_t bytes = vld1q_u8(reinterpret_cast<const std::uint8_t*>(source));
  vst1q_u8(codes, vqtbl1q_u8(table, vandq_u8(bytes, vdupq_n_u8(15))));
  vst1q_u8(codes + 16, vqtbl1q_u8(table, vshrq_n_u8(bytes, 4)));
#else
  for (int i = 0; i < 16; ++i) {
    codes[i] = kIq4Codes[source[i] & 15];
    codes[i + 16] = kIq4Codes[source[i] >> 4];
  }
#endif
}
static void iq4_nl_codes(const q::BlockIQ4_NL& b, std::uint8_t* __restrict codes) {
  iq4_codes(b.qs, codes);
}

static void unpack_q2_0(const std::byte* source, std::size_t groups, IntBlock& out) {
  const auto* blocks = reinterpret_cast<const q::BlockQ2_0*>(source);
  for (std::size_t b = 0; b < groups / 2; ++b) {
    // Byte i becomes the dword of its four codes.
#if defined(STRATA_AVX512)
    const IntLanes wide = (IntLanes)_mm512_cvtepu8_epi32(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks[b].qs)));
#else
    IntLanes wide;
    for (std::size_t i = 0; i < 16; ++i) wide[i] = blocks[b].qs[i];
#endif
    const IntLanes codes = (wide | (wide << 6) | (wide << 12) | (wide << 18)) & 0x03030303;
    std::memcpy(out.codes + 64 * b, &codes, sizeof codes);
    out.group_d[2 * b] = out.group_d[2 * b + 1] = half_at(blocks[b].d);
  }
}

// --- groups with an integer scale --------------------------------------------------------------

static void unpack_q2_k(const std::byte* source, std::size_t, IntBlock& out) {
  const auto& b = *reinterpret_cast<const q::BlockQ2_K*>(source);
  for (int half = 0; half < 2; ++half)
    for (int lane = 0; lane < 4; ++lane)
      for (int i = 0; i < 32; ++i)
        out.codes[128 * half + 32 * lane + i] =
            static_cast<std::uint8_t>((b.qs[32 * half + i] >> (2 * lane)) & 3);
  for (int g = 0; g < 16; ++g) {
    out.scales[g] = b.scales[g] & 15;
    out.mins[g] = b.scales[g] >> 4;
  }
  out.d = half_at(b.d);
  out.dmin = half_at(b.dmin);
}

static void unpack_q3_k(const std::byte* source, std::size_t, IntBlock& out) {
  const auto& b = *reinterpret_cast<const q::BlockQ3_K*>(source);
  for (int half = 0; half < 2; ++half)
    for (int lane = 0; lane < 4; ++lane)
      for (int i = 0; i < 32; ++i) {
        const int high = (b.hmask[i] >> (4 * half + lane)) & 1;
        out.codes[128 * half + 32 * lane + i] =
            static_cast<std::uint8_t>(((b.qs[32 * half + i] >> (2 * lane)) & 3) | (high << 2));
      }
  for (int g = 0; g < 16; ++g)
    out.scales[g] = static_cast<std::int16_t>(q::q3_k_scale(b.scales, g));
  out.d = half_at(b.d);
}

// The eight 6-bit scales and minima, four bytes at a time (q::k4_scale_min, all at once).
STRATA_INLINE void k4_scales(const q::Byte* scales, IntBlock& out) {
  const std::uint32_t a = q::load_u32(scales), b = q::load_u32(scales + 4),
                      c = q::load_u32(scales + 8);
  const std::uint32_t words[4] = {a & 0x3f3f3f3f, (c & 0x0f0f0f0f) | ((a >> 2) & 0x30303030),
                                  b & 0x3f3f3f3f,
                                  ((c >> 4) & 0x0f0f0f0f) | ((b >> 2) & 0x30303030)};
  std::uint8_t bytes[16];
  std::memcpy(bytes, words, sizeof bytes);
  for (int g = 0; g < 8; ++g) {
    out.scales[g] = bytes[g];
    out.mins[g] = bytes[8 + g];
  }
}

static void unpack_q4_k(const std::byte* source, std::size_t, IntBlock& out) {
  const auto& b = *reinterpret_cast<const q::BlockQ4_K*>(source);
  for (int pair = 0; pair < 4; ++pair)
    for (int i = 0; i < 32; ++i) {
      out.codes[64 * pair + i] = b.qs[32 * pair + i] & 15;
      out.codes[64 * pair + 32 + i] = b.qs[32 * pair + i] >> 4;
    }
  k4_scales(b.scales, out);
  out.d = half_at(b.d);
  out.dmin = half_at(b.dmin);
}

static void unpack_q5_k(const std::byte* source, std::size_t, IntBlock& out) {
  const auto& b = *reinterpret_cast<const q::BlockQ5_K*>(source);
  for (int pair = 0; pair < 4; ++pair)
    for (int i = 0; i < 32; ++i) {
      const int low = (b.qh[i] >> (2 * pair)) & 1, high = (b.qh[i] >> (2 * pair + 1)) & 1;
      out.codes[64 * pair + i] = static_cast<std::uint8_t>((b.qs[32 * pair + i] & 15) | (low << 4));
      out.codes[64 * pair + 32 + i] =
          static_cast<std::uint8_t>((b.qs[32 * pair + i] >> 4) | (high << 4));
    }
  k4_scales(b.scales, out);
  out.d = half_at(b.d);
  out.dmin = half_at(b.dmin);
}

static void unpack_q6_k(const std::byte* source, std::size_t, IntBlock& out) {
  const auto& b = *reinterpret_cast<const q::BlockQ6_K*>(source);
  for (int half = 0; half < 2; ++half) {
    const q::Byte *low = b.ql + 64 * half, *high = b.qh + 32 * half;
    std::uint8_t* codes = out.codes + 128 * half;
    for (int i = 0; i < 32; ++i) {
      codes[i] = static_cast<std::uint8_t>((low[i] & 15) | ((high[i] & 3) << 4));
      codes[32 + i] = static_cast<std::uint8_t>((low[32 + i] & 15) | (((high[i] >> 2) & 3) << 4));
      codes[64 + i] = static_cast<std::uint8_t>((low[i] >> 4) | (((high[i] >> 4) & 3) << 4));
      codes[96 + i] = static_cast<std::uint8_t>((low[32 + i] >> 4) | ((high[i] >> 6) << 4));
    }
  }
  for (int g = 0; g < 16; ++g) out.scales[g] = static_cast<std::int8_t>(b.scales[g]);
  out.d = half_at(b.d);
}

static void unpack_iq4_xs(const std::byte* source, std::size_t, IntBlock& out) {
  const auto& b = *reinterpret_cast<const q::BlockIQ4_XS*>(source);
  for (int g = 0; g < 8; ++g) {
    iq4_codes(b.qs + 16 * g, out.codes + 32 * g);
    out.scales[g] = static_cast<std::int16_t>(q::iq4_xs_scale(b, g));
  }
  out.d = half_at(b.d);
}

// --- lattice formats: entries of unsigned bytes, signs beside them
// --------------------------------

// Code of eight values: 128 + entry, or 128 - entry where the sign bit is set.
struct SignTables {
  std::array<std::uint64_t, 256> masks{};    // byte j is 0xFF where bit j is set
  std::array<std::uint8_t, 128> of_index{};  // sign bits of a 7-bit index
};
static constexpr SignTables kSigns = [] {
  SignTables t;
  for (std::uint32_t s = 0; s < 256; ++s)
    for (int j = 0; j < 8; ++j)
      if (s >> j & 1) t.masks[s] |= std::uint64_t{0xFF} << (8 * j);
  for (std::uint32_t i = 0; i < 128; ++i) t.of_index[i] = q::signs_of_index(i);
  return t;
}();
constexpr std::uint64_t kEveryByte = 0x0101010101010101ull;

STRATA_INLINE void signed_codes(std::uint64_t entry, std::uint32_t signs,
                                std::uint8_t* __restrict codes) {
  const std::uint64_t mask = kSigns.masks[signs & 255];
  // ~(128 + v) + 1 = 128 - v in each byte, without carries since v > 0
  const std::uint64_t result = ((entry + 128 * kEveryByte) ^ mask) + (mask & kEveryByte);
  std::memcpy(codes, &result, 8);
}
// Eight entries; byte l of `signs` belongs to entry l.
STRATA_INLINE void signed_codes64(const std::uint64_t* entries, std::uint64_t signs,
                                  std::uint8_t* __restrict codes) {
#if defined(STRATA_AVX512)
  const __m512i values =
      _mm512_setr_epi64(static_cast<long long>(entries[0]), static_cast<long long>(entries[1]),
                        static_cast<long long>(entries[2]), static_cast<long long>(entries[3]),
                        static_cast<long long>(entries[4]), static_cast<long long>(entries[5]),
                        static_cast<long long>(entries[6]), static_cast<long long>(entries[7]));
  const __m512i middle = _mm512_set1_epi8(static_cast<char>(-128));
  _mm512_store_si512(codes,
                     _mm512_mask_sub_epi8(_mm512_add_epi8(values, middle), signs, middle, values));
#else
  for (int l = 0; l < 8; ++l)
    signed_codes(entries[l], static_cast<std::uint32_t>(signs >> (8 * l)), codes + 8 * l);
#endif
}
// Sign bytes of the 32 seven-bit indices in the top bits of 32 codes.
STRATA_INLINE void sign_words(const q::Byte* codes, std::uint64_t* signs) {
#if defined(STRATA_AVX512)
  const __m512i index = _mm512_srli_epi16(_mm512_loadu_si512(codes), 9);
  __m512i parity = _mm512_xor_si512(index, _mm512_srli_epi16(index, 4));
  parity = _mm512_xor_si512(parity, _mm512_srli_epi16(parity, 2));
  parity = _mm512_xor_si512(parity, _mm512_srli_epi16(parity, 1));
  const __m512i eighth = _mm512_slli_epi16(_mm512_and_si512(parity, _mm512_set1_epi16(1)), 7);
  const __m256i bytes = _mm512_cvtepi16_epi8(_mm512_or_si512(index, eighth));
  std::memcpy(signs, &bytes, sizeof bytes);
#else
  for (int w = 0; w < 4; ++w) {
    signs[w] = 0;
    for (int l = 0; l < 8; ++l)
      signs[w] |= std::uint64_t{kSigns.of_index[q::load_u16(codes + 2 * (8 * w + l)) >> 9]}
                  << (8 * l);
  }
#endif
}
STRATA_INLINE std::uint64_t two_entries(std::uint32_t low, std::uint32_t high) {
  return low | (std::uint64_t{high} << 32);
}

#if defined(STRATA_VBMI)
// Lattice tables by byte position: plane[p][i] is byte p of entry i, looked up 64 entries at a
// time.
template <std::size_t Entries, std::size_t Positions>
struct Planes {
  alignas(64) std::array<std::array<std::uint8_t, Entries>, Positions> plane{};
  template <class Grid>
  explicit Planes(const Grid& grid) {
    for (std::size_t p = 0; p < Positions; ++p)
      for (std::size_t i = 0; i < Entries; ++i)
        plane[p][i] = static_cast<std::uint8_t>(grid[i] >> (8 * p));
  }
};

// 64 look-ups in a table of up to 512 bytes; bit 8 of index i is bit i of `ninth`.
template <std::size_t Entries>
STRATA_INLINE __m512i look_up(const std::uint8_t* table, __m512i index, std::uint64_t ninth) {
  const auto part = [&](std::size_t i) { return _mm512_load_si512(table + 64 * i); };
  __m512i low = _mm512_permutex2var_epi8(part(0), index, part(1));
  if constexpr (Entries > 128) {
    const __mmask64 eighth = _mm512_movepi8_mask(index);
    const __m512i second = _mm512_permutex2var_epi8(part(2), index, part(3));
    low = _mm512_mask_blend_epi8(eighth, low, second);
    if constexpr (Entries > 256) {
      const __m512i third = _mm512_permutex2var_epi8(part(4), index, part(5));
      const __m512i fourth = _mm512_permutex2var_epi8(part(6), index, part(7));
      low = _mm512_mask_blend_epi8(ninth, low, _mm512_mask_blend_epi8(eighth, third, fourth));
    }
  }
  return low;
}

// The same in longer tables; bit 8 + b of index i is bit i of high[b].
template <std::size_t Entries>
STRATA_INLINE __m512i look_up_long(const std::uint8_t* table, __m512i index,
                                   const __mmask64* high) {
  if constexpr (Entries <= 512) {
    return look_up<Entries>(table, index, high[0]);
  } else {
    const __m512i lower = look_up_long<Entries / 2>(table, index, high);
    const __m512i upper = look_up_long<Entries / 2>(table + Entries / 2, index, high);
    return _mm512_mask_blend_epi8(high[Entries == 1024 ? 1 : 2], lower, upper);
  }
}

// Four planes of 64 entries become 64 dwords in order (256 bytes).
STRATA_INLINE void interleave4(const __m512i* plane, __m512i* out) {
  const __m512i a0 = _mm512_unpacklo_epi8(plane[0], plane[1]);
  const __m512i a1 = _mm512_unpackhi_epi8(plane[0], plane[1]);
  const __m512i b0 = _mm512_unpacklo_epi8(plane[2], plane[3]);
  const __m512i b1 = _mm512_unpackhi_epi8(plane[2], plane[3]);
  // Lane L of r[j] holds entries 16 L + 4 j and the next three.
  const __m512i r0 = _mm512_unpacklo_epi16(a0, b0), r1 = _mm512_unpackhi_epi16(a0, b0);
  const __m512i r2 = _mm512_unpacklo_epi16(a1, b1), r3 = _mm512_unpackhi_epi16(a1, b1);
  const __m512i s0 = _mm512_shuffle_i32x4(r0, r1, 0x44), s1 = _mm512_shuffle_i32x4(r0, r1, 0xee);
  const __m512i s2 = _mm512_shuffle_i32x4(r2, r3, 0x44), s3 = _mm512_shuffle_i32x4(r2, r3, 0xee);
  out[0] = _mm512_shuffle_i32x4(s0, s2, 0x88);
  out[1] = _mm512_shuffle_i32x4(s0, s2, 0xdd);
  out[2] = _mm512_shuffle_i32x4(s1, s3, 0x88);
  out[3] = _mm512_shuffle_i32x4(s1, s3, 0xdd);
}

STRATA_INLINE void store_signed(std::uint8_t* codes, __m512i values, std::uint64_t signs) {
  const __m512i middle = _mm512_set1_epi8(static_cast<char>(-128));
  _mm512_store_si512(codes,
                     _mm512_mask_sub_epi8(_mm512_add_epi8(values, middle), signs, middle, values));
}

// 64 entries of four bytes with their signs: a whole block of an IQ3 format.
template <std::size_t Entries>
STRATA_INLINE void signed_quads(const Planes<Entries, 4>& planes, __m512i index,
                                std::uint64_t ninth, const std::uint64_t* signs,
                                std::uint8_t* codes) {
  __m512i plane[4], values[4];
  for (int p = 0; p < 4; ++p) plane[p] = look_up<Entries>(planes.plane[p].data(), index, ninth);
  interleave4(plane, values);
  for (int w = 0; w < 4; ++w) store_signed(codes + 64 * w, values[w], signs[w]);
}
#endif

static void unpack_iq2_xxs(const std::byte* source, std::size_t, IntBlock& out) {
  const auto& b = *reinterpret_cast<const q::BlockIQ2_XXS*>(source);
  for (int g = 0; g < 8; ++g) {
    const q::Byte* indices = b.qs + 8 * g;
    const std::uint32_t tail = q::load_u32(indices + 4);
    out.scales[g] = static_cast<std::int16_t>(2 * (tail >> 28) + 1);
    for (int l = 0; l < 4; ++l)
      signed_codes(q::iq2xxs_grid[indices[l]], kSigns.of_index[(tail >> (7 * l)) & 127],
                   out.codes + 32 * g + 8 * l);
  }
  out.d = half_at(b.d) * 0.125f;
}

STRATA_INLINE void nibble_scales(const q::Byte* scales, IntBlock& out) {
  for (int g = 0; g < 8; ++g) {
    out.scales[2 * g] = static_cast<std::int16_t>(2 * (scales[g] & 15) + 1);
    out.scales[2 * g + 1] = static_cast<std::int16_t>(2 * (scales[g] >> 4) + 1);
  }
}

static void unpack_iq2_xs(const std::byte* source, std::size_t, IntBlock& out) {
  const auto& b = *reinterpret_cast<const q::BlockIQ2_XS*>(source);
  std::uint64_t signs[4];
  sign_words(b.qs, signs);
  for (int w = 0; w < 4; ++w) {
    std::uint64_t entries[8];
    for (int l = 0; l < 8; ++l)
      entries[l] = q::iq2xs_grid[q::load_u16(b.qs + 2 * (8 * w + l)) & 511];
    signed_codes64(entries, signs[w], out.codes + 64 * w);
  }
  nibble_scales(b.scales, out);
  out.d = half_at(b.d) * 0.125f;
}

static void unpack_iq2_s(const std::byte* source, std::size_t, IntBlock& out) {
  const auto& b = *reinterpret_cast<const q::BlockIQ2_S*>(source);
  for (int w = 0; w < 4; ++w) {
    std::uint64_t entries[8], signs;
    const std::uint32_t high = q::load_u16(b.qh + 2 * w);
    for (int l = 0; l < 8; ++l)
      entries[l] = q::iq2s_grid[b.qs[8 * w + l] | (((high >> (2 * l)) & 3u) << 8)];
    std::memcpy(&signs, b.signs + 8 * w, sizeof signs);
    signed_codes64(entries, signs, out.codes + 64 * w);
  }
  nibble_scales(b.scales, out);
  out.d = half_at(b.d) * 0.125f;
}

static void unpack_iq3_xxs(const std::byte* source, std::size_t, IntBlock& out) {
  const auto& b = *reinterpret_cast<const q::BlockIQ3_XXS*>(source);
#if defined(STRATA_VBMI)
  static const Planes<256, 4> planes(q::iq3xxs_grid);
  std::uint8_t signs[32];
  for (int g = 0; g < 8; ++g) {
    const std::uint32_t tail = q::load_u32(b.scales_signs + 4 * g);
    out.scales[g] = static_cast<std::int16_t>(2 * (tail >> 28) + 1);
    for (int l = 0; l < 4; ++l) signs[4 * g + l] = kSigns.of_index[(tail >> (7 * l)) & 127];
  }
  std::uint64_t words[4];
  std::memcpy(words, signs, sizeof words);
  signed_quads(planes, _mm512_loadu_si512(b.qs), 0, words, out.codes);
#else
  for (int g = 0; g < 8; ++g) {
    const std::uint32_t tail = q::load_u32(b.scales_signs + 4 * g);
    out.scales[g] = static_cast<std::int16_t>(2 * (tail >> 28) + 1);
    for (int l = 0; l < 4; ++l) {
      const q::Byte* indices = b.qs + 8 * g + 2 * l;
      signed_codes(two_entries(q::iq3xxs_grid[indices[0]], q::iq3xxs_grid[indices[1]]),
                   kSigns.of_index[(tail >> (7 * l)) & 127], out.codes + 32 * g + 8 * l);
    }
  }
#endif
  out.d = half_at(b.d) * 0.25f;
}

static void unpack_iq3_s(const std::byte* source, std::size_t, IntBlock& out) {
  const auto& b = *reinterpret_cast<const q::BlockIQ3_S*>(source);
  for (int g = 0; g < 8; ++g)
    out.scales[g] = static_cast<std::int16_t>(1 + 2 * ((b.scales[g / 2] >> (4 * (g % 2))) & 15));
#if defined(STRATA_VBMI)
  static const Planes<512, 4> planes(q::iq3s_grid);
  std::uint64_t ninth, signs[4];
  std::memcpy(&ninth, b.qh, sizeof ninth);
  std::memcpy(signs, b.signs, sizeof signs);
  signed_quads(planes, _mm512_loadu_si512(b.qs), ninth, signs, out.codes);
#else
  for (int w = 0; w < 4; ++w) {
    std::uint64_t entries[8], signs;
    const q::Byte* low = b.qs + 16 * w;
    const std::uint32_t high = q::load_u16(b.qh + 2 * w);
    for (int l = 0; l < 8; ++l) {
      entries[l] = two_entries(q::iq3s_grid[low[2 * l] | ((high >> (2 * l) & 1u) << 8)],
                               q::iq3s_grid[low[2 * l + 1] | ((high >> (2 * l + 1) & 1u) << 8)]);
    }
    std::memcpy(&signs, b.signs + 8 * w, sizeof signs);
    signed_codes64(entries, signs, out.codes + 64 * w);
  }
#endif
  out.d = half_at(b.d);
}

// Ternary entries and a delta of an eighth: in eighths, 8 * level +- 1 with zero at 16.
STRATA_INLINE void ternary_codes(std::uint64_t entry, bool minus, std::uint8_t* __restrict codes) {
  for (int j = 0; j < 8; ++j) {
    const auto level = static_cast<std::int8_t>((entry >> (8 * j)) & 255);
    codes[j] = static_cast<std::uint8_t>(16 + 8 * level + (minus ? -1 : 1));
  }
}

static void unpack_iq1_s(const std::byte* source, std::size_t, IntBlock& out) {
  const auto& b = *reinterpret_cast<const q::BlockIQ1_S*>(source);
  for (int g = 0; g < 8; ++g) {
    const std::uint32_t high = q::load_u16(b.qh + 2 * g);
    out.scales[g] = static_cast<std::int16_t>(2 * ((high >> 12) & 7) + 1);
    for (int l = 0; l < 4; ++l)
      ternary_codes(q::iq1s_grid[b.qs[4 * g + l] | (((high >> (3 * l)) & 7) << 8)],
                    (high & 0x8000) != 0, out.codes + 32 * g + 8 * l);
  }
  out.d = half_at(b.d) * 0.125f;
}

static void unpack_iq1_m(const std::byte* source, std::size_t, IntBlock& out) {
  const auto& b = *reinterpret_cast<const q::BlockIQ1_M*>(source);
  std::uint32_t half = 0;  // the top four bits of the scale words
  for (int k = 0; k < 4; ++k)
    half |= (std::uint32_t{q::load_u16(b.scales + 2 * k)} >> 12) << (4 * k);
  for (int g = 0; g < 16; ++g) {
    const std::uint32_t word = q::load_u16(b.scales + 2 * (g / 4));
    out.scales[g] = static_cast<std::int16_t>(2 * ((word >> (3 * (g % 4))) & 7) + 1);
  }
  for (int l = 0; l < 32; ++l) {
    const std::uint32_t high = (b.qh[l / 2] >> (4 * (l % 2))) & 15u;
    ternary_codes(q::iq1s_grid[b.qs[l] | ((high & 7) << 8)], (high & 8) != 0, out.codes + 8 * l);
  }
  out.d = half_to_float(static_cast<std::uint16_t>(half)) * 0.125f;
}

static Unpack unpack_of(TensorType type) {
  switch (type) {
    case TensorType::Q4_0:
      return unpack_groups<q::BlockQ4_0, nibble_codes<q::BlockQ4_0>>;
    case TensorType::Q4_1:
      return unpack_groups<q::BlockQ4_1, nibble_codes<q::BlockQ4_1>>;
    case TensorType::Q5_0:
      return unpack_groups<q::BlockQ5_0, five_bit_codes<q::BlockQ5_0>>;
    case TensorType::Q5_1:
      return unpack_groups<q::BlockQ5_1, five_bit_codes<q::BlockQ5_1>>;
    case TensorType::Q8_0:
      return unpack_groups<q::BlockQ8_0, q8_0_codes>;
    case TensorType::IQ4_NL:
      return unpack_groups<q::BlockIQ4_NL, iq4_nl_codes>;
    case TensorType::Q2_0:
      return unpack_q2_0;
    case TensorType::Q2_K:
      return unpack_q2_k;
    case TensorType::Q3_K:
      return unpack_q3_k;
    case TensorType::Q4_K:
      return unpack_q4_k;
    case TensorType::Q5_K:
      return unpack_q5_k;
    case TensorType::Q6_K:
      return unpack_q6_k;
    case TensorType::IQ1_S:
      return unpack_iq1_s;
    case TensorType::IQ1_M:
      return unpack_iq1_m;
    case TensorType::IQ2_XXS:
      return unpack_iq2_xxs;
    case TensorType::IQ2_XS:
      return unpack_iq2_xs;
    case TensorType::IQ2_S:
      return unpack_iq2_s;
    case TensorType::IQ3_XXS:
      return unpack_iq3_xxs;
    case TensorType::IQ3_S:
      return unpack_iq3_s;
    case TensorType::IQ4_XS:
      return unpack_iq4_xs;
    default:
      return nullptr;
  }
}
