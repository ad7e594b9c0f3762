#include "server/engine_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "base/errno_text.h"
#include "base/log.h"
#include "gguf/gguf.h"
#include "server/engine_sums.h"
#include "server/engine_wire.h"

namespace strata::server {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kChildSocket = 3;
constexpr std::string_view kBack = "; it is being started again";

// A file descriptor that is closed once.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  int get() const { return fd_; }
  void reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return fmt::format("was ended by signal {} ({}){}", number, strsignal(number),
                       number == SIGKILL ? "; often the system was out of memory" : "");
  }
  return fmt::format("ended with the exit code {}", WEXITSTATUS(status));
}

// A request on its way.
struct Pending {
  Request request;
  std::shared_ptr<Listener> listener;
  bool told = false;        // more than progress has been reported
  bool progressed = false;  // the engine has begun with it
  bool cancelled = false;
  int runs = 0;  // engines it was given to
};

class Supervisor final : public EngineProcess {
 public:
  Supervisor(EngineProcessOptions options, Metadata metadata, Tokenizer tokenizer)
      : options_(std::move(options)),
        metadata_(std::move(metadata)),
        tokenizer_(std::move(tokenizer)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Supervisor() override;

  Status first_start();

  Result<RequestId> submit(Request request, std::shared_ptr<Listener> listener) override;
  void cancel(RequestId id) override;
  void conversation(ConversationTask task, ConversationDone done) override;
  void unload(Done done) override;
  void load(Done done) override;
  const EngineFacts& facts() const override { return facts_; }
  EngineCounters counters() const override;
  const Metadata& metadata() const override { return metadata_; }
  const Tokenizer& tokenizer() const override { return tokenizer_; }
  Health health() const override;

 private:
  Status spawn();
  Status wait_until_ready();
  Status accept_facts(EngineFacts facts);
  void supervise();
  void keep_running();
  std::string run_engine();  // until it dies or is not wanted any more; why
  std::string pump(milliseconds patience, const std::function<bool(const Frame&)>& until);
  std::string take(const Frame& frame);
  std::string send_waiting();
  bool give_up_idle();
  void quit_and_reap();
  void kill_and_reap(std::string& reason);
  void settle_pending(const std::string& reason);
  void settle_cancelled();
  bool start_again();
  bool wait_to_start();
  void start_failed(const Error& error);
  void run_again();
  bool stopping() const {
    const std::lock_guard lock(mutex_);
    return stopping_;
  }
  void wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
  }

  EngineProcessOptions options_;
  Metadata metadata_;
  Tokenizer tokenizer_;
  EngineFacts facts_;
  Descriptor wake_;

  mutable std::mutex mutex_;  // guards what follows
  std::map<RequestId, Pending> pending_;
  std::map<std::uint64_t, ConversationDone> tasks_;  // that this engine works at
  std::deque<std::string> outgoing_;
  EngineCounters counters_;  // of requests, and what engines before counted
  EngineCounters told_;      // this engine's, as it said last
  RequestId last_id_ = 0;
  State state_ = State::loading;
  bool wanted_ = true;  // that there is an engine
  bool stopping_ = false;
  std::vector<Done> loads_, unloads_;      // who waits for it
  Clock::time_point busy_ = Clock::now();  // when a request came or ended last
  std::uint64_t restarts_ = 0;
  std::string trouble_, last_death_;
  pid_t pid_ = 0;

  // The supervising thread's own.
  Descriptor socket_;
  FrameCutter cutter_;
  std::string unsent_;
  std::size_t unsent_at_ = 0;
  Clock::time_point heard_, pinged_;
  std::uint64_t ping_ = 0;
  bool started_ = false;   // an engine was, before
  bool answered_ = false;  // this engine has brought an answer to its end
  milliseconds backoff_{0};
  std::thread thread_;
};

void tell(std::vector<EngineProcess::Done> waiting, const Status& status) {
  for (const EngineProcess::Done& done : waiting) done(status);
}

// Starting -----------------------------------------------------------------------------------

