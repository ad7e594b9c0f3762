// Which rows the next window holds. Internal to the engine; not thread safe.
//
// Requests are admitted first come first served, but that those whose grammar is being compiled let
// others by; at most `parallel` run. A window holds the rows of
// every sequence that decodes and, beside them, up to a chunk of rows of prompts. A prompt of which
// no more than a chunk is to be read when it starts is short, any other long. While both kinds are
// there, chunks alternate: one is for the short ones, in order of admission and as many as fit it;
// the next for one long one, and these take turns. So, once admitted,
// - a short prompt waits for the window under way and at most one chunk of a long one, plus
//   whatever short ones before it take: with none of these its first token comes after at most two
//   chunks of others;
// - a long one gets at least every 2 L-th chunk where L long ones are read.
// After a window with prompt rows, windows without follow for a quarter of its time if somebody
// decodes: the next token of a request that decodes comes after one chunk at most, and tokens go on
// coming between chunks.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/job.h"

namespace strata {

class Scheduler {
 public:
  // Rows of a prompt window that needs the logits of each.
  static constexpr std::uint32_t kScoredChunk = 16;
  static constexpr double kDecodeShare = 0.25;

  Scheduler(std::uint32_t parallel, std::uint32_t prompt_chunk)
      : parallel_(parallel), prompt_chunk_(prompt_chunk) {}

  void add(std::unique_ptr<Job> job) { waiting_.push_back(std::move(job)); }
  // The waiting job that is next and may run, or null: the first one whose grammar is compiled. It
  // stays where it is until start().
  Job* next_waiting();
  void start(const Job& job);
  Job* find(RequestId id);

  struct Slice {
    Job* job = nullptr;
    std::uint32_t tokens = 0;  // rows in the window: 1 (without guesses), or a part of its prompt
    bool decodes = false;
    bool ends_prompt = false;  // with its last row
    std::uint32_t tail = 0;    // of the rows, those after the place of a checkpoint
  };
  // Empty only while all that runs waits for the disk.
  std::vector<Slice> next_window();
  // How long the last window took.
  void took(double seconds);

  // Takes a job out, wherever it is.
  std::unique_ptr<Job> remove(RequestId id);
  std::vector<std::unique_ptr<Job>> remove_all();
  std::vector<RequestId> cancelled() const;

  const std::vector<std::unique_ptr<Job>>& running() const { return running_; }
  const std::deque<std::unique_ptr<Job>>& waiting() const { return waiting_; }

 private:
  std::uint32_t rows_of(const Job& job, std::uint32_t room) const;
  void add_prompts(std::vector<Slice>& window);

  std::uint32_t parallel_, prompt_chunk_;
  std::deque<std::unique_ptr<Job>> waiting_;
  std::vector<std::unique_ptr<Job>> running_;  // in order of admission
  RequestId last_long_ = 0;                    // whose chunk was read last
  bool long_turn_ = false;
  bool prompt_window_ = false;  // the last window held prompt rows
  double decode_credit_ = 0;    // seconds of windows without prompts to come
};

}  // namespace strata
