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

constexpr std::size_t kAttentionRows = 4;  // rows that share the keys and values they read

void fill_rotation(const AttentionShape& shape, std::size_t position, float* cos_sin) {
  const std::size_t half = shape.inverse_frequencies.size();
  for (std::size_t i = 0; i < half; ++i) {
    const SinCos v = sin_cos(static_cast<float>(position) * shape.inverse_frequencies[i]);
    cos_sin[i] = v.cos;
    cos_sin[half + i] = v.sin;
  }
}

// HF's rule: the best budget / block complete blocks, ties to the lower one, and the tail.
void take_whole_blocks(const AttentionShape& s, std::span<const float> scores, std::size_t count,
                       std::vector<std::uint32_t>& cells) {
  thread_local std::vector<std::uint32_t> order;
  order.resize(scores.size());
  std::iota(order.begin(), order.end(), 0u);
  const std::size_t best = std::min<std::size_t>(s.budget / s.block, order.size());
  if (best < order.size())
    std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(best), order.end(),
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
void take_cell_width(const AttentionShape& s, std::span<const float> scores, std::size_t count,
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
    store_cells(weights, part, layer);
    if (s.block > 0) store_block_keys(weights, part, layer);
  }
  for_rows(rows_, [&](std::size_t r) {
    for (std::size_t h = 0; h < s.heads; ++h)
      norm_rotate(a_.row(r) + h * 2 * s.head_dim, weights.q_norm.data(), s.head_dim,
                  rotation_.row(r), s.rotary_dims / 2);
  });
  // Blocks of rows of one part.
  row_blocks_.clear();
  for (std::uint32_t p = 0; p < parts_.size(); ++p)
    for (std::size_t i = 0; i < parts_[p].rows; i += kAttentionRows)
      row_blocks_.push_back(
          {p, parts_[p].first_row + i, std::min(kAttentionRows, parts_[p].rows - i)});
  pool_.run(row_blocks_.size(), [&](std::size_t i) {
    const Part& part = parts_[row_blocks_[i].part];
    select(weights, part, layer, row_blocks_[i]);
  });
  pool_.run(row_blocks_.size() * s.kv_heads, [&](std::size_t i) {
    const RowBlock& block = row_blocks_[i / s.kv_heads];
    const Part& part = parts_[block.part];
    attend(weights, part, layer, block, i % s.kv_heads);
  });
  point(gated, e_, rows_);
  point(y, out_, rows_);
  bytes = quantize({&weights.out, 1}, gated.data(), rows_, bytes_inner_);
  multiply(std::vector<Product>{{weights.out, gated.data(), y.data(), rows_, bytes}});
}

void CpuBackend::store_cells(const AttentionWeights& weights, const Part& part,
                             std::uint32_t layer) {
  const AttentionShape& s = weights.shape;
  CellPages& cells = part.state->cells();
  const std::size_t half = s.rotary_dims / 2;
  for_rows(part.rows, [&](std::size_t i) {
    const std::size_t r = part.first_row + i, cell = part.position + i;
    for (std::size_t h = 0; h < s.kv_heads; ++h)
      norm_rotate(b_.row(r) + h * s.head_dim, weights.k_norm.data(), s.head_dim, rotation_.row(r),
                  half);
    std::memcpy(cells.key(layer, cell), b_.row(r), b_.width * sizeof(float));
    std::memcpy(cells.value(layer, cell), c_.row(r), c_.width * sizeof(float));
  });
}

// Raw index keys wait in the ring until their block is complete; its mean is normed and rotated at
// the block's first cell.
void CpuBackend::store_block_keys(const AttentionWeights& weights, const Part& part,
                                  std::uint32_t layer) {
  const AttentionShape& s = weights.shape;
  RowRing& raw = part.state->layer(layer).raw_index_keys;
  std::vector<float>& rotation = block_rotation_;
  for (std::size_t i = 0; i < part.rows; ++i) {
    const std::size_t cell = part.position + i;
    std::memcpy(raw.row(cell), index_k_.row(part.first_row + i), s.indexer_dim * sizeof(float));
    if ((cell + 1) % s.block != 0) continue;
    const std::size_t first = cell + 1 - s.block;
    float* key = part.state->cells().block_key(layer, first / s.block);
    std::memset(key, 0, s.indexer_dim * sizeof(float));
    for (std::size_t c = first; c <= cell; ++c)
      kernels_.add_scaled(key, raw.row(c), 1.0f, s.indexer_dim);
    for (std::size_t d = 0; d < s.indexer_dim; ++d) key[d] /= static_cast<float>(s.block);
    rotation.resize(2 * s.inverse_frequencies.size());
    fill_rotation(s, first, rotation.data());
    norm_rotate(key, weights.index_k_norm.data(), s.indexer_dim, rotation.data(),
                s.rotary_dims / 2);
  }
}

