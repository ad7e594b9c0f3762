// The table of one n-gram layer: fixed-width rows of float values, whatever their stored form and
// wherever they lie.
//
// Rows are asked for the moment their ids are known and collected where they are needed; between
// the two the table may read them from the disk. A RowRequest owns all that its reads touch: its
// keys, the bytes of its rows and its completion. It may be dropped at any time, also with reads in
// flight, and outlive its table. A row that cannot be read fails the requests that wait for it and
// nothing else; asking again reads again.
//
// Tables are thread safe. A RowRequest belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "gguf/gguf.h"

namespace strata {

// How the rows of requests were found. Repetitions inside one request count once.
struct RowCounts {
  std::uint64_t requested = 0;
  std::uint64_t cache_hits = 0;       // copied when asked for
  std::uint64_t joined = 0;           // a read for them was under way already
  std::uint64_t prefetched_used = 0;  // of the hits and joins: thanks to prefetch()
  std::uint64_t read = 0;             // the disk was asked for them
  std::uint64_t failed = 0;
  double wait_seconds = 0;  // exposed: collect() had to wait this long

  RowCounts& operator+=(const RowCounts& other);
};

// What a table has done since it was opened or reset.
struct TableStats {
  std::string how;          // it is read: "io_uring, direct, registered buffers"
  std::uint64_t depth = 0;  // reads under way at most; 0: it is not read but mapped
  std::uint64_t requests = 0;
  RowCounts rows;                      // of all requests
  std::uint64_t prefetched = 0;        // rows the disk was asked for ahead of any request
  std::uint64_t prefetch_dropped = 0;  // refused because they were too many, or lost before use
  std::uint64_t reads = 0, read_bytes = 0;
  std::uint64_t retries = 0;     // reads that ended early and were begun again
  std::uint64_t cancelled = 0;   // reads nobody wanted any more before they began
  std::uint64_t keep_alive = 0;  // reads that only keep the disk awake; not among `reads`
  // Microseconds: of a read, from its start to its end; of a request, exposed (RowCounts).
  std::uint64_t read_p50 = 0, read_p99 = 0;
  std::uint64_t wait_p50 = 0, wait_p99 = 0, wait_max = 0;
  std::uint64_t cache_rows = 0;    // that fit
  std::uint64_t memory_bytes = 0;  // cache and buffers
};

class RowRequest {
 public:
  virtual ~RowRequest() = default;
  // Waits for the rows and decodes them, in the order they were asked for; out: [ids x width()].
  // The error of the first row that failed names the row, its place in the file and the reason.
  // Only once.
  virtual Status collect(std::span<float> out) = 0;
  virtual const RowCounts& counts() const = 0;  // complete after collect()
};

class RowTable {
 public:
  virtual ~RowTable() = default;
  virtual std::uint64_t rows() const = 0;
  virtual std::uint32_t width() const = 0;

  // Starts reading rows; ids must be below rows(). Never waits for the disk.
  virtual Result<std::unique_ptr<RowRequest>> request(std::span<const std::uint64_t> ids) = 0;
  // Rows that will probably be asked for soon. Advice: dropping it changes nothing but time.
  virtual void prefetch(std::span<const std::uint64_t> ids) { (void)ids; }

  virtual TableStats stats() const { return {}; }
  virtual void reset() {}  // empties cache and counters, for measuring; not while a request waits

  // request() and collect() in one.
  Status gather(std::span<const std::uint64_t> ids, std::span<float> out);
};

// How a row is stored: a block format, F32, F16, BF16, or FP8 with one scale for the whole table.
class RowFormat {
 public:
  // I8 together with strata.ple.format = "f8_e4m3" and strata.ple.scale is the FP8 form.
  static Result<RowFormat> of(const Metadata& metadata, const TensorView& tensor);

  std::uint32_t width() const { return width_; }  // values
  std::size_t row_bytes() const { return row_bytes_; }
  // `row` has row_bytes() bytes, `out` width() places.
  Status decode_row(std::span<const std::byte> row, std::span<float> out) const;

 private:
  TensorType type_ = TensorType::F32;
  std::uint32_t width_ = 0;
  std::size_t row_bytes_ = 0;
  bool fp8_ = false;
  float scale_ = 1.0f;
};

// A table that is read from the mapped model file. `how` goes into its stats; the exposed wait is
// the time until all pages of a request are there.
Result<std::shared_ptr<RowTable>> open_mapped_table(std::shared_ptr<const GgufModel> model,
                                                    const TensorView& tensor,
                                                    std::string how = "mapped");

}  // namespace strata
