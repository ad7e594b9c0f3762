// Starts an engine again and again, and each time another allocation fails, first to last. What is
// expected: an engine or a sentence. Prints how many allocations were tried; a crash ends the
// program.
#include <cstdio>
#include <cstdlib>
#include <new>

#include "base/large_memory.h"
#include "base/log.h"
#include "engine/engine.h"

namespace {

thread_local long left_until_failure = -1;  // -1: none fails
thread_local bool failed = false;

void* allocate(std::size_t size, std::size_t alignment) {
  if (left_until_failure >= 0 && left_until_failure-- == 0) {
    failed = true;
    throw std::bad_alloc();
  }
  if (size == 0) size = 1;
  void* memory =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(size)
          : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) {
  return allocate(size, 0);
}
void* operator new[](std::size_t size) {
  return allocate(size, 0);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace {

using namespace strata;

// False: it was refused without a sentence.
bool open_once(const EngineOptions& options, long countdown) {
  left_until_failure = countdown;
  failed = false;
  const auto engine = Engine::open(real_files(), options);
  left_until_failure = -1;
  if (engine) return true;
  if (!engine.error().message.empty() && engine.error().code == ErrorCode::exhausted) return true;
  std::fprintf(stderr, "allocation %ld: '%s'\n", countdown, engine.error().message.c_str());
  return false;
}

}  // namespace

// The arguments: a model file, and every how manieth allocation fails.
int main(int count, char** words) {
  const long step = count == 3 ? std::atol(words[2]) : 0;
  if (step < 1) return 2;
  (void)set_log_level("off");
  EngineOptions options;
  options.model_path = words[1];
  options.threads = 2;
  options.cache.ram_bytes = 0;
  long failures = 0;
  for (long countdown = 0;; countdown += step) {
    if (!open_once(options, countdown)) return 1;
    if (!failed) break;
    ++failures;
  }
  // Weights that do not get their memory.
  refuse_large_memory([](std::size_t) { return true; });
  if (Engine::open(real_files(), options)) return 1;
  refuse_large_memory({});
  std::printf("%ld\n", failures);
  return 0;
}
