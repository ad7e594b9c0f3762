// Kernels for any 64-bit ARM.
#include <arm_neon.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "compute/cpu/cells.h"
#include "compute/cpu/int_blocks.h"
#include "compute/cpu/kernels.h"
#include "compute/cpu/math.h"
#include "quant/blocks.h"
#include "quant/codebooks.h"

// Set by hand: the compiler defines its own macros from the command line only, not from the pragma.
#define STRATA_NEON 1

namespace strata::cpu {
namespace {
constexpr std::size_t kDeltaVectors = 2;  // vectors of columns of a delta step
constexpr std::size_t kQueries = 4;       // queries scored at once
#include "compute/cpu/kernels_impl.h"
}  // namespace
const Kernels kNeon = make_table("neon");
}  // namespace strata::cpu
