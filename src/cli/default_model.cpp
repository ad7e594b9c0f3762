#include "cli/default_model.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "cli/checks.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

// The first *.gguf of a folder, by name.
std::string model_in(const fs::path& folder) {
  std::error_code error;
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".gguf") found.push_back(entry.path().string());
  if (found.empty()) return "";
  return *std::min_element(found.begin(), found.end());
}

}  // namespace

Result<std::string> default_model_path() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  fs::path folder = program.parent_path();
  std::string found = model_in(folder / "../share/strata/models/demo");
  constexpr int levels = 4;  // build/release/strata lies two below models/
  for (int i = 0; i < levels && found.empty(); ++i) {
    found = model_in(folder / "models/demo");
    folder = folder.parent_path();
  }
  if (found.empty()) {
    return fail(ErrorCode::not_found,
                "the demo model is not installed beside {}; name a model with -m FILE.gguf",
                program.string());
  }
  return fs::path(found).lexically_normal().string();
}

CLI::Option* add_model_option(CLI::App& command, std::string& path) {
  return command.add_option("-m,--model", path, "GGUF file (default: the demo model)")
      ->type_name("FILE")
      ->check(CLI::Validator(not_empty("the model path"), ""));
}

Result<std::string> model_or_default(const std::string& given) {
  if (!given.empty()) return given;
  return default_model_path();
}

}  // namespace strata
