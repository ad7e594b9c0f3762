// Reads rows of fixed size from one place of a file, many at a time: a queue of page reads, one map
// of the rows that are under way, and a cache of those that came.
//
// A row is in the cache, under way, or absent. Asking for it copies it, joins the read, or starts
// one; whether the first to ask was a request or a prefetch makes no difference, and no row is ever
// read twice at the same time. Rows of one request that share or neighbour a page are read
// together, in the order of the file.
//
// One thread of the reader's own drives the queue. All state is behind one mutex. Requests
// (tickets) own their keys and bytes together with the reads that still serve them.
#pragma once

#include <chrono>
#include <memory>
#include <span>

#include "base/file.h"
#include "ple/row_table.h"

namespace strata {

inline constexpr std::size_t kMaxRequestRows = std::size_t{1} << 20;

struct RowPlaces {
  std::uint64_t offset = 0;  // of row 0 in the file
  std::uint64_t rows = 0;
  std::size_t row_bytes = 0;
};

struct RowReaderOptions {
  ReadQueueOptions queue;         // slot_bytes is raised where a row needs more
  std::uint64_t cache_bytes = 0;  // the cache and the queue's buffers
  std::uint32_t keep_alive_ms = 0;
  std::chrono::milliseconds patience{60'000};  // the longest a ticket waits
};

class RowTicket {
 public:
  RowTicket(RowTicket&&) noexcept = default;
  RowTicket& operator=(RowTicket&& other) noexcept;
  ~RowTicket();  // leaves the reads to themselves

  // Until all rows are there or have failed. The first failure names row, place and reason.
  Status wait();
  // The row of the index-th key; after a wait() without failure.
  std::span<const std::byte> row(std::size_t index) const;
  const RowCounts& counts() const;  // complete after wait()

 private:
  friend class RowReader;
  struct State;
  explicit RowTicket(std::shared_ptr<State> state) : state_(std::move(state)) {}
  void leave();
  std::shared_ptr<State> state_;
};

class RowReader {
 public:
  static Result<std::unique_ptr<RowReader>> open(std::unique_ptr<File> file,
                                                 const RowPlaces& places,
                                                 const RowReaderOptions& options);
  // The most that open() takes for its cache and the buffers of its reads; and for these alone.
  static std::uint64_t memory_bytes(const RowPlaces& places, const RowReaderOptions& options);
  static std::uint64_t buffer_bytes(const RowPlaces& places, const RowReaderOptions& options);
  // Ends the reads under way; tickets that still wait get an error.
  ~RowReader();
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;

  // Thread safe, and never wait for the disk.
  Result<RowTicket> request(std::span<const std::uint64_t> keys);
  void prefetch(std::span<const std::uint64_t> keys);
  TableStats stats() const;
  void reset();  // empties cache and counters; not while somebody waits

 private:
  friend class RowTicket;
  struct Shared;
  explicit RowReader(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  std::shared_ptr<Shared> shared_;
};

}  // namespace strata
