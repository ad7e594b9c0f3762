#include "cli/talk.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <deque>
#include <mutex>

#include "base/clock.h"
#include "base/log.h"
#include "cli/checks.h"
#include "cli/default_model.h"
#include "cli/engine_options.h"
#include "cli/output_options.h"
#include "engine/scripted.h"
#include "server/request_fields.h"
#include "terminal/progress.h"

namespace strata {
namespace {

namespace json = boost::json;

volatile std::sig_atomic_t interrupts = 0;
volatile std::sig_atomic_t at_terminal = 0;  // standard output is one

chat::Message message(std::string role, std::string content) {
  chat::Message m;
  m.role = std::move(role);
  m.content = std::move(content);
  return m;
}

// Functions posted by the engine's thread, run by the one that waits for the answer.
class Queue {
 public:
  void post(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_one();
  }
  // The next piece of work, or none after a short while.
  std::function<void()> next() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(50), [&] { return !work_.empty(); });
    if (work_.empty()) return {};
    auto work = std::move(work_.front());
    work_.pop_front();
    return work;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
};

class Observer final : public server::ChatObserver {
 public:
  explicit Observer(Watcher& watcher) : watcher_(watcher) {}
  void started(std::uint32_t cached) override { cached_ = cached; }
  void progress(std::uint32_t read, std::uint32_t total) override {
    if (!begun_) watcher_.reading(cached_, total);  // where it begins
    begun_ = true;
    watcher_.reading(read, total);
  }
  void event(const chat::OutputEvent& event) override {
    if (first_ == 0) first_ = monotonic_seconds();
    watcher_.event(event);
  }
  void finished(const server::ChatResult& result) override {
    result_ = result;
    done_ = true;
  }
  bool done() const { return done_; }
  double first() const { return first_; }  // 0: there was none
  const server::ChatResult& result() const { return result_; }

 private:
  Watcher& watcher_;
  server::ChatResult result_;
  std::uint32_t cached_ = 0;
  double first_ = 0;
  bool begun_ = false, done_ = false;
};

// A setting of requests as an option, checked where the command line is read.
template <class Number>
CLI::Option* add_setting(CLI::App& command, TalkArguments& arguments, const char* flags,
                         const char* name, const char* help) {
  return command.add_option_function<Number>(
      flags, [&arguments, name](const Number& value) { arguments.settings[name] = value; }, help);
}

const char* name_of(server::ChatFinish finish) {
  switch (finish) {
    case server::ChatFinish::stop:
      return "stop";
    case server::ChatFinish::length:
      return "length";
    case server::ChatFinish::tool_calls:
      return "tool_calls";
    case server::ChatFinish::cancelled:
      return "cancelled";
    case server::ChatFinish::error:
      break;
  }
  return "error";
}

Result<std::unique_ptr<Engine>> open_engine(TalkArguments& arguments) {
  if (!arguments.script.empty()) {
    constexpr std::uint64_t kMostBytes = 16 << 20;
    STRATA_ASSIGN(const std::string script, real_files().read_text(arguments.script, kMostBytes));
    ScriptedOptions options;
    options.model_path = arguments.engine.model_path;
    options.context = arguments.engine.context;
    return open_scripted_engine(real_files(), options, script);
  }
  terminal::Progress progress(arguments.progress, "reading the weights", terminal::Unit::bytes);
  EngineOptions options = arguments.engine;
  options.progress = [&](std::uint64_t done, std::uint64_t all) { progress.update(done, all); };
  return Engine::open(real_files(), options);
}

}  // namespace

CatchInterrupt::CatchInterrupt() {
  interrupts = 0;
  at_terminal = isatty(STDOUT_FILENO);
  std::signal(SIGINT, [](int) {
    constexpr int kEnough = 3, kInterrupted = 130;
    interrupts = interrupts + 1;
    if (interrupts < kEnough) return;
    constexpr char kPlain[] = "\x1b[0m\n";
    if (at_terminal == 1) (void)!write(STDOUT_FILENO, kPlain, sizeof kPlain - 1);
    _exit(kInterrupted);
  });
}
CatchInterrupt::~CatchInterrupt() {
  std::signal(SIGINT, SIG_DFL);
}
int CatchInterrupt::count() {
  return interrupts;
}

