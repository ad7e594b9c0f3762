#include "server/service.h"
#include "server/answer_form.h"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "base/hash.h"
#include "base/json_number.h"
#include "base/log.h"
#include "server/request_fields.h"

namespace strata::server {

namespace json = boost::json;

namespace {

std::int64_t now() {
  return static_cast<std::int64_t>(std::time(nullptr));
}

// In the place of a template that a model does not have.
constexpr std::string_view kNoTemplate =
    "{{ raise_exception('this model has no chat template and holds no conversations; "
    "POST /v1/completions takes plain text') }}";

bool empty_turn(const chat::Message& message) {
  return message.role == "assistant" && message.content.empty() && message.tool_calls.empty();
}

// "x-anthropic-billing-header: cc_version=2.1.37.f4c; cc_entrypoint=cli; cch=9a1c7;" at the very
// start: cch changes with every request, the version's fourth part with every session. Both become
// zeros of the same length.
void pin_billing_line(std::string& text) {
  constexpr std::string_view kHeader = "x-anthropic-billing-header:";
  constexpr std::size_t kReach = 160, kLongestHash = 16, kLongestVersion = 64;
  if (!text.starts_with(kHeader)) return;
  const std::size_t end = std::min({text.find('\n'), kReach, text.size()});
  const auto value_of = [&](std::string_view key, std::size_t longest) {
    const std::size_t at = std::string_view(text).substr(0, end).find(key);
    if (at == std::string_view::npos) return std::pair{end, end};
    const std::size_t from = at + key.size();
    const std::size_t to = std::min(text.find_first_of("; \n", from), text.size());
    return to - from > longest ? std::pair{end, end} : std::pair{from, to};
  };
  const auto blank = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) text[i] = '0';
  };
  const auto [hash, hash_end] = value_of(" cch=", kLongestHash);
  blank(hash, hash_end);
  auto [version, version_end] = value_of(" cc_version=", kLongestVersion);
  for (int dot = 0; dot < 3 && version < version_end; ++dot) {
    version = std::min(text.find('.', version), version_end - 1) + 1;
  }
  blank(version, version_end);
}

tl::unexpected<ApiError> too_long(std::string message, std::string_view param, std::uint64_t prompt,
                                  std::uint64_t wanted, std::uint64_t context) {
  ApiError error{400, std::move(message), std::string(param), "context_length_exceeded"};
  error.excess = ContextExcess{prompt, wanted, context};
  return tl::unexpected<ApiError>(std::move(error));
}

PromptEncoder::Limits encoder_limits(const ServiceOptions& options) {
  PromptEncoder::Limits limits = options.encoder;
  if (options.parity) limits.replies = 0;
  return limits;
}

}  // namespace

void normalise(chat::Conversation& conversation) {
  auto& messages = conversation.messages;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == "developer") messages[i].role = "system";
    if (messages[i].role == "system" && i > 0) messages[i].role = "user";
  }
  if (messages.empty()) return;
  if (messages.front().role == "system") pin_billing_line(messages.front().content);
  const auto last = std::prev(messages.end());
  const auto kept = std::remove_if(messages.begin(), last, empty_turn);
  messages.erase(kept, last);
}

Service::Service(Engine& engine, chat::ChatTemplate chat_template, ServiceOptions options)
    : engine_(engine),
      template_(std::move(chat_template)),
      options_(std::move(options)),
      encoder_(std::make_shared<PromptEncoder>(engine.tokenizer(), encoder_limits(options_))),
      think_open_(engine.tokenizer().special("<think>")),
      think_close_(engine.tokenizer().special("</think>")),
      started_(now()),
      slots_(std::make_shared<Slots>(engine.facts().parallel)) {}

Result<std::unique_ptr<Service>> Service::create(Engine& engine, ServiceOptions options) {
  const bool has_template = engine.metadata().contains("tokenizer.chat_template");
  std::string source(kNoTemplate);
  if (has_template) {
    STRATA_ASSIGN(source, engine.metadata().string("tokenizer.chat_template"));
  } else {
    log_warning(
        "the model '{}' has no chat template (tokenizer.chat_template): it completes texts "
        "but holds no conversations",
        engine.facts().model_name);
  }
  auto compiled = chat::ChatTemplate::compile(source);
  if (!compiled) return with_context(compiled.error(), "the model's chat template");
  std::unique_ptr<Service> service(new Service(engine, std::move(*compiled), std::move(options)));
  service->has_template_ = has_template;
  STRATA_TRY(service->load_settings());
  return service;
}

