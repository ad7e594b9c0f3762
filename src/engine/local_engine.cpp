#include "engine/local_engine.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <future>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/checkpoints.h"
#include "engine/sampler.h"

namespace strata {
namespace {

// The engine does nothing for so long before it writes conversations to the disk.
constexpr std::chrono::seconds kIdle{2};

// Of everything that changes a bit of what a sequence holds, but for the shape, which the states
// know themselves. What is stored of keys and values counts here too: files of another type are
// another model's.
std::uint64_t identity_of(const Network& network, const Backend& backend, KvType kv_type,
                          bool drafts) {
  constexpr std::uint64_t kArithmetic = 3;  // counts up when kernels give other bits
  constexpr std::size_t kSample = 4096;
  std::vector<std::uint64_t> parts = {kArithmetic, drafts, backend.page_bytes(),
                                      network.weight_bytes, static_cast<std::uint64_t>(kv_type)};
  const RopeScale& scale = network.params.rope_scale;
  for (const float value : {network.params.rope_theta, scale.factor, scale.beta_fast,
                            scale.beta_slow, static_cast<float>(scale.type)})
    parts.push_back(std::bit_cast<std::uint32_t>(value));
  parts.push_back(scale.original_context);
  for (const TensorView& t : network.file->tensors) {
    parts.push_back(hash64(std::as_bytes(std::span(t.name))));
    parts.push_back(static_cast<std::uint64_t>(t.type));
    parts.push_back(hash64(t.data.first(std::min(kSample, t.data.size()))));
    parts.push_back(hash64(t.data.last(std::min(kSample, t.data.size()))));
  }
  return hash64(std::as_bytes(std::span(parts)));
}

}  // namespace

// A window and what became of it.
struct LocalEngine::Round {
  std::vector<Slice> slices;
  std::uint32_t rows = 0, prompt_rows = 0, sequences = 0;  // sequences that decode
  std::uint32_t tokens = 0;                                // that it gave
  bool trial = false;
  std::future<void> masks;  // that are made meanwhile
  double start = 0, guessed = 0, computed = 0, end = 0;
};

Status check_model_file() {
  const auto lost = lost_file();
  if (!lost) return {};
  return fail(ErrorCode::unavailable,
              "'{}' cannot be read any more: it became shorter while it was in use, or its device "
              "failed; restore the file and start the program again",
              *lost);
}

LocalEngine::LocalEngine(Parts parts, EngineFacts facts, const EngineOptions& options)
    : parts_(std::move(parts)),
      token_bytes_(parts_.tokenizer),
      forward_(parts_.network, *parts_.backend, parts_.drafts ? &*parts_.drafts : nullptr),
      options_(options),
      facts_(std::move(facts)),
      turn_(parts_.tokenizer.special("<|im_start|>")),
      drafter_(forward_, options.drafts),
      conversations_(
          std::make_unique<Conversations>(forward_, *parts_.backend, options.cache,
                                          identity_of(parts_.network, *parts_.backend,
                                                      options.kv_type, parts_.drafts.has_value()))),
      scheduler_(options.parallel, options.prompt_chunk),
      constraints_(parts_.tokenizer),
      worker_([this] { work(); }) {}

LocalEngine::~LocalEngine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  worker_.join();
  constraints_.stop();
}

// --- from any thread ----------------------------------------------------------------------------

Result<RequestId> LocalEngine::submit(Request request, std::shared_ptr<Listener> listener) {
  if (!listener) return fail(ErrorCode::invalid_argument, "a request needs a listener");
  STRATA_TRY(check_model_file());
  STRATA_TRY(check_request(request, facts_));
  const auto prompt = static_cast<std::uint32_t>(request.prompt.size());
  auto job = std::make_unique<Job>();
  job->limit = request.max_tokens > 0 ? request.max_tokens : facts_.context - prompt;
  job->prompt = job->completion.prompt_tokens = prompt;
  job->tokens = std::move(request.prompt);
  job->chain = SamplingChain(request, prompt, token_bytes_);
  job->watch = AnswerWatch(request, parts_.tokenizer);
  if (!request.grammar.empty()) {
    STRATA_ASSIGN(job->grammar,
                  constraints_.compile(request.grammar, request.client, [this] { wake_worker(); }));
  }
  job->request = std::move(request);
  job->listener = std::move(listener);
  job->submitted = monotonic_seconds();
  RequestId id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return fail(ErrorCode::unavailable, "the engine is stopping");
    if (scheduler_.waiting().size() >= options_.queue_limit) {
      return fail(ErrorCode::exhausted, "{} requests wait already (queue limit); try again later",
                  scheduler_.waiting().size());
    }
    id = job->id = ++last_id_;
    scheduler_.add(std::move(job));
  }
  wake_.notify_all();
  return id;
}

