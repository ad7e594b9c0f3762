#include "engine/conversation_loader.h"

#include <exception>

namespace strata {

ConversationLoader::ConversationLoader(FileSystem& files, std::string folder,
                                       const ConversationShape& shape, Ended ended)
    : files_(files), folder_(std::move(folder)), shape_(shape), ended_(std::move(ended)) {
  readers_.reserve(kReaders);
  try {
    while (readers_.size() < kReaders) readers_.emplace_back([this] { run(); });
  } catch (const std::exception&) {  // by the system, or for want of memory: one is enough
    if (readers_.empty()) throw;
  }
}

ConversationLoader::~ConversationLoader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& reader : readers_) reader.join();
}

Status ConversationLoader::start(std::shared_ptr<ConversationLoadTask> task) {
  const std::lock_guard lock(mutex_);
  if (tasks_.size() >= kMaxLoads)
    return fail(ErrorCode::exhausted, "{} saved conversations wait to be loaded already",
                kMaxLoads);
  task->point.pages.resize(task->page_ids.size());
  tasks_.push_back(std::move(task));
  work_.notify_all();
  return {};
}

// When the loader stops, what has not begun ends with an error; so every load ends.
void ConversationLoader::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const std::shared_ptr<ConversationLoadTask> task = tasks_.front();
    const std::size_t file = task->begun++;
    if (task->begun == task->files()) tasks_.pop_front();
    const bool stopping = stopping_;
    lock.unlock();
    if (stopping) {
      const std::lock_guard task_lock(task->mutex);
      if (!task->error) task->error = Error{ErrorCode::unavailable, "the engine is stopping"};
    } else {
      read(*task, file);
    }
    lock.lock();
    if (++task->ended < task->files()) continue;
    lock.unlock();
    finish(*task);
    lock.lock();
  }
}

void ConversationLoader::read(ConversationLoadTask& task, std::size_t file) {
  if (task.cancelled) return;
  {
    const std::lock_guard lock(task.mutex);
    if (task.error) return;
  }
  // The point comes first: if it is of no use, its pages need not be read.
  const ConversationName name =
      file == 0 ? ConversationName{ConversationFile::point, task.id}
                : ConversationName{ConversationFile::page, task.page_ids[file - 1]};
  const Status status = read_file(task, name, file);
  if (status) return;
  const std::lock_guard lock(task.mutex);
  if (task.error) return;
  task.error = status.error();
  task.faulty = name;
}

Status ConversationLoader::read_file(ConversationLoadTask& task, const ConversationName& name,
                                     std::size_t file) {
  if (file == 0) {
    STRATA_ASSIGN(SavedPoint point,
                  read_point(files_, folder_, name.id, shape_, task.tokens, task.page_ids));
    const std::lock_guard lock(task.mutex);
    task.point.tokens = std::move(point.tokens);
    task.point.state = std::move(point.state);
    // The last page, if it is not full; the full ones may be there already.
    if (point.pages.size() > task.page_ids.size())
      task.point.pages.push_back(std::move(point.pages.back()));
    return {};
  }
  STRATA_ASSIGN(PageBytes page, read_page(files_, folder_, name.id, shape_));
  const std::lock_guard lock(task.mutex);
  task.point.pages[file - 1] = std::move(page);
  return {};
}

void ConversationLoader::finish(ConversationLoadTask& task) {
  if (!task.cancelled) ended_(task);
  const std::lock_guard lock(task.mutex);
  if (task.error) task.point = {};
  task.done = true;
  // Under the mutex: whoever drops the load takes the wake back and knows that it does not run.
  if (task.wake) task.wake();
  task.wake = nullptr;
}

}  // namespace strata
