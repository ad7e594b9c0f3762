#include "cli/output_options.h"

#include <CLI/CLI.hpp>

namespace strata {

CLI::Option* add_json_option(CLI::App& command, bool& json, const char* help) {
  return command.add_flag("--json", json, help);
}

CLI::Option* add_progress_option(CLI::App& command, bool& progress) {
  return command.add_flag_callback(
      "--no-progress", [&progress] { progress = false; },
      "Do not show how far a long job is (shown where standard error is a terminal)");
}

}  // namespace strata
