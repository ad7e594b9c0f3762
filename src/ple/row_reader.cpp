#include "ple/row_reader.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/clock.h"
#include "base/latency_histogram.h"
#include "ple/row_cache.h"

namespace strata {
namespace {

constexpr std::size_t kSlice = 256;          // rows of a request that are admitted at a time
constexpr std::size_t kBurst = 4;            // reads handed over at a time
constexpr std::uint32_t kMaxAttempts = 4;    // of a read that ends early without any progress
constexpr double kKeepAliveSeconds = 60;     // after the last request
constexpr std::chrono::hours kIdlePause{1};  // then the loop looks up once

std::uint64_t microseconds(double seconds) {
  return seconds <= 0 ? 0 : static_cast<std::uint64_t>(seconds * 1e6);
}

// Consecutive pages and the rows that are taken from them.
struct PageRead {
  std::uint64_t offset = 0;
  std::uint64_t end = 0;
  std::vector<std::uint64_t> rows;  // ascending
  std::uint32_t attempts = 0;
  double started = 0;
  bool urgent = false;  // somebody waits
  bool taken = false;   // begun, or nobody wants it
};

}  // namespace

struct RowTicket::State {
  std::shared_ptr<RowReader::Shared> reader;
  std::vector<std::uint64_t> rows;    // each once, ascending
  std::vector<std::uint32_t> places;  // of each key in rows
  std::vector<std::byte> bytes;       // [rows x row_bytes]
  std::size_t row_bytes = 0;

  // Guarded by the reader's mutex.
  std::size_t outstanding = 0;
  bool abandoned = false;
  std::optional<Error> error;
  RowCounts counts;
  std::condition_variable ended;
};

struct RowReader::Shared {
  struct Waiter {
    std::shared_ptr<RowTicket::State> ticket;
    std::uint32_t index = 0;  // of its rows
  };
  struct Pending {
    std::shared_ptr<PageRead> read;
    std::vector<Waiter> waiters;
    bool prefetched = false;  // and nobody has asked for it yet
  };

  std::unique_ptr<File> file;
  RowPlaces places;
  RowReaderOptions options;

  std::mutex mutex;  // guards what follows
  RowCache cache;
  std::unordered_map<std::uint64_t, Pending> pending;
  std::deque<std::shared_ptr<PageRead>> urgent, ahead;  // not begun; a read may stand in both
  TableStats totals;
  LatencyHistogram read_times, waits;
  double last_request = 0, last_read = 0;
  bool closing = false;
  bool asleep = false;               // the loop is in wait() and has not been woken
  std::unique_ptr<ReadQueue> queue;  // null when the loop has ended
  std::uint64_t buffer_bytes = 0;
  std::string how;

  // Of the loop alone.
  std::vector<std::shared_ptr<PageRead>> by_slot;
  std::vector<std::uint32_t> free_slots;
  std::array<std::uint32_t, kBurst> group = {};  // slots whose reads are begun next
  std::uint32_t under_way = 0;
  std::thread thread;

  std::uint64_t place_of(std::uint64_t row) const { return places.offset + row * places.row_bytes; }

  // Callers' side.
  Status admit(const std::shared_ptr<RowTicket::State>& ticket, std::size_t first,
               std::size_t last);
  std::size_t foresee(std::span<const std::uint64_t> rows, std::size_t most);
  bool join(Pending& entry, const std::shared_ptr<RowTicket::State>& ticket, std::uint32_t index);
  std::vector<std::shared_ptr<PageRead>> merge(std::span<const std::uint64_t> rows,
                                               bool urgent) const;
  void wake();

