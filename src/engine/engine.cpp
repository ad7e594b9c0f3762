#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/lost_pages.h"
#include "engine/model.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"

namespace strata {
namespace {

constexpr std::uint32_t kMaxChunk = 2048;
constexpr std::uint32_t kMaxParallel = 64;

// The model file's sampling. A value that no request may have is not used, and the log says so.
Sampling default_sampling(const Metadata& m) {
  Sampling sampling;
  const auto take = [&](std::string_view key, auto set) {
    if (!m.contains(key)) return;
    const Result<double> value = m.number(key);
    Sampling with = sampling;
    Status status = value ? set(with, *value) : Status(tl::unexpected(value.error()));
    if (status) status = validate(with);
    if (status)
      sampling = with;
    else
      log_warning("key '{}' of the model is not used: {}", key, status.error().message);
  };
  take("general.sampling.temp", [](Sampling& s, double value) -> Status {
    s.temperature = static_cast<float>(value);
    return {};
  });
  take("general.sampling.top_p", [](Sampling& s, double value) -> Status {
    s.top_p = static_cast<float>(value);
    return {};
  });
  take("general.sampling.top_k", [](Sampling& s, double value) -> Status {
    if (!(value >= 0 && value <= INT32_MAX) || value != std::floor(value))
      return fail(ErrorCode::corrupt, "top_k is {}, allowed is a whole number of 0 (off) or more",
                  value);
    s.top_k = static_cast<std::int32_t>(value);
    return {};
  });
  return sampling;
}

// What the model file says of its defaults.
EngineFacts facts_of(const Network& network, const Tokenizer& tokenizer, const Backend& backend,
                     const EngineOptions& options) {
  const Metadata& m = network.file->metadata;
  EngineFacts facts;
  facts.model_name = network.params.name.empty() ? "model" : network.params.name;
  facts.architecture = m.string("general.architecture").value_or("qwen4exp");
  facts.model_path = options.model_path;
  facts.context = network.params.context;
  if (options.context > 0) facts.context = std::min(facts.context, options.context);
  facts.vocabulary = network.head.rows;
  facts.layers = network.params.layers;
  facts.parameters = network.parameters;
  facts.weight_bytes = network.weight_bytes;
  facts.threads = backend.threads();
  facts.parallel = options.parallel;
  facts.isa = backend.isa();
  facts.has_draft_block = network.draft.has_value();
  facts.default_sampling = default_sampling(m);
  const auto stop = [&](std::int64_t id) {
    if (id < 0 || id >= std::int64_t{facts.vocabulary}) return;
    const auto token = static_cast<TokenId>(id);
    if (std::find(facts.stop_ids.begin(), facts.stop_ids.end(), token) == facts.stop_ids.end())
      facts.stop_ids.push_back(token);
  };
  if (const auto ids = m.integers("strata.stop_token_ids")) {
    for (const std::int64_t id : *ids) stop(id);
  } else {
    stop(m.integer("tokenizer.ggml.eos_token_id").value_or(-1));
    for (const char* literal : {"<|im_end|>", "<|endoftext|>"})
      if (const auto id = tokenizer.special(literal)) stop(*id);
  }
  return facts;
}

// The tokens that the model file names must be in the vocabulary. Where those that end an answer
// are not, no answer would end as the model was taught to; the others are not used.
Status check_tokens(const Network& network, const Tokenizer& tokenizer) {
  const Metadata& m = network.file->metadata;
  const std::uint64_t vocabulary = network.head.rows;
  if (tokenizer.size() > vocabulary) {
    return fail(ErrorCode::corrupt,
                "the tokenizer has {} tokens but the network's vocabulary only {}",
                tokenizer.size(), vocabulary);
  }
  const auto inside = [&](std::int64_t id) {
    return id >= 0 && static_cast<std::uint64_t>(id) < vocabulary;
  };
  for (const auto& [key, value] : m.entries()) {
    if (!key.starts_with("tokenizer.ggml.") || !key.ends_with("_token_id")) continue;
    STRATA_ASSIGN(const std::int64_t id, m.integer(key));
    if (inside(id)) continue;
    if (key == "tokenizer.ggml.eos_token_id") {
      return fail(ErrorCode::corrupt, "key '{}' is {}, outside the vocabulary of {} tokens", key,
                  id, vocabulary);
    }
    log_warning("key '{}' is {}, outside the vocabulary of {} tokens; it is ignored", key, id,
                vocabulary);
  }
  constexpr std::string_view kStops = "strata.stop_token_ids";
  if (!m.contains(kStops)) return {};
  STRATA_ASSIGN(const MetaValue::Integers stops, m.integers(kStops));
  const auto outside = std::find_if_not(stops.begin(), stops.end(), inside);
  if (outside == stops.end()) return {};
  return fail(ErrorCode::corrupt, "key '{}' holds {}, outside the vocabulary of {} tokens", kStops,
              *outside, vocabulary);
}

// What is left to say when the model file is no longer whole.
Status check_file() {
  const auto lost = lost_file();
  if (!lost) return {};
  return fail(ErrorCode::unavailable,
              "'{}' cannot be read any more: it became shorter while it was in use, or its device "
              "failed; restore the file and start the program again",
              *lost);
}

// Biases and what is asked about probabilities.
Status check_scores(const Request& request, const EngineFacts& facts) {
  if (request.logprobs.value_or(0) > kMaxTopLogprobs) {
    return fail(ErrorCode::invalid_argument, "{} alternatives for each token; at most {} are given",
                *request.logprobs, kMaxTopLogprobs);
  }
  std::vector<bool> seen(request.logit_bias.empty() ? 0 : facts.vocabulary);
  std::size_t banned = 0;
  for (const LogitBias& bias : request.logit_bias) {
    if (bias.id < 0 || static_cast<std::uint32_t>(bias.id) >= facts.vocabulary) {
      return fail(ErrorCode::invalid_argument,
                  "logit_bias names the token id {}, outside the vocabulary of {}", bias.id,
                  facts.vocabulary);
    }
    if (!std::isfinite(bias.bias))
      return fail(ErrorCode::invalid_argument, "logit_bias of token {} is no number", bias.id);
    if (seen[static_cast<std::size_t>(bias.id)])
      return fail(ErrorCode::invalid_argument, "logit_bias names token {} twice", bias.id);
    seen[static_cast<std::size_t>(bias.id)] = true;
    if (bias.bias <= kBan) ++banned;
  }
  if (banned > 0 && banned == facts.vocabulary)
    return fail(ErrorCode::invalid_argument, "logit_bias bans every token of the vocabulary");
  return {};
}

class LocalEngine final : public Engine {
 public:
  LocalEngine(Network network, Tokenizer tokenizer, std::unique_ptr<Backend> backend,
              const EngineOptions& options)
      : network_(std::move(network)),
        tokenizer_(std::move(tokenizer)),
        backend_(std::move(backend)),
        forward_(network_, *backend_),
        options_(options),
        facts_(facts_of(network_, tokenizer_, *backend_, options)),
        scheduler_(options.parallel, options.prompt_chunk),
        worker_([this] { work(); }) {}

