// FaultyFileSystem: asks the fault before each call and shortens or refuses it as told.
#include <algorithm>
#include <chrono>
#include <vector>

#include "base/file.h"

namespace strata {
namespace {

using Operation = FaultyFileSystem::Operation;
using SharedFault = std::shared_ptr<FaultyFileSystem::Fault>;
using SharedQueuedFaults = std::shared_ptr<FaultyFileSystem::QueuedFaults>;

Result<std::size_t> ask(const SharedFault& fault, Operation operation, const std::string& path,
                        std::uint64_t offset = 0, std::size_t size = 0) {
  return (*fault)({operation, path, offset, size});
}

// The start of another mapping: what a file that shrank would still have.
class ShortMapping final : public Mapping {
 public:
  ShortMapping(std::shared_ptr<const Mapping> inner, std::size_t size)
      : inner_(std::move(inner)), size_(std::min(size, inner_->bytes().size())) {}
  std::span<const std::byte> bytes() const override { return inner_->bytes().first(size_); }

 private:
  std::shared_ptr<const Mapping> inner_;
  std::size_t size_;
};

// Reads go to another queue, changed as told; what ended early is held back until it is due.
class FaultyQueue final : public ReadQueue {
 public:
  FaultyQueue(std::unique_ptr<ReadQueue> inner, SharedQueuedFaults faults)
      : inner_(std::move(inner)), faults_(std::move(faults)), due_(inner_->slots()) {}

  std::uint32_t slots() const override { return inner_->slots(); }
  std::span<std::byte> buffer(std::uint32_t slot) override { return inner_->buffer(slot); }

  void start(std::uint32_t slot, std::uint64_t offset, std::uint32_t bytes) override {
    if (const std::size_t most = allowed(slot, offset, bytes); most > 0)
      inner_->start(slot, offset, static_cast<std::uint32_t>(most));
  }
  void start_into(std::uint32_t slot, std::uint64_t offset, std::span<std::byte> into) override {
    if (const std::size_t most = allowed(slot, offset, into.size()); most > 0)
      inner_->start_into(slot, offset, into.first(most));
  }

  std::span<const Done> wait(std::chrono::microseconds timeout) override {
    if (report()) return reported_;
    for (const Done& done : held_) {
      const auto left =
          std::chrono::ceil<std::chrono::microseconds>(due_[done.slot] - Clock::now());
      timeout = std::min(timeout, std::max(left, std::chrono::microseconds(0)));
    }
    const auto ended = inner_->wait(timeout);
    held_.insert(held_.end(), ended.begin(), ended.end());
    report();
    return reported_;
  }

  void begin() override { inner_->begin(); }
  void wake() override { inner_->wake(); }
  std::string description() const override { return inner_->description(); }

 private:
  using Clock = std::chrono::steady_clock;

  // How many bytes of a read that starts are really read; 0: it has ended.
  std::size_t allowed(std::uint32_t slot, std::uint64_t offset, std::size_t bytes) {
    const FaultyFileSystem::QueuedFault fault = (*faults_)(offset, bytes);
    due_[slot] = Clock::now() + fault.delay;
    const std::size_t most = fault.error != 0 ? 0 : std::min(bytes, fault.at_most);
    if (most == 0) held_.push_back({slot, -fault.error});
    return most;
  }

  // Moves what is due into reported_; whether that is anything.
  bool report() {
    reported_.clear();
    const auto now = Clock::now();
    std::erase_if(held_, [&](const Done& done) {
      if (due_[done.slot] > now) return false;
      reported_.push_back(done);
      return true;
    });
    return !reported_.empty();
  }

  std::unique_ptr<ReadQueue> inner_;
  SharedQueuedFaults faults_;
  std::vector<Clock::time_point> due_;  // by slot
  std::vector<Done> held_, reported_;
};

class FaultyFile final : public File {
 public:
  FaultyFile(std::unique_ptr<File> inner, SharedFault fault, SharedQueuedFaults queued_fault)
      : inner_(std::move(inner)),
        fault_(std::move(fault)),
        queued_fault_(std::move(queued_fault)) {}

  const std::string& path() const override { return inner_->path(); }
  std::uint64_t size() const override { return inner_->size(); }

  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) const override {
    STRATA_ASSIGN(const std::size_t allowed,
                  ask(fault_, Operation::read, path(), offset, into.size()));
    return inner_->read_at(offset, into.first(std::min(allowed, into.size())));
  }

  Result<std::shared_ptr<const Mapping>> map() const override {
    const std::size_t whole = static_cast<std::size_t>(size());
    STRATA_ASSIGN(const std::size_t allowed, ask(fault_, Operation::map, path(), 0, whole));
    STRATA_ASSIGN(std::shared_ptr<const Mapping> mapping, inner_->map());
    if (allowed >= whole) return mapping;
    return std::make_shared<ShortMapping>(std::move(mapping), allowed);
  }

  Result<std::uint64_t> size_now() const override {
    STRATA_ASSIGN(const std::uint64_t now, inner_->size_now());
    STRATA_ASSIGN(const std::size_t allowed,
                  ask(fault_, Operation::size, path(), 0, static_cast<std::size_t>(now)));
    return allowed;
  }