void LocalEngine::wake_worker() {
  {
    const std::lock_guard lock(mutex_);
  }  // so that it hears it if it is about to wait
  wake_.notify_all();
}

void LocalEngine::cancel(RequestId id) {
  {
    const std::lock_guard lock(mutex_);
    if (Job* job = scheduler_.find(id)) job->cancelled = true;
  }
  wake_.notify_all();
}

void LocalEngine::conversation(ConversationTask task, ConversationDone done) {
  constexpr std::size_t kMostTasks = 16;
  Status status;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      status = fail(ErrorCode::unavailable, "the engine is stopping");
    } else if (tasks_ >= kMostTasks) {
      status =
          fail(ErrorCode::exhausted,
               "{} conversations are being saved, restored or forgotten; try again later", tasks_);
    } else {
      ++tasks_;
      auto counted = [this, done](Result<ConversationResult> result) {
        {
          const std::lock_guard inner(mutex_);
          --tasks_;
        }
        done(std::move(result));
      };
      errands_.emplace_back([this, task = std::move(task), counted = std::move(counted)] {
        conversations_->handle(
            task, [this](std::function<void()> errand) { post(std::move(errand)); }, counted);
      });
    }
  }
  if (!status) return done(tl::unexpected<Error>(status.error()));
  wake_.notify_all();
}

void LocalEngine::post(std::function<void()> errand) {
  {
    const std::lock_guard lock(mutex_);
    errands_.push_back(std::move(errand));
  }
  wake_.notify_all();
}

EngineCounters LocalEngine::counters() const {
  const std::lock_guard lock(mutex_);
  EngineCounters counters = counters_;
  counters.running = static_cast<std::uint32_t>(scheduler_.running().size());
  counters.waiting = static_cast<std::uint32_t>(scheduler_.waiting().size());
  counters.grammars = constraints_.counters();
  for (const Block& block : parts_.network.blocks)
    if (block.ngram) counters.ngram_tables.push_back(block.ngram_table->stats());
  return counters;
}

// --- the worker ---------------------------------------------------------------------------------

void LocalEngine::work() {
  Lock lock(mutex_);
  while (true) {
    rest(lock);
    if (stopping_) break;
    drop_cancelled(lock);
    drop_impossible(lock);
    run_errands(lock);
    collect_loads(lock);
    start_waiting(lock);
    report_queue(lock);
    run_round(lock);
  }
  for (auto& job : scheduler_.remove_all()) {
    job->completion.reason = FinishReason::cancelled;
    lock.unlock();
    job->load.reset();
    job->listener->finished(job->completion);
    job.reset();
    lock.lock();
  }
  run_errands(lock);
  lock.unlock();
  conversations_->finish_files();
  lock.lock();
  run_errands(lock);  // what was on its way
  lock.unlock();
  conversations_.reset();  // writes what the disk does not have
}

void LocalEngine::run_errands(Lock& lock) {
  while (!errands_.empty()) {
    const auto errand = std::move(errands_.front());
    errands_.pop_front();
    lock.unlock();
    errand();
    lock.lock();
    update_counters();
  }
}

