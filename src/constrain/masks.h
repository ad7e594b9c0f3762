// Which tokens can follow the readings of a text.
#pragma once

#include <cstdint>
#include <span>

#include "constrain/stacks.h"
#include "constrain/tables.h"

namespace strata::constrain {

// The tokens that can follow, but for the ends. What would take more than kMaxMaskWork readings to
// know, or has more readings at a time than the limit, is in the mask, which is not exact then.
inline constexpr std::uint64_t kMaxMaskWork = 2'000'000;
SharedMask make_mask(const CompiledGrammar::Tables& tables, Stacks& stacks,
                     const Readings& readings);

}  // namespace strata::constrain
