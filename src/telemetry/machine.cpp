#include "telemetry/machine.h"

#include <array>

namespace strata::telemetry {
namespace {

constexpr std::array kFamilies = {
    Family{"strata_machine_cpu_busy_ratio",
           "Share of all processors' time in which a program ran."},
    Family{"strata_process_cpu_ratio",
           "Share of all processors' time that a process of the server had."},
    Family{"strata_process_resident_bytes", "Memory of a process, mapped files included."},
    Family{"strata_process_major_faults_per_second",
           "Pages of a process that had to be read from the disk."},
    Family{"strata_process_disk_read_bytes_per_second", "What a process has read from disks."},
    Family{"strata_machine_memory_available_bytes", "Memory that programs may still have."},
    Family{"strata_machine_memory_total_bytes", "Memory of the machine."},
    Family{"strata_machine_group_memory_bytes",
           "Memory of the control group whose limit is the strictest."},
    Family{"strata_machine_disk_read_bytes_per_second", "What all disks read."},
    Family{"strata_machine_disk_written_bytes_per_second", "What all disks write."},
    Family{"strata_machine_pressure_ratio", "Share of the time in which a program waited for it."},
    Family{"strata_machine_temperature_celsius", "What a sensor says."},
    Family{"strata_machine_power_watts", "What a part of the processor takes."},
    Family{"strata_gpu_busy_ratio", "Share of the time in which a graphics card worked."},
    Family{"strata_gpu_memory_used_bytes", "Memory of a graphics card that is taken."},
    Family{"strata_gpu_memory_total_bytes", "Memory of a graphics card."},
    Family{"strata_gpu_temperature_celsius", "Temperature of a graphics card."},
    Family{"strata_gpu_power_watts", "What a graphics card takes."},
};

}  // namespace

std::span<const Family> machine_families() {
  return kFamilies;
}

Sources machine_sources(const Roots& roots, std::vector<WatchedProcess> processes) {
  Sources sources;
  sources.push_back(processor_source(roots, std::move(processes)));
  sources.push_back(memory_source(roots));
  sources.push_back(disk_source(roots));
  sources.push_back(pressure_source(roots));
  sources.push_back(sensor_source(roots));
  sources.push_back(amd_source(roots));
  sources.push_back(nvidia_source(roots));
  sources.push_back(apple_source());
  return sources;
}

}  // namespace strata::telemetry