// Until there is something to do. Nothing at all for a while: time to write.
void LocalEngine::rest(Lock& lock) {
  const auto is_cancelled = [](const auto& job) { return job->cancelled; };
  // Its listener has heard nothing yet, and now there is something to say.
  const auto has_news = [](const auto& job) { return !job->ahead && job->has_grammar(); };
  const auto needed = [&] {
    const auto& running = scheduler_.running();
    const auto& waiting = scheduler_.waiting();
    return stopping_ || !errands_.empty() || next_waiting() ||
           std::any_of(
               running.begin(), running.end(),
               [&](const auto& job) { return !job->loading || job->cancelled || loaded(*job); }) ||
           std::any_of(waiting.begin(), waiting.end(), is_cancelled) ||
           std::any_of(waiting.begin(), waiting.end(), has_news);
  };
  while (!wake_.wait_for(lock, kIdle, needed)) {
    lock.unlock();
    if (parts_.trace) parts_.trace->flush();
    const bool more = conversations_->save_some();
    lock.lock();
    update_counters();
    if (more) continue;
    wake_.wait(lock, needed);
    break;
  }
}

// What the worker has counted, for others to see.
void LocalEngine::update_counters() {
  EngineCounters::Cache cache = conversations_->counters();
  cache.tokens = counters_.cache.tokens;
  cache.disk_tokens = counters_.cache.disk_tokens;
  counters_.cache = cache;
  counters_.drafts = drafts_;
  counters_.reserved_bytes = promised_bytes();
  counters_.experts = parts_.network.experts->counters();
}

void LocalEngine::drop_cancelled(Lock& lock) {
  for (const RequestId id : scheduler_.cancelled()) finish(lock, id, FinishReason::cancelled);
}

// Requests whose grammar cannot be compiled: they need not wait to hear it.
void LocalEngine::drop_impossible(Lock& lock) {
  std::vector<std::pair<RequestId, Error>> failed;
  for (const auto& job : scheduler_.waiting()) {
    if (!job->grammar || !job->grammar->failed()) continue;
    failed.emplace_back(job->id, constrain(*job).error());
  }
  for (auto& [id, error] : failed) finish(lock, id, FinishReason::error, std::move(error));
}

// Whether the disk or another request has a job's beginning ready, and it may try to start from it.
bool LocalEngine::loaded(const Job& job) const {
  if (!job.loading || job.starved) return false;
  if (job.load) return job.load->ready();
  const auto& running = scheduler_.running();
  const auto reader = std::find_if(running.begin(), running.end(),
                                   [&](const auto& other) { return other->id == job.joined; });
  return reader == running.end() || (*reader)->read >= job.join_at;
}

// Several requests come at once with one long beginning, or one with several answers: the first
// reads it, and the others begin where it takes a checkpoint. They have their places meanwhile, and
// none is later than it would be if all of them shared the time for reading. False: nobody reads
// anything of this prompt that is worth it.
bool LocalEngine::join(Job& job) const {
  constexpr std::uint32_t kLeast = 256;  // tokens that it must save
  if (job.request.prompt_logprobs || !conversations_->keeps_any()) return false;
  const auto prompt = std::span<const TokenId>(job.tokens).first(job.prompt);
  const std::uint32_t cached = conversations_->cached(prompt);
  std::uint32_t best = cached + kLeast - 1;
  job.joined = 0;
  for (const auto& reader : scheduler_.running()) {
    if (!reader->sequence || reader->decoding() || reader->cancelled) continue;
    // A short prompt goes before long ones and must not wait for one.
    const std::uint32_t chunk = options_.prompt_chunk;
    if (job.prompt - cached <= chunk && reader->is_long.value_or(reader->prompt > chunk)) continue;
    const auto other = std::span<const TokenId>(reader->tokens).first(reader->prompt);
    const auto common =
        static_cast<std::uint32_t>(std::ranges::mismatch(prompt, other).in1 - prompt.begin());
    const auto offer = [&](std::uint32_t checkpoint, std::uint32_t when) {
      if (checkpoint <= best || checkpoint > common || checkpoint >= job.prompt ||
          when <= reader->read)
        return;
      best = checkpoint;
      job.joined = reader->id;
      job.join_at = when;
    };
    for (const std::uint32_t cut : reader->cuts) offer(cut, cut);
    if (reader->tail > 0) offer(reader->prompt - reader->tail, reader->prompt);
  }
  return job.joined != 0;
}

