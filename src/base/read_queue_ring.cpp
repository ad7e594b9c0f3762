#include "base/read_queue_ring.h"

#include <liburing.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <system_error>
#include <vector>

#include "base/clock.h"

namespace strata {
namespace {

constexpr std::uint64_t kWake = UINT64_MAX;  // user data of the read of the wake-up counter
constexpr double kPatience = 5;              // seconds for the last reads of a queue that ends

std::string errno_text(int number) {
  return std::generic_category().message(number);
}

class RingQueue final : public ReadQueue {
 public:
  RingQueue(Descriptor file, Descriptor waker, ReadBuffers buffers, bool direct)
      : file_(std::move(file)),
        waker_(std::move(waker)),
        buffers_(std::move(buffers)),
        direct_(direct) {
    under_way_.resize(buffers_.slots());
    done_.reserve(buffers_.slots());
  }

  Status run(const std::string& path) {
    const auto entries = static_cast<unsigned>(std::bit_ceil(buffers_.slots() + 1));
    // One thread submits and waits; completions are worked off when it waits, not by interrupting
    // it. The ring starts disabled because that thread is not this one. Older kernels know less.
    constexpr unsigned kBest = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SINGLE_ISSUER |
                               IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_R_DISABLED;
    int error = 0;
    for (const unsigned flags : {kBest, unsigned{IORING_SETUP_R_DISABLED}}) {
      error = -io_uring_queue_init(entries, &ring_, flags);
      if (error == 0) break;
    }
    if (error != 0)
      return fail(ErrorCode::unsupported, "io_uring is not to be had: {}", errno_text(error));
    has_ring_ = true;
    if ((ring_.features & IORING_FEAT_EXT_ARG) == 0)
      return fail(ErrorCode::unsupported, "this kernel's io_uring cannot wait for a limited time");
    const int file = file_.get();
    if (const int status = io_uring_register_files(&ring_, &file, 1); status < 0) {
      return fail(ErrorCode::unsupported, "io_uring does not take '{}': {}", path,
                  errno_text(-status));
    }
    // Pinning the buffers saves work a read; a small limit on locked memory may forbid it.
    std::vector<iovec> places;
    places.reserve(slots());
    for (std::uint32_t s = 0; s < slots(); ++s)
      places.push_back({buffers_.slot(s).data(), buffers_.slot(s).size()});
    registered_ = io_uring_register_buffers(&ring_, places.data(), slots()) == 0;
    return {};
  }

  ~RingQueue() override {
    if (!has_ring_) return;
    // A device that never answers must not keep the program from ending; its buffers are pages of
    // their own (ReadBuffers).
    const double limit = monotonic_seconds() + kPatience;
    while (busy_ > 0 && error_ == 0 && monotonic_seconds() < limit)
      wait(std::chrono::milliseconds(100));
    io_uring_queue_exit(&ring_);
  }

  std::uint32_t slots() const override { return buffers_.slots(); }
  std::span<std::byte> buffer(std::uint32_t slot) override { return buffers_.slot(slot); }

  void start(std::uint32_t slot, std::uint64_t offset, std::uint32_t bytes) override {
    add(slot, offset, buffers_.slot(slot).first(bytes), registered_);
  }
  void start_into(std::uint32_t slot, std::uint64_t offset, std::span<std::byte> into) override {
    add(slot, offset, into, false);
  }

  void begin() override {
    if (!enabled_) enable();
    if (error_ == 0) check(io_uring_submit(&ring_));
  }

  std::span<const Done> wait(std::chrono::microseconds timeout) override {
    done_.clear();
    if (!enabled_) enable();
    if (!waking_) watch_waker();
    if (error_ == 0) enter(timeout);
    io_uring_cqe* entry = nullptr;
    while (error_ == 0 && io_uring_peek_cqe(&ring_, &entry) == 0) {
      if (entry->user_data == kWake) {
        waking_ = false;
      } else {
        end(static_cast<std::uint32_t>(entry->user_data), entry->res);
      }
      io_uring_cqe_seen(&ring_, entry);
    }
    // A ring that takes no more entries reports nothing either; its slots are never used again.
    for (std::uint32_t s = 0; error_ != 0 && s < slots(); ++s)
      if (under_way_[s]) end(s, -error_);
    return done_;
  }

  void wake() override {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(waker_.get(), &one, sizeof one);
  }

  std::string description() const override {
    return fmt::format("io_uring, {}{}", direct_ ? "direct" : "buffered",
                       registered_ ? ", registered buffers" : "");
  }

 private:
  void enable() {
    // The library of Debian 12 does not export its own function for this.
    if (::syscall(__NR_io_uring_register, ring_.ring_fd, IORING_REGISTER_ENABLE_RINGS, nullptr, 0))
      error_ = errno;
    enabled_ = true;
  }

  void add(std::uint32_t slot, std::uint64_t offset, std::span<std::byte> into, bool fixed) {
    ++busy_;
    under_way_[slot] = true;
    if (error_ != 0) return;
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (!entry) {  // the ring has a place for each slot and for the wake-up
      error_ = EIO;
      return;
    }
    const auto bytes = static_cast<unsigned>(into.size());
    if (fixed)
      io_uring_prep_read_fixed(entry, 0, into.data(), bytes, offset, static_cast<int>(slot));
    else
      io_uring_prep_read(entry, 0, into.data(), bytes, offset);
    entry->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(entry, slot);
  }

  void end(std::uint32_t slot, std::int32_t result) {
    done_.push_back({slot, result});
    under_way_[slot] = false;
    --busy_;
  }

  void watch_waker() {
    io_uring_sqe* entry = error_ == 0 ? io_uring_get_sqe(&ring_) : nullptr;
    if (!entry) return;
    io_uring_prep_read(entry, waker_.get(), &wakes_, sizeof wakes_, 0);
    io_uring_sqe_set_data64(entry, kWake);
    waking_ = true;
  }

  // Submits what was started and waits for one completion.
  void enter(std::chrono::microseconds timeout) {
    __kernel_timespec limit = {timeout.count() / 1'000'000, timeout.count() % 1'000'000 * 1000};
    io_uring_cqe* first = nullptr;
    check(io_uring_submit_and_wait_timeout(&ring_, &first, 1, &limit, nullptr));
  }

  void check(int status) {
    if (status >= 0 || status == -ETIME || status == -EINTR || status == -EAGAIN ||
        status == -EBUSY)
      return;
    error_ = -status;  // nothing more can be read this way
  }

  Descriptor file_, waker_;
  ReadBuffers buffers_;
  bool direct_;
  io_uring ring_ = {};
  bool has_ring_ = false, enabled_ = false, registered_ = false, waking_ = false;
  int error_ = 0;
  std::uint32_t busy_ = 0;
  std::uint64_t wakes_ = 0;
  std::vector<bool> under_way_;  // by slot
  std::vector<Done> done_;
};

}  // namespace

Result<std::unique_ptr<ReadQueue>> make_ring_queue(Descriptor descriptor, ReadBuffers buffers,
                                                   const std::string& path, bool direct) {
  Descriptor waker(::eventfd(0, EFD_CLOEXEC));
  if (waker.get() < 0)
    return fail(ErrorCode::unsupported, "no event counter for io_uring: {}", errno_text(errno));
  auto queue = std::make_unique<RingQueue>(std::move(descriptor), std::move(waker),
                                           std::move(buffers), direct);
  STRATA_TRY(queue->run(path));
  return queue;
}

}  // namespace strata
