// Rows of a matrix in the order of its memory, with what comes asked for ahead; and products of
// rows with a few quantised activations by AVX2, for CPUs without the byte permutations that
// int_gemv_impl.h needs: a block of a row is unpacked and multiplied. Integers are exact in
// any order, and the float sums are those of int_blocks.h, so the results are the panels' bit for
// bit. Included by int_gemm_impl.h, inside the kernels.

// How far ahead of what it multiplies a thread asks for weights.
constexpr std::size_t kAhead = 8192;

struct GemvRows {
  const std::byte* first = nullptr;
  std::size_t row_bytes = 0, width = 0;
  const std::byte *end = nullptr, *after = nullptr;  // of the matrix; what is read behind it

  const std::byte* row(std::size_t r) const { return first + r * row_bytes; }
  // What is read kAhead bytes after `at`.
  const std::byte* ahead_of(const std::byte* at) const {
    const std::ptrdiff_t left = end - at;
    return left > std::ptrdiff_t{kAhead} ? at + kAhead : after + (std::ptrdiff_t{kAhead} - left);
  }
};

#if defined(STRATA_AVX2) && !defined(STRATA_VBMI)
STRATA_INLINE __m256i load_ymm(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
STRATA_INLINE std::int32_t sum_dwords(const __m256i& v) {
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
// Products of 32 codes and inputs, in pairs. Codes around 128 count from there (a pair is at most
// 2 * 128 * 127); others are below 64.
template <bool Middle>
STRATA_INLINE __m256i multiply_pairs(const std::uint8_t* codes, const std::int8_t* x) {
  const __m256i inputs = load_ymm(x), stored = load_ymm(codes);
  if constexpr (!Middle) return _mm256_maddubs_epi16(stored, inputs);
  const __m256i code = _mm256_xor_si256(stored, _mm256_set1_epi8(-128));
  return _mm256_maddubs_epi16(_mm256_abs_epi8(code), _mm256_sign_epi8(inputs, code));
}

// The block at input `at` of a row, with one token's inputs from there on.
template <bool Middle, bool Minima>
STRATA_INLINE float add_group_floats(const IntFormat& format, const IntBlock& block,
                                     std::size_t groups, const QuantizedRow& x, std::size_t at,
                                     float acc) {
  __m256i dots[8];
  for (std::size_t h = 0; h < 8; ++h)
    dots[h] = _mm256_madd_epi16(
        multiply_pairs<Middle>(block.codes + 32 * h, x.values + at + 32 * h), _mm256_set1_epi16(1));
  const auto four = [&](std::size_t h) {
    const __m256i sums = _mm256_hadd_epi32(_mm256_hadd_epi32(dots[h], dots[h + 1]),
                                           _mm256_hadd_epi32(dots[h + 2], dots[h + 3]));
    return _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  };
  __m256i whole = _mm256_set_m128i(four(4), four(0));
  if constexpr (!Middle) {
    const __m128i sums = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x.sums32 + at / 32));
    whole = _mm256_sub_epi32(
        whole, _mm256_mullo_epi32(_mm256_cvtepi16_epi32(sums), _mm256_set1_epi32(format.zero)));
  }
  alignas(32) float values[8];
  _mm256_store_ps(values, _mm256_cvtepi32_ps(whole));
  const float *dx = x.scales + at / 32, *sums = x.scaled_sums + at / 32;
  for (std::size_t h = 0; h < groups; ++h) {
    acc = fma_one(values[h], block.group_d[h] * dx[h], acc);
    if constexpr (Minima) acc = fma_one(block.group_m[h], sums[h], acc);
  }
  return acc;
}

STRATA_INLINE float add_group_words(const IntBlock& block, std::size_t groups,
                                    const QuantizedRow& x, std::size_t at, float acc) {
  for (std::size_t h = 0; h < groups; ++h) {
    const auto half = [&](std::size_t i) {
      const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block.codes + i));
      return _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm_xor_si128(codes, _mm_set1_epi8(-128))),
                               load_ymm(x.words + at + i));
    };
    const std::int32_t dot = sum_dwords(_mm256_add_epi32(half(32 * h), half(32 * h + 16)));
    acc = fma_one(static_cast<float>(dot), block.group_d[h] * x.scales[at / 32 + h], acc);
  }
  return acc;
}

