#include "base/lost_pages.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>

namespace strata {
namespace {

constexpr std::size_t kMaxMappings = 1024;
constexpr std::size_t kMaxPath = 1024;

// The signal handler reads this without a lock. A place is in use while `size` is not 0, which is
// written last and erased first.
struct Guarded {
  std::atomic<std::size_t> size = 0;
  std::atomic<std::uintptr_t> start = 0;
  std::atomic<bool> lost = false;
  std::array<char, kMaxPath> path = {};
};

std::array<Guarded, kMaxMappings> g_guarded;
std::atomic<int> g_watches = 0;
std::atomic<int> g_lost = 0;  // places whose `lost` is set
std::mutex g_mutex;           // of those that add and remove places
struct sigaction g_previous = {};
std::size_t g_page_size = 4096;

Guarded* find(std::uintptr_t address) {
  for (Guarded& place : g_guarded) {
    const std::size_t size = place.size.load(std::memory_order_acquire);
    const std::uintptr_t start = place.start.load(std::memory_order_relaxed);
    if (size != 0 && address >= start && address - start < size) return &place;
  }
  return nullptr;
}

void say(const char* text) {
  if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;  // nobody listens
}

// Puts zeros in place of everything from this page on: the computation is lost anyway, and one
// fault is better than one for each page.
bool replace_rest(Guarded& place, std::uintptr_t address) {
  const std::uintptr_t page = address / g_page_size * g_page_size;
  const std::uintptr_t start = place.start.load(std::memory_order_relaxed);
  const std::size_t rest = start + place.size.load(std::memory_order_relaxed) - page;
  void* mapped = ::mmap(reinterpret_cast<void*>(page), rest, PROT_READ,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return false;
  if (!place.lost.exchange(true)) g_lost.fetch_add(1);
  return true;
}

void on_bus_error(int, siginfo_t* info, void*) {
  const int saved = errno;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  Guarded* place = find(address);
  if (place == nullptr) {
    // Not ours: the access is repeated and meets whoever was there before.
    ::sigaction(SIGBUS, &g_previous, nullptr);
  } else if (g_watches.load() == 0 || !replace_rest(*place, address)) {
    say("strata: '");
    say(place->path.data());
    say("' cannot be read any more: it became shorter while it was in use, or its device failed\n");
    ::_exit(1);
  }
  errno = saved;
}

void install_handler() {
  g_page_size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, &g_previous);
}

}  // namespace

LostPagesWatch::LostPagesWatch() {
  g_watches.fetch_add(1);
}

LostPagesWatch::~LostPagesWatch() {
  g_watches.fetch_sub(1);
}

std::optional<std::string> lost_file() {
  if (g_lost.load() == 0) return std::nullopt;
  const std::lock_guard lock(g_mutex);
  for (const Guarded& place : g_guarded) {
    if (place.size.load() != 0 && place.lost.load()) return std::string(place.path.data());
  }
  return std::nullopt;
}

void guard_pages(const void* start, std::size_t size, const std::string& path) {
  static std::once_flag installed;
  std::call_once(installed, install_handler);
  const std::lock_guard lock(g_mutex);
  for (Guarded& place : g_guarded) {
    if (place.size.load() != 0) continue;
    const std::size_t length = path.copy(place.path.data(), kMaxPath - 1);
    place.path[length] = '\0';
    place.start.store(reinterpret_cast<std::uintptr_t>(start), std::memory_order_relaxed);
    place.size.store(size, std::memory_order_release);
    return;
  }
}

void release_pages(const void* start) {
  const std::lock_guard lock(g_mutex);
  for (Guarded& place : g_guarded) {
    if (place.size.load() == 0 || place.start.load() != reinterpret_cast<std::uintptr_t>(start)) {
      continue;
    }
    place.size.store(0, std::memory_order_release);
    if (place.lost.exchange(false)) g_lost.fetch_sub(1);
    return;
  }
}

}  // namespace strata
