// Reading GGUF. A file is one header (counts, metadata, tensor table) and one data section:
//
//   "GGUF"  u32 version  u64 tensors  u64 keys
//   keys    x (string key, u32 type, value)
//   tensors x (string name, u32 dims, u64 ne[dims], u32 type, u64 offset into the data section)
//   padding to the alignment, then the data section
//
// A string is u64 length and bytes; an array is u32 element type, u64 count and the elements.
// Every count is compared with the bytes that are left before anything is allocated for it.
#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/checked.h"
#include "gguf/gguf.h"
#include "gguf/gguf_format.h"

namespace strata {
namespace {

using namespace gguf_format;

static_assert(std::endian::native == std::endian::little,
              "the reader copies little-endian numbers as they are");

// The smallest a key and a tensor can be: length, one byte of name, type, one byte of value; and
// length, one byte of name, dims, one ne, type, offset.
constexpr std::uint64_t kMinKeyRecord = 8 + 1 + 4 + 1;
constexpr std::uint64_t kMinTensorRecord = 8 + 1 + 4 + 8 + 4 + 8;

// Walks over the header's bytes; never past their end.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t position() const { return position_; }
  std::uint64_t left() const { return bytes_.size() - position_; }

  template <class Number>
  Result<Number> number(std::string_view what) {
    static_assert(std::is_arithmetic_v<Number>);
    if (left() < sizeof(Number)) return ends_in(what);
    Number value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(Number));
    position_ += sizeof(Number);
    return value;
  }

  Result<std::string_view> text(std::string_view what) {
    STRATA_ASSIGN(const auto length, number<std::uint64_t>(what));
    if (length > kMaxStringBytes) {
      return fail(ErrorCode::corrupt, "{} has a length of {} bytes, more than the {} allowed", what,
                  length, kMaxStringBytes);
    }
    STRATA_ASSIGN(const auto raw, take(length, what));
    return std::string_view(reinterpret_cast<const char*>(raw.data()), raw.size());
  }

  Result<std::span<const std::byte>> take(std::uint64_t count, std::string_view what) {
    if (count > left()) return ends_in(what);
    const auto raw = bytes_.subspan(position_, static_cast<std::size_t>(count));
    position_ += raw.size();
    return raw;
  }

 private:
  tl::unexpected<Error> ends_in(std::string_view what) const {
    return fail(ErrorCode::corrupt, "the file or its header ends at byte {}, inside {}",
                bytes_.size(), what);
  }

  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
};

// The table's entry of a tensor, before its data is located.
struct TensorRecord {
  TensorView view;
  std::uint64_t offset = 0;  // in the data section
  std::uint64_t bytes = 0;
};

struct Part {
  std::uint32_t version = 0;
  Metadata metadata;
  std::vector<TensorView> tensors;
};

