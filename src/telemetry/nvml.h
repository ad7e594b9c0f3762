// The few functions of NVIDIA's management library that are used. The library is opened at run
// time; its symbols carry the version of their form.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"

namespace strata::telemetry {

// As the library's interface has them.
struct NvmlUtilization {
  unsigned gpu = 0, memory = 0;  // percent
};
struct NvmlMemory {
  unsigned long long total = 0, free = 0, used = 0;  // bytes
};
// The second form, whose `used` leaves out what the driver keeps for itself.
struct NvmlMemory2 {
  unsigned version = sizeof(NvmlMemory2) | (2u << 24);
  unsigned long long total = 0, reserved = 0, free = 0, used = 0;
};
using NvmlDevice = struct NvmlDeviceHandle*;

struct Nvml {
  // nvmlInit_v2, nvmlShutdown
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*device_count)(unsigned*) = nullptr;           // nvmlDeviceGetCount_v2
  int (*device_at)(unsigned, NvmlDevice*) = nullptr;  // nvmlDeviceGetHandleByIndex_v2
  int (*name)(NvmlDevice, char*, unsigned) = nullptr;
  int (*utilization)(NvmlDevice, NvmlUtilization*) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  int (*memory2)(NvmlDevice, NvmlMemory2*) = nullptr;        // nvmlDeviceGetMemoryInfo_v2, if there
  int (*temperature)(NvmlDevice, int, unsigned*) = nullptr;  // sensor 0: the chip
  int (*power)(NvmlDevice, unsigned*) = nullptr;             // milliwatts
  int (*power_limit)(NvmlDevice, unsigned*) = nullptr;       // milliwatts, in force
  std::shared_ptr<void> library = {};  // stays open as long as the functions are used
};

// Opens the library and finds the functions. `not_found` without the library, `unsupported` if it
// lacks one of them.
Result<Nvml> open_nvml(const std::string& library);

class Source;
std::unique_ptr<Source> nvidia_source(Result<Nvml> nvml);

}  // namespace strata::telemetry
