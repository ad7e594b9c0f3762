// Options that say how a subcommand reports, the same words everywhere.
#pragma once

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace strata {

// --json
CLI::Option* add_json_option(CLI::App& command, bool& json,
                             const char* help = "One JSON object instead of text");
// --no-progress
CLI::Option* add_progress_option(CLI::App& command, bool& progress);

}  // namespace strata
