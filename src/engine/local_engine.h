// The engine in this process: one thread that computes windows and hands out what they gave.
// Internal to the engine.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/lost_pages.h"
#include "engine/constraints.h"
#include "engine/conversations.h"
#include "engine/drafter.h"
#include "engine/engine.h"
#include "engine/scheduler.h"
#include "engine/trace.h"
#include "model/forward.h"
#include "model/network.h"

namespace strata {

class LocalEngine final : public Engine {
 public:
  struct Parts {
    Network network;
    Tokenizer tokenizer;
    std::unique_ptr<Backend> backend;
    std::optional<DraftVocabulary> drafts;  // with a draft block that is to be used
    std::unique_ptr<Trace> trace;           // may be null
    // Memory that requests leave to the rest of the machine.
    std::uint64_t memory_floor = std::uint64_t{128} << 20;
  };
  LocalEngine(Parts parts, EngineFacts facts, const EngineOptions& options);
  ~LocalEngine() override;

  Result<RequestId> submit(Request request, std::shared_ptr<Listener> listener) override;
  void cancel(RequestId id) override;
  void conversation(ConversationTask task, ConversationDone done) override;
  const EngineFacts& facts() const override { return facts_; }
  EngineCounters counters() const override;
  const Metadata& metadata() const override { return parts_.network.file->metadata; }
  const Tokenizer& tokenizer() const override { return parts_.tokenizer; }

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Slice = Scheduler::Slice;
  struct Round;

  void wake_worker();
  void work();
  void rest(Lock& lock);
  void run_errands(Lock& lock);
  void post(std::function<void()> errand);
  void drop_cancelled(Lock& lock);
  void drop_impossible(Lock& lock);
  bool loaded(const Job& job) const;
  bool join(Job& job) const;
  Job* next_waiting();
  void start_waiting(Lock& lock);
  void report_queue(Lock& lock);
  Status begin(Job& job);
  Status find_room(const Job& job);
  std::uint64_t free_memory() const;
  std::uint64_t promised_bytes() const;
  void collect_loads(Lock& lock);
  void run_round(Lock& lock);
  static Status constrain(Job& job);
  void guess(Round& round);
  static void drop_forbidden(Job& job);
  static bool guess_forced(Job& job);
  void prepare_masks(Round& round);
  Status read_window(Round& round);
  void prefetch_chunk(const Job& job, std::uint32_t tokens);
  bool advance(const Slice& slice, std::span<const float> logits, Round& round);
  static std::size_t rows_wanted(const Slice& slice);
  bool read_prompt(const Slice& slice, std::span<const float> logits);
  void report_prompt(const Slice& slice, std::span<const float> logits);
  bool decode(Job& job, std::span<const float> logits, Round& round);
  bool take_token(Job& job, std::span<const float> logits);
  void count(Completion& completion, std::uint32_t right, std::uint32_t guesses);
  void measure(const Round& round);
  void update_counters();
  void finish(Lock& lock, RequestId id, FinishReason reason, Error error = {});
  void keep(Job& job);

  LostPagesWatch watch_;  // the model file is checked after every window
  Parts parts_;
  TokenBytes token_bytes_;
  Forward forward_;
  EngineOptions options_;
  EngineFacts facts_;
  std::optional<TokenId> turn_;  // opens every turn of a conversation

  // The worker's own.
  Drafter drafter_;
  std::unique_ptr<Conversations> conversations_;
  std::vector<std::uint32_t> logit_rows_;
  std::vector<float> logits_;
  EngineCounters::Drafts drafts_;
  std::uint64_t rounds_ = 0;
  ExpertCounters traced_experts_;

  mutable std::mutex mutex_;  // guards what follows; a running job's fields are the worker's
  std::condition_variable wake_;
  Scheduler scheduler_;
  EngineCounters counters_;
  RequestId last_id_ = 0;
  std::deque<std::function<void()>> errands_;  // work for the worker between two windows
  std::size_t tasks_ = 0;                      // conversation()s on their way
  bool stopping_ = false;

  Constraints constraints_;
  SerialWorker masks_;  // of slow grammars, while a window is computed
  std::thread worker_;  // last: starts when everything stands
};

// What is left to say when the model file is no longer whole.
Status check_model_file();

}  // namespace strata
