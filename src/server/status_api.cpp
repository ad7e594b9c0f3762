#include "server/status_api.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <iterator>

namespace strata::server {

namespace json = boost::json;

namespace {

constexpr std::array<std::string_view, 5> kFinishNames = {"stop", "length", "tool_calls",
                                                          "cancelled", "error"};
constexpr std::array<std::string_view, 4> kDialects = {"openai-chat", "openai-completions",
                                                       "openai-responses", "anthropic-messages"};

struct Load {
  std::uint64_t running = 0, waiting = 0;
};

Load load_of(const std::vector<AnswerRun::Sight>& answers) {
  Load load;
  for (const auto& answer : answers) ++(answer.running ? load.running : load.waiting);
  return load;
}

// The answers that wait, in the engine's order.
json::array queue_json(std::vector<AnswerRun::Sight> answers) {
  std::stable_sort(answers.begin(), answers.end(),
                   [](const auto& a, const auto& b) { return a.ahead < b.ahead; });
  json::array queue;
  for (const auto& answer : answers) {
    if (answer.running) continue;
    queue.push_back(
        {{"id", answer.id}, {"ahead", answer.ahead}, {"prompt_tokens", answer.prompt_tokens}});
  }
  return queue;
}

bool drafts_are_on(const EngineFacts& facts) {
  return !facts.drafts.empty() && facts.drafts != "off";
}

// Guesses at each depth from 1 on, where those before were right, and right ones.
json::array depths_json(const EngineCounters::Drafts& drafts) {
  json::array depths;
  for (std::size_t i = 0; i < kMaxDrafts && drafts.drafted_at[i] > 0; ++i) {
    depths.push_back(
        {{"depth", i + 1}, {"drafted", drafts.drafted_at[i]}, {"accepted", drafts.accepted_at[i]}});
  }
  return depths;
}

json::object cache_json(const EngineCounters::Cache& cache) {
  return {{"tokens", cache.tokens},
          {"disk_tokens", cache.disk_tokens},
          {"bytes", cache.bytes},
          {"limit", cache.limit},
          {"checkpoints", cache.checkpoints},
          {"evicted", cache.evicted},
          {"disk_bytes", cache.disk_bytes},
          {"disk_limit", cache.disk_limit},
          {"disk_checkpoints", cache.disk_checkpoints},
          {"disk_misses", cache.disk_misses}};
}

json::object guards_json(const ServiceCounters& counters) {
  const auto cut = [&](ThinkingCut why) {
    return counters.thinking_cut[static_cast<std::size_t>(why)];
  };
  const auto stopped = [&](StoppedBy why) {
    return counters.stopped_by[static_cast<std::size_t>(why)];
  };
  return {
      {"thinking_cut",
       {{"budget", cut(ThinkingCut::budget)},
        {"loop", cut(ThinkingCut::loop)},
        {"stop", cut(ThinkingCut::stop)}}},
      {"stopped_by", {{"repeat", stopped(StoppedBy::repeat)}, {"loop", stopped(StoppedBy::loop)}}},
      {"ended_inside_thinking", counters.ended_in_thinking}};
}

json::object calls_json(const chat::CallCounts& calls) {
  return {{"parsed", calls.whole},
          {"recovered", calls.recovered},
          {"rescued", calls.rescued},
          {"cut", calls.cut},
          {"text", calls.text},
          {"arguments_typed", calls.typed},
          {"arguments_untyped", calls.untyped}};
}

using State = EngineProcess::State;

// An engine inside the server is always there.
EngineProcess::Health engine_health(const Service& service) {
  const EngineProcess* process = service.options().process;
  return process == nullptr ? EngineProcess::Health{} : process->health();
}

// Why requests are not answered; empty if they are, now or after a wait.
std::string trouble_of(const EngineProcess::Health& health) {
  if (health.state == State::restarting)
    return fmt::format("the engine {}; it is being started again", health.trouble);
  if (!health.trouble.empty()) return fmt::format("the engine {}", health.trouble);
  if (health.state == State::ready || health.auto_load) return {};
  return health.state == State::loading ? "the model is being loaded; try again shortly"
                                        : "the model is unloaded; POST /load loads it";
}

}  // namespace

json::array settings_json(const std::vector<Setting>& settings) {
  json::array array;
  for (const Setting& setting : settings) {
    array.push_back({{"name", setting.name}, {"value", setting.value}, {"source", setting.source}});
  }
  return array;
}

json::object health_json(const StatusContext& context) {
  const Service& service = *context.service;
  const EngineProcess::Health health = engine_health(service);
  json::object object = {{"status", "ok"},
                         {"service", "strata"},
                         {"model", service.facts().model_name},
                         {"max_context", service.facts().context},
                         {"images", false},
                         {"api_key", context.needs_key},
                         {"loaded", health.up()}};
  if (std::string trouble = trouble_of(health); !trouble.empty()) {
    object["status"] =
        health.trouble.empty() ? json::value(std::string(to_string(health.state))) : "error";
    object["reason"] = std::move(trouble);
  }
  return object;
}

json::object model_json(const Service& service, std::string_view name) {
  const EngineFacts& facts = service.facts();
  json::array aliases;
  for (const std::string& alias : service.options().aliases) aliases.push_back(json::value(alias));
  json::object entry = {
      {"id", std::string(name)},
      {"object", "model"},
      {"created", service.started()},
      {"owned_by", "strata"},
      {"status", {{"value", engine_health(service).up() ? "loaded" : "unloaded"}}},
      {"aliases", std::move(aliases)},
      {"meta",
       {{"n_ctx", facts.context},
        {"n_ctx_train", facts.context},
        {"n_vocab", facts.vocabulary},
        {"n_params", facts.parameters},
        {"size", facts.weight_bytes},
        {"architecture", facts.architecture}}},
      {"architecture",
       {{"input_modalities", json::array{"text"}}, {"output_modalities", json::array{"text"}}}}};
  if (name != facts.model_name) entry["alias_of"] = facts.model_name;
  return entry;
}

json::object models_json(const StatusContext& context) {
  const Service& service = *context.service;
  json::array data{model_json(service, service.facts().model_name)};
  for (const std::string& alias : service.options().aliases) {
    data.push_back(model_json(service, alias));
  }
  // The three names at the end are what Anthropic's client reads.
  const json::string first = data.front().at("id").as_string();
  const json::string last = data.back().at("id").as_string();
  return {{"object", "list"},
          {"data", std::move(data)},
          {"has_more", false},
          {"first_id", first},
          {"last_id", last}};
}

json::object props_json(const StatusContext& context) {
  const Service& service = *context.service;
  const EngineFacts& facts = service.facts();
  const Sampling s = service.defaults()->request.sampling;
  const EngineProcess::Health health = engine_health(service);
  json::object params = {{"temperature", s.temperature},
                         {"top_p", s.top_p},
                         {"top_k", s.top_k},
                         {"min_p", s.min_p},
                         {"seed", s.seed == 0 ? json::value(-1) : json::value(s.seed)},
                         {"repeat_penalty", s.repetition_penalty},
                         {"presence_penalty", s.presence_penalty},
                         {"frequency_penalty", s.frequency_penalty},
                         {"repeat_last_n", s.penalty_last_n},
                         {"n_predict", -1}};
  return {
      {"default_generation_settings", {{"n_ctx", facts.context}, {"params", std::move(params)}}},
      {"total_slots", facts.parallel},
      {"model_alias", facts.model_name},
      {"model_path", facts.model_path},
      {"chat_template", std::string(service.template_source())},
      {"chat_template_caps",
       {{"supports_tools", service.template_source().find("tools") != std::string::npos},
        {"supports_thinking",
         service.template_source().find("enable_thinking") != std::string::npos}}},
      {"modalities", {{"vision", false}, {"audio", false}}},
      {"models_autoload", service.options().process != nullptr && health.auto_load},
      {"is_sleeping", health.state == State::unloaded},
      {"build_info", context.version}};
}

// The engine's places; none while the model is unloaded.
json::array slots_json(const StatusContext& context) {
  if (engine_health(*context.service).state == State::unloaded) return {};
  const EngineFacts& facts = context.service->facts();
  std::vector<std::optional<AnswerRun::Sight>> running(facts.parallel);
  for (const auto& answer : context.service->answers()) {
    if (answer.slot && *answer.slot < running.size()) running[*answer.slot] = answer;
  }
  json::array slots;
  for (std::size_t i = 0; i < running.size(); ++i) {
    json::object slot = {
        {"id", i}, {"n_ctx", facts.context}, {"is_processing", running[i].has_value()}};
    if (const auto& answer = running[i]) {
      slot["speculative"] = drafts_are_on(facts);
      slot["id_task"] = answer->id;
      slot["n_prompt_tokens"] = answer->prompt_tokens;
      slot["n_prompt_tokens_processed"] = answer->prompt_read;
      slot["n_prompt_tokens_cache"] = answer->cached;
      slot["n_decoded"] = answer->generated;
    } else {
      slot["n_held_tokens"] = context.service->slots().held_tokens(i);
    }
    slots.push_back(std::move(slot));
  }
  return slots;
}

json::object activity_json(const StatusContext& context) {
  const auto answers = context.service->answers();
  const Load load = load_of(answers);
  json::object object = {{"busy", load.running > 0}, {"running", load.running},
                         {"queued", load.waiting},   {"phase", "idle"},
                         {"prompt_tokens", 0},       {"prompt_read", 0},
                         {"cached_tokens", 0},       {"generated", 0}};
  object["queue"] = queue_json(answers);
  // The oldest answer that runs stands for all.
  for (const auto& answer : answers) {
    if (!answer.running) continue;
    object["phase"] = answer.generated == 0 ? "prompt" : (answer.thinking ? "thinking" : "answer");
    object["prompt_tokens"] = answer.prompt_tokens;
    object["prompt_read"] = answer.prompt_read;
    object["cached_tokens"] = answer.cached;
    object["generated"] = answer.generated;
    break;
  }
  return object;
}

json::object status_json(const StatusContext& context) {
  const Service& service = *context.service;
  const EngineFacts& facts = service.facts();
  const ServiceCounters counters = service.counters();
  const PromptEncoder::Counters encoder = service.encoder_counters();
  const EngineCounters engine = service.engine_counters();
  const auto answers = service.answers();
  const Load load = load_of(answers);
  json::array dialects;
  for (const std::string_view name : kDialects) dialects.push_back(json::value(std::string(name)));
  json::object finished;
  for (std::size_t i = 0; i < kFinishNames.size(); ++i) {
    finished[std::string(kFinishNames[i])] = counters.finished[i];
  }
  const EngineProcess::Health health = engine_health(service);
  json::value process;
  if (service.options().process != nullptr) {
    process = {{"up", health.up()},
               {"state", std::string(to_string(health.state))},
               {"pid", health.pid},
               {"restarts", health.restarts},
               {"last_death",
                health.last_death.empty() ? json::value(nullptr) : json::value(health.last_death)}};
  }
  const auto last = service.last_result();
  const auto now = static_cast<std::int64_t>(std::time(nullptr));
  json::value last_at;
  if (counters.last_request_at != 0) last_at = counters.last_request_at;
  return {{"service", "strata"},
          {"version", context.version},
          {"model", facts.model_name},
          {"loaded", health.up()},
          {"auto_load", service.options().process != nullptr && health.auto_load},
          {"started", service.started()},
          {"uptime_s", now - service.started()},
          {"context", facts.context},
          {"concurrency", {{"serving", facts.parallel}, {"requested", facts.parallel}}},
          {"dialects", std::move(dialects)},
          {"vision", false},
          {"structured_output",
           {{"formats", json::array{"text"}},
            {"method", nullptr},
            {"constrained_decoding", false},
            {"stream_buffered", false}}},
          {"capabilities",
           {{"logprobs", true},
            {"logit_bias", true},
            {"penalties", true},
            {"constraints", true},
            {"drafts", drafts_are_on(facts)},
            {"embeddings", false},
            {"slot_save", !service.options().slot_save_path.empty()}}},
          {"parity", service.options().parity},
          {"defaults", settings_json(service.defaults()->settings)},
          {"engine",
           {{"process", std::move(process)},
            {"threads", facts.threads},
            {"isa", facts.isa},
            {"drafts", facts.drafts},
            {"settings", settings_json(service.options().engine_settings)},
            {"reserved_bytes", engine.reserved_bytes},
            {"grammars",
             {{"compiled", engine.grammars.compiled},
              {"reused", engine.grammars.reused},
              {"refused", engine.grammars.refused},
              {"compile_seconds", 1e-6 * static_cast<double>(engine.grammars.microseconds)}}},
            {"layers", facts.layers},
            {"parameters", facts.parameters},
            {"weight_bytes", facts.weight_bytes}}},
          {"drafts",
           {{"rounds", engine.drafts.rounds},
            {"drafted", engine.drafts.drafted},
            {"accepted", engine.drafts.accepted},
            {"by_depth", depths_json(engine.drafts)}}},
          {"cache", cache_json(engine.cache)},
          {"prompt_encoder",
           {{"prompts", encoder.prompts},
            {"bytes", encoder.bytes},
            {"encoded_bytes", encoder.encoded_bytes},
            {"tokens", encoder.tokens},
            {"reused_tokens", encoder.reused_tokens},
            {"reply_tokens", encoder.reply_tokens},
            {"entries", encoder.entries},
            {"held_bytes", encoder.held_bytes}}},
          {"guards", guards_json(counters)},
          {"tool_calls", calls_json(counters.calls)},
          {"activity",
           {{"requests", counters.requests},
            {"in_flight", load.running + load.waiting},
            {"queued", load.waiting},
            {"queue", queue_json(answers)},
            {"finished", std::move(finished)},
            {"last_request_at", std::move(last_at)}}},
          {"last_timings", last ? json::value(timings_json(*last)) : json::value(nullptr)}};
}

namespace {

// Prometheus' text form: a family is said once, then its samples.
class Metrics {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    fmt::format_to(std::back_inserter(text_), "# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
  }
  template <class Value>
  void sample(Value value) {
    fmt::format_to(std::back_inserter(text_), "{} {}\n", name_, value);
  }
  template <class Label, class Value>
  void sample(std::string_view key, const Label& label, Value value) {
    fmt::format_to(std::back_inserter(text_), "{}{{{}=\"{}\"}} {}\n", name_, key, label, value);
  }
  template <class Value>
  void counter(std::string_view name, std::string_view help, Value value) {
    family(name, "counter", help);
    sample(value);
  }
  template <class Value>
  void gauge(std::string_view name, std::string_view help, Value value) {
    family(name, "gauge", help);
    sample(value);
  }
  std::string text() && { return std::move(text_); }

