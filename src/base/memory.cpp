#include "base/memory.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

namespace strata {
namespace {

constexpr std::uint64_t kMostText = 1 << 16;
// Version 1 writes its "no limit" as the largest number of whole pages.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62;

std::string text_of(FileSystem& files, const std::string& path) {
  auto text = files.read_text(path, kMostText);
  return text ? std::move(*text) : std::string();
}

// The number at the start of a text; none where there is none ("max").
std::optional<std::uint64_t> number_in(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

// The number behind a word at the start of a line.
std::optional<std::uint64_t> field(std::string_view text, std::string_view word) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.starts_with(word) && line.size() > word.size() &&
        (line[word.size()] == ' ' || line[word.size()] == '\t'))
      return number_in(line.substr(word.size()));
  }
  return std::nullopt;
}

struct GroupFiles {
  std::string_view mount, limit, used;
};
constexpr GroupFiles kVersion1 = {"/sys/fs/cgroup/memory", "/memory.limit_in_bytes",
                                  "/memory.usage_in_bytes"};
constexpr GroupFiles kVersion2 = {"/sys/fs/cgroup", "/memory.max", "/memory.current"};

// Takes over the limit of the group at `path`, and of those above it, where one leaves less. A
// container may not see its own path; its root is then the group itself.
void look_at_groups(FileSystem& files, const GroupFiles& names, std::string path,
                    MachineMemory& memory) {
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    const std::string folder = std::string(names.mount) + path;
    const auto limit = number_in(text_of(files, folder + std::string(names.limit)));
    if (limit && *limit < kNoLimit) {
      std::uint64_t used = number_in(text_of(files, folder + std::string(names.used))).value_or(0);
      // Files that can be read again do not count as used.
      const std::string statistics = text_of(files, folder + "/memory.stat");
      for (const char* word : {"inactive_file", "active_file"})
        used -= std::min(used, field(statistics, word).value_or(0));
      const std::uint64_t left = *limit - std::min(*limit, used);
      if (!memory.group_limit || left < memory.group_left) {
        memory.group_limit = limit;
        memory.group_left = left;
      }
    }
    if (path.empty()) return;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

}  // namespace

MachineMemory read_machine_memory(FileSystem& files) {
  constexpr std::uint64_t kKiB = 1024;
  MachineMemory memory;
  const std::string info = text_of(files, "/proc/meminfo");
  memory.total = field(info, "MemTotal:").value_or(0) * kKiB;
  // Kernels before 3.14 do not say what is available.
  memory.available =
      field(info, "MemAvailable:")
          .value_or(field(info, "MemFree:").value_or(0) + field(info, "Cached:").value_or(0)) *
      kKiB;
  std::string groups = text_of(files, "/proc/self/cgroup");
  for (std::string_view rest = groups; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::size_t last = line.rfind(':');
    if (last == line.npos) continue;
    const bool unified = line.starts_with("0::");
    if (!unified && line.find(":memory:") == line.npos && line.find(",memory:") == line.npos &&
        line.find(":memory,") == line.npos)
      continue;
    look_at_groups(files, unified ? kVersion2 : kVersion1, std::string(line.substr(last + 1)),
                   memory);
  }
  return memory;
}

std::uint64_t available_memory() {
  return read_machine_memory(real_files()).left();
}

std::uint64_t occupied_memory() {
  // size resident shared ..., in pages; shared ones are of files
  const std::string text = text_of(real_files(), "/proc/self/statm");
  const std::string_view all = text;
  const std::size_t first = all.find(' ');
  if (first == all.npos) return 0;
  const std::size_t second = all.find(' ', first + 1);
  const std::uint64_t resident = number_in(all.substr(first)).value_or(0);
  const std::uint64_t shared = second == all.npos ? 0 : number_in(all.substr(second)).value_or(0);
  return (resident - std::min(resident, shared)) *
         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

void return_unused_memory() {
  ::malloc_trim(0);
}

}  // namespace strata
