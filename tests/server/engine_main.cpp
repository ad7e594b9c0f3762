// The engine process of the supervisor's tests: plays a script. As `strata engine --script`,
// without the program around it.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/file.h"
#include "base/log.h"
#include "engine/scripted.h"
#include "server/engine_child.h"

int main(int argc, char** argv) {
  using namespace strata;
  set_log_level(LogLevel::off);
  std::string model, script;
  int socket = -1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--model") model = argv[i + 1];
    if (name == "--script") script = argv[i + 1];
    if (name == "--socket-fd") socket = std::atoi(argv[i + 1]);
  }
  const Status status = server::run_engine_child(socket, [&]() -> Result<std::unique_ptr<Engine>> {
    STRATA_ASSIGN(const std::string text, real_files().read_text(script));
    ScriptedOptions options;
    options.model_path = model;
    return open_scripted_engine(real_files(), options, text);
  });
  return status ? 0 : 1;
}
