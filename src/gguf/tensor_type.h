// The element types of GGUF tensors with their ggml numbers and block sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"

namespace strata {

// Values are ggml's type ids, as stored in files.
enum class TensorType : std::uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q8_1 = 9,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  Q8_K = 15,
  IQ2_XXS = 16,
  IQ2_XS = 17,
  IQ3_XXS = 18,
  IQ1_S = 19,
  IQ4_NL = 20,
  IQ3_S = 21,
  IQ2_S = 22,
  IQ4_XS = 23,
  I8 = 24,
  I16 = 25,
  I32 = 26,
  I64 = 27,
  F64 = 28,
  IQ1_M = 29,
  BF16 = 30,
  TQ1_0 = 34,
  TQ2_0 = 35,
  MXFP4 = 39,
  NVFP4 = 40,
  Q2_0 = 42,
};

struct TypeTraits {
  TensorType type;
  std::string_view name;       // "Q4_K"
  std::uint32_t block_values;  // values in a block, 1 for plain types
  std::uint32_t block_bytes;   // bytes of a block
};

// All types that this program can name, ascending by id.
std::span<const TypeTraits> all_types();
// nullopt for ids that no type here has.
std::optional<TensorType> type_from_id(std::uint32_t id);
// Case-insensitive, "q4_k" and "Q4_K".
std::optional<TensorType> type_from_name(std::string_view name);
const TypeTraits& traits(TensorType type);
inline std::string_view to_string(TensorType type) {
  return traits(type).name;
}

// Bytes of `values` consecutive values; an error if they are no whole number of blocks or the
// product does not fit 64 bits.
Result<std::uint64_t> bytes_of(TensorType type, std::uint64_t values);

}  // namespace strata
