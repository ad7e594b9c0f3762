// Inside of src/quant: one encoder of whole rows per type, found by family.
#pragma once

#include <cstddef>

#include "gguf/tensor_type.h"
#include "quant/blocks.h"

namespace strata::quant {

// Encodes `count` blocks of finite values and returns how many it wrote: fewer than count if the
// next block has a value that the format's range does not hold.
using RowEncoder = std::size_t (*)(const float* values, std::byte* blocks, std::size_t count);

// nullptr for types outside the family.
RowEncoder exact_encoder(TensorType type);     // F32, F16, BF16, Q4_0 to Q8_0
RowEncoder searched_encoder(TensorType type);  // Q2_0, IQ4_NL
RowEncoder k_encoder(TensorType type);         // Q2_K to Q6_K, IQ4_XS

// A row encoder from encode_block(const float*, Block&), which returns false for a value out of
// range.
template <class Block, bool (*encode_block)(const float*, Block&)>
std::size_t encode_blocks(const float* values, std::byte* blocks, std::size_t count) {
  Block* block = reinterpret_cast<Block*>(blocks);
  for (std::size_t i = 0; i < count; ++i) {
    if (!encode_block(values + i * Block::values, block[i])) return i;
  }
  return count;
}

inline bool is_finite_half(std::uint16_t half) {
  return (half & 0x7c00u) != 0x7c00u;
}

}  // namespace strata::quant
