#include "base/cpus.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif
#include <thread>

#include "base/thread_pool.h"

namespace strata {
namespace {

constexpr std::uint64_t kMaxProcBytes = 1 << 16;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return pieces;
}

std::optional<double> positive(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number <= 0) return std::nullopt;
  return static_cast<double>(number);
}

std::optional<double> ratio(std::optional<double> quota, std::optional<double> period) {
  if (!quota || !period) return std::nullopt;
  return *quota / *period;
}

// "150000 100000" or "max 100000"
std::optional<double> quota_v2(FileSystem& files, const std::string& group) {
  const auto text = files.read_text(group + "/cpu.max", kMaxProcBytes);
  if (!text) return std::nullopt;
  const auto words = split(*text, ' ');
  if (words.size() != 2) return std::nullopt;
  return ratio(positive(words[0]), positive(words[1]));
}

std::optional<double> quota_v1(FileSystem& files, const std::string& group) {
  const auto quota = files.read_text(group + "/cpu.cfs_quota_us", kMaxProcBytes);
  const auto period = files.read_text(group + "/cpu.cfs_period_us", kMaxProcBytes);
  if (!quota || !period) return std::nullopt;
  return ratio(positive(*quota), positive(*period));  // -1 is "none"
}

using ReadQuota = std::optional<double> (*)(FileSystem&, const std::string&);

// The smallest quota from `path` up to the root. A container may not see its own path; its root is
// then the group itself.
std::optional<double> tightest(FileSystem& files, const std::string& mount, std::string_view path,
                               ReadQuota read) {
  std::optional<double> least;
  for (;;) {
    while (!path.empty() && path.back() == '/') path.remove_suffix(1);
    const auto quota = read(files, mount + std::string(path));
    if (quota && (!least || *quota < *least)) least = quota;
    if (path.empty()) return least;
    path = path.substr(0, path.rfind('/') == path.npos ? 0 : path.rfind('/'));
  }
}

}  // namespace

std::vector<std::uint32_t> affinity() {
  std::vector<std::uint32_t> all;
#if defined(__linux__)
  // The kernel refuses a mask smaller than its own, so the mask grows until it fits.
  for (int cpus = 1024; cpus <= (1 << 20) && all.empty(); cpus *= 2) {
    const std::size_t size = CPU_ALLOC_SIZE(cpus);
    std::vector<cpu_set_t> mask(size / sizeof(cpu_set_t) + 1);
    if (::sched_getaffinity(0, size, mask.data()) == 0) {
      for (int cpu = 0; cpu < cpus; ++cpu)
        if (CPU_ISSET_S(cpu, size, mask.data())) all.push_back(static_cast<std::uint32_t>(cpu));
    }
  }
#endif
  const std::uint32_t least = all.empty() ? std::max(1u, std::thread::hardware_concurrency()) : 0;
  for (std::uint32_t cpu = 0; cpu < least; ++cpu) all.push_back(cpu);
  return all;
}

std::optional<std::size_t> cgroup_cpus(FileSystem& files) {
  const auto groups = files.read_text("/proc/self/cgroup", kMaxProcBytes);
  if (!groups) return std::nullopt;
  std::optional<double> least;
  const auto consider = [&](std::optional<double> quota) {
    if (quota && (!least || *quota < *least)) least = quota;
  };
  // ID:CONTROLLERS:PATH; version 2 has the id 0 and names no controllers.
  for (const std::string_view line : split(*groups, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view path = line.substr(second + 1);
    const std::string controllers(line.substr(first + 1, second - first - 1));
    if (controllers.empty()) {
      consider(tightest(files, "/sys/fs/cgroup", path, quota_v2));
      continue;
    }
    const auto names = split(controllers, ',');
    if (std::find(names.begin(), names.end(), "cpu") == names.end()) continue;
    consider(tightest(files, "/sys/fs/cgroup/" + controllers, path, quota_v1));
    consider(tightest(files, "/sys/fs/cgroup/cpu", path, quota_v1));
  }
  if (!least) return std::nullopt;
  return static_cast<std::size_t>(std::max(1.0, std::ceil(std::min(*least, 1e6))));
}

std::size_t usable_cpus() {
  const std::size_t cpus = affinity().size();
  return std::max<std::size_t>(1, std::min(cpus, cgroup_cpus(real_files()).value_or(cpus)));
}

}  // namespace strata
