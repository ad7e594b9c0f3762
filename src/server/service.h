// Conversations and texts over an engine: what all dialects share. A dialect hands in the neutral
// form and gets the neutral events back; it knows nothing of templates or the engine's threads.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/template.h"
#include "engine/engine.h"
#include "server/answer_run.h"
#include "server/api_error.h"
#include "server/defaults.h"
#include "server/engine_process.h"
#include "server/neutral.h"
#include "server/thinking_budget.h"
#include "tokenizer/prompt_encoder.h"

namespace strata::server {

inline constexpr std::string_view kStopping =
    "the server is stopping; send the request again when it is back";

// Tokens of the context that no request may plan to use.
inline constexpr std::uint32_t kContextSlack = 8;

struct ServiceOptions : DefaultOptions {
  // Where settings that clients share are kept; empty: only while the server runs.
  std::string settings_file = {};
  FileSystem* files = nullptr;            // for it
  std::vector<std::string> aliases = {};  // further names of the model
  // How the engine was started, as far as it changes speed and memory only; for status pages.
  std::vector<Setting> engine_settings = {};
  EngineProcess* process = nullptr;  // the engine, if it is a process of its own
  std::string slot_save_path = {};   // folder of saved slots; empty: they are not saved
};

// What has been answered since the start, over all lives of the engine.
struct ServiceCounters {
  std::uint64_t requests = 0;               // accepted, one for each choice
  std::array<std::uint64_t, 5> finished{};  // by ChatFinish
  std::uint64_t prompt_tokens = 0, cached_tokens = 0;
  std::uint64_t completion_tokens = 0, reasoning_tokens = 0;
  std::array<std::uint64_t, 4> thinking_cut{};  // by ThinkingCut
  std::array<std::uint64_t, 3> stopped_by{};    // by StoppedBy
  std::uint64_t ended_in_thinking = 0;
  chat::CallCounts calls;
  double prompt_seconds = 0, decode_seconds = 0, queue_seconds = 0;
  std::int64_t last_request_at = 0;  // seconds since 1970
};

// A request that has become tokens and fits.
struct Prepared {
  Request work;
  RunOptions run;
  std::uint32_t choices = 1;
};

// An answer that has ended, without its texts.
struct PastAnswer {
  RequestId id = 0;
  double ended_at = 0;  // seconds since 1970
  ChatResult result;
};
inline constexpr std::size_t kMostPast = 32;

class Service {
 public:
  // Compiles the model's chat template (`tokenizer.chat_template`); of a model without one every
  // conversation is refused, texts are completed. The engine must outlive the service. Bad options
  // are `invalid_argument`.
  static Result<std::unique_ptr<Service>> create(Engine& engine, ServiceOptions options = {});

  // Refusals are complete sentences; a request that does not fit the context has the code
  // "context_length_exceeded" and both numbers.
  Answer<Prepared> prepare(ChatRequest request) const;
  Answer<Prepared> prepare(TextRequest request) const;
  // The prompt of a conversation as text, and the number of its tokens. Leaves no trace.
  Answer<std::string> render(chat::Conversation conversation) const;
  Answer<std::size_t> count(chat::Conversation conversation) const;

  // Starts the answers, one for each observer (as many as there are choices). Must be called on the
  // executor, so that no event overtakes the returned ids. If one is refused, none runs.
  Answer<std::vector<RequestId>> start(Prepared prepared, const Executor& executor,
                                       const std::vector<std::shared_ptr<ChatObserver>>& observers);
  void cancel(const std::vector<RequestId>& ids) {
    for (const RequestId id : ids) engine_.cancel(id);
  }

  // The server is about to stop: from now on start() refuses with 503, and answers of whose prompt
  // nothing was read yet end at once with an error. The others go on. From any thread.
  void close();
  // Then: every answer that still runs ends with an error. From any thread.
  void cut();
  bool closed() const { return closed_; }