// Defaults -----------------------------------------------------------------------------------

std::shared_ptr<const Defaults> Service::defaults() const {
  const std::lock_guard lock(defaults_mutex_);
  return defaults_;
}

json::object Service::shared_settings() const {
  const std::lock_guard lock(defaults_mutex_);
  return shared_;
}

Answer<void> Service::share_settings(json::object fields) {
  auto made = make_defaults(options_, facts().default_sampling, fields);
  if (!made) return passed_on(made);
  // One at a time, so that the file holds what is in force.
  const std::lock_guard lock(defaults_mutex_);
  if (auto saved = save_settings(fields); !saved) {
    return refuse(500, {}, "the settings could not be kept: {}", saved.error().message);
  }
  defaults_ = std::make_shared<const Defaults>(std::move(*made));
  shared_ = std::move(fields);
  return {};
}

// Written beside it first, so that there is always a whole one.
Status Service::save_settings(const json::object& fields) {
  if (options_.settings_file.empty() || options_.files == nullptr) return {};
  const std::string beside = options_.settings_file + ".new";
  STRATA_ASSIGN(const auto file, options_.files->create(beside));
  const std::string text = write_json(json::object{{"defaults", fields}}) + "\n";
  STRATA_TRY(file->write(std::as_bytes(std::span(text))));
  STRATA_TRY(file->finish());
  return options_.files->rename(beside, options_.settings_file);
}

// The defaults, with the settings that were shared before. A file that cannot be used is said and
// left alone until other settings are shared: no start fails because of it.
Status Service::load_settings() {
  const std::string& path = options_.settings_file;
  if (!path.empty() && options_.files != nullptr && options_.files->exists(path)) {
    constexpr std::uint64_t kMostBytes = 1 << 20;
    const auto read = [&]() -> Result<json::object> {
      STRATA_ASSIGN(const std::string text, options_.files->read_text(path, kMostBytes));
      STRATA_ASSIGN(const json::value root, parse_written_json(text, fmt::format("'{}'", path)));
      STRATA_ASSIGN(const json::object* object, json_object(root, path));
      STRATA_ASSIGN(const json::object* fields,
                    required(find_object(*object, "defaults", path), "defaults", path));
      return *fields;
    };
    auto fields = read();
    std::string trouble = fields ? "" : fields.error().message;
    if (fields) {
      auto made = make_defaults(options_, facts().default_sampling, *fields);
      if (made) {
        shared_ = std::move(*fields);
      } else {
        trouble = made.error().message;
      }
    }
    if (!trouble.empty())
      log_warning("the shared settings of '{}' are not used: {}", path, trouble);
  }
  auto made = make_defaults(options_, facts().default_sampling, shared_);
  if (!made) return fail(ErrorCode::invalid_argument, "{}", made.error().message);
  const auto wrap_up = thinking_limit(1, false, true, made->thinking, tokenizer());
  if (wrap_up && wrap_up->wrap_up.size() > kMaxWrapUp) {
    return fail(ErrorCode::invalid_argument,
                "thinking_wrap_up has {} tokens with the marks around it, at most {} are allowed",
                wrap_up->wrap_up.size(), kMaxWrapUp);
  }
  defaults_ = std::make_shared<const Defaults>(std::move(*made));
  return {};
}

std::string Service::answer_name(std::string_view asked) const {
  const auto alias = std::find(options_.aliases.begin(), options_.aliases.end(), asked);
  return alias == options_.aliases.end() ? facts().model_name : *alias;
}

bool Service::serves(std::string_view name) const {
  return name == facts().model_name || std::find(options_.aliases.begin(), options_.aliases.end(),
                                                 name) != options_.aliases.end();
}

// Prompts ------------------------------------------------------------------------------------

