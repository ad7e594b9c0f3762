#include "server/service.h"

#include <algorithm>
#include <ctime>

#include "base/log.h"
#include "server/stop_filter.h"

namespace strata::server {
namespace {

using chat::OutputEvent;
using Kind = chat::OutputEvent::Kind;

constexpr std::string_view kStopping =
    "the server is stopping; send the request again when it is back";

}  // namespace

// One answer on its way. The engine calls it from its thread; all work is done on the executor,
// which also orders it, so nothing here needs a lock.
class ChatRun final : public Listener, public std::enable_shared_from_this<ChatRun> {
 public:
  ChatRun(Engine& engine, chat::ParserOptions options, std::vector<std::string> stops,
          Executor executor, std::shared_ptr<ChatObserver> observer)
      : engine_(engine),
        parser_(engine.tokenizer(), std::move(options)),
        stops_(std::move(stops)),
        executor_(std::move(executor)),
        observer_(std::move(observer)) {
    result_.message.role = "assistant";
  }

  void set_id(RequestId id) { id_ = id; }

  void progress(std::uint32_t read, std::uint32_t total) override {
    executor_([self = shared_from_this(), read, total] {
      self->begun_ = true;
      if (!self->over_) self->observer_->progress(read, total);
    });
  }
  void token(TokenId id) override {
    executor_([self = shared_from_this(), id] { self->take(id); });
  }
  void finished(const Completion& completion) override {
    executor_([self = shared_from_this(), completion] { self->end(completion); });
  }
  // The server ends the answer, or only one that has not begun.
  void stop(bool waiting_only) {
    executor_([self = shared_from_this(), waiting_only] { self->end_by_server(waiting_only); });
  }

 private:
  void take(TokenId id);
  void end(const Completion& completion);
  void end_by_server(bool waiting_only);
  void filter(const OutputEvent& event);
  void emit(const OutputEvent& event);
  void emit_content(std::string text);
  void drop_cut_calls();

  Engine& engine_;
  RequestId id_ = 0;
  chat::OutputParser parser_;
  StopFilter stops_;
  Executor executor_;
  std::shared_ptr<ChatObserver> observer_;
  ChatResult result_;
  std::vector<bool> complete_;  // per call of result_.message
  bool begun_ = false;          // the engine has read some of the prompt
  bool over_ = false;           // the observer heard the end
};

void ChatRun::take(TokenId id) {
  begun_ = true;
  if (over_) return;
  if (stops_.matched()) return;  // tokens of the window in which the stop string ended
  ++result_.completion_tokens;
  if (parser_.in_thinking()) ++result_.reasoning_tokens;
  for (const OutputEvent& event : parser_.feed(id)) filter(event);
  if (stops_.matched()) engine_.cancel(id_);
}

void ChatRun::filter(const OutputEvent& event) {
  if (stops_.matched()) return;
  if (event.kind == Kind::content) return emit_content(stops_.feed(event.text));
  emit_content(stops_.flush());
  emit(event);
}

void ChatRun::emit_content(std::string text) {
  if (text.empty()) return;
  OutputEvent event;
  event.kind = Kind::content;
  event.text = std::move(text);
  emit(event);
}

void ChatRun::emit(const OutputEvent& event) {
  chat::Message& message = result_.message;
  switch (event.kind) {
    case Kind::reasoning:
      message.reasoning_content += event.text;
      break;
    case Kind::content:
      message.content += event.text;
      break;
    case Kind::tool_call_begin:
      message.tool_calls.push_back({event.id, event.name, boost::json::string()});
      complete_.push_back(false);
      break;
    case Kind::tool_arguments:
      if (event.index < message.tool_calls.size()) {
        message.tool_calls[event.index].arguments.as_string() += event.text;
      }
      break;
    case Kind::tool_call_end:
      if (event.index < complete_.size()) complete_[event.index] = true;
      break;
  }
  observer_->event(event);
}

void ChatRun::drop_cut_calls() {
  auto& calls = result_.message.tool_calls;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (!complete_[i]) continue;
    if (kept != i) calls[kept] = std::move(calls[i]);
    ++kept;
  }
  calls.resize(kept);
}

void ChatRun::end_by_server(bool waiting_only) {
  if (over_ || (waiting_only && begun_)) return;
  over_ = true;
  engine_.cancel(id_);
  drop_cut_calls();
  result_.finish = ChatFinish::error;
  result_.error = {ErrorCode::unavailable, std::string(kStopping)};
  log_info("answer {}: {} because the server stops", id_, begun_ ? "cut" : "not begun");
  observer_->finished(result_);
}

void ChatRun::end(const Completion& completion) {
  if (over_) return;
  over_ = true;
  const bool stopped = stops_.matched().has_value();
  const bool natural = completion.reason == FinishReason::stop;
  if (!stopped) {
    for (const OutputEvent& event : parser_.finish(natural)) filter(event);
    if (!stops_.matched()) emit_content(stops_.flush());
  }
  const bool all_calls_whole =
      std::find(complete_.begin(), complete_.end(), false) == complete_.end();
  drop_cut_calls();
  result_.stop_string = stops_.matched();
  result_.prompt_tokens = completion.prompt_tokens;
  result_.cached_tokens = completion.cached_tokens;
  result_.queue_seconds = completion.queue_seconds;
  result_.prompt_seconds = completion.prompt_seconds;
  result_.decode_seconds = completion.decode_seconds;
  if (stops_.matched()) {
    result_.finish = ChatFinish::stop;
  } else if (completion.reason == FinishReason::error) {
    result_.finish = ChatFinish::error;
    result_.error = completion.error;
  } else if (completion.reason == FinishReason::cancelled) {
    result_.finish = ChatFinish::cancelled;
  } else if (completion.reason == FinishReason::length) {
    result_.finish = ChatFinish::length;
  } else {
    const bool calls = !result_.message.tool_calls.empty() && all_calls_whole;
    result_.finish = calls ? ChatFinish::tool_calls : ChatFinish::stop;
  }
  log_info("answer {}: {} prompt tokens ({} cached) in {:.2f} s, {} generated in {:.2f} s, {}", id_,
           result_.prompt_tokens, result_.cached_tokens, result_.prompt_seconds,
           result_.completion_tokens, result_.decode_seconds, to_string(completion.reason));
  observer_->finished(result_);
}