  const EngineFacts& facts() const { return engine_.facts(); }
  const Tokenizer& tokenizer() const { return engine_.tokenizer(); }
  EngineCounters engine_counters() const { return engine_.counters(); }
  PromptEncoder::Counters encoder_counters() const { return encoder_->counters(); }
  ServiceCounters counters() const;
  // Those that ended last, the newest first; at most kMostPast.
  std::vector<PastAnswer> past_answers() const;
  const AnswerTimes& times() const { return *times_; }
  std::vector<AnswerRun::Sight> answers() const;     // that run or wait
  std::int64_t started() const { return started_; }  // seconds since 1970
  std::string_view template_source() const {         // empty: the model has none
    return has_template_ ? std::string_view(template_.source()) : std::string_view();
  }
  const ServiceOptions& options() const { return options_; }

  // Saves, restores or forgets what a slot held last; `path` is the file's. From any thread, and
  // `done` from another one. Nothing to save is `not_found`, a slot that is taken `exhausted`.
  void slot_task(ConversationTask::Kind kind, std::size_t slot, std::string path,
                 ConversationDone done);
  const Slots& slots() const { return *slots_; }

  // What a request leaves open, at this moment. From any thread.
  std::shared_ptr<const Defaults> defaults() const;
  // Settings that clients share: fields of requests (setting_fields()), from now on in force where
  // a request is silent. An empty object clears them. From any thread.
  Answer<void> share_settings(boost::json::object fields);
  boost::json::object shared_settings() const;

  // The name a request's `model` is answered with: an alias as it is, else the model's own.
  std::string answer_name(std::string_view asked) const;
  bool serves(std::string_view name) const;

 private:
  Service(Engine& engine, chat::ChatTemplate chat_template, ServiceOptions options);
  Status load_settings();
  Status save_settings(const boost::json::object& fields);
  Answer<chat::Prompt> prompt_of(chat::Conversation& conversation) const;
  Answer<std::uint32_t> limit_of(const Generation& request, std::uint64_t size,
                                 std::string_view param) const;
  Answer<Prepared> fit(Generation& request, std::vector<TokenId> prompt,
                       std::string_view param) const;
  void limit_thinking(const ChatRequest& request, const Defaults& defaults, bool begun,
                      Request& work) const;
  void tell_answer_room(std::uint32_t budget, std::uint32_t limit) const;
  bool ends_in_thinking(const std::vector<TokenId>& prompt) const;
  bool ends_behind_thinking(const std::vector<TokenId>& prompt) const;
  ApiError render_error(const chat::Conversation& conversation, const Error& error) const;
  std::vector<std::shared_ptr<AnswerRun>> running() const;

  Engine& engine_;
  chat::ChatTemplate template_;
  bool has_template_ = true;
  ServiceOptions options_;
  std::shared_ptr<PromptEncoder> encoder_;  // held by running answers too
  mutable std::mutex defaults_mutex_;
  std::shared_ptr<const Defaults> defaults_;
  boost::json::object shared_;  // what they were made of
  std::optional<TokenId> think_open_;
  std::optional<TokenId> think_close_;
  std::int64_t started_ = 0;
  mutable std::atomic<bool> told_answer_room_{false};

  // Held by running answers too, which may outlive the service.
  struct Totals {
    std::mutex mutex;
    ServiceCounters counters;
    std::deque<PastAnswer> past;  // the newest first
    void add(RequestId id, const ChatResult& result);
  };
  std::shared_ptr<Totals> totals_ = std::make_shared<Totals>();
  std::shared_ptr<AnswerTimes> times_ = std::make_shared<AnswerTimes>();
  std::shared_ptr<Slots> slots_;  // held by running answers too

  mutable std::mutex mutex_;
  std::atomic<bool> closed_{false};  // set under the mutex
  std::vector<std::weak_ptr<AnswerRun>> runs_;
};

// What every dialect's conversation goes through: developer becomes system; a system message that
// is not the first becomes a user message in place (moving it up would change the prompt's
// beginning and lose the cache); empty assistant turns are dropped unless last; the parts of Claude
// Code's billing line that change from request to request are pinned.
void normalise(chat::Conversation& conversation);

}  // namespace strata::server
