#include "model/costs.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "model/network.h"

namespace strata {
namespace {

Cost matrices_cost(std::initializer_list<const Matrix*> matrices, std::uint64_t rows) {
  Cost cost;
  for (const Matrix* m : matrices) {
    cost.bytes += double(m->rows) * double(m->row_bytes);
    cost.macs += double(rows) * m->rows * m->cols;
  }
  return cost;
}

}  // namespace

Cost embed_cost(const Matrix& embedding, std::uint64_t rows) {
  return {.bytes = double(rows) * double(embedding.row_bytes), .macs = 0};
}

Cost ngram_cost(const NgramWeights& weights, std::uint64_t rows) {
  return matrices_cost({&weights.key, &weights.value}, rows);
}

Cost residual_cost(const ResidualWeights& weights, std::uint64_t rows) {
  return matrices_cost({&weights.down, &weights.up, &weights.inject}, rows);
}

Cost delta_net_cost(const DeltaNetWeights& w, std::uint64_t rows, std::uint64_t sequences) {
  Cost cost = matrices_cost({&w.qkv, &w.gate, &w.alpha, &w.beta, &w.out}, rows);
  cost.bytes += 2.0 * sizeof(float) * double(sequences) * w.shape.value_heads * w.shape.key_dim *
                w.shape.value_dim;
  return cost;
}

Cost attention_cost(const AttentionWeights& w, std::uint64_t rows) {
  return matrices_cost({&w.q, &w.k, &w.v, &w.out, &w.index_q, &w.index_k}, rows);
}

Cost experts_cost(const ExpertsWeights& w, std::uint64_t rows) {
  Cost cost = matrices_cost({&w.router, &w.shared_gate, &w.shared_up, &w.shared_down}, rows);
  const double count = w.gate.count;
  const double met = count * (1 - std::pow(1 - w.shape.used / count, double(rows)));
  for (const ExpertMatrices* m : {&w.gate, &w.up, &w.down}) {
    cost.bytes += met * m->first.rows * double(m->first.row_bytes);
    cost.macs += double(rows) * w.shape.used * m->first.rows * m->first.cols;
  }
  return cost;
}

Cost head_cost(const ResidualWeights& mixer, const Matrix& head, std::uint64_t rows) {
  if (rows == 0) return {};
  Cost cost = residual_cost(mixer, rows);
  cost += matrices_cost({&head}, rows);
  return cost;
}

std::uint64_t attended_cells(const AttentionShape& shape, std::uint64_t cells) {
  if (shape.block == 0 || cells < std::uint64_t{shape.budget} + shape.block) return cells;
  return shape.budget + cells % shape.block;
}

double attention_cell_bytes(const AttentionShape& shape, KvType type, std::uint64_t attended,
                            std::uint64_t cells) {
  const std::size_t head =
      cell_bytes(key_format(type), shape.head_dim) + cell_bytes(value_format(type), shape.head_dim);
  const std::uint64_t blocks = shape.block > 0 ? cells / shape.block : 0;
  return double(attended) * double(shape.kv_heads * head) +
         double(blocks) * shape.indexer_dim * sizeof(float);
}

Cost token_cost(const Network& network) {
  Cost cost = embed_cost(network.embedding, 1);
  for (const Block& block : network.blocks) {
    if (block.ngram) cost += ngram_cost(*block.ngram, 1);
    cost += residual_cost(block.attention_residual, 1);
    cost += residual_cost(block.experts_residual, 1);
    if (block.kind == LayerKind::gdn)
      cost += delta_net_cost(block.delta_net, 1, 1);
    else
      cost += attention_cost(block.attention, 1);
    cost += experts_cost(block.experts, 1);
  }
  cost += head_cost(network.mixer, network.head, 1);
  return cost;
}

}  // namespace strata
