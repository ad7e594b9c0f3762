// strata run: one answer to one text.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "base/json_number.h"
#include "cli/answer_view.h"
#include "cli/command.h"
#include "cli/default_model.h"
#include "cli/engine_options.h"
#include "cli/read_input.h"
#include "cli/talk.h"
#include "terminal/screen.h"

namespace strata {
namespace {

struct RunArguments {
  TalkArguments talk;
  std::string prompt, file;
  bool raw = false;
  PlanArguments plan;
};

// For --json: nothing is shown before the end but how far it is.
class Silent final : public Watcher {
 public:
  void event(const chat::OutputEvent&) override {}
};

// -p, then the file or, with neither, what comes through a pipe.
Result<std::string> text_of(const RunArguments& arguments) {
  std::string text = arguments.prompt;
  const bool piped = text.empty() && arguments.file.empty() && isatty(STDIN_FILENO) != 1;
  if (!arguments.file.empty() || piped) {
    STRATA_ASSIGN(const std::string more, read_input(piped ? "-" : arguments.file));
    text += (text.empty() ? "" : "\n\n") + more;
  }
  if (text.empty()) {
    return fail(ErrorCode::invalid_argument,
                "there is no text; give one (-p TEXT), a file (-f FILE), or pipe it in");
  }
  return text;
}

Result<int> run_run(RunArguments& arguments) {
  const bool json = arguments.talk.json;
  arguments.talk.progress = arguments.talk.progress && !json;
  const EngineOptions& chosen = arguments.talk.engine;
  if (const Status fit = check_choices(chosen.residence, chosen.expert_ram); !fit)
    return usage_error(fit.error().message);
  if (arguments.plan.plan) {
    if (!arguments.file.empty()) STRATA_TRY(text_of(arguments));
    EngineOptions& engine = arguments.talk.engine;
    STRATA_ASSIGN(engine.model_path, model_or_default(engine.model_path));
    const Result<int> printed = print_plan(engine, json);
    return printed ? printed : refused(printed.error());
  }
  const auto text = text_of(arguments);
  if (!text) return usage_error(text.error().message);
  const auto opened = Talk::open(arguments.talk);
  if (!opened) return refused(opened.error());
  const std::unique_ptr<Talk>& talk = *opened;
  const terminal::Screen out = terminal::screen_of(STDOUT_FILENO);
  AnswerView view(
      out, {.thinking = arguments.talk.show_thinking ? ShowThinking::show : ShowThinking::hide,
            .markdown = !arguments.raw,
            .progress = arguments.talk.progress});
  Silent silent;
  Watcher& watcher = json ? static_cast<Watcher&>(silent) : view;
  if (arguments.raw && !json) {
    chat::OutputEvent given;
    given.text = *text;
    view.event(given);
  }
  STRATA_ASSIGN(const TalkAnswer answer,
                arguments.raw ? talk->go_on(*text, watcher) : talk->ask(*text, watcher));
  if (json) {
    boost::json::object object = to_json(answer);
    object["model"] = talk->facts().model_name;
    fmt::print("{}\n", write_json(object));
    return 0;
  }
  view.end();
  const bool cut = answer.result.finish == server::ChatFinish::length;
  if (cut) tell_cut(end_note(answer, talk->facts()), answer.result.completion_tokens);
  return 0;
}

}  // namespace

void register_run(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<RunArguments>();
  CLI::App* command = app.add_subcommand("run", "Answer one text and stop");
  command->add_option("-p,--prompt", arguments->prompt, "The text; without it, what is piped in");
  command
      ->add_option("-f,--file", arguments->file,
                   "A file that goes behind the text, - for standard input")
      ->type_name("FILE");
  command->add_flag("--raw", arguments->raw,
                    "Continue the text as it stands, without the chat template");
  add_talk_options(*command, arguments->talk);
  add_plan_options(*command, arguments->plan, false);
  command->callback(
      [arguments, &invocation] { invocation.run = [arguments] { return run_run(*arguments); }; });
}

}  // namespace strata
