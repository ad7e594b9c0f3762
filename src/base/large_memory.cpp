#include "base/large_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <mutex>
#include <system_error>

#include "base/huge_memory.h"
#include "base/topology.h"

namespace strata {
namespace {

std::mutex refusal_mutex;
std::function<bool(std::size_t)> refusal;

bool refused(std::size_t bytes) {
  const std::lock_guard lock(refusal_mutex);
  return refusal && refusal(bytes);
}

}  // namespace

void refuse_large_memory(std::function<bool(std::size_t bytes)> refuse) {
  const std::lock_guard lock(refusal_mutex);
  refusal = std::move(refuse);
}

Result<std::shared_ptr<LargeMemory>> LargeMemory::allocate(std::size_t bytes,
                                                           std::string_view what) {
  const std::size_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* start = refused(rounded) ? MAP_FAILED
                                 : ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED)
    return fail(ErrorCode::exhausted, "no {} MiB of memory for {}", (bytes >> 20) + 1, what);
  ::madvise(start, rounded, MADV_HUGEPAGE);  // an advice: small pages work too
  try {
    spread_over_nodes(start, rounded);
    return std::shared_ptr<LargeMemory>(new LargeMemory(static_cast<std::byte*>(start), rounded));
  } catch (const std::bad_alloc&) {
    ::munmap(start, rounded);
    return fail(ErrorCode::exhausted, "no memory for {}", what);
  }
}

LargeMemory::~LargeMemory() {
  ::munmap(start_, bytes_);
}

Status LargeMemory::lock() const {
  if (::mlock(start_, bytes_) == 0) return {};
  return fail(ErrorCode::exhausted,
              "{} MiB of weights cannot be locked in memory (--mlock): {}; raise the limit of "
              "locked memory (ulimit -l) or leave the flag out",
              bytes_ >> 20, std::generic_category().message(errno));
}

}  // namespace strata