class PartReader {
 public:
  explicit PartReader(std::span<const std::byte> file)
      : file_(file),
        cursor_(file.first(
            static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), kMaxHeaderBytes)))) {}

  Result<Part> read() {
    STRATA_TRY(read_start());
    for (std::uint64_t i = 0; i < keys_; ++i) STRATA_TRY(read_key(i));
    STRATA_ASSIGN(alignment_, alignment_of(part_.metadata));
    for (std::uint64_t i = 0; i < tensors_; ++i) STRATA_TRY(read_tensor(i));
    STRATA_TRY(locate_data());
    return std::move(part_);
  }

 private:
  Status read_start() {
    STRATA_ASSIGN(const auto magic, cursor_.take(kMagic.size(), "the magic number"));
    if (std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0) {
      return fail(ErrorCode::corrupt, "is not a GGUF file: it does not start with 'GGUF'");
    }
    STRATA_ASSIGN(part_.version, cursor_.number<std::uint32_t>("the version"));
    STRATA_TRY(check_version(part_.version));
    STRATA_ASSIGN(tensors_, cursor_.number<std::uint64_t>("the tensor count"));
    STRATA_ASSIGN(keys_, cursor_.number<std::uint64_t>("the key count"));
    STRATA_TRY(check_count(tensors_, kMaxTensors, kMinTensorRecord, "tensors"));
    return check_count(keys_, kMaxKeys, kMinKeyRecord, "keys");
  }

  static Status check_version(std::uint32_t version) {
    if (version == 2 || version == 3) return {};
    if (version == 1) {
      return fail(ErrorCode::unsupported,
                  "is GGUF version 1, which is no longer read; convert the model again");
    }
    if (version != 0 && (version & 0xffff) == 0) {
      return fail(ErrorCode::unsupported,
                  "is a big-endian GGUF file (version 0x{:08x}); convert it to little-endian",
                  version);
    }
    return fail(version == 0 ? ErrorCode::corrupt : ErrorCode::unsupported,
                "is GGUF version {}; versions 2 and 3 can be read", version);
  }

  Status check_count(std::uint64_t count, std::uint64_t limit, std::uint64_t record,
                     std::string_view what) const {
    if (count > limit) {
      return fail(ErrorCode::corrupt, "claims {} {}, more than the {} allowed", count, what, limit);
    }
    if (count > cursor_.left() / record) {
      return fail(ErrorCode::corrupt, "claims {} {} but has only {} bytes left for them", count,
                  what, cursor_.left());
    }
    return {};
  }

  Status read_key(std::uint64_t number) {
    STRATA_ASSIGN(const auto key, cursor_.text("a key's name"));
    STRATA_TRY(check_name(key, kMaxKeyBytes, fmt::format("key {}", number)));
    if (part_.metadata.contains(key)) {
      return fail(ErrorCode::corrupt, "key '{}' occurs twice", key);
    }
    const std::string place = fmt::format("key '{}'", key);
    STRATA_ASSIGN(const MetaType type, read_type(place));
    MetaValue value;
    value.type = type;
    if (type == MetaType::array) {
      STRATA_TRY(read_array(place, value));
    } else {
      STRATA_TRY(read_scalar(place, value));
    }
    part_.metadata.set(std::string(key), std::move(value));
    return {};
  }

  Result<MetaType> read_type(const std::string& place) {
    STRATA_ASSIGN(const auto id, cursor_.number<std::uint32_t>(place));
    if (id > static_cast<std::uint32_t>(MetaType::f64)) {
      return fail(ErrorCode::corrupt, "{} has the value type {}, which GGUF does not have", place,
                  id);
    }
    return static_cast<MetaType>(id);
  }

  Status read_scalar(const std::string& place, MetaValue& value) {
    switch (value.type) {
      case MetaType::string: {
        STRATA_ASSIGN(const auto text, cursor_.text(place));
        value.value = std::string(text);
        return {};
      }
      case MetaType::boolean: {
        STRATA_ASSIGN(const std::int64_t bit, read_integer(value.type, place));
        value.value = bit != 0;
        return {};
      }
      case MetaType::f32:
      case MetaType::f64: {
        STRATA_ASSIGN(value.value, read_float(value.type, place));
        return {};
      }
      default: {
        STRATA_ASSIGN(value.value, read_integer(value.type, place));
        return {};
      }
    }
  }

  Status read_array(const std::string& place, MetaValue& value) {
    STRATA_ASSIGN(value.element, read_type(place));
    if (value.element == MetaType::array) {
      return fail(ErrorCode::unsupported, "{} is an array of arrays, which cannot be read", place);
    }
    STRATA_ASSIGN(const auto count, cursor_.number<std::uint64_t>(place));
    // An empty string still has its length.
    const std::uint64_t smallest = std::max<std::uint64_t>(size_of(value.element), 1) *
                                   (value.element == MetaType::string ? 8 : 1);
    if (count > cursor_.left() / smallest) {
      return fail(ErrorCode::corrupt, "{} claims {} elements but only {} bytes are left for them",
                  place, count, cursor_.left());
    }
    if (count > kMaxElements - elements_) {
      return fail(ErrorCode::corrupt, "{} claims {} elements; all arrays together may have {}",
                  place, count, kMaxElements);
    }
    elements_ += count;
    switch (value.element) {
      case MetaType::string:
        return read_strings(value, count, place);
      case MetaType::boolean:
        return read_booleans(value, count, place);
      case MetaType::f32:
        return read_numbers<float, MetaValue::Floats>(value, count, place);
      case MetaType::f64:
        return read_numbers<double, MetaValue::Floats>(value, count, place);
      case MetaType::u8:
        return read_numbers<std::uint8_t, MetaValue::Integers>(value, count, place);
      case MetaType::i8:
        return read_numbers<std::int8_t, MetaValue::Integers>(value, count, place);
      case MetaType::u16:
        return read_numbers<std::uint16_t, MetaValue::Integers>(value, count, place);
      case MetaType::i16:
        return read_numbers<std::int16_t, MetaValue::Integers>(value, count, place);
      case MetaType::u32:
        return read_numbers<std::uint32_t, MetaValue::Integers>(value, count, place);
      case MetaType::i32:
        return read_numbers<std::int32_t, MetaValue::Integers>(value, count, place);
      default:
        return read_numbers<std::uint64_t, MetaValue::Integers>(value, count, place);
    }
  }

  Status read_strings(MetaValue& value, std::uint64_t count, const std::string& place) {
    MetaValue::Strings strings;
    strings.reserve(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) {
      STRATA_ASSIGN(const auto text, cursor_.text(place));
      strings.emplace_back(text);
    }
    value.value = std::move(strings);
    return {};
  }

  Status read_booleans(MetaValue& value, std::uint64_t count, const std::string& place) {
    MetaValue::Integers bits;
    bits.reserve(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) {
      STRATA_ASSIGN(const std::int64_t bit, read_integer(MetaType::boolean, place));
      bits.push_back(bit);
    }
    value.value = std::move(bits);
    return {};
  }

  // `count` numbers were compared with what is left: all of them at once.
  template <class Number, class Elements>
  Status read_numbers(MetaValue& value, std::uint64_t count, const std::string& place) {
    STRATA_ASSIGN(const auto raw, cursor_.take(count * sizeof(Number), place));
    Elements elements(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < elements.size(); ++i) {
      Number held;
      std::memcpy(&held, raw.data() + i * sizeof(Number), sizeof(Number));
      elements[i] = static_cast<typename Elements::value_type>(held);
    }
    value.value = std::move(elements);
    return {};
  }

  template <class Number>
  Result<std::int64_t> widen(std::string_view place) {
    STRATA_ASSIGN(const auto held, cursor_.number<Number>(place));
    return static_cast<std::int64_t>(held);
  }

  Result<std::int64_t> read_integer(MetaType type, std::string_view place) {
    switch (type) {
      case MetaType::u8:
        return widen<std::uint8_t>(place);
      case MetaType::i8:
        return widen<std::int8_t>(place);
      case MetaType::u16:
        return widen<std::uint16_t>(place);
      case MetaType::i16:
        return widen<std::int16_t>(place);
      case MetaType::u32:
        return widen<std::uint32_t>(place);
      case MetaType::i32:
        return widen<std::int32_t>(place);
      case MetaType::boolean: {
        STRATA_ASSIGN(const auto byte, cursor_.number<std::uint8_t>(place));
        if (byte > 1) {
          return fail(ErrorCode::corrupt, "{} is a bool with the byte {}; 0 and 1 are possible",
                      place, byte);
        }
        return std::int64_t{byte};
      }
      default:
        return widen<std::uint64_t>(place);
    }
  }

  Result<double> read_float(MetaType type, std::string_view place) {
    if (type == MetaType::f64) return cursor_.number<double>(place);
    STRATA_ASSIGN(const float held, cursor_.number<float>(place));
    return double{held};
  }

  Status read_tensor(std::uint64_t number) {
    const std::string nameless = fmt::format("tensor {} of the table", number);
    STRATA_ASSIGN(const auto name, cursor_.text(nameless));
    STRATA_TRY(check_name(name, kMaxTensorNameBytes, nameless));
    TensorRecord record;
    record.view.name = std::string(name);
    const std::string place = fmt::format("tensor '{}'", name);
    STRATA_ASSIGN(record.view.dims, cursor_.number<std::uint32_t>(place));
    if (record.view.dims < 1 || record.view.dims > kMaxDims) {
      return fail(ErrorCode::corrupt, "{} has {} dimensions; 1 to {} are possible", place,
                  record.view.dims, kMaxDims);
    }
    const auto ne = std::span(record.view.ne).first(record.view.dims);
    for (std::uint64_t& width : ne) {
      STRATA_ASSIGN(width, cursor_.number<std::uint64_t>(place));
    }
    STRATA_ASSIGN(const auto id, cursor_.number<std::uint32_t>(place));
    const auto type = type_from_id(id);
    if (!type) {
      return fail(ErrorCode::unsupported, "{} has the type id {}, which this program does not know",
                  place, id);
    }
    record.view.type = *type;
    STRATA_ASSIGN(record.offset, cursor_.number<std::uint64_t>(place));
    if (record.offset % alignment_ != 0) {
      return fail(ErrorCode::corrupt, "{} has the offset {}, no multiple of the alignment {}",
                  place, record.offset, alignment_);
    }
    STRATA_ASSIGN(record.bytes, tensor_bytes(name, *type, ne));
    records_.push_back(std::move(record));
    return {};
  }

  // Gives each tensor its bytes of the file, and refuses those that lie outside or share bytes.
  Status locate_data() {
    const std::uint64_t end_of_table = cursor_.position();
    const std::uint64_t start = checked_round_up(end_of_table, alignment_).value_or(UINT64_MAX);
    for (TensorRecord& record : records_) {
      const auto place = checked_add(start, record.offset);
      if (!place || !fits(*place, record.bytes, file_.size())) {
        return fail(ErrorCode::corrupt,
                    "tensor '{}' needs {} bytes at offset {} of the data, which starts at {}, but "
                    "the file has {} bytes; it was cut short or damaged",
                    record.view.name, record.bytes, record.offset, start, file_.size());
      }
      record.view.file_offset = *place;
      record.view.data =
          file_.subspan(static_cast<std::size_t>(*place), static_cast<std::size_t>(record.bytes));
    }
    STRATA_TRY(check_overlap());
    part_.tensors.reserve(records_.size());
    for (TensorRecord& record : records_) part_.tensors.push_back(std::move(record.view));
    return {};
  }

  Status check_overlap() const {
    std::vector<const TensorRecord*> order;
    order.reserve(records_.size());
    for (const TensorRecord& record : records_) order.push_back(&record);
    std::sort(order.begin(), order.end(),
              [](const auto* a, const auto* b) { return a->offset < b->offset; });
    for (std::size_t i = 1; i < order.size(); ++i) {
      if (order[i]->offset < order[i - 1]->offset + order[i - 1]->bytes) {
        return fail(ErrorCode::corrupt,
                    "tensors '{}' and '{}' share bytes at offset {} of the data",
                    order[i - 1]->view.name, order[i]->view.name, order[i]->offset);
      }
    }
    return {};
  }

  std::span<const std::byte> file_;
  Cursor cursor_;
  Part part_;
  std::vector<TensorRecord> records_;
  std::uint64_t tensors_ = 0;
  std::uint64_t keys_ = 0;
  std::uint64_t elements_ = 0;
  std::uint64_t alignment_ = kDefaultAlignment;
};

