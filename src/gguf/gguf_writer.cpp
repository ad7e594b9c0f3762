// Writing GGUF v3. The header is written when the first data arrives, since the tensor table must
// be whole by then; offsets follow from the declared shapes.
#include <unordered_set>

#include "base/checked.h"
#include "gguf/gguf.h"
#include "gguf/gguf_format.h"

namespace strata {
namespace {

using namespace gguf_format;

// The header in memory.
class Encoder {
 public:
  template <class Number>
  void number(Number value) {
    raw(&value, sizeof(value));
  }
  void text(std::string_view text) {
    number(std::uint64_t{text.size()});
    bytes_ += text;
  }
  // The low bytes of a two's complement number are the same for every width.
  void integer(MetaType type, std::int64_t value) {
    raw(&value, static_cast<std::size_t>(gguf_format::size_of(type)));
  }
  void real(MetaType type, double value) {
    if (type == MetaType::f64) {
      number(value);
    } else {
      number(static_cast<float>(value));
    }
  }
  void magic() { bytes_ += kMagic; }
  void pad(std::uint64_t alignment) {
    while (bytes_.size() % alignment != 0) bytes_.push_back('\0');
  }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(bytes_)); }

 private:
  void raw(const void* start, std::size_t size) {
    bytes_.append(static_cast<const char*>(start), size);
  }
  std::string bytes_;
};

tl::unexpected<Error> unfit(std::string_view key, MetaType type) {
  return fail(ErrorCode::invalid_argument, "the value of key '{}' does not fit its type {}", key,
              to_string(type));
}

bool in_range(MetaType type, std::int64_t value) {
  return value >= min_of(type) && value <= max_of(type);
}

Status encode_array(Encoder& out, std::string_view key, const MetaValue& value) {
  const MetaType type = value.element;
  out.number(static_cast<std::uint32_t>(type));
  if (const auto* integers = std::get_if<MetaValue::Integers>(&value.value)) {
    if (!is_integer(type) && type != MetaType::boolean) return unfit(key, type);
    out.number(std::uint64_t{integers->size()});
    for (const std::int64_t element : *integers) {
      if (!in_range(type, element)) return unfit(key, type);
      out.integer(type, element);
    }
  } else if (const auto* floats = std::get_if<MetaValue::Floats>(&value.value)) {
    if (type != MetaType::f32 && type != MetaType::f64) return unfit(key, type);
    out.number(std::uint64_t{floats->size()});
    for (const double element : *floats) out.real(type, element);
  } else if (const auto* strings = std::get_if<MetaValue::Strings>(&value.value)) {
    if (type != MetaType::string) return unfit(key, type);
    out.number(std::uint64_t{strings->size()});
    for (const std::string& element : *strings) out.text(element);
  } else {
    return unfit(key, MetaType::array);
  }
  return {};
}

Status encode_value(Encoder& out, std::string_view key, const MetaValue& value) {
  const MetaType type = value.type;
  out.number(static_cast<std::uint32_t>(type));
  if (type == MetaType::array) return encode_array(out, key, value);
  if (const auto* integer = std::get_if<std::int64_t>(&value.value)) {
    if (!is_integer(type) || !in_range(type, *integer)) return unfit(key, type);
    out.integer(type, *integer);
  } else if (const auto* real = std::get_if<double>(&value.value)) {
    if (type != MetaType::f32 && type != MetaType::f64) return unfit(key, type);
    out.real(type, *real);
  } else if (const auto* flag = std::get_if<bool>(&value.value)) {
    if (type != MetaType::boolean) return unfit(key, type);
    out.number(std::uint8_t{*flag});
  } else if (const auto* text = std::get_if<std::string>(&value.value)) {
    if (type != MetaType::string) return unfit(key, type);
    out.text(*text);
  } else {
    return unfit(key, type);
  }
  return {};
}

}  // namespace

struct GgufWriter::State {
  struct Tensor {
    std::string name;
    TensorType type;
    std::vector<std::uint64_t> ne;
    std::uint64_t bytes;
  };

  FileSystem& files;
  std::string path;
  std::string partial;
  std::unique_ptr<OutputFile> out;
  Metadata metadata;
  std::vector<Tensor> tensors;
  std::unordered_set<std::string> names;
  std::uint64_t alignment = kDefaultAlignment;
  bool header_written = false;
  bool finished = false;
  std::size_t current = 0;    // the tensor whose data comes next
  std::uint64_t written = 0;  // bytes of it

