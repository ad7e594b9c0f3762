// MemoryFileSystem: files in a map. Contents are immutable once published, so an open file keeps
// what it saw, like an open descriptor of a file that was replaced.
#include <algorithm>
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

}  // namespace

void MemoryFileSystem::put(const std::string& path, Bytes content) {
  const std::lock_guard lock(mutex_);
  files_[normal(path)] = std::make_shared<Bytes>(std::move(content));
}

Result<Bytes> MemoryFileSystem::get(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(normal(path));
  if (found == files_.end()) return absent("open", path);
  return *found->second;
}

Result<std::unique_ptr<File>> MemoryFileSystem::open(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(normal(path));
  if (found == files_.end()) return absent("open", path);
  return std::make_unique<MemoryFile>(path, found->second);
}

Result<std::unique_ptr<OutputFile>> MemoryFileSystem::create(const std::string& path) {
  auto empty = std::make_shared<Bytes>();
  {
    const std::lock_guard lock(mutex_);
    files_[normal(path)] = empty;
  }
  // The content goes to wherever the file has been renamed to; a removed file stays removed.
  auto publish = [this, empty](Bytes content) {
    auto filled = std::make_shared<Bytes>(std::move(content));
    const std::lock_guard lock(mutex_);
    for (auto& [name, bytes] : files_) {
      if (bytes == empty) bytes = filled;
    }
  };
  return std::make_unique<MemoryOutputFile>(path, std::move(publish));
}

Status MemoryFileSystem::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(normal(from));
  if (found == files_.end()) return absent("rename", from);
  auto content = found->second;
  files_.erase(found);
  files_[normal(to)] = std::move(content);
  return {};
}

Status MemoryFileSystem::remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (files_.erase(normal(path)) == 0) return absent("remove", path);
  return {};
}

bool MemoryFileSystem::exists(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return files_.contains(normal(path));
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
  for (const auto& [path, content] : files_) {
    if (!path.starts_with(prefix)) continue;
    std::string name = path.substr(prefix.size());
    name = name.substr(0, name.find('/'));
    if (!name.empty()) names.push_back(std::move(name));
  }
  if (names.empty()) return absent("list the folder", folder);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace strata