// "PREFIX-0000N-of-0000M.gguf"
struct SplitName {
  std::string prefix;
  std::uint32_t number = 0;  // from 1
  std::uint32_t count = 0;
  std::string path(std::uint32_t part) const {
    return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, part, count);
  }
};

std::optional<std::uint32_t> five_digits(std::string_view text) {
  std::uint32_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<std::uint32_t>(c - '0');
  }
  return value;
}

std::optional<SplitName> split_name(const std::string& path) {
  constexpr std::string_view kEnd = "-00001-of-00001.gguf";
  if (path.size() < kEnd.size()) return std::nullopt;
  const std::string_view end = std::string_view(path).substr(path.size() - kEnd.size());
  if (end[0] != '-' || end.substr(6, 4) != "-of-" || end.substr(15) != ".gguf") {
    return std::nullopt;
  }
  const auto number = five_digits(end.substr(1, 5));
  const auto count = five_digits(end.substr(10, 5));
  if (!number || !count) return std::nullopt;
  return SplitName{path.substr(0, path.size() - kEnd.size()), *number, *count};
}

// The split.* keys of one part against its name.
Status check_split_keys(const Metadata& metadata, std::uint32_t part, std::uint32_t parts) {
  const auto expect = [&](std::string_view key, std::uint64_t wanted) -> Status {
    if (parts == 1 && !metadata.contains(key)) return {};
    STRATA_ASSIGN(const std::uint64_t held, metadata.uint(key));
    if (held != wanted) {
      return fail(ErrorCode::corrupt, "{} is {} where the file's name says {}", key, held, wanted);
    }
    return {};
  };
  STRATA_TRY(expect("split.count", parts));
  return expect("split.no", part);
}