  ~LocalEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    worker_.join();
  }

  Result<RequestId> submit(Request request, std::shared_ptr<Listener> listener) override;
  void cancel(RequestId id) override {
    {
      const std::lock_guard lock(mutex_);
      if (Job* job = scheduler_.find(id)) job->cancelled = true;
    }
    wake_.notify_all();
  }
  const EngineFacts& facts() const override { return facts_; }
  EngineCounters counters() const override {
    const std::lock_guard lock(mutex_);
    EngineCounters counters = counters_;
    counters.running = static_cast<std::uint32_t>(scheduler_.running());
    counters.waiting = static_cast<std::uint32_t>(scheduler_.waiting());
    for (const Block& block : network_.blocks)
      if (block.ngram) counters.ngram_tables.push_back(block.ngram_table->stats());
    return counters;
  }
  const Metadata& metadata() const override { return network_.file->metadata; }
  const Tokenizer& tokenizer() const override { return tokenizer_; }

 private:
  void work();
  void start_waiting(std::unique_lock<std::mutex>& lock);
  void drop_cancelled(std::unique_lock<std::mutex>& lock);
  void run_window(std::unique_lock<std::mutex>& lock);
  Status read_window(const std::vector<Scheduler::Slice>& window);
  void prefetch_chunk(const Job& job, std::uint32_t tokens);
  void report_prompt(const Scheduler::Slice& slice, std::span<const float> logits);
  TokenId pick(Job& job, std::span<const float> logits);
  bool advance(const Scheduler::Slice& slice, std::span<const float> logits);
  void finish(std::unique_lock<std::mutex>& lock, RequestId id, FinishReason reason,
              Error error = {});

