// Where a prompt is worth a checkpoint: places from which other prompts will go on. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace strata {

struct CheckpointPlan {
  // Positions, ascending, at which a window should end: the end of what comes before the first
  // question (a system prompt), the last question's start, and every CacheOptions::every tokens.
  std::vector<std::uint32_t> cuts;
  // Rows before the prompt's end, at most kMaxTentative, before which the last checkpoint is taken
  // out of the same window: the answer's opening, or the last token. 0: none.
  std::uint32_t tail = 0;
};

// `from`: tokens that stand in the caches. `turn`: the token that opens every turn. Checkpoints are
// CacheOptions::gap tokens apart at least.
CheckpointPlan plan_checkpoints(std::span<const TokenId> prompt, std::uint32_t from,
                                std::optional<TokenId> turn, const CacheOptions& options);

}  // namespace strata
