// Gives pages to parts of an anonymous mapping ahead of the reads into them, in a thread of its
// own: else whoever starts a read zeroes its pages first, and the disk rests meanwhile.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <thread>
#include <vector>

namespace strata {

class PagesAhead {
 public:
  // `places` in the order of the reads; they must stay mapped while this lives. What they hold is
  // left as it is. Where the system cannot, or has no thread, nothing happens.
  explicit PagesAhead(std::vector<std::span<std::byte>> places);
  ~PagesAhead();  // leaves the rest to the reads
  PagesAhead(const PagesAhead&) = delete;
  PagesAhead& operator=(const PagesAhead&) = delete;

 private:
  void work();
  std::vector<std::span<std::byte>> places_;
  std::atomic<bool> enough_ = false;
  std::thread thread_;
};

}  // namespace strata