  LostPagesWatch watch_;  // check_file follows every window
  Network network_;
  Tokenizer tokenizer_;
  std::unique_ptr<Backend> backend_;
  Forward forward_;
  EngineOptions options_;
  EngineFacts facts_;

  mutable std::mutex mutex_;  // guards what follows; a running job's fields are the worker's
  std::condition_variable wake_;
  Scheduler scheduler_;
  EngineCounters counters_;
  RequestId last_id_ = 0;
  bool stopping_ = false;

  std::vector<std::uint32_t> logit_rows_;
  std::vector<float> logits_;
  std::vector<float> adjusted_;  // one row
  std::thread worker_;           // last: starts when everything stands
};

Result<RequestId> LocalEngine::submit(Request request, std::shared_ptr<Listener> listener) {
  if (!listener) return fail(ErrorCode::invalid_argument, "a request needs a listener");
  STRATA_TRY(check_file());
  STRATA_TRY(check_request(request, facts_));
  const std::size_t prompt = request.prompt.size();
  const std::size_t room = facts_.context - prompt;
  auto job = std::make_unique<Job>();
  job->limit = request.max_tokens > 0 ? request.max_tokens : static_cast<std::uint32_t>(room);
  job->completion.prompt_tokens = static_cast<std::uint32_t>(prompt);
  job->request = std::move(request);
  job->listener = std::move(listener);
  job->submitted = monotonic_seconds();
  RequestId id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return fail(ErrorCode::unavailable, "the engine is stopping");
    if (scheduler_.waiting() >= options_.queue_limit) {
      return fail(ErrorCode::exhausted, "{} requests wait already (queue limit); try again later",
                  scheduler_.waiting());
    }
    id = job->id = ++last_id_;
    scheduler_.add(std::move(job));
  }
  wake_.notify_all();
  return id;
}

void LocalEngine::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock,
               [&] { return stopping_ || scheduler_.running() > 0 || scheduler_.waiting() > 0; });
    if (stopping_) break;
    drop_cancelled(lock);
    start_waiting(lock);
    if (scheduler_.running() > 0) run_window(lock);
  }
  for (auto& job : scheduler_.remove_all()) {
    job->completion.reason = FinishReason::cancelled;
    lock.unlock();
    job->listener->finished(job->completion);
    lock.lock();
  }
}

void LocalEngine::drop_cancelled(std::unique_lock<std::mutex>& lock) {
  for (const RequestId id : scheduler_.cancelled()) finish(lock, id, FinishReason::cancelled);
}

void LocalEngine::start_waiting(std::unique_lock<std::mutex>& lock) {
  while (Job* job = scheduler_.admit()) {
    job->admitted = monotonic_seconds();
    job->completion.queue_seconds = job->admitted - job->submitted;
    auto sequence = forward_.new_sequence();
    if (!sequence) {
      finish(lock, job->id, FinishReason::error, std::move(sequence).error());
      continue;
    }
    job->sequence = std::move(*sequence);
  }
}

// One window: compute with the mutex open, then hand out what it gave.
void LocalEngine::run_window(std::unique_lock<std::mutex>& lock) {
  const std::vector<Scheduler::Slice> window = scheduler_.next_window();
  lock.unlock();
  const Status status = read_window(window);
  lock.lock();
  if (!status) {
    for (const Scheduler::Slice& slice : window) {
      const Status& own = slice.job->sequence->status();
      finish(lock, slice.job->id, FinishReason::error, own ? status.error() : own.error());
    }
    return;
  }
  std::size_t row = 0;
  for (const Scheduler::Slice& slice : window) {
    const std::size_t rows = Scheduler::logit_rows(slice);
    const auto logits =
        std::span<const float>(logits_).subspan(row * facts_.vocabulary, rows * facts_.vocabulary);
    row += rows;
    if (slice.job->cancelled) continue;  // dropped before the next window
    if (const Status& own = slice.job->sequence->status(); !own) {
      finish(lock, slice.job->id, FinishReason::error, own.error());
      continue;
    }
    lock.unlock();
    const bool more = advance(slice, logits);
    lock.lock();
    if (!more)
      finish(lock, slice.job->id, slice.job->completion.reason, slice.job->completion.error);
  }
}