// Later parts may repeat the identity of the first; they must not contradict it.
Status check_same_model(const Metadata& first, const Metadata& other) {
  for (const std::string_view key : {"general.architecture", "general.name"}) {
    if (!first.contains(key) || !other.contains(key)) continue;
    STRATA_ASSIGN(const std::string wanted, first.string(key));
    STRATA_ASSIGN(const std::string held, other.string(key));
    if (held != wanted) {
      return fail(ErrorCode::corrupt,
                  "{} is '{}' but the first part says '{}': parts of two models", key, held,
                  wanted);
    }
  }
  return {};
}

Status check_split_total(const Metadata& metadata, std::size_t tensors) {
  constexpr std::string_view kKey = "split.tensors.count";
  if (!metadata.contains(kKey)) return {};
  STRATA_ASSIGN(const std::uint64_t wanted, metadata.uint(kKey));
  if (wanted == tensors) return {};
  return fail(ErrorCode::corrupt, "{} is {} but the parts hold {} tensors", kKey, wanted, tensors);
}

Result<std::vector<std::string>> part_paths(FileSystem& files, const std::string& path) {
  const auto name = split_name(path);
  if (!name) return std::vector<std::string>{path};
  if (name->count < 1 || name->count > kMaxParts || name->number < 1 ||
      name->number > name->count) {
    return fail(ErrorCode::invalid_argument,
                "'{}' is named part {} of {}; parts count from 1 and there may be {}", path,
                name->number, name->count, kMaxParts);
  }
  std::vector<std::string> paths;
  for (std::uint32_t part = 1; part <= name->count; ++part) {
    paths.push_back(name->path(part));
    if (!files.exists(paths.back())) {
      return fail(ErrorCode::not_found, "part {} of {} is missing: there is no '{}'", part,
                  name->count, paths.back());
    }
  }
  return paths;
}

