// What reader and writer of GGUF share: constants of the format, and the limits that bound what a
// hostile file can make us allocate. Private to src/gguf.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "gguf/gguf.h"

namespace strata::gguf_format {

inline constexpr std::string_view kMagic = "GGUF";
inline constexpr std::uint32_t kVersion = 3;
inline constexpr std::string_view kAlignmentKey = "general.alignment";
inline constexpr std::uint64_t kDefaultAlignment = 32;
inline constexpr std::uint64_t kMinAlignment = 8;
inline constexpr std::uint64_t kMaxAlignment = 1 << 20;
inline constexpr std::uint32_t kMaxDims = 4;

// Generous: real models have some 70 keys, 1,200 tensors, 500,000 array elements in all.
inline constexpr std::uint64_t kMaxHeaderBytes = 256ull << 20;  // metadata and tensor table
inline constexpr std::uint64_t kMaxKeys = 1ull << 16;
inline constexpr std::uint64_t kMaxTensors = 1ull << 20;
inline constexpr std::uint64_t kMaxKeyBytes = 65535;
inline constexpr std::uint64_t kMaxTensorNameBytes = 255;
inline constexpr std::uint64_t kMaxStringBytes = 16ull << 20;
inline constexpr std::uint64_t kMaxElements = 1ull << 24;  // of all arrays of a file together
inline constexpr std::uint32_t kMaxParts = 1024;

// Names end up in messages, so they may hold no control character.
Status check_name(std::string_view name, std::uint64_t limit, std::string_view what);
Status check_alignment(std::uint64_t alignment);

// The value of general.alignment, checked, or the default.
Result<std::uint64_t> alignment_of(const Metadata& metadata);

// Bytes of a tensor. Checks the dimensions (`ne`: 1 to 4, none 0) and that rows are whole blocks.
Result<std::uint64_t> tensor_bytes(std::string_view name, TensorType type,
                                   std::span<const std::uint64_t> ne);

// Bytes of one element of a fixed-size value type; 0 for strings and arrays.
std::uint64_t size_of(MetaType type);
bool is_integer(MetaType type);
// Smallest and largest value of an integer type but u64.
std::int64_t min_of(MetaType type);
std::int64_t max_of(MetaType type);

}  // namespace strata::gguf_format
