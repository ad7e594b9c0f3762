// The model that is used when none is named.
#pragma once

#include <string>

#include "base/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace strata {

// The demo model installed beside the program (../share/strata/models/demo), or in models/demo of
// a folder above it (a build tree).
Result<std::string> default_model_path();

// Adds -m, --model. An empty path is refused, as it is mostly an unset variable of a script.
CLI::Option* add_model_option(CLI::App& command, std::string& path);

// `given` if not empty, else the default.
Result<std::string> model_or_default(const std::string& given);

}  // namespace strata
