// The frame of the command line: one file and one register function a subcommand. The parser's
// types stay in the .cpp files.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"

namespace CLI {
class App;
}

namespace strata {

// What the chosen subcommand does, set while the command line is parsed and run after it. The
// number is the program's exit code; an error is printed as "strata: sentence" and exits with 1.
struct Invocation {
  std::function<Result<int>()> run;
};

// Exit code of a command line that is not understood.
inline constexpr int kUsageError = 2;
// Says so on standard error; gives that code.
int usage_error(const std::string& sentence);
// What comes of an error: a value that cannot be is that of the command line or the configuration,
// wherever it was found out.
Result<int> refused(const Error& error);

void register_bench(CLI::App& app, Invocation& invocation);
void register_chat(CLI::App& app, Invocation& invocation);
void register_config(CLI::App& app, Invocation& invocation);
void register_convert(CLI::App& app, Invocation& invocation);
void register_drafts(CLI::App& app, Invocation& invocation);
void register_engine(CLI::App& app, Invocation& invocation);
void register_help(CLI::App& app, Invocation& invocation);  // and version, completion, man
void register_inspect(CLI::App& app, Invocation& invocation);
void register_logits(CLI::App& app, Invocation& invocation);
void register_ple(CLI::App& app, Invocation& invocation);
void register_run(CLI::App& app, Invocation& invocation);
void register_serve(CLI::App& app, Invocation& invocation);
void register_synth(CLI::App& app, Invocation& invocation);
void register_tokenize(CLI::App& app, Invocation& invocation);

}  // namespace strata