  // The loop's side; all with the mutex held.
  void work();
  std::size_t take_group(double now, bool idle);
  std::shared_ptr<PageRead> next_read();
  bool wanted(PageRead& read);
  std::shared_ptr<PageRead> keep_alive(double now);
  std::chrono::microseconds time_left(double now) const;
  void end(std::uint32_t slot, std::int32_t result);
  void deliver(std::uint64_t row, std::span<const std::byte> bytes);
  void fail_row(std::uint64_t row, const Error& error);
  Error failure(std::uint64_t row, std::int32_t result) const;
};

// ---- tickets

RowTicket& RowTicket::operator=(RowTicket&& other) noexcept {
  if (this != &other) {
    leave();
    state_ = std::move(other.state_);
  }
  return *this;
}

RowTicket::~RowTicket() {
  leave();
}

void RowTicket::leave() {
  if (!state_) return;
  // The reads under way own the state too; their rows still go to the cache.
  const std::lock_guard lock(state_->reader->mutex);
  state_->abandoned = true;
}

Status RowTicket::wait() {
  RowReader::Shared& reader = *state_->reader;
  std::unique_lock lock(reader.mutex);
  if (state_->outstanding > 0) {
    const double start = monotonic_seconds();
    const bool ended = state_->ended.wait_for(lock, reader.options.patience,
                                              [&] { return state_->outstanding == 0; });
    state_->counts.wait_seconds = monotonic_seconds() - start;
    if (!ended) {
      state_->abandoned = true;
      state_->error =
          Error{ErrorCode::io,
                fmt::format("{} rows of the n-gram table in '{}' did not come within "
                            "{} s; its disk may have failed",
                            state_->outstanding, reader.file->path(),
                            std::chrono::duration<double>(reader.options.patience).count())};
    }
  }
  reader.totals.rows.wait_seconds += state_->counts.wait_seconds;
  const std::uint64_t waited = microseconds(state_->counts.wait_seconds);
  reader.waits.add(waited);
  reader.totals.wait_max = std::max(reader.totals.wait_max, waited);
  if (state_->error) return tl::unexpected(*state_->error);
  return {};
}

std::span<const std::byte> RowTicket::row(std::size_t index) const {
  return std::span<const std::byte>(state_->bytes)
      .subspan(state_->places[index] * state_->row_bytes, state_->row_bytes);
}

const RowCounts& RowTicket::counts() const {
  return state_->counts;
}

// ---- asking

Result<RowTicket> RowReader::request(std::span<const std::uint64_t> keys) {
  if (keys.size() > kMaxRequestRows) {
    return fail(ErrorCode::exhausted, "{} n-gram rows in one request; at most {} are read",
                keys.size(), kMaxRequestRows);
  }
  const RowPlaces& places = shared_->places;
  for (const std::uint64_t row : keys) {
    if (row >= places.rows) {
      return fail(ErrorCode::corrupt, "n-gram row {} asked of a table of {} rows", row,
                  places.rows);
    }
  }
  try {
    auto state = std::make_shared<RowTicket::State>();
    state->reader = shared_;
    state->row_bytes = places.row_bytes;
    state->rows.assign(keys.begin(), keys.end());
    std::sort(state->rows.begin(), state->rows.end());
    state->rows.erase(std::unique(state->rows.begin(), state->rows.end()), state->rows.end());
    state->places.reserve(keys.size());
    for (const std::uint64_t row : keys) {
      const auto at = std::lower_bound(state->rows.begin(), state->rows.end(), row);
      state->places.push_back(static_cast<std::uint32_t>(at - state->rows.begin()));
    }
    state->bytes.resize(state->rows.size() * places.row_bytes);
    // Bit by bit, so that the disk begins with the first rows and nobody is kept out for long.
    for (std::size_t first = 0; first == 0 || first < state->rows.size(); first += kSlice)
      STRATA_TRY(shared_->admit(state, first, std::min(first + kSlice, state->rows.size())));
    return RowTicket(std::move(state));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::exhausted, "no memory for a request of {} n-gram rows", keys.size());
  }
}

