// What `strata chat` is in the middle of, and the commands that a person may give it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cli/answer_view.h"
#include "cli/talk.h"
#include "terminal/line_editor.h"
#include "terminal/line_history.h"

namespace strata {

struct ChatSession {
  explicit ChatSession(Talk& talk_) : talk(talk_) {}

  Talk& talk;
  terminal::Screen out;                    // standard output
  bool terminal = false;                   // a person is there, in and out
  bool json = false;                       // answers as JSON, a line each
  terminal::LineEditor* editor = nullptr;  // of the person
  terminal::LineHistory history;
  ViewOptions view;

  // What a command leaves for the loop.
  bool quit = false;
  std::string prefill;   // stands in the next line already
  bool again = false;    // another answer to the last question
  std::string question;  // to be asked now

  std::string last_thinking;
  struct {
    std::uint64_t answers = 0, read = 0, known = 0, made = 0, drafted = 0, accepted = 0;
    double read_seconds = 0, made_seconds = 0;
  } sums;
};

// A line that begins with a slash. Errors are a person's mistakes: nothing has changed then.
Status run_chat_command(ChatSession& session, std::string_view line);

struct ChatCommand {
  std::string_view name;        // "new"
  std::string_view other = {};  // "clear": the same
  std::string_view arguments;   // "[TEXT]"
  std::string_view help;
  Status (*run)(ChatSession& session, const std::string& argument);
};
std::span<const ChatCommand> chat_commands();

// What may stand at the end of the line.
terminal::Completions complete_chat_line(std::string_view line);

// A conversation in a file: JSON with settings, to go on from, or Markdown, to read.
Status save_chat(const Talk& talk, const std::string& path);
Status load_chat(Talk& talk, const std::string& path);
Status export_chat(const Talk& talk, const std::string& path);

}  // namespace strata
