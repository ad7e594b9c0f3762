// The commands of `strata chat`: one table, one function each.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/file.h"
#include "base/json_number.h"
#include "base/nearest.h"
#include "cli/chat_session.h"
#include "server/defaults.h"
#include "terminal/text.h"
#include "terminal/typesetter.h"

namespace strata {
namespace {

namespace json = boost::json;
using terminal::safe_line;
using terminal::safe_text;

// Of the program itself: on a terminal dimmed, so that it is not taken for an answer.
void say(const ChatSession& session, std::string_view text) {
  if (!session.out.terminal) {
    fmt::print("{}\n", text);
    return;
  }
  terminal::Typesetter lines(session.out.colour,
                             [] { return terminal::columns_of(STDOUT_FILENO); });
  for (const char32_t c : terminal::from_utf8(text)) {
    if (c == '\n') {
      lines.line_break();
    } else {
      lines.put(c, terminal::kDim);
    }
  }
  fmt::print("{}\n", lines.finish());
}

Status need(const std::string& argument, const char* what) {
  if (!argument.empty()) return {};
  return fail(ErrorCode::invalid_argument, "it needs {}", what);
}

// A path as a person writes it.
std::string path_of(const std::string& argument) {
  const char* home = std::getenv("HOME");
  if (home != nullptr && (argument == "~" || argument.starts_with("~/")))
    return home + argument.substr(1);
  return argument;
}

bool holds(const std::string& text, const std::string& part) {
  const auto same = [](char a, char b) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
    return lower(a) == lower(b);
  };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

Status help(ChatSession& session, const std::string&) {
  std::string text;
  for (const ChatCommand& c : chat_commands()) {
    std::string call = fmt::format("/{} {}", c.name, c.arguments);
    if (!c.other.empty()) call = fmt::format("/{}, /{} {}", c.name, c.other, c.arguments);
    text += fmt::format("{:<26} {}\n", call, c.help);
  }
  text +=
      "A line that ends with \\ goes on in the next one; Alt-Enter breaks it, too. // begins a "
      "text "
      "with a slash.\nCtrl-C stops an answer or clears the line, twice it ends; Ctrl-D ends; "
      "Ctrl-R searches what was typed.";
  say(session, text);
  return {};
}

Status begin_anew(ChatSession& session, const std::string&) {
  session.talk.forget();
  say(session, "a new conversation");
  return {};
}

Status system_prompt(ChatSession& session, const std::string& argument) {
  if (argument.empty()) {
    const std::string now = session.talk.system();
    say(session, now.empty() ? "there is no system prompt" : safe_text(now));
    return {};
  }
  session.talk.set_system(argument == "none" ? "" : argument);
  return {};
}

Status show_settings(const ChatSession& session) {
  std::string text;
  for (const server::Setting& s : session.talk.settings()) {
    const bool here = s.source == "shared settings";
    text += fmt::format("{:<24} {:<20} {}\n", s.name, safe_line(write_json(s.value)),
                        here ? "set here" : s.source);
  }
  text.pop_back();
  say(session, text);
  return {};
}

Status set(ChatSession& session, const std::string& argument) {
  if (argument.empty()) return show_settings(session);
  const std::size_t space = std::min(argument.find(' '), argument.size());
  const std::string name = argument.substr(0, space);
  const std::string text = argument.substr(std::min(space + 1, argument.size()));
  std::vector<std::string_view> names;
  for (const server::Field& field : server::setting_fields()) names.push_back(field.name);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    const auto near = nearest(name, names);
    return fail(
        ErrorCode::invalid_argument, "there is no setting '{}'; {}", safe_line(name),
        near ? fmt::format("did you mean '{}'?", *near) : std::string("/set lists what there is"));
  }
  json::value value;  // null: the model's own
  if (!text.empty()) {
    // What is no JSON is a word.
    value = json::value(text);
    if (parse_json(text, "the value")) {
      STRATA_ASSIGN(value, parse_written_json(text, "the value"));
    }
  }
  return session.talk.set(name, std::move(value));
}

Status effort(ChatSession& session, const std::string& argument) {
  STRATA_TRY(need(argument, "a word: none, low, medium, high, xhigh or max"));
  return session.talk.set("reasoning_effort", json::value(argument));
}

Status thinking(ChatSession& session, const std::string& argument) {
  if (argument == "last") {
    const std::string& last = session.last_thinking;
    say(session, last.empty() ? "the last answer was given without" : safe_text(last));
    return {};
  }
  if (argument == "show") {
    session.view.thinking = ShowThinking::show;
  } else if (argument == "fold") {
    session.view.thinking = ShowThinking::fold;
  } else if (argument == "hide") {
    session.view.thinking = ShowThinking::hide;
  } else {
    return fail(ErrorCode::invalid_argument, "it needs a word: show, fold, hide or last");
  }
  return {};
}

Status markdown(ChatSession& session, const std::string& argument) {
  if (argument != "on" && argument != "off")
    return fail(ErrorCode::invalid_argument, "it needs a word: on or off");
  session.view.markdown = argument == "on";
  return {};
}

Status retry(ChatSession& session, const std::string&) {
  session.again = true;
  return {};
}

Status undo(ChatSession& session, const std::string&) {
  const auto text = session.talk.undo();
  if (!text) return fail(ErrorCode::not_found, "there is no question yet");
  say(session, "taken back: " + terminal::fitting(safe_line(*text), 60));
  return {};
}

Status edit(ChatSession& session, const std::string&) {
  if (session.editor == nullptr)
    return fail(ErrorCode::unsupported, "lines can be edited on a terminal only");
  auto text = session.talk.undo();
  if (!text) return fail(ErrorCode::not_found, "there is no question yet");
  // As it must be typed.
  session.prefill = (text->starts_with('/') ? "/" : "") + *text;
  return {};
}

Status paste(ChatSession& session, const std::string&) {
  if (session.editor == nullptr)
    return fail(ErrorCode::unsupported, "only on a terminal; elsewhere a line is a question");
  say(session, "lines up to one that is only /end are one text; Ctrl-C gives it up");
  std::string text;
  for (;;) {
    const terminal::Line line = session.editor->read("| ");
    if (line.end == terminal::Line::End::interrupted) return {};
    if (line.end == terminal::Line::End::closed || line.text == "/end") break;
    text += (text.empty() ? "" : "\n") + line.text;
  }
  session.question = std::move(text);
  return {};
}

// The file that is written: with a '!' before its name one that is there already, too.
Result<std::string> target_of(std::string argument) {
  const bool replace = argument.starts_with('!');
  if (replace) argument.erase(0, argument.find_first_not_of(" \t", 1));
  STRATA_TRY(need(argument, "the name of a file"));
  std::string path = path_of(argument);
  if (replace || !real_files().exists(path)) return path;
  return fail(ErrorCode::invalid_argument,
              "'{}' is there already; another name, or '! {}' to replace it", path, argument);
}

Status save(ChatSession& session, const std::string& argument) {
  STRATA_ASSIGN(const std::string path, target_of(argument));
  STRATA_TRY(save_chat(session.talk, path));
  say(session, "saved to " + safe_line(path));
  return {};
}

Status load(ChatSession& session, const std::string& argument) {
  STRATA_TRY(need(argument, "the name of a file"));
  STRATA_TRY(load_chat(session.talk, path_of(argument)));
  say(session, fmt::format("{} messages", session.talk.messages().size()));
  return {};
}

Status write_out(ChatSession& session, const std::string& argument) {
  STRATA_ASSIGN(const std::string path, target_of(argument));
  STRATA_TRY(export_chat(session.talk, path));
  say(session, "written to " + safe_line(path));
  return {};
}

Status show_conversation(ChatSession& session, const std::string& argument) {
  std::string text;
  int number = 0;
  for (const chat::Message& m : session.talk.messages()) {
    number += m.role == "user" ? 1 : 0;
    if (!argument.empty() && !holds(m.content, argument)) continue;
    text += fmt::format("{:>3} {:<9}  {}\n", number, safe_line(m.role),
                        terminal::fitting(safe_line(m.content), 200));
  }
  if (!text.empty()) text.pop_back();
  say(session, text.empty() ? "nothing" : text);
  return {};
}

Status search(ChatSession& session, const std::string& argument) {
  STRATA_TRY(need(argument, "a text to look for"));
  constexpr int kMost = 20;
  std::string text;
  int found = 0;
  const auto& entries = session.history.entries();
  for (auto entry = entries.rbegin(); entry != entries.rend() && found < kMost; ++entry) {
    if (!holds(*entry, argument)) continue;
    text += terminal::fitting(safe_line(*entry), 200) + "\n";
    ++found;
  }
  if (!text.empty()) text.pop_back();
  say(session, text.empty() ? "nothing" : text);
  return {};
}

Status stats(ChatSession& session, const std::string&) {
  const auto& sums = session.sums;
  const EngineFacts& facts = session.talk.facts();
  const auto rate = [](std::uint64_t tokens, double seconds) {
    return seconds > 0 ? fmt::format(" at {:.3g}/s", double(tokens) / seconds) : std::string();
  };
  const EngineCounters counters = session.talk.service().engine_counters();
  std::string text = fmt::format(
      "model     {}, {:.1f} M parameters, context {}\nmachine   {} threads, {}\nanswers   {}\nread "
      " "
      "    {} tokens{}, {} more were known\nmade      {} tokens{}\n",
      safe_line(facts.model_name), double(facts.parameters) / 1e6, facts.context, facts.threads,
      safe_line(facts.isa), sums.answers, sums.read, rate(sums.read, sums.read_seconds), sums.known,
      sums.made, rate(sums.made, sums.made_seconds));
  text += fmt::format("drafts    {} of {} right ({})\n", sums.accepted, sums.drafted, facts.drafts);
  text += fmt::format("kept      {:.1f} MB of conversations, at most {:.1f}",
                      double(counters.cache.bytes) / 1e6, double(counters.cache.limit) / 1e6);
  say(session, text);
  return {};
}

Status quit(ChatSession& session, const std::string&) {
  session.quit = true;
  return {};
}

constexpr std::array kCommands = {
    ChatCommand{"help", "", "", "This list", help},
    ChatCommand{"new", "clear", "", "Begin a new conversation", begin_anew},
    ChatCommand{"system", "", "[TEXT]", "Show or set the system prompt; none removes it",
                system_prompt},
    ChatCommand{"effort", "", "LEVEL", "How much it thinks: none, low, medium, high", effort},
    ChatCommand{"set", "", "[NAME [VALUE]]",
                "List the settings, or set one; without a value it is the model's own again", set},
    ChatCommand{"thinking", "", "WORD",
                "show or fold or hide it; last shows that of the last answer", thinking},
    ChatCommand{"markdown", "", "on|off", "Show answers with or without their marks", markdown},
    ChatCommand{"retry", "regenerate", "", "Another answer to the last question", retry},
    ChatCommand{"edit", "", "", "Take the last question back into the line", edit},
    ChatCommand{"undo", "", "", "Take the last question and its answer back", undo},
    ChatCommand{"paste", "", "", "Write a text of many lines", paste},
    ChatCommand{"save", "", "[!] FILE",
                "Write the conversation to a file; with ! over one that is there", save},
    ChatCommand{"load", "", "FILE", "Go on with a conversation that was saved", load},
    ChatCommand{"export", "", "[!] FILE", "The same as Markdown", write_out},
    ChatCommand{"history", "", "[TEXT]", "Show the conversation, or what of it holds a text",
                show_conversation},
    ChatCommand{"search", "", "TEXT", "Find what was typed, in earlier sessions too", search},
    ChatCommand{"stats", "", "", "Model, tokens, speeds", stats},
    ChatCommand{"quit", "exit", "", "End", quit},
};

std::vector<std::string> words_for(std::string_view command) {
  if (command == "effort") return {"none", "low", "medium", "high"};
  if (command == "thinking") return {"show", "fold", "hide", "last"};
  if (command == "markdown") return {"on", "off"};
  std::vector<std::string> names;
  if (command == "set")
    for (const server::Field& field : server::setting_fields()) names.emplace_back(field.name);
  return names;
}

// Files and folders whose path begins so.
terminal::Completions complete_path(std::string_view typed, std::size_t from) {
  terminal::Completions found{.from = from, .texts = {}};
  const std::size_t slash = typed.rfind('/');
  const std::string shown(slash == typed.npos ? "" : typed.substr(0, slash + 1));
  const std::string folder = shown.empty() ? "." : path_of(shown);
  const std::string_view name = typed.substr(shown.size());
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string one = entry->path().filename().string();
    if (!one.starts_with(name) || (name.empty() && one.starts_with('.'))) continue;
    std::error_code unknown;
    const bool is_folder = entry->is_directory(unknown);
    if (is_folder) found.space = false;
    found.texts.push_back(shown + one + (is_folder ? "/" : ""));
    if (found.texts.size() == 1000) break;
  }
  std::sort(found.texts.begin(), found.texts.end());
  return found;
}

}  // namespace

