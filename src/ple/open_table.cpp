#include "ple/open_table.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/clock.h"
#include "base/log.h"
#include "base/storage.h"

namespace strata {
namespace {

using Method = ReadQueueOptions::Method;

constexpr std::array<std::string_view, 5> kModes = {"auto", "direct", "threads", "mmap",
                                                    "resident"};
constexpr double kSlowRead = 0.003;  // seconds: no flash takes longer for one page, every arm does

class ReaderRequest final : public RowRequest {
 public:
  ReaderRequest(RowTicket ticket, const RowFormat& format, std::size_t keys)
      : ticket_(std::move(ticket)), format_(format), keys_(keys) {}

  Status collect(std::span<float> out) override {
    const std::size_t width = format_.width();
    if (out.size() != keys_ * width) {
      return fail(ErrorCode::internal, "n-gram rows: {} places for {} rows of {}", out.size(),
                  keys_, width);
    }
    STRATA_TRY(ticket_.wait());
    for (std::size_t i = 0; i < keys_; ++i)
      STRATA_TRY(format_.decode_row(ticket_.row(i), out.subspan(i * width, width)));
    return {};
  }
  const RowCounts& counts() const override { return ticket_.counts(); }

 private:
  RowTicket ticket_;
  RowFormat format_;
  std::size_t keys_;
};

class ReaderTable final : public RowTable {
 public:
  ReaderTable(std::unique_ptr<RowReader> reader, std::uint64_t rows, const RowFormat& format)
      : reader_(std::move(reader)), rows_(rows), format_(format) {}

  std::uint64_t rows() const override { return rows_; }
  std::uint32_t width() const override { return format_.width(); }
  Result<std::unique_ptr<RowRequest>> request(std::span<const std::uint64_t> ids) override {
    STRATA_ASSIGN(RowTicket ticket, reader_->request(ids));
    return std::make_unique<ReaderRequest>(std::move(ticket), format_, ids.size());
  }
  void prefetch(std::span<const std::uint64_t> ids) override { reader_->prefetch(ids); }
  TableStats stats() const override { return reader_->stats(); }
  void reset() override { reader_->reset(); }

