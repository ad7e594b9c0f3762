// The command tables as manual pages in the man(7) macros.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "cli/command_tables.h"

namespace strata {
namespace {

// Text of a page: nothing in it is a request or an escape.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\n') {
      out += ' ';
    } else {
      out += c;
    }
  }
  if (!out.empty() && (out.front() == '.' || out.front() == '\'')) out.insert(0, "\\&");
  return out;
}

std::string bold(std::string_view text) {
  return fmt::format("\\fB{}\\fR", plain(text));
}
std::string italic(std::string_view text) {
  return fmt::format("\\fI{}\\fR", plain(text));
}

std::string capitals(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::string sentence(std::string text) {
  if (!text.empty() && text.back() != '.') text += '.';
  return text;
}

std::string head(const std::string& name, const std::string& purpose, const std::string& version,
                 const std::string& date) {
  std::string small = purpose;
  if (!small.empty() && small.back() == '.') small.pop_back();
  return fmt::format(".TH {} 1 \"{}\" \"strata {}\" \"Strata\"\n.SH NAME\n{} \\- {}\n",
                     plain(capitals(name)), date, plain(version), plain(name), plain(small));
}

std::string option(const OptionTable& option) {
  std::string names;
  for (const std::string& name : option.names)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", bold(name));
  std::string value;
  if (!option.value.empty()) {
    value = option.choices.empty() ? italic(option.value)
                                   : fmt::format("{}", fmt::join(option.choices, "|"));
  }
  return fmt::format(".TP\n{}{}{}\n{}\n", names, names.empty() || value.empty() ? "" : " ", value,
                     plain(sentence(option.help)));
}

std::string options(const CommandTable& command) {
  std::string out;
  if (!command.arguments.empty()) {
    out += ".SH ARGUMENTS\n";
    for (const OptionTable& argument : command.arguments) out += option(argument);
  }
  if (!command.options.empty()) {
    out += ".SH OPTIONS\n";
    for (const OptionTable& one : command.options) out += option(one);
  }
  return out;
}

std::string synopsis(const CommandTable& command) {
  std::string line = ".SH SYNOPSIS\n\\fBstrata";
  for (const std::string& word : command.path) line += fmt::format(" {}", plain(word));
  line += "\\fR";
  if (!command.commands.empty()) line += " \\fICOMMAND\\fR";
  if (!command.options.empty()) line += " [\\fIOPTIONS\\fR]";
  for (const OptionTable& argument : command.arguments) {
    const std::string name = italic(argument.value);
    line += argument.required ? fmt::format(" {}", name) : fmt::format(" [{}]", name);
  }
  return line + "\n";
}

std::string page_name(const CommandTable& command) {
  return command.path.empty() ? "strata" : fmt::format("strata-{}", fmt::join(command.path, "-"));
}

std::string list_of_commands(const CommandTable& command) {
  if (command.commands.empty()) return {};
  std::string out = ".SH COMMANDS\n";
  for (const CommandTable* one : all_commands(command)) {
    if (one == &command || !one->commands.empty()) continue;
    out += fmt::format(".TP\n\\fBstrata {}\\fR\n{}\nSee\n.BR {} (1).\n", plain(one->words()),
                       plain(sentence(one->help)), plain(page_name(*one)));
  }
  return out;
}

constexpr const char* kCommonEnd =
    ".SH EXIT STATUS\n"
    "0: it worked; 1: it did not, and one sentence on standard error says why; 2: the command line "
    "is not understood.\n";

}  // namespace

std::string program_page(const CommandTable& program, const std::string& version,
                         const std::string& date) {
  return head("strata", program.help, version, date) + synopsis(program) +
         ".SH DESCRIPTION\n"
         "Runs a large mixture\\-of\\-experts language model of the architecture qwen4exp on this "
         "machine and serves it over HTTP.\n"
         "Where no model is named it is the small one that comes with the program.\n" +
         list_of_commands(program) + options(program) +
         ".SH ENVIRONMENT\n"
         ".TP\n\\fBSTRATA_CONFIG\\fR\nThe configuration file of \\fBstrata serve\\fR; each of its "
         "settings may also stand in a variable of its own, as \\fBSTRATA_PORT\\fR.\n"
         ".TP\n\\fBNO_COLOR\\fR\nIf it is not empty, nothing is coloured.\n"
         ".SH FILES\n"
         ".TP\n\\fI$XDG_STATE_HOME/strata/history\\fR\nWhat was typed into \\fBstrata chat\\fR; "
         "without that variable in \\fI~/.local/state\\fR.\n" +
         kCommonEnd;
}

std::string command_page(const CommandTable& command, const std::string& version,
                         const std::string& date) {
  return head(page_name(command), command.help, version, date) + synopsis(command) +
         ".SH DESCRIPTION\n" + plain(sentence(command.help)) + "\n" + list_of_commands(command) +
         options(command) + kCommonEnd + ".SH SEE ALSO\n.BR strata (1)\n";
}

}  // namespace strata
