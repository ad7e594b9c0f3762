// CPU time of the machine and of this process: what others took while something was measured.
#pragma once

#include <optional>

#include "base/file.h"

namespace strata {

// Reads /proc/stat of `files`. It counts hundredths of a second: two of them are forgiven.
class CpuWatch {
 public:
  explicit CpuWatch(FileSystem& files);

  // Since construction: the share of all CPUs' time in which something other than this process
  // ran, the host of a virtual machine included. nullopt where the system does not say.
  std::optional<double> others_share() const;

 private:
  struct Times {
    double machine = 0;  // busy, all CPUs
    double process = 0;
    double wall = 0;
    unsigned cpus = 0;
  };
  std::optional<Times> now() const;

  FileSystem& files_;
  std::optional<Times> start_;
};

}  // namespace strata
