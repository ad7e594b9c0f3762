#include "server/engine_child.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "base/lost_pages.h"
#include "server/engine_wire.h"

namespace strata::server {
namespace {

// The socket's sending half; frames of several threads stay whole and in order.
class Sender {
 public:
  explicit Sender(int socket) : socket_(socket) {}

  void send(WireWriter&& writer) {
    const std::lock_guard lock(mutex_);
    add(std::move(writer));
    send_held();
  }
  // Goes with the next frame that is sent, or with flush(): a window gives each of its requests a
  // token, and a system call takes as long as all else that is done for one.
  void hold(WireWriter&& writer) {
    constexpr std::size_t most = 64 << 10;
    const std::lock_guard lock(mutex_);
    add(std::move(writer));
    if (held_.size() >= most) send_held();
  }
  void flush() {
    const std::lock_guard lock(mutex_);
    send_held();
  }

 private:
  void add(WireWriter&& writer) { held_ += std::move(writer).frame(); }
  void send_held() {
    std::size_t sent = 0;
    while (!broken_ && sent < held_.size()) {
      const ssize_t now = ::send(socket_, held_.data() + sent, held_.size() - sent, MSG_NOSIGNAL);
      if (now < 0 && errno == EINTR) continue;
      if (now <= 0) broken_ = true;  // the reader hears of it too
      if (now > 0) sent += static_cast<std::size_t>(now);
    }
    held_.clear();
  }

  int socket_;
  std::mutex mutex_;
  std::string held_;
  bool broken_ = false;
};

class PipeListener final : public Listener {
 public:
  PipeListener(std::uint64_t id, Sender& sender, std::function<void()> over)
      : id_(id), sender_(sender), over_(std::move(over)) {}
  void queued(std::uint32_t ahead) override {
    sender_.send(std::move(WireWriter(FrameKind::queued).u64(id_).u32(ahead)));
  }
  void started(std::uint32_t cached) override {
    sender_.send(std::move(WireWriter(FrameKind::started).u64(id_).u32(cached)));
  }
  void progress(std::uint32_t read, std::uint32_t total) override {
    sender_.send(std::move(WireWriter(FrameKind::progress).u64(id_).u32(read).u32(total)));
  }
  void prompt_chances(const TokenChances& chances) override {
    sender_.send(std::move(WireWriter(FrameKind::prompt_chances).u64(id_).chances(chances)));
  }
  void chances(const TokenChances& chances) override { next_ = chances; }
  void token(TokenId id) override {
    WireWriter writer(FrameKind::token);
    writer.u64(id_).u32(static_cast<std::uint32_t>(id)).u8(next_ ? 1 : 0);
    if (next_) writer.chances(*next_);
    next_.reset();
    sender_.hold(std::move(writer));
  }
  void window_over() override { sender_.flush(); }
  void finished(const Completion& completion) override {
    over_();
    sender_.send(std::move(WireWriter(FrameKind::finished).u64(id_).completion(completion)));
  }

 private:
  std::uint64_t id_;
  Sender& sender_;
  std::function<void()> over_;
  std::optional<TokenChances> next_;
};

class Child {
 public:
  explicit Child(int socket) : socket_(socket), sender_(socket) {}

  Status run(const std::function<Result<std::unique_ptr<Engine>>()>& open);

 private:
  Status read_frames();
  Status take(const Frame& frame);
  void submit(std::uint64_t id, Request request);
  void converse(std::uint64_t id, ConversationTask task);
  void end_if_file_is_lost();

