// Inside of src/quant: one decoder of whole rows per type, found by family.
#pragma once

#include <cstddef>

#include "gguf/tensor_type.h"
#include "quant/blocks.h"
#include "quant/quant.h"

namespace strata::quant {

// nullptr for types outside the family.
RowDecoder plain_decoder(TensorType type);     // F32, F16, BF16
RowDecoder simple_decoder(TensorType type);    // Q4_0 to Q8_0, Q2_0
RowDecoder k_decoder(TensorType type);         // Q2_K to Q6_K
RowDecoder codebook_decoder(TensorType type);  // IQ*

// A row decoder from decode_block(const Block&, float*), which the including file defines.
template <class Block, void (*decode_block)(const Block&, float*)>
void decode_blocks(const std::byte* blocks, float* out, std::size_t count) {
  // Structs of bytes: any alignment will do, and bytes may alias anything.
  const Block* block = reinterpret_cast<const Block*>(blocks);
  for (std::size_t i = 0; i < count; ++i) decode_block(block[i], out + i * Block::values);
}

}  // namespace strata::quant
