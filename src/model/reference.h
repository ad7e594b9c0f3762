// The slow, obvious forward pass: one token at a time, float32 values, sums in double, no Backend.
// It is the oracle of every fast path (agrees with HF transformers' qwen4_exp; tests/model) and the
// text to read to learn the network. Formulas: HF modeling_qwen4_exp, spec model.md section 3.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "model/network.h"

namespace strata {

// Decoded matrices, shared by the sequences of one network. Not thread safe.
class ReferenceWeights {
 public:
  explicit ReferenceWeights(const Network& of) : network(of) {}
  // y = W x
  void multiply(const Matrix& matrix, std::span<const float> x, std::span<float> y);

  const Network& network;  // must outlive this

 private:
  std::span<const float> rows(const Matrix& matrix);  // empty when the cache is full
  std::unordered_map<const std::byte*, std::vector<float>> cache_;
  std::uint64_t cached_values_ = 0;
};

// The state of one full-attention layer: every cell, nothing dropped.
struct ReferenceCells {
  std::vector<float> keys, values;  // [cells x kv_heads * head_dim]
  std::vector<float> index_keys;    // raw, [cells x indexer_dim]
};

struct ReferenceLayerState {
  std::vector<float> conv;   // GDN: the last conv_kernel - 1 inputs, oldest first
  std::vector<float> delta;  // GDN: [value_heads x key_dim x value_dim]
  std::vector<float> ngram;  // PLE: the last history() normed rows, oldest first
  ReferenceCells cells;      // QSA
};

class ReferenceSequence {
 public:
  explicit ReferenceSequence(ReferenceWeights& weights);

  // Called with the wide residual entering layer l (l = 0 .. layers - 1), and with l = layers and
  // the final mixer's output [hidden].
  using Observer = std::function<void(std::uint32_t layer, std::span<const float> values)>;

  // Reads one more token; its logits are valid until the next call.
  Result<std::span<const float>> read(std::int32_t token, const Observer& observer = {});
  // The wide residual after the last layer, before the final mixer.
  std::span<const float> wide() const { return wide_; }
  std::uint32_t tokens() const { return static_cast<std::uint32_t>(history_.size()); }

 private:
  Status inject_ngram(const Block& block, ReferenceLayerState& state);

  ReferenceWeights& weights_;
  std::vector<ReferenceLayerState> layers_;
  std::vector<std::int32_t> history_;
  std::vector<float> wide_, logits_;
};

// The MTP block on its own cells. Copy it to try a chain and come back.
class ReferenceDraft {
 public:
  explicit ReferenceDraft(ReferenceWeights& weights) : weights_(&weights) {}

  // Cell i = cells so far: `wide` is R_i (the trunk's, or the last cell's in a chain), `next_token`
  // the token at i + 1. Logits predict the token at i + 2; valid until the next call.
  Result<std::span<const float>> cell(std::span<const float> wide, std::int32_t next_token);
  // R'' of the last cell: the `wide` of the next step of a chain.
  std::span<const float> wide() const { return wide_; }

 private:
  ReferenceWeights* weights_;
  ReferenceCells cells_;
  std::uint32_t count_ = 0;
  std::vector<float> wide_, logits_;
};

}  // namespace strata
