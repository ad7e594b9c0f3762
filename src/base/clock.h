// Time for measuring and for time-outs. Never goes back; unrelated to the calendar.
#pragma once

#include <chrono>

namespace strata {

inline double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace strata
