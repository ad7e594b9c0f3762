// /proc/meminfo and the limits of control groups, /sys/block, /proc/pressure.
#include <algorithm>

#include "telemetry/kept_file.h"
#include "telemetry/machine.h"

namespace strata::telemetry {
namespace {

std::optional<std::uint64_t> kib_behind(std::string_view text, std::string_view key) {
  const auto kib = number_behind(text, key);
  if (!kib || *kib > UINT64_MAX / 1024) return {};
  return *kib * 1024;
}

// The strictest limit of the process's groups and of those above them, in either version of the
// interface.
struct GroupLimit {
  std::uint64_t bytes = UINT64_MAX;
  std::string used_file;
};

GroupLimit strictest_group(const Roots& roots, ReadBuffer& buffer) {
  GroupLimit strictest;
  KeptFile groups(roots.proc + "/self/cgroup");
  std::string_view rest = groups.read(buffer);
  std::vector<std::pair<std::string, bool>> paths;  // and whether it is the unified interface
  for (int lines = 0; !rest.empty() && lines < 64; ++lines) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const std::size_t colon = line.rfind(':');
    const bool unified = line.starts_with("0::");
    if (colon == line.npos || (!unified && line.find(":memory:") == line.npos)) continue;
    // A path that leads out of the folder is none.
    if (line.find("..") != line.npos) continue;
    paths.emplace_back(line.substr(colon + 1), unified);
  }
  for (auto& [path, unified] : paths) {
    for (;;) {
      if (path == "/") path.clear();
      const std::string folder = roots.sys + (unified ? "/fs/cgroup" : "/fs/cgroup/memory") + path;
      const auto limit = number_of(folder + (unified ? "/memory.max" : "/memory.limit_in_bytes"));
      if (limit && *limit < strictest.bytes) {
        strictest = {*limit, folder + (unified ? "/memory.current" : "/memory.usage_in_bytes")};
      }
      if (path.empty()) break;
      path.resize(path.rfind('/') == path.npos ? 0 : path.rfind('/'));
    }
  }
  return strictest;
}

class Memory final : public Source {
 public:
  explicit Memory(const Roots& roots) : meminfo_(roots.proc + "/meminfo") {
    constexpr const char* kGroup = "Memory of the machine";
    fields_.push_back({"Available", "B", kGroup, "strata_machine_memory_available_bytes"});
    fields_.push_back({"Total", "B", kGroup, "strata_machine_memory_total_bytes"});
    total_ = kib_behind(meminfo_.read(buffer_), "MemTotal:");
    limit_ = strictest_group(roots, buffer_);
    // Version 1 says "no limit" with a number of its own; what the machine does not have is none.
    if (limit_.bytes >= total_.value_or(UINT64_MAX)) return;
    group_ = KeptFile(limit_.used_file);
    fields_.push_back({"Of the control group", "B", kGroup, "strata_machine_group_memory_bytes"});
  }

  void read(double, std::span<double> values) override {
    const std::string_view text = meminfo_.read(buffer_);
    if (const auto bytes = kib_behind(text, "MemAvailable:"))
      values[0] = static_cast<double>(*bytes);
    // Not a fixed fact: virtual machines grow.
    if (const auto bytes = kib_behind(text, "MemTotal:")) values[1] = static_cast<double>(*bytes);
    if (values.size() < 3) return;
    if (const auto bytes = group_.number(buffer_)) values[2] = static_cast<double>(*bytes);
  }

  void add_facts(boost::json::object& facts) const override {
    if (total_) facts["memory_bytes"] = *total_;
    if (fields_.size() > 2) facts["control_group_memory_bytes"] = limit_.bytes;
  }

 private:
  ReadBuffer buffer_{};
  KeptFile meminfo_;
  std::optional<std::uint64_t> total_;
  GroupLimit limit_;
  KeptFile group_;
};

// Disks are what has a device behind it: no loop devices, compressed memory or sums of others.
class Disks final : public Source {
 public:
  explicit Disks(const Roots& roots) {
    constexpr std::size_t kMostNames = 512;
    for (const std::string& name : names_in(roots.sys + "/block", "", kMostNames)) {
      const std::string folder = roots.sys + "/block/" + name;
      if (disks_.size() == kMostDisks) break;
      if (names_in(folder + "/device", "", 1).empty()) continue;
      KeptFile file(folder + "/stat");
      if (!file.there()) continue;
      disks_.push_back(std::move(file));
      names_.push_back(name);
    }
    if (disks_.empty()) return;
    fields_.push_back({"Read", "B/s", "Disks", "strata_machine_disk_read_bytes_per_second"});
    fields_.push_back({"Written", "B/s", "Disks", "strata_machine_disk_written_bytes_per_second"});
  }

  void read(double seconds, std::span<double> values) override {
    if (disks_.empty()) return;
    constexpr double kSector = 512;  // of these counters, whatever the disk has
    double read = 0, written = 0;
    bool any = false;
    for (KeptFile& disk : disks_) {
      const auto words = words_of(disk.read(buffer_), 7);
      if (words.size() < 7) continue;
      const auto in = leading_number(words[2]), out = leading_number(words[6]);
      if (!in || !out) continue;
      read += kSector * static_cast<double>(*in);
      written += kSector * static_cast<double>(*out);
      any = true;
    }
    values[0] = read_(any ? std::optional(read) : std::nullopt, seconds);
    values[1] = written_(any ? std::optional(written) : std::nullopt, seconds);
  }

  void add_facts(boost::json::object& facts) const override {
    std::string all;
    for (const std::string& name : names_) all += (all.empty() ? "" : ", ") + name;
    if (!all.empty()) facts["disks"] = all;
  }

 private:
  ReadBuffer buffer_{};
  std::vector<KeptFile> disks_;
  std::vector<std::string> names_;
  Rate read_, written_;
};

// Pressure stall information: microseconds in which at least one program waited.
class Pressure final : public Source {
 public:
  explicit Pressure(const Roots& roots) {
    for (const auto& [name, file] : {std::pair{"Processors", "cpu"}, std::pair{"Memory", "memory"},
                                     std::pair{"Disks", "io"}}) {
      KeptFile kept(roots.proc + "/pressure/" + file);
      if (!kept.there()) continue;
      fields_.push_back({name, "%", "Waits for", "strata_machine_pressure_ratio",
                         std::string("resource=\"") + file + "\"", 0.01});
      files_.push_back({std::move(kept), Rate()});
    }
  }

  void read(double seconds, std::span<double> values) override {
    for (std::size_t i = 0; i < files_.size(); ++i) {
      auto& [file, rate] = files_[i];
      const auto total = number_behind(file.read(buffer_), "total=");
      std::optional<double> waited;
      if (total) waited = static_cast<double>(*total);
      const double percent = 1e-4 * rate(waited, seconds);
      if (!std::isnan(percent)) values[i] = std::min(100.0, percent);
    }
  }

 private:
  ReadBuffer buffer_{};
  std::vector<std::pair<KeptFile, Rate>> files_;
};

}  // namespace

std::unique_ptr<Source> memory_source(const Roots& roots) {
  return std::make_unique<Memory>(roots);
}
std::unique_ptr<Source> disk_source(const Roots& roots) {
  return std::make_unique<Disks>(roots);
}
std::unique_ptr<Source> pressure_source(const Roots& roots) {
  return std::make_unique<Pressure>(roots);
}

}  // namespace strata::telemetry
