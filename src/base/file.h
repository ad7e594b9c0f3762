// The file layer. All file access of Strata goes through a FileSystem, so that tests can run the
// same code on memory (MemoryFileSystem) or on a failing disk (FaultyFileSystem).
//
// Thread safety: a File may be read from several threads at once; an OutputFile belongs to one
// thread; a FileSystem may be used from several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/read_queue.h"
#include "base/result.h"

namespace strata {

using Bytes = std::vector<std::byte>;

// Bytes of a file that stay addressable until the last owner lets go. Read only. If the file
// becomes shorter meanwhile, lost_pages.h applies.
class Mapping {
 public:
  virtual ~Mapping() = default;
  virtual std::span<const std::byte> bytes() const = 0;
};

class File {
 public:
  virtual ~File() = default;
  virtual const std::string& path() const = 0;
  // Size in bytes when it was opened.
  virtual std::uint64_t size() const = 0;
  // Reads at most into.size() bytes from `offset`; fewer only at the end of the file.
  virtual Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) const = 0;
  virtual Result<std::shared_ptr<const Mapping>> map() const = 0;
  // Size in bytes now: less than size() once somebody made the file shorter.
  virtual Result<std::uint64_t> size_now() const = 0;
  // For reads that are under way several at a time; the file must outlive the queue. `unsupported`
  // where the file system has no direct reads, or the kernel no ring.
  virtual Result<std::unique_ptr<ReadQueue>> queue_reads(const ReadQueueOptions& options) const = 0;

  // As read_at, but a short read is an `io` error that names path, offset and both counts.
  Status read_exact(std::uint64_t offset, std::span<std::byte> into) const;
};

class OutputFile {
 public:
  virtual ~OutputFile() = default;
  virtual Status write(std::span<const std::byte> bytes) = 0;  // appends, all of it
  // Overwrites bytes already written (headers that are known only at the end).
  virtual Status write_at(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  // Flushes to the device and closes; without it the content is not promised.
  virtual Status finish() = 0;
};

// What stands under a name; a link is not followed.
struct FileStatus {
  enum class Kind { file, folder, link, other };
  Kind kind = Kind::file;
  std::uint64_t size = 0;     // bytes
  std::uint64_t names = 1;    // hard links
  bool own = true;            // belongs to the user this program runs as
  std::int64_t modified = 0;  // nanoseconds since 1970
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual Result<std::unique_ptr<File>> open(const std::string& path) = 0;
  virtual Result<std::unique_ptr<OutputFile>> create(const std::string& path) = 0;  // truncates
  // Writes go behind what the file holds; one that is absent is made.
  virtual Result<std::unique_ptr<OutputFile>> append(const std::string& path) = 0;
  // Replaces `to`, which must be a file or absent, and makes that durable.
  Status rename(const std::string& from, const std::string& to);
  // As rename, but durable only after flush_folder.
  virtual Status replace(const std::string& from, const std::string& to) = 0;
  virtual Status flush_folder(const std::string& folder) = 0;
  virtual Status remove(const std::string& path) = 0;
  virtual bool exists(const std::string& path) = 0;
  // Names (not paths) of the entries of a folder, sorted.
  // More than kMaxFolderEntries are an error.
  virtual Result<std::vector<std::string>> list(const std::string& folder) = 0;
  virtual Result<FileStatus> examine(const std::string& path) = 0;
  // The file counts as modified now.
  virtual Status touch(const std::string& path) = 0;

  // For files that only this program may have written.
  // A folder for this user alone, and its parents; one that exists stays as it is.
  virtual Status make_private_folder(const std::string& path) = 0;
  // A new file that only this user may read; an error if there is anything under that name.
  virtual Result<std::unique_ptr<OutputFile>> create_private(const std::string& path) = 0;
  // As open, but `io` for a link, a file that has a second name, or another user's.
  virtual Result<std::unique_ptr<File>> open_private(const std::string& path) = 0;

