// The machine's files: POSIX calls, each retried on EINTR and continued after a partial transfer.
#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/checked.h"
#include "base/descriptor.h"
#include "base/errno_text.h"
#include "base/lost_pages.h"

namespace strata {
namespace {

// One call moves at most this much: the kernel's own limit is just below 2 GiB.
constexpr std::size_t kMaxTransfer = std::size_t{1} << 30;

tl::unexpected<Error> errno_failure(std::string_view verb, const std::string& path, int number) {
  const bool absent = number == ENOENT || number == ENOTDIR;
  return fail(absent ? ErrorCode::not_found : ErrorCode::io, "cannot {} '{}': {}", verb, path,
              errno_text(number));
}

int open_retrying(const std::string& path, int flags, mode_t mode = 0) {
  for (;;) {
    const int number = ::open(path.c_str(), flags | O_CLOEXEC, mode);
    if (number >= 0 || errno != EINTR) return number;
  }
}

class RealMapping final : public Mapping {
 public:
  RealMapping(void* start, std::size_t size, const std::string& path) : start_(start), size_(size) {
    if (size_ > 0) guard_pages(start_, size_, path);
  }
  ~RealMapping() override {
    if (size_ == 0) return;
    release_pages(start_);
    ::munmap(start_, size_);
  }
  RealMapping(const RealMapping&) = delete;
  RealMapping& operator=(const RealMapping&) = delete;

  std::span<const std::byte> bytes() const override {
    return {static_cast<const std::byte*>(start_), size_};
  }

 private:
  void* start_;
  std::size_t size_;
};

class RealFile final : public File {
 public:
  RealFile(std::string path, Descriptor descriptor, std::uint64_t size)
      : path_(std::move(path)), descriptor_(std::move(descriptor)), size_(size) {}

  const std::string& path() const override { return path_; }
  std::uint64_t size() const override { return size_; }

  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) const override {
    if (!fits(offset, into.size(), std::uint64_t{1} << 62)) {
      return fail(ErrorCode::io, "cannot read {} bytes at offset {} of '{}': beyond any file",
                  into.size(), offset, path_);
    }
    std::size_t done = 0;
    while (done < into.size()) {
      const std::size_t wanted = std::min(into.size() - done, kMaxTransfer);
      const ssize_t got =
          ::pread(descriptor_.get(), into.data() + done, wanted, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) {
        return fail(ErrorCode::io, "cannot read {} bytes at offset {} of '{}': {}", wanted,
                    offset + done, path_, errno_text(errno));
      }
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    return done;
  }

  Result<std::shared_ptr<const Mapping>> map() const override {
    if (size_ == 0) return std::make_shared<RealMapping>(nullptr, 0, path_);
    void* start = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor_.get(), 0);
    if (start == MAP_FAILED) {
      return fail(ErrorCode::io, "cannot map the {} bytes of '{}': {}", size_, path_,
                  errno_text(errno));
    }
    return std::make_shared<RealMapping>(start, size_, path_);
  }

  Result<std::uint64_t> size_now() const override {
    struct stat status{};
    if (::fstat(descriptor_.get(), &status) != 0) return errno_failure("examine", path_, errno);
    return static_cast<std::uint64_t>(status.st_size);
  }

  Result<std::unique_ptr<ReadQueue>> queue_reads(const ReadQueueOptions& options) const override {
    Descriptor other(open_retrying(path_, O_RDONLY | O_NONBLOCK | (options.direct ? O_DIRECT : 0)));
    if (other.get() < 0 && errno == EINVAL && options.direct) {
      return fail(ErrorCode::unsupported, "the file system of '{}' has no direct reads (O_DIRECT)",
                  path_);
    }
    if (other.get() < 0) return errno_failure("open", path_, errno);
    struct stat mine{}, theirs{};
    if (::fstat(descriptor_.get(), &mine) != 0 || ::fstat(other.get(), &theirs) != 0)
      return errno_failure("examine", path_, errno);
    if (mine.st_dev != theirs.st_dev || mine.st_ino != theirs.st_ino)
      return fail(ErrorCode::io, "'{}' was replaced while it was opened; start again", path_);
    return make_descriptor_queue(other.release(), path_, options);
  }

 private:
  std::string path_;
  Descriptor descriptor_;
  std::uint64_t size_;
};

class RealOutputFile final : public OutputFile {
 public:
  RealOutputFile(std::string path, Descriptor descriptor, std::uint64_t size = 0)
      : path_(std::move(path)), descriptor_(std::move(descriptor)), size_(size) {}

  Status write(std::span<const std::byte> bytes) override {
    STRATA_TRY(transfer(size_, bytes));
    size_ += bytes.size();
    return {};
  }