// Rows [first, last) of a request. Nobody else sees a row before it has its read.
Status RowReader::Shared::admit(const std::shared_ptr<RowTicket::State>& ticket, std::size_t first,
                                std::size_t last) {
  std::vector<std::uint64_t> absent;
  absent.reserve(last - first);
  const std::lock_guard lock(mutex);
  if (closing)
    return fail(ErrorCode::unavailable, "the n-gram table '{}' is closing", file->path());
  RowCounts counts;
  counts.requested = last - first;
  try {
    for (std::size_t i = first; i < last; ++i) {
      const std::uint64_t row = ticket->rows[i];
      if (const RowCache::Found found = cache.find(row); found.bytes) {
        std::memcpy(ticket->bytes.data() + i * places.row_bytes, found.bytes, places.row_bytes);
        ++counts.cache_hits;
        counts.prefetched_used += found.first_use;
        continue;
      }
      const auto [at, added] = pending.try_emplace(row);
      if (added) absent.push_back(row);
      counts.prefetched_used += join(at->second, ticket, static_cast<std::uint32_t>(i));
      added ? ++counts.read : ++counts.joined;
    }
    for (const auto& read : merge(absent, true)) {
      urgent.push_back(read);
      for (const std::uint64_t row : read->rows) pending.at(row).read = read;
    }
  } catch (const std::bad_alloc&) {
    // What has a read goes on without this request.
    ticket->abandoned = true;
    for (const std::uint64_t row : absent) {
      const auto at = pending.find(row);
      if (at != pending.end() && !at->second.read) pending.erase(at);
    }
    throw;
  }
  ticket->counts += counts;
  totals.rows += counts;
  totals.requests += last == ticket->rows.size();
  last_request = monotonic_seconds();
  if (!absent.empty()) wake();
  return {};
}

// Whether it is the first to ask for a row that was foreseen.
bool RowReader::Shared::join(Pending& entry, const std::shared_ptr<RowTicket::State>& ticket,
                             std::uint32_t index) {
  if (entry.read && !entry.read->urgent) {
    if (!entry.read->taken) urgent.push_back(entry.read);
    entry.read->urgent = true;
  }
  entry.waiters.push_back({ticket, index});
  ++ticket->outstanding;
  return std::exchange(entry.prefetched, false);
}

// Ascending rows as reads of pages; rows in the same or in neighbouring pages share one.
std::vector<std::shared_ptr<PageRead>> RowReader::Shared::merge(std::span<const std::uint64_t> rows,
                                                                bool is_urgent) const {
  std::vector<std::shared_ptr<PageRead>> reads;
  for (const std::uint64_t row : rows) {
    const std::uint64_t start = place_of(row);
    const std::uint64_t first = start / kReadPage * kReadPage;
    const std::uint64_t end = (start + places.row_bytes + kReadPage - 1) / kReadPage * kReadPage;
    if (reads.empty() || first > reads.back()->end ||
        end - reads.back()->offset > options.queue.slot_bytes) {
      reads.push_back(std::make_shared<PageRead>());
      reads.back()->offset = first;
      reads.back()->urgent = is_urgent;
    }
    reads.back()->end = end;
    reads.back()->rows.push_back(row);
  }
  return reads;
}

void RowReader::prefetch(std::span<const std::uint64_t> keys) {
  Shared& shared = *shared_;
  try {
    std::vector<std::uint64_t> rows(keys.begin(), keys.end());
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    std::erase_if(rows, [&](std::uint64_t row) { return row >= shared.places.rows; });

    // More than half of the cache would push each other out.
    std::size_t most = std::min<std::uint64_t>(kMaxRequestRows, shared.cache.capacity() / 2);
    for (std::size_t first = 0; first < rows.size(); first += kSlice) {
      const auto slice = std::span(rows).subspan(first, std::min(kSlice, rows.size() - first));
      most -= shared.foresee(slice, most);
    }
  } catch (const std::bad_alloc&) {  // a read without entries is dropped as unwanted
  }
}

// Starts reads for ascending rows that nobody has asked for yet, for `most` of them; how many.
std::size_t RowReader::Shared::foresee(std::span<const std::uint64_t> rows, std::size_t most) {
  const std::lock_guard lock(mutex);
  if (closing) return 0;
  std::vector<std::uint64_t> absent;
  for (const std::uint64_t row : rows) {
    if (cache.contains(row) || pending.contains(row)) continue;
    if (absent.size() < most)
      absent.push_back(row);
    else
      ++totals.prefetch_dropped;
  }
  for (const auto& read : merge(absent, false)) {
    ahead.push_back(read);
    for (const std::uint64_t row : read->rows) {
      Pending& entry = pending[row];
      entry.read = read;
      entry.prefetched = true;
    }
  }
  totals.prefetched += absent.size();
  last_request = monotonic_seconds();
  if (!absent.empty()) wake();
  return absent.size();
}

