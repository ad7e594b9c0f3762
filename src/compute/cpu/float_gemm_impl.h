// Products of rows as stored with float activations, for one token or many. A sum is that of dot()
// within a run of kRun inputs, and the runs' sums are added in order: lanes are inputs, so a row is
// read as it lies in memory and nothing has to be turned.

// at() is sixteen inputs of a row from input k on, a multiple of sixteen. `step` inputs take
// `bytes` bytes, about a cache line.
struct StoredF32 {
  static constexpr std::size_t step = 16, bytes = 64;
  STRATA_INLINE Lanes at(const std::byte* row, std::size_t k) {
    return load(reinterpret_cast<const float*>(row) + k);
  }
};
struct StoredBF16 {
  static constexpr std::size_t step = 32, bytes = 64;
  STRATA_INLINE Lanes at(const std::byte* row, std::size_t k) { return upper_halves(row + 2 * k); }
};
struct StoredF16 {
  static constexpr std::size_t step = 32, bytes = 64;
  STRATA_INLINE Lanes at(const std::byte* row, std::size_t k) { return halves(row + 2 * k); }
};
struct StoredQ8_0 {
  static constexpr std::size_t step = 64, bytes = 2 * sizeof(quant::BlockQ8_0);
  STRATA_INLINE Lanes at(const std::byte* row, std::size_t k) {
    const auto& block = reinterpret_cast<const quant::BlockQ8_0*>(row)[k / 32];
    return to_float(widened_bytes(block.qs + k % 32)) * all(half_at(block.d));
  }
};

#if defined(STRATA_AVX512)
constexpr std::size_t kFloatRows = 4, kFloatTokens = 6;  // of a tile, whose sums fit the registers
#else
constexpr std::size_t kFloatRows = 2, kFloatTokens = 2;
#endif
// So many tokens meet four rows before the next ones come: decoding reads the memory in its order.
constexpr std::size_t kInOrderTokens = 16;

struct FloatProduct {
  const std::byte* matrix;
  std::size_t row_bytes, row_count, depth;
  const float* const* x;
  float* const* y;
  std::size_t tokens;
  const std::byte* after;
  bool first;
};

// Inputs `from` to `to` of some rows and tokens. With Ask, as much is asked for at `ahead` as is
// read of the rows.
template <class Stored, std::size_t Tokens, bool Ask>
STRATA_INLINE void float_tile(const std::byte* const* rows, const float* const* x, std::size_t from,
                              std::size_t to, const std::byte* ahead,
                              Lanes (&sum)[Tokens][kFloatRows]) {
  for (auto& of : sum)
    for (Lanes& s : of) s = all(0.0f);
  const auto sixteen = [&](std::size_t k) {
    Lanes w[kFloatRows];
    for (std::size_t r = 0; r < kFloatRows; ++r) w[r] = Stored::at(rows[r], k);
    for (std::size_t t = 0; t < Tokens; ++t) {
      const Lanes inputs = load(x[t] + k);
      for (std::size_t r = 0; r < kFloatRows; ++r) sum[t][r] = fma_lanes(w[r], inputs, sum[t][r]);
    }
  };
  std::size_t k = from;
  if constexpr (Ask) {
    for (; k + Stored::step <= to; k += Stored::step) {
      prefetch_run(ahead, kFloatRows * Stored::bytes);
      ahead += kFloatRows * Stored::bytes;
      for (std::size_t i = 0; i < Stored::step; i += kLanes) sixteen(k + i);
    }
    for (; k < to; k += kLanes) sixteen(k);
  } else {
    // At least once: sums that might stay zero would be written to memory.
    do {
      sixteen(k);
      k += kLanes;
    } while (k < to);
  }
}