// Nobody overtakes those for which there is no memory.
Job* LocalEngine::next_waiting() {
  const auto starved = [](const auto& job) { return job->starved; };
  const auto& running = scheduler_.running();
  if (std::any_of(running.begin(), running.end(), starved)) return nullptr;
  Job* job = scheduler_.next_waiting();
  return job && !job->starved ? job : nullptr;
}

void LocalEngine::start_waiting(Lock& lock) {
  while (Job* job = next_waiting()) {
    lock.unlock();
    // What the disk has is asked for before the request starts; the others go on meanwhile.
    const auto prompt = std::span<const TokenId>(job->tokens).first(job->prompt);
    std::unique_ptr<ConversationLoad> load;
    if (!job->request.prompt_logprobs) {
      load = conversations_->load(prompt, [this] { wake_worker(); });
    }
    lock.lock();
    job->admitted = monotonic_seconds();
    job->completion.queue_seconds = job->admitted - job->submitted;
    if (load || join(*job)) {
      job->load = std::move(load);
      job->loading = true;
      scheduler_.start(*job);
      continue;
    }
    lock.unlock();
    const Status status = begin(*job);
    lock.lock();
    if (status) {
      scheduler_.start(*job);
    } else if (status.error().code == ErrorCode::unavailable) {
      job->starved = true;
    } else {
      finish(lock, job->id, FinishReason::error, status.error());
    }
  }
}

// What the disk or another request gave: those start now.
void LocalEngine::collect_loads(Lock& lock) {
  std::vector<Job*> ready;
  for (const auto& job : scheduler_.running())
    if (loaded(*job)) ready.push_back(job.get());
  for (Job* job : ready) {
    // Whoever read for them is gone: the next one reads, for the others behind it.
    if (!job->load && join(*job)) continue;
    lock.unlock();
    const Status status = begin(*job);
    job->starved = !status && status.error().code == ErrorCode::unavailable;
    if (!job->starved) job->load.reset();
    lock.lock();
    job->loading = job->starved;
    if (!status && !job->starved) finish(lock, job->id, FinishReason::error, status.error());
  }
}

void LocalEngine::report_queue(Lock& lock) {
  std::vector<std::pair<std::shared_ptr<Listener>, std::uint32_t>> moved;
  std::uint32_t ahead = 0;
  for (const auto& job : scheduler_.waiting()) {
    if (job->ahead != ahead && job->has_grammar()) {
      job->ahead = ahead;
      moved.emplace_back(job->listener, ahead);
    }
    ++ahead;
  }
  if (moved.empty()) return;
  lock.unlock();
  for (const auto& [listener, place] : moved) listener->queued(place);
  lock.lock();
}

// A sequence for the job, with memory for all that it may become. `unavailable`: others must end
// first.
Status LocalEngine::begin(Job& job) {
  if (job.grammar) STRATA_TRY(constrain(job));
  const auto prompt = std::span<const TokenId>(job.tokens).first(job.prompt);
  STRATA_TRY(find_room(job));
  Conversations::Start start;
  if (job.request.prompt_logprobs) {  // the logits of every token are wanted
    STRATA_ASSIGN(start.sequence, forward_.new_sequence());
  } else {
    STRATA_ASSIGN(start, conversations_->start(prompt, job.load.get()));
    if (job.load && start.from_disk == 0) {
      // The disk's point was no good: there are more pages to be written than room was found for.
      start = {};
      job.load.reset();
      STRATA_TRY(find_room(job));
      STRATA_ASSIGN(start, conversations_->start(prompt, nullptr));
    }
  }
  STRATA_TRY(start.sequence.reserve(job.prompt + job.limit));
  job.reserved = job.prompt + job.limit;
  if (job.request.keep) {
    CheckpointPlan plan = plan_checkpoints(prompt, start.cached, turn_, options_.cache);
    job.cuts = std::move(plan.cuts);
    job.tail = plan.tail;
  }
  job.completion.cached_tokens = start.cached;
  job.completion.cached_disk_tokens = start.from_disk;
  job.sequence = std::move(start.sequence);
  job.read = start.cached;
  job.listener->started(start.cached);
  if (start.cached > 0) job.listener->progress(start.cached, job.prompt);
  return {};
}

