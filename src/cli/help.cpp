// strata help, version, completion and man: what the program says of itself.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/nearest.h"
#include "cli/command.h"
#include "cli/command_tables.h"
#include "cli/output_options.h"
#include "cli/version.h"

namespace strata {
namespace {

struct HelpArguments {
  std::vector<std::string> words;
  std::string shell, folder;
  bool json = false;
};

// The command that the words name.
Result<CLI::App*> find_command(CLI::App& program, const std::vector<std::string>& words) {
  CLI::App* at = &program;
  for (const std::string& word : words) {
    std::vector<std::string> names;
    CLI::App* next = nullptr;
    for (CLI::App* sub : at->get_subcommands(nullptr)) {
      names.push_back(sub->get_name());
      if (sub->get_name() == word) next = sub;
    }
    if (next == nullptr) {
      const std::vector<std::string_view> views(names.begin(), names.end());
      const auto near = nearest(word, views);
      return fail(ErrorCode::invalid_argument, "unknown command '{}'{}", word,
                  near ? fmt::format("; did you mean '{}'?", *near)
                       : std::string("; 'strata help' lists what there is"));
    }
    at = next;
  }
  return at;
}

Result<int> print_help(CLI::App& program, const HelpArguments& arguments) {
  const auto command = find_command(program, arguments.words);
  if (!command) return usage_error(command.error().message);
  // App::help() would speak of the command that was given, which is 'help'.
  std::string name = "strata";
  for (const std::string& word : arguments.words) name += fmt::format(" {}", word);
  fmt::print("{}", program.get_formatter()->make_help(*command, name, CLI::AppFormatMode::Normal));
  return 0;
}

Result<int> print_version(const HelpArguments& arguments) {
  if (arguments.json) {
    fmt::print("{}\n", boost::json::serialize(version_json()));
  } else {
    fmt::print("{}\n", version_text());
  }
  return 0;
}

std::string completion_of(const CommandTable& program, const std::string& shell) {
  if (shell == "bash") return bash_completion(program);
  return shell == "zsh" ? zsh_completion(program) : fish_completion(program);
}

std::string page_of(const CommandTable& command) {
  return command.path.empty() ? program_page(command, version_number(), version_date())
                              : command_page(command, version_number(), version_date());
}

Status write_pages(const CommandTable& program, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return fail(ErrorCode::io, "cannot make the folder '{}': {}", folder, error.message());
  }
  for (const CommandTable* command : all_commands(program)) {
    std::string name = "strata";
    for (const std::string& word : command->path) name += "-" + word;
    const std::string path = (std::filesystem::path(folder) / (name + ".1")).string();
    STRATA_ASSIGN(const auto file, real_files().create(path));
    const std::string page = page_of(*command);
    STRATA_TRY(file->write(std::as_bytes(std::span(page))));
    STRATA_TRY(file->finish());
  }
  return {};
}

Result<int> print_manual(CLI::App& program, const HelpArguments& arguments) {
  const CommandTable table = table_of(program);
  if (!arguments.folder.empty()) {
    STRATA_TRY(write_pages(table, arguments.folder));
    return 0;
  }
  if (const auto known = find_command(program, arguments.words); !known)
    return usage_error(known.error().message);
  for (const CommandTable* command : all_commands(table)) {
    if (command->path == arguments.words) fmt::print("{}", page_of(*command));
  }
  return 0;
}

}  // namespace

void register_help(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<HelpArguments>();
  CLI::App* help = app.add_subcommand("help", "Print the help of a command");
  help->add_option("COMMAND", arguments->words, "The command")->type_name("");
  help->callback([&app, arguments, &invocation] {
    invocation.run = [&app, arguments] { return print_help(app, *arguments); };
  });

  CLI::App* version = app.add_subcommand("version", "Print version, compiler and instruction sets");
  add_json_option(*version, arguments->json);
  version->callback([arguments, &invocation] {
    invocation.run = [arguments] { return print_version(*arguments); };
  });

  CLI::App* completion =
      app.add_subcommand("completion", "Print the script that completes commands in a shell");
  completion->add_option("SHELL", arguments->shell, "Which one")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->callback([&app, arguments, &invocation] {
    invocation.run = [&app, arguments]() -> Result<int> {
      fmt::print("{}", completion_of(table_of(app), arguments->shell));
      return 0;
    };
  });

  CLI::App* manual = app.add_subcommand("man", "Print the manual page of a command");
  manual->add_option("COMMAND", arguments->words, "The command; without one, of the program")
      ->type_name("");
  manual->add_option("--write", arguments->folder, "Write the pages of all commands to this folder")
      ->type_name("DIR");
  manual->callback([&app, arguments, &invocation] {
    invocation.run = [&app, arguments] { return print_manual(app, *arguments); };
  });
}

}  // namespace strata
