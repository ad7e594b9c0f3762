// Rows that were read, within a budget of bytes that counts everything the cache holds. Sets of
// eight rows; inside a set a row that was asked for again gets a second chance. Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"

namespace strata {

class RowCache {
 public:
  // Of a table of `rows` rows: more than they take is not used. A budget too small for one set
  // makes a cache that holds nothing.
  static Result<RowCache> create(std::uint64_t budget, std::size_t row_bytes, std::uint64_t rows);
  // What create() would make of them, in bytes.
  static std::uint64_t bytes_for(std::uint64_t budget, std::size_t row_bytes, std::uint64_t rows) {
    return sets_for(budget, row_bytes, rows) * set_bytes(row_bytes);
  }

  std::uint64_t capacity() const { return sets() * kWays; }  // rows
  std::uint64_t bytes() const { return sets() * set_bytes(row_bytes_); }

  bool contains(std::uint64_t row) const;
  struct Found {
    const std::byte* bytes = nullptr;  // null: not here
    bool first_use = false;            // it was prefetched and nobody had asked for it before
  };
  Found find(std::uint64_t row);
  // Returns true if a prefetched row that nobody had asked for had to go. The row must not be here.
  bool insert(std::uint64_t row, std::span<const std::byte> bytes, bool prefetched);
  void clear();

 private:
  static constexpr std::size_t kWays = 8;
  static constexpr std::uint64_t kEmpty = UINT64_MAX;
  static constexpr std::uint64_t kUsed = 1, kUnasked = 2;  // low bits of a tag; the row above them

  static std::size_t set_bytes(std::size_t row_bytes) {
    return kWays * (sizeof(std::uint64_t) + row_bytes) + 1;
  }
  static std::uint64_t sets_for(std::uint64_t budget, std::size_t row_bytes, std::uint64_t rows);
  std::size_t sets() const { return hands_.size(); }
  std::size_t set_of(std::uint64_t row) const;
  std::byte* place(std::size_t way) const { return rows_.get() + way * row_bytes_; }

  std::size_t row_bytes_ = 0;
  std::vector<std::uint64_t> tags_;  // [sets * kWays]
  std::vector<std::uint8_t> hands_;  // [sets] the way that is looked at next for room
  std::unique_ptr<std::byte[]> rows_;
};

}  // namespace strata
