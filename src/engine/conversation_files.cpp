#include "engine/conversation_files.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <thread>
#include <unordered_map>

#include "base/clock.h"
#include "base/log.h"
#include "engine/conversation_folder.h"
#include "engine/conversation_index.h"
#include "engine/conversation_loader.h"

namespace strata {
namespace {

constexpr std::size_t kMaxJobs = 4096;
constexpr double kSecondsBetweenLines = 60;  // of the log, about the same trouble

struct Job {
  enum class Kind { save, touch, forget, discard };
  Kind kind = Kind::save;
  SavedPoint point;       // to save; to forget: its tokens
  ConversationName name;  // to touch or discard
};

}  // namespace

// --- a load ---

ConversationLoad::ConversationLoad(std::shared_ptr<ConversationLoadTask> task)
    : task_(std::move(task)) {}

ConversationLoad::~ConversationLoad() {
  task_->cancelled = true;
  const std::lock_guard lock(task_->mutex);
  task_->wake = nullptr;
}

std::uint32_t ConversationLoad::tokens() const {
  return static_cast<std::uint32_t>(task_->tokens.size());
}

bool ConversationLoad::ready() const {
  return task_->done;
}

Result<SavedPoint> ConversationLoad::take() {
  if (!task_->done)
    return fail(ErrorCode::unavailable, "the saved conversation is still being read");
  const std::lock_guard lock(task_->mutex);
  if (task_->error) return tl::unexpected(*task_->error);
  task_->error = Error{ErrorCode::unavailable, "the saved conversation has been taken already"};
  return std::move(task_->point);
}

// --- the store ---

struct ConversationFiles::Parts {
  explicit Parts(const ConversationFilesOptions& given)
      : options(given), catalog(given.shape), folder(options, catalog, stopping) {}

  // Of the writer's thread.
  void run();
  void look_again();
  void do_job(Job& job);
  void save(SavedPoint& point);
  void failed(const Error& error);

  // Behind catalog.mutex.
  bool enqueue(Job job);
  void hold(const SavedPoint& point);
  std::uint64_t new_bytes(const SavedPoint& point) const;
  void let_go(const SavedPoint& point);  // of what hold() counted
  void drop(std::string_view why);
  bool already_saved(std::span<const TokenId> tokens);
  bool paused() const { return monotonic_seconds() < paused_until; }

  void load_ended(const ConversationLoadTask& task);
  void forget_faulty(const ConversationLoadTask& task);

  ConversationFilesOptions options;
  std::atomic<bool> stopping = false;
  ConversationCatalog catalog;
  ConversationFolder folder;

  // Behind catalog.mutex, too.
  std::deque<Job> jobs;
  bool working = false;
  std::unordered_map<const std::byte*, std::pair<std::uint32_t, std::size_t>> held;  // uses, bytes
  std::uint64_t held_bytes = 0;
  double paused_until = 0;
  bool failing = false;  // the last attempt to write failed
  double last_line = -kSecondsBetweenLines;
  std::condition_variable work, idle;

