#include "base/cpu_times.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <string_view>

#include "base/clock.h"

namespace strata {
namespace {

constexpr std::uint64_t kMaxStatBytes = 1 << 20;
constexpr double kResolution = 0.02;  // seconds: a tick at either end

double seconds_of(const timeval& time) {
  return double(time.tv_sec) + 1e-6 * double(time.tv_usec);
}

// The numbers behind "cpu ": user, nice, system, idle, iowait, irq, softirq, steal, ...
std::array<double, 8> counters(std::string_view line) {
  std::array<double, 8> found{};
  for (double& number : found) {
    line.remove_prefix(std::min(line.find_first_of("0123456789"), line.size()));
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
    if (error != std::errc()) break;
    line.remove_prefix(static_cast<std::size_t>(end - line.data()));
  }
  return found;
}

}  // namespace

CpuWatch::CpuWatch(FileSystem& files) : files_(files), start_(now()) {}

std::optional<CpuWatch::Times> CpuWatch::now() const {
  const auto text = files_.read_text("/proc/stat", kMaxStatBytes);
  rusage usage{};
  const long ticks = sysconf(_SC_CLK_TCK);
  if (!text || !text->starts_with("cpu ") || ticks <= 0 || getrusage(RUSAGE_SELF, &usage) != 0)
    return std::nullopt;
  Times times;
  std::string_view rest = *text;
  while (rest.starts_with("cpu")) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    if (line[3] == ' ') {
      const auto c = counters(line);
      times.machine = (c[0] + c[1] + c[2] + c[5] + c[6] + c[7]) / double(ticks);
    } else {
      ++times.cpus;
    }
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  }
  times.process = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  times.wall = monotonic_seconds();
  if (times.cpus == 0) return std::nullopt;
  return times;
}

std::optional<double> CpuWatch::others_share() const {
  const auto end = now();
  if (!start_ || !end || end->wall <= start_->wall) return std::nullopt;
  const double others = (end->machine - start_->machine) - (end->process - start_->process);
  return std::max(0.0, others - kResolution) / ((end->wall - start_->wall) * end->cpus);
}

}  // namespace strata
