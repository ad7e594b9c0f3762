// The engine as a child process of this program, behind the same interface: started, watched, and
// started again when it dies.
//
// What callers may rely on
// - facts() stay what the first start said; an engine that comes back different is not used.
// - When the engine dies, gives up or is silent for too long and is killed: a request that has
//   reported nothing but progress is run again by the next engine (at most kMaxRuns times in all, a
//   start that fails counts); every other one ends at once with an `unavailable` error that says
//   why. Only silence that the supervisor itself was awake to hear counts.
// - While an engine is being restarted, submit() refuses with `unavailable`; requests that were
//   taken before wait.
// - Restarts wait longer from time to time (backoff_first to backoff_most), until an engine has
//   answered a request.
// - unload() ends the process, so that its memory is free, and load() starts one again. With
//   auto_load a request does so too and waits for it; without, it is refused.
// - counters() go on over all lives of the engine.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace strata::server {

inline constexpr int kMaxRuns = 3;

struct EngineProcessOptions {
  std::string program;                 // path; run as `program arguments... --socket-fd 3`
  std::vector<std::string> arguments;  // "engine", "--model", ...
  std::vector<std::string> again;      // further arguments of every start but the first
  std::string model_path;              // for the tokenizer and the metadata
  std::uint32_t queue_limit = 256;     // requests that may be on their way, beside the running ones
  std::chrono::milliseconds start_time{900'000};  // until the engine is ready
  std::chrono::milliseconds ping_time{1'000};     // between two pings
  std::chrono::milliseconds silence{20'000};      // without any byte from the engine: it is killed
  // At the end, before it is killed: it writes conversations for at most 20 s.
  std::chrono::milliseconds quit_time{25'000};
  std::chrono::milliseconds backoff_first{500}, backoff_most{30'000};
  bool auto_load = true;                   // a request loads what was unloaded
  std::chrono::milliseconds idle_time{0};  // without a request: it is unloaded; 0: never
};

class EngineProcess : public Engine {
 public:
  // Starts the engine and waits until it is ready; its own reason if it cannot start.
  static Result<std::unique_ptr<EngineProcess>> start(FileSystem& files,
                                                      EngineProcessOptions options);
  ~EngineProcess() override = default;

  enum class State {
    ready,
    restarting,  // it died or does not start: `trouble` says why
    unloading,
    unloaded,  // by wish; if the last load failed, `trouble` says why
    loading,   // by wish
  };
  struct Health {
    State state = State::ready;
    bool auto_load = true;
    std::uint64_t restarts = 0;
    std::string trouble;     // why there is no engine; empty: by wish, or there is one
    std::string last_death;  // empty: it never died
    int pid = 0;             // 0 while there is none
    bool up() const { return state == State::ready; }
  };
  virtual Health health() const = 0;

  // Both tell `done` once, from another thread: when it is unloaded or loaded, or why not. Requests
  // that run or wait, and an engine that is just being loaded, are `exhausted`: not now.
  using Done = std::function<void(Status)>;
  virtual void unload(Done done) = 0;
  virtual void load(Done done) = 0;
};

// "ready", "restarting", ...
std::string_view to_string(EngineProcess::State state);

}  // namespace strata::server
