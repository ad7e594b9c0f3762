// Kernels for AVX2 with FMA.
#include <immintrin.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include "compute/cpu/kernels.h"
#include "compute/cpu/math.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#pragma GCC optimize("O3")
#pragma GCC diagnostic ignored "-Wpsabi"

namespace strata::cpu {
namespace {
constexpr std::size_t kTileTokens = 1;  // tokens whose accumulators fit the registers
#include "compute/cpu/kernels_impl.h"
}  // namespace
extern const Kernels kAvx2;
const Kernels kAvx2 = make_table("avx2");
}  // namespace strata::cpu