void add_talk_options(CLI::App& command, TalkArguments& a) {
  add_model_option(command, a.engine.model_path);
  command.add_option("-s,--system", a.system, "System prompt");
  add_setting<std::string>(command, a, "--effort", "reasoning_effort",
                           "Thinking: none, low, medium, high, xhigh or max")
      ->check(CLI::IsMember({"none", "low", "medium", "high", "xhigh", "max"}));
  command.add_flag("--show-thinking", a.show_thinking, "Print what the model thinks too");
  add_setting<std::int64_t>(command, a, "-n,--max-tokens", "max_tokens",
                            "Most tokens of an answer; 0 or -1 for no limit but the context's")
      ->check(CLI::Validator(whole_number_between(-1, INT64_MAX), ""));
  add_setting<double>(command, a, "-t,--temperature", "temperature", "0 takes the likeliest token")
      ->check(CLI::Validator(number_between(0, 100), ""));
  add_setting<std::int32_t>(command, a, "--top-k", "top_k",
                            "Keep the k likeliest tokens, 0 for all")
      ->check(CLI::Validator(whole_number_up_to(INT32_MAX), ""));
  add_setting<double>(command, a, "--top-p", "top_p",
                      "Keep the likeliest tokens up to this probability")
      ->check(CLI::Validator(number_between(1e-6, 1), ""));
  add_setting<double>(command, a, "--min-p", "min_p",
                      "Drop tokens below this share of the likeliest")
      ->check(CLI::Validator(number_between(0, 1), ""));
  add_setting<std::int64_t>(command, a, "--seed", "seed",
                            "Same seed, same answer; -1 draws one (the default)")
      ->check(CLI::Validator(whole_number_between(-1, INT64_MAX), ""));
  add_json_option(command, a.json, "One JSON object for each answer instead of its text");
  add_progress_option(command, a.progress);
  command
      .add_option("--script", a.script,
                  "An engine that plays this script in the model's place (docs/config.md)")
      ->type_name("FILE");
  add_engine_options(command, a.engine);
}

json::object to_json(const TalkAnswer& answer) {
  const server::ChatResult& r = answer.result;
  json::array calls;
  for (const chat::ToolCall& call : r.message.tool_calls)
    calls.push_back({{"name", call.name}, {"arguments", call.arguments}});
  const double rate = r.decode_seconds > 0 ? r.completion_tokens / r.decode_seconds : 0;
  const double prompt_rate =
      r.prompt_seconds > 0 ? (r.prompt_tokens - r.cached_tokens) / r.prompt_seconds : 0;
  return {{"text", r.message.content},
          {"thinking", r.message.reasoning_content},
          {"tool_calls", std::move(calls)},
          {"finish_reason", name_of(r.finish)},
          {"prompt_tokens", r.prompt_tokens},
          {"cached_tokens", r.cached_tokens},
          {"completion_tokens", r.completion_tokens},
          {"thinking_tokens", r.reasoning_tokens},
          {"drafted", r.drafted},
          {"accepted", r.accepted},
          {"prompt_seconds", r.prompt_seconds},
          {"prompt_tokens_per_s", prompt_rate},
          {"first_token_seconds", answer.first_seconds},
          {"decode_seconds", r.decode_seconds},
          {"tokens_per_s", rate},
          {"seconds", answer.seconds}};
}

Result<std::unique_ptr<Talk>> Talk::open(TalkArguments arguments) {
  set_log_level("warning");  // the terminal is for the conversation
  auto talk = std::make_unique<Talk>();
  STRATA_ASSIGN(arguments.engine.model_path, model_or_default(arguments.engine.model_path));
  STRATA_ASSIGN(talk->engine_, open_engine(arguments));
  server::ServiceOptions options;
  for (const auto& [name, value] : arguments.settings)
    options.fields.push_back({std::string(name), value, "flag"});
  STRATA_ASSIGN(talk->service_, server::Service::create(*talk->engine_, std::move(options)));
  talk->set_system(arguments.system);
  return talk;
}