Result<Part> read_part(FileSystem& files, const std::string& path, GgufModel& model) {
  STRATA_ASSIGN(const std::unique_ptr<File> file, files.open(path));
  STRATA_ASSIGN(std::shared_ptr<const Mapping> mapping, file->map());
  auto part = PartReader(mapping->bytes()).read();
  model.owners.push_back(std::move(mapping));
  return part;
}

Status add_part(GgufModel& model, Part part, std::uint32_t number, std::uint32_t parts,
                bool named_as_part) {
  if (!named_as_part && part.metadata.contains("split.count")) {
    STRATA_ASSIGN(const std::uint64_t count, part.metadata.uint("split.count"));
    if (count > 1) {
      return fail(ErrorCode::corrupt,
                  "is one of {} parts, but its name does not end in -0000N-of-{:05}.gguf, so the "
                  "others cannot be found; give the parts their names back",
                  count, count);
    }
  }
  if (named_as_part) STRATA_TRY(check_split_keys(part.metadata, number, parts));
  if (number == 0) {
    model.version = part.version;
    model.metadata = std::move(part.metadata);
  } else {
    STRATA_TRY(check_same_model(model.metadata, part.metadata));
  }
  for (TensorView& tensor : part.tensors) {
    tensor.part = number;
    model.tensors.push_back(std::move(tensor));
  }
  return {};
}

}  // namespace

const TensorView* GgufModel::find(std::string_view name) const {
  if (index_.size() == tensors.size()) {
    const auto found = index_.find(std::string(name));
    return found == index_.end() ? nullptr : &tensors[found->second];
  }
  // A model that was put together by hand has no index.
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const TensorView& t) { return t.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

Result<GgufModel> open_gguf(FileSystem& files, const std::string& path) {
  GgufModel model;
  STRATA_ASSIGN(model.paths, part_paths(files, path));
  const bool named_as_part = split_name(path).has_value();
  const auto parts = static_cast<std::uint32_t>(model.paths.size());
  for (std::uint32_t number = 0; number < parts; ++number) {
    const std::string context = fmt::format("'{}'", model.paths[number]);
    auto part = read_part(files, model.paths[number], model);
    if (!part) return with_context(std::move(part).error(), context);
    const Status added = add_part(model, std::move(*part), number, parts, named_as_part);
    if (!added) return with_context(added.error(), context);
  }
  for (std::size_t i = 0; i < model.tensors.size(); ++i) {
    const TensorView& tensor = model.tensors[i];
    const auto [place, added] = model.index_.try_emplace(tensor.name, i);
    if (!added) {
      return fail(ErrorCode::corrupt, "'{}': tensor '{}' occurs twice (first in '{}')",
                  model.paths[tensor.part], tensor.name,
                  model.paths[model.tensors[place->second].part]);
    }
  }
  if (named_as_part) STRATA_TRY(check_split_total(model.metadata, model.tensors.size()));
  return model;
}

}  // namespace strata
