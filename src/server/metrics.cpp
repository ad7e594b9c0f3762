#include "server/metrics.h"

#include <algorithm>

#include "telemetry/machine.h"

namespace strata::server {

using telemetry::escaped_label;
using telemetry::PrometheusText;

namespace {

// One sample for each table, by its place among the model's.
void add_ngram_tables(PrometheusText& metrics, const std::vector<TableStats>& tables) {
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

void add_vllm_times(PrometheusText& metrics, const AnswerTimes& times, std::string_view model) {
  const auto add = [&](std::string_view name, std::string_view help,
                       const telemetry::Histogram& histogram) {
    metrics.histogram(name, help, histogram, model);
  };
  add("vllm:time_to_first_token_seconds", "From the request to its first token.",
      times.first_token);
  add("vllm:inter_token_latency_seconds", "Between two tokens of an answer.", times.between_tokens);
  add("vllm:time_per_output_token_seconds", "The same under vLLM's older name.",
      times.between_tokens);
  add("vllm:request_time_per_output_token_seconds", "Between the tokens of an answer, its mean.",
      times.per_token);
  add("vllm:e2e_request_latency_seconds", "From the request to its end.", times.whole);
  add("vllm:request_queue_time_seconds", "Waiting for the engine.", times.queue);
  add("vllm:request_prefill_time_seconds", "Reading the prompt.", times.prompt);
  add("vllm:request_decode_time_seconds", "Writing the answer.", times.decode);
  add("vllm:request_inference_time_seconds", "Both of them.", times.running);
  add("vllm:request_prompt_tokens", "Tokens of a prompt.", times.prompt_tokens);
  add("vllm:request_generation_tokens", "Tokens of an answer.", times.written_tokens);
}

// Of the tokens that all slots together could hold, those of answers that run.
double context_in_use(const Service& service) {
  const EngineFacts& facts = service.facts();
  double held = 0;
  for (const auto& answer : service.answers()) {
    if (answer.running) held += static_cast<double>(answer.prompt_read) + answer.generated;
  }
  const double room = static_cast<double>(facts.parallel) * facts.context;
  return room > 0 ? std::min(1.0, held / room) : 0;
}

// vLLM's names for what it counts too, with its label. Its drafts are windows with at least one
// guess, its positions begin at 0.
void add_vllm_names(PrometheusText& metrics, const Service& service, const Load& load,
                    const EngineCounters::Drafts& drafts) {
  const ServiceCounters counters = service.counters();
  const EngineFacts& facts = service.facts();
  const std::string model = fmt::format("model_name=\"{}\"", escaped_label(facts.model_name));
  const auto counter = [&](std::string_view name, std::string_view help, std::uint64_t value) {
    metrics.counter(name, help, value, model);
  };
  metrics.gauge("vllm:num_requests_running", "Requests that are being answered.", load.running,
                model);
  metrics.gauge("vllm:num_requests_waiting", "Requests that wait.", load.waiting, model);
  const double used = context_in_use(service);
  metrics.gauge("vllm:kv_cache_usage_perc",
                "Share of the context of all slots that running answers fill; 1 is all of it.",
                used, model);
  metrics.gauge("vllm:gpu_cache_usage_perc", "The same under vLLM's older name.", used, model);
  counter("vllm:prompt_tokens_total", "Tokens of prompts.", counters.prompt_tokens);
  counter("vllm:generation_tokens_total", "Tokens generated.", counters.completion_tokens);
  counter("vllm:prefix_cache_queries_total", "Tokens of prompts that were looked for.",
          counters.prompt_tokens);
  counter("vllm:prefix_cache_hits_total", "Of these, not read again.", counters.cached_tokens);
  const auto finished = [&](ChatFinish how) {
    return counters.finished[static_cast<std::size_t>(how)];
  };
  metrics.family("vllm:request_success_total", "counter", "Requests that ended, by reason.");
  for (const auto& [reason, count] :
       {std::pair{"stop", finished(ChatFinish::stop) + finished(ChatFinish::tool_calls)},
        std::pair{"length", finished(ChatFinish::length)},
        std::pair{"abort", finished(ChatFinish::cancelled)},
        std::pair{"error", finished(ChatFinish::error)}})
    metrics.sample(fmt::format("{},finished_reason=\"{}\"", model, reason), count);
  counter("vllm:spec_decode_num_drafts_total", "Windows with guesses.", drafts.drafted_at[0]);
  counter("vllm:spec_decode_num_draft_tokens_total", "Tokens guessed.", drafts.drafted);
  counter("vllm:spec_decode_num_accepted_tokens_total", "Of these, right.", drafts.accepted);
  metrics.family("vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter",
                 "Tokens guessed right, by position.");
  for (std::size_t i = 0; i < kMaxDrafts; ++i)
    metrics.sample(fmt::format("{},position=\"{}\"", model, i), drafts.accepted_at[i]);
  add_vllm_times(metrics, service.times(), model);
}

void add_guards_and_calls(PrometheusText& metrics, const ServiceCounters& counters) {
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

void add_drafts_and_cache(PrometheusText& metrics, const EngineCounters& engine) {
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

void add_experts(PrometheusText& metrics, const ExpertCounters& experts) {
  metrics.family("strata_expert_hits_total", "counter",
                 "Experts of layers that were used, by where their weights were.");
  metrics.sample("tier", "pinned", experts.pinned_hits);
  metrics.sample("tier", "mapped", experts.mapped_hits);
  metrics.sample("tier", "core", experts.core_hits);
  metrics.sample("tier", "recent", experts.recent_hits);
  metrics.sample("tier", "ahead", experts.ahead_hits);
  metrics.counter("strata_expert_misses_total", "Experts that were read when they were needed.",
                  experts.misses);
  metrics.counter("strata_expert_failed_total", "Experts that could not be read.", experts.failed);
  metrics.counter("strata_expert_asked_ahead_total", "Experts that were asked for ahead.",
                  experts.asked_ahead);
  metrics.counter("strata_expert_read_bytes_total", "Bytes of experts that were read.",
                  experts.read_bytes);
  metrics.counter("strata_expert_wait_seconds_total", "Time in which nothing but the disk worked.",
                  1e-6 * static_cast<double>(experts.wait_microseconds));
  metrics.gauge("strata_expert_resident_bytes", "Memory of experts.", experts.resident_bytes);
  metrics.gauge("strata_expert_bytes", "Bytes of all experts.", experts.total_bytes);
}

}  // namespace

std::string metrics_text(const StatusContext& context, telemetry::Sampler* sampler) {
  const Service& service = *context.service;
  const ServiceCounters counters = service.counters();
  const Load load = load_of(service.answers());
  const auto rate = [](std::uint64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
  };
  const std::uint64_t read = counters.prompt_tokens - counters.cached_tokens;
  PrometheusText metrics;
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
  metrics.counter("strata_read_tokens_total",
                  "Tokens of prompts that were read, counted as they are.",
                  service.times().tokens_read.load());
  metrics.counter("strata_written_tokens_total", "Tokens generated, counted as they come.",
                  service.times().tokens_written.load());
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
  add_vllm_names(metrics, service, load, engine.drafts);
  add_guards_and_calls(metrics, counters);
  add_drafts_and_cache(metrics, engine);
  add_experts(metrics, engine.experts);
  add_ngram_tables(metrics, engine.ngram_tables);
  if (sampler != nullptr) {
    sampler->look();
    telemetry::write_gauges(metrics, telemetry::machine_families(), sampler->latest());
  }
  return std::move(metrics).text();
}

}  // namespace strata::server
