// Anonymous memory in huge pages where the system has them: for weights, which are gigabytes and
// swept over again and again.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "base/result.h"

namespace strata {

class LargeMemory {
 public:
  // Zeros, at a multiple of kReadPage. Taken from the system when it is touched first.
  // `exhausted`, with `what` it was for, where the system refuses.
  static Result<std::shared_ptr<LargeMemory>> allocate(std::size_t bytes, std::string_view what);
  ~LargeMemory();
  LargeMemory(const LargeMemory&) = delete;
  LargeMemory& operator=(const LargeMemory&) = delete;

  std::byte* data() const { return start_; }
  std::size_t size() const { return bytes_; }
  // Keeps it from being swapped out (mlock); an error says which limit forbids it.
  Status lock() const;

 private:
  LargeMemory(std::byte* start, std::size_t bytes) : start_(start), bytes_(bytes) {}
  std::byte* start_;
  std::size_t bytes_;
};

// For tests: large memory is refused where `refuse` says so; an empty function ends that.
void refuse_large_memory(std::function<bool(std::size_t bytes)> refuse);

}  // namespace strata
