// The engine as a child process of this program, behind the same interface: started, watched, and
// started again when it dies.
//
// What callers may rely on
// - facts() stay what the first start said; an engine that comes back different is not used.
// - When the engine dies, or is silent for too long and is killed: a request that has reported
//   nothing but progress is run again by the next engine (at most kMaxRuns times in all); every
//   other one ends at once with an `unavailable` error that says why.
// - While there is no engine, submit() refuses with `unavailable`; requests that were taken before
//   wait.
// - Restarts wait longer from time to time (backoff_first to backoff_most).
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace strata::server {

inline constexpr int kMaxRuns = 3;

struct EngineProcessOptions {
  std::string program;                 // path; run as `program arguments... --socket-fd 3`
  std::vector<std::string> arguments;  // "engine", "--model", ...
  std::string model_path;              // for the tokenizer and the metadata
  std::uint32_t queue_limit = 256;     // requests that may be on their way, beside the running ones
  std::chrono::milliseconds start_time{900'000};  // until the engine is ready
  std::chrono::milliseconds ping_time{1'000};     // between two pings
  std::chrono::milliseconds silence{20'000};      // without any byte from the engine: it is killed
  std::chrono::milliseconds quit_time{5'000};     // at the end, before it is killed
  std::chrono::milliseconds backoff_first{500}, backoff_most{30'000};
};

class EngineProcess : public Engine {
 public:
  // Starts the engine and waits until it is ready; its own reason if it cannot start.
  static Result<std::unique_ptr<EngineProcess>> start(FileSystem& files,
                                                      EngineProcessOptions options);
  ~EngineProcess() override = default;

  struct Health {
    bool up = false;
    std::uint64_t restarts = 0;
    std::string last_death;  // empty: it never died
    int pid = 0;             // 0 while there is none
  };
  virtual Health health() const = 0;
};

}  // namespace strata::server