// selected_[row]: the cells the row attends to, ascending; empty means all up to its own.
void CpuBackend::select(const AttentionWeights& weights, const Part& part, std::uint32_t layer,
                        const RowBlock& block) {
  const AttentionShape& s = weights.shape;
  CellPages& stored = part.state->cells();
  struct Scratch {
    std::vector<float> panel, dots, scores;
    std::vector<const float*> queries;
    std::vector<float*> places;
  };
  thread_local Scratch scratch;
  scratch.queries.clear();
  const auto visible = [&](std::size_t row) { return part.position + (row - part.first_row) + 1; };
  std::size_t first = block.row + block.rows;  // the first row that has to select
  for (std::size_t r = block.row; r < block.row + block.rows; ++r) {
    selected_[r].clear();
    if (s.block == 0 || visible(r) < std::size_t{s.budget} + s.block) continue;
    first = std::min(first, r);
    for (std::size_t a = 0; a < s.indexer_heads; ++a) {
      float* query = index_q_.row(r) + a * s.indexer_dim;
      norm_rotate(query, weights.index_q_norm.data(), s.indexer_dim, rotation_.row(r),
                  s.rotary_dims / 2);
      scratch.queries.push_back(query);
    }
  }
  const std::size_t rows = block.row + block.rows - first;
  if (rows == 0) return;
  // Scores of all complete blocks, sixteen at a time, for all rows; a row's own blocks are fewer.
  const std::size_t blocks = visible(first + rows - 1) / s.block;
  const std::size_t padded_blocks = (blocks + kLanes - 1) / kLanes * kLanes;
  scratch.panel.resize(s.indexer_dim * kLanes);
  scratch.dots.resize(scratch.queries.size() * kLanes);
  scratch.scores.resize(rows * padded_blocks);
  scratch.places.resize(scratch.queries.size());
  for (std::size_t q = 0; q < scratch.places.size(); ++q)
    scratch.places[q] = scratch.dots.data() + q * kLanes;
  for (std::size_t b = 0; b < blocks; b += kLanes) {
    const float* keys[kLanes];
    for (std::size_t i = 0; i < kLanes; ++i)
      keys[i] = stored.block_key(layer, std::min(b + i, blocks - 1));
    kernels_.turn_keys(keys, s.indexer_dim, scratch.panel.data());
    kernels_.score_keys(scratch.panel.data(), s.indexer_dim, scratch.queries.data(),
                        scratch.queries.size(), 1.0f, scratch.places.data());
    for (std::size_t r = 0; r < rows; ++r) {
      float* scores = scratch.scores.data() + r * padded_blocks + b;
      std::fill_n(scores, kLanes, 0.0f);
      for (std::size_t a = 0; a < s.indexer_heads; ++a) {
        const float* dots = scratch.places[r * s.indexer_heads + a];
        for (std::size_t i = 0; i < kLanes; ++i) scores[i] += std::max(0.0f, dots[i]);
      }
    }
  }
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t count = visible(first + r);
    const std::span<const float> scores(scratch.scores.data() + r * padded_blocks, count / s.block);
    std::vector<std::uint32_t>& cells = selected_[first + r];
    if (s.rule == SelectionRule::cell_width) {
      take_cell_width(s, scores, count, cells);
    } else {
      take_whole_blocks(s, scores, count, cells);
    }
    std::sort(cells.begin(), cells.end());
  }
}

