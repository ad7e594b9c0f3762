// Integer products with quantised activations on 64-bit ARM, compiled once for each of its
// instruction sets like kernels_impl.h. Order of the sums: int_blocks.h. Blocks are unpacked as
// everywhere; then, for a few tokens, four rows at a time are multiplied as they lie there, and
// for more, eight rows at a time are turned so that they lie in the lanes.

// What the sums of a format are.
template <BlockKind Kind, std::size_t Group, bool Minima>
struct Sums {
  static constexpr bool words = Kind == BlockKind::group_words;
  static constexpr bool integers = Kind == BlockKind::group_integers;
  static constexpr bool minima = Minima;
  static constexpr std::size_t group = Group;
};

// --- dots of bytes ------------------------------------------------------------------------------

// sum[i] += a . b of four bytes, or on CPUs without such instructions of some four of the sixteen.
STRATA_INLINE int32x4_t dot_bytes(int32x4_t sum, int8x16_t a, int8x16_t b) {
#if defined(STRATA_DOTPROD)
  return vdotq_s32(sum, a, b);
#else
  // Two products fit 16 bits: activations are never -128.
  const int16x8_t pairs = vmlal_high_s8(vmull_s8(vget_low_s8(a), vget_low_s8(b)), a, b);
  return vpadalq_s16(sum, pairs);
#endif
}
// sum[i] += codes[4 i .. 4 i + 3] . x[4 Lane .. 4 Lane + 3]
template <int Lane>
STRATA_INLINE int32x4_t dot_lane(int32x4_t sum, int8x16_t codes, int8x16_t x) {
#if defined(STRATA_DOTPROD)
  return vdotq_laneq_s32(sum, codes, x, Lane);
#else
  const int8x16_t four = (int8x16_t)vdupq_laneq_s32((int32x4_t)x, Lane);
  const int16x8_t low = vmull_s8(vget_low_s8(codes), vget_low_s8(four));
  return vpadalq_s16(sum, vpaddq_s16(low, vmull_high_s8(codes, four)));
#endif
}
// The sums of four vectors, each in a lane.
STRATA_INLINE int32x4_t sum_each(const int32x4_t* v) {
  return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
}
// Calls body(std::integral_constant<int, i>) for i < Count.
template <int Count, class Body>
STRATA_INLINE void for_constants(const Body& body) {
  [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
    (body(std::integral_constant<int, I>{}), ...);
  }(std::make_integer_sequence<int, Count>{});
}

// For the probe of the machine's peak: 64 products.
STRATA_INLINE IntLanes dot4(const IntLanes& sum, const std::uint8_t* x, const IntLanes& codes) {
  const auto four = (int8x16_t)vld1q_dup_u32(reinterpret_cast<const std::uint32_t*>(x));
  const auto of = [](int32x4_t v) { return (int8x16_t)v; };
#if defined(STRATA_I8MM)
  return {vmmlaq_s32(sum.a, of(codes.a), four), vmmlaq_s32(sum.b, of(codes.b), four), sum.c, sum.d};
#else
  return {dot_bytes(sum.a, of(codes.a), four), dot_bytes(sum.b, of(codes.b), four),
          dot_bytes(sum.c, of(codes.c), four), dot_bytes(sum.d, of(codes.d), four)};
#endif
}

// Codes minus their zero.
STRATA_INLINE int8x16_t signed_bytes(const std::uint8_t* codes, std::uint8_t zero) {
  return vreinterpretq_s8_u8(vsubq_u8(vld1q_u8(codes), vdupq_n_u8(zero)));
}
// Q8_0 is unpacked to codes with this zero, for words too.
STRATA_INLINE std::uint8_t zero_of(const IntFormat& format) {
  return format.kind == BlockKind::group_words ? 128 : format.zero;
}

// --- a few tokens: rows -------------------------------------------------------------------------

constexpr std::size_t kQuad = 4;  // rows at a time

// A value of each of four blocks.
template <class Get>
STRATA_INLINE float32x4_t of_each(const IntBlock* blocks, const Get& get) {
  return float32x4_t{get(blocks[0]), get(blocks[1]), get(blocks[2]), get(blocks[3])};
}

