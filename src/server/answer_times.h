// What answers have cost so far, counted while they run: tokens as they come, and times by size.
// From any thread, without waiting; all lives of the engine together.
#pragma once

#include <atomic>
#include <cstdint>

#include "telemetry/prometheus.h"

namespace strata::server {

struct AnswerTimes {
  std::atomic<std::uint64_t> tokens_read{0};     // of prompts, without what the caches held
  std::atomic<std::uint64_t> tokens_written{0};  // thinking included

  using Histogram = telemetry::Histogram;
  Histogram first_token{telemetry::second_bounds()};     // from the request to its first token
  Histogram between_tokens{telemetry::second_bounds()};  // of one answer
  // Of answers that did not fail.
  Histogram whole{telemetry::second_bounds()};  // from the request to its end
  Histogram queue{telemetry::second_bounds()};
  Histogram prompt{telemetry::second_bounds()};
  Histogram decode{telemetry::second_bounds()};
  Histogram running{telemetry::second_bounds()};    // prompt and decode
  Histogram per_token{telemetry::second_bounds()};  // decode, by its tokens
  Histogram prompt_tokens{telemetry::token_bounds()};
  Histogram written_tokens{telemetry::token_bounds()};
};

}  // namespace strata::server
