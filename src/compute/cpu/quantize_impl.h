// Activations to integers, and the loops of the probes, compiled once for each instruction set like
// kernels_impl.h.

// Of lanes that are not negative and are numbers.
STRATA_INLINE float largest_of(const Lanes& v) {
#if defined(STRATA_AVX512)
  return _mm512_reduce_max_ps((__m512)v);
#else
  float lanes[kLanes], top = 0.0f;
  store(lanes, v);
  for (const float l : lanes) top = std::max(top, l);
  return top;
#endif
}

// Lane i of the result is largest_of(v[i]).
STRATA_INLINE Lanes largest_of_sixteen(const Lanes* v) {
#if defined(STRATA_AVX512)
  return across_sixteen(v, [](const __m512& a, const __m512& b) { return _mm512_max_ps(a, b); });
#else
  float lanes[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = largest_of(v[i]);
  return load(lanes);
#endif
}

// Sixteen units of 32 values side by side: a chain of divisions and sums across lanes for each one
// would take longer than all the rest.
constexpr std::size_t kUnit = 32, kUnits = kLanes, kUnitValues = kUnits * kUnit;

// Values i to i + 15 of n, zeros behind them.
template <bool Whole>
STRATA_INLINE Lanes values_at(const float* x, std::size_t n, std::size_t i) {
  if (Whole || i + kLanes <= n) return load(x + i);
  return i < n ? load_some(x + i, n - i) : all(0.0f);
}

// Of up to sixteen units: scales, the largest magnitude / `most`, and what values are multiplied
// by. A value that is no number makes its unit's scale NaN.
template <bool Whole>
STRATA_INLINE void scale_units(const float* x, std::size_t n, std::size_t units, float most,
                               float* scales, float* inverses) {
  Lanes largest[kUnits], poison[2] = {all(0.0f), all(0.0f)};
#pragma GCC unroll 16
  for (std::size_t u = 0; u < kUnits; ++u) {
    const Lanes a = values_at<Whole>(x, n, kUnit * u);
    const Lanes b = values_at<Whole>(x, n, kUnit * u + kLanes);
    largest[u] = larger(magnitude(b), larger(magnitude(a), all(0.0f)));
    poison[0] = fma_lanes(a, all(0.0f), poison[0]);
    poison[1] = fma_lanes(b, all(0.0f), poison[1]);
  }
  const Lanes top = largest_of_sixteen(largest);
  store_run(scales, top / all(most), units);
  store(inverses, select(top > all(0.0f), all(most) / top, all(0.0f)));
  if (sum_lanes(poison[0] + poison[1]) == 0.0f) return;
  for (std::size_t u = 0; u < units; ++u)
    scales[u] += sum_lanes(fma_lanes(values_at<Whole>(x, n, kUnit * u + kLanes), all(0.0f),
                                     values_at<Whole>(x, n, kUnit * u) * all(0.0f)));
}

// Calls put(offset, whole numbers of sixteen values) for all values of n, padded to whole blocks.
template <class Put>
STRATA_INLINE void round_units(const float* x, std::size_t n, float most, float* scales,
                               const Put& put) {
  const std::size_t padded = (n + kBlock - 1) / kBlock * kBlock;
  const Lanes magic = all(ExpConstants::magic);  // rounds to nearest even
  for (std::size_t at = 0; at < padded; at += kUnitValues) {
    const std::size_t units = std::min(kUnits, (padded - at) / kUnit);
    const float* from = x + std::min(at, n);
    const std::size_t count = n - std::min(at, n);
    float inverses[kUnits];
    const auto round = [&](auto whole) {
      scale_units<whole.value>(from, count, units, most, scales + at / kUnit, inverses);
      for (std::size_t u = 0; u < units; ++u)
        for (std::size_t i = kUnit * u; i < kUnit * (u + 1); i += kLanes) {
          const Lanes v = values_at<whole.value>(from, count, i) * all(inverses[u]) + magic;
          put(at + i, (IntLanes)v - (IntLanes)magic);
        }
    };
    if (count >= kUnitValues) {
      round(std::true_type());
    } else {
      round(std::false_type());
    }
  }
}

// The sum of each 16 of n bytes, n a multiple of 64.
STRATA_INLINE void sums_of_sixteen(const std::int8_t* values, std::size_t n, std::int16_t* sums) {
#if defined(STRATA_AVX512)
  for (std::size_t i = 0; i < n; i += 64) {
    __m512i four = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1),
                                       _mm512_loadu_si512(values + i));
    four = _mm512_add_epi32(four, _mm512_shuffle_epi32(four, _MM_PERM_CDAB));
    four = _mm512_add_epi32(four, _mm512_shuffle_epi32(four, _MM_PERM_BADC));
    const __m512i each = _mm512_maskz_compress_epi32(0x1111, four);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(sums + i / 16),
                     _mm256_castsi256_si128(_mm512_cvtepi32_epi16(each)));
  }
