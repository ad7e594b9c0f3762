// Opens an n-gram table the way it is to be read, and says which way that is and why.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/file.h"
#include "ple/row_reader.h"
#include "ple/row_table.h"

namespace strata {

enum class TableMode {
  automatic,  // mapped if the whole table fits into the cache's budget, else direct
  direct,     // io_uring past the page cache; threads, or buffered reads, where there is none
  threads,    // the same with threads that call pread
  mapped,     // page faults of the mapped file, when the rows are needed
  resident,   // mapped, read into memory at the start and locked there
};
std::string_view to_string(TableMode mode);
// "auto", "direct", "threads", "mmap", "resident"
Result<TableMode> table_mode_named(std::string_view name);

inline constexpr std::uint64_t kMaxTableCache = std::uint64_t{1} << 40;

struct TableOptions {
  TableMode mode = TableMode::automatic;
  std::uint64_t cache_bytes = std::uint64_t{128} << 20;  // row cache and read buffers
  std::uint32_t queue_depth = 64;                        // reads under way, 1..kMaxReadDepth
  // Milliseconds of silence after which one page is read so that the disk does not fall asleep, for
  // a minute after the last request; 0 = never.
  std::uint32_t keep_alive_ms = 0;
  std::chrono::milliseconds patience{60'000};  // the longest a request waits for its rows
};

// Of a table that is read: its rows' cache and the buffers of its reads.
struct TableMemory {
  std::uint64_t bytes = 0;    // in all; of a mapped table what of it may stay in memory
  std::uint64_t buffers = 0;  // of these: what a cache of no rows takes, too
};
// The most that open_table() takes. `invalid_argument` where the options are out of range.
Result<TableMemory> table_memory(const Metadata& metadata, const TensorView& tensor,
                                 const TableOptions& options);

// `files` is where the model was opened from, here and below.
Result<std::shared_ptr<RowTable>> open_table(FileSystem& files,
                                             std::shared_ptr<const GgufModel> model,
                                             const TensorView& tensor, const TableOptions& options);

// The reader under a table of mode direct or threads, for measuring and checking it.
Result<std::unique_ptr<RowReader>> open_row_reader(FileSystem& files, const GgufModel& model,
                                                   const TensorView& tensor,
                                                   const TableOptions& options);

}  // namespace strata
