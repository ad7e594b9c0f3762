#include "engine/checkpoints.h"

#include <algorithm>

#include "compute/backend.h"

namespace strata {

CheckpointPlan plan_checkpoints(std::span<const TokenId> prompt, std::uint32_t from,
                                std::optional<TokenId> turn, const CacheOptions& options) {
  const auto size = static_cast<std::uint32_t>(prompt.size());
  std::vector<std::uint32_t> turns;
  for (std::uint32_t i = 0; turn && i < size; ++i)
    if (prompt[i] == *turn) turns.push_back(i);

  CheckpointPlan plan;
  std::vector<std::uint32_t> wanted;
  if (!turns.empty() && size - turns.back() <= kMaxTentative) {
    plan.tail = size - turns.back();
    turns.pop_back();
  } else {
    plan.tail = std::min(size, 1u);
  }
  if (turns.size() > 1) wanted.push_back(turns[1]);
  if (!turns.empty()) wanted.push_back(turns.back());
  if (options.every > 0)
    for (std::uint64_t at = options.every; at < size; at += options.every)
      wanted.push_back(static_cast<std::uint32_t>(at));
  std::sort(wanted.begin(), wanted.end());

  std::uint64_t last = from;
  for (const std::uint32_t at : wanted) {
    if (at < last + options.gap || at >= size - plan.tail || at <= from) continue;
    plan.cuts.push_back(at);
    last = at;
  }
  if (size - plan.tail < last + options.gap || size - plan.tail <= from) plan.tail = 0;
  return plan;
}

}  // namespace strata