  // The whole file as text; an error above `limit` bytes.
  Result<std::string> read_text(const std::string& path, std::uint64_t limit = 1ull << 30);
};

inline constexpr std::size_t kMaxFolderEntries = std::size_t{1} << 20;

// The machine's files.
FileSystem& real_files();

// Files in memory. A folder is there once it was made or a file lies in it.
class MemoryFileSystem final : public FileSystem {
 public:
  void put(const std::string& path, Bytes content);
  Result<Bytes> get(const std::string& path) const;
  Result<std::unique_ptr<File>> open(const std::string& path) override;
  Result<std::unique_ptr<OutputFile>> create(const std::string& path) override;
  Result<std::unique_ptr<OutputFile>> append(const std::string& path) override;
  Status replace(const std::string& from, const std::string& to) override;
  Status flush_folder(const std::string& folder) override;
  Status remove(const std::string& path) override;
  bool exists(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& folder) override;
  Result<FileStatus> examine(const std::string& path) override;
  Status touch(const std::string& path) override;
  Status make_private_folder(const std::string& path) override;
  Result<std::unique_ptr<OutputFile>> create_private(const std::string& path) override;
  Result<std::unique_ptr<File>> open_private(const std::string& path) override;

 private:
  struct Entry {
    std::shared_ptr<Bytes> content;
    std::int64_t modified = 0;
  };
  Result<std::unique_ptr<OutputFile>> create_locked(const std::string& path);
  std::int64_t changed(const std::string& path);  // notes it in the folder; the time

  mutable std::mutex mutex_;
  std::map<std::string, Entry> files_;
  std::map<std::string, std::int64_t> folders_;  // those that were made, or changed: when
};

// The private forms of open and create count as open and create. Passes everything to `inner`
// unless `fault` answers with an error or a shorter count, or `queued_fault` changes a read of a
// queue.
class FaultyFileSystem final : public FileSystem {
 public:
  enum class Operation {
    open,
    create,
    read,
    map,
    size,
    queue,
    write,
    finish,
    rename,
    flush_folder,
    remove,
    list,
    examine,
    touch,
    make_folder
  };
  struct Call {
    Operation operation;
    std::string path;
    std::uint64_t offset = 0;
    std::size_t size = 0;
    const ReadQueueOptions* queue = nullptr;  // of operation queue
  };
  // Returns the number of bytes the call may handle (call.size to let it pass), or the error.
  using Fault = std::function<Result<std::size_t>(const Call&)>;

  // What becomes of one read of a queue.
  struct QueuedFault {
    int error = 0;                       // an errno in place of the read
    std::size_t at_most = SIZE_MAX;      // bytes read
    std::chrono::microseconds delay{0};  // reported this much later; others may overtake it
  };
  using QueuedFaults = std::function<QueuedFault(std::uint64_t offset, std::size_t size)>;

  FaultyFileSystem(FileSystem& inner, Fault fault, QueuedFaults queued_fault = {});
  Result<std::unique_ptr<File>> open(const std::string& path) override;
  Result<std::unique_ptr<OutputFile>> create(const std::string& path) override;
  Result<std::unique_ptr<OutputFile>> append(const std::string& path) override;
  Status replace(const std::string& from, const std::string& to) override;
  Status flush_folder(const std::string& folder) override;
  Status remove(const std::string& path) override;
  bool exists(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& folder) override;
  Result<FileStatus> examine(const std::string& path) override;
  Status touch(const std::string& path) override;
  Status make_private_folder(const std::string& path) override;
  Result<std::unique_ptr<OutputFile>> create_private(const std::string& path) override;
  Result<std::unique_ptr<File>> open_private(const std::string& path) override;

 private:
  FileSystem& inner_;
  std::shared_ptr<Fault> fault_;
  std::shared_ptr<QueuedFaults> queued_fault_;
};

}  // namespace strata