Status Supervisor::spawn() {
  std::array<int, 2> pair{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) {
    return fail(ErrorCode::io, "no pipe to the engine: {}", errno_text(errno));
  }
  Descriptor ours(pair[0]), theirs(pair[1]);
  fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  std::vector<std::string> words = {options_.program};
  words.insert(words.end(), options_.arguments.begin(), options_.arguments.end());
  if (std::exchange(started_, true))
    words.insert(words.end(), options_.again.begin(), options_.again.end());
  words.push_back("--socket-fd");
  words.push_back(std::to_string(kChildSocket));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return fail(ErrorCode::exhausted, "no process: {}", errno_text(errno));
  if (child == 0) {
    // Only system calls from here on: other threads' locks are lost in the copy.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    if (theirs.get() == kChildSocket) {
      fcntl(kChildSocket, F_SETFD, 0);
    } else {
      dup2(theirs.get(), kChildSocket);
    }
    close_range(kChildSocket + 1, ~0u, 0);
    // What is sent to the whole group is the server's to answer: it lets answers end first.
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    // When memory runs out, the engine goes and the server stays to say so.
    if (const int score = ::open("/proc/self/oom_score_adj", O_WRONLY); score >= 0) {
      [[maybe_unused]] const auto written = write(score, "500", 3);
      close(score);
    }
    execv(argv[0], argv.data());
    _exit(127);
  }
  socket_ = std::move(ours);
  cutter_ = {};
  unsent_ = std::move(WireWriter(FrameKind::hello).u32(kWireVersion)).frame();
  unsent_at_ = 0;
  heard_ = pinged_ = Clock::now();
  const std::lock_guard lock(mutex_);
  pid_ = child;
  outgoing_.clear();
  return {};
}

Status Supervisor::accept_facts(EngineFacts facts) {
  if (facts.vocabulary == 0 || tokenizer_.size() > facts.vocabulary) {
    return fail(ErrorCode::corrupt, "the engine has a vocabulary of {}, the model file one of {}",
                facts.vocabulary, tokenizer_.size());
  }
  if (facts_.vocabulary != 0 &&
      (facts.vocabulary != facts_.vocabulary || facts.model_name != facts_.model_name ||
       facts.context != facts_.context)) {
    return fail(ErrorCode::unavailable,
                "the model file has changed since the server was started; start it again");
  }
  if (facts_.vocabulary == 0) facts_ = std::move(facts);
  return {};
}

// Until the engine says that it is ready, or why it cannot be.
Status Supervisor::wait_until_ready() {
  Status outcome = fail(ErrorCode::unavailable, "the engine did not start");
  bool ready = false;
  const auto until = Clock::now() + options_.start_time;
  std::string reason = pump(options_.silence, [&](const Frame& frame) {
    settle_cancelled();
    WireReader reader(frame.payload);
    if (frame.kind == FrameKind::loading) log_debug("engine: {}", reader.text());
    if (frame.kind == FrameKind::failed) {
      outcome = tl::unexpected<Error>(reader.error());
      return true;
    }
    if (frame.kind == FrameKind::ready) {
      const std::uint32_t version = reader.u32();
      EngineFacts facts = reader.facts();
      outcome = reader.done();
      if (outcome && version != kWireVersion) {
        outcome = fail(ErrorCode::unsupported, "the engine speaks version {} of the pipe, not {}",
                       version, kWireVersion);
      }
      if (outcome) outcome = accept_facts(std::move(facts));
      ready = outcome.has_value();
      return true;
    }
    if (Clock::now() > until) {
      outcome = fail(ErrorCode::unavailable, "the engine was not ready within {} s",
                     options_.start_time.count() / 1000);
      return true;
    }
    return false;
  });
  if (ready) return {};
  const bool told = outcome.error().message != "the engine did not start";
  kill_and_reap(reason);
  if (told) return outcome;
  return fail(ErrorCode::unavailable, "the engine {} while it was started", reason);
}