// Formats with a float scale for each 32 values: acc[token] of four rows.
template <class S, std::size_t Tokens>
STRATA_INLINE void float_quad(const IntBlock* blocks, std::uint8_t zero, std::size_t groups,
                              const QuantizedRow* x, std::size_t at, float32x4_t* acc) {
  for (std::size_t g = 0; g < groups; ++g) {
    int32x4_t part[Tokens][kQuad];
    for (std::size_t r = 0; r < kQuad; ++r) {
      const int8x16_t first = signed_bytes(blocks[r].codes + 32 * g, zero);
      const int8x16_t second = signed_bytes(blocks[r].codes + 32 * g + 16, zero);
      for (std::size_t t = 0; t < Tokens; ++t) {
        int32x4_t sum = vdupq_n_s32(0);
        if constexpr (S::words) {
          const std::int16_t* in = x[t].words + at + 32 * g;
          for (const int8x16_t codes : {first, second}) {
            const int16x8_t low = vmovl_s8(vget_low_s8(codes)), high = vmovl_high_s8(codes);
            const int16x8_t a = vld1q_s16(in), b = vld1q_s16(in + 8);
            sum = vmlal_high_s16(vmlal_s16(sum, vget_low_s16(low), vget_low_s16(a)), low, a);
            sum = vmlal_high_s16(vmlal_s16(sum, vget_low_s16(high), vget_low_s16(b)), high, b);
            in += 16;
          }
        } else {
          const std::int8_t* in = x[t].values + at + 32 * g;
          sum = dot_bytes(dot_bytes(sum, first, vld1q_s8(in)), second, vld1q_s8(in + 16));
        }
        part[t][r] = sum;
      }
    }
    const float32x4_t d = of_each(blocks, [&](const IntBlock& b) { return b.group_d[g]; });
    for (std::size_t t = 0; t < Tokens; ++t) {
      const float32x4_t scale = vmulq_n_f32(d, x[t].scales[at / 32 + g]);
      acc[t] = vfmaq_f32(acc[t], vcvtq_f32_s32(sum_each(part[t])), scale);
      if constexpr (S::minima) {
        const float32x4_t m = of_each(blocks, [&](const IntBlock& b) { return b.group_m[g]; });
        acc[t] = vfmaq_n_f32(acc[t], m, x[t].scaled_sums[at / 32 + g]);
      }
    }
  }
}

// Formats with integer scales.
template <class S, std::size_t Tokens>
STRATA_INLINE void integer_quad(const IntBlock* blocks, std::uint8_t zero, const QuantizedRow* x,
                                std::size_t at, float32x4_t* acc) {
  constexpr std::size_t groups = kBlock / S::group;
  int32x4_t total[Tokens][kQuad], low[Tokens][kQuad];
  for (std::size_t t = 0; t < Tokens; ++t)
    for (std::size_t r = 0; r < kQuad; ++r) total[t][r] = low[t][r] = vdupq_n_s32(0);
  for (std::size_t g = 0; g < groups; ++g)
    for (std::size_t r = 0; r < kQuad; ++r) {
      int8x16_t codes[S::group / 16];
      for (std::size_t i = 0; i < S::group / 16; ++i)
        codes[i] = signed_bytes(blocks[r].codes + S::group * g + 16 * i, zero);
      const std::int32_t scale = blocks[r].scales[g];
      for (std::size_t t = 0; t < Tokens; ++t) {
        const std::int8_t* in = x[t].values + at + S::group * g;
        int32x4_t sum = vdupq_n_s32(0);
        for (std::size_t i = 0; i < S::group / 16; ++i)
          sum = dot_bytes(sum, codes[i], vld1q_s8(in + 16 * i));
        total[t][r] = vmlaq_n_s32(total[t][r], sum, scale);
      }
    }
  if constexpr (S::minima) {
    for (std::size_t r = 0; r < kQuad; ++r)
      for (std::size_t g = 0; g < groups; g += 8) {
        const int16x8_t mins = vld1q_s16(blocks[r].mins + g);
        for (std::size_t t = 0; t < Tokens; ++t) {
          const std::int16_t* sums = S::group == 32 ? x[t].sums32 : x[t].sums16;
          const int16x8_t in = vld1q_s16(sums + at / S::group + g);
          low[t][r] = vmlal_s16(low[t][r], vget_low_s16(mins), vget_low_s16(in));
          low[t][r] = vmlal_high_s16(low[t][r], mins, in);
        }
      }
  }
  const float32x4_t d = of_each(blocks, [](const IntBlock& b) { return b.d; });
  for (std::size_t t = 0; t < Tokens; ++t) {
    const float dx = x[t].scales[at / kBlock];
    acc[t] = vfmaq_f32(acc[t], vcvtq_f32_s32(sum_each(total[t])), vmulq_n_f32(d, dx));
    if constexpr (S::minima) {
      const float32x4_t dmin = of_each(blocks, [](const IntBlock& b) { return b.dmin; });
      const float32x4_t whole = vcvtq_f32_s32(sum_each(low[t]));
      acc[t] = vfmaq_f32(acc[t], whole, vnegq_f32(vmulq_n_f32(dmin, dx)));
    }
  }
}

