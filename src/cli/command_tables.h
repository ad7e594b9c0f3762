// The program's commands and options as tables, read off the parser: what manual pages and shell
// completions are made of, so that they cannot say anything else than the program does.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace strata {

struct OptionTable {
  std::vector<std::string> names;    // "-m", "--model"; empty: an argument
  std::string value;                 // what follows: "FILE", "N"; empty: nothing
  std::vector<std::string> choices;  // all that may follow, if they are few
  std::string help;
  bool required = false;

  bool takes_file() const {
    return value.find("FILE") != std::string::npos || value.find(".gguf") != std::string::npos;
  }
  bool takes_folder() const { return value.find("DIR") != std::string::npos; }
};

struct CommandTable {
  std::string name;               // "bench"
  std::vector<std::string> path;  // {"ple", "bench"}; of the program itself: empty
  std::string help;
  std::vector<OptionTable> options;  // with --help
  std::vector<OptionTable> arguments;
  std::vector<CommandTable> commands;

  std::string words() const;  // "ple bench"
};

// Without what is hidden.
CommandTable table_of(const CLI::App& app);
// The command and all below it, depth first.
std::vector<const CommandTable*> all_commands(const CommandTable& table);

// Scripts that complete its command lines.
std::string bash_completion(const CommandTable& program);
std::string zsh_completion(const CommandTable& program);
std::string fish_completion(const CommandTable& program);

// Manual pages, as man(7): of the program with a list of its commands, and of one command.
// `version` stands in the foot, `date` ("2026-01-31") in the head.
std::string program_page(const CommandTable& program, const std::string& version,
                         const std::string& date);
std::string command_page(const CommandTable& command, const std::string& version,
                         const std::string& date);

}  // namespace strata
