// What lies below files and mappings: the kind of disk, and memory that keeps a mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"

namespace strata {

// Whether the device of a file says that it turns. Virtual disks often say so of anything, so it
// takes a measurement to believe it. Nothing where the system does not tell.
std::optional<bool> says_rotational(const std::string& path);

// Bytes of memory this machine has.
std::uint64_t physical_memory();

// Which part of a mapped file's bytes the page cache has; 1 for other memory.
double cached_share(std::span<const std::byte> mapped);

// Reads all pages of a mapping into memory, with several threads, and asks the system to keep them.
// True if it promised to; false where the limit of locked memory is too small: then they stay as
// long as nothing else needs the room.
Result<bool> make_resident(std::span<const std::byte> bytes);

}  // namespace strata
