// Random reads of a file by fio, the measure that other programs are held against.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace strata {

struct FioReads {
  double per_second = 0;
  double cpu_microseconds = 0;       // user and system, a read
  double p50 = 0, p90 = 0, p99 = 0;  // microseconds from a read's submission to its completion
};

// Whether fio can be started.
bool has_fio();

// Reads pages of 4 KiB past the page cache, at random places of the given part of the file.
Result<FioReads> fio_random_reads(const std::string& path, std::uint64_t offset, std::uint64_t size,
                                  std::uint32_t depth, std::uint32_t seconds, bool ring);

}  // namespace strata
