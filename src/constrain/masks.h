// Which tokens can follow the readings of a text.
#pragma once

#include <cstdint>
#include <span>

#include "constrain/stacks.h"
#include "constrain/tables.h"

namespace strata::constrain {

// Adds the tokens to `mask`.
void fill_mask(const CompiledGrammar::Tables& tables, Stacks& stacks, const Readings& readings,
               std::span<std::uint64_t> mask);

}  // namespace strata::constrain