  Status write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    if (!fits(offset, bytes.size(), size_)) {
      return fail(ErrorCode::invalid_argument,
                  "cannot overwrite {} bytes at offset {} of '{}': only {} bytes were written",
                  bytes.size(), offset, path_, size_);
    }
    return transfer(offset, bytes);
  }

  Status finish() override {
    int result = 0;
    do {
      result = ::fsync(descriptor_.get());
    } while (result != 0 && errno == EINTR);
    if (result != 0) return errno_failure("flush", path_, errno);
    // After close fails the descriptor is gone all the same, so it is not tried again.
    if (::close(descriptor_.release()) != 0 && errno != EINTR) {
      return errno_failure("close", path_, errno);
    }
    return {};
  }

 private:
  Status transfer(std::uint64_t offset, std::span<const std::byte> bytes) {
    if (descriptor_.get() < 0) {
      return fail(ErrorCode::invalid_argument, "cannot write to '{}': it is finished", path_);
    }
    while (!bytes.empty()) {
      const std::size_t wanted = std::min(bytes.size(), kMaxTransfer);
      const ssize_t written =
          ::pwrite(descriptor_.get(), bytes.data(), wanted, static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        return fail(ErrorCode::io, "cannot write {} bytes at offset {} of '{}': {}", wanted, offset,
                    path_, errno_text(written < 0 ? errno : ENOSPC));
      }
      bytes = bytes.subspan(static_cast<std::size_t>(written));
      offset += static_cast<std::uint64_t>(written);
    }
    return {};
  }

  std::string path_;
  Descriptor descriptor_;
  std::uint64_t size_;
};

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

class RealFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<File>> open(const std::string& path) override {
    return open_checked(path, false);
  }

  Result<std::unique_ptr<File>> open_private(const std::string& path) override {
    return open_checked(path, true);
  }

  Result<std::unique_ptr<OutputFile>> create(const std::string& path) override {
    Descriptor descriptor(open_retrying(path, O_WRONLY | O_CREAT | O_TRUNC, 0644));
    if (descriptor.get() < 0) return errno_failure("create", path, errno);
    return std::make_unique<RealOutputFile>(path, std::move(descriptor));
  }

  Result<std::unique_ptr<OutputFile>> append(const std::string& path) override {
    Descriptor descriptor(open_retrying(path, O_WRONLY | O_CREAT, 0644));
    if (descriptor.get() < 0) return errno_failure("create", path, errno);
    struct stat found = {};
    if (::fstat(descriptor.get(), &found) != 0) return errno_failure("examine", path, errno);
    return std::make_unique<RealOutputFile>(path, std::move(descriptor),
                                            static_cast<std::uint64_t>(found.st_size));
  }

  Result<std::unique_ptr<OutputFile>> create_private(const std::string& path) override {
    Descriptor descriptor(open_retrying(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
    if (descriptor.get() < 0) return errno_failure("create", path, errno);
    return std::make_unique<RealOutputFile>(path, std::move(descriptor));
  }

  Status make_private_folder(const std::string& path) override {
    for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
      const std::string part = path.substr(0, end);
      if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST)
        return errno_failure("make the folder", part, errno);
      if (end == std::string::npos) break;
    }
    struct stat status{};
    if (::stat(path.c_str(), &status) != 0) return errno_failure("examine", path, errno);
    if (S_ISDIR(status.st_mode)) return {};
    return fail(ErrorCode::io, "cannot make the folder '{}': there is a file of that name", path);
  }

  Status replace(const std::string& from, const std::string& to) override {
    struct stat target = {};
    // A device or a pipe under that name would be gone for everybody.
    if (::lstat(to.c_str(), &target) == 0 && !S_ISREG(target.st_mode)) {
      return fail(ErrorCode::invalid_argument,
                  "'{}' exists and is no regular file, so it is not replaced; choose another name",
                  to);
    }
    if (::rename(from.c_str(), to.c_str()) != 0) {
      return fail(errno == ENOENT ? ErrorCode::not_found : ErrorCode::io,
                  "cannot rename '{}' to '{}': {}", from, to, errno_text(errno));
    }
    return {};
  }

  // Some file systems cannot flush a folder and say EINVAL.
  Status flush_folder(const std::string& folder) override {
    const Descriptor descriptor(open_retrying(folder, O_RDONLY | O_DIRECTORY));
    if (descriptor.get() < 0) return errno_failure("open the folder", folder, errno);
    for (;;) {
      if (::fsync(descriptor.get()) == 0 || errno == EINVAL || errno == EROFS) return {};
      if (errno != EINTR) return errno_failure("flush the folder", folder, errno);
    }
  }

  Status remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) return errno_failure("remove", path, errno);
    return {};
  }

  bool exists(const std::string& path) override { return ::access(path.c_str(), F_OK) == 0; }

  Result<std::vector<std::string>> list(const std::string& folder) override {
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(folder.c_str()), ::closedir);
    if (!stream) return errno_failure("list the folder", folder, errno);
    std::vector<std::string> names;
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(stream.get());
      if (entry == nullptr) break;
      std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      if (names.size() == kMaxFolderEntries) {
        return fail(ErrorCode::exhausted, "the folder '{}' has more than {} entries", folder,
                    kMaxFolderEntries);
      }
      names.push_back(std::move(name));
    }
    if (errno != 0) return errno_failure("list the folder", folder, errno);
    std::sort(names.begin(), names.end());
    return names;
  }

  Result<FileStatus> examine(const std::string& path) override {
    struct stat status{};
    if (::lstat(path.c_str(), &status) != 0) return errno_failure("examine", path, errno);
    using Kind = FileStatus::Kind;
    const Kind kind = S_ISREG(status.st_mode)   ? Kind::file
                      : S_ISDIR(status.st_mode) ? Kind::folder
                      : S_ISLNK(status.st_mode) ? Kind::link
                                                : Kind::other;
    return FileStatus{kind, static_cast<std::uint64_t>(status.st_size), status.st_nlink,
                      status.st_uid == ::geteuid(),
                      std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
  }

  Status touch(const std::string& path) override {
    if (::utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW) == 0) return {};
    return errno_failure("touch", path, errno);
  }

 private:
  static Result<std::unique_ptr<File>> open_checked(const std::string& path, bool is_private) {
    // Without O_NONBLOCK the open of a pipe would wait for its writer.
    Descriptor descriptor(
        open_retrying(path, O_RDONLY | O_NONBLOCK | (is_private ? O_NOFOLLOW : 0)));
    if (descriptor.get() < 0) return errno_failure("open", path, errno);
    struct stat status{};
    if (::fstat(descriptor.get(), &status) != 0) return errno_failure("examine", path, errno);
    if (!S_ISREG(status.st_mode)) {
      return fail(ErrorCode::io, "cannot open '{}': it is {}, not a file", path,
                  S_ISDIR(status.st_mode) ? "a folder" : "a device or pipe");
    }
    if (status.st_nlink == 0) return errno_failure("open", path, ENOENT);  // removed just now
    if (is_private && (status.st_nlink != 1 || status.st_uid != ::geteuid())) {
      return fail(ErrorCode::io, "'{}' is not used: {}", path,
                  status.st_nlink != 1 ? "it has more names than one (hard links)"
                                       : "it belongs to another user");
    }
    return std::make_unique<RealFile>(path, std::move(descriptor),
                                      static_cast<std::uint64_t>(status.st_size));
  }
};

}  // namespace