  int socket_;
  Sender sender_;
  std::mutex mutex_;
  std::unique_ptr<Engine> engine_;               // set once
  std::map<std::uint64_t, RequestId> requests_;  // the server's number to the engine's
};

Status Child::run(const std::function<Result<std::unique_ptr<Engine>>()>& open) {
  Status status;
  std::thread reader([&] {
    status = read_frames();
    // Nobody is left to answer, and opening or a window may take long.
    if (!status) log_error("the engine ends: {}", status.error().message);
    const std::lock_guard lock(mutex_);
    if (engine_ == nullptr) ::_exit(status ? 0 : 1);
  });
  sender_.send(std::move(WireWriter(FrameKind::loading).text("the model is being loaded")));
  auto engine = open();
  if (!engine) {
    sender_.send(std::move(WireWriter(FrameKind::failed).error(engine.error())));
    ::shutdown(socket_, SHUT_RD);  // ends the reader, and with it the process
    reader.join();
    return tl::unexpected<Error>(engine.error());
  }
  {
    const std::lock_guard lock(mutex_);
    engine_ = std::move(*engine);
    sender_.send(std::move(WireWriter(FrameKind::ready).u32(kWireVersion).facts(engine_->facts())));
  }
  reader.join();
  engine_.reset();
  return status;
}

Status Child::read_frames() {
  FrameCutter cutter;
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t got = ::read(socket_, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return {};  // the server has gone
    cutter.feed({buffer.data(), static_cast<std::size_t>(got)});
    for (;;) {
      STRATA_ASSIGN(const auto frame, cutter.next());
      if (!frame) break;
      if (frame->kind == FrameKind::quit) return {};
      STRATA_TRY(take(*frame));
    }
  }
}

Status Child::take(const Frame& frame) {
  WireReader reader(frame.payload);
  switch (frame.kind) {
    case FrameKind::hello:
      if (const std::uint32_t version = reader.u32(); version != kWireVersion) {
        return fail(ErrorCode::unsupported, "the server speaks version {} of the pipe, not {}",
                    version, kWireVersion);
      }
      return reader.done();
    case FrameKind::ping: {
      const std::uint64_t number = reader.u64();
      STRATA_TRY(reader.done());
      EngineCounters counters;
      {
        const std::lock_guard lock(mutex_);
        if (engine_ != nullptr) counters = engine_->counters();
      }
      sender_.send(std::move(WireWriter(FrameKind::pong).u64(number).counters(counters)));
      end_if_file_is_lost();
      return {};
    }
    case FrameKind::submit: {
      const std::uint64_t id = reader.u64();
      Request request = reader.request();
      STRATA_TRY(reader.done());
      submit(id, std::move(request));
      return {};
    }
    case FrameKind::cancel: {
      const std::uint64_t id = reader.u64();
      STRATA_TRY(reader.done());
      const std::lock_guard lock(mutex_);
      const auto found = requests_.find(id);
      if (found != requests_.end() && engine_ != nullptr) engine_->cancel(found->second);
      return {};
    }
    case FrameKind::conversation: {
      const std::uint64_t id = reader.u64();
      ConversationTask task = reader.task();
      STRATA_TRY(reader.done());
      converse(id, std::move(task));
      return {};
    }
    default:
      return fail(ErrorCode::corrupt, "the server sent a frame of the kind {}",
                  static_cast<unsigned>(frame.kind));
  }
}

// Nothing that is computed from a file with missing pages is right, and they do not come back: the
// next process opens the file again and says what is wrong with it.
void Child::end_if_file_is_lost() {
  const auto lost = lost_file();
  if (!lost) return;
  const Error error{ErrorCode::unavailable,
                    fmt::format("'{}' became shorter while it was in use, or its device failed; "
                                "restore the file",
                                *lost)};
  sender_.send(std::move(WireWriter(FrameKind::failed).error(error)));
  ::_exit(1);
}

void Child::converse(std::uint64_t id, ConversationTask task) {
  const auto tell = [this, id](const Result<ConversationResult>& result) {
    sender_.send(std::move(WireWriter(FrameKind::conversed).u64(id).result(result)));
  };
  const std::lock_guard lock(mutex_);
  if (engine_ != nullptr) return engine_->conversation(std::move(task), tell);
  tell(fail(ErrorCode::unavailable, "the model is still being loaded"));
}

void Child::submit(std::uint64_t id, Request request) {
  const std::lock_guard lock(mutex_);
  Completion refused;
  refused.reason = FinishReason::error;
  refused.error = {ErrorCode::unavailable, "the model is still being loaded"};
  if (engine_ != nullptr) {
    auto listener = std::make_shared<PipeListener>(id, sender_, [this, id] {
      // From the engine's thread, never inside submit().
      const std::lock_guard inner(mutex_);
      requests_.erase(id);
    });
    auto known = engine_->submit(std::move(request), std::move(listener));
    if (known) {
      requests_[id] = *known;
      return;
    }
    refused.error = std::move(known).error();
  }
  sender_.send(std::move(WireWriter(FrameKind::finished).u64(id).completion(refused)));
}

}  // namespace

Status run_engine_child(int socket, const std::function<Result<std::unique_ptr<Engine>>()>& open) {
  return Child(socket).run(open);
}

}  // namespace strata::server
