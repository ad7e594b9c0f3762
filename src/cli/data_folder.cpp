#include "cli/data_folder.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "base/descriptor.h"

namespace strata {
namespace {

Status failed(const char* what, const std::string& path) {
  return fail(ErrorCode::io, "cannot {} '{}': {}", what, path,
              std::generic_category().message(errno));
}

// The folder and what is missing above it.
Status make_folders(const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string folder = path.substr(0, end);
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return failed("make", folder);
    if (end == path.npos) return {};
  }
}

}  // namespace

std::string data_path(const std::function<const char*(const char*)>& environment,
                      const std::string& name) {
  const auto folder = [&](const char* variable) -> std::string {
    const char* text = environment(variable);
    return text != nullptr && text[0] == '/' ? text : "";
  };
  std::string base = folder("XDG_DATA_HOME");
  if (base.empty()) {
    base = folder("HOME");
    if (base.empty()) return {};
    base += "/.local/share";
  }
  return base + "/strata/" + name;
}

Status make_private_file(const std::string& path) {
  STRATA_TRY(make_folders(path.substr(0, path.rfind('/'))));
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
  const Descriptor file(::open(path.c_str(), flags, 0600));
  if (file.get() < 0) return failed("open", path);
  return {};
}

}  // namespace strata
