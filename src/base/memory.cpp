#include "base/memory.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace strata {
namespace {

// The number a file begins with; `none` where there is none ("max").
std::uint64_t number_in(const std::string& path, std::uint64_t none) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  return file >> number ? number : none;
}

std::uint64_t of_machine() {
  std::ifstream info("/proc/meminfo");
  std::string key;
  std::uint64_t kib = 0;
  while (info >> key) {
    if (key == "MemAvailable:" && info >> kib) return kib * 1024;
    info.ignore(256, '\n');
  }
  const long pages = ::sysconf(_SC_PHYS_PAGES), size = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0
             ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(size)
             : 0;
}

// What a group's limit leaves; files that can be read again do not count as used.
std::uint64_t left_in(const std::string& folder, const char* limit_name, const char* used_name) {
  const std::uint64_t limit = number_in(folder + limit_name, UINT64_MAX);
  if (limit == UINT64_MAX) return UINT64_MAX;
  std::uint64_t used = number_in(folder + used_name, 0);
  std::ifstream statistics(folder + "/memory.stat");
  std::string key;
  std::uint64_t value = 0;
  while (statistics >> key >> value)
    if (key == "inactive_file" || key == "active_file") used -= std::min(used, value);
  return limit - std::min(limit, used);
}

// The strictest limit among the process's groups and theirs, in either version of the interface.
std::uint64_t of_groups() {
  std::ifstream groups("/proc/self/cgroup");
  std::uint64_t least = UINT64_MAX;
  for (std::string line; std::getline(groups, line);) {
    const std::size_t second = line.rfind(':');
    if (second == std::string::npos) continue;
    const bool unified = line.starts_with("0::");
    if (!unified && line.find(":memory:") == std::string::npos) continue;
    std::string path = line.substr(second + 1);
    while (true) {
      least = std::min(least,
                       unified ? left_in("/sys/fs/cgroup" + path, "/memory.max", "/memory.current")
                               : left_in("/sys/fs/cgroup/memory" + path, "/memory.limit_in_bytes",
                                         "/memory.usage_in_bytes"));
      if (path.empty() || path == "/") break;
      path.resize(path.rfind('/'));
    }
  }
  return least;
}

}  // namespace

void return_unused_memory() {
  ::malloc_trim(0);
}

std::uint64_t available_memory() {
  return std::min(of_machine(), of_groups());
}

}  // namespace strata
