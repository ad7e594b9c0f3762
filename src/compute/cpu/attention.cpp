// Sparse attention of the CPU backend: cells, indexer, selection, softmax. Each row reads keys,
// values and index keys as they stand in the cache, its own included.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "compute/cpu/backend.h"
#include "compute/cpu/math.h"

namespace strata::cpu {
namespace {

void fill_rotation(const AttentionShape& shape, std::size_t position, float* cos_sin) {
  const std::size_t half = shape.inverse_frequencies.size();
  for (std::size_t i = 0; i < half; ++i) {
    const SinCos v = sin_cos(static_cast<float>(position) * shape.inverse_frequencies[i]);
    cos_sin[i] = v.cos;
    cos_sin[half + i] = v.sin;
  }
}

// HF's rule: the best budget / block complete blocks, ties to the lower one, and the tail.
void take_whole_blocks(const AttentionShape& s, const std::vector<float>& scores, std::size_t count,
                       std::vector<std::uint32_t>& cells) {
  thread_local std::vector<std::uint32_t> order;
  order.resize(scores.size());
  std::iota(order.begin(), order.end(), 0u);
  const std::size_t best = std::min<std::size_t>(s.budget / s.block, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(best), order.end(),
                    [&](std::uint32_t a, std::uint32_t b) {
                      return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
                    });
  for (std::size_t i = 0; i < best; ++i)
    for (std::uint32_t c = 0; c < s.block; ++c) cells.push_back(order[i] * s.block + c);
  for (std::size_t c = scores.size() * s.block; c < count; ++c)
    cells.push_back(static_cast<std::uint32_t>(c));
}

// llama.cpp's rule: of all cells, each with its block's score and the tail before all others, those
// that std::partial_sort leaves in front when scores are all it compares. Which of equal cells
// these are (a block's cells are equal) is libstdc++'s choice, and the same one in llama.cpp.
void take_cell_width(const AttentionShape& s, const std::vector<float>& scores, std::size_t count,
                     std::vector<std::uint32_t>& cells) {
  const std::size_t width = std::min(count, std::size_t{s.budget} + s.block - 1);
  const auto score = [&](std::uint32_t cell) {
    const std::size_t block = cell / s.block;
    return block < scores.size() ? scores[block] : std::numeric_limits<float>::infinity();
  };
  cells.resize(count);
  std::iota(cells.begin(), cells.end(), 0u);
  std::partial_sort(cells.begin(), cells.begin() + static_cast<std::ptrdiff_t>(width), cells.end(),
                    [&](std::uint32_t a, std::uint32_t b) { return score(a) > score(b); });
  cells.resize(width);
}

}  // namespace

void CpuBackend::rotations(const AttentionShape& shape) {
  rotation_.resize(rows_, 2 * shape.inverse_frequencies.size());
  for_rows(rows_, [&](std::size_t r) {
    const Part& part = part_of(r);
    fill_rotation(shape, part.position + (r - part.first_row), rotation_.row(r));
  });
}

// rms norm in place, then rope: pairs (i, i + half).
void CpuBackend::norm_rotate(float* x, const float* gain, std::size_t n, const float* cos_sin,
                             std::size_t half) const {
  kernels_.rms_norm(x, gain, n, shape_.residual.epsilon, x);
  for (std::size_t i = 0; i < half; ++i) {
    const float c = cos_sin[i], s = cos_sin[half + i], a = x[i], b = x[i + half];
    x[i] = a * c - b * s;
    x[i + half] = b * c + a * s;
  }
}

void CpuBackend::attention(const AttentionWeights& weights, std::uint32_t layer) {
  const AttentionShape& s = weights.shape;
  const std::size_t kv = std::size_t{s.kv_heads} * s.head_dim;
  const std::size_t q = std::size_t{s.heads} * s.head_dim;
  a_.resize(rows_, 2 * q);
  b_.resize(rows_, kv);
  c_.resize(rows_, kv);
  e_.resize(rows_, q);
  Pointers mixed, queries, keys, values, index_q, index_k, gated, y;
  point(mixed, mixed_, rows_);
  point(queries, a_, rows_);
  point(keys, b_, rows_);
  point(values, c_, rows_);
  ByteInputs bytes =
      quantize(std::array{weights.q, weights.k, weights.v}, mixed.data(), rows_, bytes_mixed_);
  std::vector<Product> products = {{weights.q, mixed.data(), queries.data(), rows_, bytes},
                                   {weights.k, mixed.data(), keys.data(), rows_, bytes},
                                   {weights.v, mixed.data(), values.data(), rows_, bytes}};
  if (s.block > 0) {
    index_q_.resize(rows_, std::size_t{s.indexer_heads} * s.indexer_dim);
    index_k_.resize(rows_, s.indexer_dim);
    point(index_q, index_q_, rows_);
    point(index_k, index_k_, rows_);
    products.push_back({weights.index_q, mixed.data(), index_q.data(), rows_});
    products.push_back({weights.index_k, mixed.data(), index_k.data(), rows_});
  }
  multiply(products);
  rotations(s);
  for (const Part& part : parts_) {
    store_cells(weights, part, part.state->layer(layer));
    if (s.block > 0) store_block_keys(weights, part, part.state->layer(layer));
  }
  pool_.run(rows_, [&](std::size_t r) {
    const Part& part = part_of(r);
    select(weights, part, part.state->layer(layer), r);
  });
  pool_.run(rows_ * s.heads, [&](std::size_t i) {
    const Part& part = part_of(i / s.heads);
    attend(weights, part, part.state->layer(layer), i / s.heads, i % s.heads);
  });
  point(gated, e_, rows_);
  point(y, out_, rows_);
  bytes = quantize({&weights.out, 1}, gated.data(), rows_, bytes_inner_);
  multiply(std::vector<Product>{{weights.out, gated.data(), y.data(), rows_, bytes}});
}

void CpuBackend::store_cells(const AttentionWeights& weights, const Part& part, LayerState& state) {
  const AttentionShape& s = weights.shape;
  const std::size_t half = s.rotary_dims / 2;
  for_rows(part.rows, [&](std::size_t i) {
    const std::size_t r = part.first_row + i, cell = part.position + i;
    for (std::size_t h = 0; h < s.kv_heads; ++h)
      norm_rotate(b_.row(r) + h * s.head_dim, weights.k_norm.data(), s.head_dim, rotation_.row(r),
                  half);
    std::memcpy(state.keys.row(cell), b_.row(r), b_.width * sizeof(float));
    std::memcpy(state.values.row(cell), c_.row(r), c_.width * sizeof(float));
  });
}

// Raw index keys wait in the ring until their block is complete; its mean is normed and rotated at
// the block's first cell.
void CpuBackend::store_block_keys(const AttentionWeights& weights, const Part& part,
                                  LayerState& state) {
  const AttentionShape& s = weights.shape;
  std::vector<float>& rotation = block_rotation_;
  for (std::size_t i = 0; i < part.rows; ++i) {
    const std::size_t cell = part.position + i;
    std::memcpy(state.raw_index_keys.row(cell), index_k_.row(part.first_row + i),
                s.indexer_dim * sizeof(float));
    if ((cell + 1) % s.block != 0) continue;
    const std::size_t first = cell + 1 - s.block;
    float* key = state.block_keys.row(first / s.block);
    std::memset(key, 0, s.indexer_dim * sizeof(float));
    for (std::size_t c = first; c <= cell; ++c)
      kernels_.add_scaled(key, state.raw_index_keys.row(c), 1.0f, s.indexer_dim);
    for (std::size_t d = 0; d < s.indexer_dim; ++d) key[d] /= static_cast<float>(s.block);
    rotation.resize(2 * s.inverse_frequencies.size());
    fill_rotation(s, first, rotation.data());
    norm_rotate(key, weights.index_k_norm.data(), s.indexer_dim, rotation.data(),
                s.rotary_dims / 2);
  }
}

// selected_[row]: the cells the row attends to, ascending; empty means all up to its own.
void CpuBackend::select(const AttentionWeights& weights, const Part& part, LayerState& state,
                        std::size_t row) {
  const AttentionShape& s = weights.shape;
  std::vector<std::uint32_t>& cells = selected_[row];
  cells.clear();
  const std::size_t count = part.position + (row - part.first_row) + 1;
  if (s.block == 0 || count < std::size_t{s.budget} + s.block) return;
  float* query = index_q_.row(row);
  for (std::size_t a = 0; a < s.indexer_heads; ++a)
    norm_rotate(query + a * s.indexer_dim, weights.index_q_norm.data(), s.indexer_dim,
                rotation_.row(row), s.rotary_dims / 2);

  thread_local std::vector<float> scores;
  scores.assign(count / s.block, 0.0f);
  for (std::size_t b = 0; b < scores.size(); ++b) {
    for (std::size_t a = 0; a < s.indexer_heads; ++a)
      scores[b] += std::max(
          0.0f, kernels_.dot(query + a * s.indexer_dim, state.block_keys.row(b), s.indexer_dim));
  }
  if (s.rule == SelectionRule::cell_width) {
    take_cell_width(s, scores, count, cells);
  } else {
    take_whole_blocks(s, scores, count, cells);
  }
  std::sort(cells.begin(), cells.end());
}

void CpuBackend::attend(const AttentionWeights& weights, const Part& part, LayerState& state,
                        std::size_t row, std::size_t head) {
  const AttentionShape& s = weights.shape;
  struct Scratch {
    std::vector<float> scores;
    std::vector<const float*> rows;
  };
  thread_local Scratch scratch;
  const std::vector<std::uint32_t>& cells = selected_[row];
  const std::size_t visible = part.position + (row - part.first_row) + 1;
  const std::size_t count = cells.empty() ? visible : cells.size();
  const std::size_t at = head / (s.heads / s.kv_heads) * s.head_dim;
  float* query = a_.row(row) + head * 2 * s.head_dim;
  norm_rotate(query, weights.q_norm.data(), s.head_dim, rotation_.row(row), s.rotary_dims / 2);
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
  scratch.scores.resize(count);
  scratch.rows.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t cell = cells.empty() ? i : cells[i];
    scratch.scores[i] = kernels_.dot(query, state.keys.row(cell) + at, s.head_dim) * scale;
    scratch.rows[i] = state.values.row(cell) + at;
  }
  kernels_.softmax(scratch.scores.data(), count);
  float* out = e_.row(row) + head * s.head_dim;
  kernels_.weighted_rows(scratch.scores.data(), scratch.rows.data(), count, s.head_dim, out);
  kernels_.sigmoid_product(out, query + s.head_dim, s.head_dim);
}

}  // namespace strata::cpu
