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

// An answer waits until the engine has read some of its prompt.
Load load_of(const std::vector<AnswerRun::Sight>& answers) {
  Load load;
  for (const auto& answer : answers) ++(answer.prompt_read > 0 ? load.running : load.waiting);
  return load;
}

}  // namespace

json::object health_json(const StatusContext& context) {
  const Service& service = *context.service;
  return {{"status", "ok"},
          {"service", "strata"},
          {"model", service.facts().model_name},
          {"max_context", service.facts().context},
          {"images", false},
          {"api_key", context.needs_key},
          {"loaded", true}};
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
      {"status", {{"value", "loaded"}}},
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
  const Sampling& s = service.default_sampling();
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
      {"chat_template", service.template_source()},
      {"chat_template_caps",
       {{"supports_tools", service.template_source().find("tools") != std::string::npos},
        {"supports_thinking",
         service.template_source().find("enable_thinking") != std::string::npos}}},
      {"modalities", {{"vision", false}, {"audio", false}}},
      {"models_autoload", false},
      {"is_sleeping", false},
      {"build_info", context.version}};
}

// The engine's places, those that are taken first.
json::array slots_json(const StatusContext& context) {
  const EngineFacts& facts = context.service->facts();
  json::array slots;
  for (const auto& answer : context.service->answers()) {
    if (answer.prompt_read == 0 || slots.size() == facts.parallel) continue;
    slots.push_back({{"id", slots.size()},
                     {"n_ctx", facts.context},
                     {"is_processing", true},
                     {"id_task", answer.id},
                     {"n_prompt_tokens", answer.prompt_tokens},
                     {"n_prompt_tokens_processed", answer.prompt_read},
                     {"n_decoded", answer.generated}});
  }
  while (slots.size() < facts.parallel) {
    slots.push_back({{"id", slots.size()}, {"n_ctx", facts.context}, {"is_processing", false}});
  }
  return slots;
}

json::object activity_json(const StatusContext& context) {
  const auto answers = context.service->answers();
  const Load load = load_of(answers);
  json::object object = {{"busy", load.running > 0}, {"running", load.running},
                         {"queued", load.waiting},   {"phase", "idle"},
                         {"prompt_tokens", 0},       {"generated", 0}};
  // The oldest answer that runs stands for all.
  for (const auto& answer : answers) {
    if (answer.prompt_read == 0) continue;
    object["phase"] = answer.generated == 0 ? "prompt" : (answer.thinking ? "thinking" : "answer");
    object["prompt_tokens"] = answer.prompt_tokens;
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
  const Load load = load_of(service.answers());
  json::array settings;
  for (const Setting& setting : service.settings()) {
    settings.push_back(
        {{"name", setting.name}, {"value", setting.value}, {"source", setting.source}});
  }
  json::array dialects;
  for (const std::string_view name : kDialects) dialects.push_back(json::value(std::string(name)));
  json::object finished;
  for (std::size_t i = 0; i < kFinishNames.size(); ++i) {
    finished[std::string(kFinishNames[i])] = counters.finished[i];
  }
  json::value process;
  if (service.options().engine_health) {
    const EngineProcess::Health health = service.options().engine_health();
    process = {{"up", health.up},
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
          {"loaded", true},
          {"auto_load", false},
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
            {"drafts", false},
            {"embeddings", false},
            {"slot_save", false}}},
          {"parity", service.options().parity},
          {"defaults", std::move(settings)},
          {"engine",
           {{"process", std::move(process)},
            {"threads", facts.threads},
            {"isa", facts.isa},
            {"layers", facts.layers},
            {"parameters", facts.parameters},
            {"weight_bytes", facts.weight_bytes}}},
          {"prompt_encoder",
           {{"prompts", encoder.prompts},
            {"bytes", encoder.bytes},
            {"encoded_bytes", encoder.encoded_bytes},
            {"tokens", encoder.tokens},
            {"reused_tokens", encoder.reused_tokens},
            {"reply_tokens", encoder.reply_tokens},
            {"entries", encoder.entries},
            {"held_bytes", encoder.held_bytes}}},
          {"activity",
           {{"requests", counters.requests},
            {"in_flight", load.running + load.waiting},
            {"queued", load.waiting},
            {"finished", std::move(finished)},
            {"last_request_at", std::move(last_at)}}},
          {"last_timings", last ? json::value(timings_json(*last)) : json::value(nullptr)}};
}

