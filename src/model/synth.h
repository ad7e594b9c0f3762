// Models of random weights in the production shapes: for measuring speed where the real file is not
// at hand. They say of themselves that they are synthetic, and what they write is noise.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "gguf/gguf.h"

namespace strata {

// What may have a type of its own. The name in a comment is how a person calls it.
enum class SynthPart : std::uint8_t {
  gate_up,      // gate_up: routed experts
  down,         // down: routed experts
  shared,       // shared: gate and up of the shared expert
  shared_down,  // shared_down
  attention,    // attention: input matrices of attention and delta net
  out,          // out: their output matrices
  residual,     // residual: down and up of the gated residual (hc)
  inject,       // inject: its write gates
  router,       // router
  gates,        // gates: alpha and beta of the delta net
  indexer,      // indexer
  ngram_key,    // ngram_key
  ngram_value,  // ngram_value
  embedding,    // embedding
  head,         // head
  table,        // table: the n-gram table
};
inline constexpr std::size_t kSynthParts = 16;

// The types of all parts.
class SynthTypes {
 public:
  // A mix of published files ("q4_k", "q2_0", "iq2_xs", "iq3_s"), a float type for everything, or
  // any block type for the experts with Q8_0 around them.
  static Result<SynthTypes> mix(std::string_view name);

  // `part` is one of the names above, or "dense" for shared, shared_down, attention and out.
  Status set(std::string_view part, TensorType type);
  TensorType operator[](SynthPart part) const { return types_[static_cast<std::size_t>(part)]; }

  static std::vector<std::string_view> mix_names();
  static std::vector<std::string_view> part_names();  // "dense" too

 private:
  std::array<TensorType, kSynthParts> types_{};
};

struct SynthOptions {
  std::string mix = "q4_k";  // as it is called in the model's name
  SynthTypes types;
  std::uint32_t layers = 4;         // every fourth one has attention
  std::uint32_t experts = 512;      // a layer
  std::uint32_t used = 10;          // experts a token; no more than there are
  std::uint32_t vocabulary = 8192;  // 256 bytes, pairs of them, unused ones, three control tokens
  std::uint64_t ngram_rows = 5000;  // of a head of the n-gram table, up to the next primes
  bool draft_block = false;         // with an MTP block behind the layers
  std::uint64_t seed = 1;
};

struct SynthTensor {
  enum class Filling : std::uint8_t { plain, decay };  // decay: -exp(value)
  std::string name;
  TensorType type = TensorType::F32;
  std::vector<std::uint64_t> ne;
  Filling filling = Filling::plain;
  float deviation = 0, mean = 0;  // of the random values
  std::uint64_t bytes = 0;
};

struct SynthPlan {
  Metadata metadata;
  std::vector<SynthTensor> tensors;
  std::uint64_t seed = 0;
  std::uint64_t bytes = 0;  // of all tensors; the header comes to it
};

// Checks the options: types whose blocks do not divide a tensor's rows, counts out of range.
Result<SynthPlan> plan_synth(const SynthOptions& options);

// Writes the file in pieces, so that memory stays bounded whatever its size. A tensor's bytes
// depend on the seed, its name, type and shape alone. `progress` gets the bytes written and all of
// them.
Status write_synth(FileSystem& files, const std::string& path, SynthPlan plan, ThreadPool& pool,
                   const std::function<void(std::uint64_t, std::uint64_t)>& progress = {});

}  // namespace strata
