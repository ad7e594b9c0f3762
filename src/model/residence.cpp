#include "model/residence.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <mutex>
#include <string>

#include "base/checked.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread_pool.h"
#include "model/load_watch.h"

namespace strata {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kAlignment = 4096;  // of each tensor
constexpr std::size_t kReadBytes = std::size_t{8} << 20;
// Behind the last tensor: kernels ask for what comes next without looking where the end is.
constexpr std::size_t kBehind = std::size_t{1} << 20;

// Anonymous memory in huge pages where the system has them.
class HugeMemory {
 public:
  static Result<std::shared_ptr<HugeMemory>> allocate(std::size_t bytes) {
    void* start =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
      return fail(ErrorCode::exhausted, "no {} bytes of memory for the weights", bytes);
    ::madvise(start, bytes, MADV_HUGEPAGE);  // an advice: small pages work too
    return std::make_shared<HugeMemory>(static_cast<std::byte*>(start), bytes);
  }
  HugeMemory(std::byte* start, std::size_t bytes) : start_(start), bytes_(bytes) {}
  ~HugeMemory() { ::munmap(start_, bytes_); }
  HugeMemory(const HugeMemory&) = delete;
  HugeMemory& operator=(const HugeMemory&) = delete;
  std::byte* data() const { return start_; }

 private:
  std::byte* start_;
  std::size_t bytes_;
};

struct Copy {
  TensorView* tensor;
  std::size_t place;  // in the new memory
};
struct Piece {
  const Copy* copy;
  std::size_t offset, bytes;
};

Status read_pieces(FileSystem& files, const GgufModel& model, const std::vector<Piece>& pieces,
                   std::byte* memory) {
  std::vector<std::unique_ptr<File>> parts;
  for (const std::string& path : model.paths) {
    STRATA_ASSIGN(parts.emplace_back(), files.open(path));
  }
  std::mutex mutex;
  Status status;
  std::atomic<bool> failed{false};
  const LoadWatch* watch = LoadWatch::current();
  std::atomic<std::uint64_t> done{0};
  std::uint64_t all = 0;
  for (const Piece& piece : pieces) all += piece.bytes;
  ThreadPool(0).run(pieces.size(), [&](std::size_t i) {
    const Piece& piece = pieces[i];
    const TensorView& tensor = *piece.copy->tensor;
    if (failed.load(std::memory_order_relaxed)) return;
    auto read =
        parts[tensor.part]->read_exact(tensor.file_offset + piece.offset,
                                       {memory + piece.copy->place + piece.offset, piece.bytes});
    if (read) {
      const std::uint64_t now = done.fetch_add(piece.bytes) + piece.bytes;
      if (watch != nullptr) watch->tell(now, all);
      return;
    }
    const std::lock_guard lock(mutex);
    if (!failed.exchange(true))
      status = with_context(std::move(read).error(), fmt::format("tensor '{}'", tensor.name));
  });
  return status;
}

}  // namespace

Result<Residence> residence_from(std::string_view text) {
  if (text == "auto") return Residence::automatic;
  if (text == "ram") return Residence::ram;
  if (text == "map") return Residence::mapped;
  return fail(ErrorCode::invalid_argument, "weights are kept 'auto', 'ram' or 'map', not '{}'",
              text);
}

Status load_into_memory(FileSystem& files, GgufModel& model, Residence residence,
                        const std::function<bool(const TensorView&)>& wanted) {
  if (residence == Residence::mapped) return {};
  std::vector<Copy> copies;
  std::size_t total = 0;
  for (TensorView& tensor : model.tensors) {
    if (tensor.data.empty() || !wanted(tensor)) continue;
    copies.push_back({&tensor, total});
    total += (tensor.data.size() + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (copies.empty()) return {};
  const std::uint64_t available = available_memory();
  if (total + kBehind > available / 8 * 7) {
    if (residence == Residence::ram) {
      return fail(
          ErrorCode::exhausted,
          "the weights take {} MiB and {} MiB of memory are free, an eighth of which is the "
          "system's; leave them in the file (map)",
          total >> 20, available >> 20);
    }
    log_info("the weights ({} MiB) stay in the file: {} MiB of memory are free", total >> 20,
             available >> 20);
    return {};
  }
  const std::size_t bytes = (total + kBehind + kHugePage - 1) / kHugePage * kHugePage;
  STRATA_ASSIGN(const std::shared_ptr<HugeMemory> memory, HugeMemory::allocate(bytes));
  std::vector<Piece> pieces;
  for (const Copy& copy : copies)
    for (std::size_t at = 0; at < copy.tensor->data.size(); at += kReadBytes)
      pieces.push_back({&copy, at, std::min(kReadBytes, copy.tensor->data.size() - at)});
  STRATA_TRY(read_pieces(files, model, pieces, memory->data()));
  for (const Copy& copy : copies)
    copy.tensor->data = {memory->data() + copy.place, copy.tensor->data.size()};
  model.owners.push_back(memory);
  return {};
}

}  // namespace strata
