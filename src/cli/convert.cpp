// strata convert: a Hugging Face checkpoint to one GGUF file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/output_options.h"
#include "model/convert.h"
#include "terminal/progress.h"

namespace strata {
namespace {

struct ConvertArguments {
  std::string folder, output;
  std::string type, residual;
  std::vector<std::string> tensor_types;
  bool json = false, progress = true;
};

std::string known_types() {
  std::vector<std::string_view> names;
  for (const TypeTraits& t : all_types()) names.push_back(t.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// For the parser: an empty text accepts the value.
std::string check_type(const std::string& name) {
  if (type_from_name(name)) return "";
  return fmt::format("'{}' is no tensor type; known are {}", name, known_types());
}

// The last '=' splits: an expression may hold one.
std::string check_tensor_type(const std::string& text) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0)
    return fmt::format("'{}' is not of the form REGEX=TYPE", text);
  return check_type(text.substr(equals + 1));
}

ConvertOptions options_of(const ConvertArguments& arguments) {
  ConvertOptions options;
  if (!arguments.type.empty()) options.type = type_from_name(arguments.type);
  if (!arguments.residual.empty()) options.residual = type_from_name(arguments.residual);
  for (const std::string& text : arguments.tensor_types) {
    const std::size_t equals = text.rfind('=');
    if (const auto type = type_from_name(text.substr(equals + 1)))
      options.tensor_types.emplace_back(text.substr(0, equals), *type);
  }
  return options;
}

// The output may replace no file of the checkpoint, whether this program reads it or not.
Status check_output(const ConvertArguments& arguments) {
  const std::string folder = arguments.folder.empty() ? "." : arguments.folder;
  STRATA_ASSIGN(const std::vector<std::string> names, real_files().list(folder));
  std::vector<std::string> inputs;
  for (const std::string& name : names) {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    if (path.extension() == ".json" || path.extension() == ".safetensors" ||
        path.extension() == ".jinja" || path.extension() == ".txt")
      inputs.push_back(path.string());
  }
  return check_not_an_input(arguments.output, inputs);
}

Result<int> convert(const ConvertArguments& arguments) {
  STRATA_TRY(check_output(arguments));
  terminal::Progress progress(arguments.progress && !arguments.json, "converting");
  ConvertOptions options = options_of(arguments);
  options.progress = [&](const std::string& name, std::size_t done, std::size_t all) {
    progress.update(done, all, name);
  };
  STRATA_ASSIGN(const ConvertReport report,
                convert_hf(real_files(), arguments.folder, arguments.output, options));
  progress.clear();
  if (arguments.json) {
    const boost::json::object out = {
        {"file", arguments.output},
        {"tensors", report.tensors},
        {"bytes", report.bytes},
        {"notes", boost::json::array(report.notes.begin(), report.notes.end())}};
    fmt::print("{}\n", boost::json::serialize(out));
    return 0;
  }
  for (const std::string& note : report.notes) fmt::print(stderr, "note: {}\n", note);
  fmt::print("{}: {} tensors, {} bytes\n", arguments.output, report.tensors, report.bytes);
  return 0;
}

}  // namespace

void register_convert(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<ConvertArguments>();
  CLI::App* command =
      app.add_subcommand("convert", "Convert a Hugging Face checkpoint to one GGUF file");
  command->add_option("HF_DIR", arguments->folder, "Folder with config.json and *.safetensors")
      ->type_name("")
      ->required();
  command->add_option("OUT.gguf", arguments->output, "The file to write")
      ->type_name("")
      ->required();
  command
      ->add_option("--type", arguments->type,
                   "Type of the matrices (absent: the checkpoint's own); with a block type the "
                   "router, the gates and the indexer keep their own")
      ->type_name("TYPE")
      ->check(CLI::Validator(check_type, ""));
  command
      ->add_option("--residual", arguments->residual,
                   "Type of the gated residual's large matrices (hc_*_down, hc_*_up); absent: as "
                   "--type says")
      ->type_name("TYPE")
      ->check(CLI::Validator(check_type, ""));
  command
      ->add_option("--tensor-type", arguments->tensor_types,
                   "REGEX=TYPE: type of the tensors whose name the expression finds; the first "
                   "that matches counts; may be given several times")
      ->allow_extra_args(false)
      ->type_name("REGEX=TYPE")
      ->check(CLI::Validator(check_tensor_type, ""));
  add_json_option(*command, arguments->json);
  add_progress_option(*command, arguments->progress);
  command->callback(
      [arguments, &invocation] { invocation.run = [arguments] { return convert(*arguments); }; });
}

}  // namespace strata