  State(FileSystem& f, std::string p) : files(f), path(std::move(p)), partial(path + ".partial") {}
  ~State() {
    if (finished) return;
    out.reset();
    // Nobody is left to hear of a failure; a stale partial file is overwritten by the next writer.
    (void)files.remove(partial);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Status write_header();
  Status pad_data();
};

Status GgufWriter::State::write_header() {
  STRATA_ASSIGN(alignment, alignment_of(metadata));
  Encoder header;
  header.magic();
  header.number(kVersion);
  header.number(std::uint64_t{tensors.size()});
  header.number(std::uint64_t{metadata.entries().size()});
  for (const auto& [key, value] : metadata.entries()) {
    STRATA_TRY(check_name(key, kMaxKeyBytes, "a key"));
    header.text(key);
    STRATA_TRY(encode_value(header, key, value));
  }
  std::uint64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    header.text(tensor.name);
    header.number(static_cast<std::uint32_t>(tensor.ne.size()));
    for (const std::uint64_t width : tensor.ne) header.number(width);
    header.number(static_cast<std::uint32_t>(tensor.type));
    header.number(offset);
    const auto end = checked_add(offset, tensor.bytes);
    const auto next = end ? checked_round_up(*end, alignment) : std::nullopt;
    if (!next) {
      return fail(ErrorCode::invalid_argument, "the tensors up to '{}' exceed 2^64 bytes",
                  tensor.name);
    }
    offset = *next;
  }
  header.pad(alignment);
  if (header.bytes().size() > kMaxHeaderBytes) {
    return fail(ErrorCode::invalid_argument, "metadata and tensor table take {} of {} bytes",
                header.bytes().size(), kMaxHeaderBytes);
  }
  STRATA_TRY(out->write(header.bytes()));
  header_written = true;
  return {};
}

// Fills up to the alignment after a whole tensor.
Status GgufWriter::State::pad_data() {
  const std::uint64_t rest = written % alignment;
  if (rest == 0) return {};
  return out->write(Bytes(static_cast<std::size_t>(alignment - rest)));
}

GgufWriter::GgufWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
GgufWriter::GgufWriter(GgufWriter&&) noexcept = default;
GgufWriter& GgufWriter::operator=(GgufWriter&&) noexcept = default;
GgufWriter::~GgufWriter() = default;

Result<GgufWriter> GgufWriter::create(FileSystem& files, std::string path) {
  auto state = std::make_unique<State>(files, std::move(path));
  STRATA_ASSIGN(state->out, files.create(state->partial));
  return GgufWriter(std::move(state));
}

Metadata& GgufWriter::metadata() {
  return state_->metadata;
}

Status GgufWriter::declare(std::string name, TensorType type, std::vector<std::uint64_t> ne) {
  if (state_->header_written) {
    return fail(ErrorCode::invalid_argument, "tensor '{}' is declared after data was written",
                name);
  }
  STRATA_TRY(check_name(name, kMaxTensorNameBytes, "a tensor"));
  STRATA_ASSIGN(const std::uint64_t bytes, tensor_bytes(name, type, ne));
  if (!state_->names.insert(name).second) {
    return fail(ErrorCode::invalid_argument, "tensor '{}' is declared twice", name);
  }
  state_->tensors.push_back({std::move(name), type, std::move(ne), bytes});
  return {};
}

Status GgufWriter::write_data(std::span<const std::byte> bytes) {
  State& s = *state_;
  if (!s.header_written) STRATA_TRY(s.write_header());
  if (bytes.empty()) return {};
  if (s.current == s.tensors.size()) {
    return fail(ErrorCode::invalid_argument, "{} bytes of data follow the last of {} tensors",
                bytes.size(), s.tensors.size());
  }
  const State::Tensor& tensor = s.tensors[s.current];
  if (bytes.size() > tensor.bytes - s.written) {
    return fail(ErrorCode::invalid_argument, "tensor '{}' has {} bytes but {} were given",
                tensor.name, tensor.bytes, s.written + bytes.size());
  }
  STRATA_TRY(s.out->write(bytes));
  s.written += bytes.size();
  if (s.written == tensor.bytes) {
    STRATA_TRY(s.pad_data());
    s.written = 0;
    ++s.current;
  }
  return {};
}

Status GgufWriter::finish() {
  State& s = *state_;
  if (s.finished) return fail(ErrorCode::invalid_argument, "'{}' is finished already", s.path);
  if (s.current < s.tensors.size()) {
    return fail(ErrorCode::invalid_argument, "tensor '{}' has {} bytes but only {} were given",
                s.tensors[s.current].name, s.tensors[s.current].bytes, s.written);
  }
  if (!s.header_written) STRATA_TRY(s.write_header());
  STRATA_TRY(s.out->finish());
  s.out.reset();
  STRATA_TRY(s.files.rename(s.partial, s.path));
  s.finished = true;
  return {};
}

}  // namespace strata
