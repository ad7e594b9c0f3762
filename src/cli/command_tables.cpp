#include "cli/command_tables.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

namespace strata {
namespace {

// Of "TEXT:{a,b}" the part before the colon, and a, b.
void read_type(const std::string& type, OptionTable& table) {
  const std::size_t brace = type.find('{');
  table.value = type.substr(0, std::min(type.find(':'), type.size()));
  if (brace == std::string::npos) return;
  std::string choice;
  for (const char c : type.substr(brace + 1)) {
    if (c != ',' && c != '}') {
      choice += c;
      continue;
    }
    table.choices.push_back(choice);
    choice.clear();
    if (c == '}') break;
  }
}

OptionTable table_of(const CLI::Option& option) {
  OptionTable table;
  for (const std::string& name : option.get_snames()) table.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) table.names.push_back("--" + name);
  table.help = option.get_description();
  table.required = option.get_required();
  if (option.get_items_expected_max() > 0) read_type(option.get_type_name(), table);
  if (table.names.empty()) table.value = option.get_name(true);
  return table;
}

CommandTable table_below(const CLI::App& app, std::vector<std::string> path) {
  CommandTable table;
  table.name = app.get_name();
  table.path = std::move(path);
  table.help = app.get_description();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    auto& list = option->nonpositional() ? table.options : table.arguments;
    list.push_back(table_of(*option));
  }
  for (const CLI::App* sub : app.get_subcommands(nullptr)) {
    if (sub->get_group().empty()) continue;
    std::vector<std::string> below = table.path;
    below.push_back(sub->get_name());
    table.commands.push_back(table_below(*sub, std::move(below)));
  }
  return table;
}

void collect(const CommandTable& table, std::vector<const CommandTable*>& all) {
  all.push_back(&table);
  for (const CommandTable& command : table.commands) collect(command, all);
}

}  // namespace

std::string CommandTable::words() const {
  return fmt::format("{}", fmt::join(path, " "));
}

CommandTable table_of(const CLI::App& app) {
  return table_below(app, {});
}

std::vector<const CommandTable*> all_commands(const CommandTable& table) {
  std::vector<const CommandTable*> all;
  collect(table, all);
  return all;
}

}  // namespace strata
