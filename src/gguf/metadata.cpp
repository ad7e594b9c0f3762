// Metadata values with their look-ups, and the checks that reader and writer share.
#include <algorithm>
#include <bit>
#include <limits>

#include "base/checked.h"
#include "gguf/gguf.h"
#include "gguf/gguf_format.h"

namespace strata {

std::string_view to_string(MetaType type) {
  switch (type) {
    case MetaType::u8:
      return "u8";
    case MetaType::i8:
      return "i8";
    case MetaType::u16:
      return "u16";
    case MetaType::i16:
      return "i16";
    case MetaType::u32:
      return "u32";
    case MetaType::i32:
      return "i32";
    case MetaType::f32:
      return "f32";
    case MetaType::boolean:
      return "bool";
    case MetaType::string:
      return "string";
    case MetaType::array:
      return "array";
    case MetaType::u64:
      return "u64";
    case MetaType::i64:
      return "i64";
    case MetaType::f64:
      return "f64";
  }
  return "unknown";
}

namespace {

std::string type_text(const MetaValue& value) {
  if (value.type != MetaType::array) return std::string(to_string(value.type));
  return fmt::format("array of {}", to_string(value.element));
}

tl::unexpected<Error> wrong_type(std::string_view key, const MetaValue& value,
                                 std::string_view wanted) {
  return fail(ErrorCode::corrupt, "key '{}' holds {} where {} is needed", key, type_text(value),
              wanted);
}

template <class Alternative>
Result<Alternative> get(const Metadata& metadata, std::string_view key, std::string_view wanted) {
  const MetaValue* value = metadata.find(key);
  if (value == nullptr) return fail(ErrorCode::not_found, "key '{}' is missing", key);
  const auto* held = std::get_if<Alternative>(&value->value);
  if (held == nullptr) return wrong_type(key, *value, wanted);
  return *held;
}

}  // namespace

const MetaValue* Metadata::find(std::string_view key) const {
  const auto found = index_.find(std::string(key));
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

void Metadata::set(std::string key, MetaValue value) {
  const auto [place, added] = index_.try_emplace(key, entries_.size());
  if (added) {
    entries_.emplace_back(std::move(key), std::move(value));
  } else {
    entries_[place->second].second = std::move(value);
  }
}

Result<std::uint64_t> Metadata::uint(std::string_view key) const {
  STRATA_ASSIGN(const std::int64_t held, get<std::int64_t>(*this, key, "an integer of at least 0"));
  if (held < 0 && find(key)->type != MetaType::u64) {
    return fail(ErrorCode::corrupt, "key '{}' is {} where an integer of at least 0 is needed", key,
                held);
  }
  return static_cast<std::uint64_t>(held);
}

Result<std::int64_t> Metadata::integer(std::string_view key) const {
  STRATA_ASSIGN(const std::int64_t held, get<std::int64_t>(*this, key, "an integer"));
  if (held < 0 && find(key)->type == MetaType::u64) {
    return fail(ErrorCode::corrupt, "key '{}' is {}, more than a signed 64-bit integer holds", key,
                static_cast<std::uint64_t>(held));
  }
  return held;
}

Result<double> Metadata::number(std::string_view key) const {
  const MetaValue* value = find(key);
  if (value == nullptr) return fail(ErrorCode::not_found, "key '{}' is missing", key);
  if (const auto* real = std::get_if<double>(&value->value)) return *real;
  if (const auto* whole = std::get_if<std::int64_t>(&value->value)) {
    return value->type == MetaType::u64 ? static_cast<double>(static_cast<std::uint64_t>(*whole))
                                        : static_cast<double>(*whole);
  }
  return wrong_type(key, *value, "a number");
}

Result<bool> Metadata::boolean(std::string_view key) const {
  return get<bool>(*this, key, "a bool");
}

Result<std::string> Metadata::string(std::string_view key) const {
  return get<std::string>(*this, key, "a string");
}

Result<MetaValue::Integers> Metadata::integers(std::string_view key) const {
  return get<MetaValue::Integers>(*this, key, "an array of integers");
}

Result<MetaValue::Floats> Metadata::floats(std::string_view key) const {
  return get<MetaValue::Floats>(*this, key, "an array of floats");
}

Result<MetaValue::Strings> Metadata::strings(std::string_view key) const {
  return get<MetaValue::Strings>(*this, key, "an array of strings");
}

std::string shape_text(const TensorView& tensor) {
  const auto dims = std::min<std::size_t>(tensor.dims, tensor.ne.size());
  return fmt::format("[{}]", fmt::join(tensor.ne.begin(), tensor.ne.begin() + dims, ", "));
}

namespace gguf_format {

Status check_name(std::string_view name, std::uint64_t limit, std::string_view what) {
  if (name.empty()) return fail(ErrorCode::corrupt, "{} has an empty name", what);
  if (name.size() > limit) {
    return fail(ErrorCode::corrupt, "{} has a name of {} bytes, more than the {} allowed", what,
                name.size(), limit);
  }
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      return fail(ErrorCode::corrupt, "{} has the control character 0x{:02x} in its name", what,
                  byte);
    }
  }
  return {};
}

Status check_alignment(std::uint64_t alignment) {
  if (std::has_single_bit(alignment) && alignment >= kMinAlignment && alignment <= kMaxAlignment) {
    return {};
  }
  return fail(ErrorCode::corrupt, "{} is {}; it must be a power of two from {} to {}",
              kAlignmentKey, alignment, kMinAlignment, kMaxAlignment);
}

Result<std::uint64_t> alignment_of(const Metadata& metadata) {
  const MetaValue* value = metadata.find(kAlignmentKey);
  if (value == nullptr) return kDefaultAlignment;
  if (value->type != MetaType::u32 || !std::holds_alternative<std::int64_t>(value->value)) {
    return wrong_type(kAlignmentKey, *value, "u32");
  }
  STRATA_ASSIGN(const std::uint64_t alignment, metadata.uint(kAlignmentKey));
  STRATA_TRY(check_alignment(alignment));
  return alignment;
}

Result<std::uint64_t> tensor_bytes(std::string_view name, TensorType type,
                                   std::span<const std::uint64_t> ne) {
  if (ne.empty() || ne.size() > kMaxDims) {
    return fail(ErrorCode::corrupt, "tensor '{}' has {} dimensions; 1 to {} are possible", name,
                ne.size(), kMaxDims);
  }
  std::uint64_t values = 1;
  for (const std::uint64_t width : ne) {
    const auto product = checked_mul(values, width);
    if (!product || *product > static_cast<std::uint64_t>(INT64_MAX)) {
      return fail(ErrorCode::corrupt, "tensor '{}' has the shape [{}], more than 2^63 values", name,
                  fmt::join(ne, ", "));
    }
    values = *product;
  }
  if (values == 0) {
    return fail(ErrorCode::corrupt, "tensor '{}' has the shape [{}] with a dimension of 0", name,
                fmt::join(ne, ", "));
  }
  if (ne[0] % std::max(traits(type).block_values, 1u) != 0) {
    return fail(ErrorCode::corrupt,
                "tensor '{}' of type {} has rows of {} values, no whole number of blocks of {}",
                name, to_string(type), ne[0], traits(type).block_values);
  }
  auto bytes = bytes_of(type, values);
  if (!bytes) return fail(ErrorCode::corrupt, "tensor '{}': {}", name, bytes.error().message);
  return bytes;
}

std::uint64_t size_of(MetaType type) {
  switch (type) {
    case MetaType::u8:
    case MetaType::i8:
    case MetaType::boolean:
      return 1;
    case MetaType::u16:
    case MetaType::i16:
      return 2;
    case MetaType::u32:
    case MetaType::i32:
    case MetaType::f32:
      return 4;
    case MetaType::u64:
    case MetaType::i64:
    case MetaType::f64:
      return 8;
    case MetaType::string:
    case MetaType::array:
      return 0;
  }
  return 0;
}

bool is_integer(MetaType type) {
  return size_of(type) > 0 && type != MetaType::f32 && type != MetaType::f64 &&
         type != MetaType::boolean;
}

std::int64_t min_of(MetaType type) {
  switch (type) {
    case MetaType::i8:
      return std::numeric_limits<std::int8_t>::min();
    case MetaType::i16:
      return std::numeric_limits<std::int16_t>::min();
    case MetaType::i32:
      return std::numeric_limits<std::int32_t>::min();
    case MetaType::i64:
    case MetaType::u64:  // the bit pattern may be anything
      return std::numeric_limits<std::int64_t>::min();
    default:
      return 0;
  }
}

std::int64_t max_of(MetaType type) {
  switch (type) {
    case MetaType::boolean:
      return 1;
    case MetaType::u8:
      return std::numeric_limits<std::uint8_t>::max();
    case MetaType::i8:
      return std::numeric_limits<std::int8_t>::max();
    case MetaType::u16:
      return std::numeric_limits<std::uint16_t>::max();
    case MetaType::i16:
      return std::numeric_limits<std::int16_t>::max();
    case MetaType::u32:
      return std::numeric_limits<std::uint32_t>::max();
    case MetaType::i32:
      return std::numeric_limits<std::int32_t>::max();
    default:
      return std::numeric_limits<std::int64_t>::max();
  }
}

}  // namespace gguf_format
}  // namespace strata
