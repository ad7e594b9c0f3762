// What happens when a mapped file can no longer be read: it became shorter than the mapping, or its
// device failed. The kernel then answers an access with SIGBUS; every mapping of real_files() is
// guarded against that.
//
// Without a LostPagesWatch the program prints one sentence that names the file and exits with code
// 1: better than an answer made of what is no longer there. While a watch lives, the lost pages
// read as zeros instead, and lost_file() names the file: whoever watches must look there after it
// has read, and throw away what it computed.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace strata {

class LostPagesWatch {
 public:
  LostPagesWatch();
  ~LostPagesWatch();
  LostPagesWatch(const LostPagesWatch&) = delete;
  LostPagesWatch& operator=(const LostPagesWatch&) = delete;
};

// The first guarded file that lost pages under a watch, as long as it is mapped. Cheap; may be
// called from any thread.
std::optional<std::string> lost_file();

// A mapping's pages are guarded from guard_pages until release_pages, which must come before they
// are unmapped. Beyond 1,024 mappings at a time the others stay unguarded. For file.cpp.
void guard_pages(const void* start, std::size_t size, const std::string& path);
void release_pages(const void* start);

}  // namespace strata
