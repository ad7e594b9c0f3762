// Products of rows with one or a few float activations, for decoding: sixteen rows are turned in
// registers and multiplied at once. The sums are those of gemm(): one fused multiply-add after the
// other within a run of kRun inputs, and the runs added in order. Runs do not wait for each other.

// `step` inputs of sixteen rows, turned; column(k) is input k of every row. Of types without
// blocks: 64 bytes of each row as sixteen columns of dwords.
struct TurnedDwords {
  static constexpr std::size_t bytes = 64;
  alignas(64) IntLanes columns[kLanes];
  STRATA_INLINE void turn(TurnedDwords& into, const std::byte* const* rows, std::size_t offset) {
    column_dwords(rows, offset, into.columns);
  }
};
struct TurnedF32 : TurnedDwords {
  static constexpr std::size_t step = 16;
  STRATA_INLINE Lanes column(const TurnedF32& turned, std::size_t k) {
    return (Lanes)turned.columns[k];
  }
};
struct TurnedBF16 : TurnedDwords {
  static constexpr std::size_t step = 32;
  STRATA_INLINE Lanes column(const TurnedBF16& turned, std::size_t k) {
    const IntLanes pair = turned.columns[k / 2];
    return (Lanes)(k % 2 == 0 ? pair << 16 : pair & static_cast<std::int32_t>(0xffff0000));
  }
};
struct TurnedF16 : TurnedDwords {
  static constexpr std::size_t step = 32;
  STRATA_INLINE Lanes column(const TurnedF16& turned, std::size_t k) {
    const IntLanes pair = turned.columns[k / 2];
    return half_lanes((k % 2 == 0 ? pair : pair >> 16) & 0xffff);
  }
};
struct TurnedQ8_0 {
  static constexpr std::size_t step = 64, bytes = 2 * sizeof(quant::BlockQ8_0);
  alignas(64) IntLanes columns[kLanes];
  Lanes scales[2];
  STRATA_INLINE void turn(TurnedQ8_0& into, const std::byte* const* rows, std::size_t offset) {
    q8_0_dwords(rows, offset, 2, into.columns, into.scales);
  }
  STRATA_INLINE Lanes column(const TurnedQ8_0& turned, std::size_t k) {
    return q8_0_column(turned.columns[k / 4], static_cast<int>(k % 4), turned.scales[k / 32]);
  }
};

// Where what lies `offset` in sixteen rows of `row_bytes` is asked for ahead: sixteen times as
// much, in the order of the memory. That is the next rows; of long rows the next piece of each.
STRATA_INLINE const std::byte* ahead_of_rows(const std::byte* const* rows, const std::byte* next,
                                             std::size_t row_bytes, std::size_t offset) {
  constexpr std::size_t piece = 4096;
  if (row_bytes <= 2 * piece || row_bytes % piece != 0) return next + kLanes * offset;
  const std::size_t following = offset / piece * piece + piece, at = kLanes * (offset % piece);
  const std::byte* first = following < row_bytes ? rows[0] + following : next;
  return first + at / piece * row_bytes + at % piece;
}

// Runs side by side, from input `at` on; the last may be short.
template <class Turned, std::size_t Tokens, std::size_t Runs>
STRATA_INLINE void float_runs(const std::byte* const* rows, const std::byte* next, std::size_t at,
                              std::size_t depth, const float* const* x, Lanes* sum) {
  Lanes run[Runs][Tokens];
  for (std::size_t r = 0; r < Runs; ++r)
    for (std::size_t t = 0; t < Tokens; ++t) run[r][t] = all(0.0f);
  const std::size_t last = std::min(kRun, depth - at - (Runs - 1) * kRun);
  // What comes next is asked for between turning and multiplying, a sixteenth of a step at a time:
  // in one burst it would keep the loads that follow waiting. And in the order of the memory,
  // though runs side by side are not read in it.
  constexpr std::size_t pieces = kLanes / 2, inputs = Turned::step / pieces;
  std::size_t taken = 0;  // steps, of all runs
  const auto steps = [&](auto count, std::size_t from, std::size_t to) {
    for (std::size_t k = at + from; k < at + to; k += Turned::step) {
      Turned turned[count];
      const std::byte* ahead[count];
      for (std::size_t r = 0; r < count; ++r) {
        const std::size_t offset = (k + r * kRun) / Turned::step * Turned::bytes;
        const std::size_t in_order = (at / Turned::step + taken++) * Turned::bytes;
        ahead[r] = ahead_of_rows(rows, next, depth / Turned::step * Turned::bytes, in_order);
        prefetch_run(ahead[r], pieces * Turned::bytes);
        ahead[r] += pieces * Turned::bytes;
        Turned::turn(turned[r], rows, offset);
      }
      for (std::size_t p = 0; p < pieces; ++p) {
        for (std::size_t r = 0; r < count; ++r)
          prefetch_run(ahead[r] + p * Turned::bytes, Turned::bytes);
        for (std::size_t i = p * inputs; i < (p + 1) * inputs; ++i)
          for (std::size_t r = 0; r < count; ++r) {
            const Lanes column = Turned::column(turned[r], i);
            for (std::size_t t = 0; t < Tokens; ++t)
              run[r][t] = fma_lanes(column, all(x[t][k + r * kRun + i]), run[r][t]);
          }
      }
    }
  };
  steps(std::integral_constant<std::size_t, Runs>{}, 0, last);
  if constexpr (Runs > 1) steps(std::integral_constant<std::size_t, Runs - 1>{}, last, kRun);
  for (std::size_t r = 0; r < Runs; ++r)
    for (std::size_t t = 0; t < Tokens; ++t) sum[t] = at + r == 0 ? run[r][t] : sum[t] + run[r][t];
}

