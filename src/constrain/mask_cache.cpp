#include "constrain/mask_cache.h"

namespace strata::constrain {
namespace {

constexpr std::size_t kOverhead = 128;  // of an entry

std::size_t bytes_of(const SharedMask& mask) {
  return mask->words.size() * sizeof(std::uint64_t) + kOverhead;
}

}  // namespace

SharedMask MaskCache::find(std::uint64_t key) {
  const std::lock_guard guard(lock_);
  if (const auto it = young_.find(key); it != young_.end()) return it->second;
  const auto it = old_.find(key);
  if (it == old_.end()) return nullptr;
  SharedMask mask = it->second;
  old_bytes_ -= bytes_of(mask);
  old_.erase(it);
  add(key, mask);
  return mask;
}

void MaskCache::keep(std::uint64_t key, SharedMask mask) {
  const std::lock_guard guard(lock_);
  add(key, std::move(mask));
}

void MaskCache::add(std::uint64_t key, SharedMask mask) {
  const std::size_t size = bytes_of(mask);
  if (size > most_bytes_ / 2) return;
  if (young_bytes_ + size > most_bytes_ / 2) {
    old_ = std::move(young_);
    old_bytes_ = young_bytes_;
    young_.clear();
    young_bytes_ = 0;
  }
  if (young_.emplace(key, std::move(mask)).second) young_bytes_ += size;
}

std::size_t MaskCache::bytes() const {
  const std::lock_guard guard(lock_);
  return young_bytes_ + old_bytes_;
}

}  // namespace strata::constrain
