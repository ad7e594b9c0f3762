#include "base/storage.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <vector>

#include "base/file.h"
#include "base/thread_pool.h"

namespace strata {

std::optional<bool> says_rotational(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  const std::string device =
      fmt::format("/sys/dev/block/{}:{}", major(status.st_dev), minor(status.st_dev));
  // A partition has its disk's queue one folder above.
  for (const char* place : {"/queue/rotational", "/../queue/rotational"}) {
    const auto text = real_files().read_text(device + place, 64);
    if (text && !text->empty()) return text->front() == '1';
  }
  return std::nullopt;
}

std::uint64_t physical_memory() {
  return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

double cached_share(std::span<const std::byte> mapped) {
  constexpr std::uintptr_t kPage = 4096;
  if (mapped.empty()) return 1;
  const auto start = reinterpret_cast<std::uintptr_t>(mapped.data()) / kPage * kPage;
  const auto end = reinterpret_cast<std::uintptr_t>(mapped.data() + mapped.size());
  std::vector<unsigned char> pages((end - start + kPage - 1) / kPage);
  if (::mincore(reinterpret_cast<void*>(start), end - start, pages.data()) != 0) return 0;
  const auto there =
      std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return (page & 1) != 0; });
  return static_cast<double>(there) / static_cast<double>(pages.size());
}

Result<bool> make_resident(std::span<const std::byte> bytes) {
  constexpr std::size_t kPiece = std::size_t{64} << 20;
  constexpr std::size_t kMaxThreads = 16;
  if (bytes.empty()) return true;
  const auto page_size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<std::uintptr_t>(bytes.data()) / page_size * page_size;
  const auto end = reinterpret_cast<std::uintptr_t>(bytes.data() + bytes.size());
  std::atomic<int> error = 0;
  ThreadPool pool(std::min(kMaxThreads, usable_cpus()));
  pool.run((end - start + kPiece - 1) / kPiece, [&](std::size_t piece) {
    const std::uintptr_t from = start + piece * kPiece, to = std::min(from + kPiece, end);
    if (::madvise(reinterpret_cast<void*>(from), to - from, MADV_POPULATE_READ) == 0) return;
    if (errno != EINVAL) {
      error = errno;
      return;
    }
    // Kernels before 5.14: touch every page.
    for (std::uintptr_t page = from; page < to; page += page_size)
      (void)*reinterpret_cast<const volatile std::byte*>(
          std::max(page, reinterpret_cast<std::uintptr_t>(bytes.data())));
  });
  if (error != 0) {
    return fail(ErrorCode::io, "cannot read {} bytes of a mapped file into memory: {}",
                bytes.size(), std::generic_category().message(error));
  }
  return ::mlock(reinterpret_cast<const void*>(start), end - start) == 0;
}

}  // namespace strata