namespace {

bool empty_turn(const chat::Message& message) {
  return message.role == "assistant" && message.content.empty() && message.tool_calls.empty();
}

tl::unexpected<ApiError> too_long(std::string message) {
  return tl::unexpected<ApiError>(
      ApiError{400, std::move(message), "messages", "context_length_exceeded"});
}

}  // namespace

void normalise(chat::Conversation& conversation) {
  auto& messages = conversation.messages;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == "developer") messages[i].role = "system";
    if (messages[i].role == "system" && i > 0) messages[i].role = "user";
  }
  if (messages.empty()) return;
  const auto last = std::prev(messages.end());
  const auto kept = std::remove_if(messages.begin(), last, empty_turn);
  messages.erase(kept, last);
}

Service::Service(Engine& engine, chat::ChatTemplate chat_template)
    : engine_(engine),
      template_(std::move(chat_template)),
      think_open_(engine.tokenizer().special("<think>")),
      think_close_(engine.tokenizer().special("</think>")),
      started_(static_cast<std::int64_t>(std::time(nullptr))) {}

Result<std::unique_ptr<Service>> Service::create(Engine& engine) {
  if (!engine.metadata().contains("tokenizer.chat_template")) {
    return fail(ErrorCode::unsupported,
                "the model '{}' has no chat template (tokenizer.chat_template); convert it again "
                "from a folder whose tokenizer_config.json or chat_template.jinja has one",
                engine.facts().model_name);
  }
  STRATA_ASSIGN(const std::string source, engine.metadata().string("tokenizer.chat_template"));
  auto compiled = chat::ChatTemplate::compile(source);
  if (!compiled) return with_context(compiled.error(), "the model's chat template");
  return std::unique_ptr<Service>(new Service(engine, std::move(*compiled)));
}

bool Service::ends_in_thinking(const std::vector<TokenId>& prompt) const {
  // Text from outside never holds these tokens, so the last one was written by the template.
  for (auto id = prompt.rbegin(); id != prompt.rend(); ++id) {
    if (think_close_ && *id == *think_close_) return false;
    if (think_open_ && *id == *think_open_) return true;
  }
  return false;
}

// What fails in the same way without the template arguments is the conversation's fault.
ApiError Service::render_error(const chat::Conversation& conversation, const Error& error) const {
  std::string_view param = "messages";
  if (!conversation.template_arguments.empty()) {
    chat::Conversation bare = conversation;
    bare.template_arguments.clear();
    const auto segments = template_.render(bare);
    if (segments || segments.error().message != error.message) param = "chat_template_kwargs";
  }
  ApiError answer = api_error(error, param);
  // Limits of rendering are the request's own fault, not a busy server's.
  if (error.code == ErrorCode::exhausted) answer.status = 400;
  return answer;
}

std::vector<std::shared_ptr<ChatRun>> Service::running() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<ChatRun>> found;
  for (const auto& known : runs_) {
    if (auto run = known.lock()) found.push_back(std::move(run));
  }
  return found;
}

void Service::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  for (const auto& run : running()) run->stop(true);
}

void Service::cut() {
  close();
  for (const auto& run : running()) run->stop(false);
}

Answer<RequestId> Service::chat(ChatRequest request, Executor executor,
                                std::shared_ptr<ChatObserver> observer) {
  normalise(request.conversation);
  auto segments = template_.render(request.conversation);
  if (!segments) {
    return tl::unexpected<ApiError>(render_error(request.conversation, segments.error()));
  }
  Request work;
  work.prompt = chat::encode_segments(engine_.tokenizer(), *segments);
  const std::uint64_t context = facts().context;
  const std::uint64_t prompt = work.prompt.size();
  if (prompt == 0) return refuse(400, "messages", "the conversation renders to an empty prompt");
  if (prompt >= context) {
    return too_long(fmt::format(
        "the conversation is {} tokens long, but the context holds {}; shorten it or serve with a "
        "larger --ctx",
        prompt, context));
  }
  if (request.max_tokens > context - prompt) {
    return too_long(fmt::format(
        "the conversation is {} tokens long and {} more were asked for, but the context holds {}; "
        "ask for at most {}",
        prompt, request.max_tokens, context, context - prompt));
  }
  work.sampling = request.sampling;
  work.max_tokens = static_cast<std::uint32_t>(request.max_tokens);
  work.stop_ids = facts().stop_ids;

  chat::ParserOptions options;
  options.starts_in_thinking = ends_in_thinking(work.prompt);
  options.tools = std::move(request.conversation.tools);
  options.parse_calls = !options.tools.empty();
  auto run = std::make_shared<ChatRun>(engine_, std::move(options), std::move(request.stops),
                                       std::move(executor), std::move(observer));
  // Under the lock, so that close() finds every answer it did not refuse.
  const std::lock_guard lock(mutex_);
  if (closed_) return refuse(503, {}, "{}", kStopping);
  auto id = engine_.submit(std::move(work), run);
  if (!id) return tl::unexpected<ApiError>(api_error(id.error()));
  run->set_id(*id);
  std::erase_if(runs_, [](const auto& known) { return known.expired(); });
  runs_.push_back(run);
  return *id;
}

}  // namespace strata::server