// Of a template that closes the thinking itself, when there is to be none.
bool Service::ends_behind_thinking(const std::vector<TokenId>& prompt) const {
  constexpr std::ptrdiff_t kReach = 4;  // line breaks
  const auto from = prompt.end() - std::min<std::ptrdiff_t>(kReach, std::ssize(prompt));
  return think_close_ && std::find(from, prompt.end(), *think_close_) != prompt.end();
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

Answer<chat::Prompt> Service::prompt_of(chat::Conversation& conversation) const {
  normalise(conversation);
  auto segments = template_.render(conversation);
  if (!segments) return tl::unexpected<ApiError>(render_error(conversation, segments.error()));
  return chat::join(*segments);
}

Answer<std::string> Service::render(chat::Conversation conversation) const {
  auto prompt = prompt_of(conversation);
  if (!prompt) return passed_on(prompt);
  return std::move(prompt->text);
}

Answer<std::size_t> Service::count(chat::Conversation conversation) const {
  auto prompt = prompt_of(conversation);
  if (!prompt) return passed_on(prompt);
  return encoder_->encode(std::move(prompt->text), std::move(prompt->trusted), {.store = false})
      .size();
}

// The answer's limit after a prompt of `size` tokens.
Answer<std::uint32_t> Service::limit_of(const Generation& request, std::uint64_t size,
                                        std::string_view param) const {
  const std::uint64_t context = facts().context;
  if (size == 0) return refuse(400, param, "the prompt is empty; at least one token is needed");
  if (size + kContextSlack >= context) {
    return too_long(
        fmt::format("the prompt exceeds the context window: it is {} tokens long, and the maximum "
                    "context length is {} tokens, of which {} are kept free; shorten it or serve "
                    "with a larger --ctx",
                    size, context, kContextSlack),
        param, size, request.max_tokens, context);
  }
  const std::uint64_t room = context - size - kContextSlack;
  if (request.max_tokens > room && request.own_limit && !defaults()->fit_max_tokens) {
    return too_long(
        fmt::format("the request exceeds the context window: its prompt is {} tokens long and {} "
                    "more were asked for, and the maximum context length is {} tokens, of which {} "
                    "are kept free; ask for at most {}",
                    size, request.max_tokens, context, kContextSlack, room),
        param, size, request.max_tokens, context);
  }
  return static_cast<std::uint32_t>(request.max_tokens == 0 ? room
                                                            : std::min(room, request.max_tokens));
}

// The engine's request, with a limit that fits the context.
Answer<Prepared> Service::fit(Generation& request, std::vector<TokenId> prompt,
                              std::string_view param) const {
  auto limit = limit_of(request, prompt.size(), param);
  if (!limit) {
    encoder_->forget(prompt);
    return passed_on(limit);
  }
  Prepared prepared;
  Request& work = prepared.work;
  work.prompt = std::move(prompt);
  work.sampling = request.sampling;
  work.max_tokens = *limit;
  work.stop_ids = facts().stop_ids;
  work.dry = std::move(request.dry);
  work.banned_strings = std::move(request.banned_strings);
  work.logit_bias = std::move(request.logit_bias);
  work.logprobs = request.logprobs;
  work.drafts = request.drafts;
  work.keep = !request.one_shot;
  work.client = hash64(request.client);
  work.repeat_limit = defaults()->repeat_stop_tokens;
  work.loop_guard = request.loop_guard;
  work.grammar = answer_grammar(request);
  prepared.run.stops = std::move(request.stops);
  prepared.choices = request.choices;
  return prepared;
}

Answer<Prepared> Service::prepare(ChatRequest request) const {
  auto prompt = prompt_of(request.conversation);
  if (!prompt) return passed_on(prompt);
  std::vector<TokenId> ids = encoder_->encode(std::move(prompt->text), std::move(prompt->trusted),
                                              {.store = !request.one_shot});
  const bool thinking = ends_in_thinking(ids);
  auto prepared = fit(request, std::move(ids), "messages");
  if (!prepared) return prepared;
  limit_thinking(request, *defaults(), thinking, prepared->work);
  const PromptEnd end = thinking                                      ? PromptEnd::in_thinking
                        : ends_behind_thinking(prepared->work.prompt) ? PromptEnd::thought
                                                                      : PromptEnd::open;
  prepared->work.grammar = answer_grammar(request, end, tokenizer());
  chat::ParserOptions options;
  options.starts_in_thinking = thinking;
  options.tools = std::move(request.conversation.tools);
  options.parse_calls = !options.tools.empty();
  options.recover_calls = request.recover_calls;
  options.exact = !request.form.empty();
  prepared->run.parser = std::move(options);
  prepared->run.one_call = request.one_call;
  return prepared;
}

void Service::limit_thinking(const ChatRequest& request, const Defaults& defaults, bool begun,
                             Request& work) const {
  const ThinkingOptions& options = defaults.thinking;
  const auto budget = thinking_budget(request.thinking_budget, options, work.max_tokens);
  work.thinking = thinking_limit(budget, request.close_thinking, begun, options, tokenizer());
  if (work.thinking && budget && begun && !request.thinking_budget && options.budget <= 0)
    tell_answer_room(*budget, work.max_tokens);
}

// Once, not with every request: where the room is, and how to be without it.
void Service::tell_answer_room(std::uint32_t budget, std::uint32_t limit) const {
  if (told_answer_room_.exchange(true)) return;
  log_info(
      "thinking leaves room for the answer: {} of {} tokens here; 'answer_room': false switches "
      "that off, a request's 'reasoning_budget_tokens' sets its own budget",
      budget, limit);
}

Answer<Prepared> Service::prepare(TextRequest request) const {
  std::vector<TokenId> ids;
  if (auto* text = std::get_if<std::string>(&request.prompt)) {
    const std::size_t size = text->size();
    ids = encoder_->encode(std::move(*text), {{0, size}}, {.store = !request.one_shot});
  } else {
    ids = std::move(std::get<std::vector<TokenId>>(request.prompt));
  }
  auto prepared = fit(request, std::move(ids), "prompt");
  if (prepared) prepared->work.prompt_logprobs = request.prompt_logprobs;
  return prepared;
}

// Answers ------------------------------------------------------------------------------------

namespace {

void observe(AnswerTimes& times, const ChatResult& result) {
  times.whole.observe(result.whole_seconds);
  times.queue.observe(result.queue_seconds);
  times.prompt.observe(result.prompt_seconds);
  times.decode.observe(result.decode_seconds);
  times.running.observe(result.prompt_seconds + result.decode_seconds);
  times.prompt_tokens.observe(result.prompt_tokens);
  times.written_tokens.observe(result.completion_tokens);
  if (result.completion_tokens > 1)
    times.per_token.observe(result.decode_seconds / (result.completion_tokens - 1));
}

}  // namespace

void Service::Totals::add(RequestId id, const ChatResult& result) {
  PastAnswer ended;
  ended.id = id;
  ended.ended_at =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  ended.result = result;
  ended.result.message = {};
  ended.result.ids = {};
  ended.result.chances.clear();
  ended.result.prompt_chances.clear();
  const std::lock_guard lock(mutex);
  ++counters.finished[static_cast<std::size_t>(result.finish)];
  counters.prompt_tokens += result.prompt_tokens;
  counters.cached_tokens += result.cached_tokens;
  counters.completion_tokens += result.completion_tokens;
  counters.reasoning_tokens += result.reasoning_tokens;
  ++counters.thinking_cut[static_cast<std::size_t>(result.thinking_cut)];
  ++counters.stopped_by[static_cast<std::size_t>(result.stopped_by)];
  counters.ended_in_thinking += result.ended_in_thinking ? 1 : 0;
  counters.calls += result.calls;
  counters.prompt_seconds += result.prompt_seconds;
  counters.decode_seconds += result.decode_seconds;
  counters.queue_seconds += result.queue_seconds;
  past.push_front(std::move(ended));
  if (past.size() > kMostPast) past.pop_back();
}

Answer<std::vector<RequestId>> Service::start(
    Prepared prepared, const Executor& executor,
    const std::vector<std::shared_ptr<ChatObserver>>& observers) {
  std::vector<std::shared_ptr<AnswerRun>> started;
  std::vector<RequestId> ids;
  const auto prompt = std::make_shared<const std::vector<TokenId>>(prepared.work.prompt);
  // Under the lock, so that close() finds every answer it did not refuse.
  const std::lock_guard lock(mutex_);
  if (closed_) {
    encoder_->forget(*prompt);
    return refuse(503, {}, "{}", kStopping);
  }
  for (std::size_t i = 0; i < observers.size(); ++i) {
    RunOptions options = prepared.run;
    options.take_place = [slots = slots_, prompt] { return slots->take(*prompt); };
    options.times = times_;
    // Set before the first event can run, for both are the executor's.
    const auto id = std::make_shared<RequestId>(0);
    options.on_end = [totals = totals_, times = times_, encoder = encoder_, prompt, id,
                      keep = prepared.work.keep](const ChatResult& result,
                                                 const Slots::Place* place) {
      if (keep) encoder->remember_reply(*prompt, result.ids);
      if (keep && place != nullptr && result.finish != ChatFinish::error) {
        std::vector<TokenId> tokens = *prompt;
        tokens.insert(tokens.end(), result.ids.begin(), result.ids.end());
        place->hold(std::move(tokens), prompt->size());
      }
      if (result.finish != ChatFinish::error) observe(*times, result);
      totals->add(*id, result);
    };
    auto run = std::make_shared<AnswerRun>(engine_, std::move(options), executor, observers[i]);
    Request work = i + 1 == observers.size() ? std::move(prepared.work) : prepared.work;
    work.sampling.seed += i;
    run->set_prompt(static_cast<std::uint32_t>(work.prompt.size()));
    auto taken = engine_.submit(std::move(work), run);
    if (!taken) {
      for (const auto& other : started) {
        other->mute();
        engine_.cancel(other->id());
      }
      encoder_->forget(*prompt);
      return tl::unexpected<ApiError>(api_error(taken.error()));
    }
    run->set_id(*id = *taken);
    ids.push_back(*id);
    started.push_back(std::move(run));
  }
  std::erase_if(runs_, [](const auto& known) { return known.expired(); });
  runs_.insert(runs_.end(), started.begin(), started.end());
  const std::lock_guard inner(totals_->mutex);
  totals_->counters.requests += started.size();
  totals_->counters.last_request_at = now();
  return ids;
}

std::vector<std::shared_ptr<AnswerRun>> Service::running() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<AnswerRun>> found;
  for (const auto& known : runs_) {
    if (auto run = known.lock()) found.push_back(std::move(run));
  }
  return found;
}

