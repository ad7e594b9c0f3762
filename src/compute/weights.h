// Weights as the operations of a Backend take them: views into the model file, with their shapes.
// Whoever made them keeps the bytes alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compute/expert_source.h"
#include "compute/shapes.h"
#include "gguf/tensor_type.h"

namespace strata {

// y = W x: `rows` outputs of `cols` inputs, stored output row by output row.
struct Matrix {
  TensorType type = TensorType::F32;
  std::uint32_t rows = 0, cols = 0;
  const std::byte* data = nullptr;
  std::size_t row_bytes = 0;

  bool empty() const { return data == nullptr; }
  const std::byte* row(std::size_t r) const { return data + r * row_bytes; }
};

// The same matrix of each expert. The experts lie `stride_rows` rows apart (more than first.rows
// when gate and up share one tensor).
struct ExpertMatrices {
  Matrix first;
  std::uint32_t count = 0;
  std::uint32_t stride_rows = 0;
  std::uint32_t part = 0;         // of the model's files
  std::uint64_t file_offset = 0;  // of `first`, there
  Matrix at(std::uint32_t expert) const {
    Matrix m = first;
    m.data += std::size_t{expert} * stride_rows * m.row_bytes;
    return m;
  }
  std::size_t bytes() const { return first.rows * first.row_bytes; }  // of one
  std::size_t stride_bytes() const { return std::size_t{stride_rows} * first.row_bytes; }
};

using Vector = std::span<const float>;

// Gated residual (hyper-connection): reads the streams into one vector, and gates the write back.
struct ResidualWeights {
  Vector norm;    // [streams * hidden]
  Matrix down;    // [rank x streams * hidden]
  Matrix up;      // [streams * hidden x rank]
  Matrix inject;  // [streams x streams * hidden]; empty in a final mixer
};

struct DeltaNetWeights {
  DeltaNetShape shape;
  Matrix qkv;      // [channels x hidden]: q, k, v rows
  Matrix gate;     // [inner x hidden]
  Vector conv;     // [channels x conv_kernel], the last tap is the newest token's
  Vector dt_bias;  // [value_heads]
  Vector a;        // [value_heads], -exp(A_log)
  Matrix alpha;    // [value_heads x hidden]
  Matrix beta;     // [value_heads x hidden]
  Vector norm;     // [value_dim]
  Matrix out;      // [hidden x inner]
};

struct AttentionWeights {
  AttentionShape shape;
  Matrix q;                           // [heads * 2 * head_dim x hidden]: per head q then gate
  Matrix k, v;                        // [kv_heads * head_dim x hidden]
  Matrix out;                         // [hidden x heads * head_dim]
  Vector q_norm, k_norm;              // [head_dim]
  Matrix index_q;                     // [indexer_heads * indexer_dim x hidden]
  Matrix index_k;                     // [indexer_dim x hidden]
  Vector index_q_norm, index_k_norm;  // [indexer_dim]
};

struct ExpertsWeights {
  ExpertsShape shape;
  Matrix router;                   // [experts x hidden]
  ExpertMatrices gate, up;         // [ff x hidden] each
  ExpertMatrices down;             // [hidden x ff] each
  ExpertSource* source = nullptr;  // where the bytes of these three come from
  std::uint32_t layer = 0;         // as the source counts
  Matrix next_router;              // of the layer behind this one; empty: none
  Vector shared_router;            // [hidden]
  Matrix shared_gate, shared_up;   // [shared_ff x hidden]
  Matrix shared_down;              // [hidden x shared_ff]
};

// What makes the draft block's input: W [norm(embedding); norm(R)] for each stream.
struct DraftWeights {
  Vector embedding_norm;  // [hidden]
  Vector hidden_norm;     // [streams * hidden], one mean over all of it
  Matrix combine;         // [hidden x 2 * hidden]: embedding half, hidden half
};

struct NgramWeights {
  NgramShape shape;
  Matrix key;                              // [streams * hidden x width]
  Matrix value;                            // [hidden x width]
  Vector norm_key, norm_query, norm_conv;  // [streams * hidden]
  Vector conv;  // [streams * hidden x conv_kernel], the last tap is the newest token's
};

}  // namespace strata
