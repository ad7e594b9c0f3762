// Timed windows, outside the scheduler: the same windows that the engine makes of prompts and of
// sequences that decode together, without picking tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/lost_pages.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/timed_backend.h"
#include "model/forward.h"
#include "model/network.h"
#include "model/residence.h"

namespace strata {

struct BenchmarkOptions {
  std::string model_path;
  std::uint32_t threads = 0;  // 0 = usable CPUs
  std::uint32_t chunk = 0;    // tokens of a prompt window; 0 = the engine's default
  std::string isa;            // of the kernels; empty = the best
  TableOptions ngram_table = {};
  Residence residence = Residence::automatic;  // of the weights
  KvType kv_type = kDefaultKvType;
  ExpertRam expert_ram;
  std::string expert_profile;
  bool look_ahead = true;
  // Bytes of weights read and to be read, called now and then while it is opened.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

// Of an engine that would run the same: one sequence, nothing kept, no drafts.
EngineOptions engine_options(const BenchmarkOptions& options);

// One timed run.
struct BenchmarkRun {
  double seconds = 0;
  std::uint64_t tokens = 0;  // of all sequences
  PartUses parts{};
  std::vector<TableStats> ngram_tables;  // of this run, begun with empty caches
  ExpertCounters experts;                // of this run
};

// Belongs to one thread.
class Benchmark {
 public:
  // A file without a tokenizer will do: token ids are random.
  static Result<std::unique_ptr<Benchmark>> open(FileSystem& files,
                                                 const BenchmarkOptions& options);

  const Network& network() const { return network_; }
  std::uint32_t threads() const { return backend_.threads(); }
  std::string isa() const { return backend_.isa(); }
  std::uint32_t chunk() const { return chunk_; }
  KvType kv_type() const { return kv_type_; }
  // Of the caches that grow with a conversation.
  std::size_t token_bytes() const { return backend_.page_bytes() / backend_.page_tokens(); }
  std::vector<KernelUse> kernels() const { return backend_.kernels(); }
  // Reads these, again and again, instead of random tokens; all inside the vocabulary.
  void use_tokens(std::vector<std::int32_t> ids) { ids_ = std::move(ids); }

  // Touches every page of the weights but those of the n-gram tables, so that the first run does
  // not pay for the mapping; then reads a prompt of so many tokens, or a few: memory of a window
  // that was never touched would cost the first run up to a quarter of its speed.
  Status warm_up(std::uint32_t tokens);
  // A prompt of random tokens in a fresh sequence, with the logits of its last token.
  Result<BenchmarkRun> read_prompt(std::uint32_t tokens);
  // Fills the context that decode() starts from. Cheap where `depth` is not below the last one.
  Status prepare(std::uint32_t depth);
  // `sequences` of the prepared context read one random token each a window, `tokens` times.
  Result<BenchmarkRun> decode(std::uint32_t tokens, std::uint32_t sequences);

 private:
  Benchmark(Network network, std::unique_ptr<Backend> backend, std::uint32_t chunk)
      : network_(std::move(network)),
        backend_(std::move(backend)),
        forward_(network_, backend_),
        chunk_(chunk) {}

  Status read_tokens(Sequence& sequence, std::uint32_t tokens, bool logits);
  std::int32_t next_token();
  void reset_tables() const;
  std::vector<TableStats> table_stats() const;
  Status check_file() const;

  LostPagesWatch watch_;
  Network network_;
  TimedBackend backend_;
  Forward forward_;
  std::uint32_t chunk_;
  KvType kv_type_ = KvType::f32;
  std::mt19937 random_{1};
  std::vector<std::int32_t> ids_;
  std::size_t next_id_ = 0;
  std::optional<Sequence> context_;  // what decoding starts from
  std::vector<std::int32_t> tokens_;
  std::vector<float> logits_;
};

}  // namespace strata
