#include "gguf/tensor_type.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/checked.h"

namespace strata {
namespace {

constexpr std::array<TypeTraits, 34> kTypes = {{
    {TensorType::F32, "F32", 1, 4},
    {TensorType::F16, "F16", 1, 2},
    {TensorType::Q4_0, "Q4_0", 32, 18},
    {TensorType::Q4_1, "Q4_1", 32, 20},
    {TensorType::Q5_0, "Q5_0", 32, 22},
    {TensorType::Q5_1, "Q5_1", 32, 24},
    {TensorType::Q8_0, "Q8_0", 32, 34},
    {TensorType::Q8_1, "Q8_1", 32, 36},
    {TensorType::Q2_K, "Q2_K", 256, 84},
    {TensorType::Q3_K, "Q3_K", 256, 110},
    {TensorType::Q4_K, "Q4_K", 256, 144},
    {TensorType::Q5_K, "Q5_K", 256, 176},
    {TensorType::Q6_K, "Q6_K", 256, 210},
    {TensorType::Q8_K, "Q8_K", 256, 292},
    {TensorType::IQ2_XXS, "IQ2_XXS", 256, 66},
    {TensorType::IQ2_XS, "IQ2_XS", 256, 74},
    {TensorType::IQ3_XXS, "IQ3_XXS", 256, 98},
    {TensorType::IQ1_S, "IQ1_S", 256, 50},
    {TensorType::IQ4_NL, "IQ4_NL", 32, 18},
    {TensorType::IQ3_S, "IQ3_S", 256, 110},
    {TensorType::IQ2_S, "IQ2_S", 256, 82},
    {TensorType::IQ4_XS, "IQ4_XS", 256, 136},
    {TensorType::I8, "I8", 1, 1},
    {TensorType::I16, "I16", 1, 2},
    {TensorType::I32, "I32", 1, 4},
    {TensorType::I64, "I64", 1, 8},
    {TensorType::F64, "F64", 1, 8},
    {TensorType::IQ1_M, "IQ1_M", 256, 56},
    {TensorType::BF16, "BF16", 1, 2},
    {TensorType::TQ1_0, "TQ1_0", 256, 54},
    {TensorType::TQ2_0, "TQ2_0", 256, 66},
    {TensorType::MXFP4, "MXFP4", 32, 17},
    {TensorType::NVFP4, "NVFP4", 64, 36},
    {TensorType::Q2_0, "Q2_0", 64, 18},
}};

constexpr std::size_t kIds = 43;  // one above the largest id
constexpr std::uint8_t kNone = 0xff;

constexpr std::array<std::uint8_t, kIds> make_index() {
  std::array<std::uint8_t, kIds> index{};
  index.fill(kNone);
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    index[static_cast<std::size_t>(kTypes[i].type)] = static_cast<std::uint8_t>(i);
  }
  return index;
}
constexpr std::array<std::uint8_t, kIds> kIndex = make_index();

// For values of TensorType that are no enumerator; bytes_of refuses its zero block.
constexpr TypeTraits kUnknown = {TensorType::F32, "unknown", 0, 0};

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::toupper(static_cast<unsigned char>(x)) ==
           std::toupper(static_cast<unsigned char>(y));
  });
}

}  // namespace

std::span<const TypeTraits> all_types() {
  return kTypes;
}

std::optional<TensorType> type_from_id(std::uint32_t id) {
  if (id >= kIds || kIndex[id] == kNone) return std::nullopt;
  return static_cast<TensorType>(id);
}

std::optional<TensorType> type_from_name(std::string_view name) {
  for (const TypeTraits& entry : kTypes) {
    if (equal_ignoring_case(entry.name, name)) return entry.type;
  }
  return std::nullopt;
}

const TypeTraits& traits(TensorType type) {
  const auto id = static_cast<std::uint32_t>(type);
  return id < kIds && kIndex[id] != kNone ? kTypes[kIndex[id]] : kUnknown;
}

Result<std::uint64_t> bytes_of(TensorType type, std::uint64_t values) {
  const TypeTraits& t = traits(type);
  if (t.block_values == 0) {
    return fail(ErrorCode::unsupported, "tensor type id {} is not known",
                static_cast<std::uint32_t>(type));
  }
  if (values % t.block_values != 0) {
    return fail(ErrorCode::invalid_argument, "{} values are no whole number of {} blocks of {}",
                values, t.name, t.block_values);
  }
  const auto bytes = checked_mul(values / t.block_values, t.block_bytes);
  if (!bytes) {
    return fail(ErrorCode::invalid_argument, "the size of {} values of type {} overflows 64 bits",
                values, t.name);
  }
  return *bytes;
}

}  // namespace strata
