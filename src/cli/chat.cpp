// strata chat: a conversation in the terminal.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/talk.h"

namespace strata {
namespace {

constexpr const char* kHelp =
    "/new starts a new conversation, /quit ends (so does Ctrl-D), Ctrl-C ends an answer early\n";

// Shows thinking dimmed (on a terminal) and the answer plain.
class Screen {
 public:
  Screen(bool colour, bool thinking) : colour_(colour), thinking_(thinking) {}

  void show(const chat::OutputEvent& event) {
    using Kind = chat::OutputEvent::Kind;
    switch (event.kind) {
      case Kind::reasoning:
        if (thinking_) print(event.text, true);
        break;
      case Kind::content:
        print(event.text, false);
        break;
      case Kind::tool_call_begin:
        print("\n" + event.name + " ", false);
        break;
      case Kind::tool_arguments:
        print(event.text, false);
        break;
      case Kind::tool_call_end:
        break;
    }
  }
  void end(const server::ChatResult& result) {
    print("", false);
    if (result.finish == server::ChatFinish::length) fmt::print("\n(cut: the room is used up)");
    if (result.finish == server::ChatFinish::cancelled) fmt::print("\n(stopped)");
    const double rate =
        result.decode_seconds > 0 ? result.completion_tokens / result.decode_seconds : 0;
    const std::string drafts =
        result.drafted > 0 ? fmt::format(", {} of {} drafts right", result.accepted, result.drafted)
                           : std::string();
    fmt::print("\n{}[{} tokens read in {:.2f} s, {} made, {:.0f} tokens/s{}]{}\n",
               colour_ ? "\x1b[2m" : "", result.prompt_tokens - result.cached_tokens,
               result.prompt_seconds, result.completion_tokens, rate, drafts,
               colour_ ? "\x1b[0m" : "");
  }

 private:
  void print(const std::string& text, bool dim) {
    if (dim != dim_) {
      if (colour_) fmt::print("{}", dim ? "\x1b[2m" : "\x1b[0m");
      if (!dim) fmt::print("\n\n");
      dim_ = dim;
    }
    fmt::print("{}", text);
    std::fflush(stdout);
  }
  bool colour_, thinking_;
  bool dim_ = false;
};

Result<int> run_chat(TalkArguments& arguments) {
  const bool terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
  STRATA_ASSIGN(const auto talk, Talk::open(arguments));
  if (terminal) fmt::print("{}. {}", talk->facts().model_name, kHelp);
  std::string line;
  while (true) {
    if (terminal) fmt::print("\n> ");
    std::fflush(stdout);
    if (!std::getline(std::cin, line) || line == "/quit") break;
    if (line.empty()) continue;
    if (line == "/new") {
      talk->forget();
    } else if (line[0] == '/') {
      fmt::print("{}", kHelp);
    } else {
      Screen screen(terminal, terminal || arguments.show_thinking);
      const auto result =
          talk->ask(line, [&](const chat::OutputEvent& event) { screen.show(event); });
      if (result) {
        screen.end(*result);
      } else if (terminal) {
        fmt::print("strata: {}\n", result.error().message);
      } else {
        return tl::unexpected(result.error());
      }
    }
  }
  return 0;
}

}  // namespace

void register_chat(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<TalkArguments>();
  CLI::App* command = app.add_subcommand("chat", "Talk with a model in the terminal");
  add_talk_options(*command, *arguments);
  command->callback(
      [arguments, &invocation] { invocation.run = [arguments] { return run_chat(*arguments); }; });
}

}  // namespace strata
