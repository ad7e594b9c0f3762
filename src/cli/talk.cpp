#include "cli/talk.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <deque>
#include <mutex>
#include <random>

#include "base/log.h"
#include "cli/checks.h"
#include "cli/default_model.h"
#include "cli/engine_options.h"

namespace strata {
namespace {

volatile std::sig_atomic_t interrupted = 0;

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
  explicit Observer(const Talk::Print& print) : print_(print) {}
  void event(const chat::OutputEvent& event) override { print_(event); }
  void finished(const server::ChatResult& result) override {
    result_ = result;
    done_ = true;
  }
  bool done() const { return done_; }
  const server::ChatResult& result() const { return result_; }

 private:
  const Talk::Print& print_;
  server::ChatResult result_;
  bool done_ = false;
};

}  // namespace

CatchInterrupt::CatchInterrupt() {
  interrupted = 0;
  std::signal(SIGINT, [](int) { interrupted = 1; });
}
CatchInterrupt::~CatchInterrupt() {
  std::signal(SIGINT, SIG_DFL);
}
bool CatchInterrupt::take() {
  const bool was = interrupted != 0;
  interrupted = 0;
  return was;
}

void add_talk_options(CLI::App& command, TalkArguments& a) {
  add_model_option(command, a.engine.model_path);
  command.add_option("-s,--system", a.system, "System prompt");
  command.add_option("--effort", a.effort, "Thinking: none, low, medium or high")
      ->check(CLI::IsMember({"none", "low", "medium", "high"}));
  command.add_flag("--show-thinking", a.show_thinking, "Print what the model thinks too");
  command.add_option("-n,--max-tokens", a.max_tokens, "Most tokens of an answer");
  command.add_option("-t,--temperature", a.temperature, "0 takes the likeliest token")
      ->check(CLI::Validator(number_between(0, 100), ""));
  command.add_option("--top-k", a.top_k, "Keep the k likeliest tokens, 0 for all")
      ->check(CLI::Validator(whole_number_up_to(INT32_MAX), ""));
  command.add_option("--top-p", a.top_p, "Keep the likeliest tokens up to this probability")
      ->check(CLI::Validator(number_between(1e-6, 1), ""));
  command.add_option("--min-p", a.min_p, "Drop tokens below this share of the likeliest")
      ->check(CLI::Validator(number_between(0, 1), ""));
  command.add_option("--seed", a.seed, "Same seed, same answer")
      ->check(CLI::Validator(whole_number_up_to(INT64_MAX), ""));
  add_engine_options(command, a.engine);
}

Sampling sampling_of(const TalkArguments& a, const EngineFacts& facts) {
  Sampling s = facts.default_sampling;
  if (a.temperature >= 0) s.temperature = a.temperature;
  if (a.top_k >= 0) s.top_k = a.top_k;
  if (a.top_p >= 0) s.top_p = a.top_p;
  if (a.min_p >= 0) s.min_p = a.min_p;
  s.seed = a.seed >= 0 ? static_cast<std::uint64_t>(a.seed) : std::random_device{}();
  return s;
}

Result<std::unique_ptr<Talk>> Talk::open(TalkArguments arguments) {
  set_log_level("warning");  // the terminal is for the conversation
  auto talk = std::make_unique<Talk>();
  STRATA_ASSIGN(arguments.engine.model_path, model_or_default(arguments.engine.model_path));
  STRATA_ASSIGN(talk->engine_, Engine::open(real_files(), arguments.engine));
  STRATA_ASSIGN(talk->service_, server::Service::create(*talk->engine_));
  if (!arguments.system.empty())
    talk->first_.messages.push_back(message("system", arguments.system));
  if (!arguments.effort.empty()) {
    talk->first_.template_arguments["reasoning_effort"] = arguments.effort;
    talk->first_.template_arguments["enable_thinking"] = arguments.effort != "none";
  }
  talk->conversation_ = talk->first_;
  talk->arguments_ = std::move(arguments);
  return talk;
}

Result<server::ChatResult> Talk::ask(const std::string& text, const Print& print) {
  conversation_.messages.push_back(message("user", text));
  server::ChatRequest request;
  request.conversation = conversation_;
  request.sampling = sampling_of(arguments_, facts());
  request.max_tokens = arguments_.max_tokens;
  const auto queue = std::make_shared<Queue>();
  const auto observer = std::make_shared<Observer>(print);
  const CatchInterrupt interrupt;
  const auto start = [&]() -> server::Answer<std::vector<RequestId>> {
    auto prepared = service_->prepare(std::move(request));
    if (!prepared) return tl::unexpected(std::move(prepared).error());
    return service_->start(std::move(*prepared),
                           [queue](std::function<void()> work) { queue->post(std::move(work)); },
                           {observer});
  };
  const auto ids = start();
  if (!ids) {
    conversation_.messages.pop_back();
    return fail(ErrorCode::invalid_argument, "{}", ids.error().message);
  }
  while (!observer->done()) {
    if (const auto work = queue->next()) work();
    if (CatchInterrupt::take()) service_->cancel(*ids);
  }
  const server::ChatResult& result = observer->result();
  if (result.finish == server::ChatFinish::error) {
    conversation_.messages.pop_back();
    return tl::unexpected(result.error);
  }
  conversation_.messages.push_back(result.message);
  return result;
}

}  // namespace strata