Status LocalEngine::constrain(Job& job) {
  if (job.chain.constrained()) return {};
  auto grammar = job.grammar->result();
  if (!grammar) {
    // Whatever limit it met, it would meet it again.
    return fail(ErrorCode::invalid_argument, "the constraint of the answer cannot be kept: {}",
                grammar.error().message);
  }
  job.chain.constrain(constrain::Matcher(std::move(*grammar), job.request.stop_ids));
  return {};
}

// Bytes of pages that running requests have been promised and not written yet.
std::uint64_t LocalEngine::promised_bytes() const {
  std::uint64_t tokens = 0;
  for (const auto& job : scheduler_.running())
    if (job->sequence) tokens += job->reserved - std::min(job->reserved, job->read);
  return tokens / parts_.backend->page_tokens() * parts_.backend->page_bytes();
}

// What could be promised to another one.
std::uint64_t LocalEngine::free_memory() const {
  const std::uint64_t free = options_.test_memory ? options_.test_memory() : available_memory();
  return free - std::min(free, promised_bytes() + parts_.memory_floor);
}

// Memory for a job, but for the pages of what it starts from. Conversations make room for it, its
// own beginning perhaps among them.
Status LocalEngine::find_room(const Job& job) {
  const auto prompt = std::span<const TokenId>(job.tokens).first(job.prompt);
  const std::uint32_t page_tokens = parts_.backend->page_tokens();
  std::uint64_t needed = 0, free = 0;
  do {
    const std::uint32_t had = job.request.prompt_logprobs ? 0
                              : job.load                  ? job.load->tokens()
                                                          : conversations_->cached(prompt);
    const std::uint64_t pages = (job.prompt + job.limit) / page_tokens + 1 - had / page_tokens;
    needed = pages * parts_.backend->page_bytes() + forward_.saved_state_bytes();
    free = free_memory();
    if (free >= needed) return {};
    return_unused_memory();
    free = free_memory();
    if (free >= needed) return {};
  } while (conversations_->free(needed - free) > 0);
  const auto& running = scheduler_.running();
  if (std::any_of(running.begin(), running.end(),
                  [](const auto& r) { return r->sequence.has_value(); }))
    return fail(ErrorCode::unavailable, "no memory until others end");
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  return fail(ErrorCode::exhausted,
              "{} tokens of prompt and answer need {} MiB of memory and {} are free; ask for fewer "
              "tokens, or start with a smaller --ctx",
              job.prompt + job.limit, (needed + kMiB - 1) / kMiB, free / kMiB);
}

// --- a round ------------------------------------------------------------------------------------

// One window: compute with the mutex open, then hand out what it gave.
void LocalEngine::run_round(Lock& lock) {
  Round round;
  round.slices = scheduler_.next_window();
  if (round.slices.empty()) return;
  lock.unlock();
  round.start = monotonic_seconds();
  guess(round);
  round.guessed = monotonic_seconds();
  prepare_masks(round);
  Status status = read_window(round);
  if (round.masks.valid()) round.masks.wait();
  round.computed = monotonic_seconds();
  lock.lock();
  std::size_t row = 0;
  std::vector<Listener*> told;
  for (const Slice& slice : round.slices) {
    Job& job = *slice.job;
    const std::size_t rows = rows_wanted(slice);
    const auto logits = std::span<const float>(logits_).subspan(
        row * facts_.vocabulary, status ? rows * facts_.vocabulary : 0);
    row += rows;
    const Status& own = job.sequence->status();
    if (!own || !status) {
      finish(lock, job.id, FinishReason::error, own ? status.error() : own.error());
      continue;
    }
    if (job.cancelled) continue;  // dropped before the next window
    lock.unlock();
    const bool more = advance(slice, logits, round);
    lock.lock();
    if (more) {
      told.push_back(job.listener.get());
    } else {
      finish(lock, job.id, job.completion.reason, job.completion.error);
    }
  }
  lock.unlock();
  for (Listener* listener : told) listener->window_over();
  lock.lock();
  round.end = monotonic_seconds();
  scheduler_.took(round.end - round.start);
  measure(round);
  update_counters();
}

