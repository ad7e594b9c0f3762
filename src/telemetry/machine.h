// Readers of the machine: processors, memory, disks, pressure, sensors, graphics cards. All of it
// comes from files of /proc and /sys, from NVIDIA's library where there is one, and on macOS from
// IOKit; no process is ever started.
//
// What callers may rely on
// - What a machine does not have has no field; what cannot be read is unknown, never 0.
// - Descriptors stay open for as long as the source lives; their number is bounded (kMost...).
// - A graphics card that sleeps is not woken.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "telemetry/prometheus.h"
#include "telemetry/source.h"

namespace strata::telemetry {

struct Roots {
  std::string proc = "/proc";
  std::string sys = "/sys";
  std::string nvml = "libnvidia-ml.so.1";  // opened at run time, never linked
};

// A process to watch. Its number may change, 0 is none.
struct WatchedProcess {
  std::string name;   // "Engine", for people
  std::string label;  // "engine", for metrics
  std::function<int()> process_id;
};

inline constexpr std::size_t kMostDisks = 16, kMostSensors = 8, kMostEnergyZones = 8,
                             kMostCards = 8;

// All that this machine has.
Sources machine_sources(const Roots& roots, std::vector<WatchedProcess> processes);

// The parts of it.
std::unique_ptr<Source> processor_source(const Roots& roots, std::vector<WatchedProcess> processes);
std::unique_ptr<Source> memory_source(const Roots& roots);
std::unique_ptr<Source> disk_source(const Roots& roots);
std::unique_ptr<Source> pressure_source(const Roots& roots);
std::unique_ptr<Source> sensor_source(const Roots& roots);
std::unique_ptr<Source> amd_source(const Roots& roots);
std::unique_ptr<Source> nvidia_source(const Roots& roots);
std::unique_ptr<Source> apple_source();

// Every metric that fields of these sources may name, whether this machine has it or not.
std::span<const Family> machine_families();

}  // namespace strata::telemetry
