// strata run: one answer to one text.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

#include "cli/command.h"
#include "cli/default_model.h"
#include "cli/engine_options.h"
#include "cli/talk.h"
#include "tokenizer/utf8_stream.h"

namespace strata {
namespace {

struct RunArguments {
  TalkArguments talk;
  std::string prompt;
  bool raw = false;
  PlanArguments plan;
};

void print_now(const std::string& text, std::FILE* to) {
  std::fputs(text.c_str(), to);
  std::fflush(to);
}

void print_event(const chat::OutputEvent& event, bool thinking) {
  using Kind = chat::OutputEvent::Kind;
  if (event.kind == Kind::content) print_now(event.text, stdout);
  if (event.kind == Kind::reasoning && thinking) print_now(event.text, stderr);
  if (event.kind == Kind::tool_call_begin) print_now(event.name, stdout);
  if (event.kind == Kind::tool_arguments) print_now(event.text, stdout);
}

// Prints a plain continuation as it comes.
class RawListener final : public Listener {
 public:
  explicit RawListener(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void token(TokenId id) override { print_now(text_.feed(tokenizer_.bytes(id)), stdout); }
  void finished(const Completion& completion) override {
    print_now(text_.flush() + "\n", stdout);
    const std::lock_guard lock(mutex_);
    completion_ = completion;
    done_ = true;
    changed_.notify_all();
  }
  bool wait_a_little() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(50), [&] { return done_; });
  }
  const Completion& completion() const { return completion_; }

 private:
  const Tokenizer& tokenizer_;
  Utf8Stream text_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Completion completion_;
  bool done_ = false;
};

Result<int> run_raw(RunArguments& arguments) {
  TalkArguments& talk = arguments.talk;
  STRATA_ASSIGN(talk.engine.model_path, model_or_default(talk.engine.model_path));
  STRATA_ASSIGN(const auto engine, Engine::open(real_files(), talk.engine));
  Request request;
  request.prompt = engine->tokenizer().encode(arguments.prompt, Specials::all);
  request.sampling = sampling_of(talk, engine->facts());
  request.max_tokens = talk.max_tokens;
  request.stop_ids = engine->facts().stop_ids;
  print_now(arguments.prompt, stdout);
  const auto listener = std::make_shared<RawListener>(engine->tokenizer());
  const CatchInterrupt interrupt;
  STRATA_ASSIGN(const RequestId id, engine->submit(std::move(request), listener));
  while (!listener->wait_a_little())
    if (CatchInterrupt::take()) engine->cancel(id);
  if (listener->completion().reason == FinishReason::error)
    return tl::unexpected(listener->completion().error);
  return 0;
}

Result<int> run_run(RunArguments& arguments) {
  if (arguments.plan.plan) {
    EngineOptions& engine = arguments.talk.engine;
    STRATA_ASSIGN(engine.model_path, model_or_default(engine.model_path));
    return print_plan(engine, arguments.plan.json);
  }
  if (arguments.prompt.empty()) return usage_error("-p: what text is to be answered?");
  if (arguments.raw) return run_raw(arguments);
  STRATA_ASSIGN(const auto talk, Talk::open(arguments.talk));
  STRATA_ASSIGN(const auto result, talk->ask(arguments.prompt, [&](const chat::OutputEvent& event) {
    print_event(event, arguments.talk.show_thinking);
  }));
  print_now("\n", stdout);
  if (arguments.talk.show_thinking) print_now("\n", stderr);
  if (result.finish == server::ChatFinish::length)
    fmt::print(stderr, "strata: the answer was cut at {} tokens\n", result.completion_tokens);
  return 0;
}

}  // namespace

void register_run(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<RunArguments>();
  CLI::App* command = app.add_subcommand("run", "Answer one text and stop");
  command->add_option("-p,--prompt", arguments->prompt, "The text");
  command->add_flag("--raw", arguments->raw,
                    "Continue the text as it stands, without the chat template");
  add_talk_options(*command, arguments->talk);
  add_plan_options(*command, arguments->plan);
  command->callback(
      [arguments, &invocation] { invocation.run = [arguments] { return run_run(*arguments); }; });
}

}  // namespace strata
