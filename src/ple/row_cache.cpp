#include "ple/row_cache.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace strata {

std::uint64_t RowCache::sets_for(std::uint64_t budget, std::size_t row_bytes, std::uint64_t rows) {
  constexpr std::uint64_t kMaxSets = std::uint64_t{1} << 32;
  return std::min({budget / set_bytes(row_bytes), rows / kWays + 1, kMaxSets});
}

Result<RowCache> RowCache::create(std::uint64_t budget, std::size_t row_bytes, std::uint64_t rows) {
  RowCache cache;
  cache.row_bytes_ = row_bytes;
  const auto sets = static_cast<std::size_t>(sets_for(budget, row_bytes, rows));
  try {
    cache.tags_.assign(sets * kWays, kEmpty);
    cache.hands_.assign(sets, 0);
    cache.rows_.reset(new std::byte[sets * kWays * row_bytes]);  // pages come as rows do
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::exhausted, "no memory for an n-gram cache of {} bytes; ask for less",
                budget);
  }
  return cache;
}

std::size_t RowCache::set_of(std::uint64_t row) const {
  const std::uint64_t mixed = row * 0x9E3779B97F4A7C15u;
  return static_cast<std::size_t>(((mixed >> 32) * sets()) >> 32);
}

bool RowCache::contains(std::uint64_t row) const {
  if (sets() == 0) return false;
  const auto first = tags_.begin() + static_cast<std::ptrdiff_t>(set_of(row) * kWays);
  return std::any_of(first, first + kWays,
                     [&](std::uint64_t tag) { return tag != kEmpty && tag >> 2 == row; });
}

RowCache::Found RowCache::find(std::uint64_t row) {
  if (sets() == 0) return {};
  const std::size_t first = set_of(row) * kWays;
  for (std::size_t way = first; way < first + kWays; ++way) {
    std::uint64_t& tag = tags_[way];
    if (tag == kEmpty || tag >> 2 != row) continue;
    const bool first_use = (tag & kUnasked) != 0;
    tag = row << 2 | kUsed;
    return {place(way), first_use};
  }
  return {};
}

bool RowCache::insert(std::uint64_t row, std::span<const std::byte> bytes, bool prefetched) {
  if (sets() == 0) return prefetched;
  const std::size_t set = set_of(row), first = set * kWays;
  std::size_t way = first;
  while (way < first + kWays && tags_[way] != kEmpty) ++way;
  if (way == first + kWays) {
    std::uint8_t& hand = hands_[set];
    while ((tags_[first + hand] & kUsed) != 0) {
      tags_[first + hand] &= ~kUsed;
      hand = (hand + 1) % kWays;
    }
    way = first + hand;
    hand = (hand + 1) % kWays;
  }
  const bool lost = tags_[way] != kEmpty && (tags_[way] & kUnasked) != 0;
  tags_[way] = row << 2 | (prefetched ? kUnasked : 0);
  std::memcpy(place(way), bytes.data(), row_bytes_);
  return lost;
}

void RowCache::clear() {
  std::fill(tags_.begin(), tags_.end(), kEmpty);
  std::fill(hands_.begin(), hands_.end(), std::uint8_t{0});
}

}  // namespace strata
