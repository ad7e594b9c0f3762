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
STRATA_INLINE void bit_pairs(const Zmm& bytes, Zmm* codes) {
  const Zmm three = every_byte(3);
  codes[0] = _mm512_and_si512(bytes, three);
  codes[1] = _mm512_and_si512(_mm512_srli_epi16(bytes, 2), three);
  codes[2] = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), three);
  codes[3] = _mm512_and_si512(_mm512_srli_epi16(bytes, 6), three);
}

// a & mask | b
STRATA_INLINE Zmm masked_or(const Zmm& a, const Zmm& mask, const Zmm& b) {
  return _mm512_ternarylogic_epi64(a, mask, b, 0xea);
}
// Sums across four vectors each: 128-bit lane i of u[q] has a part of the sums of v[4 q] to
// v[4 q + 3].
STRATA_INLINE void sum_fours(const Zmm* v, Zmm* u) {
  for (std::size_t q = 0; q < 4; ++q) {
    const Zmm a = v[4 * q], b = v[4 * q + 1], c = v[4 * q + 2], d = v[4 * q + 3];
    const Zmm ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const Zmm cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    u[q] = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  }
}
// Lanes 0 + 1 and 2 + 3 of both.
STRATA_INLINE Zmm sum_lane_pairs(const Zmm& a, const Zmm& b) {
  return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}
