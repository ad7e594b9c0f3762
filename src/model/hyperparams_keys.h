// What the fields of HyperParams are called in the file they came from, so that one set of checks
// serves both readers and every sentence names the key that the person can look up.
#pragma once

#include <string_view>

#include "base/result.h"
#include "model/hyperparams.h"

namespace strata {

struct HyperParamKeys {
  std::string_view layers, hidden, vocabulary, context, rms_epsilon;
  std::string_view streams, stream_rank;
  std::string_view heads, kv_heads, head_dim, rotary_dims, rope_theta;
  std::string_view rope_type, rope_factor, rope_context, rope_beta_fast, rope_beta_slow;
  std::string_view indexer_heads, indexer_dim, indexer_budget, compress_ratio;
  std::string_view gdn_key_heads, gdn_value_heads, gdn_key_dim, gdn_value_dim, gdn_conv_kernel;
  std::string_view experts, experts_used, expert_ff, shared_ff;
  std::string_view ngram_layers, ngram_size, heads_per_ngram, ngram_row_width, ngram_conv_kernel;
  std::string_view ngram_eos, multipliers, head_vocab_sizes, head_offsets;
};

extern const HyperParamKeys gguf_keys;  // hyperparams.cpp
extern const HyperParamKeys hf_keys;    // hf_hyperparams.cpp

// The checks of validate(), with the names of `keys` in the sentences.
Status validate(const HyperParams& params, const HyperParamKeys& keys);

}  // namespace strata
