// Random weights in any stored form, for models that are measured and never read. Codes, signs and
// small scales take every value that the format has; the block's own scale is chosen so that the
// weights have a given size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "gguf/tensor_type.h"

namespace strata {

class RandomBlocks {
 public:
  // Weights with about this root mean square around `mean`. Every type that decode() accepts; a
  // mean other than 0 is for plain types only.
  static Result<RandomBlocks> create(TensorType type, float deviation, float mean = 0);

  // Fills whole blocks. The bytes depend on type, deviation, mean and `seed` alone, and a longer
  // span starts with the bytes of a shorter one. Thread safe.
  void fill(std::uint64_t seed, std::span<std::byte> blocks) const;

 private:
  RandomBlocks(TensorType type, float deviation, float mean)
      : type_(type), scale_(deviation), mean_(mean) {}
  void fill_plain(std::uint64_t seed, std::span<std::byte> values) const;
  void fill_blocks(std::uint64_t seed, std::span<std::byte> blocks) const;

  TensorType type_;
  float scale_;  // of a block, before its own spread; the deviation itself for plain types
  float mean_;
};

}  // namespace strata
