// Hyper-parameters of a qwen4exp model, from GGUF metadata or from HF's config.json. Sizes are
// data: nothing below assumes the production numbers (in comments for orientation).
#pragma once

#include <array>
#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "compute/shapes.h"
#include "gguf/gguf.h"
#include "model/rope.h"

namespace strata {

enum class LayerKind : std::uint8_t {
  gdn,  // gated delta net (linear attention)
  qsa,  // full attention, sparse by indexer where compress_ratio > 0
};

// One n-gram (PLE) layer with its hash constants. H = (ngram_size - 1) * heads_per_ngram heads.
struct NgramLayer {
  std::uint32_t layer = 0;                      // 0-based; a GDN layer
  std::vector<std::uint64_t> multipliers;       // ngram_size
  std::vector<std::uint64_t> head_vocab_sizes;  // H primes
  std::vector<std::uint64_t> head_offsets;      // H, exclusive running sum

  // First row that no head reaches: the least height of the layer's table.
  std::uint64_t rows() const {
    return head_offsets.empty() ? 0 : head_offsets.back() + head_vocab_sizes.back();
  }
  bool operator==(const NgramLayer&) const = default;
};

struct HyperParams {
  std::string name;                // general.name
  std::uint32_t layers = 0;        // trunk blocks (48)
  std::uint32_t draft_layers = 0;  // MTP blocks after them (0 or 1)
  std::uint32_t hidden = 0;        // E (2560)
  std::uint32_t vocabulary = 0;    // rows of the embedding (248320)
  std::uint32_t context = 0;       // trained positions
  float rms_epsilon = 1e-6f;

  std::vector<LayerKind> kinds;  // one per trunk layer; a draft block is always qsa

  // Residual streams (hyper-connections)
  std::uint32_t streams = 4;        // >= 2
  std::uint32_t stream_rank = 320;  // low rank of read gates

  // QSA
  std::uint32_t heads = 0;        // query heads (24)
  std::uint32_t kv_heads = 0;     // (2)
  std::uint32_t head_dim = 0;     // (256)
  std::uint32_t rotary_dims = 0;  // (64), even
  float rope_theta = 1e7f;
  RopeScale rope_scale;
  std::array<std::uint32_t, 4> rope_sections = {11, 11, 10, 0};
  std::uint32_t indexer_heads = 0;             // (4)
  std::uint32_t indexer_dim = 0;               // (128), >= rotary_dims
  std::uint32_t indexer_budget = 0;            // cells (2048), a multiple of the ratio
  std::vector<std::uint32_t> compress_ratios;  // one per trunk layer: cells a block (4); 0 = dense

  // GDN
  std::uint32_t gdn_key_heads = 0;    // (16)
  std::uint32_t gdn_value_heads = 0;  // (48), a multiple of the key heads
  std::uint32_t gdn_key_dim = 0;      // (128)
  std::uint32_t gdn_value_dim = 0;    // (128)
  std::uint32_t gdn_conv_kernel = 4;
  GateActivation gdn_output_gate = GateActivation::sigmoid;

  // Experts. The count may differ by block: the tensors' shapes decide, this is the file's key.
  std::uint32_t experts = 0;       // (512)
  std::uint32_t experts_used = 0;  // (10)
  std::uint32_t expert_ff = 0;     // (640)
  std::uint32_t shared_ff = 0;     // (640)
  bool normalize_top_k = true;

  // n-gram embedding (PLE)
  std::vector<NgramLayer> ngram_layers;  // ascending by layer
  std::uint32_t ngram_size = 3;
  std::uint32_t heads_per_ngram = 8;
  std::uint32_t ngram_row_width = 0;    // (160)
  std::uint32_t ngram_conv_kernel = 4;  // dilation is ngram_size
  std::int32_t ngram_eos = -1;          // cuts the hash window

  bool tied_embeddings = false;

  std::uint32_t ngram_heads() const { return (ngram_size - 1) * heads_per_ngram; }
  std::uint32_t ngram_width() const { return ngram_heads() * ngram_row_width; }  // ple_embed_dim
  std::uint32_t wide() const { return streams * hidden; }
  std::uint32_t gdn_conv_channels() const {
    return 2 * gdn_key_heads * gdn_key_dim + gdn_value_heads * gdn_value_dim;
  }
  std::uint32_t gdn_inner() const { return gdn_value_heads * gdn_value_dim; }
  std::uint32_t ngram_conv_history() const { return (ngram_conv_kernel - 1) * ngram_size; }
  const NgramLayer* ngram_layer(std::uint32_t layer) const;
  bool operator==(const HyperParams&) const = default;
};

// Reads and checks; every error names the key, its value and the rule it breaks.
Result<HyperParams> hyperparams_from_gguf(const Metadata& metadata);

// From a parsed config.json; the hash constants are derived (spec 1.3). Settings are taken from
// the top level or from `text_config`.
Result<HyperParams> hyperparams_from_hf(const boost::json::object& config);

// Writes the qwen4exp.* keys of llama.cpp's form, and strata.* keys where that form has none
// (docs/formats/gguf.md). hyperparams_from_gguf reads back an equal value.
void write_hyperparams(const HyperParams& params, Metadata& metadata);

// Hash constants of the PLE layer with this ordinal in the sorted list of PLE layers.
struct NgramConstants {
  std::vector<std::uint64_t> multipliers, head_vocab_sizes, head_offsets;
  std::uint64_t table_rows = 0;  // sum of sizes, rounded up to `divisible_by`
};
Result<NgramConstants> derive_ngram_constants(std::uint64_t vocabulary, std::uint64_t seed,
                                              std::uint32_t ordinal, std::uint32_t ngram_size,
                                              std::uint32_t heads_per_ngram,
                                              std::uint64_t vocab_size_base,
                                              std::uint64_t divisible_by);

// Consistency of the whole (also called by both readers).
Status validate(const HyperParams& params);

}  // namespace strata
