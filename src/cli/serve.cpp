// strata serve: the HTTP server over one engine in the same process.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "base/log.h"
#include "cli/command.h"
#include "cli/default_model.h"
#include "cli/table_options.h"
#include "cli/version.h"
#include "engine/engine.h"
#include "server/api.h"
#include "server/http.h"
#include "server/service.h"

namespace strata {
namespace {

constexpr std::chrono::seconds kStopGrace{5};        // for answers on their way
constexpr std::chrono::milliseconds kCutGrace{500};  // for the last words of those that were cut
constexpr int kInterrupted = 130;                    // exit code of a second signal

struct ServeArguments {
  EngineOptions engine;
  server::ServiceOptions service;
  std::string host = "127.0.0.1";
  std::uint16_t port = 8080;
};

// SIGINT and SIGTERM as something to wait for. The first one while serving asks for a graceful
// stop; one while loading, or a second one, ends the process.
class StopSignal {
 public:
  static Status install() {
    if (pipe(pipe_.data()) != 0) return fail(ErrorCode::io, "no pipe for signals: {}", errno);
    struct sigaction action = {};
    action.sa_handler = &StopSignal::handle;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    return {};
  }
  static void wait() {
    waiting_ = 1;
    pollfd wanted = {pipe_[0], POLLIN, 0};
    while (poll(&wanted, 1, -1) < 0 && errno == EINTR) continue;
  }

 private:
  static void handle(int) {
    if (waiting_ == 0) _exit(kInterrupted);
    waiting_ = 0;
    const char byte = 1;
    [[maybe_unused]] const auto written = write(pipe_[1], &byte, 1);
  }
  static inline std::array<int, 2> pipe_ = {-1, -1};
  static inline volatile sig_atomic_t waiting_ = 0;
};

void print_addresses(const ServeArguments& arguments, std::uint16_t port,
                     const EngineFacts& facts) {
  const bool v6 = arguments.host.find(':') != std::string::npos;
  const std::string base =
      fmt::format("http://{}:{}", v6 ? "[" + arguments.host + "]" : arguments.host, port);
  fmt::print("{} is ready at {} ({} tokens of context)\n", facts.model_name, base, facts.context);
  fmt::print("  clients: base URL {}/v1, any API key\n", base);
  fmt::print(
      "  try: curl {}/v1/chat/completions -H 'Content-Type: application/json' "
      "-d '{{\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'\n",
      base);
  std::fflush(stdout);
}

Result<int> run_serve(ServeArguments& arguments) {
  if (!server::is_loopback(arguments.host)) {
    return fail(ErrorCode::invalid_argument,
                "--host {} would let other machines use this server, and it cannot ask them for a "
                "key yet; use 127.0.0.1",
                arguments.host);
  }
  server::HttpOptions http;
  http.host = arguments.host;
  http.port = arguments.port;
  http.threads = std::clamp(std::thread::hardware_concurrency(), 2u, 4u);
  http.error_body = server::http_error_body;
  // Before loading: a busy port is found at once, and clients hear that the model is loading.
  STRATA_ASSIGN(const auto listener, server::HttpServer::listen(std::move(http)));
  STRATA_ASSIGN(arguments.engine.model_path, model_or_default(arguments.engine.model_path));
  STRATA_TRY(StopSignal::install());
  server::ApiOptions options;
  options.access.bound_host = arguments.host;
  options.version = version_number();
  server::Api api(std::move(options));
  STRATA_TRY(listener->start([&api](const server::HttpRequest& request,
                                    const std::shared_ptr<server::ResponseWriter>& writer) {
    api.handle(request, writer);
  }));

  // A failure below must not leave handlers with an Api that is gone.
  const auto serve = [&]() -> Status {
    STRATA_ASSIGN(const auto engine, Engine::open(real_files(), arguments.engine));
    STRATA_ASSIGN(std::shared_ptr<server::Service> service,
                  server::Service::create(*engine, arguments.service));
    api.set_service(service);
    print_addresses(arguments, listener->port(), engine->facts());
    StopSignal::wait();
    log_info("stopping; running answers get {} s", kStopGrace.count());
    service->close();
    listener->drain(kStopGrace);
    service->cut();
    listener->stop(kCutGrace);
    api.set_service(nullptr);
    return {};
  };
  const Status status = serve();
  listener->stop(std::chrono::milliseconds(0));
  STRATA_TRY(status);
  return 0;
}

}  // namespace

void register_serve(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<ServeArguments>();
  CLI::App* serve = app.add_subcommand("serve", "Serve a model over HTTP (OpenAI's API)");
  add_model_option(*serve, arguments->engine.model_path);
  serve->add_option("--host", arguments->host, "Address to listen on")->capture_default_str();
  serve->add_option("--port", arguments->port, "Port to listen on, 0 for any free one")
      ->capture_default_str();
  serve
      ->add_option("--ctx", arguments->engine.context,
                   "Tokens a conversation may hold, 0 for the model's own")
      ->capture_default_str();
  serve->add_option("--threads", arguments->engine.threads, "0 for one per usable CPU")
      ->capture_default_str();
  serve->add_option("--parallel", arguments->engine.parallel, "Answers made at the same time")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  serve->add_flag("--fit-max-tokens", arguments->service.fit_max_tokens,
                  "Shorten an answer's limit to the room in the context instead of refusing it");
  serve->add_flag("--parity", arguments->service.parity,
                  "Pin every default that changes output, for evaluations");
  add_table_options(*serve, arguments->engine.ngram_table);
  serve->callback(
      [arguments, &invocation] { invocation.run = [arguments] { return run_serve(*arguments); }; });
}

}  // namespace strata