// What all rows of a product share.
struct IntProduct {
  const IntFormat& format;
  Unpack unpack;
  std::size_t row_bytes, width;
  const QuantizedRow* x;
  std::size_t block_values, block_bytes, step;  // of 256 values
  IntProduct(const IntFormat& f, std::size_t bytes, std::size_t values, const QuantizedRow* in)
      : format(f), unpack(unpack_of(f.type)), row_bytes(bytes), width(values), x(in) {
    const TypeTraits& type = traits(f.type);
    block_values = type.block_values;
    block_bytes = type.block_bytes;
    step = kBlock / block_values * block_bytes;
  }
  std::size_t groups(std::size_t at) const { return std::min(kBlock, width - at) / 32; }
  std::size_t offset(std::size_t at) const { return at / block_values * block_bytes; }
};

template <class S, std::size_t Tokens>
static void few_tokens(const IntProduct& p, const std::byte* matrix, std::size_t row_count,
                       float* const* y, const std::byte* after) {
  alignas(64) IntBlock blocks[kQuad];
  const std::uint8_t zero = zero_of(p.format);
  for (std::size_t row = 0; row < row_count; row += kQuad) {
    const std::size_t count = std::min(kQuad, row_count - row);
    const std::byte* first = matrix + row * p.row_bytes;
    const std::byte* next = row + kQuad < row_count ? first + kQuad * p.row_bytes : after;
    float32x4_t acc[Tokens];
    for (std::size_t t = 0; t < Tokens; ++t) acc[t] = vdupq_n_f32(0.0f);
    for (std::size_t at = 0; at < p.width; at += kBlock) {
      const std::size_t groups = p.groups(at), offset = p.offset(at);
      prefetch_run(next + kQuad * offset, kQuad * p.step);
      for (std::size_t r = 0; r < kQuad; ++r)
        p.unpack(first + std::min(r, count - 1) * p.row_bytes + offset, groups, blocks[r]);
      if constexpr (S::integers) {
        integer_quad<S, Tokens>(blocks, zero, p.x, at, acc);
      } else {
        float_quad<S, Tokens>(blocks, zero, groups, p.x, at, acc);
      }
    }
    for (std::size_t t = 0; t < Tokens; ++t)
      std::memcpy(y[t] + row, &acc[t], count * sizeof(float));
  }
}

// --- more tokens: panels ------------------------------------------------------------------------

constexpr std::size_t kOctet = 8;  // rows of a tile
constexpr std::size_t kOctets = kPanelRows / kOctet;
constexpr std::size_t kNeonTokens = 4;  // tokens of a tile

// A block of up to 64 rows.
struct alignas(64) NeonPanel {
  // An octet's codes minus zero. With matrix products, 16 bytes hold eight inputs of two rows;
  // with dots, four inputs of four rows; of group_words, one 16-bit input of eight rows.
  std::int8_t codes[kOctets][2 * kBlock * kOctet];
  std::int32_t scales[16][kPanelRows];
  std::int16_t mins[16][kPanelRows];
  float d[kPanelRows], dmin[kPanelRows];
  float group_d[8][kPanelRows], group_m[8][kPanelRows];
};

