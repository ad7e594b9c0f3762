// strata serve: the HTTP server over an engine that is a process of its own.
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
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "base/errno_text.h"
#include "base/log.h"
#include "base/sizes.h"
#include "cli/command.h"
#include "cli/config.h"
#include "cli/data_folder.h"
#include "cli/default_model.h"
#include "cli/engine_options.h"
#include "cli/output_options.h"
#include "cli/version.h"
#include "engine/engine.h"
#include "server/api.h"
#include "server/chats.h"
#include "server/engine_process.h"
#include "server/http.h"
#include "server/openai_responses.h"
#include "server/service.h"
#include "server/web_app.h"

namespace strata {
namespace {

constexpr std::chrono::seconds kStopGrace{5};        // for answers on their way
constexpr std::chrono::milliseconds kCutGrace{500};  // for the last words of those that were cut
constexpr int kInterrupted = 130;                    // exit code of a second signal

// SIGINT and SIGTERM as something to wait for. The first one while serving asks for a graceful
// stop; one while loading, or a second one, ends the process.
class StopSignal {
 public:
  static Status install() {
    if (pipe(pipe_.data()) != 0)
      return fail(ErrorCode::io, "no pipe for signals: {}", errno_text(errno));
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

void print_addresses(const Config& config, std::uint16_t port, const EngineFacts& facts) {
  if (const std::string socket = config.text("socket"); !socket.empty()) {
    fmt::print("{} is ready at {} ({} tokens of context)\n", facts.model_name, socket,
               facts.context);
    fmt::print("  try: curl --unix-socket {} http://localhost/health\n", socket);
    std::fflush(stdout);
    return;
  }
  const std::string host = config.text("host");
  const bool v6 = host.find(':') != std::string::npos;
  const bool tls = !config.text("tls_cert").empty();
  const bool asks = !config.list("api_key").empty();
  const std::string base =
      fmt::format("{}://{}:{}", tls ? "https" : "http", v6 ? "[" + host + "]" : host, port);
  fmt::print("{} is ready at {} ({} tokens of context)\n", facts.model_name, base, facts.context);
  if (!config.flag("no_web_app") && !server::embedded_web_app().empty()) {
    fmt::print("  in a browser: {}/\n", base);
  }
  fmt::print("  clients: base URL {}/v1, {} API key\n", base, asks ? "with an" : "any");
  fmt::print(
      "  try: curl {}/v1/chat/completions -H 'Content-Type: application/json' "
      "-d '{{\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'\n",
      base);
  std::fflush(stdout);
}

Status check_exposure(const Config& config) {
  const std::string host = config.text("host");
  if (!config.text("socket").empty() || server::is_loopback(host)) return {};
  if (config.list("api_key").empty()) {
    return fail(ErrorCode::invalid_argument,
                "--host {} would let other machines use this server without a key; set one with "
                "STRATA_API_KEY or 'api_key' in the configuration, or use 127.0.0.1",
                host);
  }
  return {};
}

server::HttpOptions http_options(const Config& config) {
  server::HttpOptions http;
  http.host = config.text("host");
  http.port = static_cast<std::uint16_t>(config.number("port"));
  http.socket_path = config.text("socket");
  http.tls_certificate = config.text("tls_cert");
  http.tls_key = config.text("tls_key");
  http.threads = std::clamp(std::thread::hardware_concurrency(), 2u, 4u);
  http.limits.body_bytes = static_cast<std::uint64_t>(config.number("body_mib")) << 20;
  http.limits.connections = static_cast<std::size_t>(config.number("connections"));
  http.error_body = server::http_error_body;
  return http;
}

// The file that nobody has named may be unusable (a read-only home, another server that holds it):
// then chats are kept in memory, and the log says so.
Result<std::unique_ptr<server::ChatStore>> open_chats(const Config& config,
                                                      server::ChatLimits limits) {
  const std::string path = config.text("chats_db");
  if (config.at("chats_db").source != kBuiltIn || path.empty())
    return server::ChatStore::open(path, limits);
  const auto open = [&]() -> Result<std::unique_ptr<server::ChatStore>> {
    STRATA_TRY(make_private_file(path));
    return server::ChatStore::open(path, limits);
  };
  auto chats = open();
  if (chats) return chats;
  log_warning("chats are kept in memory until the server stops: {}", chats.error().message);
  return server::ChatStore::open("", limits);
}

Result<server::ApiOptions> api_options(const Config& config) {
  server::ApiOptions options;
  options.version = version_number();
  if (!config.flag("no_web_app")) options.web_app = server::WebApp(server::embedded_web_app());
  options.access.bound_host = config.text("host");
  options.access.keys = config.list("api_key");
  options.access.allowed_hosts = config.list("allowed_hosts");
  options.access.trusted_origins = config.list("trusted_origins");
  options.access.cors_origins = config.list("cors_origins");
  STRATA_ASSIGN(auto store, server::ResponseStore::open(config.text("responses_db")));
  options.responses = std::make_shared<server::Responses>(std::move(store));
  std::unique_ptr<server::ChatStore> chats;
  if (const std::int64_t most = config.number("chats_max"); most > 0) {
    server::ChatLimits limits;
    limits.chats = static_cast<std::uint64_t>(most);
    limits.bytes = static_cast<std::uint64_t>(config.number("chats_mib")) << 20;
    STRATA_ASSIGN(chats, open_chats(config, limits));
  }
  options.chats = std::make_shared<server::Chats>(std::move(chats));
  if (config.flag("telemetry")) {
    options.telemetry.emplace();
    options.telemetry->engine_apart = config.text("engine") != "inside";
  }
  return options;
}

// Exact in evaluations, unless it is what they evaluate.
std::string kv_type(const Config& config) {
  const bool pinned = config.flag("parity") && config.at("kv_type").source == "built-in";
  return pinned ? std::string(to_string(KvType::f32)) : config.text("kv_type");
}

server::ServiceOptions service_options(const Config& config) {
  server::ServiceOptions options;
  options.sampling = config.at("sampling").value.as_object();
  options.sampling_source = config.at("sampling").source;
  if (const std::string effort = config.text("reasoning_effort"); !effort.empty()) {
    options.reasoning_effort = effort;
    options.reasoning_effort_source = config.at("reasoning_effort").source;
  }
  options.thinking.budget = config.number("reasoning_budget_tokens");
  options.thinking.budget_source = config.at("reasoning_budget_tokens").source;
  options.thinking.answer_room = config.flag("answer_room");
  options.thinking.answer_room_source = config.at("answer_room").source;
  options.thinking.wrap_up = config.text("thinking_wrap_up");
  options.thinking.wrap_up_source = config.at("thinking_wrap_up").source;
  options.repeat_stop_tokens = static_cast<std::uint32_t>(config.number("repeat_stop_tokens"));
  options.repeat_stop_tokens_source = config.at("repeat_stop_tokens").source;
  for (const char* key : {"loop_guard", "reasoning_close_retry", "tool_call_recovery"})
    options.fields.push_back({key, config.at(key).value, config.at(key).source});
  options.settings_file = config.text("settings_file");
  options.files = &real_files();
  options.fit_max_tokens = config.flag("fit_max_tokens");
  options.fit_max_tokens_source = config.at("fit_max_tokens").source;
  options.parity = config.flag("parity");
  options.encoder.entries = static_cast<std::size_t>(config.number("encoder_entries"));
  options.encoder.bytes = static_cast<std::size_t>(config.number("encoder_mib")) << 20;
  options.encoder.replies = static_cast<std::size_t>(config.number("encoder_replies"));
  options.encoder_source = config.at("encoder_replies").source;
  options.aliases = config.list("aliases");
  options.slot_save_path = config.text("slot_save_path");
  for (const char* key :
       {"ctx", "threads", "parallel", "weights", "expert_ram", "ngram_table", "ngram_cache",
        "drafts", "draft_source", "draft_vocabulary", "cache_ram", "cache_dir", "cache_disk",
        "engine", "idle_unload_s", "trace", "telemetry", "chats_db"})
    options.engine_settings.push_back({key, config.at(key).value, config.at(key).source});
  const std::string type = kv_type(config);
  const bool pinned = type != config.text("kv_type");
  options.engine_settings.push_back(
      {"kv_type", boost::json::value(type), pinned ? "parity" : config.at("kv_type").source});
  return options;
}

std::vector<std::string> child_arguments(const Config& config, const std::string& model) {
  std::vector<std::string> words = {"engine", "--model", model, "--log-level",
                                    config.text("log_level")};
  for (const auto& [flag, key] :
       {std::pair{"--ctx", "ctx"}, std::pair{"--threads", "threads"},
        std::pair{"--parallel", "parallel"}, std::pair{"--ngram-cache", "ngram_cache"},
        std::pair{"--ngram-depth", "ngram_depth"},
        std::pair{"--ngram-keep-alive", "ngram_keep_alive"}}) {
    words.emplace_back(flag);
    words.push_back(std::to_string(config.number(key)));
  }
  for (const auto& [flag, key] :
       {std::pair{"--weights", "weights"}, std::pair{"--expert-ram", "expert_ram"},
        std::pair{"--expert-profile", "expert_profile"}, std::pair{"--ngram-table", "ngram_table"},
        std::pair{"--drafts", "drafts"}, std::pair{"--draft-source", "draft_source"},
        std::pair{"--draft-vocabulary", "draft_vocabulary"}, std::pair{"--cache-ram", "cache_ram"},
        std::pair{"--cache-dir", "cache_dir"}, std::pair{"--cache-disk", "cache_disk"},
        std::pair{"--trace", "trace"}}) {
    if (config.text(key).empty()) continue;
    words.emplace_back(flag);
    words.push_back(config.text(key));
  }
  words.insert(words.end(), {"--kv-type", kv_type(config)});
  if (!config.flag("expert_look_ahead")) words.emplace_back("--expert-look-ahead=false");
  if (config.flag("mlock")) words.emplace_back("--mlock");
  if (const std::string script = config.text("script"); !script.empty()) {
    words.push_back("--script");
    words.push_back(script);
  }
  return words;
}

// Of an engine with a model. A process checks them again; here they are refused before it starts.
Result<EngineOptions> engine_options(const Config& config, const std::string& model) {
  EngineOptions options;
  options.model_path = model;
  options.context = static_cast<std::uint32_t>(config.number("ctx"));
  options.threads = static_cast<std::uint32_t>(config.number("threads"));
  options.parallel = static_cast<std::uint32_t>(config.number("parallel"));
  STRATA_ASSIGN(options.residence, residence_from(config.text("weights")));
  STRATA_ASSIGN(options.kv_type, kv_type_named(kv_type(config)));
  STRATA_ASSIGN(options.expert_ram, expert_ram_from(config.text("expert_ram")));
  STRATA_TRY(check_choices(options.residence, options.expert_ram));
  options.expert_profile = config.text("expert_profile");
  options.expert_look_ahead = config.flag("expert_look_ahead");
  options.lock_memory = config.flag("mlock");
  STRATA_ASSIGN(options.ngram_table.mode, table_mode_named(config.text("ngram_table")));
  options.ngram_table.cache_bytes = static_cast<std::uint64_t>(config.number("ngram_cache")) << 20;
  options.ngram_table.queue_depth = static_cast<std::uint32_t>(config.number("ngram_depth"));
  options.ngram_table.keep_alive_ms = static_cast<std::uint32_t>(config.number("ngram_keep_alive"));
  STRATA_TRY(set_drafts(options.drafts, config.text("drafts")));
  STRATA_ASSIGN(options.drafts.source, parse_draft_source(config.text("draft_source")));
  options.drafts.vocabulary_path = config.text("draft_vocabulary");
  STRATA_TRY(set_cache_ram(options.cache, config.text("cache_ram")));
  options.cache.folder = config.text("cache_dir");
  STRATA_ASSIGN(options.cache.disk_bytes, parse_size(config.text("cache_disk")));
  options.trace_path = config.text("trace");
  return options;
}

Status check_engine_kind(const Config& config) {
  const std::string kind = config.text("engine");
  if (kind == "inside" || kind == "process") return {};
  return fail(ErrorCode::invalid_argument, "'engine' is '{}'; it must be process or inside", kind);
}

// The engine in this process, or a process for it.
Result<std::unique_ptr<Engine>> open_engine(const Config& config, server::ServiceOptions& options) {
  STRATA_ASSIGN(const std::string model, model_or_default(config.text("model")));
  STRATA_TRY(check_engine_kind(config));
  STRATA_ASSIGN(const EngineOptions inside, engine_options(config, model));
  if (config.text("engine") == "inside") {
    if (!config.text("script").empty()) {
      return fail(ErrorCode::invalid_argument, "a script is played by an engine process only");
    }
    return Engine::open(real_files(), inside);
  }
  server::EngineProcessOptions process;
  process.program = "/proc/self/exe";
  process.arguments = child_arguments(config, model);
  if (!config.text("trace").empty()) process.again = {"--trace-append"};
  process.model_path = model;
  process.silence = std::chrono::seconds(config.number("engine_silence_s"));
  process.auto_load = !config.flag("manual_load");
  process.idle_time = std::chrono::seconds(config.number("idle_unload_s"));
  STRATA_ASSIGN(auto engine, server::EngineProcess::start(real_files(), std::move(process)));
  options.process = engine.get();
  return engine;
}

Result<Config> load_config(const ConfigArguments& arguments) {
  return Config::load(real_files(), arguments.file, arguments.flags,
                      [](const char* name) { return std::getenv(name); });
}

Status serve(const Config& config) {
  STRATA_TRY(set_log_level(config.text("log_level")));
  STRATA_TRY(check_exposure(config));
  // Before loading: a busy port is found at once, and clients hear that the model is loading.
  STRATA_ASSIGN(const auto listener, server::HttpServer::listen(http_options(config)));
  STRATA_ASSIGN(server::ApiOptions options, api_options(config));
  STRATA_TRY(StopSignal::install());
  server::Api api(std::move(options));
  STRATA_TRY(listener->start(
      [&api](server::HttpRequest request, const std::shared_ptr<server::ResponseWriter>& writer) {
        api.handle(std::move(request), writer);
      }));

  // A failure below must not leave handlers with an Api that is gone.
  const auto until_stopped = [&]() -> Status {
    server::ServiceOptions choices = service_options(config);
    STRATA_ASSIGN(const auto engine, open_engine(config, choices));
    STRATA_ASSIGN(std::shared_ptr<server::Service> service,
                  server::Service::create(*engine, std::move(choices)));
    api.set_service(service);
    print_addresses(config, listener->port(), engine->facts());
    StopSignal::wait();
    log_info("stopping; running answers get {} s", kStopGrace.count());
    service->close();
    listener->drain(kStopGrace);
    service->cut();
    listener->stop(kCutGrace);
    api.stop();
    api.set_service(nullptr);
    return {};
  };
  Status status = until_stopped();
  listener->stop(std::chrono::milliseconds(0));
  return status;
}

Result<int> serve_or_plan(const Config& config, const PlanArguments& plan) {
  if (plan.plan) {
    STRATA_ASSIGN(const std::string model, model_or_default(config.text("model")));
    STRATA_ASSIGN(const EngineOptions options, engine_options(config, model));
    return print_plan(options, plan.json);
  }
  STRATA_TRY(serve(config));
  return 0;
}

Result<int> run_serve(const ConfigArguments& arguments, const PlanArguments& plan) {
  const auto config = load_config(arguments);
  if (!config) return usage_error(config.error().message);
  const Result<int> status = serve_or_plan(*config, plan);
  return status ? status : refused(status.error());
}

// What 'serve' would refuse before it starts anything.
Status check_values(const Config& config) {
  STRATA_TRY(set_log_level(config.text("log_level")));
  STRATA_TRY(check_engine_kind(config));
  STRATA_TRY(engine_options(config, ""));
  return {};
}

Result<int> run_config(const ConfigArguments& arguments, bool json) {
  const auto config = load_config(arguments);
  if (!config) return usage_error(config.error().message);
  if (const Status status = check_values(*config); !status)
    return usage_error(status.error().message);
  if (json) {
    fmt::print("{}\n", boost::json::serialize(config->shown()));
  } else {
    fmt::print("{}", config->printed());
  }
  return 0;
}

}  // namespace

void register_serve(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<ConfigArguments>();
  CLI::App* serve =
      app.add_subcommand("serve", "Serve a model over HTTP (OpenAI's and Anthropic's API)");
  auto plan = std::make_shared<PlanArguments>();
  add_config_options(*serve, *arguments);
  add_plan_options(*serve, *plan);
  serve->callback([arguments, plan, &invocation] {
    invocation.run = [arguments, plan] { return run_serve(*arguments, *plan); };
  });
}

void register_config(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<ConfigArguments>();
  CLI::App* config = app.add_subcommand(
      "config", "Print what 'serve' would run with, and where each value comes from");
  auto json = std::make_shared<bool>(false);
  add_config_options(*config, *arguments);
  add_json_option(*config, *json);
  config->callback([arguments, json, &invocation] {
    invocation.run = [arguments, json] { return run_config(*arguments, *json); };
  });
}

}  // namespace strata