  std::thread writer;
  std::unique_ptr<ConversationLoader> loader;
};

Result<std::unique_ptr<ConversationFiles>> ConversationFiles::open(
    const ConversationFilesOptions& options) try {
  STRATA_TRY(validate(options.shape));
  if (options.folder.empty())
    return fail(ErrorCode::invalid_argument, "the folder for saved conversations has no name");
  ConversationFilesOptions complete = options;
  if (complete.files == nullptr) complete.files = &real_files();
  auto parts = std::make_unique<Parts>(complete);
  if (const Status opened = parts->folder.open(); !opened)
    return with_context(opened.error(), "saved conversations");
  Parts& p = *parts;
  std::unique_ptr<ConversationFiles> store(new ConversationFiles(std::move(parts)));
  p.loader = std::make_unique<ConversationLoader>(
      *p.options.files, p.options.folder, p.options.shape,
      [&p](const ConversationLoadTask& task) { p.load_ended(task); });
  p.writer = std::thread([&p] { p.run(); });
  return store;
} catch (const std::exception& error) {
  return fail(ErrorCode::exhausted, "saved conversations: {}", error.what());
}

ConversationFiles::ConversationFiles(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

ConversationFiles::~ConversationFiles() {
  Parts& p = *parts_;
  p.loader = nullptr;
  {
    const std::lock_guard lock(p.catalog.mutex);
    p.stopping = true;
  }
  p.work.notify_all();
  if (p.writer.joinable()) p.writer.join();
}

void ConversationFiles::save(SavedPoint point) try {
  Parts& p = *parts_;
  const ConversationShape& shape = p.options.shape;
  const std::lock_guard lock(p.catalog.mutex);
  if (point.tokens.empty() || point.tokens.size() > kMaxPointTokens || !point.state ||
      point.state->size() != shape.state_bytes ||
      point.pages.size() != shape.pages(point.tokens.size()))
    return p.drop("its sizes are not those of this model");
  if (p.paused()) return p.drop("the disk failed a moment ago");
  if (p.already_saved(point.tokens)) return;
  // Pages that are on the disk need not wait in memory.
  const std::vector<Hash128> known = p.catalog.index.known_pages(point.tokens);
  for (std::size_t i = 0; i < known.size(); ++i)
    if (p.catalog.index.page(known[i])->there) point.pages[i] = nullptr;
  const std::uint64_t bytes = p.new_bytes(point);
  if (p.held_bytes > 0 && p.held_bytes + bytes > p.options.queue_bytes)
    return p.drop("too much waits to be written");
  if (p.jobs.size() >= kMaxJobs) return p.drop("too much waits to be done");
  p.hold(point);
  p.enqueue({Job::Kind::save, std::move(point), {}});
} catch (const std::bad_alloc&) {
  const std::lock_guard lock(parts_->catalog.mutex);
  parts_->drop("there is no memory for it");
}

std::uint32_t ConversationFiles::longest(std::span<const TokenId> prompt) const {
  const std::lock_guard lock(parts_->catalog.mutex);
  const ConversationIndex::Point* point = parts_->catalog.index.longest(prompt);
  return point == nullptr ? 0 : point->tokens;
}

std::unique_ptr<ConversationLoad> ConversationFiles::load(std::span<const TokenId> prompt,
                                                          std::function<void()> wake) {
  Parts& p = *parts_;
  auto task = std::make_shared<ConversationLoadTask>();
  const auto end_with = [&](Error error) {
    task->error = std::move(error);
    task->done = true;
    return std::make_unique<ConversationLoad>(task);
  };
  {
    const std::lock_guard lock(p.catalog.mutex);
    const ConversationIndex::Point* point = p.catalog.index.longest(prompt);
    if (point == nullptr)
      return end_with({ErrorCode::not_found, "no saved conversation begins this prompt"});
    task->id = point->id;
    task->tokens.assign(prompt.begin(), prompt.begin() + point->tokens);
    task->page_ids = p.catalog.index.pages_of(*point);
  }
  task->wake = std::move(wake);
  auto load = std::make_unique<ConversationLoad>(task);
  if (const Status started = p.loader->start(task); !started) return end_with(started.error());
  return load;
}

void ConversationFiles::forget(std::span<const TokenId> tokens) {
  Job job{Job::Kind::forget, {}, {}};
  job.point.tokens.assign(tokens.begin(), tokens.end());
  const std::lock_guard lock(parts_->catalog.mutex);
  parts_->enqueue(std::move(job));
}

bool ConversationFiles::flush(std::chrono::milliseconds limit) {
  std::unique_lock lock(parts_->catalog.mutex);
  return parts_->idle.wait_for(lock, limit,
                               [&] { return parts_->jobs.empty() && !parts_->working; });
}

ConversationFilesCounters ConversationFiles::counters() const {
  const std::lock_guard lock(parts_->catalog.mutex);
  ConversationIndex& index = parts_->catalog.index;
  ConversationFilesCounters counters = parts_->catalog.counters;
  for (const auto& [id, point] : index.points())
    if (point.stored && point.usable) ++counters.points;
  for (const auto& [id, page] : index.pages())
    if (page.there) ++counters.pages;
  counters.bytes = index.bytes();
  counters.queued_bytes = parts_->held_bytes;
  counters.paused = parts_->paused();
  return counters;
}

// --- the queue ---

bool ConversationFiles::Parts::enqueue(Job job) {
  if (jobs.size() >= kMaxJobs) return false;
  jobs.push_back(std::move(job));
  work.notify_one();
  return true;
}

namespace {

// Calls `each` with every piece of memory that a point holds and its size.
template <class Each>
void for_each_piece(const SavedPoint& point, std::size_t page_bytes, Each each) {
  for (const PageBytes& page : point.pages)
    if (page) each(page.get(), page_bytes);
  if (!point.state->empty()) each(point.state->data(), point.state->size());
}

}  // namespace

// What several points share is counted once.
std::uint64_t ConversationFiles::Parts::new_bytes(const SavedPoint& point) const {
  std::uint64_t bytes = 0;
  for_each_piece(point, options.shape.page_bytes, [&](const std::byte* piece, std::size_t size) {
    if (!held.contains(piece)) bytes += size;
  });
  return bytes;
}

void ConversationFiles::Parts::hold(const SavedPoint& point) {
  for_each_piece(point, options.shape.page_bytes, [&](const std::byte* piece, std::size_t size) {
    auto& [uses, bytes] = held[piece];
    if (uses++ == 0) held_bytes += bytes = size;
  });
}

void ConversationFiles::Parts::let_go(const SavedPoint& point) {
  for_each_piece(point, options.shape.page_bytes, [&](const std::byte* piece, std::size_t) {
    const auto found = held.find(piece);
    if (found == held.end() || --found->second.first > 0) return;
    held_bytes -= found->second.second;
    held.erase(found);
  });
}

void ConversationFiles::Parts::drop(std::string_view why) {
  ++catalog.counters.dropped;
  const double now = monotonic_seconds();
  if (stopping || failing || now - last_line < kSecondsBetweenLines) return;
  last_line = now;
  log_warning("a conversation is not saved to '{}': {} ({} dropped so far)", options.folder, why,
              catalog.counters.dropped);
}

bool ConversationFiles::Parts::already_saved(std::span<const TokenId> tokens) {
  ConversationIndex::Point* point = catalog.index.find(tokens);
  if (point == nullptr || !point->stored || !catalog.index.complete(*point)) return false;
  point->last_use = calendar_now();
  ++catalog.counters.already_saved;
  enqueue({Job::Kind::touch, {}, {ConversationFile::point, point->id}});
  return true;
}

// --- the writer ---

void ConversationFiles::Parts::run() {
  std::unique_lock lock(catalog.mutex);
  auto next_look = std::chrono::steady_clock::now() + options.rescan_after;
  while (!stopping) {
    work.wait_until(lock, next_look, [&] { return stopping || !jobs.empty(); });
    if (stopping) break;
    if (std::chrono::steady_clock::now() >= next_look) {
      working = true;
      lock.unlock();
      look_again();
      lock.lock();
      next_look = std::chrono::steady_clock::now() + options.rescan_after;
    } else if (!jobs.empty()) {
      working = true;
      Job job = std::move(jobs.front());
      jobs.pop_front();
      lock.unlock();
      do_job(job);
      lock.lock();
      if (job.kind == Job::Kind::save) let_go(job.point);
    }
    working = false;
    idle.notify_all();
  }
}

void ConversationFiles::Parts::look_again() try {
  const Status status = folder.scan();
  if (!status && status.error().code != ErrorCode::cancelled) {
    const std::lock_guard lock(catalog.mutex);
    failed(status.error());
  }
} catch (const std::exception& error) {
  const std::lock_guard lock(catalog.mutex);
  failed({ErrorCode::exhausted, error.what()});
}

void ConversationFiles::Parts::do_job(Job& job) try {
  switch (job.kind) {
    case Job::Kind::save:
      return save(job.point);
    case Job::Kind::touch:
      return folder.touch(job.name.id);
    case Job::Kind::discard:
      return folder.discard(job.name);
    case Job::Kind::forget: {
      Hash128 id;
      {
        const std::lock_guard lock(catalog.mutex);
        const ConversationIndex::Point* point = catalog.index.find(job.point.tokens);
        if (point == nullptr) return;
        id = point->id;
      }
      return folder.remove_point(id);
    }
  }
} catch (const std::exception& error) {
  const std::lock_guard lock(catalog.mutex);
  drop(error.what());
}

void ConversationFiles::Parts::save(SavedPoint& point) {
  {
    const std::lock_guard lock(catalog.mutex);
    if (paused()) return drop("the disk failed a moment ago");
    if (already_saved(point.tokens)) return;
  }
  const Status status = folder.write(point);
  const std::lock_guard lock(catalog.mutex);
  if (status) {
    if (failing) log_info("conversations are saved to '{}' again", options.folder);
    failing = false;
  } else if (status.error().code == ErrorCode::io || status.error().code == ErrorCode::not_found) {
    failed(status.error());
    ++catalog.counters.dropped;
  } else {
    drop(status.error().message);
  }
}

// The disk: one line, then silence until it works again.
void ConversationFiles::Parts::failed(const Error& error) {
  paused_until = monotonic_seconds() + std::chrono::duration<double>(options.retry_after).count();
  if (failing) return;
  failing = true;
  log_warning("conversations are not saved: {}; trying again every {} s", error.message,
              std::chrono::duration<double>(options.retry_after).count());
}

// --- what became of a load ---

void ConversationFiles::Parts::load_ended(const ConversationLoadTask& task) try {
  const std::lock_guard lock(catalog.mutex);
  if (task.error) {
    ++catalog.counters.missed;
    if (task.faulty) forget_faulty(task);
    return;
  }
  ++catalog.counters.loaded;
  catalog.counters.read_bytes += point_file_bytes(options.shape, task.tokens.size()) +
                                 task.page_ids.size() * page_file_bytes(options.shape);
  if (ConversationIndex::Point* point = catalog.index.find(task.id)) {
    point->last_use = calendar_now();
    enqueue({Job::Kind::touch, {}, {ConversationFile::point, task.id}});
  }
} catch (const std::bad_alloc&) {
  // Its last use is not noted, or what is damaged is found once more.
}

// Of a file that cannot be read the index forgets that it is there; a point without one of its
// pages is not offered. Damaged files go, too.
void ConversationFiles::Parts::forget_faulty(const ConversationLoadTask& task) {
  const ErrorCode code = task.error->code;
  if (code == ErrorCode::exhausted) return;  // nothing is wrong with the file
  const bool gone = code == ErrorCode::not_found;
  if (task.faulty->kind == ConversationFile::page)
    catalog.index.page_is_lost(task.faulty->id, !gone);
  else
    catalog.index.remove(task.id);
  if (gone) return;  // another process needed the room
  ++catalog.counters.damaged;
  log_warning("a saved conversation is not used: {}", task.error->message);
  if (code == ErrorCode::corrupt || code == ErrorCode::unsupported)
    enqueue({Job::Kind::discard, {}, *task.faulty});
}

}  // namespace strata
