// Arithmetic on sizes that come from outside. Each function answers nullopt instead of wrapping.
#pragma once

#include <cstdint>
#include <optional>

namespace strata {

inline std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

inline std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// The smallest multiple of `step` that is at least `value`; nullopt for step 0.
inline std::optional<std::uint64_t> checked_round_up(std::uint64_t value, std::uint64_t step) {
  if (step == 0) return std::nullopt;
  const std::uint64_t rest = value % step;
  return rest == 0 ? value : checked_add(value, step - rest);
}

// Whether [offset, offset + size) lies inside [0, limit), without computing the end.
inline bool fits(std::uint64_t offset, std::uint64_t size, std::uint64_t limit) {
  return offset <= limit && size <= limit - offset;
}

}  // namespace strata
