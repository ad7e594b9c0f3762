#include "base/topology.h"

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <charconv>
#include <set>

#include "base/cpus.h"

namespace strata {
namespace {

constexpr std::uint64_t kMostText = 1 << 16;
constexpr std::uint32_t kMostCpus = 1 << 20;

std::string text_of(FileSystem& files, const std::string& path) {
  auto text = files.read_text(path, kMostText);
  if (!text) return {};
  while (!text->empty() && (text->back() == '\n' || text->back() == ' ')) text->pop_back();
  return std::move(*text);
}

std::optional<std::uint32_t> number(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "0-3,8" as numbers; what is no list gives none.
std::vector<std::uint32_t> list_of(std::string_view text) {
  std::vector<std::uint32_t> all;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    const std::string_view range = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t dash = range.find('-');
    const auto first = number(range.substr(0, dash));
    const auto last = dash == range.npos ? first : number(range.substr(dash + 1));
    if (!first || !last || *last < *first || *last >= kMostCpus) return {};
    for (std::uint32_t value = *first; value <= *last; ++value) all.push_back(value);
  }
  return all;
}

std::uint32_t first_of(const std::vector<std::uint32_t>& list, std::uint32_t none) {
  return list.empty() ? none : *std::min_element(list.begin(), list.end());
}

// Whatever the machine says of a CPU's speed, in a unit of its own; 0: nothing.
std::uint64_t speed_of(FileSystem& files, const std::string& cpu) {
  for (const char* name : {"/cpu_capacity", "/acpi_cppc/highest_perf", "/cpufreq/cpuinfo_max_freq"})
    if (const auto value = number(text_of(files, cpu + name)); value && *value > 0) return *value;
  return 0;
}

}  // namespace

std::size_t Topology::cores() const {
  std::set<std::uint32_t> different;
  for (const Cpu& cpu : cpus) different.insert(cpu.core);
  return different.size();
}

std::size_t Topology::fast_cores() const {
  std::set<std::uint32_t> different;
  for (const Cpu& cpu : cpus)
    if (cpu.speed * 3 >= 1024) different.insert(cpu.core);
  return different.size();
}

Topology read_topology(FileSystem& files, std::span<const std::uint32_t> allowed) {
  const std::string root = "/sys/devices/system/";
  Topology topology;
  std::vector<std::uint32_t> node_of;
  const auto nodes = list_of(text_of(files, root + "node/online"));
  for (const std::uint32_t node : nodes) {
    for (const std::uint32_t cpu :
         list_of(text_of(files, fmt::format("{}node/node{}/cpulist", root, node)))) {
      if (cpu >= node_of.size()) node_of.resize(cpu + 1, 0);
      node_of[cpu] = node;
    }
  }
  std::vector<std::uint64_t> speeds;
  std::uint64_t fastest = 0;
  for (const std::uint32_t id : allowed) {
    const std::string cpu = fmt::format("{}cpu/cpu{}", root, id);
    Topology::Cpu& c = topology.cpus.emplace_back();
    c.id = c.core = id;
    for (const char* name : {"/topology/core_cpus_list", "/topology/thread_siblings_list"}) {
      const auto siblings = list_of(text_of(files, cpu + name));
      if (siblings.empty()) continue;
      c.core = first_of(siblings, id);
      break;
    }
    c.node = id < node_of.size() ? node_of[id] : 0;
    speeds.push_back(speed_of(files, cpu));
    fastest = std::max(fastest, speeds.back());
  }
  // Intel's hybrids say which CPUs are the small ones where they say nothing of speed: about half.
  const auto atoms = list_of(text_of(files, "/sys/devices/cpu_atom/cpus"));
  std::set<std::uint32_t> seen;
  for (std::size_t i = 0; i < topology.cpus.size(); ++i) {
    Topology::Cpu& c = topology.cpus[i];
    if (fastest > 0 && speeds[i] > 0) {
      c.speed = static_cast<std::uint32_t>(speeds[i] * 1024 / fastest);
    } else if (std::find(atoms.begin(), atoms.end(), c.id) != atoms.end()) {
      c.speed = 512;
    }
    seen.insert(c.node);
  }
  topology.nodes.assign(seen.begin(), seen.end());
  topology.quota = cgroup_cpus(files);
  return topology;
}

Topology this_topology() {
  return read_topology(real_files(), affinity());
}

std::size_t working_threads(const Topology& topology) {
  std::size_t threads = std::max<std::size_t>(1, topology.fast_cores());
  if (topology.quota) threads = std::min(threads, *topology.quota);
  return std::max<std::size_t>(1, threads);
}

std::string to_string(const Topology& topology) {
  std::string text = fmt::format("{} cores of {} CPUs", topology.cores(), topology.cpus.size());
  if (topology.fast_cores() < topology.cores())
    text += fmt::format(", {} of them fast", topology.fast_cores());
  if (topology.nodes.size() > 1) text += fmt::format(", {} nodes", topology.nodes.size());
  if (topology.quota) text += fmt::format(", quota {}", *topology.quota);
  return text;
}

void spread_over_nodes([[maybe_unused]] void* start, [[maybe_unused]] std::size_t bytes) {
#if defined(__linux__) && defined(SYS_mbind)
  constexpr int kInterleave = 3;  // MPOL_INTERLEAVE
  constexpr std::size_t kBits = 8 * sizeof(unsigned long);
  static const std::vector<std::uint32_t> nodes = this_topology().nodes;
  if (nodes.size() < 2) return;
  std::vector<unsigned long> mask(nodes.back() / kBits + 1);
  for (const std::uint32_t node : nodes) mask[node / kBits] |= 1ul << (node % kBits);
  // The system counts one bit more than it looks at.
  (void)::syscall(SYS_mbind, start, bytes, kInterleave, mask.data(), mask.size() * kBits + 1, 0);
#endif
}

}  // namespace strata
