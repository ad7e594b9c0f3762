// Sparse attention of the CPU backend: cells, indexer, selection, softmax. Each row reads keys,
// values and index keys as they stand in the cache, its own included.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

#include "compute/cpu/backend.h"
#include "compute/cpu/cells.h"

namespace strata::cpu {
namespace {

constexpr std::size_t kScorePiece = 512;  // of the indexer's blocks, for one thread

// HF's rule: the best budget / block complete blocks, ties to the lower one, and the tail;
// ascending.
void take_whole_blocks(const AttentionShape& s, std::span<const float> scores, std::size_t count,
                       std::vector<std::uint32_t>& cells) {
  thread_local std::vector<float> order;
  const std::size_t best = std::min<std::size_t>(s.budget / s.block, scores.size());
  float least = -1;       // what is above is taken: scores are 0 or more, and no NaN
  std::size_t equal = 0;  // so many of those that have it are taken too
  if (best < scores.size()) {
    order.assign(scores.begin(), scores.end());
    const auto last = order.begin() + static_cast<std::ptrdiff_t>(best);
    std::nth_element(order.begin(), last, order.end(), std::greater<>());
    least = best > 0 ? *std::min_element(order.begin(), last) : std::numeric_limits<float>::max();
    const auto above = std::count_if(order.begin(), last, [&](float v) { return v > least; });
    equal = best - static_cast<std::size_t>(above);
  }
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] < least || (scores[i] == least && equal == 0)) continue;
    if (scores[i] == least) --equal;
    for (std::uint32_t c = 0; c < s.block; ++c)
      cells.push_back(static_cast<std::uint32_t>(i * s.block + c));
  }
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
  std::sort(cells.begin(), cells.end());
}

}  // namespace