template <class Turned, std::size_t Tokens>
static void float_lanes(const std::byte* const* rows, const std::byte* next, std::size_t depth,
                        const float* const* x, float* const* y, std::size_t count) {
  Lanes sum[Tokens];
  for (std::size_t at = 0; at < depth;) {
    // As many runs side by side as registers hold.
    constexpr std::size_t most = Tokens > 2 ? std::min<std::size_t>(2, kFloatRuns) : kFloatRuns;
    const std::size_t left = std::min(most, (depth - at + kRun - 1) / kRun);
    if (left >= 4) {
      float_runs<Turned, Tokens, 4>(rows, next, at, depth, x, sum);
      at += 4 * kRun;
    } else if (left == 3) {
      float_runs<Turned, Tokens, 3>(rows, next, at, depth, x, sum);
      at += 3 * kRun;
    } else if (left == 2) {
      float_runs<Turned, Tokens, 2>(rows, next, at, depth, x, sum);
      at += 2 * kRun;
    } else {
      float_runs<Turned, Tokens, 1>(rows, next, at, depth, x, sum);
      at += kRun;
    }
  }
  for (std::size_t t = 0; t < Tokens; ++t) store_run(y[t], sum[t], count);
}

#if defined(STRATA_AVX512)
// Up to four rows with up to eight tokens, four rows and four tokens in the lanes of a vector: lane
// 4 t + r is row r of token t. `rows` are repeated accordingly.
template <class Turned, std::size_t Quads>
static void float_narrow(const std::byte* const* rows, const std::byte* next, std::size_t depth,
                         const float* const* x, float* const* y, std::size_t tokens,
                         std::size_t row_count) {
  constexpr std::size_t runs = 4;
  Lanes sum[Quads];
  for (std::size_t at = 0; at < depth; at += runs * kRun) {
    Lanes run[runs][Quads];
    for (auto& of : run) std::fill_n(of, Quads, all(0.0f));
    for (std::size_t from = 0; from < kRun; from += Turned::step) {
      for (std::size_t r = 0; r < runs; ++r) {
        const std::size_t k = at + r * kRun + from;
        if (k >= depth) break;
        const std::size_t offset = k / Turned::step * Turned::bytes;
        prefetch_run(next + row_count * offset, row_count * Turned::bytes);
        Turned turned;
        Turned::turn(turned, rows, offset);
        for (std::size_t i = 0; i < Turned::step; i += 4) {
          for (std::size_t q = 0; q < Quads; ++q) {
            const auto of = [&](std::size_t t) { return _mm_loadu_ps(x[4 * q + t] + k + i); };
            __m512 four = _mm512_castps128_ps512(of(0));
            four = _mm512_insertf32x4(four, of(1), 1);
            four = _mm512_insertf32x4(four, of(2), 2);
            four = _mm512_insertf32x4(four, of(3), 3);
            Lanes& to = run[r][q];
            to = fma_lanes(Turned::column(turned, i), (Lanes)_mm512_permute_ps(four, 0x00), to);
            to = fma_lanes(Turned::column(turned, i + 1), (Lanes)_mm512_permute_ps(four, 0x55), to);
            to = fma_lanes(Turned::column(turned, i + 2), (Lanes)_mm512_permute_ps(four, 0xaa), to);
            to = fma_lanes(Turned::column(turned, i + 3), (Lanes)_mm512_permute_ps(four, 0xff), to);
          }
        }
      }
    }
    for (std::size_t r = 0; r < runs && at + r * kRun < depth; ++r)
      for (std::size_t q = 0; q < Quads; ++q) sum[q] = at + r == 0 ? run[r][q] : sum[q] + run[r][q];
  }
  for (std::size_t t = 0; t < tokens; ++t) {
    float lanes[kLanes];
    store(lanes, sum[t / 4]);
    std::copy_n(lanes + 4 * (t % 4), row_count, y[t]);
  }
}

