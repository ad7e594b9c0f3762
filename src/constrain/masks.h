// Which tokens can follow the readings of a text.
#pragma once

#include <cstdint>
#include <span>

#include "constrain/stacks.h"
#include "constrain/tables.h"

namespace strata::constrain {

// The tokens that can follow, but for the ends. Where that takes more than kMaxMaskWork readings,
// tokens may be missing.
inline constexpr std::uint64_t kMaxMaskWork = 2'000'000;
MaskWords make_mask(const CompiledGrammar::Tables& tables, Stacks& stacks,
                    const Readings& readings);

}  // namespace strata::constrain