Status Supervisor::first_start() {
  if (wake_.get() < 0) return fail(ErrorCode::io, "no event: {}", errno_text(errno));
  STRATA_TRY(spawn());
  STRATA_TRY(wait_until_ready());
  state_ = State::ready;
  backoff_ = options_.backoff_first;
  thread_ = std::thread([this] { supervise(); });
  return {};
}

// Watching -----------------------------------------------------------------------------------

// Moves bytes until `until` says so (empty), the engine is gone, or it is silent (why).
std::string Supervisor::pump(milliseconds patience,
                             const std::function<bool(const Frame&)>& until) {
  std::array<char, 65536> buffer;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_ || !wanted_ || state_ == State::unloading) return "was stopped";
    }
    if (give_up_idle()) return "was stopped";
    const auto now = Clock::now();
    if (now - heard_ > patience) {
      return fmt::format("said nothing for {} ms and was killed", patience.count());
    }
    if (now - pinged_ >= options_.ping_time) {
      pinged_ = now;
      const std::lock_guard lock(mutex_);
      outgoing_.push_back(std::move(WireWriter(FrameKind::ping).u64(++ping_)).frame());
    }
    if (std::string reason = send_waiting(); !reason.empty()) return reason;
    std::array<pollfd, 2> wanted{};
    wanted[0] = {socket_.get(),
                 static_cast<short>(unsent_at_ < unsent_.size() ? POLLIN | POLLOUT : POLLIN), 0};
    wanted[1] = {wake_.get(), POLLIN, 0};
    const auto rest = std::min(options_.ping_time, patience) / 2;
    if (::poll(wanted.data(), wanted.size(), static_cast<int>(std::max<long>(1, rest.count()))) <
            0 &&
        errno != EINTR) {
      return "cannot be watched";
    }
    // Where this thread itself was held up, nobody listened: no silence of the engine's.
    if (const auto waited = Clock::now() - now; waited > 2 * rest) heard_ += waited - rest;
    if ((wanted[1].revents & POLLIN) != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto got = ::read(wake_.get(), &count, sizeof count);
    }
    if ((wanted[0].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
    const ssize_t got = ::read(socket_.get(), buffer.data(), buffer.size());
    if (got == 0) return "";  // kill_and_reap says how it ended
    if (got < 0) {
      if (errno == EAGAIN || errno == EINTR) continue;
      return "";
    }
    heard_ = Clock::now();
    cutter_.feed({buffer.data(), static_cast<std::size_t>(got)});
    for (;;) {
      auto frame = cutter_.next();
      if (!frame) return "sent what is no frame and was killed";
      if (!*frame) break;
      if (until(**frame)) return "";
    }
  }
}

// Whether the engine goes because nobody has used it for a while.
bool Supervisor::give_up_idle() {
  if (options_.idle_time.count() == 0) return false;
  const std::lock_guard lock(mutex_);
  if (state_ != State::ready || !pending_.empty() || !tasks_.empty() ||
      Clock::now() - busy_ < options_.idle_time)
    return false;
  log_info("no request for {} s: the model is unloaded", options_.idle_time.count() / 1000);
  wanted_ = false;
  state_ = State::unloading;
  return true;
}

// Writes what there is, without waiting.
std::string Supervisor::send_waiting() {
  for (;;) {
    if (unsent_at_ == unsent_.size()) {
      const std::lock_guard lock(mutex_);
      if (outgoing_.empty()) return {};
      unsent_ = std::move(outgoing_.front());
      unsent_at_ = 0;
      outgoing_.pop_front();
    }
    const ssize_t sent = ::send(socket_.get(), unsent_.data() + unsent_at_,
                                unsent_.size() - unsent_at_, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      // A broken pipe: what the engine said last is still to be read.
      return {};
    }
    unsent_at_ += static_cast<std::size_t>(sent);
  }
}

