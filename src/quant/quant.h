// Block formats: exact decoding of every ggml block type and encoders for those that convert
// writes. Layouts follow ggml's (see docs/formats/blocks.md). All functions are pure and thread
// safe. `values` must be a whole number of blocks; the spans must have the matching sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "gguf/tensor_type.h"
#include "quant/float_formats.h"  // half_to_float, float_to_half, bf16_to_float, float_to_bf16, ...

namespace strata {

// True for every type that decode() accepts: F32, F16, BF16, all Q*_0, Q*_1, Q*_K and IQ* types of
// TensorType except the activation formats Q8_1 and Q8_K.
bool can_decode(TensorType type);
// Decodes out.size() values. Each value is exact to the last bit of ggml's definition in float32.
// `unsupported` for types that have no decoder, `invalid_argument` for sizes that do not match.
Status decode(TensorType type, std::span<const std::byte> blocks, std::span<float> out);

// The decoder behind decode(), without its checks: reads `count` whole blocks (for plain types a
// block is one value) and writes their values. The input needs no alignment.
using RowDecoder = void (*)(const std::byte* blocks, float* out, std::size_t count);
// nullptr for types that have no decoder.
RowDecoder row_decoder(TensorType type);

// out[i] = value of bytes[i] times scale, one float product. `invalid_argument` if the sizes
// differ.
Status decode_f8_e4m3(std::span<const std::byte> bytes, float scale, std::span<float> out);

// F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_0, IQ4_NL, IQ4_XS and Q2_K to Q6_K.
bool can_encode(TensorType type);
// Encodes values.size() values. F32, BF16, F16, Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 have one exact
// result; the others minimise the squared error of each block by a short search.
// Values must be finite and within the format's range, that is the block's scale must fit a half
// (`invalid_argument` names the index of the first value that is not). The result depends on
// nothing but the values of each block.
Status encode(TensorType type, std::span<const float> values, std::span<std::byte> blocks);

}  // namespace strata
