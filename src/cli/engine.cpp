// strata engine: the engine as a process of its own, for `strata serve`; with --script, an engine
// that plays a script in the model's place.
#include <CLI/CLI.hpp>

#include "base/log.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/default_model.h"
#include "cli/engine_options.h"
#include "engine/engine.h"
#include "engine/scripted.h"
#include "server/engine_child.h"

namespace strata {
namespace {

struct EngineArguments {
  EngineOptions engine;
  std::string script;
  std::string log_level = "info";
  int socket = -1;
  PlanArguments plan;
};

Result<std::unique_ptr<Engine>> open_engine(const EngineArguments& arguments) {
  if (arguments.script.empty()) return Engine::open(real_files(), arguments.engine);
  constexpr std::uint64_t kMostBytes = 16 << 20;
  STRATA_ASSIGN(const std::string script, real_files().read_text(arguments.script, kMostBytes));
  ScriptedOptions options;
  options.model_path = arguments.engine.model_path;
  options.context = arguments.engine.context;
  options.parallel = arguments.engine.parallel;
  return open_scripted_engine(real_files(), options, script);
}

Result<int> run_engine(EngineArguments& arguments) {
  STRATA_TRY(set_log_level(arguments.log_level));
  if (arguments.plan.plan) {
    STRATA_ASSIGN(arguments.engine.model_path, model_or_default(arguments.engine.model_path));
    return print_plan(arguments.engine, arguments.plan.json);
  }
  if (arguments.socket < 0) {
    return fail(ErrorCode::invalid_argument,
                "'strata engine' is started by 'strata serve' and speaks over a socket "
                "(--socket-fd); to play a script, use 'strata serve --script FILE'");
  }
  STRATA_ASSIGN(arguments.engine.model_path, model_or_default(arguments.engine.model_path));
  STRATA_TRY(server::run_engine_child(arguments.socket, [&] { return open_engine(arguments); }));
  return 0;
}

}  // namespace

void register_engine(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<EngineArguments>();
  CLI::App* engine = app.add_subcommand("engine", "The engine of 'serve', in a process of its own");
  add_model_option(*engine, arguments->engine.model_path);
  add_engine_options(*engine, arguments->engine);
  engine->add_option("--parallel", arguments->engine.parallel, "Answers made at the same time")
      ->check(CLI::Validator(whole_number_between(1, 4096), ""));
  engine->add_option("--script", arguments->script, "Play this script instead of a model");
  engine->add_flag("--trace-append", arguments->engine.trace_append,
                   "The trace goes on behind that of an engine before");
  engine->add_option("--log-level", arguments->log_level, "How much goes to standard error");
  add_plan_options(*engine, arguments->plan);
  engine->add_option("--socket-fd", arguments->socket, "Open socket to the server")
      ->check(CLI::Validator(whole_number_between(0, INT32_MAX), ""));
  engine->group("");  // not for people
  engine->callback([arguments, &invocation] {
    invocation.run = [arguments] { return run_engine(*arguments); };
  });
}

}  // namespace strata