// Sixteen inputs of eight rows.
STRATA_INLINE void turn_bytes(const int8x16_t* row, std::int8_t* out) {
#if defined(STRATA_I8MM)
  for (std::size_t pair = 0; pair < 4; ++pair) {
    const auto a = (int64x2_t)row[2 * pair], b = (int64x2_t)row[2 * pair + 1];
    vst1q_s8(out + 16 * pair, (int8x16_t)vzip1q_s64(a, b));
    vst1q_s8(out + 64 + 16 * pair, (int8x16_t)vzip2q_s64(a, b));
  }
#else
  for (std::size_t quad = 0; quad < 2; ++quad) {
    const int8x16_t* r = row + 4 * quad;
    const auto a = (int64x2_t)vtrn1q_s32((int32x4_t)r[0], (int32x4_t)r[1]);
    const auto b = (int64x2_t)vtrn2q_s32((int32x4_t)r[0], (int32x4_t)r[1]);
    const auto c = (int64x2_t)vtrn1q_s32((int32x4_t)r[2], (int32x4_t)r[3]);
    const auto d = (int64x2_t)vtrn2q_s32((int32x4_t)r[2], (int32x4_t)r[3]);
    vst1q_s8(out + 16 * quad, (int8x16_t)vtrn1q_s64(a, c));
    vst1q_s8(out + 32 + 16 * quad, (int8x16_t)vtrn1q_s64(b, d));
    vst1q_s8(out + 64 + 16 * quad, (int8x16_t)vtrn2q_s64(a, c));
    vst1q_s8(out + 96 + 16 * quad, (int8x16_t)vtrn2q_s64(b, d));
  }
#endif
}
// The same as 16-bit integers, one input after the other.
STRATA_INLINE void turn_words(const int8x16_t* row, std::int8_t* out) {
  std::int8_t bytes[kOctet][16];
  for (std::size_t r = 0; r < kOctet; ++r) vst1q_s8(bytes[r], row[r]);
  for (std::size_t k = 0; k < 16; ++k) {
    std::int16_t column[kOctet];
    for (std::size_t r = 0; r < kOctet; ++r) column[r] = bytes[r][k];
    std::memcpy(out + k * sizeof column, column, sizeof column);
  }
}

template <class S>
static void fill_octet(const IntBlock* blocks, std::uint8_t zero, std::size_t groups,
                       std::size_t octet, NeonPanel& panel) {
  for (std::size_t k = 0; k < 32 * groups; k += 16) {
    int8x16_t row[kOctet];
    for (std::size_t r = 0; r < kOctet; ++r) row[r] = signed_bytes(blocks[r].codes + k, zero);
    if constexpr (S::words) {
      turn_words(row, panel.codes[octet] + 2 * kOctet * k);
    } else {
      turn_bytes(row, panel.codes[octet] + kOctet * k);
    }
  }
  for (std::size_t r = 0; r < kOctet; ++r) {
    const std::size_t lane = octet * kOctet + r;
    if constexpr (S::integers) {
      for (std::size_t g = 0; g < kBlock / S::group; ++g) {
        panel.scales[g][lane] = blocks[r].scales[g];
        if constexpr (S::minima) panel.mins[g][lane] = blocks[r].mins[g];
      }
      panel.d[lane] = blocks[r].d;
      if constexpr (S::minima) panel.dmin[lane] = blocks[r].dmin;
    } else {
      for (std::size_t g = 0; g < groups; ++g) {
        panel.group_d[g][lane] = blocks[r].group_d[g];
        if constexpr (S::minima) panel.group_m[g][lane] = blocks[r].group_m[g];
      }
    }
  }
}

// Dots of `Width` inputs of eight rows with each token, rows in the lanes: [quad of rows][token].
template <std::size_t Tokens>
using OctetDots = int32x4_t[2][Tokens];

