#include "server/status_api.h"

#include <algorithm>
#include <array>
#include <ctime>

namespace strata::server {

namespace json = boost::json;

namespace {

constexpr std::array<std::string_view, 4> kDialects = {"openai-chat", "openai-completions",
                                                       "openai-responses", "anthropic-messages"};

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

json::object experts_json(const ExpertCounters& experts) {
  return {{"pinned_hits", experts.pinned_hits},
          {"mapped_hits", experts.mapped_hits},
          {"core_hits", experts.core_hits},
          {"recent_hits", experts.recent_hits},
          {"ahead_hits", experts.ahead_hits},
          {"misses", experts.misses},
          {"failed", experts.failed},
          {"asked_ahead", experts.asked_ahead},
          {"read_bytes", experts.read_bytes},
          {"wait_seconds", 1e-6 * static_cast<double>(experts.wait_microseconds)},
          {"resident_bytes", experts.resident_bytes},
          {"total_bytes", experts.total_bytes}};
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

json::array tables_json(const std::vector<TableStats>& tables) {
  json::array array;
  for (const TableStats& table : tables)
    array.push_back({{"how", table.how}, {"memory_bytes", table.memory_bytes}});
  return array;
}

// Those that ended last, the newest first.
json::array past_json(const std::vector<PastAnswer>& past) {
  json::array array;
  for (const auto& [id, ended_at, result] : past) {
    json::object entry = {{"id", id},
                          {"ended_at", ended_at},
                          {"finish", kFinishNames[static_cast<std::size_t>(result.finish)]},
                          {"queue_ms", 1e3 * result.queue_seconds},
                          {"whole_ms", 1e3 * result.whole_seconds},
                          {"first_token_ms", result.first_token_seconds
                                                 ? json::value(1e3 * *result.first_token_seconds)
                                                 : json::value(nullptr)},
                          {"timings", timings_json(result)}};
    array.push_back(std::move(entry));
  }
  return array;
}

using State = EngineProcess::State;

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

Load load_of(const std::vector<AnswerRun::Sight>& answers) {
  Load load;
  for (const auto& answer : answers) ++(answer.running ? load.running : load.waiting);
  return load;
}

EngineProcess::Health engine_health(const Service& service) {
  const EngineProcess* process = service.options().process;
  return process == nullptr ? EngineProcess::Health{} : process->health();
}

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
  const std::vector<PastAnswer> past = service.past_answers();
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
            {"kv_type", facts.kv_type},
            {"token_bytes", facts.token_bytes},
            {"drafts", facts.drafts},
            {"settings", settings_json(service.options().engine_settings)},
            {"ngram_tables", tables_json(engine.ngram_tables)},
            {"reserved_bytes", engine.reserved_bytes},
            {"grammars",
             {{"compiled", engine.grammars.compiled},
              {"reused", engine.grammars.reused},
              {"refused", engine.grammars.refused},
              {"compile_seconds", 1e-6 * static_cast<double>(engine.grammars.microseconds)}}},
            {"experts", experts_json(engine.experts)},
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
          {"last_timings",
           past.empty() ? json::value(nullptr) : json::value(timings_json(past.front().result))},
          {"last_requests", past_json(past)}};
}

}  // namespace strata::server