// One event of the engine, to its listener; a reason if it makes no sense.
std::string Supervisor::take(const Frame& frame) {
  constexpr std::string_view kNonsense = "sent a frame that makes no sense and was killed";
  WireReader reader(frame.payload);
  const std::uint64_t id = reader.u64();
  if (frame.kind == FrameKind::pong) {
    EngineCounters counters = reader.counters();
    if (!reader.done()) return std::string(kNonsense);
    const std::lock_guard lock(mutex_);
    told_ = std::move(counters);
    return {};
  }
  if (frame.kind == FrameKind::failed) {
    WireReader whole(frame.payload);
    const Error error = whole.error();
    return whole.done() ? fmt::format("gave up: {}", error.message) : std::string(kNonsense);
  }
  std::shared_ptr<Listener> listener;
  const auto find = [&](bool tells, bool ends) {
    const std::lock_guard lock(mutex_);
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;  // of an engine before, or finished
    if (frame.kind != FrameKind::queued) found->second.progressed = true;
    if (tells) found->second.told = true;
    listener = found->second.listener;
    if (ends) {
      ++counters_.requests;
      busy_ = Clock::now();
      pending_.erase(found);
    }
  };
  switch (frame.kind) {
    case FrameKind::progress: {
      const std::uint32_t read = reader.u32();
      const std::uint32_t total = reader.u32();
      if (!reader.done() || read > total) return std::string(kNonsense);
      find(false, false);
      if (listener) listener->progress(read, total);
      return {};
    }
    case FrameKind::queued: {
      const std::uint32_t ahead = reader.u32();
      if (!reader.done()) return std::string(kNonsense);
      find(false, false);
      if (listener) listener->queued(ahead);
      return {};
    }
    case FrameKind::started: {
      const std::uint32_t cached = reader.u32();
      if (!reader.done()) return std::string(kNonsense);
      find(false, false);
      if (listener) listener->started(cached);
      return {};
    }
    case FrameKind::prompt_chances: {
      const TokenChances chances = reader.chances();
      if (!reader.done()) return std::string(kNonsense);
      find(true, false);
      if (listener) listener->prompt_chances(chances);
      return {};
    }
    case FrameKind::token: {
      const std::uint32_t token = reader.u32();
      const bool with_chances = reader.u8() != 0;
      const TokenChances chances = with_chances ? reader.chances() : TokenChances{};
      if (!reader.done() || token >= facts_.vocabulary) return std::string(kNonsense);
      find(true, false);
      if (listener && with_chances) listener->chances(chances);
      if (listener) listener->token(static_cast<TokenId>(token));
      return {};
    }
    case FrameKind::conversed: {
      const Result<ConversationResult> result = reader.result();
      if (!reader.done()) return std::string(kNonsense);
      ConversationDone done;
      {
        const std::lock_guard lock(mutex_);
        if (const auto found = tasks_.find(id); found != tasks_.end()) {
          done = std::move(found->second);
          tasks_.erase(found);
          busy_ = Clock::now();
        }
      }
      if (done) done(result);
      return {};
    }
    case FrameKind::finished: {
      const Completion completion = reader.completion();
      if (!reader.done()) return std::string(kNonsense);
      find(true, true);
      if (completion.reason != FinishReason::error) answered_ = true;
      if (listener) {
        {
          const std::lock_guard lock(mutex_);
          counters_.prompt_tokens += completion.prompt_tokens;
          counters_.generated_tokens += completion.generated_tokens;
        }
        listener->finished(completion);
      }
      return {};
    }
    default:
      return std::string(kNonsense);
  }
}

std::string Supervisor::run_engine() {
  std::string nonsense;
  std::string reason = pump(options_.silence, [&](const Frame& frame) {
    nonsense = take(frame);
    return !nonsense.empty();
  });
  if (!nonsense.empty()) reason = std::move(nonsense);
  return reason;
}

// Death --------------------------------------------------------------------------------------

