// Products of rows with one or a few float activations, for decoding: sixteen rows are turned in
// registers and multiplied at once. The sums are those of gemm(): one fused multiply-add after the
// other within a run of kRun inputs, and the runs added in order. Runs do not wait for each other.

// `step` inputs of sixteen rows, from byte `offset` on: use(k, column) gets input k of every row.
struct ColumnsF32 {
  static constexpr std::size_t step = 16, bytes = 64;
  template <class Use>
  STRATA_INLINE void each(const std::byte* const* rows, std::size_t offset, const Use& use) {
    alignas(64) IntLanes columns[kLanes];
    column_dwords(rows, offset, columns);
    for (std::size_t i = 0; i < kLanes; ++i) use(i, (Lanes)columns[i]);
  }
};
struct ColumnsBF16 {
  static constexpr std::size_t step = 32, bytes = 64;
  template <class Use>
  STRATA_INLINE void each(const std::byte* const* rows, std::size_t offset, const Use& use) {
    alignas(64) IntLanes pairs[kLanes];
    column_dwords(rows, offset, pairs);
    for (std::size_t i = 0; i < kLanes; ++i) {
      use(2 * i, (Lanes)(pairs[i] << 16));
      use(2 * i + 1, (Lanes)(pairs[i] & static_cast<std::int32_t>(0xffff0000)));
    }
  }
};
struct ColumnsF16 {
  static constexpr std::size_t step = 32, bytes = 64;
  template <class Use>
  STRATA_INLINE void each(const std::byte* const* rows, std::size_t offset, const Use& use) {
    alignas(64) IntLanes pairs[kLanes];
    column_dwords(rows, offset, pairs);
    for (std::size_t i = 0; i < kLanes; ++i) {
      use(2 * i, half_lanes(pairs[i] & 0xffff));
      use(2 * i + 1, half_lanes((pairs[i] >> 16) & 0xffff));
    }
  }
};
struct ColumnsQ8_0 {
  static constexpr std::size_t step = 64, bytes = 2 * sizeof(quant::BlockQ8_0);
  template <class Use>
  STRATA_INLINE void each(const std::byte* const* rows, std::size_t offset, const Use& use) {
    q8_0_columns(rows, offset, 2, use);
  }
};

template <class Columns, std::size_t Tokens>
static void float_lanes(const std::byte* const* rows, const std::byte* next, std::size_t depth,
                        const float* const* x, float* const* y, std::size_t count) {
  constexpr std::size_t runs = 4;
  Lanes sum[Tokens];
  for (std::size_t t = 0; t < Tokens; ++t) sum[t] = all(0.0f);
  for (std::size_t at = 0; at < depth; at += runs * kRun) {
    Lanes run[runs][Tokens];
    const std::size_t here = std::min(runs, (depth - at + kRun - 1) / kRun);
    for (std::size_t r = 0; r < runs; ++r)
      for (std::size_t t = 0; t < Tokens; ++t) run[r][t] = all(0.0f);
    for (std::size_t k = 0; k < kRun; k += Columns::step) {
      for (std::size_t r = 0; r < here; ++r) {
        const std::size_t from = at + r * kRun + k;
        if (from >= depth) break;
        const std::size_t offset = from / Columns::step * Columns::bytes;
        prefetch_run(next + kLanes * offset, kLanes * Columns::bytes);
        Lanes part[Tokens];
        for (std::size_t t = 0; t < Tokens; ++t) part[t] = run[r][t];
        Columns::each(rows, offset, [&](std::size_t i, const Lanes& column) {
          for (std::size_t t = 0; t < Tokens; ++t)
            part[t] = fma_lanes(column, all(x[t][from + i]), part[t]);
        });
        for (std::size_t t = 0; t < Tokens; ++t) run[r][t] = part[t];
      }
    }
    for (std::size_t r = 0; r < here; ++r)
      for (std::size_t t = 0; t < Tokens; ++t)
        sum[t] = at + r == 0 ? run[r][t] : sum[t] + run[r][t];
  }
  for (std::size_t t = 0; t < Tokens; ++t) store_run(y[t], sum[t], count);
}

template <class Columns>
static void float_rows_of(const std::byte* matrix, std::size_t row_bytes, std::size_t row_count,
                          std::size_t depth, const float* const* x, float* const* y,
                          std::size_t tokens) {
  for (std::size_t row = 0; row < row_count; row += kLanes) {
    const std::size_t count = std::min(kLanes, row_count - row);
    const std::byte* rows[kLanes];
    for (std::size_t r = 0; r < kLanes; ++r)
      rows[r] = matrix + (row + std::min(r, count - 1)) * row_bytes;
    const std::byte* next = rows[0] + kLanes * row_bytes;
    for (std::size_t t = 0; t < tokens;) {
      float* out[2];
      const std::size_t n = std::min<std::size_t>(2, tokens - t);
      for (std::size_t i = 0; i < n; ++i) out[i] = y[t + i] + row;
      if (n == 2) {
        float_lanes<Columns, 2>(rows, next, depth, x + t, out, count);
      } else {
        float_lanes<Columns, 1>(rows, next, depth, x + t, out, count);
      }
      t += n;
    }
  }
}

// False for types and depths that have no such way.
static bool float_gemv(TensorType type, const std::byte* matrix, std::size_t row_bytes,
                       std::size_t row_count, std::size_t depth, const float* const* x,
                       float* const* y, std::size_t tokens) {
  if (tokens > kFewTokens) return false;
  const auto run = [&](auto of) {
    if (depth % decltype(of)::step != 0) return false;
    float_rows_of<decltype(of)>(matrix, row_bytes, row_count, depth, x, y, tokens);
    return true;
  };
  switch (type) {
    case TensorType::F32:
      return run(ColumnsF32{});
    case TensorType::BF16:
      return run(ColumnsBF16{});
    case TensorType::F16:
      return run(ColumnsF16{});
    case TensorType::Q8_0:
      return run(ColumnsQ8_0{});
    default:
      return false;
  }
}
