// Kernels for AVX-512 (F, BW, DQ, VL).
#include <immintrin.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include "compute/cpu/kernels.h"
#include "compute/cpu/math.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#pragma GCC optimize("O3")
#pragma GCC diagnostic ignored "-Wpsabi"

namespace strata::cpu {
namespace {
constexpr std::size_t kTileTokens = 4;  // tokens whose accumulators fit the registers
#include "compute/cpu/kernels_impl.h"
}  // namespace
extern const Kernels kAvx512;
const Kernels kAvx512 = make_table("avx512");
}  // namespace strata::cpu