void CpuBackend::fill_rotation(const AttentionShape& shape, std::size_t position,
                               float* cos_sin) const {
  kernels_.rotation(static_cast<float>(position), shape.inverse_frequencies.data(),
                    shape.inverse_frequencies.size(), shape.rotation_factor, cos_sin);
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

// Projections of the rows (of keys and values only, if there are no queries), and their cells.
void CpuBackend::attention_inputs(const AttentionWeights& weights, std::uint32_t layer,
                                  bool with_queries) {
  const AttentionShape& s = weights.shape;
  const std::size_t kv = std::size_t{s.kv_heads} * s.head_dim;
  b_.resize(rows_, kv);
  c_.resize(rows_, kv);
  const ByteInputs bytes =
      quantize_later(std::array{weights.k, weights.v, with_queries ? weights.q : weights.k}, mixed_,
                     rows_, bytes_mixed_);
  rotation_.resize(rows_, 2 * s.inverse_frequencies.size());
  const AttentionWeights* const w = &weights;
  then(4, [this, w](std::size_t r) { fill_rotation(w->shape, visible(r) - 1, rotation_.row(r)); });
  row_products_.clear();
  row_products_.push_back({weights.k, mixed_, b_, bytes});
  row_products_.push_back({weights.v, mixed_, c_, bytes});
  if (with_queries) {
    a_.resize(rows_, 2 * std::size_t{s.heads} * s.head_dim);
    row_products_.push_back({weights.q, mixed_, a_, bytes});
  }
  if (s.block > 0) {
    index_k_.resize(rows_, s.indexer_dim);
    row_products_.push_back({weights.index_k, mixed_, index_k_});
    if (with_queries) {
      index_q_.resize(rows_, std::size_t{s.indexer_heads} * s.indexer_dim);
      row_products_.push_back({weights.index_q, mixed_, index_q_});
    }
  }
  project(row_products_, 0, rows_);
  then(2, [this, w, layer, with_queries](std::size_t r) {
    store_cell(*w, layer, r);
    if (with_queries) prepare_queries(*w, r);
  });
  if (whole_parts_) {
    then(1, [this, w, layer](std::size_t begin, std::size_t end) {
      each_part(begin, end, [&](const Part& part) { store_block_keys(*w, part, layer); });
    });
    return;
  }
  flush();
  for (const Part& part : parts_) store_block_keys(weights, part, layer);
}

void CpuBackend::attention_cells(const AttentionWeights& weights, std::uint32_t layer) {
  attention_inputs(weights, layer, false);
}

void CpuBackend::attention(const AttentionWeights& weights, std::uint32_t layer) {
  const AttentionShape& s = weights.shape;
  attention_inputs(weights, layer, true);
  e_.resize(rows_, std::size_t{s.heads} * s.head_dim);
  bool any_selects = false;
  for (const Part& part : parts_)
    any_selects = any_selects || selects(s, part.first_row + part.rows - 1);
  if (whole_parts_ && !any_selects) {
    const AttentionWeights* const w = &weights;
    then(1, [this, w, layer](std::size_t begin, std::size_t end) {
      each_part(begin, end, [&](const Part& part) { attend_part(*w, layer, part); });
    });
  } else {
    flush();
    attend_all(weights, layer);
  }
  const ByteInputs bytes = quantize_later({&weights.out, 1}, e_, rows_, bytes_inner_);
  project({{weights.out, e_, out_, bytes}});
}

// All rows of the window, all threads together.
void CpuBackend::attend_all(const AttentionWeights& weights, std::uint32_t layer) {
  const AttentionShape& s = weights.shape;
  // Blocks of rows of one part.
  row_blocks_.clear();
  for (std::uint32_t p = 0; p < parts_.size(); ++p)
    for (std::size_t i = 0; i < parts_[p].rows; i += kAttentionRows)
      row_blocks_.push_back(
          {p, parts_[p].first_row + i, std::min(kAttentionRows, parts_[p].rows - i)});
  select(weights, layer);
  // Where there are more threads than blocks, they divide the heads.
  const std::size_t tasks = row_blocks_.size() * s.kv_heads, group = s.heads / s.kv_heads;
  const std::size_t splits = std::clamp<std::size_t>(pool_.threads() / tasks, 1, group);
  pool_.run_near(tasks * splits, [&](std::size_t i) {
    const std::size_t split = i % splits, task = i / splits;
    attend(weights, layer, row_blocks_[task / s.kv_heads],
           {task % s.kv_heads, group * split / splits, group * (split + 1) / splits});
  });
}

// A part whose rows see all cells, on one thread.
void CpuBackend::attend_part(const AttentionWeights& weights, std::uint32_t layer,
                             const Part& part) {
  const AttentionShape& s = weights.shape;
  for (std::size_t i = 0; i < part.rows; ++i) selected_[part.first_row + i].clear();
  for (std::size_t i = 0; i < part.rows; i += kAttentionRows) {
    const RowBlock block{static_cast<std::uint32_t>(row_part_[part.first_row]), part.first_row + i,
                         std::min(kAttentionRows, part.rows - i)};
    for (std::size_t h = 0; h < s.kv_heads; ++h)
      attend(weights, layer, block, {h, 0, s.heads / s.kv_heads});
  }
}

void CpuBackend::store_cell(const AttentionWeights& weights, std::uint32_t layer, std::size_t row) {
  const AttentionShape& s = weights.shape;
  CellPages& cells = part_of(row).state->cells();
  const std::size_t cell = visible(row) - 1;
  for (std::size_t h = 0; h < s.kv_heads; ++h)
    norm_rotate(b_.row(row) + h * s.head_dim, weights.k_norm.data(), s.head_dim, rotation_.row(row),
                s.rotary_dims / 2);
  const auto store = [&](CellFormat format, float* head, std::byte* into) {
    if (is_turned(format)) kernels_.turn_head(head, s.head_dim);
    store_head(format, head, s.head_dim, into);
  };
  for (std::size_t h = 0; h < s.kv_heads; ++h) {
    store(key_format(shape_.kv_type), b_.row(row) + h * s.head_dim, cells.key(layer, cell, h));
    store(value_format(shape_.kv_type), c_.row(row) + h * s.head_dim, cells.value(layer, cell, h));
  }
}

// Raw index keys wait in the ring until their block is complete; its mean is normed and rotated at
// the block's first cell.
void CpuBackend::store_block_keys(const AttentionWeights& weights, const Part& part,
                                  std::uint32_t layer) {
  const AttentionShape& s = weights.shape;
  if (s.block == 0) return;
  RowRing& raw = part.state->layer(layer).raw_index_keys;
  thread_local std::vector<float> rotation;
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

std::size_t CpuBackend::visible(std::size_t row) const {
  const Part& part = part_of(row);
  return part.position + (row - part.first_row) + 1;
}

// Norm and rotation of a row's queries, and of its indexer's where it has to select.
void CpuBackend::prepare_queries(const AttentionWeights& weights, std::size_t row) {
  const AttentionShape& s = weights.shape;
  for (std::size_t h = 0; h < s.heads; ++h) {
    float* query = a_.row(row) + h * 2 * s.head_dim;
    norm_rotate(query, weights.q_norm.data(), s.head_dim, rotation_.row(row), s.rotary_dims / 2);
    if (is_turned(key_format(shape_.kv_type))) kernels_.turn_head(query, s.head_dim);
  }
  if (!selects(s, row)) return;
  for (std::size_t h = 0; h < s.indexer_heads; ++h)
    norm_rotate(index_q_.row(row) + h * s.indexer_dim, weights.index_q_norm.data(), s.indexer_dim,
                rotation_.row(row), s.rotary_dims / 2);
}

// selected_[row]: the cells the row attends to, ascending; empty means all up to its own. A few
// blocks of rows at a time: first all threads score their indexer's blocks, then they select.
void CpuBackend::select(const AttentionWeights& weights, std::uint32_t layer) {
  const AttentionShape& s = weights.shape;
  const std::size_t batch = score_batch();
  for (std::size_t first = 0; first < row_blocks_.size(); first += batch) {
    const std::size_t count = std::min(batch, row_blocks_.size() - first);
    std::size_t most = 0;  // the indexer's blocks of any of these rows
    for (std::size_t i = first; i < first + count; ++i) {
      const RowBlock& block = row_blocks_[i];
      for (std::size_t r = block.row; r < block.row + block.rows; ++r) {
        selected_[r].clear();
        if (selects(s, r)) most = std::max(most, visible(r) / s.block);
      }
    }
    if (most == 0) continue;
    const std::size_t pieces = (most + kScorePiece - 1) / kScorePiece;
    pool_.run(count * pieces, [&](std::size_t i) {
      score_piece(weights, layer, first, i / pieces, i % pieces * kScorePiece);
    });
    pool_.run(count * kAttentionRows, [&](std::size_t i) {
      const RowBlock& block = row_blocks_[first + i / kAttentionRows];
      const std::size_t row = block.row + i % kAttentionRows;
      if (row >= block.row + block.rows || !selects(s, row)) return;
      const std::size_t cells = visible(row);
      const std::span<const float> scores(index_scores_.row(i), cells / s.block);
      if (s.rule == SelectionRule::cell_width) {
        take_cell_width(s, scores, cells, selected_[row]);
      } else {
        take_whole_blocks(s, scores, cells, selected_[row]);
      }
    });
  }
}

// Scores of up to kScorePiece of the indexer's blocks, from `from` on, for the rows of block
// `number` of the batch that begins at block `first`: a sum over the indexer's heads.
void CpuBackend::score_piece(const AttentionWeights& weights, std::uint32_t layer,
                             std::size_t first, std::size_t number, std::size_t from) {
  const AttentionShape& s = weights.shape;
  struct Scratch {
    std::vector<float> dots;
    std::vector<const float*> queries;
    std::vector<float*> places;
    std::vector<const std::byte*> keys;
  };
  thread_local Scratch scratch;
  const RowBlock& block = row_blocks_[first + number];
  CellPages& stored = parts_[block.part].state->cells();
  scratch.queries.clear();
  std::size_t rows[kAttentionRows] = {}, row_count = 0, end = from;
  for (std::size_t r = block.row; r < block.row + block.rows; ++r) {
    if (!selects(s, r)) continue;
    rows[row_count++] = r;
    end = std::max(end, std::min(visible(r) / s.block, from + kScorePiece));
    for (std::size_t a = 0; a < s.indexer_heads; ++a)
      scratch.queries.push_back(index_q_.row(r) + a * s.indexer_dim);
  }
  if (end == from) return;
  const std::size_t count = end - from, width = padded(count);
  scratch.dots.resize(scratch.queries.size() * width);
  scratch.places.resize(scratch.queries.size());
  for (std::size_t q = 0; q < scratch.places.size(); ++q)
    scratch.places[q] = scratch.dots.data() + q * width;
  scratch.keys.resize(count);
  for (std::size_t i = 0; i < count; ++i)
    scratch.keys[i] = reinterpret_cast<const std::byte*>(stored.block_key(layer, from + i));
  kernels_.score_cells(CellFormat::f32, scratch.keys.data(), count, s.indexer_dim,
                       scratch.queries.data(), scratch.queries.size(), 1.0f, scratch.places.data());
  for (std::size_t n = 0; n < row_count; ++n) {
    float* scores = index_scores_.row(number * kAttentionRows + (rows[n] - block.row)) + from;
    std::fill_n(scores, count, 0.0f);
    for (std::size_t a = 0; a < s.indexer_heads; ++a) {
      const float* dots = scratch.places[n * s.indexer_heads + a];
      for (std::size_t i = 0; i < count; ++i) scores[i] += std::max(0.0f, dots[i]);
    }
  }
}

// Some heads of one key and value head for a block of rows: scores, which rows that see everything
// make together; softmax; values.
void CpuBackend::attend(const AttentionWeights& weights, std::uint32_t layer, const RowBlock& block,
                        const HeadRange& range) {
  const AttentionShape& s = weights.shape;
  CellPages& stored = parts_[block.part].state->cells();
  struct Scratch {
    std::vector<float> scores;
    std::vector<const float*> queries, weights;
    std::vector<const std::byte*> cells[kAttentionRows];
    std::vector<float*> places, out;
  };
  thread_local Scratch scratch;
  const std::size_t heads = range.end - range.begin, queries = block.rows * heads;
  const std::size_t first_head = range.kv_head * (s.heads / s.kv_heads) + range.begin;
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
  std::size_t counts[kAttentionRows] = {}, most = 0, sharing = 0;  // rows that see everything
  for (std::size_t i = 0; i < block.rows; ++i) {
    const auto& selected = selected_[block.row + i];
    counts[i] = selected.empty() ? visible(block.row + i) : selected.size();
    most = std::max(most, counts[i]);
    if (selected.empty()) ++sharing;  // the first ones
  }
  const std::size_t stride = padded(most);
  scratch.scores.resize(queries * stride);
  scratch.queries.resize(queries);
  scratch.places.resize(queries);
  scratch.out.resize(queries);
  scratch.weights.resize(heads);
  for (std::size_t q = 0; q < queries; ++q) {
    const std::size_t row = block.row + q / heads, head = first_head + q % heads;
    scratch.queries[q] = a_.row(row) + head * 2 * s.head_dim;
    scratch.places[q] = scratch.scores.data() + q * stride;
    scratch.out[q] = e_.row(row) + head * s.head_dim;
  }

  // The last of the rows that share sees what the others see, and some cells more.
  for (std::size_t i = sharing > 0 ? sharing - 1 : 0; i < block.rows; ++i) {
    const auto& selected = selected_[block.row + i];
    std::vector<const std::byte*>& keys = scratch.cells[0];
    keys.resize(counts[i]);
    for (std::size_t c = 0; c < counts[i]; ++c)
      keys[c] = stored.key(layer, selected.empty() ? c : selected[c], range.kv_head);
    const std::size_t from = i < sharing ? 0 : i * heads, to = (i + 1) * heads;
    kernels_.score_cells(key_format(shape_.kv_type), keys.data(), counts[i], s.head_dim,
                         scratch.queries.data() + from, to - from, scale,
                         scratch.places.data() + from);
  }
  for (std::size_t q = 0; q < queries; ++q) kernels_.softmax(scratch.places[q], counts[q / heads]);

  // Values, some cells at a time for all rows: what they share stays in the cache. Rows that see
  // everything need the first ones of the last such row.
  for (std::size_t i = sharing > 0 ? sharing - 1 : 0; i < block.rows; ++i) {
    const auto& selected = selected_[block.row + i];
    scratch.cells[i].resize(counts[i]);
    for (std::size_t c = 0; c < counts[i]; ++c)
      scratch.cells[i][c] = stored.value(layer, selected.empty() ? c : selected[c], range.kv_head);
  }
  constexpr std::size_t some = 32;
  for (std::size_t c = 0; c < most; c += some) {
    for (std::size_t i = 0; i < block.rows; ++i) {
      if (c >= counts[i]) continue;
      const std::size_t count = std::min(some, counts[i] - c);
      for (std::size_t h = 0; h < heads; ++h)
        scratch.weights[h] = scratch.places[i * heads + h] + c;
      const std::byte* const* cells = scratch.cells[std::max(i + 1, sharing) - 1].data() + c;
      kernels_.weigh_cells(value_format(shape_.kv_type), cells, count, counts[i] - c - count,
                           s.head_dim, scratch.weights.data(), heads,
                           scratch.out.data() + i * heads, c == 0);
    }
  }
  for (std::size_t q = 0; q < queries; ++q) {
    if (is_turned(value_format(shape_.kv_type))) kernels_.turn_head(scratch.out[q], s.head_dim);
    kernels_.sigmoid_product(scratch.out[q], scratch.queries[q] + s.head_dim, s.head_dim);
  }
}

}  // namespace strata::cpu
