// What is written into a cell of attention; kernels.h has what reads it (score_cells, weigh_cells).
// Portable code: the same bytes on every machine.
#pragma once

#include <cstddef>

#include "compute/kv_type.h"

namespace strata::cpu {

// A block of CellFormat::int8.
struct CellBlock8 {
  static constexpr std::size_t values = 64;
  unsigned char d[2];  // a half
  signed char codes[values];
};
static_assert(sizeof(CellBlock8) == 66);

// One head of `dim` values, already turned where the format wants that (Kernels::turn_head).
// Values that a format cannot hold (not finite, or far beyond any network's) make their block, or
// their head, one of NaNs: a wrong number never looks like a right one.
void store_head(CellFormat format, const float* values, std::size_t dim, std::byte* cell);

}  // namespace strata::cpu