void RowReader::Shared::wake() {
  if (!asleep || !queue) return;
  asleep = false;
  queue->wake();
}

// ---- the loop

void RowReader::Shared::work() {
  std::unique_lock lock(mutex);
  std::span<const ReadQueue::Done> done;  // ended, and not delivered yet
  while (!closing) {
    // The disk first: the next reads are begun in free slots before those that ended are delivered.
    const double now = monotonic_seconds();
    // In small groups, so that it works on the first while the last are still being handed over.
    for (bool more = true; more;) {
      const std::size_t count = take_group(now, done.empty());
      more = count == kBurst;
      lock.unlock();
      for (const std::uint32_t slot : std::span(group).first(count)) {
        const PageRead& read = *by_slot[slot];
        queue->start(slot, read.offset, static_cast<std::uint32_t>(read.end - read.offset));
      }
      // The last group is left to the next wait() if that comes soon.
      if (count > 0 && (more || done.size() >= kBurst)) queue->begin();
      lock.lock();
    }
    for (const ReadQueue::Done& read : done) end(read.slot, read.result);
    done = {};
    if (closing || (under_way < options.queue.depth && !(urgent.empty() && ahead.empty())))
      continue;
    const auto timeout = time_left(now);
    asleep = true;
    lock.unlock();
    done = queue->wait(timeout);
    lock.lock();
    asleep = false;
    under_way -= static_cast<std::uint32_t>(done.size());
  }
  const Error closed{ErrorCode::unavailable,
                     fmt::format("the n-gram table '{}' was closed", file->path())};
  while (!pending.empty()) fail_row(pending.begin()->first, closed);
  urgent.clear();
  ahead.clear();
  std::unique_ptr<ReadQueue> last = std::move(queue);
  lock.unlock();
  last.reset();  // waits for the reads under way
}

// Gives the next reads slots, into `group`; how many.
std::size_t RowReader::Shared::take_group(double now, bool idle) {
  std::size_t count = 0;
  while (count < kBurst && under_way < options.queue.depth && !free_slots.empty()) {
    std::shared_ptr<PageRead> read = next_read();
    if (!read && idle) read = keep_alive(now);
    if (!read) break;
    read->started = last_read = now;
    group[count++] = free_slots.back();
    by_slot[free_slots.back()] = std::move(read);
    free_slots.pop_back();
    ++under_way;
  }
  return count;
}

std::shared_ptr<PageRead> RowReader::Shared::next_read() {
  for (auto* line : {&urgent, &ahead}) {
    while (!line->empty()) {
      std::shared_ptr<PageRead> read = std::move(line->front());
      line->pop_front();
      if (read->taken) continue;
      read->taken = true;
      if (wanted(*read)) return read;
      ++totals.cancelled;
    }
  }
  return nullptr;
}

// Drops the rows that nobody waits for any more; whether any are left.
bool RowReader::Shared::wanted(PageRead& read) {
  std::erase_if(read.rows, [&](std::uint64_t row) {
    const auto at = pending.find(row);
    if (at == pending.end()) return true;
    const Pending& entry = at->second;
    if (entry.prefetched) return false;
    const bool awaited = std::any_of(entry.waiters.begin(), entry.waiters.end(),
                                     [](const Waiter& w) { return !w.ticket->abandoned; });
    if (!awaited) pending.erase(at);
    return !awaited;
  });
  return !read.rows.empty();
}

// A read for its own sake when the disk has been silent for too long; null when there is no need.
std::shared_ptr<PageRead> RowReader::Shared::keep_alive(double now) {
  if (options.keep_alive_ms == 0 || under_way > 0) return nullptr;
  if (last_request == 0 || now - last_request > kKeepAliveSeconds) return nullptr;
  if ((now - last_read) * 1000 < options.keep_alive_ms) return nullptr;
  auto read = std::make_shared<PageRead>();
  read->offset = places.offset / kReadPage * kReadPage;
  read->end = read->offset + kReadPage;
  ++totals.keep_alive;
  return read;
}