void Service::slot_task(ConversationTask::Kind kind, std::size_t slot, std::string path,
                        ConversationDone done) {
  using Kind = ConversationTask::Kind;
  Slots::Held held = slots_->held(slot);
  if (held.taken) {
    return done(
        fail(ErrorCode::exhausted, "an answer runs in slot {}; try again when it has ended", slot));
  }
  if (kind == Kind::save && held.tokens.empty()) {
    return done(fail(ErrorCode::not_found,
                     "slot {} holds no conversation: nothing has been answered in it", slot));
  }
  if (kind == Kind::erase && held.tokens.empty()) return done(ConversationResult{});
  if (kind == Kind::erase) {
    slots_->hold(slot, {}, 0);
    encoder_->forget(
        {held.tokens.begin(), held.tokens.begin() + static_cast<std::ptrdiff_t>(held.prompt)});
  }
  if (kind == Kind::restore) held.tokens.clear();
  engine_.conversation(
      {kind, std::move(held.tokens), std::move(path)},
      [slots = slots_, slot, kind, done = std::move(done)](Result<ConversationResult> result) {
        if (result && kind == Kind::restore)
          slots->hold(slot, result->tokens, result->tokens.size());
        done(std::move(result));
      });
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

ServiceCounters Service::counters() const {
  const std::lock_guard lock(totals_->mutex);
  return totals_->counters;
}

std::vector<PastAnswer> Service::past_answers() const {
  const std::lock_guard lock(totals_->mutex);
  return {totals_->past.begin(), totals_->past.end()};
}

std::vector<AnswerRun::Sight> Service::answers() const {
  std::vector<AnswerRun::Sight> sights;
  for (const auto& run : running()) {
    if (!run->ended()) sights.push_back(run->sight());
  }
  return sights;
}

}  // namespace strata::server
