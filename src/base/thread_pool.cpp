// One 64-bit word holds the whole state of a batch: its epoch, its number of parts and the next
// part to claim. A thread claims by compare-and-swap on that word, so a claim succeeds only while
// the word is what the thread saw, and what it claims is a part of the batch that is running then.
// The body is read after the claim: from then on the batch cannot end before the part does. A
// thread that wakes late finds the word exhausted, or helps with whatever runs now.
//
// The batch is over when as many parts are done as it has. Threads that claimed nothing have no
// say in that.
#include "base/thread_pool.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/topology.h"

namespace strata {
namespace {

using Body = ThreadPool::Body;
using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kMaxThreads = 4096;

// Layout of the batch word: epoch (16 bits) | parts (24) | next part (24).
constexpr unsigned kPartBits = 24;
constexpr std::uint64_t kPartMask = (std::uint64_t{1} << kPartBits) - 1;
constexpr std::size_t kMaxParts = kPartMask;  // more parts run as several batches

std::uint64_t batch_word(std::uint32_t epoch, std::size_t parts) {
  return std::uint64_t{epoch} << (2 * kPartBits) | std::uint64_t{parts} << kPartBits;
}
std::uint64_t parts_of(std::uint64_t word) {
  return word >> kPartBits & kPartMask;
}
std::uint64_t next_of(std::uint64_t word) {
  return word & kPartMask;
}

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// How long a thread spins before it sleeps. A spin that was rewarded makes the next one longer, a
// spin in vain shorter: an engine at work never sleeps between steps, an idle one costs nothing.
class SpinBudget {
 public:
  // Spinning helps nobody when there are more threads than CPUs.
  explicit SpinBudget(bool enabled) : limit_(enabled ? kStart : nanoseconds(0)) {}

  template <class Condition>
  bool spin_until(const Condition& condition) {
    if (limit_.count() == 0) return condition();
    const auto deadline = Clock::now() + limit_;
    bool met = false;
    do {
      for (int i = 0; i < 32 && !met; ++i) {
        met = condition();
        pause_cpu();
      }
    } while (!met && Clock::now() < deadline);
    limit_ = met ? std::min(limit_ * 2, kLongest) : std::max(limit_ / 2, kShortest);
    return met;
  }