std::string Talk::system() const {
  const bool given = !messages_.empty() && messages_.front().role == "system";
  return given ? messages_.front().content : std::string();
}

void Talk::set_system(const std::string& text) {
  if (!messages_.empty() && messages_.front().role == "system") messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), message("system", text));
}

void Talk::forget() {
  const std::string kept = system();
  messages_.clear();
  set_system(kept);
}

std::optional<std::string> Talk::undo() {
  const auto last = std::find_if(messages_.rbegin(), messages_.rend(),
                                 [](const chat::Message& m) { return m.role == "user"; });
  if (last == messages_.rend()) return std::nullopt;
  std::string text = last->content;
  messages_.erase(std::prev(last.base()), messages_.end());
  return text;
}

Status Talk::set_all(json::object settings) {
  if (auto done = service_->share_settings(settings); !done)
    return fail(ErrorCode::invalid_argument, "{}", done.error().message);
  settings_ = std::move(settings);
  return {};
}

Status Talk::set(std::string_view name, json::value value) {
  json::object settings = settings_;
  settings[json::string_view(name.data(), name.size())] = std::move(value);
  // A null goes into the check, so that unknown names are found, and not into what is kept.
  STRATA_TRY(set_all(settings));
  for (auto field = settings_.begin(); field != settings_.end();)
    field = field->value().is_null() ? settings_.erase(field) : std::next(field);
  return {};
}

Result<TalkAnswer> Talk::ask(const std::string& text, Watcher& watcher) {
  messages_.push_back(message("user", text));
  auto given = answer(watcher);
  if (!given) messages_.pop_back();
  return given;
}

Result<TalkAnswer> Talk::ask_again(Watcher& watcher) {
  std::vector<chat::Message> before = messages_;
  const auto question = undo();
  if (!question) return fail(ErrorCode::not_found, "there is no question yet");
  auto given = ask(*question, watcher);
  if (!given) messages_ = std::move(before);
  return given;
}

Result<TalkAnswer> Talk::answer(Watcher& watcher) {
  server::ChatRequest request = service_->defaults()->request;
  request.conversation.messages = messages_;
  // Draws a seed, if none is set.
  if (auto done = server::read_chat_fields({}, request); !done)
    return fail(ErrorCode::invalid_argument, "{}", done.error().message);
  STRATA_ASSIGN(TalkAnswer given, wait(service_->prepare(std::move(request)), watcher));
  messages_.push_back(given.result.message);
  return given;
}

Result<TalkAnswer> Talk::go_on(const std::string& text, Watcher& watcher) {
  server::TextRequest request;
  static_cast<server::Generation&>(request) = service_->defaults()->request;
  request.prompt = text;
  if (auto done = server::read_generation({}, request); !done)
    return fail(ErrorCode::invalid_argument, "{}", done.error().message);
  return wait(service_->prepare(std::move(request)), watcher);
}

Result<TalkAnswer> Talk::wait(server::Answer<server::Prepared> prepared, Watcher& watcher) {
  const double start = monotonic_seconds();
  const auto queue = std::make_shared<Queue>();
  const auto observer = std::make_shared<Observer>(watcher);
  const CatchInterrupt interrupt;
  if (!prepared) return fail(ErrorCode::invalid_argument, "{}", prepared.error().message);
  const auto ids = service_->start(
      std::move(*prepared), [queue](std::function<void()> work) { queue->post(std::move(work)); },
      {observer});
  if (!ids) return fail(ErrorCode::invalid_argument, "{}", ids.error().message);
  bool cancelled = false;
  while (!observer->done()) {
    if (const auto work = queue->next()) work();
    if (CatchInterrupt::count() == 0 || cancelled) continue;
    service_->cancel(*ids);
    cancelled = true;
  }
  if (observer->result().finish == server::ChatFinish::error)
    return tl::unexpected(observer->result().error);
  const double end = monotonic_seconds();
  TalkAnswer given;
  given.result = observer->result();
  given.first_seconds = (observer->first() > 0 ? observer->first() : end) - start;
  given.seconds = end - start;
  given.quit = CatchInterrupt::count() > 1;
  return given;
}

}  // namespace strata