Status LocalEngine::read_window(const std::vector<Scheduler::Slice>& window) {
  std::vector<Forward::Rows> rows;
  logit_rows_.clear();
  std::uint32_t total = 0;
  for (const Scheduler::Slice& slice : window) {
    Job& job = *slice.job;
    const bool decoding = job.decoding();
    const std::span<const TokenId> tokens =
        decoding ? std::span<const TokenId>(&job.next, 1)
                 : std::span<const TokenId>(job.request.prompt).subspan(job.read, slice.tokens);
    rows.push_back({&*job.sequence, tokens});
    if (!decoding) prefetch_chunk(job, slice.tokens);
    total += slice.tokens;
    for (std::uint32_t left = Scheduler::logit_rows(slice); left > 0; --left)
      logit_rows_.push_back(total - left);
  }
  logits_.resize(logit_rows_.size() * facts_.vocabulary);
  STRATA_TRY(forward_.read(rows, logit_rows_, logits_));
  return check_file();
}

// The disk reads for the chunk of a prompt that follows the one now computed.
void LocalEngine::prefetch_chunk(const Job& job, std::uint32_t tokens) {
  const auto rest = std::span<const TokenId>(job.request.prompt).subspan(job.read);
  const std::size_t both = std::min(rest.size(), std::size_t{tokens} + options_.prompt_chunk);
  forward_.prefetch(*job.sequence, rest.first(both), tokens);
}

// Row r of a prompt window says what may follow the prompt's token read + r.
void LocalEngine::report_prompt(const Scheduler::Slice& slice, std::span<const float> logits) {
  const Job& job = *slice.job;
  const std::vector<TokenId>& prompt = job.request.prompt;
  for (std::size_t row = 0; row < slice.tokens && job.read + row + 1 < prompt.size(); ++row) {
    job.listener->prompt_chances(
        chances_of(logits.subspan(row * facts_.vocabulary, facts_.vocabulary),
                   prompt[job.read + row + 1], job.request.logprobs.value_or(0)));
  }
}

TokenId LocalEngine::pick(Job& job, std::span<const float> logits) {
  const Request& request = job.request;
  if (adjusts(request.sampling, request.logit_bias)) {
    adjusted_.assign(logits.begin(), logits.end());
    adjust(adjusted_, request.sampling, request.logit_bias, request.prompt, job.generated);
    logits = adjusted_;
  }
  const TokenId id = sample(logits, request.sampling, job.sequence->tokens());
  job.generated.push_back(id);
  return id;
}

// Takes a job on by one window; false when it is done (completion.reason says how).
bool LocalEngine::advance(const Scheduler::Slice& slice, std::span<const float> logits) {
  Job& job = *slice.job;
  Completion& done = job.completion;
  const double now = monotonic_seconds();
  for (const float logit : logits) {
    if (!std::isfinite(logit)) {
      done.reason = FinishReason::error;
      done.error = {ErrorCode::internal,
                    fmt::format("the model gave a logit that is no number after {} tokens; its "
                                "file may be damaged",
                                job.sequence->tokens())};
      return false;
    }
  }
  if (!job.decoding()) {
    if (job.request.prompt_logprobs) report_prompt(slice, logits);
    job.read += slice.tokens;
    job.listener->progress(job.read, done.prompt_tokens);
    if (!job.decoding()) return true;
    done.prompt_seconds = now - job.admitted;
    job.decoding_since = now;
  }
  const std::span<const float> last = logits.last(facts_.vocabulary);
  job.next = pick(job, last);
  done.decode_seconds = now - job.decoding_since;
  const auto& stops = job.request.stop_ids;
  if (std::find(stops.begin(), stops.end(), job.next) != stops.end()) {
    done.reason = FinishReason::stop;
    return false;
  }
  ++done.generated_tokens;
  if (done.generated_tokens < job.limit) forward_.prefetch(*job.sequence, {&job.next, 1});
  if (const auto top = job.request.logprobs)
    job.listener->chances(chances_of(last, job.next, *top));
  job.listener->token(job.next);
  if (done.generated_tokens < job.limit) return true;
  done.reason = FinishReason::length;
  return false;
}

