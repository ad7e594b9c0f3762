#include "base/pages_ahead.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <system_error>

namespace strata {
namespace {

constexpr std::uintptr_t kPage = 4096;
constexpr std::uintptr_t kStep = std::uintptr_t{4} << 20;  // after which it looks whether to go on

}  // namespace

PagesAhead::PagesAhead(std::vector<std::span<std::byte>> places) : places_(std::move(places)) {
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error&) {  // then it is slower
  }
}

PagesAhead::~PagesAhead() {
  enough_ = true;
  if (thread_.joinable()) thread_.join();
}

void PagesAhead::work() {
#if defined(MADV_POPULATE_WRITE)
  for (const std::span<std::byte> place : places_) {
    const auto start = reinterpret_cast<std::uintptr_t>(place.data()) / kPage * kPage;
    const auto end = reinterpret_cast<std::uintptr_t>(place.data() + place.size());
    for (std::uintptr_t at = start; at < end; at += kStep) {
      const std::size_t size = std::min(kStep, end - at);
      if (enough_ || ::madvise(reinterpret_cast<void*>(at), size, MADV_POPULATE_WRITE) != 0) return;
    }
  }
#endif
}

}  // namespace strata
