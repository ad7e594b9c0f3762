// Reads of one file that are under way several at a time and end in any order.
//
// A queue has slots with a page-aligned buffer each. A read goes into the buffer of its
// slot (or, for large ones, where start_into() says) and nowhere else, and the buffers live until
// the queue has ended all its reads: no read can ever write into memory that somebody has given
// away. A slot is busy from start() until wait() has
// reported it; its buffer keeps what was read until the slot's next start().
//
// One thread uses a queue, from the first start() or wait() to its end always the same one; wake()
// may be called from any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace strata {

// Buffers, offsets and lengths of direct reads are multiples of this.
inline constexpr std::size_t kReadPage = 4096;

struct ReadQueueOptions {
  enum class Method { ring, threads };
  Method method = Method::ring;    // io_uring, or threads that call pread
  bool direct = true;              // past the page cache (O_DIRECT)
  std::uint32_t depth = 64;        // reads under way at most, 1..kMaxReadDepth
  std::uint32_t slots = 0;         // depth or more, at most twice as many; 0 = depth
  std::size_t slot_bytes = 16384;  // of each buffer, a multiple of kReadPage
};
inline constexpr std::uint32_t kMaxReadDepth = 1024;
inline constexpr std::size_t kMaxSlotBytes = std::size_t{1} << 24;
inline constexpr std::uint32_t kMaxReadThreads = 64;  // a deeper queue of threads has no more

class ReadQueue {
 public:
  struct Done {
    std::uint32_t slot = 0;
    std::int32_t result = 0;  // bytes read, fewer only at the end of the file; or minus an errno
  };

  virtual ~ReadQueue() = default;  // waits for the reads that are under way
  virtual std::uint32_t slots() const = 0;
  virtual std::span<std::byte> buffer(std::uint32_t slot) = 0;
  // A read into a free slot, with fewer than `depth` under way; `bytes` at most slot_bytes. It may
  // be begun only by the next begin() or wait().
  virtual void start(std::uint32_t slot, std::uint64_t offset, std::uint32_t bytes) = 0;
  // As start(), but past the slot's buffer into pages of an anonymous mapping of the caller's,
  // which must stay mapped until wait() has reported the read or the queue is gone.
  virtual void start_into(std::uint32_t slot, std::uint64_t offset, std::span<std::byte> into) = 0;
  virtual void begin() {}
  // Returns what has ended, at least one read unless `timeout` passes or somebody calls wake(); may
  // also return early with nothing. Valid until the next call.
  virtual std::span<const Done> wait(std::chrono::microseconds timeout) = 0;
  // Makes a wait() return that is under way, or else the next one.
  virtual void wake() = 0;
  // "io_uring, direct, registered buffers"
  virtual std::string description() const = 0;
};

// Page-aligned buffers in one mapping of their own. Unmapping is safe even if the kernel still
// writes to a page: it holds the page, and nobody else gets it.
class ReadBuffers {
 public:
  static Result<ReadBuffers> create(const ReadQueueOptions& options);
  ReadBuffers(ReadBuffers&& other) noexcept;
  ReadBuffers(const ReadBuffers&) = delete;
  ReadBuffers& operator=(const ReadBuffers&) = delete;
  ReadBuffers& operator=(ReadBuffers&&) = delete;
  ~ReadBuffers();

  std::uint32_t slots() const { return slots_; }
  std::span<std::byte> slot(std::uint32_t index) const {
    return {start_ + index * slot_bytes_, slot_bytes_};
  }

 private:
  ReadBuffers() = default;
  std::byte* start_ = nullptr;
  std::uint32_t slots_ = 0;
  std::size_t slot_bytes_ = 0;
};

class File;

// A queue that reads with File::read_at when it is waited for. `file` must outlive it.
Result<std::unique_ptr<ReadQueue>> make_plain_queue(const File& file,
                                                    const ReadQueueOptions& options);

// Over a descriptor that the queue closes at its end. For file.cpp.
Result<std::unique_ptr<ReadQueue>> make_descriptor_queue(int descriptor, const std::string& path,
                                                         const ReadQueueOptions& options);

}  // namespace strata