 private:
  std::string text_;
  std::string name_;
};

// One sample for each table, by its place among the model's.
void add_ngram_tables(Metrics& metrics, const std::vector<TableStats>& tables) {
  if (tables.empty()) return;
  const auto each = [&](std::string_view name, std::string_view type, std::string_view help,
                        auto value) {
    metrics.family(name, type, help);
    for (std::size_t i = 0; i < tables.size(); ++i) metrics.sample("table", i, value(tables[i]));
  };
  using T = TableStats;
  each("strata_ngram_rows_requested_total", "counter", "Rows of the n-gram table that were needed.",
       [](const T& t) { return t.rows.requested; });
  each("strata_ngram_rows_cached_total", "counter", "Of them found in the row cache.",
       [](const T& t) { return t.rows.cache_hits; });
  each("strata_ngram_rows_joined_total", "counter", "Of them already being read.",
       [](const T& t) { return t.rows.joined; });
  each("strata_ngram_rows_foreseen_total", "counter", "Of the two above, because asked for ahead.",
       [](const T& t) { return t.rows.prefetched_used; });
  each("strata_ngram_rows_read_total", "counter", "Of them read when they were needed.",
       [](const T& t) { return t.rows.read; });
  each("strata_ngram_rows_failed_total", "counter", "Of them that could not be read.",
       [](const T& t) { return t.rows.failed; });
  each("strata_ngram_wait_seconds_total", "counter", "Time that windows waited for rows.",
       [](const T& t) { return t.rows.wait_seconds; });
  each("strata_ngram_prefetched_total", "counter", "Rows asked for ahead.",
       [](const T& t) { return t.prefetched; });
  each("strata_ngram_prefetch_dropped_total", "counter", "Of them refused or lost before use.",
       [](const T& t) { return t.prefetch_dropped; });
  each("strata_ngram_reads_total", "counter", "Reads of the disk.",
       [](const T& t) { return t.reads; });
  each("strata_ngram_read_bytes_total", "counter", "Bytes of them.",
       [](const T& t) { return t.read_bytes; });
  each("strata_ngram_cache_rows", "gauge", "Rows that the cache holds at most.",
       [](const T& t) { return t.cache_rows; });
  each("strata_ngram_memory_bytes", "gauge", "Memory of the row cache and its buffers.",
       [](const T& t) { return t.memory_bytes; });
}

// vLLM's names for what it counts too. Its drafts are windows with at least one guess, its
// positions begin at 0.
void add_vllm_names(Metrics& metrics, const ServiceCounters& service, const Load& load,
                    const EngineCounters::Drafts& drafts) {
  metrics.gauge("vllm:num_requests_running", "Requests that are being answered.", load.running);
  metrics.gauge("vllm:num_requests_waiting", "Requests that wait.", load.waiting);
  metrics.counter("vllm:prompt_tokens_total", "Tokens of prompts.", service.prompt_tokens);
  metrics.counter("vllm:generation_tokens_total", "Tokens generated.", service.completion_tokens);
  metrics.counter("vllm:prefix_cache_queries_total", "Tokens of prompts that were looked for.",
                  service.prompt_tokens);
  metrics.counter("vllm:prefix_cache_hits_total", "Of these, not read again.",
                  service.cached_tokens);
  metrics.counter("vllm:spec_decode_num_drafts_total", "Windows with guesses.",
                  drafts.drafted_at[0]);
  metrics.counter("vllm:spec_decode_num_draft_tokens_total", "Tokens guessed.", drafts.drafted);
  metrics.counter("vllm:spec_decode_num_accepted_tokens_total", "Of these, right.",
                  drafts.accepted);
  metrics.family("vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter",
                 "Tokens guessed right, by position.");
  for (std::size_t i = 0; i < kMaxDrafts; ++i) metrics.sample("position", i, drafts.accepted_at[i]);
}

void add_guards_and_calls(Metrics& metrics, const ServiceCounters& counters) {
  metrics.family("strata_thinking_cut_total", "counter",
                 "Answers whose thinking the engine ended, by why.");
  for (const ThinkingCut why : {ThinkingCut::budget, ThinkingCut::loop, ThinkingCut::stop})
    metrics.sample("reason", to_string(why), counters.thinking_cut[static_cast<std::size_t>(why)]);
  metrics.family("strata_stopped_total", "counter", "Answers that a guard ended, by which.");
  for (const StoppedBy why : {StoppedBy::repeat, StoppedBy::loop})
    metrics.sample("guard", to_string(why), counters.stopped_by[static_cast<std::size_t>(why)]);
  metrics.counter("strata_ended_inside_thinking_total", "Answers that were nothing but thinking.",
                  counters.ended_in_thinking);
  const chat::CallCounts& calls = counters.calls;
  metrics.counter("strata_tool_calls_total", "Tool calls that were delivered.", calls.whole);
  metrics.counter("strata_tool_calls_recovered_total", "Of these, in another shape.",
                  calls.recovered);
  metrics.counter("strata_tool_calls_rescued_total", "Of these, out of thinking never closed.",
                  calls.rescued);
  metrics.family("strata_tool_calls_dropped_total", "counter",
                 "What began as a call and was not delivered: cut off, or text after all.");
  metrics.sample("reason", "cut", calls.cut);
  metrics.sample("reason", "text", calls.text);
  metrics.counter("strata_tool_arguments_typed_total", "Arguments that the schema made no string.",
                  calls.typed);
  metrics.counter("strata_tool_arguments_untyped_total",
                  "Arguments not of the schema's type, which stayed text.", calls.untyped);
}

void add_drafts_and_cache(Metrics& metrics, const EngineCounters& engine) {
  metrics.counter("strata_draft_rounds_total", "Windows in which answers were decoded.",
                  engine.drafts.rounds);
  metrics.counter("strata_drafted_tokens_total", "Tokens guessed in them.", engine.drafts.drafted);
  metrics.counter("strata_accepted_tokens_total", "Of these, right.", engine.drafts.accepted);
  const auto by_depth = [&](std::string_view name, std::string_view help, const auto& counts) {
    metrics.family(name, "counter", help);
    for (std::size_t i = 0; i < kMaxDrafts; ++i) metrics.sample("depth", i + 1, counts[i]);
  };
  by_depth("strata_drafted_tokens_by_depth_total",
           "Tokens guessed where those before them were right.", engine.drafts.drafted_at);
  by_depth("strata_accepted_tokens_by_depth_total", "Of these, right.", engine.drafts.accepted_at);
  metrics.counter("strata_cache_disk_tokens_total", "Prompt tokens that came from the disk.",
                  engine.cache.disk_tokens);
  metrics.counter("strata_cache_evicted_total", "Checkpoints that went for others.",
                  engine.cache.evicted);
  metrics.counter("strata_cache_disk_misses_total", "Files of the cache that could not be used.",
                  engine.cache.disk_misses);
  metrics.gauge("strata_cache_bytes", "Memory of conversations to go on from.", engine.cache.bytes);
  metrics.gauge("strata_cache_limit_bytes", "Most of it.", engine.cache.limit);
  metrics.gauge("strata_cache_checkpoints", "Points that stand there.", engine.cache.checkpoints);
  metrics.gauge("strata_cache_disk_bytes", "Disk of them.", engine.cache.disk_bytes);
  metrics.gauge("strata_cache_disk_limit_bytes", "Most of it.", engine.cache.disk_limit);
  metrics.gauge("strata_cache_disk_checkpoints", "Points that stand there.",
                engine.cache.disk_checkpoints);
  metrics.counter("strata_grammars_compiled_total", "Constraints of answers that were compiled.",
                  engine.grammars.compiled);
  metrics.counter("strata_grammars_reused_total", "Requests whose constraint was there already.",
                  engine.grammars.reused);
  metrics.counter("strata_grammars_refused_total", "Constraints that could not be compiled.",
                  engine.grammars.refused);
  metrics.gauge("strata_reserved_bytes", "Memory of running requests.", engine.reserved_bytes);
}

}  // namespace

std::string metrics_text(const StatusContext& context) {
  const Service& service = *context.service;
  const ServiceCounters counters = service.counters();
  const Load load = load_of(service.answers());
  const auto rate = [](std::uint64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
  };
  const std::uint64_t read = counters.prompt_tokens - counters.cached_tokens;
  Metrics metrics;
  // llama.cpp's names, for dashboards that know them.
  metrics.counter("llamacpp:prompt_tokens_total", "Number of prompt tokens processed.", read);
  metrics.counter("llamacpp:prompt_seconds_total", "Prompt process time", counters.prompt_seconds);
  metrics.counter("llamacpp:tokens_predicted_total", "Number of generation tokens processed.",
                  counters.completion_tokens);
  metrics.counter("llamacpp:tokens_predicted_seconds_total", "Predict process time",
                  counters.decode_seconds);
  metrics.gauge("llamacpp:prompt_tokens_seconds", "Average prompt throughput in tokens/s.",
                rate(read, counters.prompt_seconds));
  metrics.gauge("llamacpp:predicted_tokens_seconds", "Average generation throughput in tokens/s.",
                rate(counters.completion_tokens, counters.decode_seconds));
  metrics.gauge("llamacpp:requests_processing", "Number of requests processing.", load.running);
  metrics.gauge("llamacpp:requests_deferred", "Number of requests deferred.", load.waiting);
  metrics.counter("strata_requests_total", "Answers that were accepted.", counters.requests);
  metrics.family("strata_finished_total", "counter", "Answers that ended, by reason.");
  for (std::size_t i = 0; i < kFinishNames.size(); ++i)
    metrics.sample("reason", kFinishNames[i], counters.finished[i]);
  metrics.counter("strata_cached_tokens_total", "Prompt tokens that were not read again.",
                  counters.cached_tokens);
  metrics.counter("strata_reasoning_tokens_total", "Generated tokens inside the thinking.",
                  counters.reasoning_tokens);
  metrics.counter("strata_queue_seconds_total", "Time that answers waited for the engine.",
                  counters.queue_seconds);
  metrics.gauge("strata_context_tokens", "Tokens that a request may hold.",
                service.facts().context);
  if (service.options().process != nullptr) {
    const EngineProcess::Health health = engine_health(service);
    metrics.gauge("strata_engine_up", "Whether the engine's process answers.", health.up() ? 1 : 0);
    metrics.counter("strata_engine_restarts_total", "Engines started after one had died.",
                    health.restarts);
  }
  const PromptEncoder::Counters encoder = service.encoder_counters();
  metrics.counter("strata_prompt_bytes_total", "Text of prompts.", encoder.bytes);
  metrics.counter("strata_prompt_encoded_bytes_total",
                  "Text of prompts that stood in no earlier one.", encoder.encoded_bytes);
  metrics.counter("strata_prompt_reply_tokens_total",
                  "Tokens of prompts taken as the model wrote them.", encoder.reply_tokens);
  metrics.gauge("strata_prompt_held_bytes", "Memory of the prompts that are kept.",
                encoder.held_bytes);
  const EngineCounters engine = service.engine_counters();
  add_vllm_names(metrics, counters, load, engine.drafts);
  add_guards_and_calls(metrics, counters);
  add_drafts_and_cache(metrics, engine);
  add_ngram_tables(metrics, engine.ngram_tables);
  return std::move(metrics).text();
}

}  // namespace strata::server