#if defined(STRATA_I8MM)
template <std::size_t Width, std::size_t Tokens>
STRATA_INLINE void octet_dots(const std::int8_t* codes, const std::int8_t* const* x,
                              OctetDots<Tokens>& dots) {
  constexpr std::size_t pairs = (Tokens + 1) / 2;
  int32x4_t sum[4][pairs];  // two rows by two tokens
  for (auto& row : sum)
    for (int32x4_t& s : row) s = vdupq_n_s32(0);
  for (std::size_t k = 0; k < Width; k += 16) {
    int8x16_t first[pairs], second[pairs];
    for (std::size_t p = 0; p < pairs; ++p) {
      const auto a = (int64x2_t)vld1q_s8(x[2 * p] + k);
      const auto b = (int64x2_t)vld1q_s8(x[std::min(2 * p + 1, Tokens - 1)] + k);
      first[p] = (int8x16_t)vzip1q_s64(a, b);
      second[p] = (int8x16_t)vzip2q_s64(a, b);
    }
    for (std::size_t r = 0; r < 4; ++r) {
      const int8x16_t a = vld1q_s8(codes + kOctet * k + 16 * r);
      const int8x16_t b = vld1q_s8(codes + kOctet * k + 64 + 16 * r);
      for (std::size_t p = 0; p < pairs; ++p)
        sum[r][p] = vmmlaq_s32(vmmlaq_s32(sum[r][p], a, first[p]), b, second[p]);
    }
  }
  for (std::size_t quad = 0; quad < 2; ++quad)
    for (std::size_t t = 0; t < Tokens; ++t) {
      const int32x4_t a = sum[2 * quad][t / 2], b = sum[2 * quad + 1][t / 2];
      dots[quad][t] = t % 2 == 0 ? vuzp1q_s32(a, b) : vuzp2q_s32(a, b);
    }
}
#else
template <std::size_t Width, std::size_t Tokens>
STRATA_INLINE void octet_dots(const std::int8_t* codes, const std::int8_t* const* x,
                              OctetDots<Tokens>& dots) {
  for (auto& quad : dots)
    for (int32x4_t& s : quad) s = vdupq_n_s32(0);
  for (std::size_t k = 0; k < Width; k += 16) {
    int8x16_t in[Tokens];
    for (std::size_t t = 0; t < Tokens; ++t) in[t] = vld1q_s8(x[t] + k);
    for_constants<4>([&](auto four) __attribute__((always_inline)) {
      for (std::size_t quad = 0; quad < 2; ++quad) {
        const int8x16_t c = vld1q_s8(codes + kOctet * k + 32 * four + 16 * quad);
        for (std::size_t t = 0; t < Tokens; ++t)
          dots[quad][t] = dot_lane<four>(dots[quad][t], c, in[t]);
      }
    });
  }
}
#endif

// The same of 16-bit inputs and groups of 32.
template <std::size_t Tokens>
STRATA_INLINE void octet_words(const std::int8_t* codes, const std::int16_t* const* x,
                               OctetDots<Tokens>& dots) {
  for (auto& quad : dots)
    for (int32x4_t& s : quad) s = vdupq_n_s32(0);
  for (std::size_t k = 0; k < 32; k += 8) {
    int16x8_t in[Tokens];
    for (std::size_t t = 0; t < Tokens; ++t) in[t] = vld1q_s16(x[t] + k);
    for_constants<8>([&](auto i) __attribute__((always_inline)) {
      const auto c = (int16x8_t)vld1q_s8(codes + 2 * kOctet * (k + i));
      for (std::size_t t = 0; t < Tokens; ++t) {
        dots[0][t] = vmlal_laneq_s16(dots[0][t], vget_low_s16(c), in[t], i);
        dots[1][t] = vmlal_high_laneq_s16(dots[1][t], c, in[t], i);
      }
    });
  }
}

template <class S, std::size_t Tokens>
STRATA_INLINE void float_tile(const NeonPanel& panel, std::size_t octet, std::size_t groups,
                              const QuantizedRow* x, std::size_t at, float32x4_t (*acc)[Tokens]) {
  for (std::size_t g = 0; g < groups; ++g) {
    OctetDots<Tokens> dots;
    if constexpr (S::words) {
      const std::int16_t* in[Tokens];
      for (std::size_t t = 0; t < Tokens; ++t) in[t] = x[t].words + at + 32 * g;
      octet_words<Tokens>(panel.codes[octet] + 2 * kOctet * 32 * g, in, dots);
    } else {
      const std::int8_t* in[Tokens];
      for (std::size_t t = 0; t < Tokens; ++t) in[t] = x[t].values + at + 32 * g;
      octet_dots<32, Tokens>(panel.codes[octet] + kOctet * 32 * g, in, dots);
    }
    for (std::size_t quad = 0; quad < 2; ++quad) {
      const std::size_t lane = kOctet * octet + kQuad * quad;
      const float32x4_t d = vld1q_f32(panel.group_d[g] + lane);
      for (std::size_t t = 0; t < Tokens; ++t) {
        const float32x4_t scale = vmulq_n_f32(d, x[t].scales[at / 32 + g]);
        acc[quad][t] = vfmaq_f32(acc[quad][t], vcvtq_f32_s32(dots[quad][t]), scale);
        if constexpr (S::minima) {
          const float32x4_t m = vld1q_f32(panel.group_m[g] + lane);
          acc[quad][t] = vfmaq_n_f32(acc[quad][t], m, x[t].scaled_sums[at / 32 + g]);
        }
      }
    }
  }
}

