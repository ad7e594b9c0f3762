// Where a user's own data lies: a folder of this program below the one that the desktop's rules
// name (XDG_DATA_HOME), for its owner only.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"

namespace strata {

// "$XDG_DATA_HOME/strata/NAME", else "$HOME/.local/share/strata/NAME"; empty where neither is set
// to an absolute path.
std::string data_path(const std::function<const char*(const char*)>& environment,
                      const std::string& name);

// Makes the file's folder (0700) and the file itself (0600), where they are not there yet, so that
// whoever opens it by name later creates nothing that others could read.
Status make_private_file(const std::string& path);

}  // namespace strata
