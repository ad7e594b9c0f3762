// Starts an engine again and again, and each time another allocation fails, of whatever thread,
// first to last. What is expected: an engine or a sentence. Each start is a process of its own, so
// that one that crashes is told and the others are tried too. Prints how many were tried.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "base/large_memory.h"
#include "base/log.h"
#include "engine/engine.h"

namespace {

constexpr long kNone = -1;
std::atomic<long> left_until_failure = kNone;

void* allocate(std::size_t size, std::size_t alignment) {
  // kNone once it has happened, too.
  if (left_until_failure.load(std::memory_order_relaxed) > kNone && left_until_failure-- == 0)
    throw std::bad_alloc();
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

// A start with everything in memory, and one in which as much as can be is read from the disk.
std::vector<EngineOptions> starts(const std::string& model, const std::string& folder) {
  EngineOptions usual;
  usual.model_path = model;
  usual.threads = 2;
  usual.cache.ram_bytes = 0;
  usual.expert_profile = "off";
  EngineOptions frugal = usual;
  frugal.expert_ram.kind = ExpertRam::Kind::share;
  frugal.expert_ram.share = 0.9;
  frugal.expert_profile = folder + "/profile";
  frugal.ngram_table.mode = TableMode::direct;
  frugal.cache.ram_bytes = std::uint64_t{1} << 20;
  frugal.cache.folder = folder + "/conversations";
  frugal.trace_path = folder + "/trace";
  return {usual, frugal};
}

// What became of a start: an allocation failed and there was an engine or a sentence, none was left
// to fail, one failed and there was neither, and one that did not start although none failed.
constexpr int kOneFailed = 0, kAllDone = 3, kNoSentence = 4, kCannotStart = 5;

// In a process of its own: what became of a start whose `countdown`th allocation fails.
int start_once(const EngineOptions& options, long countdown) {
  ::alarm(120);  // a start that hangs is a failure, too
  left_until_failure = countdown;
  auto engine = Engine::open(real_files(), options);
  const bool failed = left_until_failure.exchange(kNone) < 0;
  if (engine) return failed ? kOneFailed : kAllDone;
  const bool sentence =
      !engine.error().message.empty() && engine.error().code == ErrorCode::exhausted;
  if (failed && sentence) return kOneFailed;
  std::fprintf(stderr, "'%s'\n", engine.error().message.c_str());
  return failed ? kNoSentence : kCannotStart;
}

// How it ended; less than 0: by that signal.
int start_apart(const EngineOptions& options, long countdown) {
  const pid_t child = ::fork();
  if (child == 0) std::_Exit(start_once(options, countdown));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) continue;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

// The arguments: a model file, a folder to write to, and every how manieth allocation fails.
int main(int count, char** words) {
  const long step = count == 4 ? std::atol(words[3]) : 0;
  if (step < 1) return 2;
  (void)set_log_level("off");
  long failures = 0, wrong = 0;
  for (const EngineOptions& options : starts(words[1], words[2])) {
    for (long countdown = 0;; countdown += step) {
      const int end = start_apart(options, countdown);
      if (end == kAllDone) break;
      ++failures;
      if (end == kOneFailed) continue;
      std::fprintf(stderr, "allocation %ld of a start: ended with %d\n", countdown, end);
      ++wrong;
      if (end == kCannotStart) break;
    }
  }
  // Weights that do not get their memory.
  refuse_large_memory([](std::size_t) { return true; });
  for (const EngineOptions& options : starts(words[1], words[2]))
    if (Engine::open(real_files(), options)) ++wrong;
  refuse_large_memory({});
  std::printf("%ld\n", failures);
  return wrong == 0 ? 0 : 1;
}
