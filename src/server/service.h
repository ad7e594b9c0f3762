// Conversations and texts over an engine: what all dialects share. A dialect hands in the neutral
// form and gets the neutral events back; it knows nothing of templates or the engine's threads.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
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
#include "server/engine_process.h"
#include "server/neutral.h"
#include "server/thinking_budget.h"
#include "tokenizer/prompt_encoder.h"

namespace strata::server {

inline constexpr std::string_view kStopping =
    "the server is stopping; send the request again when it is back";

// Tokens of the context that no request may plan to use.
inline constexpr std::uint32_t kContextSlack = 8;

// A setting that is in force: its value and where it came from.
struct Setting {
  std::string name;
  boost::json::value value;
  std::string source;  // "built-in", "model file", "config", "environment", "flag", "parity"
};

struct ServiceOptions {
  // Sampling that a request leaves open; what is absent here comes from the model file. Names and
  // ranges are those of requests.
  boost::json::object sampling = {};
  std::string sampling_source = "config";
  // Arguments of the template for requests that say nothing about thinking.
  std::optional<std::string> reasoning_effort = {};
  std::string reasoning_effort_source = "config";
  ThinkingOptions thinking = ThinkingOptions();
  // One token so often in a row ends an answer; 0: never.
  std::uint32_t repeat_stop_tokens = 256;
  std::string repeat_stop_tokens_source = "built-in";
  // A limit that does not fit is shortened to the room instead of refused.
  bool fit_max_tokens = false;
  std::string fit_max_tokens_source = "built-in";
  // Pins every default that changes output: greedy, nothing from the model file or the above.
  bool parity = false;
  // Of earlier prompts and answers, so that a conversation's next prompt is encoded and read from
  // where it goes on. With parity no answers are kept: ids are then those of the text alone.
  PromptEncoder::Limits encoder = {};
  std::string encoder_source = "built-in";
  std::vector<std::string> aliases = {};  // further names of the model
  // How the engine was started, as far as it changes speed and memory only; for status pages.
  std::vector<Setting> engine_settings = {};
  EngineProcess* process = nullptr;  // the engine, if it is a process of its own
};

// What has been answered since the start, over all lives of the engine.
struct ServiceCounters {
  std::uint64_t requests = 0;               // accepted, one for each choice
  std::array<std::uint64_t, 5> finished{};  // by ChatFinish
  std::uint64_t prompt_tokens = 0, cached_tokens = 0;
  std::uint64_t completion_tokens = 0, reasoning_tokens = 0;
  double prompt_seconds = 0, decode_seconds = 0, queue_seconds = 0;
  std::int64_t last_request_at = 0;  // seconds since 1970
};

// A request that has become tokens and fits.
struct Prepared {
  Request work;
  RunOptions run;
  std::uint32_t choices = 1;
};

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
  std::optional<ChatResult> last_result() const;     // without texts
  std::vector<AnswerRun::Sight> answers() const;     // that run or wait
  std::int64_t started() const { return started_; }  // seconds since 1970
  std::string_view template_source() const {         // empty: the model has none
    return has_template_ ? std::string_view(template_.source()) : std::string_view();
  }
  const ServiceOptions& options() const { return options_; }

  // What a request leaves open.
  const Sampling& default_sampling() const { return sampling_; }
  const boost::json::object& default_template_arguments() const { return template_arguments_; }
  const std::vector<Setting>& settings() const { return settings_; }  // that change output

  // The name a request's `model` is answered with: an alias as it is, else the model's own.
  std::string answer_name(std::string_view asked) const;
  bool serves(std::string_view name) const;

 private:
  Service(Engine& engine, chat::ChatTemplate chat_template, ServiceOptions options);
  Status choose_defaults();
  Answer<chat::Prompt> prompt_of(chat::Conversation& conversation) const;
  Answer<std::uint32_t> limit_of(const Generation& request, std::uint64_t size,
                                 std::string_view param) const;
  Answer<Prepared> fit(Generation& request, std::vector<TokenId> prompt,
                       std::string_view param) const;
  void tell_answer_room(std::uint32_t budget, std::uint32_t limit) const;
  bool ends_in_thinking(const std::vector<TokenId>& prompt) const;
  ApiError render_error(const chat::Conversation& conversation, const Error& error) const;
  std::vector<std::shared_ptr<AnswerRun>> running() const;

  Engine& engine_;
  chat::ChatTemplate template_;
  bool has_template_ = true;
  ServiceOptions options_;
  std::shared_ptr<PromptEncoder> encoder_;  // held by running answers too
  Sampling sampling_;
  boost::json::object template_arguments_;
  std::vector<Setting> settings_;
  std::optional<TokenId> think_open_;
  std::optional<TokenId> think_close_;
  std::int64_t started_ = 0;
  mutable std::atomic<bool> told_answer_room_{false};

  // Held by running answers too, which may outlive the service.
  struct Totals {
    std::mutex mutex;
    ServiceCounters counters;
    std::optional<ChatResult> last;
  };
  std::shared_ptr<Totals> totals_ = std::make_shared<Totals>();

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
