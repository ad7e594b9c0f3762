// What the operations of a window cost: bytes of weights and states that must be moved, and
// multiply-accumulates of matrices. Arithmetic of attention scores, of the delta net's recurrence
// and of norms is not counted, nor are activations, which stay in caches.
#pragma once

#include <cstdint>

#include "compute/kv_type.h"
#include "compute/weights.h"

namespace strata {

struct Network;

struct Cost {
  double bytes = 0;
  double macs = 0;
  Cost& operator+=(const Cost& other) {
    bytes += other.bytes;
    macs += other.macs;
    return *this;
  }
};

// Each weight is read once a window of `rows` token rows.
Cost embed_cost(const Matrix& embedding, std::uint64_t rows);  // rows of the table
Cost ngram_cost(const NgramWeights& weights, std::uint64_t rows);
Cost residual_cost(const ResidualWeights& weights, std::uint64_t rows);
// The recurrent state of each sequence is read and written, in float32.
Cost delta_net_cost(const DeltaNetWeights& weights, std::uint64_t rows, std::uint64_t sequences);
// Weights only: what cells cost depends on how they are stored and on the depth (attended_cells).
Cost attention_cost(const AttentionWeights& weights, std::uint64_t rows);
// Several rows share experts by chance: counted is what a router would meet that chooses evenly.
Cost experts_cost(const ExpertsWeights& weights, std::uint64_t rows);
// `rows` are those whose logits are wanted.
Cost head_cost(const ResidualWeights& mixer, const Matrix& head, std::uint64_t rows);

// Cells whose keys and values a row attends to, itself included, that has `cells` in its cache.
std::uint64_t attended_cells(const AttentionShape& shape, std::uint64_t cells);

// What a row reads of the caches when it attends to `attended` of `cells` cells: keys, values, and
// the indexer's keys of all blocks.
double attention_cell_bytes(const AttentionShape& shape, KvType type, std::uint64_t attended,
                            std::uint64_t cells);

// A decoded token of the trunk in an empty cache.
Cost token_cost(const Network& network);

}  // namespace strata