void LocalEngine::measure(const Round& round) {
  if (round.prompt_rows == 0 && round.sequences > 0) {
    drafter_.round_took(round.rows, round.computed - round.guessed, round.sequences, round.tokens,
                        round.end - round.start - drafter_.late_seconds(), round.trial);
  }
  if (!parts_.trace) return;
  const ExpertCounters experts = parts_.network.experts->counters();
  parts_.trace->round({++rounds_, round.rows, round.prompt_rows, round.guessed - round.start,
                       round.computed - round.guessed, round.end - round.computed,
                       experts - traced_experts_});
  traced_experts_ = experts;
}

void LocalEngine::guess(Round& round) {
  std::vector<Job*> decoding;
  for (const Slice& slice : round.slices) {
    if (!slice.decodes) continue;
    slice.job->guesses = {};
    decoding.push_back(slice.job);
  }
  round.sequences = static_cast<std::uint32_t>(decoding.size());
  std::vector<Job*> open;
  for (Job* job : decoding)
    if (!guess_forced(*job)) open.push_back(job);
  if (drafter_.may_draft() && !open.empty()) drafter_.guess(open);
  for (Job* job : open) drop_forbidden(*job);
  for (Job* job : decoding) {
    round.trial = round.trial || job->guesses.trial;
    job->window.assign(1, job->tokens.back());
    job->window.insert(job->window.end(), job->guesses.tokens.begin(), job->guesses.tokens.end());
  }
}

// Masks that take longer than handing them over are made while the window is computed.
void LocalEngine::prepare_masks(Round& round) {
  std::vector<Job*> slow;
  for (const Slice& slice : round.slices)
    if (slice.decodes && slice.job->chain.worth_preparing()) slow.push_back(slice.job);
  if (slow.empty()) return;
  auto done = std::make_shared<std::promise<void>>();
  round.masks = done->get_future();
  masks_.post([slow = std::move(slow), done] {
    for (Job* job : slow) job->chain.prepare_ahead();
    done->set_value();
  });
}

// Guesses that the grammar does not allow are wrong for certain.
void LocalEngine::drop_forbidden(Job& job) {
  Guesses& guesses = job.guesses;
  const std::size_t allowed = job.chain.allowed(guesses.tokens);
  guesses.tokens.resize(allowed);
  if (guesses.kinds.size() > allowed) guesses.kinds.resize(allowed);
}

// What must be written anyway is read together, as guesses that are right for certain.
bool LocalEngine::guess_forced(Job& job) {
  const auto forced = job.watch.forced();
  if (forced.empty()) return false;
  const std::uint32_t left = job.limit - job.generated() - 1;
  const auto some = forced.first(std::min<std::size_t>({forced.size(), left, kMaxTentative}));
  job.guesses.tokens.assign(some.begin(), some.end());
  return true;
}

// Rows of the slice whose logits are wanted; they are its last ones.
std::size_t LocalEngine::rows_wanted(const Slice& slice) {
  const Job& job = *slice.job;
  if (slice.decodes) return job.window.size();
  if (job.request.prompt_logprobs) return slice.tokens;
  return slice.ends_prompt ? 1 : 0;
}

Status LocalEngine::read_window(Round& round) {
  std::vector<Forward::Rows> rows;
  logit_rows_.clear();
  for (const Slice& slice : round.slices) {
    Job& job = *slice.job;
    if (slice.decodes) {
      rows.push_back(
          {&*job.sequence, job.window, static_cast<std::uint32_t>(job.guesses.tokens.size())});
    } else {
      const auto tokens = std::span<const TokenId>(job.tokens).subspan(job.read, slice.tokens);
      prefetch_chunk(job, slice.tokens);
      rows.push_back({&*job.sequence, tokens, slice.tail});
      round.prompt_rows += slice.tokens;
    }
    round.rows += static_cast<std::uint32_t>(rows.back().tokens.size());
    for (auto left = static_cast<std::uint32_t>(rows_wanted(slice)); left > 0; --left)
      logit_rows_.push_back(round.rows - left);
  }
  logits_.resize(logit_rows_.size() * facts_.vocabulary);
  STRATA_TRY(forward_.read(rows, logit_rows_, logits_));
  return check_model_file();
}