// The heads of one key and value head for a block of rows: scores of sixteen cells at a time, which
// rows that see everything share; softmax; values.
void CpuBackend::attend(const AttentionWeights& weights, const Part& part, std::uint32_t layer,
                        const RowBlock& block, std::size_t kv_head) {
  const AttentionShape& s = weights.shape;
  CellPages& stored = part.state->cells();
  struct Scratch {
    std::vector<float> scores, panel;
    std::vector<const float*> queries, values;
    std::vector<float*> places, weights, out;
  };
  thread_local Scratch scratch;
  const std::size_t group = s.heads / s.kv_heads, at = kv_head * s.head_dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
  const auto count_of = [&](std::size_t row) {
    return selected_[row].empty() ? part.position + (row - part.first_row) + 1
                                  : selected_[row].size();
  };
  const auto cell_of = [&](std::size_t row, std::size_t i) {
    return selected_[row].empty() ? i : selected_[row][i];
  };
  std::size_t most = 0;
  for (std::size_t i = 0; i < block.rows; ++i) most = std::max(most, count_of(block.row + i));
  const std::size_t stride = (most + kLanes - 1) / kLanes * kLanes;
  const std::size_t queries = block.rows * group;
  scratch.scores.resize(queries * stride);
  scratch.panel.resize(s.head_dim * kLanes);
  scratch.queries.resize(queries);
  scratch.places.resize(queries);
  for (std::size_t q = 0; q < queries; ++q)
    scratch.queries[q] =
        a_.row(block.row + q / group) + (kv_head * group + q % group) * 2 * s.head_dim;

  // Rows [first, last) have the same cells as far as they go.
  const auto score = [&](std::size_t first, std::size_t last) {
    const std::size_t end = count_of(last - 1);
    for (std::size_t c = 0; c < end; c += kLanes) {
      const float* keys[kLanes];
      for (std::size_t i = 0; i < kLanes; ++i)
        keys[i] = stored.key(layer, cell_of(last - 1, std::min(c + i, end - 1))) + at;
      kernels_.turn_keys(keys, s.head_dim, scratch.panel.data());
      std::size_t from = (first - block.row) * group;
      while (count_of(block.row + from / group) <= c) from += group;
      const std::size_t to = (last - block.row) * group;
      for (std::size_t q = from; q < to; ++q)
        scratch.places[q] = scratch.scores.data() + q * stride + c;
      kernels_.score_keys(scratch.panel.data(), s.head_dim, scratch.queries.data() + from,
                          to - from, scale, scratch.places.data() + from);
    }
  };
  std::size_t seeing_all = 0;
  while (seeing_all < block.rows && selected_[block.row + seeing_all].empty()) ++seeing_all;
  if (seeing_all > 0) score(block.row, block.row + seeing_all);
  for (std::size_t i = seeing_all; i < block.rows; ++i) score(block.row + i, block.row + i + 1);

  // Values, some dimensions at a time for all rows: what they share stays in the cache.
  constexpr std::size_t slice = 4 * kLanes;
  for (std::size_t d = 0; d < s.head_dim; d += slice) {
    for (std::size_t i = 0; i < block.rows; ++i) {
      const std::size_t row = block.row + i, count = count_of(row);
      scratch.values.resize(count);
      for (std::size_t c = 0; c < count; ++c)
        scratch.values[c] = stored.value(layer, cell_of(row, c)) + at;
      scratch.weights.resize(group);
      scratch.out.resize(group);
      for (std::size_t h = 0; h < group; ++h) {
        scratch.weights[h] = scratch.scores.data() + (i * group + h) * stride;
        scratch.out[h] = e_.row(row) + (kv_head * group + h) * s.head_dim;
        if (d == 0) kernels_.softmax(scratch.weights[h], count);
      }
      kernels_.weigh_rows(scratch.values.data(), count, d,
                          std::min<std::size_t>(d + slice, s.head_dim), scratch.weights.data(),
                          group, scratch.out.data());
    }
  }
  for (std::size_t q = 0; q < queries; ++q) {
    const std::size_t row = block.row + q / group, head = kv_head * group + q % group;
    kernels_.sigmoid_product(e_.row(row) + head * s.head_dim, scratch.queries[q] + s.head_dim,
                             s.head_dim);
  }
}

}  // namespace strata::cpu