std::string metrics_text(const StatusContext& context) {
  const ServiceCounters counters = context.service->counters();
  const Load load = load_of(context.service->answers());
  std::string text;
  const auto metric = [&](std::string_view name, std::string_view type, std::string_view help,
                          double value) {
    fmt::format_to(std::back_inserter(text), "# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name,
                   help, type, value);
  };
  const auto rate = [](std::uint64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
  };
  const std::uint64_t read = counters.prompt_tokens - counters.cached_tokens;
  // llama.cpp's names, for dashboards that know them.
  metric("llamacpp:prompt_tokens_total", "counter", "Number of prompt tokens processed.",
         static_cast<double>(read));
  metric("llamacpp:prompt_seconds_total", "counter", "Prompt process time",
         counters.prompt_seconds);
  metric("llamacpp:tokens_predicted_total", "counter", "Number of generation tokens processed.",
         static_cast<double>(counters.completion_tokens));
  metric("llamacpp:tokens_predicted_seconds_total", "counter", "Predict process time",
         counters.decode_seconds);
  metric("llamacpp:prompt_tokens_seconds", "gauge", "Average prompt throughput in tokens/s.",
         rate(read, counters.prompt_seconds));
  metric("llamacpp:predicted_tokens_seconds", "gauge", "Average generation throughput in tokens/s.",
         rate(counters.completion_tokens, counters.decode_seconds));
  metric("llamacpp:requests_processing", "gauge", "Number of requests processing.",
         static_cast<double>(load.running));
  metric("llamacpp:requests_deferred", "gauge", "Number of requests deferred.",
         static_cast<double>(load.waiting));
  metric("strata_requests_total", "counter", "Answers that were accepted.",
         static_cast<double>(counters.requests));
  text +=
      "# HELP strata_finished_total Answers that ended, by reason.\n"
      "# TYPE strata_finished_total counter\n";
  for (std::size_t i = 0; i < kFinishNames.size(); ++i) {
    fmt::format_to(std::back_inserter(text), "strata_finished_total{{reason=\"{}\"}} {}\n",
                   kFinishNames[i], counters.finished[i]);
  }
  metric("strata_cached_tokens_total", "counter", "Prompt tokens that were not read again.",
         static_cast<double>(counters.cached_tokens));
  metric("strata_reasoning_tokens_total", "counter", "Generated tokens inside the thinking.",
         static_cast<double>(counters.reasoning_tokens));
  metric("strata_queue_seconds_total", "counter", "Time that answers waited for the engine.",
         counters.queue_seconds);
  const PromptEncoder::Counters encoder = context.service->encoder_counters();
  metric("strata_prompt_bytes_total", "counter", "Text of prompts.",
         static_cast<double>(encoder.bytes));
  metric("strata_prompt_encoded_bytes_total", "counter",
         "Text of prompts that stood in no earlier one.",
         static_cast<double>(encoder.encoded_bytes));
  metric("strata_prompt_reply_tokens_total", "counter",
         "Tokens of prompts taken as the model wrote them.",
         static_cast<double>(encoder.reply_tokens));
  metric("strata_prompt_held_bytes", "gauge", "Memory of the prompts that are kept.",
         static_cast<double>(encoder.held_bytes));
  metric("strata_context_tokens", "gauge", "Tokens that a request may hold.",
         context.service->facts().context);
  return text;
}

}  // namespace strata::server