// The disk reads for the chunk of a prompt that follows the one now computed.
void LocalEngine::prefetch_chunk(const Job& job, std::uint32_t tokens) {
  const auto rest = std::span<const TokenId>(job.tokens).subspan(job.read);
  const std::size_t both = std::min(rest.size(), std::size_t{tokens} + options_.prompt_chunk);
  forward_.prefetch(*job.sequence, rest.first(both), tokens);
}

// Takes a job on by one window; false when it is done (completion.reason says how).
bool LocalEngine::advance(const Slice& slice, std::span<const float> logits, Round& round) {
  Job& job = *slice.job;
  job.read = job.sequence->tokens();
  if (!all_finite(logits)) {
    job.completion.reason = FinishReason::error;
    job.completion.error = {ErrorCode::internal,
                            fmt::format("the model gave a logit that is no number after {} tokens; "
                                        "its file may be damaged",
                                        job.sequence->tokens())};
    return false;
  }
  const bool more = slice.decodes ? decode(job, logits, round) : read_prompt(slice, logits);
  if (slice.decodes || slice.ends_prompt)
    job.completion.decode_seconds = monotonic_seconds() - job.decoding_since;
  return more;
}

bool LocalEngine::read_prompt(const Slice& slice, std::span<const float> logits) {
  Job& job = *slice.job;
  if (parts_.trace)
    parts_.trace->part({job.id, job.read - slice.tokens, slice.tokens, false, {}, {}, 0, false});
  if (job.request.prompt_logprobs) report_prompt(slice, logits);
  const bool cut = std::binary_search(job.cuts.begin(), job.cuts.end(), job.read);
  if (cut || slice.tail > 0) {
    if (auto copy = forward_.fork(*job.sequence, slice.tail)) {
      conversations_->keep(std::move(*copy));
    } else {
      log_debug("no checkpoint: {}", copy.error().message);
    }
  }
  job.listener->progress(job.read, job.prompt);
  if (!slice.ends_prompt) return true;
  drafter_.begin(job);
  const bool more = take_token(job, logits.last(facts_.vocabulary));
  // What is left of the prompt's work does not hold the first token up.
  if (more) {
    forward_.prefetch(*job.sequence, std::span(job.tokens).last(1));
    if (const Status status = forward_.catch_up_after_prompt(*job.sequence); !status)
      log_debug("a draft block stays behind: {}", status.error().message);
  }
  job.decoding_since = monotonic_seconds();
  job.completion.prompt_seconds = job.decoding_since - job.admitted;
  return more;
}

// Row r of a prompt window says what may follow the prompt's token before + r.
void LocalEngine::report_prompt(const Slice& slice, std::span<const float> logits) {
  const Job& job = *slice.job;
  const std::uint32_t before = job.read - slice.tokens;
  for (std::uint32_t row = 0; row < slice.tokens && before + row + 1 < job.prompt; ++row) {
    job.listener->prompt_chances(
        chances_of(logits.subspan(std::size_t{row} * facts_.vocabulary, facts_.vocabulary),
                   job.tokens[before + row + 1], job.request.logprobs.value_or(0)));
  }
}

// Each row's token, as long as the guess that stands in the next row was right.
bool LocalEngine::decode(Job& job, std::span<const float> logits, Round& round) {
  const std::vector<TokenId>& guesses = job.guesses.tokens;
  const std::uint32_t position = job.read - static_cast<std::uint32_t>(job.window.size());
  std::uint32_t right = 0;
  bool more = true;
  while (true) {
    more =
        take_token(job, logits.subspan(std::size_t{right} * facts_.vocabulary, facts_.vocabulary));
    if (!more || right == guesses.size() || job.tokens.back() != guesses[right]) break;
    ++right;
  }
  forward_.take_back(*job.sequence, static_cast<std::uint32_t>(guesses.size()) - right);
  job.read = job.sequence->tokens();
  round.tokens += right + 1;
  drafter_.judge(job, right, more);
  const auto guessed = static_cast<std::uint32_t>(job.guesses.kinds.size());  // none if forced
  count(job.completion, std::min(right, guessed), guessed);
  if (more) forward_.prefetch(*job.sequence, std::span(job.tokens).last(1));
  if (parts_.trace) {
    parts_.trace->part({job.id, position, static_cast<std::uint32_t>(job.window.size()), true,
                        guesses, job.guesses.kinds, right, job.guesses.trial});
  }
  return more;
}

