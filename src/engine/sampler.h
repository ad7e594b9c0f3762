// One step of sampling: logits of a row to a token id. Pure and thread safe; the random number is a
// function of (seed, position), so a row gives the same token whatever window it was computed in.
#pragma once

#include <cstdint>
#include <span>

#include "engine/engine.h"

namespace strata {

// Uniform in [0, 1), the same on every machine.
double uniform_at(std::uint64_t seed, std::uint64_t position);

// top_k, top_p and min_p on the plain distribution, then temperature, then the pick. Ties go to the
// lowest id. `position` is the position of the token that is picked. Logits must not hold NaN.
TokenId sample(std::span<const float> logits, const Sampling& sampling, std::uint64_t position);

// The first run of values from `at` on that holds one that is wanted: where it begins, or the end.
// Most runs hold none, and a whole run is looked at in vectors.
template <class Wanted>
std::size_t find_run(std::span<const float> values, std::size_t at, const Wanted& wanted) {
  constexpr std::size_t run = 64;
  for (; at + run <= values.size(); at += run) {
    int found = 0;
    for (std::size_t i = 0; i < run; ++i) found |= wanted(values[at + i]) ? 1 : 0;
    if (found != 0) return at;
  }
  return at;
}

// The largest of some values, at least one, none of them NaN.
float largest(std::span<const float> values);
// Whether all are numbers, none of them infinite.
bool all_finite(std::span<const float> values);

// `chosen` and the `top` likeliest tokens of softmax(logits).
TokenChances chances_of(std::span<const float> logits, TokenId chosen, std::uint32_t top);

}  // namespace strata