std::chrono::microseconds RowReader::Shared::time_left(double now) const {
  if (options.keep_alive_ms == 0 || last_request == 0 || now - last_request > kKeepAliveSeconds ||
      under_way > 0)
    return kIdlePause;
  const double left = last_read + options.keep_alive_ms / 1000.0 - now;
  return std::chrono::microseconds(std::max<std::uint64_t>(microseconds(left), 1000));
}

// A read has ended: what it covers is delivered, and what is left tried again or failed.
void RowReader::Shared::end(std::uint32_t slot, std::int32_t result) {
  const std::shared_ptr<PageRead>& read = by_slot[slot];
  const std::span<const std::byte> got =
      std::span<const std::byte>(queue->buffer(slot)).first(std::max(result, 0));
  if (!read->rows.empty()) {
    ++totals.reads;
    totals.read_bytes += got.size();
    read_times.add(microseconds(monotonic_seconds() - read->started));
  }
  std::size_t covered = 0;
  for (const std::uint64_t row : read->rows) {
    const std::uint64_t at = place_of(row) - read->offset;
    if (!fits(at, places.row_bytes, got.size())) break;  // the later ones lie behind it
    deliver(row, got.subspan(at, places.row_bytes));
    ++covered;
  }
  read->rows.erase(read->rows.begin(), read->rows.begin() + static_cast<std::ptrdiff_t>(covered));

  const bool again = result > 0 || result == -EINTR || result == -EAGAIN;
  if (!read->rows.empty() && again && (covered > 0 || ++read->attempts < kMaxAttempts)) {
    ++totals.retries;
    read->offset = place_of(read->rows.front()) / kReadPage * kReadPage;
    read->taken = false;
    urgent.push_front(read);
  } else {
    for (const std::uint64_t row : read->rows) fail_row(row, failure(row, result));
  }
  by_slot[slot] = nullptr;
  free_slots.push_back(slot);
}

void RowReader::Shared::deliver(std::uint64_t row, std::span<const std::byte> bytes) {
  const auto at = pending.find(row);
  if (at == pending.end()) return;
  for (const Waiter& waiter : at->second.waiters) {
    RowTicket::State& ticket = *waiter.ticket;
    if (!ticket.abandoned)
      std::memcpy(ticket.bytes.data() + waiter.index * bytes.size(), bytes.data(), bytes.size());
    if (--ticket.outstanding == 0) ticket.ended.notify_all();
  }
  if (cache.insert(row, bytes, at->second.prefetched)) ++totals.prefetch_dropped;
  pending.erase(at);
}

void RowReader::Shared::fail_row(std::uint64_t row, const Error& error) {
  const auto at = pending.find(row);
  if (at == pending.end()) return;
  for (const Waiter& waiter : at->second.waiters) {
    RowTicket::State& ticket = *waiter.ticket;
    if (!ticket.abandoned) {
      if (!ticket.error) ticket.error = error;
      ++ticket.counts.failed;
    }
    ++totals.rows.failed;
    if (--ticket.outstanding == 0) ticket.ended.notify_all();
  }
  if (at->second.prefetched) ++totals.prefetch_dropped;
  pending.erase(at);
}

Error RowReader::Shared::failure(std::uint64_t row, std::int32_t result) const {
  const std::uint64_t start = place_of(row), end = start + places.row_bytes;
  const std::string what = fmt::format(
      "row {} of the n-gram table, bytes {} to {} of '{}', cannot "
      "be read: ",
      row, start, end, file->path());
  if (result < 0) {
    return {ErrorCode::io, fmt::format("{}{} (errno {})", what,
                                       std::generic_category().message(-result), -result)};
  }
  const auto now = file->size_now();
  if (now && *now < end) {
    return {ErrorCode::io,
            fmt::format("{}the file has become shorter, {} bytes where {} were when it was opened",
                        what, *now, file->size())};
  }
  return {ErrorCode::io, fmt::format("{}only {} bytes came", what, result)};
}

