// Follows the reading of weights into memory, for progress displays: while a LoadWatch lives, what
// this thread loads (Engine::open and the like) tells it the bytes read and all of them, where no
// other progress was asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace strata {

class LoadWatch {
 public:
  using Tell = std::function<void(std::uint64_t done, std::uint64_t all)>;
  explicit LoadWatch(Tell tell) : tell_(std::move(tell)), before_(std::exchange(current_, this)) {}
  ~LoadWatch() { current_ = before_; }
  LoadWatch(const LoadWatch&) = delete;
  LoadWatch& operator=(const LoadWatch&) = delete;

  // This thread's; null: nobody looks.
  static const LoadWatch* current() { return current_; }
  void tell(std::uint64_t done, std::uint64_t all) const { tell_(done, all); }
  // What tells this thread's watch; empty when nobody looks.
  static Tell told() {
    if (current_ == nullptr) return {};
    return [watch = current_](std::uint64_t done, std::uint64_t all) { watch->tell(done, all); };
  }

 private:
  static inline thread_local const LoadWatch* current_ = nullptr;
  Tell tell_;
  const LoadWatch* before_;
};

}  // namespace strata
