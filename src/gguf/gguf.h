// GGUF files, version 2 and 3, little-endian: reading (whole or split in parts) and writing.
//
// The reader trusts nothing: counts, lengths, types, shapes, alignments and offsets are checked
// against the file's size before anything is allocated for them. Tensor data stays in the mapped
// file; a GgufModel keeps its mappings alive, and every span of it is valid as long as a copy of
// the model (or of `owners`) lives. Reading a const GgufModel from several threads is safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/file.h"
#include "gguf/tensor_type.h"

namespace strata {

// GGUF's own value type numbers.
enum class MetaType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};
std::string_view to_string(MetaType type);

// One metadata value. Integers of any width are held as 64 bits with their sign; `type` (and
// `element` for arrays) keeps what the file said, so that a copy writes the same bytes.
struct MetaValue {
  using Integers = std::vector<std::int64_t>;  // u64 elements keep their bit pattern
  using Floats = std::vector<double>;
  using Strings = std::vector<std::string>;

  MetaType type = MetaType::u32;
  MetaType element = MetaType::u32;  // of an array
  // u8..i64: int64 (u64 as bit pattern); f32, f64: double; boolean: bool; string; arrays: the
  // vectors (booleans as Integers 0/1).
  std::variant<std::int64_t, double, bool, std::string, Integers, Floats, Strings> value;

  static MetaValue u32(std::uint32_t v) { return {MetaType::u32, {}, std::int64_t{v}}; }
  static MetaValue u64(std::uint64_t v) {
    return {MetaType::u64, {}, static_cast<std::int64_t>(v)};
  }
  static MetaValue i32(std::int32_t v) { return {MetaType::i32, {}, std::int64_t{v}}; }
  static MetaValue f32(float v) { return {MetaType::f32, {}, double{v}}; }
  static MetaValue boolean(bool v) { return {MetaType::boolean, {}, v}; }
  static MetaValue string(std::string v) { return {MetaType::string, {}, std::move(v)}; }
  static MetaValue array(MetaType element, Integers v) {
    return {MetaType::array, element, std::move(v)};
  }
  static MetaValue floats(Floats v) { return {MetaType::array, MetaType::f32, std::move(v)}; }
  static MetaValue strings(Strings v) { return {MetaType::array, MetaType::string, std::move(v)}; }
};

// Metadata in file order, with typed look-ups. A look-up of a key that is absent is `not_found`;
// one with another type, or a number outside the asked range, is `corrupt`; both name the key.
class Metadata {
 public:
  const MetaValue* find(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  void set(std::string key, MetaValue value);  // replaces in place or appends

  Result<std::uint64_t> uint(std::string_view key) const;  // any integer type, >= 0
  Result<std::int64_t> integer(std::string_view key) const;
  Result<double> number(std::string_view key) const;  // integers are accepted too
  Result<bool> boolean(std::string_view key) const;
  Result<std::string> string(std::string_view key) const;
  Result<MetaValue::Integers> integers(std::string_view key) const;  // arrays of integers or bools
  Result<MetaValue::Floats> floats(std::string_view key) const;
  Result<MetaValue::Strings> strings(std::string_view key) const;

  const std::vector<std::pair<std::string, MetaValue>>& entries() const { return entries_; }

 private:
  std::vector<std::pair<std::string, MetaValue>> entries_;
  std::unordered_map<std::string, std::size_t> index_;
};

// A tensor as stored: ne[0] is the contiguous dimension (the input width of a projection).
struct TensorView {
  std::string name;
  TensorType type = TensorType::F32;
  std::array<std::uint64_t, 4> ne = {1, 1, 1, 1};  // unused dimensions are 1
  std::uint32_t dims = 1;
  std::span<const std::byte> data;  // bytes_of(type, product of ne), aligned in the file
  std::uint32_t part = 0;           // index of the file of a split model
  std::uint64_t file_offset = 0;    // of data, in that file
  std::uint64_t values() const { return ne[0] * ne[1] * ne[2] * ne[3]; }
};
// "[2560, 640, 512]"
std::string shape_text(const TensorView& tensor);

struct GgufModel {
  Metadata metadata;                // of the first part, without the split.* keys' meaning removed
  std::vector<TensorView> tensors;  // all parts, in file order
  std::vector<std::string> paths;   // one per part
  std::uint32_t version = 3;
  std::vector<std::shared_ptr<const void>> owners;  // keep `data` alive

  const TensorView* find(std::string_view name) const;

 private:
  friend Result<GgufModel> open_gguf(FileSystem& files, const std::string& path);
  std::unordered_map<std::string, std::size_t> index_;
};

// Opens a model. A path "...-0000N-of-0000M.gguf" opens all M parts, which must lie beside it,
// belong together and hold no tensor twice. Errors name the file, the key or tensor, and the
// number.
Result<GgufModel> open_gguf(FileSystem& files, const std::string& path);

// Writes a GGUF v3 file. Tensors are declared first; their data then follows in the same order.
// The file appears under its name only when finish() succeeds (it is written as PATH.partial).
class GgufWriter {
 public:
  static Result<GgufWriter> create(FileSystem& files, std::string path);
  GgufWriter(GgufWriter&&) noexcept;
  GgufWriter& operator=(GgufWriter&&) noexcept;
  ~GgufWriter();  // removes the partial file if finish() was not reached

  Metadata& metadata();
  // Before the first write_tensor. `ne` as in TensorView, 1 to 4 dimensions.
  Status declare(std::string name, TensorType type, std::vector<std::uint64_t> ne);
  // The data of the next declared tensor; may come in several pieces.
  Status write_data(std::span<const std::byte> bytes);
  Status finish();

 private:
  struct State;
  explicit GgufWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace strata
