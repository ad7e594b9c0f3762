// Which rows the next window holds: one row of every sequence that decodes, and one chunk of a
// prompt. Requests are admitted first come first served; prompts being read take turns chunk by
// chunk, so that a short one never waits for a long one's end. Internal to the engine; not thread
// safe.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "engine/engine.h"
#include "model/forward.h"

namespace strata {

// A request on its way through the engine.
struct Job {
  RequestId id = 0;
  Request request;
  std::shared_ptr<Listener> listener;
  std::uint32_t limit = 0;           // tokens it may generate
  std::optional<Sequence> sequence;  // once admitted
  std::uint32_t read = 0;            // prompt tokens in the caches
  TokenId next = 0;                  // token to read next, when decoding
  std::vector<TokenId> generated;    // all tokens picked so far
  Completion completion;
  double submitted = 0, admitted = 0, decoding_since = 0;  // seconds
  bool cancelled = false;

  bool decoding() const { return read == request.prompt.size(); }
};

class Scheduler {
 public:
  // Rows of a prompt window that needs the logits of each.
  static constexpr std::uint32_t kScoredChunk = 16;

  Scheduler(std::uint32_t parallel, std::uint32_t prompt_chunk)
      : parallel_(parallel), prompt_chunk_(prompt_chunk) {}

  void add(std::unique_ptr<Job> job) { waiting_.push_back(std::move(job)); }
  Job* find(RequestId id);
  // The next waiting job that may run now; it has moved to the running ones.
  Job* admit();

  struct Slice {
    Job* job = nullptr;
    std::uint32_t tokens = 0;  // rows in the window: 1, or a part of its prompt
  };
  // Never empty while something runs.
  std::vector<Slice> next_window();

  // Takes a job out, wherever it is.
  std::unique_ptr<Job> remove(RequestId id);
  std::vector<std::unique_ptr<Job>> remove_all();
  std::vector<RequestId> cancelled() const;

  // Rows of the slice's window whose logits are wanted; they are its last ones.
  static std::uint32_t logit_rows(const Slice& slice);

  std::size_t running() const { return running_.size(); }
  std::size_t waiting() const { return waiting_.size(); }

 private:
  std::uint32_t parallel_, prompt_chunk_;
  std::deque<std::unique_ptr<Job>> waiting_;
  std::vector<std::unique_ptr<Job>> running_;  // in order of admission
  RequestId last_prompt_ = 0;                  // whose chunk was read last
};

}  // namespace strata
