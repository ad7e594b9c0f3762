// Masks that were made before, by what they were made from. Bounded; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace strata::constrain {

struct TokenMask {
  std::vector<std::uint64_t> words;
  bool exact = true;  // false: tokens that were not looked at are in it
};
using SharedMask = std::shared_ptr<const TokenMask>;

class MaskCache {
 public:
  explicit MaskCache(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  SharedMask find(std::uint64_t key);  // null if it is not there
  void keep(std::uint64_t key, SharedMask mask);
  std::size_t bytes() const;

 private:
  using Masks = std::unordered_map<std::uint64_t, SharedMask>;
  void add(std::uint64_t key, SharedMask mask);

  const std::size_t most_bytes_;
  mutable std::mutex lock_;
  // What is not asked for while the young ones fill their half goes with the old ones.
  Masks young_, old_;
  std::size_t young_bytes_ = 0, old_bytes_ = 0;
};

}  // namespace strata::constrain
