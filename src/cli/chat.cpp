// strata chat: a conversation in the terminal, or with what comes through a pipe, a question a
// line.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include "base/json_number.h"
#include "cli/chat_session.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "terminal/text.h"

namespace strata {
namespace {

constexpr std::size_t kMostLine = 16u << 20;  // bytes of a question

struct ChatArguments {
  TalkArguments talk;
  bool keep_history = true;
};

class Chat {
 public:
  Chat(Talk& talk, const ChatArguments& arguments) : session_(talk) {
    session_.out = terminal::screen_of(STDOUT_FILENO);
    session_.terminal = isatty(STDIN_FILENO) == 1 && session_.out.terminal && !arguments.talk.json;
    session_.json = arguments.talk.json;
    const bool show = session_.out.terminal || arguments.talk.show_thinking;
    session_.view = {.thinking = show ? ShowThinking::show : ShowThinking::hide,
                     .progress = arguments.talk.progress && !arguments.talk.json};
  }

  Status begin(bool keep_history) {
    if (!session_.terminal) return {};
    STRATA_ASSIGN(editor_, terminal::LineEditor::open(session_.out, complete_chat_line));
    session_.editor = editor_.get();
    const std::string path =
        terminal::LineHistory::usual_path([](const char* name) { return std::getenv(name); });
    auto history = terminal::LineHistory::open(keep_history ? path : std::string());
    if (history) {
      session_.history = std::move(*history);
    } else {
      complain(history.error());  // it is no reason not to talk
    }
    for (const std::string& entry : session_.history.entries()) editor_->remember(entry);
    fmt::print("{}. /help lists commands, Ctrl-C stops an answer, Ctrl-D ends.\n",
               terminal::safe_line(session_.talk.facts().model_name));
    return {};
  }

  Result<int> run() {
    std::string text;
    while (!session_.quit && next(text)) {
      if (text.find_first_not_of(" \t\n") == text.npos) continue;
      remember(text);
      const Status status = text.front() == '/' && !text.starts_with("//")
                                ? command(text)
                                : ask(text.starts_with("//") ? text.substr(1) : text);
      if (status) continue;
      // A person tries again; a script must notice.
      if (!session_.terminal) return tl::unexpected(status.error());
      complain(status.error());
    }
    return 0;
  }

 private:
  static void complain(const Error& error) {
    std::fflush(stdout);
    fmt::print(stderr, "strata: {}\n", terminal::safe_line(error.message));
  }

  void remember(const std::string& text) {
    if (editor_ == nullptr) return;
    editor_->remember(text);
    if (auto kept = session_.history.add(text); !kept && !told_history_) {
      complain(kept.error());
      told_history_ = true;
    }
  }

  // The next text; false: there is none.
  bool next(std::string& text) {
    if (editor_ == nullptr) {
      if (!std::getline(std::cin, text) || text.size() > kMostLine) return false;
      if (text.ends_with('\r')) text.pop_back();
      return true;
    }
    text.clear();
    for (bool going_on = false;;) {
      const terminal::Line line =
          editor_->read(going_on ? ". " : "> ", std::exchange(session_.prefill, {}));
      if (line.end == terminal::Line::End::closed) return false;
      if (line.end == terminal::Line::End::interrupted) {
        if (std::exchange(gave_up_, true)) return false;
        fmt::print("Ctrl-C once more ends.\n");
        text.clear();
        going_on = false;
        continue;
      }
      gave_up_ = false;
      text += line.text;
      going_on = text.ends_with('\\') && text.size() < kMostLine;
      if (!going_on) return true;
      text.back() = '\n';
    }
  }

  Status command(const std::string& text) {
    STRATA_TRY(run_chat_command(session_, text));
    if (std::exchange(session_.again, false)) {
      return answer([&](Watcher& watcher) { return session_.talk.ask_again(watcher); });
    }
    const std::string question = std::exchange(session_.question, {});
    return question.empty() ? Status() : ask(question);
  }

  Status ask(const std::string& text) {
    return answer([&](Watcher& watcher) { return session_.talk.ask(text, watcher); });
  }

  template <class Ask>
  Status answer(const Ask& ask) {
    class Silent final : public Watcher {
      void event(const chat::OutputEvent&) override {}
    } silent;
    AnswerView view(session_.out, session_.view);
    auto given = session_.json ? ask(static_cast<Watcher&>(silent)) : ask(view);
    if (!given) {
      if (!session_.json && view.wrote()) view.end();
      return tl::unexpected(given.error());
    }
    count(given->result);
    session_.last_thinking = given->result.message.reasoning_content;
    session_.quit = session_.quit || given->quit;
    gave_up_ = given->result.finish == server::ChatFinish::cancelled;
    if (session_.json) {
      fmt::print("{}\n", write_json(to_json(*given)));
      std::fflush(stdout);
      return {};
    }
    view.end();
    if (session_.out.terminal) {
      report(*given);
    } else if (given->result.finish == server::ChatFinish::length) {
      tell_cut(end_note(*given, session_.talk.facts()), given->result.completion_tokens);
    }
    return {};
  }

  void report(const TalkAnswer& given) const {
    const bool dim = session_.out.colour;
    if (dim) fmt::print("{}", terminal::begin(terminal::kDim));
    const EngineFacts& facts = session_.talk.facts();
    if (const std::string note = end_note(given, facts); !note.empty()) fmt::print("{}\n", note);
    fmt::print("{}{}\n", speed_line(given, facts), dim ? terminal::kPlainAgain : "");
    std::fflush(stdout);
  }

  void count(const server::ChatResult& r) {
    auto& sums = session_.sums;
    ++sums.answers;
    sums.read += r.prompt_tokens - r.cached_tokens;
    sums.known += r.cached_tokens;
    sums.made += r.completion_tokens;
    sums.drafted += r.drafted;
    sums.accepted += r.accepted;
    sums.read_seconds += r.prompt_seconds;
    sums.made_seconds += r.decode_seconds;
  }

  ChatSession session_;
  std::unique_ptr<terminal::LineEditor> editor_;
  bool gave_up_ = false;  // the last line or answer: once more ends
  bool told_history_ = false;
};

Result<int> run_chat(ChatArguments& arguments) {
  arguments.talk.progress = arguments.talk.progress && !arguments.talk.json;
  const EngineOptions& chosen = arguments.talk.engine;
  if (const Status fit = check_choices(chosen.residence, chosen.expert_ram); !fit)
    return usage_error(fit.error().message);
  const auto talk = Talk::open(arguments.talk);
  if (!talk) return refused(talk.error());
  Chat chat(**talk, arguments);
  STRATA_TRY(chat.begin(arguments.keep_history));
  return chat.run();
}

}  // namespace

void register_chat(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<ChatArguments>();
  CLI::App* command = app.add_subcommand("chat", "Talk with a model in the terminal");
  add_talk_options(*command, arguments->talk);
  command->add_flag_callback(
      "--no-history", [arguments] { arguments->keep_history = false; },
      "Do not keep what is typed for later sessions");
  command->callback(
      [arguments, &invocation] { invocation.run = [arguments] { return run_chat(*arguments); }; });
}

}  // namespace strata
