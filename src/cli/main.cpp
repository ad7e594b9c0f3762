// The program's entry: parses the command line, runs the chosen subcommand, turns errors into one
// sentence and an exit code (1: it failed, 2: the command line is not understood).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/nearest.h"
#include "cli/command.h"
#include "cli/version.h"
#include "terminal/text.h"

namespace strata {
namespace {

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands(nullptr)) names.push_back(sub->get_name());
  return names;
}

// The sentence for a command that is to be followed by another one, and is not.
std::string command_missing(const CLI::App& app) {
  return fmt::format("'strata {}' needs a command: {}", app.get_name(),
                     fmt::join(command_names(app), " or "));
}

// The sentence for words that no option or subcommand took.
std::string unexpected(const CLI::App& app) {
  const CLI::App* chosen = &app;
  for (const CLI::App* sub : app.get_subcommands()) chosen = sub;
  const std::vector<std::string> rest = app.remaining(true);
  std::string word = rest.empty() ? std::string() : rest.front();
  word = word.substr(0, word.find('='));
  const bool is_option = word.starts_with("-");
  const std::vector<std::string> commands = command_names(*chosen);
  const std::vector<std::string> names = is_option ? option_names(*chosen) : commands;
  const std::string of = chosen == &app ? "" : fmt::format(" of '{}'", chosen->get_name());
  const std::string kind = is_option ? "option" : !commands.empty() ? "command" : "argument";
  std::string text = fmt::format("unknown {} '{}'{}", kind, word, of);
  const std::vector<std::string_view> views(names.begin(), names.end());
  if (const auto near = nearest(word, views))
    return fmt::format("{}; did you mean '{}'?", text, *near);
  return fmt::format("{}; '{} --help' lists what there is", text,
                     chosen == &app ? "strata" : "strata " + chosen->get_name());
}

// Must not throw: it is the last thing said, and standard error may be full as well.
void complain(const std::string& sentence) {
  std::fputs(("strata: " + terminal::safe_line(sentence) + "\n").c_str(), stderr);
}

}  // namespace

int usage_error(const std::string& sentence) {
  complain(sentence);
  return kUsageError;
}

Result<int> refused(const Error& error) {
  if (error.code == ErrorCode::invalid_argument) return usage_error(error.message);
  return tl::unexpected<Error>(error);
}

namespace {

// Whether all that was printed has arrived. A stream remembers that it failed but not why, and may
// have dropped what it held: then one more byte asks for the reason.
bool output_arrived() {
  const bool failed_before = std::ferror(stdout) != 0;
  errno = 0;
  bool fails_now = std::fflush(stdout) != 0;
  if (!failed_before && !fails_now) return true;
  if (!fails_now) fails_now = std::fputc('\n', stdout) == EOF || std::fflush(stdout) != 0;
  const int reason = errno;
  complain(fails_now && reason != 0
               ? "cannot write to standard output: " + std::generic_category().message(reason)
               : std::string("cannot write to standard output"));
  return false;
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("Runs a qwen4exp model on this machine, converts and inspects its files.", "strata");
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", version_text, "Print version, compiler and instruction sets");
  Invocation invocation;
  register_serve(app, invocation);
  register_config(app, invocation);
  register_drafts(app, invocation);
  register_engine(app, invocation);
  register_chat(app, invocation);
  register_run(app, invocation);
  register_bench(app, invocation);
  register_convert(app, invocation);
  register_inspect(app, invocation);
  register_tokenize(app, invocation);
  register_logits(app, invocation);
  register_ple(app, invocation);
  register_synth(app, invocation);
  register_help(app, invocation);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help, --version
    return app.exit(wanted);
  } catch (const CLI::ExtrasError&) {
    return usage_error(unexpected(app));
  } catch (const CLI::RequiredError& error) {
    const auto subs = app.get_subcommands();
    const bool lacks = !subs.empty() && !command_names(*subs.front()).empty() &&
                       subs.front()->get_subcommands().empty();
    if (!lacks) return usage_error(error.what());
    const bool extra = !app.remaining(true).empty();
    return usage_error(extra ? unexpected(app) : command_missing(*subs.front()));
  } catch (const CLI::ParseError& error) {
    return usage_error(error.what());
  }
  if (!invocation.run) {
    fmt::print("{}", app.help());
    return 0;
  }
  const Result<int> result = invocation.run();
  if (result) return *result;
  complain(result.error().message);
  return 1;
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  // A write beyond the limit of a file's size is an error like others.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const int code = strata::parse_and_run(argc, argv);
    return strata::output_arrived() || code != 0 ? code : 1;
  } catch (const std::exception& error) {  // memory, or an output that takes no more
    if (strata::output_arrived()) strata::complain(error.what());
    return 1;
  }
}
