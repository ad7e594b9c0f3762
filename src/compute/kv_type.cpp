#include "compute/kv_type.h"

#include <bit>

namespace strata {

std::string_view to_string(CellFormat format) {
  constexpr std::string_view names[] = {"f32", "f16", "int8", "q4_0"};
  return names[static_cast<std::size_t>(format)];
}

std::string_view to_string(KvType type) {
  constexpr std::string_view names[] = {"f32", "f16", "int8", "q4_0", "k8v4"};
  return names[static_cast<std::size_t>(type)];
}

Result<KvType> kv_type_named(std::string_view name) {
  for (const KvType type : kKvTypes)
    if (to_string(type) == name) return type;
  return fail(ErrorCode::invalid_argument,
              "'{}' is no type of keys and values; it must be f32, f16, int8, q4_0 or k8v4", name);
}

CellFormat key_format(KvType type) {
  constexpr CellFormat formats[] = {CellFormat::f32, CellFormat::f16, CellFormat::int8,
                                    CellFormat::q4_0, CellFormat::int8};
  return formats[static_cast<std::size_t>(type)];
}

CellFormat value_format(KvType type) {
  return type == KvType::k8v4 ? CellFormat::q4_0 : key_format(type);
}

std::size_t cell_bytes(CellFormat format, std::size_t dim) {
  switch (format) {
    case CellFormat::f32:
      return 4 * dim;
    case CellFormat::f16:
      return 2 * dim;
    case CellFormat::int8:
      return (dim + 63) / 64 * 66;
    case CellFormat::q4_0:
      return (dim + 31) / 32 * 18;
  }
  return 0;
}

Status check_kv_type(KvType type, std::size_t dim) {
  if (!is_turned(value_format(type)) || std::has_single_bit(dim)) return {};
  return fail(ErrorCode::unsupported,
              "keys and values of type {} need heads whose size is a power of two, and the model's "
              "have {}; use f32, f16 or int8",
              to_string(type), dim);
}

}  // namespace strata