// Asked first, then told.
void Supervisor::quit_and_reap() {
  pid_t pid = 0;
  {
    const std::lock_guard lock(mutex_);
    pid = pid_;
  }
  if (socket_.get() >= 0) {
    const std::string frame = std::move(WireWriter(FrameKind::quit)).frame();
    [[maybe_unused]] const auto sent =
        ::send(socket_.get(), frame.data(), frame.size(), MSG_NOSIGNAL);
    ::shutdown(socket_.get(), SHUT_WR);
    const auto until = Clock::now() + options_.quit_time;
    int status = 0;
    while (pid > 0 && Clock::now() < until) {
      if (waitpid(pid, &status, WNOHANG) == pid) {
        const std::lock_guard lock(mutex_);
        pid = pid_ = 0;
        break;
      }
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
  std::string reason = "was stopped";
  kill_and_reap(reason);
}

// Ends the process; an empty reason becomes how it ended by itself.
void Supervisor::kill_and_reap(std::string& reason) {
  pid_t pid = 0;
  {
    const std::lock_guard lock(mutex_);
    pid = std::exchange(pid_, 0);
    counters_ = sum_of(std::move(counters_), told_);
    told_ = {};
  }
  socket_.reset();
  if (pid <= 0) return;
  int status = 0;
  // It may be on its way out already: then its own end is the reason.
  for (int i = 0; i < 50 && reason.empty(); ++i) {
    if (waitpid(pid, &status, WNOHANG) == pid) {
      reason = how_it_ended(status);
      return;
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
  ::kill(pid, SIGKILL);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  if (reason.empty()) reason = "closed its pipe and was killed";
}

// Requests that have told something end; so do those that were taken back or ran too often.
void Supervisor::settle_pending(const std::string& reason) {
  std::vector<std::pair<std::shared_ptr<Listener>, Completion>> over;
  std::map<std::uint64_t, ConversationDone> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
    for (auto at = pending_.begin(); at != pending_.end();) {
      Pending& pending = at->second;
      const bool again = !pending.told && !pending.cancelled && pending.runs < kMaxRuns;
      if (again && !stopping_) {
        pending.progressed = false;
        ++at;
        continue;
      }
      Completion done;
      done.prompt_tokens = static_cast<std::uint32_t>(pending.request.prompt.size());
      done.reason = pending.cancelled || stopping_ ? FinishReason::cancelled : FinishReason::error;
      if (done.reason == FinishReason::error) {
        done.error = {ErrorCode::unavailable, fmt::format("the engine {}{}", reason, kBack)};
      }
      ++counters_.requests;
      over.emplace_back(std::move(pending.listener), std::move(done));
      at = pending_.erase(at);
    }
  }
  for (const auto& [listener, done] : over) listener->finished(done);
  for (const auto& [id, done] : tasks) {
    done(fail(ErrorCode::unavailable,
              "the engine {} in the middle of it; nothing is promised of "
              "the conversation",
              reason));
  }
}

// While there is no engine to take a request back from.
void Supervisor::settle_cancelled() {
  std::vector<std::pair<std::shared_ptr<Listener>, Completion>> over;
  {
    const std::lock_guard lock(mutex_);
    for (auto at = pending_.begin(); at != pending_.end();) {
      if (!at->second.cancelled) {
        ++at;
        continue;
      }
      Completion done;
      done.reason = FinishReason::cancelled;
      done.prompt_tokens = static_cast<std::uint32_t>(at->second.request.prompt.size());
      ++counters_.requests;
      over.emplace_back(std::move(at->second.listener), done);
      at = pending_.erase(at);
    }
  }
  for (const auto& [listener, done] : over) listener->finished(done);
}

// The new engine gets what waits.
void Supervisor::run_again() {
  std::vector<Done> loads;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [id, pending] : pending_) {
      ++pending.runs;
      outgoing_.push_back(
          std::move(WireWriter(FrameKind::submit).u64(id).request(pending.request)).frame());
      if (pending.cancelled) {
        outgoing_.push_back(std::move(WireWriter(FrameKind::cancel).u64(id)).frame());
      }
    }
    if (state_ == State::restarting) ++restarts_;
    state_ = State::ready;
    trouble_.clear();
    busy_ = Clock::now();
    loads.swap(loads_);
  }
  tell(std::move(loads), {});
}

// As long as there shall be no engine: between two starts, or until one is wanted. False when the
// server stops.
bool Supervisor::wait_to_start() {
  const auto until = Clock::now() + backoff_;
  for (;;) {
    std::vector<Done> unloads;
    int patience = 50;  // milliseconds
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return false;
      if (state_ == State::unloading || (state_ == State::restarting && !wanted_)) {
        state_ = State::unloaded;
        trouble_.clear();
      }
      if (state_ == State::unloaded) {
        backoff_ = options_.backoff_first;
        unloads.swap(unloads_);
        patience = -1;
        if (wanted_) state_ = State::loading;
      }
    }
    tell(std::move(unloads), {});
    {
      const std::lock_guard lock(mutex_);
      if (state_ == State::loading) return true;
      if (state_ == State::restarting && Clock::now() >= until) return true;
    }
    pollfd wanted = {wake_.get(), POLLIN, 0};
    if (::poll(&wanted, 1, patience) > 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto got = ::read(wake_.get(), &count, sizeof count);
    }
    settle_cancelled();
  }
}

