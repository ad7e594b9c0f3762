// strata inspect: what a GGUF file holds.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "cli/command.h"
#include "cli/output_options.h"
#include "gguf/gguf.h"

namespace strata {
namespace {

struct InspectArguments {
  std::string path;
  bool json = false;
};

constexpr std::size_t shown_elements = 8;
constexpr std::size_t shown_characters = 120;

// Files come from anywhere: nothing of them may move the cursor or colour the terminal.
std::string printable(std::string_view text, std::size_t limit = shown_characters) {
  std::string out = "\"";
  for (const char c : text.substr(0, limit)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += fmt::format("\\{}", c);
    else if (c == '\n')
      out += "\\n";
    else if (byte < 0x20 || byte == 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  out += '"';
  if (text.size() > limit) out += fmt::format("... ({} bytes)", text.size());
  return out;
}

// Integers hold u64 by their bits.
std::string integer_text(std::int64_t value, MetaType type) {
  if (type == MetaType::boolean) return value != 0 ? "true" : "false";
  if (type == MetaType::u64) return fmt::format("{}", static_cast<std::uint64_t>(value));
  return fmt::format("{}", value);
}

template <class List, class Text>
std::string list_text(const List& list, Text text) {
  std::string out = "[";
  for (std::size_t i = 0; i < std::min(list.size(), shown_elements); ++i)
    out += (i == 0 ? "" : ", ") + text(list[i]);
  if (list.size() > shown_elements) out += fmt::format(", ... ({} in all)", list.size());
  return out + "]";
}

std::string value_text(const MetaValue& v) {
  if (const auto* i = std::get_if<std::int64_t>(&v.value)) return integer_text(*i, v.type);
  if (const auto* d = std::get_if<double>(&v.value)) return fmt::format("{:.9g}", *d);
  if (const auto* b = std::get_if<bool>(&v.value)) return *b ? "true" : "false";
  if (const auto* s = std::get_if<std::string>(&v.value)) return printable(*s);
  if (const auto* list = std::get_if<MetaValue::Integers>(&v.value))
    return list_text(*list, [&](std::int64_t i) { return integer_text(i, v.element); });
  if (const auto* list = std::get_if<MetaValue::Floats>(&v.value))
    return list_text(*list, [](double d) { return fmt::format("{:.9g}", d); });
  return list_text(std::get<MetaValue::Strings>(v.value),
                   [](const std::string& s) { return printable(s, 40); });
}

std::string type_text(const MetaValue& v) {
  if (v.type != MetaType::array) return std::string(to_string(v.type));
  return fmt::format("{}[]", to_string(v.element));
}

// JSON text is UTF-8; what a file calls a string may not be.
std::string valid_utf8(std::string_view text) {
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    const auto lead = static_cast<unsigned char>(text[at]);
    const std::size_t length = lead < 0x80                   ? 1
                               : lead >= 0xc2 && lead < 0xe0 ? 2
                               : lead >= 0xe0 && lead < 0xf0 ? 3
                               : lead >= 0xf0 && lead < 0xf5 ? 4
                                                             : 0;
    bool good = length > 0 && at + length <= text.size();
    for (std::size_t i = 1; good && i < length; ++i)
      good = (static_cast<unsigned char>(text[at + i]) & 0xc0) == 0x80;
    if (good && length > 2) {  // overlong forms, surrogates, beyond the last code point
      const auto second = static_cast<unsigned char>(text[at + 1]);
      good = !(lead == 0xe0 && second < 0xa0) && !(lead == 0xed && second >= 0xa0) &&
             !(lead == 0xf0 && second < 0x90) && !(lead == 0xf4 && second >= 0x90);
    }
    if (good) {
      out += text.substr(at, length);
      at += length;
    } else {
      out += "\xef\xbf\xbd";
      ++at;
    }
  }
  return out;
}

boost::json::value integer_json(std::int64_t value, MetaType type) {
  if (type == MetaType::boolean) return value != 0;
  if (type == MetaType::u64) return static_cast<std::uint64_t>(value);
  return value;
}

// Long lists are cut to their first elements, with their length beside them.
boost::json::object value_json(const MetaValue& v) {
  boost::json::object out;
  out["type"] = type_text(v);
  const auto put_list = [&](const auto& list, auto element) {
    boost::json::array shown;
    for (std::size_t i = 0; i < std::min(list.size(), shown_elements); ++i)
      shown.push_back(element(list[i]));
    out["length"] = list.size();
    out["value"] = std::move(shown);
  };
  if (const auto* whole = std::get_if<std::int64_t>(&v.value))
    out["value"] = integer_json(*whole, v.type);
  else if (const auto* number = std::get_if<double>(&v.value))
    out["value"] = *number;
  else if (const auto* b = std::get_if<bool>(&v.value))
    out["value"] = *b;
  else if (const auto* text = std::get_if<std::string>(&v.value))
    out["value"] = valid_utf8(*text);
  else if (const auto* list = std::get_if<MetaValue::Integers>(&v.value))
    put_list(*list, [&](std::int64_t i) { return integer_json(i, v.element); });
  else if (const auto* floats = std::get_if<MetaValue::Floats>(&v.value))
    put_list(*floats, [](double d) { return boost::json::value(d); });
  else
    put_list(std::get<MetaValue::Strings>(v.value),
             [](const std::string& s) { return boost::json::value(valid_utf8(s)); });
  return out;
}

struct Totals {
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;
  std::map<std::string, std::pair<std::size_t, std::uint64_t>> by_type;  // tensors, bytes
};

Totals totals_of(const GgufModel& model) {
  Totals totals;
  for (const TensorView& t : model.tensors) {
    totals.parameters += t.values();
    totals.bytes += t.data.size();
    auto& [count, bytes] = totals.by_type[std::string(to_string(t.type))];
    ++count;
    bytes += t.data.size();
  }
  return totals;
}

void print_json(const GgufModel& model) {
  const Totals totals = totals_of(model);
  boost::json::object out;
  boost::json::array parts;
  for (const std::string& path : model.paths) parts.push_back(boost::json::value(valid_utf8(path)));
  out["parts"] = std::move(parts);
  out["version"] = model.version;
  out["parameters"] = totals.parameters;
  out["tensor_bytes"] = totals.bytes;
  boost::json::object types;
  for (const auto& [name, sums] : totals.by_type)
    types[name] = {{"tensors", sums.first}, {"bytes", sums.second}};
  out["types"] = std::move(types);
  boost::json::object metadata;
  for (const auto& [key, value] : model.metadata.entries())
    metadata[valid_utf8(key)] = value_json(value);
  out["metadata"] = std::move(metadata);
  boost::json::array tensors;
  for (const TensorView& t : model.tensors) {
    boost::json::array shape;
    for (std::uint32_t d = 0; d < t.dims; ++d) shape.push_back(t.ne[d]);
    tensors.push_back({{"name", valid_utf8(t.name)},
                       {"type", to_string(t.type)},
                       {"shape", std::move(shape)},
                       {"bytes", t.data.size()},
                       {"part", t.part},
                       {"offset", t.file_offset}});
  }
  out["tensors"] = std::move(tensors);
  fmt::print("{}\n", boost::json::serialize(out));
}

void print_text(const GgufModel& model) {
  const Totals totals = totals_of(model);
  fmt::print("GGUF version {}, {} file{}\n", model.version, model.paths.size(),
             model.paths.size() == 1 ? "" : "s");
  for (std::size_t i = 0; i < model.paths.size(); ++i)
    fmt::print("  part {}: {}\n", i + 1, model.paths[i]);
  fmt::print("{} parameters in {} tensors, {} bytes\n", totals.parameters, model.tensors.size(),
             totals.bytes);
  for (const auto& [name, sums] : totals.by_type)
    fmt::print("  {:<8} {:>6} tensors {:>16} bytes\n", name, sums.first, sums.second);

  fmt::print("\n{} keys\n", model.metadata.entries().size());
  for (const auto& [key, value] : model.metadata.entries()) {
    const std::string name = printable(key);
    fmt::print("  {:<48} {:<9} {}\n", name.substr(1, name.size() - 2), type_text(value),
               value_text(value));
  }

  fmt::print("\n{} tensors\n", model.tensors.size());
  for (const TensorView& t : model.tensors) {
    const std::string name = printable(t.name);
    fmt::print("  {:<44} {:<8} {:<22} {:>14} bytes", name.substr(1, name.size() - 2),
               to_string(t.type), shape_text(t), t.data.size());
    if (model.paths.size() > 1) fmt::print("  part {}", t.part + 1);
    fmt::print("\n");
  }
}

Result<int> inspect(const InspectArguments& arguments) {
  STRATA_ASSIGN(const GgufModel model, open_gguf(real_files(), arguments.path));
  if (arguments.json)
    print_json(model);
  else
    print_text(model);
  return 0;
}

}  // namespace

void register_inspect(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* command =
      app.add_subcommand("inspect", "Show a GGUF file's metadata, tensors and parameter count");
  command->add_option("FILE", arguments->path, "The file, or the first part of a split one")
      ->type_name("")
      ->required();
  add_json_option(*command, arguments->json);
  command->callback(
      [arguments, &invocation] { invocation.run = [arguments] { return inspect(*arguments); }; });
}

}  // namespace strata