 private:
  static constexpr nanoseconds kShortest{4'000};
  static constexpr nanoseconds kStart{32'000};
  static constexpr nanoseconds kLongest{64'000};
  nanoseconds limit_;
};

// Blocks all signals while it lives: threads started meanwhile inherit that, so signals of the
// process reach the threads that expect them.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    // What a thread's own instruction raises stays with it (lost_pages.h handles SIGBUS); blocked,
    // it would end the program without a word.
    for (const int own : {SIGBUS, SIGSEGV, SIGFPE, SIGILL}) sigdelset(&all, own);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// One of as many shares as threads of parts that lie side by side: [first, end) in one word.
struct alignas(kCacheLine) Share {
  std::atomic<std::uint64_t> span{0};

  void set(std::size_t first, std::size_t end) {
    span.store(std::uint64_t{first} << 32 | end, std::memory_order_relaxed);
  }
  // The first part for its owner, the last one for others; false when none is left.
  bool take(bool owner, std::size_t& part) {
    std::uint64_t now = span.load(std::memory_order_relaxed);
    for (;;) {
      const std::uint64_t first = now >> 32, end = now & 0xffffffffu;
      if (first >= end) return false;
      part = owner ? first : end - 1;
      const std::uint64_t then = owner ? (first + 1) << 32 | end : first << 32 | (end - 1);
      if (span.compare_exchange_weak(now, then, std::memory_order_relaxed)) return true;
    }
  }
};

}  // namespace

struct ThreadPool::Shared {
  // What a thread needs to join a batch, in one cache line.
  alignas(kCacheLine) std::atomic<std::uint32_t> epoch{0};  // workers sleep on it
  std::atomic<bool> stopping{false};
  std::atomic<std::uint64_t> batch{0};
  // Of the running batch; written only between batches, read only by those who hold a part.
  std::optional<Body> body;
  std::size_t first = 0;                     // number of the batch's first part
  bool near = false;                         // a part is a thread's share of the real parts
  std::atomic<const void*> object{nullptr};  // the body's, to be fetched ahead
  alignas(kCacheLine) std::atomic<std::uint32_t> done{0};  // parts done by workers
  std::atomic<bool> caller_sleeps{false};                  // on `done`
  alignas(kCacheLine) std::atomic<std::uint32_t> sleepers{0};

  std::mutex running;  // one batch at a time
  bool spinning = true;
  SpinBudget caller_budget{true};
  std::vector<std::thread> workers;
  std::vector<Share> shares;  // of run_near, one a thread

  std::uint32_t drain();
  void run_share(std::size_t mine, Body of_part);
  void work(std::size_t thread);
  void run_batch(std::size_t parts);
  void run_batches(std::size_t parts, Body of_part, bool are_shares);
  void wake(std::size_t useful);
};

// Claims and runs parts until none is left; how many those were.
std::uint32_t ThreadPool::Shared::drain() {
  std::uint32_t count = 0;
  std::uint64_t word = batch.load(std::memory_order_acquire);
  while (next_of(word) < parts_of(word)) {
    if (!batch.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
      continue;
    }
    const std::size_t part = next_of(word);
    if (near) {
      run_share(part, *body);
    } else {
      (*body)(first + part);
    }
    ++count;
    word = batch.load(std::memory_order_acquire);
  }
  return count;
}

// The share's parts, then the others' from their ends.
void ThreadPool::Shared::run_share(std::size_t mine, Body of_part) {
  std::size_t part = 0;
  for (std::size_t i = 0; i < shares.size(); ++i)
    while (shares[(mine + i) % shares.size()].take(i == 0, part)) of_part(part);
}

void ThreadPool::Shared::work(std::size_t thread) {
  SpinBudget budget(spinning);
  std::uint32_t seen = 0;
  for (;;) {
    const auto news = [&] { return epoch.load(std::memory_order_acquire) != seen; };
    if (!budget.spin_until(news)) {
      // Either the caller sees this sleeper, or wait() sees the caller's new epoch: both sides
      // write first and look then, in one total order.
      sleepers.fetch_add(1, std::memory_order_seq_cst);
      epoch.wait(seen, std::memory_order_seq_cst);
      sleepers.fetch_sub(1, std::memory_order_seq_cst);
    }
    seen = epoch.load(std::memory_order_acquire);
    if (stopping.load(std::memory_order_acquire)) return;
    // These come on their way while the part is claimed.
    __builtin_prefetch(object.load(std::memory_order_relaxed));
    if (thread < shares.size()) __builtin_prefetch(&shares[thread], 1);
    // Parts are reported together: the batch cannot end, nor the next begin, before that.
    if (const std::uint32_t count = drain(); count > 0) {
      done.fetch_add(count, std::memory_order_seq_cst);
      if (caller_sleeps.load(std::memory_order_seq_cst)) done.notify_one();
    }
  }
}

// Wakes sleeping workers, no more than there is work for.
void ThreadPool::Shared::wake(std::size_t useful) {
  const std::size_t sleeping = sleepers.load(std::memory_order_seq_cst);
  if (sleeping == 0) return;
  if (useful >= sleeping) {
    epoch.notify_all();
    return;
  }
  for (std::size_t i = 0; i < useful; ++i) epoch.notify_one();
}

void ThreadPool::Shared::run_batch(std::size_t parts) {
  done.store(0, std::memory_order_relaxed);
  const std::uint32_t next = epoch.load(std::memory_order_relaxed) + 1;
  batch.store(batch_word(next, parts), std::memory_order_release);
  epoch.store(next, std::memory_order_seq_cst);
  wake(parts - 1);

  const auto left = static_cast<std::uint32_t>(parts) - drain();
  const auto finished = [&] { return done.load(std::memory_order_acquire) == left; };
  if (left == 0 || caller_budget.spin_until(finished)) return;
  caller_sleeps.store(true, std::memory_order_seq_cst);
  for (;;) {
    const std::uint32_t reported = done.load(std::memory_order_seq_cst);
    if (reported == left) break;
    done.wait(reported, std::memory_order_seq_cst);
  }
  caller_sleeps.store(false, std::memory_order_relaxed);
}

ThreadPool::ThreadPool(std::size_t threads) : shared_(std::make_unique<Shared>()) {
  const std::size_t cpus = usable_cpus();
  if (threads == 0) threads = working_threads(this_topology());
  threads = std::min(threads, kMaxThreads);
  shared_->spinning = threads <= cpus;
  shared_->caller_budget = SpinBudget(shared_->spinning);
  const SignalsBlocked blocked;
  shared_->shares = std::vector<Share>(threads);
  shared_->workers.reserve(threads);
  // The machine may refuse a thread; the pool then has fewer, and threads() says so.
  try {
    while (shared_->workers.size() + 1 < threads) {
      const std::size_t thread = shared_->workers.size() + 1;
      shared_->workers.emplace_back([shared = shared_.get(), thread] { shared->work(thread); });
    }
  } catch (const std::exception& refused) {  // by the system, or for want of memory
    log_warning("the machine allows {} of {} threads: {}", this->threads(), threads,
                refused.what());
  }
}

ThreadPool::~ThreadPool() {
  shared_->stopping.store(true, std::memory_order_release);
  shared_->epoch.fetch_add(1, std::memory_order_seq_cst);
  shared_->epoch.notify_all();
  for (std::thread& worker : shared_->workers) worker.join();
}

std::size_t ThreadPool::threads() const {
  return shared_->workers.size() + 1;
}

void ThreadPool::Shared::run_batches(std::size_t parts, Body of_part, bool are_shares) {
  body = of_part;
  near = are_shares;
  object.store(of_part.object(), std::memory_order_relaxed);
  for (first = 0; first < parts; first += kMaxParts) run_batch(std::min(parts - first, kMaxParts));
  body.reset();
}

void ThreadPool::run(std::size_t parts, Body body) {
  if (parts == 0) return;
  const std::lock_guard lock(shared_->running);
  if (parts > 1 && !shared_->workers.empty()) return shared_->run_batches(parts, body, false);
  for (std::size_t part = 0; part < parts; ++part) body(part);
}

void ThreadPool::run_near(std::size_t parts, Body body) {
  if (parts < 2 || shared_->workers.empty()) return run(parts, body);
  const std::lock_guard lock(shared_->running);
  std::vector<Share>& shares = shared_->shares;
  const std::size_t count = threads();
  for (std::size_t i = 0; i < shares.size(); ++i)
    shares[i].set(parts * std::min(i, count) / count, parts * std::min(i + 1, count) / count);
  shared_->run_batches(count, body, true);
}

}  // namespace strata
