// The time that a constraint may take to be made: schemas, patterns and grammars, and all their
// automata.
//
// It holds for what its thread does while the object lives, however deep inside; of several the
// one that ends first counts. Limits of steps and states stay what they are: those say the same on
// every machine, this one keeps a thread from being held.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/result.h"

namespace strata::constrain {

class TimeLimit {
 public:
  explicit TimeLimit(double seconds);
  ~TimeLimit();
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

  // Something was given up because of it.
  bool passed() const { return passed_; }

  // While it lives, its thread has all the time it needs: for small things that are made once and
  // shared.
  class Exempt {
   public:
    Exempt();
    ~Exempt();
    Exempt(const Exempt&) = delete;
    Exempt& operator=(const Exempt&) = delete;

   private:
    TimeLimit* limit_;
  };

  // Of this thread. `exhausted` in a sentence once the time is over; cheap to ask.
  static Status check();
  static bool over();

 private:
  std::chrono::steady_clock::time_point end_;
  double seconds_;
  std::uint32_t asked_ = 0;
  bool passed_ = false;
  TimeLimit* outer_;
};

}  // namespace strata::constrain
