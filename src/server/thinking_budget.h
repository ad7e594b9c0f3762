// How much of an answer may be thinking. One rule for all dialects, streamed or not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/engine.h"

namespace strata::server {

struct ThinkingOptions {
  // Tokens for requests that say nothing; 0 or less: no budget of their own.
  std::int64_t budget = 0;
  std::string budget_source = "built-in";
  // Requests without any budget keep room for an answer behind the thinking.
  bool answer_room = true;
  std::string answer_room_source = "built-in";
  // What is written where the thinking is cut.
  std::string wrap_up = "Time is up; I will answer now.";
  std::string wrap_up_source = "built-in";
};

// Tokens that an answer of at most `limit` tokens may think; none: as many as it likes.
// - `asked` is the request's own budget; 0 or less switches every budget off.
// - A budget, asked for or of the options, leaves min(max(512, limit / 4), limit / 2) tokens for
//   the answer, and is at least 1.
// - Without one, answer_room gives limit - max(512, limit / 4) from a limit of 1,024 on.
std::optional<std::uint32_t> thinking_budget(std::optional<std::int64_t> asked,
                                             const ThinkingOptions& options, std::uint32_t limit);

// The engine's part of it, with the sentence in the model's tokens; none for a model that does not
// think in <think> and </think>. `close`: thinking that the model leaves without an answer is
// closed for it.
std::optional<ThinkingLimit> thinking_limit(std::optional<std::uint32_t> budget, bool close,
                                            bool begun, const ThinkingOptions& options,
                                            const Tokenizer& tokenizer);

}  // namespace strata::server
