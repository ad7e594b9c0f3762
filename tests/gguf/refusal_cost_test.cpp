// Counts what this program allocates, for expect_cheap.
#include "tests/gguf/refusal_cost.h"

#include <cstdlib>
#include <new>
#include <vector>

namespace {

thread_local std::size_t g_allocated = 0;

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The array and nothrow forms call these; over-aligned memory is not counted.
void* operator new(std::size_t size) {
  g_allocated += size;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
#endif

namespace strata::test {

std::size_t allocated_bytes() {
  return g_allocated;
}

namespace {

TEST(RefusalCost, Counts) {
  if (!kMeasures) GTEST_SKIP() << "not with sanitizers";
  const std::size_t before = allocated_bytes();
  const std::vector<char> large(12'345'678);
  EXPECT_GE(allocated_bytes() - before, large.size());
  EXPECT_LT(allocated_bytes() - before, large.size() + 1000);
}

}  // namespace
}  // namespace strata::test
