// One answer on its way from the engine to an observer: tokens to events, stop strings, counts.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "chat/output_parser.h"
#include "server/answer_times.h"
#include "server/neutral.h"
#include "server/slots.h"
#include "server/stop_filter.h"
#include "tokenizer/utf8_stream.h"

namespace strata::server {

struct RunOptions {
  // Absent: the answer is plain text, all of it content.
  std::optional<chat::ParserOptions> parser;
  std::vector<std::string> stops;
  bool one_call = false;
  // Asked when the engine begins with it, on the engine's thread: its place, or none.
  std::function<std::shared_ptr<const Slots::Place>()> take_place;
  // Told once, on the executor, before the observer hears the end.
  std::function<void(const ChatResult&, const Slots::Place* place)> on_end;
  std::shared_ptr<AnswerTimes> times;  // counts along; may be null
};

// The engine calls it from its thread; all work is done on the executor, which also orders it.
class AnswerRun final : public Listener, public std::enable_shared_from_this<AnswerRun> {
 public:
  AnswerRun(Engine& engine, RunOptions options, Executor executor,
            std::shared_ptr<ChatObserver> observer);

  void set_id(RequestId id) { id_ = id; }
  RequestId id() const { return id_; }
  void set_prompt(std::uint32_t tokens) { seen_prompt_ = tokens; }  // before the first event

  void queued(std::uint32_t ahead) override;
  void started(std::uint32_t cached) override;
  void progress(std::uint32_t read, std::uint32_t total) override;
  void prompt_chances(const TokenChances& chances) override;
  void chances(const TokenChances& chances) override;
  void token(TokenId id) override;
  void finished(const Completion& completion) override;
  // The server ends the answer, or only one that has not begun.
  void stop(bool waiting_only);
  // No event reaches the observer any more.
  void mute();

  // For status pages; from any thread, a moment old.
  struct Sight {
    RequestId id = 0;
    std::uint32_t prompt_tokens = 0, prompt_read = 0, generated = 0;
    bool thinking = false;
    bool running = false;
    std::uint32_t ahead = 0;   // requests before it, while it waits
    std::uint32_t cached = 0;  // tokens of its prompt, once it runs
    std::optional<std::size_t> slot;
  };
  Sight sight() const;
  bool ended() const { return ended_; }

 private:
  void take(TokenId id, std::optional<TokenChances> chances);
  void end(const Completion& completion);
  void end_by_server(bool waiting_only);
  std::vector<chat::OutputEvent> events_of(TokenId id);
  std::vector<chat::OutputEvent> last_events(bool complete);
  void filter(const chat::OutputEvent& event);
  void emit(const chat::OutputEvent& event);
  void emit_content(std::string text);
  void drop_cut_calls();
  void report();
  std::shared_ptr<const Slots::Place> leave_place();
  bool cut() const { return stops_.matched() || called_; }

  Engine& engine_;
  std::atomic<RequestId> id_{0};
  std::optional<chat::OutputParser> parser_;
  Utf8Stream plain_;
  StopFilter stops_;
  bool one_call_;
  std::function<std::shared_ptr<const Slots::Place>()> take_place_;
  std::function<void(const ChatResult&, const Slots::Place*)> on_end_;
  std::shared_ptr<AnswerTimes> times_;
  const double asked_;  // as monotonic_seconds()
  Executor executor_;
  std::shared_ptr<ChatObserver> observer_;
  ChatResult result_;
  std::vector<bool> complete_;                // per call of result_.message
  bool begun_ = false;                        // the engine has read some of the prompt
  bool called_ = false;                       // the one call is there
  bool over_ = false;                         // the observer heard the end
  std::optional<TokenChances> next_chances_;  // the engine's thread; of the token that follows
  double last_token_ = 0;                     // the engine's thread; 0: there was none
  std::atomic<double> first_token_{0};
  std::atomic<std::uint32_t> seen_prompt_{0}, seen_read_{0}, seen_generated_{0};
  std::atomic<std::uint32_t> seen_ahead_{0}, seen_cached_{0};
  mutable std::mutex place_mutex_;
  std::shared_ptr<const Slots::Place> place_;  // from the start to the end
  std::atomic<bool> seen_running_{false}, seen_thinking_{false}, ended_{false};
};

}  // namespace strata::server