template <class Turned>
static void float_narrow_of(const std::byte* matrix, std::size_t row_bytes, std::size_t row_count,
                            std::size_t depth, const float* const* x, float* const* y,
                            std::size_t tokens, const std::byte* after) {
  const std::byte* rows[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i)
    rows[i] = matrix + std::min(i % 4, row_count - 1) * row_bytes;
  for (std::size_t t = 0; t < tokens; t += 8) {
    const std::size_t count = std::min<std::size_t>(8, tokens - t);
    const float* in[8];
    for (std::size_t i = 0; i < 8; ++i) in[i] = x[t + std::min(i, count - 1)];
    if (count > 4) {
      float_narrow<Turned, 2>(rows, after, depth, in, y + t, count, row_count);
    } else {
      float_narrow<Turned, 1>(rows, after, depth, in, y + t, count, row_count);
    }
  }
}
#endif

template <class Turned>
static void float_rows_of(const std::byte* matrix, std::size_t row_bytes, std::size_t row_count,
                          std::size_t depth, const float* const* x, float* const* y,
                          std::size_t tokens, const std::byte* after) {
#if defined(STRATA_AVX512)
  if (row_count <= 4 && tokens > 2)
    return float_narrow_of<Turned>(matrix, row_bytes, row_count, depth, x, y, tokens, after);
#endif
  for (std::size_t row = 0; row < row_count; row += kLanes) {
    const std::size_t count = std::min(kLanes, row_count - row);
    const std::byte* rows[kLanes];
    for (std::size_t r = 0; r < kLanes; ++r)
      rows[r] = matrix + (row + std::min(r, count - 1)) * row_bytes;
    const std::byte* next = row + kLanes < row_count ? rows[0] + kLanes * row_bytes : after;
    for (std::size_t t = 0; t < tokens;) {
      float* out[4];
      const std::size_t left = tokens - t;
      const std::size_t n = left >= 4 && kFloatTokens == 4 ? 4 : left >= 2 ? 2 : 1;
      for (std::size_t i = 0; i < n; ++i) out[i] = y[t + i] + row;
      if (n == 4) {
        float_lanes<Turned, 4>(rows, next, depth, x + t, out, count);
      } else if (n == 2) {
        float_lanes<Turned, 2>(rows, next, depth, x + t, out, count);
      } else {
        float_lanes<Turned, 1>(rows, next, depth, x + t, out, count);
      }
      t += n;
    }
  }
}

struct FloatGemv {
  std::size_t step = 0;  // inputs that the depth must be a multiple of
  void (*run)(const std::byte* matrix, std::size_t row_bytes, std::size_t row_count,
              std::size_t depth, const float* const* x, float* const* y, std::size_t tokens,
              const std::byte* after) = nullptr;
  explicit operator bool() const { return run != nullptr; }
};
// Empty for types that go through panels.
static FloatGemv float_gemv_of(TensorType type) {
  switch (type) {
    case TensorType::F32:
      return {TurnedF32::step, float_rows_of<TurnedF32>};
    case TensorType::BF16:
      return {TurnedBF16::step, float_rows_of<TurnedBF16>};
    case TensorType::F16:
      return {TurnedF16::step, float_rows_of<TurnedF16>};
    case TensorType::Q8_0:
      return {TurnedQ8_0::step, float_rows_of<TurnedQ8_0>};
    default:
      return {};
  }
}

static bool float_gemv(TensorType type, const std::byte* matrix, std::size_t row_bytes,
                       std::size_t row_count, std::size_t depth, const float* const* x,
                       float* const* y, std::size_t tokens, const std::byte* after) {
  const FloatGemv gemv = float_gemv_of(type);
  if (tokens > kRowTokens || !gemv || depth % gemv.step != 0) return false;
  gemv.run(matrix, row_bytes, row_count, depth, x, y, tokens, after);
  return true;
}