template <class S, std::size_t Tokens>
STRATA_INLINE void integer_tile(const NeonPanel& panel, std::size_t octet, const QuantizedRow* x,
                                std::size_t at, float32x4_t (*acc)[Tokens]) {
  constexpr std::size_t groups = kBlock / S::group;
  const std::size_t lane = kOctet * octet;
  int32x4_t total[2][Tokens];
  for (auto& quad : total)
    for (int32x4_t& t : quad) t = vdupq_n_s32(0);
  for (std::size_t g = 0; g < groups; ++g) {
    const std::int8_t* in[Tokens];
    for (std::size_t t = 0; t < Tokens; ++t) in[t] = x[t].values + at + S::group * g;
    OctetDots<Tokens> dots;
    octet_dots<S::group, Tokens>(panel.codes[octet] + kOctet * S::group * g, in, dots);
    for (std::size_t quad = 0; quad < 2; ++quad) {
      const int32x4_t scale = vld1q_s32(panel.scales[g] + lane + kQuad * quad);
      for (std::size_t t = 0; t < Tokens; ++t)
        total[quad][t] = vmlaq_s32(total[quad][t], dots[quad][t], scale);
    }
  }
  for (std::size_t quad = 0; quad < 2; ++quad)
    for (std::size_t t = 0; t < Tokens; ++t) {
      const float dx = x[t].scales[at / kBlock];
      float32x4_t& sum = acc[quad][t];
      const float32x4_t d = vld1q_f32(panel.d + lane + kQuad * quad);
      sum = vfmaq_f32(sum, vcvtq_f32_s32(total[quad][t]), vmulq_n_f32(d, dx));
      if constexpr (S::minima) {
        const std::int16_t* sums = (S::group == 32 ? x[t].sums32 : x[t].sums16) + at / S::group;
        int32x4_t low = vdupq_n_s32(0);
        for (std::size_t g = 0; g < groups; ++g)
          low = vmlal_n_s16(low, vld1_s16(panel.mins[g] + lane + kQuad * quad), sums[g]);
        const float32x4_t dmin = vld1q_f32(panel.dmin + lane + kQuad * quad);
        sum = vfmaq_f32(sum, vcvtq_f32_s32(low), vnegq_f32(vmulq_n_f32(dmin, dx)));
      }
    }
}

// A block of eight rows for `Tokens` tokens, added to sums[token][row].
template <class S, std::size_t Tokens>
static void neon_tile(const NeonPanel& panel, std::size_t octet, std::size_t groups,
                      const QuantizedRow* x, std::size_t at, float* sums) {
  float32x4_t acc[2][Tokens];
  const auto place = [&](std::size_t quad, std::size_t t) {
    return sums + t * kPanelRows + kOctet * octet + kQuad * quad;
  };
  for (std::size_t quad = 0; quad < 2; ++quad)
    for (std::size_t t = 0; t < Tokens; ++t)
      acc[quad][t] = at == 0 ? vdupq_n_f32(0.0f) : vld1q_f32(place(quad, t));
  if constexpr (S::integers) {
    integer_tile<S, Tokens>(panel, octet, x, at, acc);
  } else {
    float_tile<S, Tokens>(panel, octet, groups, x, at, acc);
  }
  for (std::size_t quad = 0; quad < 2; ++quad)
    for (std::size_t t = 0; t < Tokens; ++t) vst1q_f32(place(quad, t), acc[quad][t]);
}

