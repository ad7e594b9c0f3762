// Kernels for AVX-512 (F, BW, DQ, VL, VNNI).
// The header's own undefined vectors.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include "base/huge_memory.h"
#include "compute/cpu/cells.h"
#include "compute/cpu/int_blocks.h"
#include "compute/cpu/kernels.h"
#include "compute/cpu/math.h"
#include "quant/blocks.h"
#include "quant/codebooks.h"

// Set by hand: the compiler defines its own macros from the command line only, not from the pragma.
#define STRATA_AVX2 1
#define STRATA_AVX512 1
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")
#pragma GCC diagnostic ignored "-Wpsabi"

namespace strata::cpu {
namespace {
constexpr std::size_t kIntTokens = 6;     // the same of integer tiles
constexpr std::size_t kTileVectors = 2;   // vectors of rows of an integer tile
constexpr std::size_t kDeltaVectors = 4;  // vectors of columns of a delta step
constexpr std::size_t kQueries = 12;      // queries scored at once
#include "compute/cpu/kernels_impl.h"
}  // namespace
const Kernels kAvx512 = make_table("avx512");
}  // namespace strata::cpu
