// Large reads of one or more files into places of the caller's, many under way at a time: what
// loads weights and brings experts. Past the page cache if asked to and the file system can, with
// io_uring or else threads or else plain reads.
//
// One thread uses a reader from the first start() on. Its places must be pages of a mapping that
// outlives the reader: only what wait() has reported is the caller's again.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace strata {

// The pages around `bytes` bytes at `offset`.
struct PageRange {
  std::uint64_t first = 0;  // offset of the first page
  std::size_t head = 0;     // bytes before the wanted ones
  std::size_t size = 0;     // whole pages
  static PageRange around(std::uint64_t offset, std::size_t bytes) {
    const std::size_t head = offset % kReadPage;
    return {offset - head, head, (head + bytes + kReadPage - 1) / kReadPage * kReadPage};
  }
};

class BulkReader {
 public:
  struct Options {
    bool direct = true;
    std::uint32_t depth = 64;  // reads under way at most, of each file
  };
  struct Read {
    std::uint32_t owner = 0;   // the caller's own number
    std::uint32_t file = 0;    // place among the paths
    std::uint64_t offset = 0;  // a multiple of kReadPage
    std::span<std::byte> into;
    std::size_t wanted = 0;  // bytes of these that the file must have
  };
  struct Ended {
    std::uint32_t owner = 0;
    Status status;  // names the file and the place
  };

  static Result<std::unique_ptr<BulkReader>> open(FileSystem& files,
                                                  std::span<const std::string> paths,
                                                  const Options& options);
  // As many as one likes; it goes out at the next begin() or wait().
  void start(const Read& read);
  void begin();
  // What has ended: at least one, if any is under way, unless `timeout` passes. A read that failed
  // was tried once more, in the ordinary way. Valid until the next call.
  std::span<const Ended> wait(std::chrono::microseconds timeout);
  bool busy() const { return open_ > 0; }
  std::uint64_t bytes() const { return bytes_; }  // read so far
  std::string description() const { return queues_[0].queue->description(); }

 private:
  struct Queue {
    std::unique_ptr<File> file;
    std::unique_ptr<ReadQueue> queue;  // ends before the file
    std::deque<Read> waiting;
    std::vector<Read> running;  // by slot
    std::vector<std::uint32_t> free;
    std::uint32_t busy = 0;
  };
  BulkReader() = default;
  void feed(Queue& queue);
  void collect(Queue& queue, std::chrono::microseconds timeout);
  static Status check(const Queue& queue, const Read& read, std::int32_t result);

  std::vector<Queue> queues_;
  std::vector<Ended> ended_;
  std::uint64_t open_ = 0;  // started and not reported
  std::uint64_t bytes_ = 0;
};

}  // namespace strata
