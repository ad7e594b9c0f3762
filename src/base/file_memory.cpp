// MemoryFileSystem: files in a map. Contents are immutable once published, so an open file keeps
// what it saw, like an open descriptor of a file that was replaced.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "base/checked.h"
#include "base/file.h"

namespace strata {
namespace {

// "./a//b" and "a/b" are one file.
std::string normal(const std::string& path) {
  return std::filesystem::path(path).lexically_normal().string();
}

class MemoryMapping final : public Mapping {
 public:
  explicit MemoryMapping(std::shared_ptr<const Bytes> content) : content_(std::move(content)) {}
  std::span<const std::byte> bytes() const override { return *content_; }

 private:
  std::shared_ptr<const Bytes> content_;
};

class MemoryFile final : public File {
 public:
  MemoryFile(std::string path, std::shared_ptr<const Bytes> content)
      : path_(std::move(path)), content_(std::move(content)) {}

  const std::string& path() const override { return path_; }
  std::uint64_t size() const override { return content_->size(); }

  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) const override {
    if (offset >= content_->size() || into.empty()) return 0;
    const std::size_t start = static_cast<std::size_t>(offset);
    const std::size_t count = std::min(into.size(), content_->size() - start);
    std::memcpy(into.data(), content_->data() + start, count);
    return count;
  }

  Result<std::shared_ptr<const Mapping>> map() const override {
    return std::make_shared<MemoryMapping>(content_);
  }
  Result<std::uint64_t> size_now() const override { return size(); }
  Result<std::unique_ptr<ReadQueue>> queue_reads(const ReadQueueOptions& options) const override {
    return make_plain_queue(*this, options);
  }

 private:
  std::string path_;
  std::shared_ptr<const Bytes> content_;
};

class MemoryOutputFile final : public OutputFile {
 public:
  using Publish = std::function<void(Bytes)>;
  MemoryOutputFile(std::string path, Publish publish)
      : path_(std::move(path)), publish_(std::move(publish)) {}

  Status write(std::span<const std::byte> bytes) override {
    STRATA_TRY(check_open());
    content_.insert(content_.end(), bytes.begin(), bytes.end());
    return {};
  }

  Status write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    STRATA_TRY(check_open());
    if (!fits(offset, bytes.size(), content_.size())) {
      return fail(ErrorCode::invalid_argument,
                  "cannot overwrite {} bytes at offset {} of '{}': only {} bytes were written",
                  bytes.size(), offset, path_, content_.size());
    }
    std::copy(bytes.begin(), bytes.end(), content_.begin() + static_cast<std::ptrdiff_t>(offset));
    return {};
  }

  Status finish() override {
    STRATA_TRY(check_open());
    publish_(std::move(content_));
    publish_ = nullptr;
    return {};
  }

 private:
  Status check_open() const {
    if (publish_) return {};
    return fail(ErrorCode::invalid_argument, "cannot write to '{}': it is finished", path_);
  }

  std::string path_;
  Publish publish_;
  Bytes content_;
};

tl::unexpected<Error> absent(std::string_view verb, const std::string& path) {
  return fail(ErrorCode::not_found, "cannot {} '{}': No such file or directory", verb, path);
}

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::int64_t MemoryFileSystem::changed(const std::string& path) {
  const std::int64_t time = now();
  folders_[normal(std::filesystem::path(path).parent_path().string())] = time;
  return time;
}

void MemoryFileSystem::put(const std::string& path, Bytes content) {
  const std::lock_guard lock(mutex_);
  const std::int64_t time = changed(normal(path));
  files_[normal(path)] = {std::make_shared<Bytes>(std::move(content)), time};
}

Result<Bytes> MemoryFileSystem::get(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(normal(path));
  if (found == files_.end()) return absent("open", path);
  return *found->second.content;
}

Result<std::unique_ptr<File>> MemoryFileSystem::open(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(normal(path));
  if (found == files_.end()) return absent("open", path);
  return std::make_unique<MemoryFile>(path, found->second.content);
}

Result<std::unique_ptr<File>> MemoryFileSystem::open_private(const std::string& path) {
  return open(path);
}

Result<std::unique_ptr<OutputFile>> MemoryFileSystem::create(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return create_locked(path);
}

Result<std::unique_ptr<OutputFile>> MemoryFileSystem::append(const std::string& path) {
  const auto before = get(path);
  STRATA_ASSIGN(std::unique_ptr<OutputFile> file, create(path));
  if (before) STRATA_TRY(file->write(*before));
  return file;
}

Result<std::unique_ptr<OutputFile>> MemoryFileSystem::create_private(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (files_.contains(normal(path)))
    return fail(ErrorCode::io, "cannot create '{}': File exists", path);
  return create_locked(path);
}

Result<std::unique_ptr<OutputFile>> MemoryFileSystem::create_locked(const std::string& path) {
  auto empty = std::make_shared<Bytes>();
  const std::int64_t time = changed(normal(path));
  files_[normal(path)] = {empty, time};
  // The content goes to wherever the file has been renamed to; a removed file stays removed.
  auto publish = [this, empty](Bytes content) {
    auto filled = std::make_shared<Bytes>(std::move(content));
    const std::lock_guard lock(mutex_);
    for (auto& [name, entry] : files_) {
      if (entry.content == empty) entry = {filled, now()};
    }
  };
  return std::make_unique<MemoryOutputFile>(path, std::move(publish));
}

Status MemoryFileSystem::replace(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(normal(from));
  if (found == files_.end()) return absent("rename", from);
  Entry entry = found->second;
  files_.erase(found);
  files_[normal(to)] = std::move(entry);
  changed(normal(from));
  changed(normal(to));
  return {};
}

Status MemoryFileSystem::flush_folder(const std::string& folder) {
  (void)folder;
  return {};
}

Status MemoryFileSystem::remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (files_.erase(normal(path)) == 0) return absent("remove", path);
  changed(normal(path));
  return {};
}

bool MemoryFileSystem::exists(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return files_.contains(normal(path));
}

Result<FileStatus> MemoryFileSystem::examine(const std::string& path) {
  const std::lock_guard lock(mutex_);
  FileStatus status;
  if (const auto file = files_.find(normal(path)); file != files_.end()) {
    status.size = file->second.content->size();
    status.modified = file->second.modified;
  } else if (const auto folder = folders_.find(normal(path)); folder != folders_.end()) {
    status.kind = FileStatus::Kind::folder;
    status.modified = folder->second;
  } else {
    return absent("examine", path);
  }
  return status;
}

Status MemoryFileSystem::touch(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(normal(path));
  if (found == files_.end()) return absent("touch", path);
  found->second.modified = now();
  return {};
}

Status MemoryFileSystem::make_private_folder(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (files_.contains(normal(path))) {
    return fail(ErrorCode::io, "cannot make the folder '{}': there is a file of that name", path);
  }
  folders_.try_emplace(normal(path), now());
  return {};
}

Result<std::vector<std::string>> MemoryFileSystem::list(const std::string& folder) {
  std::string prefix = normal(folder.empty() ? "." : folder);
  if (prefix == ".") {
    prefix.clear();
  } else if (prefix.back() != '/') {
    prefix += '/';
  }
  std::vector<std::string> names;
  const std::lock_guard lock(mutex_);
  for (const auto& [path, entry] : files_) {
    if (!path.starts_with(prefix)) continue;
    std::string name = path.substr(prefix.size());
    name = name.substr(0, name.find('/'));
    if (!name.empty()) names.push_back(std::move(name));
  }
  if (names.empty() && !folders_.contains(normal(folder))) return absent("list the folder", folder);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace strata
