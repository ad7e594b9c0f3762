// Reading safetensors: u64 length of a JSON header, the header, then the data. The header maps each
// tensor's name to its type, shape and byte range of the data.
#include "gguf/safetensors.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "base/checked.h"
#include "base/json.h"

namespace strata {
namespace {

namespace json = boost::json;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::uint64_t kMaxIndexBytes = 100'000'000;
constexpr std::size_t kHeaderDepth = 8;
constexpr std::size_t kMaxDims = 16;
constexpr std::string_view kExtension = ".safetensors";
constexpr std::string_view kIndexName = "model.safetensors.index.json";

struct TypeEntry {
  SafetensorType type;
  std::string_view name;
  std::size_t bytes;
};
constexpr TypeEntry kTypes[] = {
    {SafetensorType::F64, "F64", 8},   {SafetensorType::F32, "F32", 4},
    {SafetensorType::F16, "F16", 2},   {SafetensorType::BF16, "BF16", 2},
    {SafetensorType::I64, "I64", 8},   {SafetensorType::I32, "I32", 4},
    {SafetensorType::I16, "I16", 2},   {SafetensorType::I8, "I8", 1},
    {SafetensorType::U8, "U8", 1},     {SafetensorType::F8_E4M3, "F8_E4M3", 1},
    {SafetensorType::BOOL, "BOOL", 1},
};

const TypeEntry* entry_of(SafetensorType type) {
  for (const TypeEntry& entry : kTypes) {
    if (entry.type == type) return &entry;
  }
  return nullptr;
}

struct Record {
  SafetensorView view;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

Result<SafetensorType> read_type(const json::object& entry, JsonSource source) {
  STRATA_ASSIGN(const std::string name,
                required(find_string(entry, "dtype", source), "dtype", source));
  for (const TypeEntry& known : kTypes) {
    if (known.name == name) return known.type;
  }
  return fail(ErrorCode::unsupported, "{} has the dtype '{}', which this program cannot read",
              source.name, name);
}

// Product of the shape and the size of an element.
Result<std::uint64_t> read_shape(const json::object& entry, SafetensorView& view,
                                 JsonSource source) {
  STRATA_ASSIGN(const json::array* shape,
                required(find_array(entry, "shape", source), "shape", source));
  if (shape->size() > kMaxDims) {
    return fail(ErrorCode::corrupt, "{} has {} dimensions, more than the {} allowed", source.name,
                shape->size(), kMaxDims);
  }
  std::uint64_t bytes = size_of(view.type);
  for (const json::value& dim : *shape) {
    STRATA_ASSIGN(const std::uint64_t width, json_uint(dim, "shape", source));
    view.shape.push_back(width);
  }
  for (const std::uint64_t width : view.shape) {
    const auto product = checked_mul(bytes, width);
    if (!product) {
      return fail(ErrorCode::corrupt, "{} has the shape [{}], more than 2^64 bytes", source.name,
                  fmt::join(view.shape, ", "));
    }
    bytes = *product;
  }
  return bytes;
}

Result<Record> read_record(std::string_view name, const json::value& value,
                           std::uint64_t data_bytes) {
  const std::string place = fmt::format("tensor '{}'", name);
  const JsonSource source(place, ErrorCode::corrupt);
  STRATA_ASSIGN(const json::object* entry, json_object(value, source));
  Record record;
  record.view.name = std::string(name);
  STRATA_ASSIGN(record.view.type, read_type(*entry, source));
  STRATA_ASSIGN(const std::uint64_t bytes, read_shape(*entry, record.view, source));
  STRATA_ASSIGN(const json::array* range,
                required(find_array(*entry, "data_offsets", source), "data_offsets", source));
  if (range->size() != 2) {
    return fail(ErrorCode::corrupt, "{} has {} data_offsets where 2 are needed", place,
                range->size());
  }
  STRATA_ASSIGN(record.begin, json_uint((*range)[0], "data_offsets", source));
  STRATA_ASSIGN(record.end, json_uint((*range)[1], "data_offsets", source));
  if (record.begin > record.end || record.end > data_bytes) {
    return fail(ErrorCode::corrupt,
                "{} has the byte range [{}, {}), but the file has {} bytes of data; it was cut "
                "short or damaged",
                place, record.begin, record.end, data_bytes);
  }
  if (record.end - record.begin != bytes) {
    return fail(ErrorCode::corrupt, "{} of type {} and shape [{}] needs {} bytes but has {}", place,
                to_string(record.view.type), fmt::join(record.view.shape, ", "), bytes,
                record.end - record.begin);
  }
  return record;
}

// The format promises data without holes. A hole or a shared byte means that header and data do
// not belong together (or that a name occurred twice, of which a JSON object keeps the last).
Status check_coverage(const std::vector<Record>& records, std::uint64_t data_bytes) {
  std::uint64_t covered = 0;
  for (const Record& record : records) {
    if (record.begin < covered) {
      return fail(ErrorCode::corrupt, "tensor '{}' shares bytes from {} on with another tensor",
                  record.view.name, record.begin);
    }
    if (record.begin > covered) {
      return fail(ErrorCode::corrupt, "no tensor claims the {} bytes of data before tensor '{}'",
                  record.begin - covered, record.view.name);
    }
    covered = record.end;
  }
  if (covered != data_bytes) {
    return fail(ErrorCode::corrupt, "no tensor claims the last {} bytes of data",
                data_bytes - covered);
  }
  return {};
}

// The tensors of one file, sorted by their place in it.
Result<std::vector<SafetensorView>> parse(std::span<const std::byte> bytes,
                                          const std::string& file_name) {
  std::uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) {
    return fail(ErrorCode::corrupt, "has only {} bytes, too few for a safetensors file",
                bytes.size());
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const std::span<const std::byte> rest = bytes.subspan(sizeof(header_bytes));
  if (header_bytes > kMaxHeaderBytes || header_bytes > rest.size()) {
    return fail(ErrorCode::corrupt,
                "claims a header of {} bytes; the file has {} after the length, and {} are allowed",
                header_bytes, rest.size(), kMaxHeaderBytes);
  }
  const auto header = rest.first(static_cast<std::size_t>(header_bytes));
  const auto data = rest.subspan(header.size());
  const JsonSource source("its header", ErrorCode::corrupt);
  STRATA_ASSIGN(const json::value tree,
                parse_json({reinterpret_cast<const char*>(header.data()), header.size()}, source,
                           kHeaderDepth));
  STRATA_ASSIGN(const json::object* object, json_object(tree, source));

  std::vector<Record> records;
  for (const auto& member : *object) {
    const std::string_view name(member.key().data(), member.key().size());
    if (name == "__metadata__") continue;
    STRATA_ASSIGN(Record record, read_record(name, member.value(), data.size()));
    records.push_back(std::move(record));
  }
  std::sort(records.begin(), records.end(), [](const Record& a, const Record& b) {
    return std::tie(a.begin, a.end, a.view.name) < std::tie(b.begin, b.end, b.view.name);
  });
  STRATA_TRY(check_coverage(records, data.size()));
  std::vector<SafetensorView> views;
  for (Record& record : records) {
    record.view.data = data.subspan(static_cast<std::size_t>(record.begin),
                                    static_cast<std::size_t>(record.end - record.begin));
    record.view.file = file_name;
    views.push_back(std::move(record.view));
  }
  return views;
}

Status add_file(FileSystem& files, const std::string& path, const std::string& name,
                SafetensorCheckpoint& checkpoint) {
  STRATA_ASSIGN(const std::unique_ptr<File> file, files.open(path));
  STRATA_ASSIGN(std::shared_ptr<const Mapping> mapping, file->map());
  auto views = parse(mapping->bytes(), name);
  if (!views) return with_context(std::move(views).error(), fmt::format("'{}'", path));
  std::move(views->begin(), views->end(), std::back_inserter(checkpoint.tensors));
  checkpoint.owners.push_back(std::move(mapping));
  return {};
}

Result<std::unordered_map<std::string, std::size_t>> make_index(
    const std::vector<SafetensorView>& tensors) {
  std::unordered_map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto [place, added] = index.try_emplace(tensors[i].name, i);
    if (!added) {
      return fail(ErrorCode::corrupt, "tensor '{}' occurs twice, in '{}' and in '{}'",
                  tensors[i].name, tensors[place->second].file, tensors[i].file);
    }
  }
  return index;
}

std::string join(const std::string& folder, std::string_view name) {
  if (folder.empty() || folder.back() == '/') return fmt::format("{}{}", folder, name);
  return fmt::format("{}/{}", folder, name);
}

// A name of the index may point at nothing but a file of the same folder.
bool is_plain_name(std::string_view name) {
  if (!name.ends_with(kExtension) || name.size() == kExtension.size() || name.front() == '.') {
    return false;
  }
  return std::none_of(name.begin(), name.end(), [](char c) {
    return c == '/' || c == '\\' || c == ':' || static_cast<unsigned char>(c) < 0x20;
  });
}

// Tensor name -> file name, as model.safetensors.index.json says.
using WeightMap = std::map<std::string, std::string>;

Result<WeightMap> read_index(FileSystem& files, const std::string& path) {
  const std::string place = fmt::format("'{}'", path);
  const JsonSource source(place, ErrorCode::corrupt);
  STRATA_ASSIGN(const std::string text, files.read_text(path, kMaxIndexBytes));
  STRATA_ASSIGN(const json::value tree, parse_json(text, source, kHeaderDepth));
  STRATA_ASSIGN(const json::object* top, json_object(tree, source));
  STRATA_ASSIGN(const json::object* weights,
                required(find_object(*top, "weight_map", source), "weight_map", source));
  WeightMap map;
  for (const auto& member : *weights) {
    const std::string tensor(member.key().data(), member.key().size());
    const auto* file = member.value().if_string();
    const std::string_view name =
        file == nullptr ? std::string_view() : std::string_view(file->data(), file->size());
    if (!is_plain_name(name)) {
      return fail(ErrorCode::corrupt,
                  "{} places tensor '{}' in '{}', which is no plain name of a .safetensors file",
                  place, tensor, name);
    }
    map.emplace(tensor, name);
  }
  return map;
}

// "model-00002-of-00006.safetensors": all six must be there when no index says so.
Status check_shards(const std::set<std::string>& names) {
  for (const std::string& name : names) {
    constexpr std::string_view kEnd = "-00001-of-00001.safetensors";
    if (name.size() <= kEnd.size()) continue;
    const std::string prefix = name.substr(0, name.size() - kEnd.size());
    const std::string_view end = std::string_view(name).substr(prefix.size());
    const std::string_view count = end.substr(10, 5);
    const bool numbered =
        end[0] == '-' && end.substr(6, 4) == "-of-" && end[15] == '.' &&
        std::all_of(count.begin(), count.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!numbered) continue;
    const unsigned long shards = std::stoul(std::string(count));
    for (unsigned long shard = 1; shard <= shards; ++shard) {
      const std::string wanted =
          fmt::format("{}-{:05}-of-{:05}{}", prefix, shard, shards, kExtension);
      if (!names.contains(wanted)) {
        return fail(ErrorCode::not_found, "shard {} of {} is missing: there is no '{}'", shard,
                    shards, wanted);
      }
    }
  }
  return {};
}

Status check_weight_map(const SafetensorCheckpoint& checkpoint, const WeightMap& map) {
  for (const auto& [tensor, file] : map) {
    const SafetensorView* view = checkpoint.find(tensor);
    if (view == nullptr || view->file != file) {
      return fail(ErrorCode::corrupt, "{} places tensor '{}' in '{}', but it is not there",
                  kIndexName, tensor, file);
    }
  }
  return {};
}

}  // namespace

std::string_view to_string(SafetensorType type) {
  const TypeEntry* entry = entry_of(type);
  return entry == nullptr ? "unknown" : entry->name;
}

std::size_t size_of(SafetensorType type) {
  const TypeEntry* entry = entry_of(type);
  return entry == nullptr ? 0 : entry->bytes;
}

const SafetensorView* SafetensorCheckpoint::find(std::string_view name) const {
  if (index_.size() == tensors.size()) {
    const auto found = index_.find(std::string(name));
    return found == index_.end() ? nullptr : &tensors[found->second];
  }
  // A checkpoint that was put together by hand has no index.
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const SafetensorView& t) { return t.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

Result<SafetensorCheckpoint> open_safetensors(FileSystem& files, const std::string& folder) {
  STRATA_ASSIGN(const std::vector<std::string> names, files.list(folder));
  const bool indexed = std::find(names.begin(), names.end(), kIndexName) != names.end();
  WeightMap map;
  std::set<std::string> wanted;
  if (indexed) {
    STRATA_ASSIGN(map, read_index(files, join(folder, kIndexName)));
    for (const auto& [tensor, file] : map) wanted.insert(file);
  }
  SafetensorCheckpoint checkpoint;
  for (const std::string& name : names) {
    if (!name.ends_with(kExtension)) continue;
    if (name.starts_with("mtp") || (!indexed && name.starts_with("model"))) {
      wanted.insert(name);
    } else if (!wanted.contains(name)) {
      checkpoint.skipped_files.push_back(name);
    }
  }
  if (wanted.empty()) {
    return fail(ErrorCode::not_found,
                "'{}' holds no checkpoint: neither {} nor a file model*.safetensors", folder,
                kIndexName);
  }
  if (!indexed) STRATA_TRY(check_shards(wanted));
  for (const std::string& name : wanted) {
    STRATA_TRY(add_file(files, join(folder, name), name, checkpoint));
  }
  STRATA_ASSIGN(checkpoint.index_, make_index(checkpoint.tensors));
  STRATA_TRY(check_weight_map(checkpoint, map));
  return checkpoint;
}

Result<SafetensorCheckpoint> open_safetensors_file(FileSystem& files, const std::string& path) {
  SafetensorCheckpoint checkpoint;
  const std::size_t slash = path.rfind('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  STRATA_TRY(add_file(files, path, name, checkpoint));
  STRATA_ASSIGN(checkpoint.index_, make_index(checkpoint.tensors));
  return checkpoint;
}

}  // namespace strata
