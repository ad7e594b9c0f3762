// Buffers, the queue of threads and the plain one; the ring is in read_queue_ring.cpp.
#include "base/read_queue.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "base/file.h"
#include "base/read_queue_ring.h"

namespace strata {

Result<ReadBuffers> ReadBuffers::create(const ReadQueueOptions& options) {
  const std::uint32_t depth = options.depth, slots = options.slots == 0 ? depth : options.slots;
  const std::size_t bytes = options.slot_bytes;
  if (depth == 0 || depth > kMaxReadDepth || slots < depth || slots > 2 * depth || bytes == 0 ||
      bytes > kMaxSlotBytes || bytes % kReadPage != 0) {
    return fail(
        ErrorCode::invalid_argument,
        "a read queue of depth {} with {} slots of {} bytes; allowed are depths of 1 to {}, "
        "up to two slots for each, and multiples of {} up to {} bytes",
        depth, slots, bytes, kMaxReadDepth, kReadPage, kMaxSlotBytes);
  }
  ReadBuffers buffers;
  void* start =
      ::mmap(nullptr, slots * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED)
    return fail(ErrorCode::exhausted, "no memory for {} read buffers of {} bytes", slots, bytes);
  buffers.start_ = static_cast<std::byte*>(start);
  buffers.slots_ = slots;
  buffers.slot_bytes_ = bytes;
  return buffers;
}

ReadBuffers::ReadBuffers(ReadBuffers&& other) noexcept
    : start_(std::exchange(other.start_, nullptr)),
      slots_(other.slots_),
      slot_bytes_(other.slot_bytes_) {}

ReadBuffers::~ReadBuffers() {
  if (start_) ::munmap(start_, slots_ * slot_bytes_);
}

namespace {

using Done = ReadQueue::Done;

struct Started {
  std::uint32_t slot = 0;
  std::uint64_t offset = 0;
  std::span<std::byte> into;
};

class ThreadQueue final : public ReadQueue {
 public:
  ThreadQueue(Descriptor descriptor, ReadBuffers buffers, bool direct)
      : descriptor_(std::move(descriptor)), buffers_(std::move(buffers)), direct_(direct) {}

  Status run(std::uint32_t depth) {
    try {
      const std::uint32_t count = std::min(depth, kMaxReadThreads);
      for (std::uint32_t i = 0; i < count; ++i) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      if (threads_.empty())
        return fail(ErrorCode::exhausted, "no thread for reading could be started: {}",
                    error.what());
    }
    return {};
  }

  ~ThreadQueue() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::uint32_t slots() const override { return buffers_.slots(); }
  std::span<std::byte> buffer(std::uint32_t slot) override { return buffers_.slot(slot); }

  void start(std::uint32_t slot, std::uint64_t offset, std::uint32_t bytes) override {
    start_into(slot, offset, buffers_.slot(slot).first(bytes));
  }
  void start_into(std::uint32_t slot, std::uint64_t offset, std::span<std::byte> into) override {
    {
      const std::lock_guard lock(mutex_);
      started_.push_back({slot, offset, into});
    }
    work_.notify_one();
  }

  std::span<const Done> wait(std::chrono::microseconds timeout) override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return !done_.empty() || woken_; });
    woken_ = false;
    reported_.swap(done_);
    done_.clear();
    return reported_;
  }

  void wake() override {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_one();
  }

  std::string description() const override {
    return fmt::format("{} pread threads, {}", threads_.size(), direct_ ? "direct" : "buffered");
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [&] { return stopping_ || !started_.empty(); });
      if (started_.empty()) return;
      const Started read = started_.front();
      started_.pop_front();
      lock.unlock();
      ssize_t got = 0;
      do {
        got = ::pread(descriptor_.get(), read.into.data(), read.into.size(),
                      static_cast<off_t>(read.offset));
      } while (got < 0 && errno == EINTR);
      const auto result = static_cast<std::int32_t>(got < 0 ? -errno : got);
      lock.lock();
      done_.push_back({read.slot, result});
      changed_.notify_one();
    }
  }

  Descriptor descriptor_;
  ReadBuffers buffers_;
  bool direct_;
  std::mutex mutex_;  // guards what follows, but reported_ and threads_
  std::condition_variable work_, changed_;
  std::deque<Started> started_;
  std::vector<Done> done_;
  bool woken_ = false;
  bool stopping_ = false;
  std::vector<Done> reported_;
  std::vector<std::thread> threads_;
};

class PlainQueue final : public ReadQueue {
 public:
  PlainQueue(const File& file, ReadBuffers buffers) : file_(file), buffers_(std::move(buffers)) {}

  std::uint32_t slots() const override { return buffers_.slots(); }
  std::span<std::byte> buffer(std::uint32_t slot) override { return buffers_.slot(slot); }
  void start(std::uint32_t slot, std::uint64_t offset, std::uint32_t bytes) override {
    start_into(slot, offset, buffers_.slot(slot).first(bytes));
  }
  void start_into(std::uint32_t slot, std::uint64_t offset, std::span<std::byte> into) override {
    started_.push_back({slot, offset, into});
  }
  std::span<const Done> wait(std::chrono::microseconds timeout) override {
    done_.clear();
    if (started_.empty()) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, timeout, [&] { return woken_; });
      woken_ = false;
    }
    for (const Started& read : started_) {
      const auto got = file_.read_at(read.offset, read.into);
      done_.push_back({read.slot, got ? static_cast<std::int32_t>(*got) : -EIO});
    }
    started_.clear();
    return done_;
  }
  void wake() override {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_one();
  }
  std::string description() const override { return "plain reads"; }

 private:
  const File& file_;
  ReadBuffers buffers_;
  std::vector<Started> started_;
  std::vector<Done> done_;
  std::mutex mutex_;  // guards woken_
  std::condition_variable changed_;
  bool woken_ = false;
};

}  // namespace

Result<std::unique_ptr<ReadQueue>> make_plain_queue(const File& file,
                                                    const ReadQueueOptions& options) {
  STRATA_ASSIGN(ReadBuffers buffers, ReadBuffers::create(options));
  return std::make_unique<PlainQueue>(file, std::move(buffers));
}

Result<std::unique_ptr<ReadQueue>> make_descriptor_queue(int number, const std::string& path,
                                                         const ReadQueueOptions& options) {
  Descriptor descriptor(number);
  STRATA_ASSIGN(ReadBuffers buffers, ReadBuffers::create(options));
  if (options.method == ReadQueueOptions::Method::ring)
    return make_ring_queue(std::move(descriptor), std::move(buffers), path, options.direct);
  auto queue =
      std::make_unique<ThreadQueue>(std::move(descriptor), std::move(buffers), options.direct);
  STRATA_TRY(queue->run(options.depth));
  return queue;
}

}  // namespace strata
