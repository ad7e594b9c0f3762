// Memory in huge pages where the system has them: large buffers that are read in strides, or
// streamed, take half the time in them. Small pages work too; nothing depends on the advice.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace strata {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Allocator for std::vector: blocks of at least a huge page begin at one.
template <class T>
struct HugeAllocator {
  using value_type = T;
  HugeAllocator() = default;
  template <class Other>
  HugeAllocator(const HugeAllocator<Other>&) {}

  T* allocate(std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    if (bytes < kHugePage) return static_cast<T*>(::operator new(bytes, kSmall));
    void* memory = ::operator new(bytes, kLarge);
#if defined(MADV_HUGEPAGE)
    ::madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t count) {
    ::operator delete(memory, count * sizeof(T) < kHugePage ? kSmall : kLarge);
  }
  template <class Other>
  bool operator==(const HugeAllocator<Other>&) const {
    return true;
  }

 private:
  static constexpr std::align_val_t kSmall{64}, kLarge{kHugePage};
};

}  // namespace strata