// Sums of 16 vectors of 16 dwords, vector r in lane r.
STRATA_INLINE Zmm sum_each(const Zmm* v) {
  Zmm u[4];
  sum_fours(v, u);
  return sum_lane_pairs(sum_lane_pairs(u[0], u[1]), sum_lane_pairs(u[2], u[3]));
}
// Of their lower and of their upper halves.
STRATA_INLINE void sum_both(const Zmm* v, Zmm& lower, Zmm& upper) {
  Zmm u[4];
  sum_fours(v, u);
  const Zmm a = sum_lane_pairs(u[0], u[1]), b = sum_lane_pairs(u[2], u[3]);
  lower = _mm512_shuffle_i32x4(a, b, 0x88);
  upper = _mm512_shuffle_i32x4(a, b, 0xdd);
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
// Q2_0: byte i of a block holds values 4 i to 4 i + 3; IQ3: entry i does.
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

// Blocks of sixteen rows whose integers wait together, times the tokens.
constexpr std::size_t kStripBlocks = 48;

#include "compute/cpu/gemv_floats_impl.h"
#include "compute/cpu/gemv_integers_impl.h"
#include "compute/cpu/gemv_turned_impl.h"

// --- rows of a matrix ---------------------------------------------------------------------------

// A row's last groups, fewer than sixteen. What lies behind a row counts for nothing, but it must
// be there to load.
template <class F, std::size_t Tokens, class Tile, class Input>
STRATA_INLINE void take_end(Tile& tile, const GemvRows& rows, std::size_t r, std::size_t b,
                            std::size_t groups, const std::byte* at, const Input* in,
                            std::size_t stride) {
  if constexpr (std::is_same_v<Input, IntegerInput>) {
    tile.template take<8, 0>(r, b, at, in, stride);
  } else {
    // The case of few tokens is worth its own code where only some groups are left.
    if constexpr (Tokens == 1 && F::least_groups <= 2) {
      if (groups == 2) return tile.template take<2, 0>(r, b, at, in, stride);
      if (groups == 10) return tile.template take<8, 2>(r, b, at, in, stride);
    }
    if constexpr (Tokens == 1 && F::least_groups <= 4) {
      if (groups == 4) return tile.template take<4, 0>(r, b, at, in, stride);
      if (groups == 12) return tile.template take<8, 4>(r, b, at, in, stride);
    }
    if (groups == 8) return tile.template take<8, 0>(r, b, at, in, stride);
    const std::size_t needed = groups < 8 ? F::bytes : 2 * F::bytes;
    alignas(64) std::byte copy[2 * F::bytes];
    if (at + needed > rows.end) {
      std::memset(copy, 0, sizeof copy);
      std::memcpy(copy, at, static_cast<std::size_t>(rows.end - at));
      at = copy;
    }
    if (groups < 8) return tile.template take<8, 0>(r, b, at, in, stride);
    tile.template take<8, 8>(r, b, at, in, stride);
  }
}

// What is read kAhead bytes after row r of `count`, from block `from` on, if a row is read in
// several strips of `strip` blocks.
template <class Tile>
STRATA_INLINE const std::byte* ahead_of_strip(const GemvRows& rows, std::size_t first,
                                              std::size_t count, std::size_t r, std::size_t from) {
  constexpr std::size_t strip = Tile::blocks * Tile::bytes, step = (kAhead + strip - 1) / strip;
  std::size_t row = r + step, offset = from * Tile::bytes;
  if (row >= count) {
    row -= count;
    offset += strip;
    if (offset >= rows.row_bytes) {  // the next rows
      row += count;
      offset = 0;
    }
  }
  const std::byte* at = rows.row(first + row) + offset;
  return at < rows.end ? at : rows.after + (at - rows.end);
}

// `count` rows from `first` on, at most sixteen. Their integers are made row after row, so that
// the memory is read in its order; when those of all rows are there, they become floats, rows in
// the lanes.
template <class F, class Tile, std::size_t Tokens, class Input>
static void gemv_lanes(const GemvRows& rows, std::size_t first, std::size_t count, const Input* in,
                       std::size_t stride, float* const* y) {
  Tile tile;
  if (count < kLanes) std::memset(static_cast<void*>(&tile), 0, sizeof tile);
  Lanes acc[Tokens];
  for (std::size_t t = 0; t < Tokens; ++t) acc[t] = all(0.0f);
  const std::size_t groups = rows.width / 32;
  const bool strips = groups > 8 * Tile::blocks;
  for (std::size_t from = 0; 8 * from < groups; from += Tile::blocks) {
    const std::size_t here = std::min(8 * Tile::blocks, groups - 8 * from);
    for (std::size_t r = 0; r < count; ++r) {
      const std::byte* at = rows.row(first + r) + from * Tile::bytes;
      const std::byte* ahead =
          strips ? ahead_of_strip<Tile>(rows, first, count, r, from) : rows.ahead_of(at);
      std::size_t b = 0;
      for (; 8 * b + 16 <= here; b += 2) {
        prefetch_run(ahead + b * Tile::bytes, 2 * Tile::bytes);
        tile.template take<8, 8>(r, b, at + b * Tile::bytes, in + from + b, stride);
      }
      if (8 * b == here) continue;
      prefetch_run(ahead + b * Tile::bytes, rows.row_bytes - (from + b) * Tile::bytes);
      take_end<F, Tokens>(tile, rows, r, b, here - 8 * b, at + b * Tile::bytes, in + from + b,
                          stride);
    }
    const std::byte* ahead = rows.ahead_of(rows.row(first + count));
    for (std::size_t b = 0; 8 * b < here; b += 2) {
      if (!strips) prefetch_run(ahead + b * Tile::bytes, 2 * Tile::bytes);
      tile.add(b, std::min<std::size_t>(16, here - 8 * b), in + from + b, stride, acc);
    }
  }
  for (std::size_t t = 0; t < Tokens; ++t) store_run(y[t], acc[t], count);
}

template <class F, class Input>
static void gemv(const std::byte* matrix, std::size_t row_bytes, std::size_t row_count,
                 std::size_t width, const QuantizedRow* x, float* const* y, std::size_t tokens,
                 const std::byte* after) {
  if (can_turn<F>(width) && (tokens >= least_turned<F>() || width < kBlock))
    return gemv_turned<F>(matrix, row_bytes, row_count, width, x, y, tokens, after);
  const GemvRows rows{matrix, row_bytes, width, matrix + row_count * row_bytes, after};
  prefetch_run(matrix, std::min(kAhead, row_count * row_bytes));  // mostly there already
  thread_local std::vector<Input> inputs;
  const std::size_t blocks = (width + kBlock - 1) / kBlock;
  inputs.resize(tokens * blocks);
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t b = 0; b < blocks; ++b) {
      if constexpr (std::is_same_v<Input, IntegerInput>) {
        integer_input<F>(x[t], b * kBlock, width, inputs[t * blocks + b]);
      } else {
        float_input<F>(x[t], b * kBlock, inputs[t * blocks + b]);
      }
    }
  constexpr std::size_t most = 4;
  for (std::size_t t = 0; t < tokens; t += most) {
    const auto run = [&](auto together) {
      constexpr std::size_t count = together.value;
      using Tile = std::conditional_t<std::is_same_v<Input, IntegerInput>, IntegerTile<F, count>,
                                      FloatTile<F, count>>;
      for (std::size_t row = 0; row < row_count; row += kLanes) {
        float* out[count];
        for (std::size_t i = 0; i < count; ++i) out[i] = y[t + i] + row;
        gemv_lanes<F, Tile, count>(rows, row, std::min(kLanes, row_count - row),
                                   inputs.data() + t * blocks, blocks, out);
      }
    };
    switch (std::min(most, tokens - t)) {
      case 1:
        run(std::integral_constant<std::size_t, 1>());
        break;
      case 2:
        run(std::integral_constant<std::size_t, 2>());
        break;
      case 3:
        run(std::integral_constant<std::size_t, 3>());
        break;
      default:
        run(std::integral_constant<std::size_t, 4>());
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
      return gemv<GemvIQ2<q::BlockIQ2_XS, iq2_xs_levels>, IntegerInput>;
    case TensorType::IQ2_S:
      return gemv<GemvIQ2<q::BlockIQ2_S, iq2_s_levels>, IntegerInput>;
    case TensorType::IQ1_S:
      return gemv<GemvIQ1_S, IntegerInput>;
    case TensorType::IQ1_M:
      return gemv<GemvIQ1_M, IntegerInput>;
    default:
      return nullptr;
  }
}