Status File::read_exact(std::uint64_t offset, std::span<std::byte> into) const {
  STRATA_ASSIGN(const std::size_t got, read_at(offset, into));
  if (got != into.size()) {
    return fail(ErrorCode::io, "'{}' ends early: {} bytes wanted at offset {}, {} read", path(),
                into.size(), offset, got);
  }
  return {};
}

Status FileSystem::rename(const std::string& from, const std::string& to) {
  STRATA_TRY(replace(from, to));
  STRATA_TRY(flush_folder(folder_of(to)));
  if (folder_of(from) != folder_of(to)) STRATA_TRY(flush_folder(folder_of(from)));
  return {};
}

// Reads to the end instead of trusting size(): the files of /proc and /sys say 0.
Result<std::string> FileSystem::read_text(const std::string& path, std::uint64_t limit) {
  STRATA_ASSIGN(const std::unique_ptr<File> file, open(path));
  const auto too_long = [&] {
    return fail(ErrorCode::exhausted, "'{}' is longer than the {} bytes allowed for it", path,
                limit);
  };
  if (file->size() > limit) return too_long();
  std::string text;
  std::size_t piece = std::max<std::size_t>(static_cast<std::size_t>(file->size()) + 1, 4096);
  for (;;) {
    const std::size_t start = text.size();
    text.resize(start + piece);
    STRATA_ASSIGN(const std::size_t got,
                  file->read_at(start, std::as_writable_bytes(std::span(text).subspan(start))));
    text.resize(start + got);
    if (text.size() > limit) return too_long();
    if (got < piece) return text;
    piece = text.size();
  }
}

FileSystem& real_files() {
  static RealFileSystem files;
  return files;
}

}  // namespace strata
