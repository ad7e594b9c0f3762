// Block formats: exact decoding of every ggml block type and encoders for those that convert
// writes. Layouts follow ggml's (see docs/formats/blocks.md). All functions are pure and thread
// safe. `values` must be a whole number of blocks; the spans must have the matching sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "gguf/tensor_type.h"

namespace strata {

// IEEE half and bfloat16, round to nearest even, NaN stays NaN (quiet).
float half_to_float(std::uint16_t half);
std::uint16_t float_to_half(float value);
float bf16_to_float(std::uint16_t bits);
std::uint16_t float_to_bf16(float value);
// E4M3 "fn": 0x7F and 0xFF are NaN, no infinities.
float f8_e4m3_to_float(std::uint8_t bits);

// True for every type that decode() accepts.
bool can_decode(TensorType type);
// Decodes out.size() values. Each value is exact to the last bit of ggml's definition in float32.
// `unsupported` for types that have no decoder, `invalid_argument` for sizes that do not match.
Status decode(TensorType type, std::span<const std::byte> blocks, std::span<float> out);

bool can_encode(TensorType type);
// Encodes values.size() values. BF16, F16, Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 have one exact result;
// Q2_0, IQ4_NL, Q4_K and Q6_K minimise the squared error of each block by a short search.
// Values must be finite (`invalid_argument` names the index of the first that is not).
Status encode(TensorType type, std::span<const float> values, std::span<std::byte> blocks);

}  // namespace strata