// Picks, reports; false at the end.
bool LocalEngine::take_token(Job& job, std::span<const float> logits) {
  Completion& done = job.completion;
  const auto step = job.watch.step([&] { return job.chain.pick(logits, job.tokens); },
                                   job.limit - done.generated_tokens);
  done.thinking_cut = job.watch.thinking_cut();
  done.stopped_by = job.watch.stopped_by();
  if (step.token && !job.chain.wrote(*step.token)) {
    done.reason = FinishReason::error;
    done.error = {ErrorCode::invalid_argument, job.chain.refusal(*step.token)};
    return false;
  }
  if (step.token) {
    job.tokens.push_back(*step.token);
    ++done.generated_tokens;
    if (const auto top = job.request.logprobs)
      job.listener->chances(chances_of(logits, *step.token, *top));
    job.listener->token(*step.token);
  }
  done.reason = step.end.value_or(FinishReason::stop);
  // A grammar that one of its limits stopped has not been kept to the end.
  if (!step.token && step.end == FinishReason::stop && job.chain.stuck())
    done.reason = FinishReason::length;
  if (step.end || !job.chain.at_end()) return !step.end;
  done.reason = FinishReason::stop;
  return false;
}

void LocalEngine::count(Completion& completion, std::uint32_t right, std::uint32_t guesses) {
  ++completion.rounds;
  completion.drafted += guesses;
  completion.accepted += right;
  ++drafts_.rounds;
  drafts_.drafted += guesses;
  drafts_.accepted += right;
  for (std::uint32_t depth = 0; depth < guesses && depth <= right; ++depth) {
    ++drafts_.drafted_at[depth];
    if (depth < right) ++drafts_.accepted_at[depth];
  }
}

// --- the end of a request -----------------------------------------------------------------------

void LocalEngine::finish(Lock& lock, RequestId id, FinishReason reason, Error error) {
  const std::unique_ptr<Job> job = scheduler_.remove(id);
  if (!job) return;
  for (const auto& other : scheduler_.running()) other->starved = false;
  for (const auto& other : scheduler_.waiting()) other->starved = false;
  Completion& done = job->completion;
  done.reason = reason;
  done.error = std::move(error);
  const std::uint32_t read = std::min(job->read, job->prompt);
  if (job->sequence) {
    const RowCounts& rows = done.ngram_rows = job->sequence->row_counts();
    log_debug(
        "request {}: {} n-gram rows, {} cached, {} joined, {} read, {} thanks to prefetching, {} "
        "failed; {:.1f} ms waited for; {} rounds, {} of {} guesses right",
        id, rows.requested, rows.cache_hits, rows.joined, rows.read, rows.prefetched_used,
        rows.failed, 1e3 * rows.wait_seconds, done.rounds, done.accepted, done.drafted);
  }
  lock.unlock();
  job->load.reset();
  if (reason != FinishReason::error) keep(*job);
  lock.lock();
  ++counters_.requests;
  counters_.prompt_tokens += read;
  counters_.generated_tokens += done.generated_tokens;
  counters_.cache.tokens += done.cached_tokens;
  counters_.cache.disk_tokens += done.cached_disk_tokens;
  update_counters();
  lock.unlock();
  job->listener->finished(done);
  lock.lock();
}

// What a request has read stays for the next one that begins with it.
void LocalEngine::keep(Job& job) {
  if (!job.sequence || !job.request.keep || !job.sequence->status()) return;
  if (const Status status = forward_.settle(*job.sequence); !status) {
    log_debug("request {} is not kept: {}", job.id, status.error().message);
    return;
  }
  conversations_->keep(std::move(*job.sequence));
  job.sequence.reset();
}

}  // namespace strata
