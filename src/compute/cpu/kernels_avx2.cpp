// Kernels for AVX2 with FMA.
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
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#pragma GCC diagnostic ignored "-Wpsabi"

namespace strata::cpu {
namespace {
constexpr std::size_t kIntTokens = 2;     // the same of integer tiles
constexpr std::size_t kTileVectors = 1;   // vectors of rows of an integer tile
constexpr std::size_t kDeltaVectors = 1;  // vectors of columns of a delta step
constexpr std::size_t kQueries = 4;       // queries scored at once
#include "compute/cpu/kernels_impl.h"
}  // namespace
const Kernels kAvx2 = make_table("avx2");
}  // namespace strata::cpu
