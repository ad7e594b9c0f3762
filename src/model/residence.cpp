#include "model/residence.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <mutex>
#include <string>

#include "base/bulk_reader.h"
#include "base/clock.h"
#include "base/large_memory.h"
#include "base/log.h"
#include "base/pages_ahead.h"
#include "base/sizes.h"
#include "base/storage.h"
#include "base/thread_pool.h"

namespace strata {
namespace {

constexpr std::size_t kReadBytes = std::size_t{4} << 20;
constexpr std::uint32_t kDepth = 16;
// Behind the last tensor: kernels ask for what comes next without looking where the end is.
constexpr std::size_t kBehind = std::size_t{1} << 20;
constexpr double kPatience = 60;        // seconds
constexpr double kProgressEvery = 0.1;  // seconds

// Tensors that lie side by side in a file are read as one range of whole pages.
struct Run {
  std::uint32_t part = 0;
  std::uint64_t first = 0, end = 0;  // in the file; first is a page's
  std::size_t place = 0;             // in the new memory
  std::vector<TensorView*> tensors;
};

std::vector<Run> runs_of(GgufModel& model, const std::function<bool(const TensorView&)>& wanted) {
  constexpr std::uint64_t kMostGap = std::uint64_t{1} << 16;
  std::vector<TensorView*> tensors;
  for (TensorView& tensor : model.tensors)
    if (!tensor.data.empty() && wanted(tensor)) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(), [](const TensorView* a, const TensorView* b) {
    return a->part != b->part ? a->part < b->part : a->file_offset < b->file_offset;
  });
  std::vector<Run> runs;
  for (TensorView* tensor : tensors) {
    const std::uint64_t end = tensor->file_offset + tensor->data.size();
    if (runs.empty() || runs.back().part != tensor->part ||
        tensor->file_offset > runs.back().end + kMostGap) {
      Run& run = runs.emplace_back();
      run.part = tensor->part;
      run.first = tensor->file_offset / kReadPage * kReadPage;
    }
    runs.back().end = std::max(runs.back().end, end);
    runs.back().tensors.push_back(tensor);
  }
  return runs;
}

struct Piece {
  std::uint32_t part = 0;
  std::uint64_t offset = 0;  // a page's
  std::span<std::byte> into;
  std::size_t wanted = 0;  // bytes that the file must have
};

// Whether a piece of a run can be had without the disk. A piece may reach into what is between
// tensors; the first tensor that touches it speaks for it.
bool cached(const Run& run, std::uint64_t offset, std::size_t bytes) {
  for (const TensorView* tensor : run.tensors) {
    const std::uint64_t from = std::max(offset, tensor->file_offset);
    const std::uint64_t to = std::min(offset + bytes, tensor->file_offset + tensor->data.size());
    if (from < to)
      return cached_share(tensor->data.subspan(from - tensor->file_offset, to - from)) > 0.9;
  }
  return false;
}

class Loading {
 public:
  Loading(FileSystem& files, const GgufModel& model, const LoadProgress& progress)
      : files_(files), model_(model), progress_(progress) {}

  void add(const Run& run, std::byte* memory) {
    for (std::uint64_t at = run.first; at < run.end; at += kReadBytes) {
      const auto wanted =
          static_cast<std::size_t>(std::min<std::uint64_t>(kReadBytes, run.end - at));
      const std::size_t size = (wanted + kReadPage - 1) / kReadPage * kReadPage;
      (cached(run, at, wanted) ? cached_ : cold_)
          .push_back({run.part, at, {memory + run.place + (at - run.first), size}, wanted});
      total_ += wanted;
    }
  }

  Status read() {
    const double start = monotonic_seconds();
    STRATA_TRY(read_cached());
    STRATA_TRY(read_cold());
    tell(true);
    const double seconds = std::max(monotonic_seconds() - start, 1e-6);
    log_debug("read {} MiB in {:.1f} s, {:.2f} GB/s, {} MiB of them from the page cache",
              total_ >> 20, seconds, 1e-9 * static_cast<double>(total_) / seconds,
              bytes_of(cached_) >> 20);
    return {};
  }

 private:
  static std::uint64_t bytes_of(const std::vector<Piece>& pieces) {
    std::uint64_t bytes = 0;
    for (const Piece& piece : pieces) bytes += piece.wanted;
    return bytes;
  }

  void tell(bool last = false) {
    const double now = monotonic_seconds();
    if (!progress_ || (!last && now - told_ < kProgressEvery)) return;
    told_ = now;
    progress_(done_, total_);
  }