 private:
  std::unique_ptr<RowReader> reader_;
  std::uint64_t rows_;
  RowFormat format_;
};

// Seconds that a few reads of one page take, one after the other, each at another place.
Result<double> try_reads(const File& file, ReadQueueOptions options, const RowPlaces& places,
                         std::uint32_t reads) {
  options.depth = 1;
  options.slot_bytes = kReadPage;
  STRATA_ASSIGN(const auto queue, file.queue_reads(options));
  const std::uint64_t bytes = places.rows * places.row_bytes;
  double longest = 0;
  for (std::uint32_t i = 0; i < reads; ++i) {
    const double start = monotonic_seconds();
    queue->start(0, (places.offset + bytes / reads * i) / kReadPage * kReadPage, kReadPage);
    std::span<const ReadQueue::Done> done;
    while ((done = queue->wait(std::chrono::seconds(10))).empty()) {
      if (monotonic_seconds() - start > 30)
        return fail(ErrorCode::io, "'{}' does not answer reads", file.path());
    }
    // File systems that take O_DIRECT at open may still refuse it here.
    if (done[0].result == -EINVAL || done[0].result == -EOPNOTSUPP)
      return fail(ErrorCode::unsupported, "'{}' refuses direct reads", file.path());
    longest = std::max(longest, monotonic_seconds() - start);
  }
  return longest;
}

// The best queue that this file and this kernel have, beginning with what is asked for.
Result<ReadQueueOptions> choose_queue(const File& file, const RowPlaces& places, Method wanted,
                                      std::uint32_t depth) {
  ReadQueueOptions options;
  options.depth = depth;
  Error last;
  for (const bool direct : {true, false}) {
    for (const Method method : {wanted, Method::threads}) {
      options.method = method;
      options.depth = method == Method::threads ? std::min(depth, kMaxReadThreads) : depth;
      options.direct = direct;
      const auto tried = try_reads(file, options, places, 1);
      if (tried) return options;
      if (tried.error().code != ErrorCode::unsupported) return tl::unexpected(tried.error());
      if (tried.error().message != last.message)
        log_info("n-gram table: {}; trying another way", tried.error().message);
      last = tried.error();
    }
  }
  return tl::unexpected(last);
}

void warn_of_slow_disk(const File& file, const RowPlaces& places, const ReadQueueOptions& queue) {
  if (!says_rotational(file.path()).value_or(false)) return;
  const auto longest = try_reads(file, queue, places, 16);
  if (!longest || *longest < kSlowRead) return;  // a virtual disk that only says so
  log_warning(
      "the n-gram table '{}' lies on a disk that turns: a read took {:.0f} ms, and every token "
      "needs "
      "several; move the file to an SSD, or use --ngram-table resident if memory allows",
      file.path(), *longest * 1000);
}

Status make_table_resident(const TensorView& tensor) {
  const std::size_t bytes = tensor.data.size();
  if (bytes > physical_memory()) {
    return fail(ErrorCode::exhausted,
                "the n-gram table has {} bytes but this machine only {} bytes of memory; use "
                "--ngram-table direct",
                bytes, physical_memory());
  }
  const double start = monotonic_seconds();
  STRATA_ASSIGN(const bool locked, make_resident(tensor.data));
  log_info("n-gram table: {:.1f} MB read into memory in {:.1f} s", double(bytes) / 1e6,
           monotonic_seconds() - start);
  if (!locked) {
    log_warning(
        "the n-gram table's {:.1f} MB could not be locked in memory (see ulimit -l); pages "
        "of it may go when memory is short",
        double(bytes) / 1e6);
  }
  return {};
}

Status check_range(const TableOptions& options) {
  if (options.queue_depth > 0 && options.queue_depth <= kMaxReadDepth &&
      options.cache_bytes <= kMaxTableCache)
    return {};
  return fail(ErrorCode::invalid_argument,
              "an n-gram table with {} reads under way and a cache of {} bytes; allowed are 1 to "
              "{} and at most {}",
              options.queue_depth, options.cache_bytes, kMaxReadDepth, kMaxTableCache);
}

bool is_mapped(const TensorView& tensor, const TableOptions& options) {
  const bool small = tensor.data.size() <= options.cache_bytes;
  return options.mode == TableMode::mapped || options.mode == TableMode::resident ||
         (options.mode == TableMode::automatic && small);
}

}  // namespace

std::string_view to_string(TableMode mode) {
  return kModes[static_cast<std::size_t>(mode)];
}

Result<TableMode> table_mode_named(std::string_view name) {
  const auto at = std::find(kModes.begin(), kModes.end(), name);
  if (at != kModes.end()) return static_cast<TableMode>(at - kModes.begin());
  return fail(ErrorCode::invalid_argument,
              "'{}' is no way to read the n-gram table; there are auto, direct, threads, mmap and "
              "resident",
              name);
}

Result<TableMemory> table_memory(const Metadata& metadata, const TensorView& tensor,
                                 const TableOptions& options) {
  STRATA_TRY(check_range(options));
  const std::uint64_t size = tensor.data.size();
  if (options.mode == TableMode::resident) return TableMemory{size, size};
  if (is_mapped(tensor, options)) return TableMemory{std::min(size, options.cache_bytes), 0};
  STRATA_ASSIGN(const RowFormat format, RowFormat::of(metadata, tensor));
  const RowPlaces places{tensor.file_offset, tensor.ne[1], format.row_bytes()};
  RowReaderOptions reader;
  reader.queue.depth = options.queue_depth;
  reader.cache_bytes = options.cache_bytes;
  return TableMemory{RowReader::memory_bytes(places, reader),
                     RowReader::buffer_bytes(places, reader)};
}

Result<std::unique_ptr<RowReader>> open_row_reader(FileSystem& files, const GgufModel& model,
                                                   const TensorView& tensor,
                                                   const TableOptions& options) {
  STRATA_ASSIGN(const RowFormat format, RowFormat::of(model.metadata, tensor));
  STRATA_TRY(check_range(options));
  STRATA_ASSIGN(std::unique_ptr<File> file, files.open(model.paths[tensor.part]));
  const RowPlaces places{tensor.file_offset, tensor.ne[1], format.row_bytes()};
  RowReaderOptions reader_options;
  const Method method = options.mode == TableMode::threads ? Method::threads : Method::ring;
  STRATA_ASSIGN(reader_options.queue, choose_queue(*file, places, method, options.queue_depth));
  reader_options.cache_bytes = options.cache_bytes;
  reader_options.keep_alive_ms = options.keep_alive_ms;
  reader_options.patience = options.patience;
  warn_of_slow_disk(*file, places, reader_options.queue);
  return RowReader::open(std::move(file), places, reader_options);
}

Result<std::shared_ptr<RowTable>> open_table(FileSystem& files,
                                             std::shared_ptr<const GgufModel> model,
                                             const TensorView& tensor,
                                             const TableOptions& options) {
  if (is_mapped(tensor, options)) {
    const bool resident = options.mode == TableMode::resident;
    if (resident) STRATA_TRY(make_table_resident(tensor));
    return open_mapped_table(std::move(model), tensor, resident ? "resident" : "mapped");
  }
  STRATA_ASSIGN(const RowFormat format, RowFormat::of(model->metadata, tensor));
  auto reader = open_row_reader(files, *model, tensor, options);
  if (!reader) {
    return with_context(std::move(reader).error(), fmt::format("n-gram table '{}'", tensor.name));
  }
  const TableStats stats = (*reader)->stats();
  log_info(
      "n-gram table: {:.1f} MB read from '{}' by {}, {} reads under way at most, {} rows cached "
      "({:.1f} MB)",
      double(tensor.data.size()) / 1e6, model->paths[tensor.part], stats.how, stats.depth,
      stats.cache_rows, double(stats.memory_bytes) / 1e6);
  if (options.cache_bytes > 0 && stats.memory_bytes > options.cache_bytes) {
    log_warning(
        "n-gram table: the buffers of {} reads alone take {:.1f} MB of a cache of {:.1f} MB, so no "
        "rows are kept; ask for a larger cache or for fewer reads under way",
        stats.depth, double(stats.memory_bytes) / 1e6, double(options.cache_bytes) / 1e6);
  }
  return std::make_shared<ReaderTable>(std::move(*reader), tensor.ne[1], format);
}

}  // namespace strata
