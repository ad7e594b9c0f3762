#include "server/thinking_budget.h"

#include <algorithm>

namespace strata::server {

std::optional<std::uint32_t> thinking_budget(std::optional<std::int64_t> asked,
                                             const ThinkingOptions& options, std::uint32_t limit) {
  constexpr std::uint32_t kRoom = 512, kLeastLimit = 1024;
  if (asked && *asked <= 0) return std::nullopt;
  const std::uint32_t room = std::max(kRoom, limit / 4);
  const std::int64_t wanted = asked.value_or(options.budget);
  if (wanted > 0) {
    const std::int64_t most = std::int64_t{limit} - std::min(room, limit / 2);
    return static_cast<std::uint32_t>(std::max<std::int64_t>(1, std::min(wanted, most)));
  }
  if (!options.answer_room || limit < kLeastLimit) return std::nullopt;
  return limit - room;
}

std::optional<ThinkingLimit> thinking_limit(std::optional<std::uint32_t> budget, bool close_it,
                                            bool begun, const ThinkingOptions& options,
                                            const Tokenizer& tokenizer) {
  const auto open = tokenizer.special("<think>"), close = tokenizer.special("</think>");
  if (!open || !close) return std::nullopt;
  ThinkingLimit limit;
  limit.open = *open;
  limit.close = *close;
  limit.begun = begun;
  limit.budget = budget.value_or(0);
  const auto closed_after = [&](const std::string& text) {
    std::vector<TokenId> tokens = tokenizer.encode(text, Specials::none);
    tokens.push_back(*close);
    const auto blank = tokenizer.encode("\n\n", Specials::none);
    tokens.insert(tokens.end(), blank.begin(), blank.end());
    return tokens;
  };
  limit.wrap_up = closed_after("\n\n" + options.wrap_up + "\n");
  if (close_it) limit.closing = closed_after("\n");
  limit.call_open = tokenizer.special("<tool_call>").value_or(-1);
  limit.call_close = tokenizer.special("</tool_call>").value_or(-1);
  return limit;
}

}  // namespace strata::server
