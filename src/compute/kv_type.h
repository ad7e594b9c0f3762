// How the cells of attention store keys and values. All is fixed when a backend is made: states of
// different types never meet.
//
//   f32    as computed
//   f16    halves
//   int8   blocks of 64 values: a half, the largest magnitude / 127, then the codes
//   q4_0   heads turned by the orthonormal Walsh-Hadamard transform, then ggml's Q4_0: blocks of
//          32 values, a half and the codes. Queries are turned too, and the output back
//   k8v4   keys as int8, values as q4_0
//
// Keys of the indexer are always f32: which cells are selected does not depend on the type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace strata {

// Of one head in one cell. A head's last block is padded with zeros.
enum class CellFormat : std::uint8_t { f32, f16, int8, q4_0 };
inline constexpr std::size_t kCellFormats = 4;

enum class KvType : std::uint8_t { f32, f16, int8, q4_0, k8v4 };
inline constexpr KvType kKvTypes[] = {KvType::f32, KvType::f16, KvType::int8, KvType::q4_0,
                                      KvType::k8v4};
// What the engine takes; docs/results/kv.md says why.
inline constexpr KvType kDefaultKvType = KvType::f16;

std::string_view to_string(CellFormat format);
std::string_view to_string(KvType type);
Result<KvType> kv_type_named(std::string_view name);

CellFormat key_format(KvType type);
CellFormat value_format(KvType type);
// Heads are turned before they are stored.
constexpr bool is_turned(CellFormat format) {
  return format == CellFormat::q4_0;
}
// Of one head of `dim` values.
std::size_t cell_bytes(CellFormat format, std::size_t dim);
// `unsupported`, with the number, where the type cannot store heads of `dim` values.
Status check_kv_type(KvType type, std::size_t dim);

}  // namespace strata
