// Kernels for any CPU: the compiler's baseline.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "compute/cpu/kernels.h"
#include "compute/cpu/math.h"

#pragma GCC optimize("O3")
#pragma GCC diagnostic ignored "-Wpsabi"

namespace strata::cpu {
namespace {
constexpr std::size_t kTileTokens = 1;  // tokens whose accumulators fit the registers
#include "compute/cpu/kernels_impl.h"
}  // namespace
extern const Kernels kPortable;
const Kernels kPortable = make_table("portable");
}  // namespace strata::cpu
