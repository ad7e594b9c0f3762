// Kernels for any CPU: the compiler's baseline.
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

#pragma GCC diagnostic ignored "-Wpsabi"

namespace strata::cpu {
namespace {
constexpr std::size_t kIntTokens = 1;     // the same of integer tiles
constexpr std::size_t kTileVectors = 1;   // vectors of rows of an integer tile
constexpr std::size_t kDeltaVectors = 1;  // vectors of columns of a delta step
constexpr std::size_t kQueries = 1;       // queries scored at once
#include "compute/cpu/kernels_impl.h"
}  // namespace
const Kernels kPortable = make_table("portable");
}  // namespace strata::cpu