std::span<const ChatCommand> chat_commands() {
  return kCommands;
}

terminal::Completions complete_chat_line(std::string_view line) {
  terminal::Completions found;
  if (!line.starts_with('/')) return found;
  const std::size_t space = line.find(' ');
  if (space == line.npos) {
    for (const ChatCommand& c : kCommands)
      for (const std::string_view name : {c.name, c.other})
        if (!name.empty() && name.starts_with(line.substr(1)))
          found.texts.push_back(fmt::format("/{}", name));
    return found;
  }
  const std::string_view command = line.substr(1, space - 1);
  found.from = space + 1;
  const std::string_view typed = line.substr(found.from);
  if (command == "save" || command == "load" || command == "export") {
    const std::size_t mark = command != "load" && typed.starts_with("! ") ? 2 : 0;
    return complete_path(typed.substr(mark), found.from + mark);
  }
  for (const std::string& word : words_for(command))
    if (word.starts_with(typed)) found.texts.push_back(word);
  return found;
}

Status run_chat_command(ChatSession& session, std::string_view line) {
  line.remove_prefix(1);
  const std::size_t space = std::min(line.find_first_of(" \t\n"), line.size());
  const std::string_view name = line.substr(0, space);
  std::string argument(line.substr(space));
  argument.erase(0, argument.find_first_not_of(" \t\n"));
  argument.erase(argument.find_last_not_of(" \t\n") + 1);
  std::vector<std::string_view> names;
  for (const ChatCommand& c : kCommands) {
    if (c.name == name || (!c.other.empty() && c.other == name)) {
      Status status = c.run(session, argument);
      if (!status) return with_context(std::move(status).error(), fmt::format("/{}", name));
      return status;
    }
    names.push_back(c.name);
    if (!c.other.empty()) names.push_back(c.other);
  }
  const auto near = nearest(name, names);
  return fail(ErrorCode::invalid_argument, "unknown command '/{}'; {}", safe_line(name),
              near ? fmt::format("did you mean '/{}'?", *near)
                   : std::string("/help lists what there is, and // begins a text with a slash"));
}

}  // namespace strata
