#include "base/bulk_reader.h"

#include <algorithm>

#include "base/log.h"

namespace strata {
namespace {

using std::chrono::microseconds;

Result<std::unique_ptr<ReadQueue>> best_queue(const File& file,
                                              const BulkReader::Options& options) {
  using Method = ReadQueueOptions::Method;
  ReadQueueOptions wanted;
  wanted.depth = options.depth;
  wanted.slot_bytes = kReadPage;  // reads bring their own places
  Status why;
  for (const bool direct : {true, false}) {
    if (direct && !options.direct) continue;
    for (const Method method : {Method::ring, Method::threads}) {
      wanted.direct = direct;
      wanted.method = method;
      auto queue = file.queue_reads(wanted);
      if (queue || queue.error().code != ErrorCode::unsupported) return queue;
      if (why) why = tl::unexpected(queue.error());
    }
  }
  return tl::unexpected(why.error());
}

}  // namespace

Result<std::unique_ptr<BulkReader>> BulkReader::open(FileSystem& files,
                                                     std::span<const std::string> paths,
                                                     const Options& options) {
  std::unique_ptr<BulkReader> reader(new BulkReader);
  for (const std::string& path : paths) {
    Queue queue;
    STRATA_ASSIGN(queue.file, files.open(path));
    STRATA_ASSIGN(queue.queue, best_queue(*queue.file, options));
    queue.running.resize(options.depth);
    for (std::uint32_t slot = options.depth; slot > 0; --slot) queue.free.push_back(slot - 1);
    reader->queues_.push_back(std::move(queue));
  }
  if (reader->queues_.empty())
    return fail(ErrorCode::internal, "a reader needs a file to read from");
  return reader;
}

void BulkReader::start(const Read& read) {
  queues_[read.file].waiting.push_back(read);
  ++open_;
}

void BulkReader::feed(Queue& queue) {
  while (!queue.waiting.empty() && !queue.free.empty()) {
    const std::uint32_t slot = queue.free.back();
    queue.free.pop_back();
    queue.running[slot] = queue.waiting.front();
    queue.waiting.pop_front();
    ++queue.busy;
    queue.queue->start_into(slot, queue.running[slot].offset, queue.running[slot].into);
  }
}

void BulkReader::begin() {
  for (Queue& queue : queues_) {
    feed(queue);
    if (queue.busy > 0) queue.queue->begin();
  }
}

Status BulkReader::check(const Queue& queue, const Read& read, std::int32_t result) {
  if (result >= 0 && static_cast<std::size_t>(result) >= read.wanted) return {};
  // The ordinary way may succeed, and else it says what is wrong.
  return queue.file->read_exact(read.offset, read.into.first(read.wanted));
}

void BulkReader::collect(Queue& queue, microseconds timeout) {
  for (const ReadQueue::Done& done : queue.queue->wait(timeout)) {
    const Read& read = queue.running[done.slot];
    ended_.push_back({read.owner, check(queue, read, done.result)});
    bytes_ += read.wanted;
    queue.free.push_back(done.slot);
    --queue.busy;
    --open_;
  }
  feed(queue);
}

std::span<const BulkReader::Ended> BulkReader::wait(microseconds timeout) {
  ended_.clear();
  begin();
  const auto busy = std::count_if(queues_.begin(), queues_.end(),
                                  [](const Queue& queue) { return queue.busy > 0; });
  // With several files under way each is looked at for a moment in turn.
  const microseconds each = busy > 1 ? std::min(timeout, microseconds(500)) : timeout;
  for (Queue& queue : queues_)
    if (queue.busy > 0) collect(queue, ended_.empty() ? each : microseconds(0));
  begin();
  return ended_;
}

}  // namespace strata