// A load by wish that fails is over; after a death it is tried again.
void Supervisor::start_failed(const Error& error) {
  log_error("the engine does not start: {}", error.message);
  std::vector<Done> loads;
  {
    const std::lock_guard lock(mutex_);
    trouble_ = fmt::format("does not start: {}", error.message);
    for (auto& [id, pending] : pending_) {
      pending.runs = state_ == State::loading ? kMaxRuns : pending.runs + 1;
    }
    if (state_ == State::loading) {
      state_ = State::unloaded;
      wanted_ = false;
    }
    loads.swap(loads_);
  }
  settle_pending(fmt::format("does not start: {}", error.message));
  tell(std::move(loads), tl::unexpected<Error>(error));
}

// Until there is an engine again; false when the server stops.
bool Supervisor::start_again() {
  for (;;) {
    if (!wait_to_start()) return false;
    backoff_ = std::min(2 * backoff_, options_.backoff_most);
    Status status = spawn();
    if (status) status = wait_until_ready();
    if (stopping()) return false;
    if (status) break;
    start_failed(status.error());
  }
  log_info("the engine is up again");
  run_again();
  return true;
}

// The thread that started a process also ends it: the system kills a child when the thread that
// made it is gone.
void Supervisor::supervise() {
  keep_running();
  quit_and_reap();
}

void Supervisor::keep_running() {
  do {
    answered_ = false;
    std::string reason = run_engine();
    bool died = false;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      died = state_ == State::ready;
      if (died) {
        state_ = State::restarting;
        trouble_ = reason.empty() ? "died" : reason;  // how it ended is known in a moment
      }
    }
    // One that has answered dies of something else than its start.
    if (answered_) backoff_ = options_.backoff_first;
    if (!died) {
      quit_and_reap();
      continue;
    }
    kill_and_reap(reason);
    log_error("the engine {}", reason);
    {
      const std::lock_guard lock(mutex_);
      trouble_ = last_death_ = reason;
    }
    settle_pending(reason);
  } while (start_again());
}

// Callers ------------------------------------------------------------------------------------

Result<RequestId> Supervisor::submit(Request request, std::shared_ptr<Listener> listener) {
  if (!listener) return fail(ErrorCode::invalid_argument, "a request needs a listener");
  STRATA_TRY(check_request(request, facts_));
  RequestId id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return fail(ErrorCode::unavailable, "the engine is stopping");
    if (state_ == State::restarting) {
      return fail(ErrorCode::unavailable, "the engine {}{}; try again shortly", trouble_, kBack);
    }
    if (state_ != State::ready && !options_.auto_load) {
      return fail(ErrorCode::unavailable, "{}",
                  state_ == State::loading ? "the model is being loaded; try again shortly"
                                           : "the model is unloaded; POST /load loads it");
    }
    if (pending_.size() >= std::size_t{options_.queue_limit} + facts_.parallel) {
      return fail(ErrorCode::exhausted,
                  "{} requests run or wait already (queue limit); try again later",
                  pending_.size());
    }
    id = ++last_id_;
    Pending pending;
    if (state_ == State::ready) {
      outgoing_.push_back(
          std::move(WireWriter(FrameKind::submit).u64(id).request(request)).frame());
      pending.runs = 1;
    }
    wanted_ = true;
    busy_ = Clock::now();
    pending.request = std::move(request);
    pending.listener = std::move(listener);
    pending_.emplace(id, std::move(pending));
  }
  wake();
  return id;
}

