// The command tables as scripts that complete command lines: bash, zsh, fish.
#include <fmt/format.h>

#include <algorithm>

#include "cli/command_tables.h"

namespace strata {
namespace {

// For every shell: 'it'\''s'. fish reads backslashes in it, too.
std::string quoted(std::string_view text, bool backslashes = false) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else if (c == '\\' && backslashes) {
      out += "\\\\";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string words_of(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

std::vector<std::string> names_of(const std::vector<CommandTable>& commands) {
  std::vector<std::string> names;
  for (const CommandTable& command : commands) names.push_back(command.name);
  return names;
}

std::vector<std::string> flags_of(const CommandTable& command) {
  std::vector<std::string> names;
  for (const OptionTable& option : command.options)
    names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

// ---- bash

// What completes a value, as a statement.
std::string bash_value(const OptionTable& option) {
  if (!option.choices.empty()) return fmt::format("words={}", quoted(words_of(option.choices)));
  if (option.takes_folder()) return "kind=-d";
  if (option.takes_file()) return "kind=-f";
  return "kind=none";
}

std::string bash_command(const CommandTable& command) {
  std::string out;
  for (const OptionTable& option : command.options) {
    if (option.value.empty()) continue;
    std::vector<std::string> patterns;
    for (const std::string& name : option.names)
      patterns.push_back(quoted(command.words() + ":" + name));
    out += fmt::format("    {}) {} ;;\n", fmt::join(patterns, " | "), bash_value(option));
  }
  return out;
}

// The first argument's kind serves for all: none of our commands mixes them.
std::string bash_arguments(const CommandTable& command) {
  std::string words = words_of(names_of(command.commands));
  std::string kind;
  for (const OptionTable& argument : command.arguments) {
    if (!argument.choices.empty()) words += fmt::format(" {}", words_of(argument.choices));
    if (argument.takes_folder()) kind = kind.empty() ? "-f" : kind;
    if (argument.takes_file()) kind = "-f";
  }
  if (!words.empty() && words.front() == ' ') words.erase(0, 1);
  return fmt::format("      {}) words={} kind={} flags={} ;;\n", quoted(command.words()),
                     quoted(words), kind.empty() ? "none" : kind,
                     quoted(words_of(flags_of(command))));
}

// All commands, as patterns: 'ple' | 'ple bench' | ...
std::string known_paths(const CommandTable& program, const char* separator) {
  std::vector<std::string> paths;
  for (const CommandTable* command : all_commands(program))
    if (!command->path.empty()) paths.push_back(quoted(command->words()));
  return fmt::format("{}", fmt::join(paths, separator));
}

// ---- zsh

// Of a description in brackets.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const OptionTable& option) {
  if (!option.choices.empty()) return fmt::format("({})", words_of(option.choices));
  if (option.takes_folder() && option.takes_file()) return "_files";
  if (option.takes_folder()) return "_files -/";
  if (option.takes_file()) return "_files";
  return " ";
}

std::string zsh_option(const OptionTable& option, const std::string& name) {
  std::string text = fmt::format("*{}[{}]", name, zsh_text(option.help));
  if (!option.value.empty())
    text += fmt::format(":{}:{}", zsh_text(option.value), zsh_action(option));
  return quoted(text);
}

std::string zsh_function(const CommandTable& command) {
  std::string out = fmt::format(
      "_strata{}() {{\n  _arguments -S",
      command.path.empty() ? "" : "_" + fmt::format("{}", fmt::join(command.path, "_")));
  if (!command.commands.empty()) out += " -C";
  for (const OptionTable& option : command.options)
    for (const std::string& name : option.names)
      out += fmt::format(" \\\n    {}", zsh_option(option, name));
  if (!command.commands.empty()) {
    out += " \\\n    '1:command:->command' '*::argument:->rest'\n  case $state in\n    command)\n";
    out += "      local -a commands=(\n";
    for (const CommandTable& sub : command.commands)
      out += fmt::format("        {}\n", quoted(sub.name + ":" + zsh_text(sub.help)));
    out +=
        "      )\n      _describe command commands\n      ;;\n    rest)\n      case $line[1] in\n";
    for (const CommandTable& sub : command.commands)
      out += fmt::format("        {}) _strata_{} ;;\n", sub.name, fmt::join(sub.path, "_"));
    return out + "      esac\n      ;;\n  esac\n}\n";
  }
  std::size_t place = 0;
  for (const OptionTable& argument : command.arguments)
    out += fmt::format(
        " \\\n    {}",
        quoted(fmt::format("{}:{}:{}", ++place, zsh_text(argument.value), zsh_action(argument))));
  return out + "\n}\n";
}

// ---- fish

// Whether the line is at this command.
std::string fish_at(const CommandTable& command) {
  return quoted(fmt::format("__strata_at {}", quoted(command.words(), true)), true);
}

std::string fish_option(const CommandTable& command, const OptionTable& option) {
  std::string line = fmt::format("complete -c strata -n {}", fish_at(command));
  for (const std::string& name : option.names)
    line += name.starts_with("--") ? fmt::format(" -l {}", name.substr(2))
                                   : fmt::format(" -s {}", name.substr(1));
  if (!option.value.empty()) {
    line += option.takes_file() || option.takes_folder() ? " -rF" : " -x";
    if (!option.choices.empty())
      line += fmt::format(" -a {}", quoted(words_of(option.choices), true));
  }
  return line + fmt::format(" -d {}\n", quoted(option.help, true));
}

std::string fish_command(const CommandTable& command) {
  const std::string at = fish_at(command);
  std::string out;
  for (const CommandTable& sub : command.commands)
    out +=
        fmt::format("complete -c strata -n {} -a {} -d {}\n", at, sub.name, quoted(sub.help, true));
  for (const OptionTable& argument : command.arguments) {
    if (!argument.choices.empty())
      out += fmt::format("complete -c strata -n {} -a {}\n", at,
                         quoted(words_of(argument.choices), true));
    if (argument.takes_file() || argument.takes_folder())
      out += fmt::format("complete -c strata -n {} -F\n", at);
  }
  for (const OptionTable& option : command.options) out += fish_option(command, option);
  return out;
}

}  // namespace

std::string bash_completion(const CommandTable& program) {
  std::string values, arguments;
  for (const CommandTable* command : all_commands(program)) {
    values += bash_command(*command);
    arguments += bash_arguments(*command);
  }
  return fmt::format(
      R"(# Completes strata's command lines in bash. Made by: strata completion bash
_strata() {{
  local path='' word previous='' current="${{COMP_WORDS[COMP_CWORD]}}" index
  local words='' kind='' flags=''
  for ((index = 1; index < COMP_CWORD; ++index)); do
    word="${{path:+$path }}${{COMP_WORDS[index]}}"
    case "$word" in
      {}) path="$word" ;;
    esac
  done
  ((COMP_CWORD > 0)) && previous="${{COMP_WORDS[COMP_CWORD - 1]}}"
  # bash takes --option=value for three words
  if [[ "$current" == '=' ]]; then
    current=''
  elif [[ "$previous" == '=' ]]; then
    previous="${{COMP_WORDS[COMP_CWORD - 2]}}"
  fi
  case "$path:$previous" in
{}  esac
  if [[ -z "$words$kind" ]]; then
    case "$path" in
{}    esac
    if [[ "$current" == -* ]]; then
      words="$flags" kind=none
    fi
  fi
  COMPREPLY=()
  [[ -n "$words" ]] && mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  if [[ "$kind" == -? ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen "$kind" -- "$current")
  fi
}}
complete -F _strata strata
)",
      known_paths(program, " | "), values, arguments);
}

std::string zsh_completion(const CommandTable& program) {
  std::string out =
      "#compdef strata\n# Completes strata's command lines in zsh. Made by: strata completion "
      "zsh\n";
  for (const CommandTable* command : all_commands(program)) {
    std::string function = zsh_function(*command);
    const std::size_t brace = function.find("{\n") + 2;
    function.insert(brace, "  local state line\n  typeset -A opt_args\n");
    out += function;
  }
  return out +
         "if [ \"$funcstack[1]\" = _strata ]; then\n  _strata \"$@\"\nelse\n  compdef _strata "
         "strata\nfi\n";
}

std::string fish_completion(const CommandTable& program) {
  std::string out = fmt::format(
      R"(# Completes strata's command lines in fish. Made by: strata completion fish
function __strata_at
    set -l path ''
    for word in (commandline -opc)[2..-1]
        set -l next (string trim -- "$path $word")
        switch $next
            case {}
                set path $next
        end
    end
    test "$path" = "$argv[1]"
end
complete -c strata -f
)",
      known_paths(program, " "));
  for (const CommandTable* command : all_commands(program)) out += fish_command(*command);
  return out;
}

}  // namespace strata
