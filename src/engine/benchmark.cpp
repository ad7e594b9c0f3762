#include "engine/benchmark.h"

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "compute/cpu/notice.h"
#include "engine/engine_memory.h"
#include "model/open_network.h"

namespace strata {

EngineOptions engine_options(const BenchmarkOptions& options) {
  EngineOptions engine;
  engine.model_path = options.model_path;
  engine.threads = options.threads;
  if (options.chunk > 0) engine.prompt_chunk = options.chunk;
  engine.ngram_table = options.ngram_table;
  engine.residence = options.residence;
  engine.expert_ram = options.expert_ram;
  engine.kv_type = options.kv_type;
  engine.cache.ram_bytes = 0;
  engine.parallel = 1;
  engine.drafts.depth = 0;
  return engine;
}

Result<std::unique_ptr<Benchmark>> Benchmark::open(FileSystem& files,
                                                   const BenchmarkOptions& options) {
  if (const auto notice = cpu::slow_cpu_notice(); !notice.empty()) log_warning("{}", notice);
  const EngineOptions engine = engine_options(options);
  std::unique_ptr<Backend> backend;
  OpenOptions open;
  open.load.table = options.ngram_table;
  open.plan = [&](const Network& mapped) -> Result<MemoryPlan> {
    STRATA_ASSIGN(backend,
                  make_cpu_backend(engine_shape(mapped, engine), options.threads, options.isa));
    STRATA_ASSIGN(const PlannedMemory planned, plan_engine_memory(engine, mapped, *backend));
    STRATA_TRY(backend->reserve(engine.prompt_chunk));  // as an engine before its first request
    return planned.plan;
  };
  open.expert_profile = options.expert_profile;
  open.look_ahead = options.look_ahead;
  open.progress = options.progress;
  STRATA_ASSIGN(Network network, open_network(files, options.model_path, open));
  const std::uint32_t chunk = engine.prompt_chunk;
  std::unique_ptr<Benchmark> benchmark(
      new Benchmark(std::move(network), std::move(backend), chunk));
  benchmark->kv_type_ = options.kv_type;
  benchmark->backend_.set_kv_type(options.kv_type);
  return benchmark;
}

std::int32_t Benchmark::next_token() {
  if (!ids_.empty()) return ids_[next_id_++ % ids_.size()];
  return static_cast<std::int32_t>(random_() % network_.embedding.rows);
}

void Benchmark::reset_tables() const {
  for (const Block& block : network_.blocks)
    if (block.ngram) block.ngram_table->reset();
}

std::vector<TableStats> Benchmark::table_stats() const {
  std::vector<TableStats> stats;
  for (const Block& block : network_.blocks)
    if (block.ngram) stats.push_back(block.ngram_table->stats());
  return stats;
}

Status Benchmark::check_file() const {
  const auto lost = lost_file();
  if (!lost) return {};
  return fail(ErrorCode::unavailable, "'{}' cannot be read any more: it became shorter", *lost);
}

Status Benchmark::read_tokens(Sequence& sequence, std::uint32_t tokens, bool logits) {
  tokens_.resize(tokens);
  std::generate(tokens_.begin(), tokens_.end(), [&] { return next_token(); });
  std::span<const std::int32_t> rest = tokens_;
  while (!rest.empty()) {
    const std::size_t now = std::min<std::size_t>(chunk_, rest.size());
    forward_.prefetch(sequence, rest.first(std::min(now + chunk_, rest.size())), now);
    const Forward::Rows rows{&sequence, rest.first(now)};
    const auto last = static_cast<std::uint32_t>(now - 1);
    const bool wanted = logits && now == rest.size();
    logits_.resize(wanted ? network_.head.rows : 0);
    STRATA_TRY(forward_.read({&rows, 1}, {&last, wanted ? 1u : 0u}, logits_));
    rest = rest.subspan(now);
  }
  return check_file();
}

Status Benchmark::warm_up(std::uint32_t tokens) {
  constexpr std::size_t page = 4096;
  unsigned sum = 0;
  const ExpertLifetime experts = network_.experts->lifetime(0, 0);
  const bool some = experts != ExpertLifetime::pinned && experts != ExpertLifetime::mapped;
  for (const TensorView& tensor : network_.file->tensors) {
    if (tensor.name.ends_with("per_layer_token_embd.weight")) continue;
    if (some && is_expert_tensor(tensor.name)) continue;
    for (std::size_t at = 0; at < tensor.data.size(); at += page)
      sum += static_cast<unsigned>(tensor.data[at]);
  }
  [[maybe_unused]] const volatile unsigned keep = sum;
  STRATA_ASSIGN(Sequence sequence, forward_.new_sequence());
  return read_tokens(sequence, std::max<std::uint32_t>(tokens, 16), true);
}

Result<BenchmarkRun> Benchmark::read_prompt(std::uint32_t tokens) {
  STRATA_ASSIGN(Sequence sequence, forward_.new_sequence());
  backend_.take();
  reset_tables();
  const ExpertCounters before = network_.experts->counters();
  const double start = monotonic_seconds();
  STRATA_TRY(read_tokens(sequence, tokens, true));
  return BenchmarkRun{monotonic_seconds() - start, tokens, backend_.take(), table_stats(),
                      network_.experts->counters() - before};
}

Status Benchmark::prepare(std::uint32_t depth) {
  if (!context_ || depth < context_->tokens()) {
    STRATA_ASSIGN(context_, forward_.new_sequence());
  }
  return read_tokens(*context_, depth - context_->tokens(), false);
}

Result<BenchmarkRun> Benchmark::decode(std::uint32_t tokens, std::uint32_t sequences) {
  std::vector<Sequence> running;
  for (std::uint32_t s = 0; s < sequences; ++s) {
    STRATA_ASSIGN(Sequence sequence, context_ ? forward_.fork(*context_) : forward_.new_sequence());
    running.push_back(std::move(sequence));
  }
  tokens_.resize(sequences);
  logits_.resize(std::size_t{sequences} * network_.head.rows);
  std::vector<Forward::Rows> window;
  std::vector<std::uint32_t> rows;
  for (std::uint32_t s = 0; s < sequences; ++s) {
    window.push_back({&running[s], std::span<const std::int32_t>(tokens_).subspan(s, 1)});
    rows.push_back(s);
  }
  backend_.take();
  reset_tables();
  const ExpertCounters before = network_.experts->counters();
  const double start = monotonic_seconds();
  for (std::uint32_t t = 0; t < tokens; ++t) {
    std::generate(tokens_.begin(), tokens_.end(), [&] { return next_token(); });
    STRATA_TRY(forward_.read(window, rows, logits_));
  }
  BenchmarkRun run{monotonic_seconds() - start, std::uint64_t{tokens} * sequences, backend_.take(),
                   table_stats(), network_.experts->counters() - before};
  STRATA_TRY(check_file());
  return run;
}

}  // namespace strata