// ---- opening and closing

namespace {

// A row may begin at the last byte of a page.
std::size_t slot_bytes(const RowPlaces& places, const RowReaderOptions& options) {
  const std::size_t least = (places.row_bytes + 2 * kReadPage - 2) / kReadPage * kReadPage;
  return std::max(options.queue.slot_bytes, least);
}

// For rows, of a budget that the buffers come out of.
std::uint64_t beside(std::uint64_t budget, std::uint64_t buffers) {
  return budget - std::min(budget, buffers);
}

}  // namespace

std::uint64_t RowReader::buffer_bytes(const RowPlaces& places, const RowReaderOptions& options) {
  return std::uint64_t{2} * options.queue.depth * slot_bytes(places, options);
}

std::uint64_t RowReader::memory_bytes(const RowPlaces& places, const RowReaderOptions& options) {
  const std::uint64_t buffers = buffer_bytes(places, options);
  return buffers +
         RowCache::bytes_for(beside(options.cache_bytes, buffers), places.row_bytes, places.rows);
}

Result<std::unique_ptr<RowReader>> RowReader::open(std::unique_ptr<File> file,
                                                   const RowPlaces& places,
                                                   const RowReaderOptions& options) {
  const auto bytes = checked_mul(places.rows, places.row_bytes);
  if (places.row_bytes == 0 || !bytes || !fits(places.offset, *bytes, file->size())) {
    return fail(ErrorCode::corrupt, "{} rows of {} bytes from byte {} on do not lie in '{}'",
                places.rows, places.row_bytes, places.offset, file->path());
  }
  auto shared = std::make_shared<Shared>();
  shared->places = places;
  shared->options = options;
  shared->options.queue.slot_bytes = slot_bytes(places, options);
  shared->options.queue.slots = 2 * shared->options.queue.depth;
  STRATA_ASSIGN(shared->queue, file->queue_reads(shared->options.queue));
  shared->file = std::move(file);
  const std::uint32_t slots = shared->queue->slots();
  shared->buffer_bytes = slots * shared->options.queue.slot_bytes;
  STRATA_ASSIGN(shared->cache, RowCache::create(beside(options.cache_bytes, shared->buffer_bytes),
                                                places.row_bytes, places.rows));
  shared->how = shared->queue->description();
  shared->by_slot.resize(slots);
  for (std::uint32_t slot = slots; slot > 0; --slot) shared->free_slots.push_back(slot - 1);
  // Last, so that whatever fails finds no thread or one that is joined.
  std::unique_ptr<RowReader> reader(new RowReader(shared));
  try {
    shared->thread = std::thread([raw = shared.get()] { raw->work(); });
  } catch (const std::system_error& error) {
    return fail(ErrorCode::exhausted, "no thread for reading could be started: {}", error.what());
  }
  return reader;
}

RowReader::~RowReader() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->closing = true;
    shared_->wake();
  }
  if (shared_->thread.joinable()) shared_->thread.join();
}

TableStats RowReader::stats() const {
  const std::lock_guard lock(shared_->mutex);
  TableStats stats = shared_->totals;
  stats.how = shared_->how;
  stats.depth = shared_->options.queue.depth;
  stats.read_p50 = shared_->read_times.percentile(0.5);
  stats.read_p99 = shared_->read_times.percentile(0.99);
  stats.wait_p50 = std::min(shared_->waits.percentile(0.5), stats.wait_max);
  stats.wait_p99 = std::min(shared_->waits.percentile(0.99), stats.wait_max);
  stats.cache_rows = shared_->cache.capacity();
  stats.memory_bytes = shared_->cache.bytes() + shared_->buffer_bytes;
  return stats;
}

void RowReader::reset() {
  const std::lock_guard lock(shared_->mutex);
  shared_->cache.clear();
  shared_->totals = {};
  shared_->read_times.clear();
  shared_->waits.clear();
}

}  // namespace strata