template <bool Middle, bool Minima, std::size_t Group>
STRATA_INLINE float add_group_integers(const IntFormat& format, const IntBlock& block,
                                       const QuantizedRow& x, std::size_t at, float acc) {
  __m256i sum = _mm256_setzero_si256();
  for (std::size_t h = 0; h < 8; ++h) {
    __m256i scale;
    if constexpr (Group == 32) {
      scale = _mm256_set1_epi16(block.scales[h]);
    } else {
      scale = _mm256_set_m128i(_mm_set1_epi16(block.scales[2 * h + 1]),
                               _mm_set1_epi16(block.scales[2 * h]));
    }
    sum = _mm256_add_epi32(
        sum, _mm256_madd_epi16(multiply_pairs<Middle>(block.codes + 32 * h, x.values + at + 32 * h),
                               scale));
  }
  // By group: sixteen words, or eight and zeros.
  const auto by_group = [](const std::int16_t* words) {
    if constexpr (Group == 16) return load_ymm(words);
    return _mm256_zextsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(words)));
  };
  const __m256i sums = by_group(Group == 16 ? x.sums16 + at / 16 : x.sums32 + at / 32);
  if (!Middle && format.zero != 0)
    sum = _mm256_sub_epi32(sum, _mm256_mullo_epi32(_mm256_madd_epi16(by_group(block.scales), sums),
                                                   _mm256_set1_epi32(format.zero)));
  const float dx = x.scales[at / kBlock];
  acc = fma_one(static_cast<float>(sum_dwords(sum)), block.d * dx, acc);
  if constexpr (Minima) {
    const std::int32_t low = sum_dwords(_mm256_madd_epi16(by_group(block.mins), sums));
    acc = fma_one(static_cast<float>(low), -(block.dmin * dx), acc);
  }
  return acc;
}

// All rows; add(block, groups, token, at, sum) is one of the above.
template <class Add>
STRATA_INLINE void unpacked_rows(const IntFormat& format, const GemvRows& rows, std::size_t count,
                                 float* const* y, std::size_t tokens, const Add& add) {
  const TypeTraits& type = traits(format.type);
  const Unpack unpack = unpack_of(format.type);
  const std::size_t block_bytes = kBlock / type.block_values * type.block_bytes;
  IntBlock block{};
  for (std::size_t r = 0; r < count; ++r) {
    const std::byte *at = rows.row(r), *ahead = rows.ahead_of(at);
    float sums[kFewTokens] = {};
    for (std::size_t k = 0; k < rows.width; k += kBlock) {
      const std::size_t groups = std::min(kBlock, rows.width - k) / 32;
      prefetch_run(ahead, groups * block_bytes / 8);
      unpack(at, groups, block);
      for (std::size_t t = 0; t < tokens; ++t) sums[t] = add(block, groups, t, k, sums[t]);
      at += block_bytes;
      ahead += block_bytes;
    }
    for (std::size_t t = 0; t < tokens; ++t) y[t][r] = sums[t];
  }
}

// Whether that is the faster way: panels of AVX-512 are faster with some formats.
static bool has_rows([[maybe_unused]] TensorType type) {
#if defined(STRATA_AVX512)
  using enum TensorType;
  return type == Q8_0 || type == Q4_0 || type == Q4_1 || type == Q5_0 || type == Q5_1 ||
         type == Q6_K;
#else
  return true;
#endif
}

// At most kFewTokens tokens.
static void int_rows(const IntFormat& format, const std::byte* matrix, std::size_t row_bytes,
                     std::size_t row_count, std::size_t width, const QuantizedRow* x,
                     float* const* y, std::size_t tokens, const std::byte* after) {
  const GemvRows rows{matrix, row_bytes, width, matrix + row_count * row_bytes, after};
  const auto run = [&](const auto& add) { unpacked_rows(format, rows, row_count, y, tokens, add); };
  const auto floats = [&](auto middle, auto minima) {
    run([&](const IntBlock& block, std::size_t groups, std::size_t t, std::size_t at, float sum) {
      return add_group_floats<middle.value, minima.value>(format, block, groups, x[t], at, sum);
    });
  };
  const auto integers = [&](auto middle, auto minima, auto group) {
    run([&](const IntBlock& block, std::size_t, std::size_t t, std::size_t at, float sum) {
      return add_group_integers<middle.value, minima.value, group.value>(format, block, x[t], at,
                                                                         sum);
    });
  };
  constexpr std::true_type yes;
  constexpr std::false_type no;
  constexpr std::integral_constant<std::size_t, 16> sixteen;
  constexpr std::integral_constant<std::size_t, 32> thirty_two;
  const bool middle = format.zero == 128;
  if (format.kind == BlockKind::group_words) {
    run([&](const IntBlock& block, std::size_t groups, std::size_t t, std::size_t at, float sum) {
      return add_group_words(block, groups, x[t], at, sum);
    });
  } else if (format.kind == BlockKind::group_floats) {
    if (format.minima) return floats(no, yes);
    return middle ? floats(yes, no) : floats(no, no);
  } else if (format.group == 16) {
    if (format.minima) return integers(no, yes, sixteen);
    return middle ? integers(yes, no, sixteen) : integers(no, no, sixteen);
  } else {
    if (format.minima) return integers(no, yes, thirty_two);
    return middle ? integers(yes, no, thirty_two) : integers(no, no, thirty_two);
  }
}
#endif