#else
  for (std::size_t i = 0; i < n; i += 16) {
    std::int32_t sum = 0;
    for (std::size_t j = 0; j < 16; ++j) sum += values[i + j];
    sums[i / 16] = static_cast<std::int16_t>(sum);
  }
#endif
}

// Bytes, a scale for each 256 values (largest magnitude / 127). A value that is no number makes its
// block's scale NaN.
static void quantize_blocks(const float* x, std::size_t n, const QuantizedRow& into) {
  for (std::size_t at = 0; at < n; at += kBlock) {
    const std::size_t count = std::min(kBlock, n - at);
    Lanes largest = all(0.0f), poison = all(0.0f);
    for_runs(count, [&](std::size_t i, std::size_t run) {
      const Lanes v = load_run(x + at + i, run);
      largest = larger(magnitude(v), largest);
      poison = fma_lanes(v, all(0.0f), poison);
    });
    const float top = largest_of(largest);
    into.scales[at / kBlock] = top / 127.0f + sum_lanes(poison);
    const float inverse = top > 0.0f ? 127.0f / top : 0.0f;
    for (std::size_t i = 0; i < kBlock; i += kLanes) {
      const std::size_t run = i < count ? std::min(kLanes, count - i) : 0;
      const Lanes magic = all(ExpConstants::magic);  // rounds to nearest even
      const Lanes rounded = load_run(x + at + i, run) * all(inverse) + magic;
      const IntLanes whole = (IntLanes)rounded - (IntLanes)magic;
      store_bytes(into.values + at + i, whole);
      store_bytes(into.biased + at + i, whole + all_int(128));
    }
  }
}

// Bytes, a scale for each `unit` values, 32 or 256, and the sums of each 16.
static void quantize_row(const float* x, std::size_t n, std::size_t unit,
                         const QuantizedRow& into) {
  const std::size_t padded = (n + kBlock - 1) / kBlock * kBlock;
  if (unit == kUnit) {
    round_units(x, n, 127.0f, into.scales, [&](std::size_t at, const IntLanes& whole) {
      store_bytes(into.values + at, whole);
      store_bytes(into.biased + at, whole + all_int(128));
    });
  } else {
    quantize_blocks(x, n, into);
  }
  sums_of_sixteen(into.values, padded, into.sums16);
  for (std::size_t g = 0; g < padded / 32; ++g) {
    into.sums32[g] = static_cast<std::int16_t>(into.sums16[2 * g] + into.sums16[2 * g + 1]);
    if (unit == 32) into.scaled_sums[g] = into.scales[g] * static_cast<float>(into.sums32[g]);
  }
}

static void quantize_words(const float* x, std::size_t n, const QuantizedRow& into) {
  round_units(x, n, 32767.0f, into.scales,
              [&](std::size_t at, const IntLanes& whole) { store_words(into.words + at, whole); });
}

// --- probes -------------------------------------------------------------------------------------

template <std::size_t Streams>
STRATA_INLINE std::uint64_t read_bytes(const std::byte* data, std::size_t bytes) {
  constexpr std::size_t ahead = 2048;
  const std::size_t part = bytes / Streams;
  IntLanes sum[Streams][2] = {};
  for (std::size_t at = 0; at + 128 <= part; at += 128) {
    for (std::size_t s = 0; s < Streams; ++s) {
      const std::byte* from = data + s * part + at;
      __builtin_prefetch(from + ahead);
      __builtin_prefetch(from + ahead + 64);
      sum[s][0] ^= load_int(from);
      sum[s][1] ^= load_int(from + 64);
    }
  }
  IntLanes total = sum[0][0];
  for (std::size_t s = 0; s < Streams; ++s) total ^= sum[s][0] ^ sum[s][1];
  return static_cast<std::uint64_t>(total[0] ^ total[7] ^ total[15]);
}

static std::uint64_t read_streams(const std::byte* data, std::size_t bytes, std::size_t streams) {
  if (streams >= 4) return read_bytes<4>(data, bytes);
  if (streams == 2) return read_bytes<2>(data, bytes);
  return read_bytes<1>(data, bytes);
}

static std::uint64_t int8_loop(std::size_t iterations) {
  constexpr std::size_t kSums = kInt8LoopProducts / 64;
  const IntLanes codes = all_int(0x03030303);
  const std::uint8_t x[4] = {1, 2, 3, 4};
  IntLanes sum[kSums];  // different from the start, or the compiler would keep one of them
  for (std::size_t s = 0; s < kSums; ++s) sum[s] = all_int(static_cast<std::int32_t>(s));
  for (std::size_t i = 0; i < iterations; ++i)
    for (std::size_t s = 0; s < kSums; ++s) sum[s] = dot4(sum[s], x, codes);
  std::uint64_t total = 0;
  for (std::size_t s = 0; s < kSums; ++s) total += static_cast<std::uint64_t>(sum[s][s % kLanes]);
  return total;
}