// y[t][row + r] = or += the sum over the lanes of sum[t][r], as sum_lanes().
template <std::size_t Tokens>
STRATA_INLINE void add_sums(const Lanes (&sum)[Tokens][kFloatRows], float* const* y,
                            std::size_t row, std::size_t count, bool first) {
#if defined(STRATA_AVX512)
  // Four rows of two tokens at a time.
  const auto wanted = static_cast<__mmask8>((1 << count) - 1);
  for (std::size_t t = 0; t < Tokens; t += 2) {
    __m512 v[kFloatRows];
    for (std::size_t r = 0; r < kFloatRows; ++r) {
      const auto a = (__m512)sum[t][r], b = (__m512)sum[std::min(t + 1, Tokens - 1)][r];
      v[r] = _mm512_shuffle_f32x4(a, b, 0x44) + _mm512_shuffle_f32x4(a, b, 0xee);
    }
    for (std::size_t r = 0; r < kFloatRows; r += 2)
      v[r / 2] =
          _mm512_shuffle_f32x4(v[r], v[r + 1], 0x88) + _mm512_shuffle_f32x4(v[r], v[r + 1], 0xdd);
    v[0] = _mm512_shuffle_ps(v[0], v[1], 0x44) + _mm512_shuffle_ps(v[0], v[1], 0xee);
    v[0] = v[0] + _mm512_permute_ps(v[0], 0xb1);
    const __m512i places = _mm512_setr_epi32(0, 8, 2, 10, 4, 12, 6, 14, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m256 sums = _mm512_castps512_ps256(_mm512_permutexvar_ps(places, v[0]));
    const __m128 four[2] = {_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1)};
    for (std::size_t i = 0; i < std::min<std::size_t>(2, Tokens - t); ++i) {
      float* to = y[t + i] + row;
      // What is added to -0 stays as it is.
      const __m128 before = first ? _mm_set1_ps(-0.0f) : _mm_maskz_loadu_ps(wanted, to);
      _mm_mask_storeu_ps(to, wanted, before + four[i]);
    }
  }
#else
  for (std::size_t t = 0; t < Tokens; ++t) {
    float sums[kFloatRows];
    for (std::size_t r = 0; r < kFloatRows; ++r) sums[r] = sum_lanes(sum[t][r]);
    for (std::size_t r = 0; r < count; ++r)
      y[t][row + r] = first ? sums[r] : y[t][row + r] + sums[r];
  }
#endif
}

// Inputs of the run at `from` of rows `begin` to `end` with `count` tokens from t on. With Ask the
// rows are those of one tile.
template <class Stored, bool Ask, std::size_t Tokens = kFloatTokens>
STRATA_INLINE void float_rows(const FloatProduct& p, std::size_t begin, std::size_t end,
                              std::size_t t, std::size_t count, std::size_t from,
                              const std::byte* ahead) {
  if constexpr (Tokens > 1)
    if (count < Tokens)
      return float_rows<Stored, Ask, Tokens - 1>(p, begin, end, t, count, from, ahead);
  const std::size_t to = std::min(from + kRun, p.depth);
  const float* x[Tokens];
  for (std::size_t i = 0; i < Tokens; ++i) x[i] = p.x[t + i];
  for (std::size_t row = begin; row < end; row += kFloatRows) {
    const std::size_t height = std::min(kFloatRows, end - row);
    const std::byte* rows[kFloatRows];
    rows[0] = p.matrix + row * p.row_bytes;
    for (std::size_t r = 1; r < kFloatRows; ++r)
      rows[r] = rows[r - 1] + (r < height ? p.row_bytes : 0);
    Lanes sum[Tokens][kFloatRows];
    float_tile<Stored, Tokens, Ask>(rows, x, from, to, ahead, sum);
    add_sums<Tokens>(sum, p.y + t, row, height, p.first && from == 0);
  }
}

// Some tokens: rows in the order of the memory, asked for 8 KiB or some rows ahead.
template <class Stored>
static void float_in_order(const FloatProduct& p, std::size_t tiles) {
  const std::size_t lead = kFloatRows * std::max<std::size_t>(1, 8192 / (kFloatRows * p.row_bytes));
  for (std::size_t row = 0; row < p.row_count; row += kFloatRows) {
    const std::size_t end = std::min(row + kFloatRows, p.row_count);
    const std::byte* next = row + lead < p.row_count
                                ? p.matrix + (row + lead) * p.row_bytes
                                : p.after + (row + lead - p.row_count) * p.row_bytes;
    for (std::size_t from = 0; from < p.depth; from += kRun) {
      const std::byte* ahead = next + kFloatRows * (from / Stored::step) * Stored::bytes;
      const auto token = [&](std::size_t tile) { return p.tokens * tile / tiles; };
      float_rows<Stored, true>(p, row, end, 0, token(1), from, ahead);
      for (std::size_t tile = 1; tile < tiles; ++tile)
        float_rows<Stored, false>(p, row, end, token(tile), token(tile + 1) - token(tile), from,
                                  nullptr);
    }
  }
}