void LocalEngine::finish(std::unique_lock<std::mutex>& lock, RequestId id, FinishReason reason,
                         Error error) {
  const std::unique_ptr<Job> job = scheduler_.remove(id);
  if (!job) return;
  job->completion.reason = reason;
  job->completion.error = std::move(error);
  if (job->sequence) {
    const RowCounts& rows = job->completion.ngram_rows = job->sequence->row_counts();
    log_debug(
        "request {}: {} n-gram rows, {} cached, {} joined, {} read, {} thanks to prefetching, {} "
        "failed; {:.1f} ms waited for",
        id, rows.requested, rows.cache_hits, rows.joined, rows.read, rows.prefetched_used,
        rows.failed, 1e3 * rows.wait_seconds);
  }
  ++counters_.requests;
  counters_.prompt_tokens += job->read;
  counters_.generated_tokens += job->completion.generated_tokens;
  lock.unlock();
  job->listener->finished(job->completion);
  lock.lock();
}

}  // namespace

Status check_request(const Request& request, const EngineFacts& facts) {
  STRATA_TRY(validate(request.sampling));
  STRATA_TRY(check_scores(request, facts));
  if (request.prompt.empty())
    return fail(ErrorCode::invalid_argument, "the prompt is empty; at least one token is needed");
  for (const std::vector<TokenId>* ids : {&request.prompt, &request.stop_ids}) {
    for (const TokenId id : *ids) {
      if (id < 0 || static_cast<std::uint32_t>(id) >= facts.vocabulary) {
        return fail(ErrorCode::invalid_argument, "token id {} is outside the vocabulary of {}", id,
                    facts.vocabulary);
      }
    }
  }
  const std::size_t prompt = request.prompt.size();
  if (prompt >= facts.context) {
    return fail(ErrorCode::exhausted,
                "the prompt has {} tokens but the context holds {}, and an answer needs at least "
                "one of them; shorten the prompt or start with a larger --ctx",
                prompt, facts.context);
  }
  const std::size_t room = facts.context - prompt;
  if (request.max_tokens > room) {
    return fail(ErrorCode::exhausted,
                "the prompt's {} tokens and max_tokens {} exceed the context of {}; ask for at "
                "most {}",
                prompt, request.max_tokens, facts.context, room);
  }
  return {};
}

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::error:
      return "error";
  }
  return "error";
}

Result<std::unique_ptr<Engine>> Engine::open(FileSystem& files, const EngineOptions& options) {
  if (options.prompt_chunk == 0 || options.prompt_chunk > kMaxChunk) {
    return fail(ErrorCode::invalid_argument, "a prompt chunk of {} tokens; allowed is 1 to {}",
                options.prompt_chunk, kMaxChunk);
  }
  if (options.parallel == 0 || options.parallel > kMaxParallel) {
    return fail(ErrorCode::invalid_argument, "{} parallel requests; allowed is 1 to {}",
                options.parallel, kMaxParallel);
  }
  LoadOptions load;
  load.table = options.ngram_table;
  load.residence = options.residence;
  STRATA_ASSIGN(Network network, open_network(files, options.model_path, load));
  auto tokenizer = Tokenizer::from_gguf(network.file->metadata);
  if (!tokenizer) {
    return with_context(std::move(tokenizer).error(),
                        fmt::format("model '{}' cannot be served", options.model_path));
  }
  if (auto status = check_tokens(network, *tokenizer); !status) {
    return with_context(std::move(status).error(), fmt::format("model '{}'", options.model_path));
  }
  STRATA_ASSIGN(auto backend, make_cpu_backend(network.shape(), options.threads));
  return std::make_unique<LocalEngine>(std::move(network), std::move(*tokenizer),
                                       std::move(backend), options);
}

}  // namespace strata