void Supervisor::cancel(RequestId id) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = pending_.find(id);
    if (found == pending_.end() || found->second.cancelled) return;
    found->second.cancelled = true;
    if (state_ == State::ready) {
      outgoing_.push_back(std::move(WireWriter(FrameKind::cancel).u64(id)).frame());
    }
  }
  wake();
}

void Supervisor::conversation(ConversationTask task, ConversationDone done) {
  Status status;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || state_ != State::ready) {
      status =
          fail(ErrorCode::unavailable,
               "there is no engine at the moment ({}); GET /health says more", to_string(state_));
    } else {
      const std::uint64_t id = ++last_id_;
      outgoing_.push_back(
          std::move(WireWriter(FrameKind::conversation).u64(id).task(task)).frame());
      tasks_.emplace(id, std::move(done));
    }
  }
  if (!status) return done(tl::unexpected<Error>(status.error()));
  wake();
}

void Supervisor::unload(Done done) {
  Status now;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      now = fail(ErrorCode::unavailable, "the server is stopping");
    } else if (!pending_.empty() || !tasks_.empty()) {
      now = fail(ErrorCode::exhausted,
                 "{} requests run or wait; the model is unloaded only when there are none",
                 pending_.size() + tasks_.size());
    } else if (state_ == State::loading) {
      now = fail(ErrorCode::exhausted, "the model is just being loaded; try again when it is");
    } else if (state_ != State::unloaded) {
      wanted_ = false;
      if (state_ == State::ready) state_ = State::unloading;
      unloads_.push_back(std::move(done));
    }
  }
  wake();
  if (done) done(now);
}

void Supervisor::load(Done done) {
  Status now;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      now = fail(ErrorCode::unavailable, "the server is stopping");
    } else if (state_ != State::ready) {
      wanted_ = true;
      loads_.push_back(std::move(done));
    }
  }
  wake();
  if (done) done(now);
}

EngineCounters Supervisor::counters() const {
  const std::lock_guard lock(mutex_);
  EngineCounters counters = sum_of(counters_, told_);
  for (const auto& [id, pending] : pending_) {
    ++(pending.progressed ? counters.running : counters.waiting);
  }
  return counters;
}

EngineProcess::Health Supervisor::health() const {
  const std::lock_guard lock(mutex_);
  return {state_, options_.auto_load, restarts_, trouble_, last_death_, static_cast<int>(pid_)};
}

Supervisor::~Supervisor() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
  quit_and_reap();
  settle_pending("was stopped");
  const Status stopped = fail(ErrorCode::unavailable, "the server is stopping");
  tell(std::move(loads_), stopped);
  tell(std::move(unloads_), stopped);
}

}  // namespace

std::string_view to_string(EngineProcess::State state) {
  constexpr std::array<std::string_view, 5> kNames = {"ready", "restarting", "unloading",
                                                      "unloaded", "loading"};
  return kNames[static_cast<std::size_t>(state)];
}

Result<std::unique_ptr<EngineProcess>> EngineProcess::start(FileSystem& files,
                                                            EngineProcessOptions options) {
  STRATA_ASSIGN(GgufModel model, open_gguf(files, options.model_path));
  auto tokenizer = Tokenizer::from_gguf(model.metadata);
  if (!tokenizer) {
    return with_context(std::move(tokenizer).error(),
                        fmt::format("model '{}' cannot be served", options.model_path));
  }
  auto supervisor = std::make_unique<Supervisor>(std::move(options), std::move(model.metadata),
                                                 std::move(*tokenizer));
  STRATA_TRY(supervisor->first_start());
  return std::unique_ptr<EngineProcess>(std::move(supervisor));
}

}  // namespace strata::server