// Many: a run of some tokens' inputs stays in the first cache while it meets kPanelRows rows, and
// a run of these in the second while it meets all tokens. Meanwhile what comes next is asked for.
template <class Stored>
static void float_in_runs(const FloatProduct& p, std::size_t tiles) {
  for (std::size_t first = 0; first < p.row_count; first += kPanelRows) {
    const std::size_t last = std::min(first + kPanelRows, p.row_count);
    const std::byte* next = last < p.row_count ? p.matrix + last * p.row_bytes : p.after;
    for (std::size_t from = 0; from < p.depth; from += kRun) {
      const std::size_t to = from + kRun;
      const bool more = to < p.depth;
      const std::byte* ahead =
          more ? p.matrix + first * p.row_bytes + to / Stored::step * Stored::bytes : next;
      const std::size_t piece =
          std::min(kRun, p.depth - (more ? to : 0)) / Stored::step * Stored::bytes;
      for (std::size_t tile = 0; tile < tiles; ++tile) {
        const std::size_t t = p.tokens * tile / tiles, end = p.tokens * (tile + 1) / tiles;
        for (std::size_t r = tile; r < last - first; r += tiles)
          prefetch_later(ahead + r * p.row_bytes, piece);
        float_rows<Stored, false>(p, first, last, t, end - t, from, nullptr);
      }
    }
  }
}

// Rows of a width that is no multiple of sixteen, one by one: zeros are behind the last inputs.
template <class Stored>
static void float_ragged(const FloatProduct& p) {
  constexpr std::size_t size = Stored::bytes / Stored::step;
  for (std::size_t row = 0; row < p.row_count; ++row) {
    const std::byte* stored = p.matrix + row * p.row_bytes;
    for (std::size_t t = 0; t < p.tokens; ++t)
      for (std::size_t from = 0; from < p.depth; from += kRun) {
        const std::size_t to = std::min(from + kRun, p.depth);
        Lanes sum = all(0.0f);
        std::size_t k = from;
        for (; k + kLanes <= to; k += kLanes)
          sum = fma_lanes(Stored::at(stored, k), load(p.x[t] + k), sum);
        if (k < to) {
          alignas(64) std::byte last[kLanes * sizeof(float)] = {};
          std::memcpy(last, stored + k * size, (to - k) * size);
          sum = fma_lanes(Stored::at(last, 0), load_some(p.x[t] + k, to - k), sum);
        }
        float& y = p.y[t][row];
        y = p.first && from == 0 ? sum_lanes(sum) : y + sum_lanes(sum);
      }
  }
}

template <class Stored>
static void float_gemm_of(const FloatProduct& p) {
  const std::size_t tiles = (p.tokens + kFloatTokens - 1) / kFloatTokens;
  if (tiles == 0) return;
  if (p.depth % kLanes != 0) return float_ragged<Stored>(p);
  if (p.tokens <= kInOrderTokens) return float_in_order<Stored>(p, tiles);
  float_in_runs<Stored>(p, tiles);
}

static bool has_float_gemm(TensorType type) {
  return type == TensorType::F32 || type == TensorType::F16 || type == TensorType::BF16 ||
         type == TensorType::Q8_0;
}

static bool float_gemm(TensorType type, const std::byte* matrix, std::size_t row_bytes,
                       std::size_t row_count, std::size_t depth, const float* const* x,
                       float* const* y, std::size_t tokens, const std::byte* after, bool first) {
  const FloatProduct p{matrix, row_bytes, row_count, depth, x, y, tokens, after, first};
  switch (type) {
    case TensorType::F32:
      float_gemm_of<StoredF32>(p);
      return true;
    case TensorType::F16:
      float_gemm_of<StoredF16>(p);
      return true;
    case TensorType::BF16:
      float_gemm_of<StoredBF16>(p);
      return true;
    case TensorType::Q8_0:
      float_gemm_of<StoredQ8_0>(p);
      return true;
    default:
      return false;
  }
}