  Result<std::unique_ptr<ReadQueue>> queue_reads(const ReadQueueOptions& options) const override {
    STRATA_TRY((*fault_)({Operation::queue, path(), 0, 0, &options}));
    STRATA_ASSIGN(std::unique_ptr<ReadQueue> queue, inner_->queue_reads(options));
    if (!*queued_fault_) return queue;
    return std::make_unique<FaultyQueue>(std::move(queue), queued_fault_);
  }

 private:
  std::unique_ptr<File> inner_;
  SharedFault fault_;
  SharedQueuedFaults queued_fault_;
};

class FaultyOutputFile final : public OutputFile {
 public:
  FaultyOutputFile(std::string path, std::unique_ptr<OutputFile> inner, SharedFault fault)
      : path_(std::move(path)), inner_(std::move(inner)), fault_(std::move(fault)) {}

  Status write(std::span<const std::byte> bytes) override {
    STRATA_ASSIGN(const std::size_t allowed,
                  ask(fault_, Operation::write, path_, size_, bytes.size()));
    const auto part = bytes.first(std::min(allowed, bytes.size()));
    STRATA_TRY(inner_->write(part));
    size_ += part.size();
    return check_whole(part.size(), bytes.size());
  }

  Status write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    STRATA_ASSIGN(const std::size_t allowed,
                  ask(fault_, Operation::write, path_, offset, bytes.size()));
    const auto part = bytes.first(std::min(allowed, bytes.size()));
    STRATA_TRY(inner_->write_at(offset, part));
    return check_whole(part.size(), bytes.size());
  }

  Status finish() override {
    STRATA_TRY(ask(fault_, Operation::finish, path_, size_));
    return inner_->finish();
  }

 private:
  // A disk that fills up takes the first bytes and then refuses.
  Status check_whole(std::size_t written, std::size_t wanted) const {
    if (written == wanted) return {};
    return fail(ErrorCode::io, "cannot write {} bytes to '{}': No space left on device after {}",
                wanted, path_, written);
  }

  std::string path_;
  std::unique_ptr<OutputFile> inner_;
  SharedFault fault_;
  std::uint64_t size_ = 0;
};

}  // namespace

FaultyFileSystem::FaultyFileSystem(FileSystem& inner, Fault fault, QueuedFaults queued_fault)
    : inner_(inner),
      fault_(std::make_shared<Fault>(std::move(fault))),
      queued_fault_(std::make_shared<QueuedFaults>(std::move(queued_fault))) {}

Result<std::unique_ptr<File>> FaultyFileSystem::open(const std::string& path) {
  STRATA_TRY(ask(fault_, Operation::open, path));
  STRATA_ASSIGN(std::unique_ptr<File> file, inner_.open(path));
  return std::make_unique<FaultyFile>(std::move(file), fault_, queued_fault_);
}

Result<std::unique_ptr<OutputFile>> FaultyFileSystem::create(const std::string& path) {
  STRATA_TRY(ask(fault_, Operation::create, path));
  STRATA_ASSIGN(std::unique_ptr<OutputFile> file, inner_.create(path));
  return std::make_unique<FaultyOutputFile>(path, std::move(file), fault_);
}

Result<std::unique_ptr<OutputFile>> FaultyFileSystem::append(const std::string& path) {
  STRATA_TRY(ask(fault_, Operation::create, path));
  STRATA_ASSIGN(std::unique_ptr<OutputFile> file, inner_.append(path));
  return std::make_unique<FaultyOutputFile>(path, std::move(file), fault_);
}

Result<std::unique_ptr<File>> FaultyFileSystem::open_private(const std::string& path) {
  STRATA_TRY(ask(fault_, Operation::open, path));
  STRATA_ASSIGN(std::unique_ptr<File> file, inner_.open_private(path));
  return std::make_unique<FaultyFile>(std::move(file), fault_, queued_fault_);
}

Result<std::unique_ptr<OutputFile>> FaultyFileSystem::create_private(const std::string& path) {
  STRATA_TRY(ask(fault_, Operation::create, path));
  STRATA_ASSIGN(std::unique_ptr<OutputFile> file, inner_.create_private(path));
  return std::make_unique<FaultyOutputFile>(path, std::move(file), fault_);
}

Status FaultyFileSystem::replace(const std::string& from, const std::string& to) {
  STRATA_TRY(ask(fault_, Operation::rename, from));
  return inner_.replace(from, to);
}

Status FaultyFileSystem::flush_folder(const std::string& folder) {
  STRATA_TRY(ask(fault_, Operation::flush_folder, folder));
  return inner_.flush_folder(folder);
}

Status FaultyFileSystem::remove(const std::string& path) {
  STRATA_TRY(ask(fault_, Operation::remove, path));
  return inner_.remove(path);
}

bool FaultyFileSystem::exists(const std::string& path) {
  return inner_.exists(path);
}

Result<std::vector<std::string>> FaultyFileSystem::list(const std::string& folder) {
  STRATA_TRY(ask(fault_, Operation::list, folder));
  return inner_.list(folder);
}

Result<FileStatus> FaultyFileSystem::examine(const std::string& path) {
  STRATA_TRY(ask(fault_, Operation::examine, path));
  return inner_.examine(path);
}

Status FaultyFileSystem::touch(const std::string& path) {
  STRATA_TRY(ask(fault_, Operation::touch, path));
  return inner_.touch(path);
}

Status FaultyFileSystem::make_private_folder(const std::string& path) {
  STRATA_TRY(ask(fault_, Operation::make_folder, path));
  return inner_.make_private_folder(path);
}

}  // namespace strata