// Up to kPanelRows rows, unpacked block by block, with every token.
template <class S>
static void neon_panel(const IntProduct& p, const std::byte* matrix, std::size_t row_count,
                       float* const* y, std::size_t first_row, std::size_t tokens,
                       const std::byte* next) {
  struct alignas(64) Scratch {
    IntBlock blocks[kOctet];
    NeonPanel panel;
    std::vector<float> sums;  // [tokens][kPanelRows]
  };
  thread_local const std::unique_ptr<Scratch> scratch = std::make_unique<Scratch>();
  if (scratch->sums.size() < tokens * kPanelRows) scratch->sums.resize(tokens * kPanelRows);
  const std::size_t octets = (row_count + kOctet - 1) / kOctet;
  for (std::size_t at = 0; at < p.width; at += kBlock) {
    const std::size_t groups = p.groups(at), offset = p.offset(at);
    for (std::size_t octet = 0; octet < octets; ++octet) {
      prefetch_later(next + row_count * offset + octet * kOctet * p.step, kOctet * p.step);
      for (std::size_t r = 0; r < kOctet; ++r) {
        const std::size_t row = std::min(octet * kOctet + r, row_count - 1);
        p.unpack(matrix + row * p.row_bytes + offset, groups, scratch->blocks[r]);
      }
      fill_octet<S>(scratch->blocks, zero_of(p.format), groups, octet, scratch->panel);
    }
    const std::size_t turns = (tokens + kNeonTokens - 1) / kNeonTokens;
    for (std::size_t turn = 0; turn < turns; ++turn) {
      const std::size_t t = tokens * turn / turns, count = tokens * (turn + 1) / turns - t;
      static constexpr decltype(&neon_tile<S, 1>) tiles[kNeonTokens] = {
          neon_tile<S, 1>, neon_tile<S, 2>, neon_tile<S, 3>, neon_tile<S, 4>};
      for (std::size_t octet = 0; octet < octets; ++octet)
        tiles[count - 1](scratch->panel, octet, groups, p.x + t, at,
                         scratch->sums.data() + t * kPanelRows);
    }
  }
  for (std::size_t t = 0; t < tokens; ++t)
    std::memcpy(y[t] + first_row, scratch->sums.data() + t * kPanelRows, row_count * sizeof(float));
}

// --- the product --------------------------------------------------------------------------------

template <class S>
static void neon_product(const IntProduct& p, const std::byte* matrix, std::size_t row_count,
                         float* const* y, std::size_t tokens, const std::byte* after) {
  static_assert(kFewTokens == 4);
  switch (tokens) {
    case 1:
      return few_tokens<S, 1>(p, matrix, row_count, y, after);
    case 2:
      return few_tokens<S, 2>(p, matrix, row_count, y, after);
    case 3:
      return few_tokens<S, 3>(p, matrix, row_count, y, after);
    case 4:
      return few_tokens<S, 4>(p, matrix, row_count, y, after);
    default:
      break;
  }
  for (std::size_t row = 0; row < row_count; row += kPanelRows) {
    const std::byte* from = matrix + row * p.row_bytes;
    const std::byte* next = row + kPanelRows < row_count ? from + kPanelRows * p.row_bytes : after;
    neon_panel<S>(p, from, std::min(kPanelRows, row_count - row), y, row, tokens, next);
  }
}

static bool has_gemv(const IntFormat&) {
  return true;
}

static void int_gemm(const IntFormat& format, const std::byte* matrix, std::size_t row_bytes,
                     std::size_t row_count, std::size_t width, const QuantizedRow* x,
                     float* const* y, std::size_t tokens, const std::byte* after, bool) {
  const IntProduct p(format, row_bytes, width, x);
  const auto run = [&](auto sums) {
    neon_product<decltype(sums)>(p, matrix, row_count, y, tokens, after);
  };
  using enum BlockKind;
  if (format.kind == group_words) return run(Sums<group_words, 32, false>{});
  if (format.kind == group_floats) {
    if (format.minima) return run(Sums<group_floats, 32, true>{});
    return run(Sums<group_floats, 32, false>{});
  }
  if (format.group == 32) {
    if (format.minima) return run(Sums<group_integers, 32, true>{});
    return run(Sums<group_integers, 32, false>{});
  }
  if (format.minima) return run(Sums<group_integers, 16, true>{});
  run(Sums<group_integers, 16, false>{});
}
