// /proc/stat, and of each watched process its stat and io.
#include <unistd.h>

#include "telemetry/kept_file.h"
#include "telemetry/machine.h"

namespace strata::telemetry {
namespace {

// Fields of /proc/PID/stat behind the name in parentheses, counted from the state.
constexpr std::size_t kMajorFaults = 9, kUserTime = 11, kSystemTime = 12, kResidentPages = 21;

struct ProcessReading {
  std::optional<double> ticks, faults, resident, disk_read;
};

class ProcessFiles {
 public:
  explicit ProcessFiles(WatchedProcess process) : process_(std::move(process)) {}
  const WatchedProcess& process() const { return process_; }

  ProcessReading read(const std::string& proc, ReadBuffer& buffer) {
    const int now = process_.process_id();
    if (now != id_) {
      id_ = now;
      const std::string folder = proc + "/" + std::to_string(id_);
      stat_ = now > 0 ? KeptFile(folder + "/stat") : KeptFile();
      io_ = now > 0 ? KeptFile(folder + "/io") : KeptFile();
      // Counters of another process begin anew.
      cpu = faults = disk_read = Rate();
    }
    ProcessReading reading;
    const std::string_view stat = stat_.read(buffer);
    // A name may hold spaces and parentheses: what counts is behind the last one.
    if (const std::size_t end = stat.rfind(')'); end != stat.npos) {
      const auto words = words_of(stat.substr(end + 1), kResidentPages + 1);
      const auto value = [&](std::size_t index) -> std::optional<double> {
        if (index >= words.size()) return {};
        const auto number = leading_number(words[index]);
        if (!number) return {};
        return static_cast<double>(*number);
      };
      const auto user = value(kUserTime), system = value(kSystemTime);
      if (user && system) reading.ticks = *user + *system;
      reading.faults = value(kMajorFaults);
      if (const auto pages = value(kResidentPages))
        reading.resident = *pages * static_cast<double>(::sysconf(_SC_PAGESIZE));
    }
    if (const auto bytes = number_behind(io_.read(buffer), "read_bytes:"))
      reading.disk_read = static_cast<double>(*bytes);
    return reading;
  }

  Rate cpu, faults, disk_read;

 private:
  WatchedProcess process_;
  int id_ = 0;
  KeptFile stat_, io_;
};

class Processors final : public Source {
 public:
  Processors(const Roots& roots, std::vector<WatchedProcess> processes)
      : proc_(roots.proc), stat_(roots.proc + "/stat") {
    for (auto& process : processes) processes_.emplace_back(std::move(process));
    fields_.push_back(
        {"All programs", "%", "Processors", "strata_machine_cpu_busy_ratio", "", 0.01});
    each("%", "Processors", "strata_process_cpu_ratio", 0.01);
    each("B", "Memory of processes", "strata_process_resident_bytes", 1);
    each("pages/s", "Page faults", "strata_process_major_faults_per_second", 1);
    each("B/s", "Disk reads of processes", "strata_process_disk_read_bytes_per_second", 1);
    model_ = model_name();
    const std::string_view stat = stat_.read(buffer_);
    for (std::size_t at = stat.find("\ncpu"); at != stat.npos; at = stat.find("\ncpu", at + 1))
      ++count_;
  }

  void read(double seconds, std::span<double> values) override {
    const std::size_t n = processes_.size();
    // user nice system idle iowait irq softirq steal, in ticks of all processors
    const auto words = words_of(stat_.read(buffer_), 9);
    double all = 0, idle = 0;
    if (words.size() == 9 && words[0] == "cpu") {
      for (std::size_t i = 1; i < words.size(); ++i) {
        const auto ticks = static_cast<double>(leading_number(words[i]).value_or(0));
        all += ticks;
        if (i == 4 || i == 5) idle += ticks;
      }
    }
    const bool known = all > 0;
    const double passed = all_(known ? std::optional(all) : std::nullopt, seconds);
    const double rested = idle_(known ? std::optional(idle) : std::nullopt, seconds);
    if (passed > 0 && rested <= passed) values[0] = 100 * (passed - rested) / passed;
    for (std::size_t i = 0; i < n; ++i) {
      ProcessFiles& process = processes_[i];
      const ProcessReading now = process.read(proc_, buffer_);
      const double ticks = process.cpu(now.ticks, seconds);
      if (passed > 0) values[1 + i] = 100 * ticks / passed;
      if (now.resident) values[1 + n + i] = *now.resident;
      values[1 + 2 * n + i] = process.faults(now.faults, seconds);
      values[1 + 3 * n + i] = process.disk_read(now.disk_read, seconds);
    }
  }

  void add_facts(boost::json::object& facts) const override {
    if (!model_.empty()) facts["processor"] = model_;
    if (count_ > 0) facts["processors"] = count_;
    if (const std::string release = line_of(proc_ + "/sys/kernel/osrelease"); !release.empty())
      facts["kernel"] = release;
  }

 private:
  void each(const char* unit, const char* group, const char* metric, double scale) {
    for (const ProcessFiles& files : processes_) {
      fields_.push_back({files.process().name, unit, group, metric,
                         "process=\"" + escaped_label(files.process().label) + "\"", scale});
    }
  }
  std::string model_name() {
    KeptFile file(proc_ + "/cpuinfo");
    const std::string_view text = file.read(buffer_);
    const std::size_t at = text.find("model name");
    if (at == text.npos) return {};
    std::string_view line = text.substr(at, std::min<std::size_t>(text.find('\n', at) - at, 200));
    const std::size_t colon = line.find(": ");
    if (colon == line.npos) return {};
    std::string name(line.substr(colon + 2));
    for (char& c : name)
      if (c < ' ' || c > '~') c = '?';
    return name;
  }

  std::string proc_;
  ReadBuffer buffer_{};
  KeptFile stat_;
  std::vector<ProcessFiles> processes_;
  Rate all_, idle_;
  std::string model_;
  unsigned count_ = 0;
};

}  // namespace

std::unique_ptr<Source> processor_source(const Roots& roots,
                                         std::vector<WatchedProcess> processes) {
  return std::make_unique<Processors>(roots, std::move(processes));
}

}  // namespace strata::telemetry
