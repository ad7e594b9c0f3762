#include "terminal/line_history.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/descriptor.h"
#include "base/file.h"

namespace strata::terminal {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\\') {
      out += "\\\\";
    } else {
      out += c;
    }
  }
  return out;
}

std::string unescaped(std::string_view line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool pair = line[i] == '\\' && i + 1 < line.size();
    if (!pair) {
      out += line[i];
    } else {
      out += line[++i] == 'n' ? '\n' : line[i];
    }
  }
  return out;
}

tl::unexpected<Error> trouble(const std::string& path) {
  return fail(ErrorCode::io, "the history '{}': {}", path, std::generic_category().message(errno));
}

// A regular file of this user, for nobody else's eyes.
Result<Descriptor> open_file(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.get() < 0) return trouble(path);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return trouble(path);
  if (!S_ISREG(status.st_mode)) return fail(ErrorCode::io, "the history '{}' is no file", path);
  if ((status.st_mode & 077) != 0 && ::fchmod(file.get(), 0600) != 0) return trouble(path);
  return file;
}

Status write_all(int file, const std::string& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return trouble(path);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

}  // namespace

std::string LineHistory::usual_path(const std::function<const char*(const char*)>& environment) {
  // The specification: a path that is not absolute counts as none.
  if (const char* state = environment("XDG_STATE_HOME"); state != nullptr && *state == '/')
    return (std::filesystem::path(state) / "strata/history").string();
  if (const char* home = environment("HOME"); home != nullptr && *home == '/')
    return (std::filesystem::path(home) / ".local/state/strata/history").string();
  return {};
}

Result<LineHistory> LineHistory::open(std::string path) {
  LineHistory history;
  if (path.empty()) return history;
  const std::string folder = std::filesystem::path(path).parent_path().string();
  STRATA_TRY(real_files().make_private_folder(folder));
  STRATA_ASSIGN(const Descriptor file, open_file(path));
  if (::flock(file.get(), LOCK_EX) != 0) return trouble(path);
  const off_t size = ::lseek(file.get(), 0, SEEK_END);
  if (size < 0) return trouble(path);
  const auto start = std::max<off_t>(0, size - static_cast<off_t>(kMostBytes));
  std::string text(static_cast<std::size_t>(size - start), '\0');
  const ssize_t got = ::pread(file.get(), text.data(), text.size(), start);
  if (got < 0) return trouble(path);
  text.resize(static_cast<std::size_t>(got));
  std::string_view rest = text;
  if (start > 0) rest.remove_prefix(std::min(rest.find('\n'), rest.size() - 1) + 1);
  std::size_t lines = 0;
  for (; !rest.empty(); ++lines) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    if (end > 0) history.entries_.push_back(unescaped(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  std::vector<std::string>& entries = history.entries_;
  const bool much = entries.size() > 2 * kMostEntries || start > 0;
  if (entries.size() > kMostEntries)
    entries.erase(entries.begin(), entries.end() - static_cast<std::ptrdiff_t>(kMostEntries));
  if (much) {  // written anew, in place, so that others' appends go on
    std::string kept;
    for (const std::string& entry : entries) kept += escaped(entry) + "\n";
    if (::ftruncate(file.get(), 0) != 0) return trouble(path);
    STRATA_TRY(write_all(file.get(), path, kept));
  }
  history.path_ = std::move(path);
  return history;
}

Status LineHistory::add(const std::string& text) {
  if (text.empty() || text.front() == ' ' || text.size() > kMostEntryBytes) return {};
  if (!entries_.empty() && entries_.back() == text) return {};
  entries_.push_back(text);
  if (entries_.size() > kMostEntries) entries_.erase(entries_.begin());
  if (path_.empty()) return {};
  STRATA_ASSIGN(const Descriptor file, open_file(path_));
  if (::flock(file.get(), LOCK_EX) != 0) return trouble(path_);
  return write_all(file.get(), path_, escaped(text) + "\n");
}

}  // namespace strata::terminal