  // In batches, so that this thread can tell how far it is.
  Status read_cached() {
    constexpr std::size_t kBatch = 64;
    if (cached_.empty()) return {};
    std::vector<std::unique_ptr<File>> parts;
    for (const std::string& path : model_.paths) {
      STRATA_ASSIGN(parts.emplace_back(), files_.open(path));
    }
    ThreadPool pool(0);
    std::mutex mutex;
    Status status;
    for (std::size_t first = 0; first < cached_.size() && status; first += kBatch) {
      const auto batch =
          std::span(cached_).subspan(first, std::min(kBatch, cached_.size() - first));
      pool.run(batch.size(), [&](std::size_t i) {
        const Piece& piece = batch[i];
        Status read = parts[piece.part]->read_exact(piece.offset, piece.into.first(piece.wanted));
        if (read) return;
        const std::lock_guard lock(mutex);
        if (status) status = std::move(read);
      });
      for (const Piece& piece : batch) done_ += piece.wanted;
      tell();
    }
    return status;
  }

  Status read_cold() {
    if (cold_.empty()) return {};
    STRATA_ASSIGN(const auto reader, BulkReader::open(files_, model_.paths, {true, kDepth}));
    for (const Piece& piece : cold_)
      reader->start({0, piece.part, piece.offset, piece.into, piece.wanted});
    std::vector<std::span<std::byte>> places;
    for (const Piece& piece : cold_) places.push_back(piece.into);
    const PagesAhead pages(std::move(places));
    const std::uint64_t before = done_;
    for (double heard = monotonic_seconds(); reader->busy(); tell()) {
      const auto ended = reader->wait(std::chrono::seconds(1));
      for (const BulkReader::Ended& read : ended) STRATA_TRY(read.status);
      done_ = before + reader->bytes();
      if (!ended.empty()) heard = monotonic_seconds();
      if (monotonic_seconds() - heard > kPatience)
        return fail(ErrorCode::io, "the disk has not answered for {:.0f} s", kPatience);
    }
    log_debug("weights were read with {}", reader->description());
    return {};
  }

  FileSystem& files_;
  const GgufModel& model_;
  const LoadProgress& progress_;
  std::vector<Piece> cached_, cold_;
  std::uint64_t done_ = 0, total_ = 0;
  double told_ = 0;
};

}  // namespace

Result<Residence> residence_from(std::string_view text) {
  if (text == "auto") return Residence::automatic;
  if (text == "ram") return Residence::ram;
  if (text == "map") return Residence::mapped;
  return fail(ErrorCode::invalid_argument, "weights are kept 'auto', 'ram' or 'map', not '{}'",
              text);
}

std::uint64_t ExpertRam::of(std::uint64_t expert_bytes) const {
  if (kind == Kind::bytes) return bytes;
  return kind == Kind::all ? expert_bytes
                           : static_cast<std::uint64_t>(share * static_cast<double>(expert_bytes));
}

Result<ExpertRam> expert_ram_from(std::string_view text) {
  constexpr std::string_view kAllowed =
      "memory for experts is all, a size above 0 such as 12G, or a part above 0% up to 100% such "
      "as 25%";
  if (text == "all") return ExpertRam();
  if (!text.ends_with('%')) {
    const auto bytes = parse_size(text);
    if (!bytes) return fail(ErrorCode::invalid_argument, "{}; {}", bytes.error().message, kAllowed);
    if (*bytes == 0) return fail(ErrorCode::invalid_argument, "'{}' is none; {}", text, kAllowed);
    ExpertRam ram;
    ram.kind = ExpertRam::Kind::bytes;
    ram.bytes = *bytes;
    return ram;
  }
  double percent = 0;
  const std::string_view digits = text.substr(0, text.size() - 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), percent);
  if (error != std::errc() || end != digits.data() + digits.size() ||
      !(percent > 0 && percent <= 100)) {
    return fail(ErrorCode::invalid_argument, "'{}' is no part; {}", text, kAllowed);
  }
  ExpertRam ram;
  ram.kind = ExpertRam::Kind::share;
  ram.share = percent / 100;
  return ram;
}

bool is_expert_tensor(std::string_view name) {
  return name.ends_with("_exps.weight");
}

Status load_into_memory(FileSystem& files, GgufModel& model, const LoadInto& into,
                        const std::function<bool(const TensorView&)>& wanted) {
  try {
    std::vector<Run> runs = runs_of(model, wanted);
    if (runs.empty()) return {};
    std::size_t total = 0;
    for (Run& run : runs) {
      run.place = total;
      total += (run.end - run.first + kReadPage - 1) / kReadPage * kReadPage;
    }
    STRATA_ASSIGN(const std::shared_ptr<LargeMemory> memory,
                  LargeMemory::allocate(total + kBehind, "the weights"));
    if (into.lock) STRATA_TRY(memory->lock());
    Loading loading(files, model, into.progress);
    for (const Run& run : runs) loading.add(run, memory->data());
    STRATA_TRY(loading.read());
    model.owners.push_back(memory);
    for (const Run& run : runs)
      for (TensorView* tensor : run.tensors)
        tensor->data = {memory->data() + run.place + (tensor->file_offset - run.first),
                        tensor->data.size()};
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::exhausted, "no memory for a list of what is to be loaded");
  }
  return {};
}

}  // namespace strata
