#include "model/reference.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "quant/quant.h"

namespace strata {
namespace {

using Values = std::vector<float>;
using View = std::span<const float>;

constexpr std::uint64_t kCacheLimit = 1ull << 30;  // decoded values kept, 4 bytes each

double dot(View a, View b) {
  double sums[4] = {};
  std::size_t i = 0;
  for (; i + 4 <= a.size(); i += 4)
    for (std::size_t j = 0; j < 4; ++j) sums[j] += double{a[i + j]} * b[i + j];
  for (; i < a.size(); ++i) sums[0] += double{a[i]} * b[i];
  return sums[0] + sums[1] + sums[2] + sums[3];
}

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
double silu(double x) {
  return x * sigmoid(x);
}
double softplus(double x) {
  return x > 30 ? x : std::log1p(std::exp(x));
}

// x / rms(x) * gain over all of x.
Values rms_norm(View x, View gain, float epsilon) {
  const double scale = 1.0 / std::sqrt(dot(x, x) / double(x.size()) + epsilon);
  Values y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = static_cast<float>(x[i] * scale * gain[i]);
  return y;
}

// One mean for each stream, gains for all of them.
Values stream_norm(View wide, View gain, const ResidualShape& shape) {
  Values y;
  y.reserve(wide.size());
  for (std::size_t s = 0; s < shape.streams; ++s) {
    const std::size_t at = s * shape.hidden;
    const Values part =
        rms_norm(wide.subspan(at, shape.hidden), gain.subspan(at, shape.hidden), shape.epsilon);
    y.insert(y.end(), part.begin(), part.end());
  }
  return y;
}

Values multiply(ReferenceWeights& weights, const Matrix& matrix, View x) {
  Values y(matrix.rows);
  weights.multiply(matrix, x, y);
  return y;
}

// --- gated residual (hyper-connections) ---------------------------------------------------------

struct Read {
  Values mixed;  // [hidden]
  Values gates;  // [streams], of the write; empty for a final mixer
};

Read read_residual(ReferenceWeights& weights, const ResidualWeights& p, View wide) {
  const ResidualShape& shape = weights.network.residual;
  const Values normed = stream_norm(wide, p.norm, shape);
  Values low = multiply(weights, p.down, normed);
  for (float& a : low) a = static_cast<float>(silu(a / double(shape.streams)));
  const Values gate = multiply(weights, p.up, low);
  Read read;
  read.mixed.resize(shape.hidden);
  for (std::size_t d = 0; d < shape.hidden; ++d) {
    double sum = 0;
    for (std::size_t s = 0; s < shape.streams; ++s) {
      const std::size_t i = s * shape.hidden + d;
      sum += sigmoid(gate[i]) * normed[i];
    }
    read.mixed[d] = static_cast<float>(sum / double(shape.streams));
  }
  if (!p.inject.empty()) {
    read.gates = multiply(weights, p.inject, normed);
    for (float& w : read.gates) w = static_cast<float>(2 * sigmoid(w / double(shape.streams)));
  }
  return read;
}

void write_residual(const ResidualShape& shape, View gates, View y, std::span<float> wide) {
  for (std::size_t s = 0; s < shape.streams; ++s)
    for (std::size_t d = 0; d < shape.hidden; ++d) wide[s * shape.hidden + d] += gates[s] * y[d];
}

// --- gated delta net ----------------------------------------------------------------------------

// Depthwise causal convolution with silu; `history` (oldest first) is moved on by one row.
Values convolve(View taps, std::size_t kernel, View input, Values& history) {
  const std::size_t channels = input.size();
  history.resize((kernel - 1) * channels, 0.0f);
  Values output(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    double sum = double{taps[c * kernel + kernel - 1]} * input[c];
    for (std::size_t k = 0; k + 1 < kernel; ++k)
      sum += double{taps[c * kernel + k]} * history[k * channels + c];
    output[c] = static_cast<float>(silu(sum));
  }
  history.insert(history.end(), input.begin(), input.end());
  history.erase(history.begin(), history.begin() + static_cast<std::ptrdiff_t>(channels));
  return output;
}

Values l2_normalized(View x, double scale) {
  const double norm = scale / std::sqrt(dot(x, x) + 1e-6);
  Values y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = static_cast<float>(x[i] * norm);
  return y;
}

// S <- decay S; S += k (beta (v - S^T k))^T; returns S^T q. `state` is [key_dim x value_dim].
Values delta_step(std::span<float> state, View q, View k, View v, double decay, double beta) {
  const std::size_t dk = q.size(), dv = v.size();
  for (float& s : state) s = static_cast<float>(s * decay);
  Values output(dv);
  for (std::size_t j = 0; j < dv; ++j) {
    double predicted = 0;
    for (std::size_t i = 0; i < dk; ++i) predicted += double{state[i * dv + j]} * k[i];
    const double delta = beta * (v[j] - predicted);
    double sum = 0;
    for (std::size_t i = 0; i < dk; ++i) {
      float& s = state[i * dv + j];
      s = static_cast<float>(s + k[i] * delta);
      sum += double{s} * q[i];
    }
    output[j] = static_cast<float>(sum);
  }
  return output;
}

Values delta_net(ReferenceWeights& weights, const DeltaNetWeights& p, View m,
                 ReferenceLayerState& state) {
  const DeltaNetShape& s = p.shape;
  const Values z = multiply(weights, p.gate, m);
  const Values alpha = multiply(weights, p.alpha, m), beta = multiply(weights, p.beta, m);
  const Values u = convolve(p.conv, s.conv_kernel, multiply(weights, p.qkv, m), state.conv);
  const View queries(u.data(), s.key_heads * s.key_dim);
  const View keys(u.data() + queries.size(), queries.size());
  const View values(u.data() + 2 * queries.size(), s.inner());
  state.delta.resize(std::size_t{s.value_heads} * s.key_dim * s.value_dim, 0.0f);

  Values gated(s.inner());
  for (std::size_t h = 0; h < s.value_heads; ++h) {
    const std::size_t head = h % s.key_heads;  // V heads are stored tiled over the K heads
    const Values q = l2_normalized(queries.subspan(head * s.key_dim, s.key_dim),
                                   1.0 / std::sqrt(double(s.key_dim)));
    const Values k = l2_normalized(keys.subspan(head * s.key_dim, s.key_dim), 1.0);
    const double decay = std::exp(p.a[h] * softplus(double{alpha[h]} + p.dt_bias[h]));
    const std::size_t size = std::size_t{s.key_dim} * s.value_dim;
    const Values o =
        delta_step(std::span(state.delta).subspan(h * size, size), q, k,
                   values.subspan(h * s.value_dim, s.value_dim), decay, sigmoid(beta[h]));
    const Values normed = rms_norm(o, p.norm, weights.network.residual.epsilon);
    for (std::size_t d = 0; d < s.value_dim; ++d) {
      const double gate = z[h * s.value_dim + d];
      const double open = s.output_gate == GateActivation::sigmoid ? sigmoid(gate) : silu(gate);
      gated[h * s.value_dim + d] = static_cast<float>(normed[d] * open);
    }
  }
  return multiply(weights, p.out, gated);
}

// --- sparse attention ---------------------------------------------------------------------------

// Rotates pairs (i, i + r/2) of the first r dimensions.
void rotate(std::span<float> x, const AttentionShape& shape, std::uint32_t position) {
  const std::size_t half = shape.inverse_frequencies.size();
  for (std::size_t i = 0; i < half; ++i) {
    const float angle = static_cast<float>(position) * shape.inverse_frequencies[i];
    const double c = std::cos(double{angle}) * shape.rotation_factor;
    const double s = std::sin(double{angle}) * shape.rotation_factor;
    const double a = x[i], b = x[i + half];
    x[i] = static_cast<float>(a * c - b * s);
    x[i + half] = static_cast<float>(b * c + a * s);
  }
}

// rms norm, then rope, of one head.
Values norm_rotate(View x, View gain, float epsilon, const AttentionShape& shape,
                   std::uint32_t position) {
  Values y = rms_norm(x, gain, epsilon);
  rotate(y, shape, position);
  return y;
}

// Score of every complete block for a query: sum over heads of relu(q . pooled key).
std::vector<double> block_scores(const AttentionWeights& p, float epsilon, const Values& queries,
                                 const Values& index_keys, std::size_t blocks) {
  const AttentionShape& s = p.shape;
  std::vector<double> scores(blocks, 0.0);
  for (std::size_t b = 0; b < blocks; ++b) {
    Values mean(s.indexer_dim);
    for (std::size_t d = 0; d < s.indexer_dim; ++d) {
      double sum = 0;
      for (std::size_t i = 0; i < s.block; ++i)
        sum += index_keys[(b * s.block + i) * s.indexer_dim + d];
      mean[d] = static_cast<float>(sum / s.block);
    }
    const Values key =
        norm_rotate(mean, p.index_k_norm, epsilon, s, static_cast<std::uint32_t>(b * s.block));
    for (std::size_t a = 0; a < s.indexer_heads; ++a)
      scores[b] += std::max(0.0, dot(View(queries).subspan(a * s.indexer_dim, s.indexer_dim), key));
  }
  return scores;
}

// llama.cpp's rule: the best `width` cells by their blocks' scores, the tail before all others.
// Which of equal cells win is what std::partial_sort makes of a comparison of scores alone.
std::vector<std::size_t> select_by_width(const AttentionShape& s, std::size_t cells,
                                         const std::vector<double>& scores) {
  std::vector<double> of_cell(cells, INFINITY);
  for (std::size_t c = 0; c < scores.size() * s.block; ++c) of_cell[c] = scores[c / s.block];
  const std::size_t width = std::min(cells, std::size_t{s.budget} + s.block - 1);
  std::vector<std::size_t> order(cells);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(width), order.end(),
                    [&](std::size_t a, std::size_t b) { return of_cell[a] > of_cell[b]; });
  order.resize(width);
  std::sort(order.begin(), order.end());
  return order;
}

// The cells the newest query attends to, ascending.
std::vector<std::size_t> select_cells(const AttentionShape& s, std::size_t cells,
                                      const std::vector<double>& scores) {
  if (s.rule == SelectionRule::cell_width) return select_by_width(s, cells, scores);
  const std::size_t blocks = scores.size(), best = s.budget / s.block;
  std::vector<std::size_t> order(blocks);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  std::vector<std::size_t> selected;
  for (std::size_t i = 0; i < std::min(best, blocks); ++i)
    for (std::size_t c = 0; c < s.block; ++c) selected.push_back(order[i] * s.block + c);
  for (std::size_t c = blocks * s.block; c < cells; ++c) selected.push_back(c);
  std::sort(selected.begin(), selected.end());
  return selected;
}

std::vector<std::size_t> visible_cells(ReferenceWeights& weights, const AttentionWeights& p, View m,
                                       ReferenceCells& cells, std::uint32_t position) {
  const AttentionShape& s = p.shape;
  const std::size_t count = position + 1;
  if (s.block > 0) {
    const Values raw = multiply(weights, p.index_k, m);
    cells.index_keys.insert(cells.index_keys.end(), raw.begin(), raw.end());
  }
  if (s.block == 0 || count < std::size_t{s.budget} + s.block) {
    std::vector<std::size_t> all(count);
    std::iota(all.begin(), all.end(), std::size_t{0});
    return all;
  }
  const float epsilon = weights.network.residual.epsilon;
  const Values projected = multiply(weights, p.index_q, m);
  Values queries;
  for (std::size_t a = 0; a < s.indexer_heads; ++a) {
    const Values q = norm_rotate(View(projected).subspan(a * s.indexer_dim, s.indexer_dim),
                                 p.index_q_norm, epsilon, s, position);
    queries.insert(queries.end(), q.begin(), q.end());
  }
  return select_cells(s, count,
                      block_scores(p, epsilon, queries, cells.index_keys, count / s.block));
}

Values attend(const AttentionShape& s, View query, const ReferenceCells& cells,
              const std::vector<std::size_t>& selected, std::size_t kv_head) {
  const std::size_t stride = std::size_t{s.kv_heads} * s.head_dim, at = kv_head * s.head_dim;
  std::vector<double> weight(selected.size());
  double top = -INFINITY, total = 0;
  for (std::size_t i = 0; i < selected.size(); ++i) {
    weight[i] = dot(query, View(cells.keys).subspan(selected[i] * stride + at, s.head_dim)) /
                std::sqrt(double(s.head_dim));
    top = std::max(top, weight[i]);
  }
  for (double& w : weight) total += (w = std::exp(w - top));
  Values output(s.head_dim);
  for (std::size_t d = 0; d < s.head_dim; ++d) {
    double sum = 0;
    for (std::size_t i = 0; i < selected.size(); ++i)
      sum += weight[i] * cells.values[selected[i] * stride + at + d];
    output[d] = static_cast<float>(sum / total);
  }
  return output;
}

Values attention(ReferenceWeights& weights, const AttentionWeights& p, View m,
                 ReferenceCells& cells, std::uint32_t position) {
  const AttentionShape& s = p.shape;
  const float epsilon = weights.network.residual.epsilon;
  const Values q = multiply(weights, p.q, m), k = multiply(weights, p.k, m),
               v = multiply(weights, p.v, m);
  for (std::size_t h = 0; h < s.kv_heads; ++h) {
    const Values key =
        norm_rotate(View(k).subspan(h * s.head_dim, s.head_dim), p.k_norm, epsilon, s, position);
    cells.keys.insert(cells.keys.end(), key.begin(), key.end());
  }
  cells.values.insert(cells.values.end(), v.begin(), v.end());
  const std::vector<std::size_t> selected = visible_cells(weights, p, m, cells, position);

  Values gated(std::size_t{s.heads} * s.head_dim);
  for (std::size_t h = 0; h < s.heads; ++h) {
    const View both = View(q).subspan(h * 2 * s.head_dim, 2 * std::size_t{s.head_dim});
    const Values query = norm_rotate(both.first(s.head_dim), p.q_norm, epsilon, s, position);
    const Values o = attend(s, query, cells, selected, h / (s.heads / s.kv_heads));
    for (std::size_t d = 0; d < s.head_dim; ++d)
      gated[h * s.head_dim + d] = static_cast<float>(o[d] * sigmoid(both[s.head_dim + d]));
  }
  return multiply(weights, p.out, gated);
}

// --- experts ------------------------------------------------------------------------------------

Values expert(ReferenceWeights& weights, const Matrix& gate, const Matrix& up, const Matrix& down,
              View m) {
  Values g = multiply(weights, gate, m);
  const Values u = multiply(weights, up, m);
  for (std::size_t i = 0; i < g.size(); ++i) g[i] = static_cast<float>(silu(g[i]) * u[i]);
  return multiply(weights, down, g);
}

Values experts(ReferenceWeights& weights, const ExpertsWeights& p, View m) {
  const Values logits = multiply(weights, p.router, m);
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  std::vector<double> probability(logits.size());
  double total = 0;
  for (std::size_t e = 0; e < logits.size(); ++e)
    total += (probability[e] = std::exp(double{logits[e]} - logits[order[0]]));
  order.resize(p.shape.used);
  double chosen = 0;
  for (const std::size_t e : order) chosen += probability[e];
  std::sort(order.begin(), order.end());

  std::vector<double> sum(m.size(), 0.0);
  for (const std::size_t e : order) {
    const auto index = static_cast<std::uint32_t>(e);
    const double weight = probability[e] / (p.shape.normalize ? chosen : total);
    const Values y = expert(weights, p.gate.at(index), p.up.at(index), p.down.at(index), m);
    for (std::size_t d = 0; d < y.size(); ++d) sum[d] += weight * y[d];
  }
  const double shared = sigmoid(dot(p.shared_router, m));
  const Values y = expert(weights, p.shared_gate, p.shared_up, p.shared_down, m);
  Values out(m.size());
  for (std::size_t d = 0; d < y.size(); ++d) out[d] = static_cast<float>(sum[d] + shared * y[d]);
  return out;
}

// --- a layer, and the pieces around it ----------------------------------------------------------

void layer(ReferenceWeights& weights, const Block& block, ReferenceLayerState& state,
           std::uint32_t position, std::span<float> wide) {
  const ResidualShape& shape = weights.network.residual;
  Read read = read_residual(weights, block.attention_residual, wide);
  const Values mixed = block.kind == LayerKind::gdn
                           ? delta_net(weights, block.delta_net, read.mixed, state)
                           : attention(weights, block.attention, read.mixed, state.cells, position);
  write_residual(shape, read.gates, mixed, wide);
  read = read_residual(weights, block.experts_residual, wide);
  write_residual(shape, read.gates, experts(weights, block.experts, read.mixed), wide);
}

Result<Values> embedding_of(const Network& network, std::int32_t token) {
  const Matrix& e = network.embedding;
  if (token < 0 || static_cast<std::uint32_t>(token) >= e.rows) {
    return fail(ErrorCode::invalid_argument, "token id {} is outside the vocabulary of {}", token,
                e.rows);
  }
  Values row(e.cols);
  STRATA_TRY(decode(e.type, {e.row(static_cast<std::size_t>(token)), e.row_bytes}, row));
  return row;
}

}  // namespace

void ReferenceWeights::multiply(const Matrix& matrix, View x, std::span<float> y) {
  const View decoded = rows(matrix);
  Values one(decoded.empty() ? matrix.cols : 0);
  for (std::size_t r = 0; r < matrix.rows; ++r) {
    View row;
    if (decoded.empty()) {
      // load_network has checked type and sizes
      (void)decode(matrix.type, {matrix.row(r), matrix.row_bytes}, one);
      row = one;
    } else {
      row = decoded.subspan(r * matrix.cols, matrix.cols);
    }
    y[r] = static_cast<float>(dot(row, x));
  }
}

View ReferenceWeights::rows(const Matrix& matrix) {
  if (const auto found = cache_.find(matrix.data); found != cache_.end()) return found->second;
  const std::uint64_t values = std::uint64_t{matrix.rows} * matrix.cols;
  if (cached_values_ + values > kCacheLimit) return {};
  Values decoded(values);
  (void)decode(matrix.type, {matrix.data, matrix.rows * matrix.row_bytes}, decoded);
  cached_values_ += values;
  return cache_.emplace(matrix.data, std::move(decoded)).first->second;
}

ReferenceSequence::ReferenceSequence(ReferenceWeights& weights)
    : weights_(weights), layers_(weights.network.blocks.size()) {}

Status ReferenceSequence::inject_ngram(const Block& block, ReferenceLayerState& state) {
  const ResidualShape& shape = weights_.network.residual;
  const NgramWeights& p = *block.ngram;
  std::vector<std::int32_t> previous(history_.rbegin() + 1, history_.rend());  // newest first
  std::vector<std::uint64_t> ids(block.ngram_hash->heads());
  block.ngram_hash->rows(history_.back(), previous, ids);
  Values e(ids.size() * block.ngram_table->width());
  STRATA_TRY(block.ngram_table->gather(ids, e));

  const Values keys = stream_norm(multiply(weights_, p.key, e), p.norm_key, shape);
  const Values value = multiply(weights_, p.value, e);
  const Values queries = stream_norm(wide_, p.norm_query, shape);
  Values gated(wide_.size());
  for (std::size_t s = 0; s < shape.streams; ++s) {
    const std::size_t at = s * shape.hidden;
    const double z =
        dot(View(keys).subspan(at, shape.hidden), View(queries).subspan(at, shape.hidden)) /
        std::sqrt(double(shape.hidden));
    const double root = std::sqrt(std::max(std::abs(z), 1e-6));
    const double a = sigmoid(z > 0 ? root : z < 0 ? -root : 0.0);
    for (std::size_t d = 0; d < shape.hidden; ++d) gated[at + d] = static_cast<float>(a * value[d]);
  }
  const Values normed = stream_norm(gated, p.norm_conv, shape);

  const std::size_t kernel = p.shape.conv_kernel, wide = wide_.size();
  state.ngram.resize(p.shape.history() * wide, 0.0f);
  for (std::size_t c = 0; c < wide; ++c) {
    double sum = double{p.conv[c * kernel + kernel - 1]} * normed[c];
    for (std::size_t k = 0; k + 1 < kernel; ++k)  // tap k looks (kernel - 1 - k) * dilation back
      sum += double{p.conv[c * kernel + k]} * state.ngram[k * p.shape.dilation * wide + c];
    wide_[c] = static_cast<float>(wide_[c] + gated[c] + silu(sum));
  }
  state.ngram.insert(state.ngram.end(), normed.begin(), normed.end());
  state.ngram.erase(state.ngram.begin(), state.ngram.begin() + static_cast<std::ptrdiff_t>(wide));
  return {};
}

Result<View> ReferenceSequence::read(std::int32_t token, const Observer& observer) {
  const Network& network = weights_.network;
  STRATA_ASSIGN(const Values embedding, embedding_of(network, token));
  const std::uint32_t position = tokens();
  history_.push_back(token);
  wide_.clear();
  for (std::size_t s = 0; s < network.residual.streams; ++s)
    wide_.insert(wide_.end(), embedding.begin(), embedding.end());
  for (std::uint32_t l = 0; l < network.blocks.size(); ++l) {
    if (observer) observer(l, wide_);
    if (network.blocks[l].ngram) STRATA_TRY(inject_ngram(network.blocks[l], layers_[l]));
    layer(weights_, network.blocks[l], layers_[l], position, wide_);
  }
  const Read last = read_residual(weights_, network.mixer, wide_);
  if (observer) observer(static_cast<std::uint32_t>(network.blocks.size()), last.mixed);
  logits_ = multiply(weights_, network.head, last.mixed);
  return View(logits_);
}

Result<View> ReferenceDraft::cell(View wide, std::int32_t next_token) {
  const Network& network = weights_->network;
  if (!network.draft) return fail(ErrorCode::unsupported, "this model has no draft (MTP) block");
  const DraftBlock& d = *network.draft;
  const ResidualShape& shape = network.residual;
  STRATA_ASSIGN(const Values embedding, embedding_of(network, next_token));
  const Values e = rms_norm(embedding, d.input.embedding_norm, shape.epsilon);
  const Values n = rms_norm(wide, d.input.hidden_norm, shape.epsilon);
  Values next;
  for (std::size_t s = 0; s < shape.streams; ++s) {
    Values both = e;
    const View stream = View(n).subspan(s * shape.hidden, shape.hidden);
    both.insert(both.end(), stream.begin(), stream.end());
    const Values combined = multiply(*weights_, d.input.combine, both);
    next.insert(next.end(), combined.begin(), combined.end());
  }
  wide_ = std::move(next);
  ReferenceLayerState state;
  std::swap(state.cells, cells_);
  layer(*weights_, d.block, state, count_++, wide_);
  std::swap(state.cells, cells_);
  logits_ = multiply(*weights_, network.head, read_residual(*weights_, d.mixer, wide_).mixed);
  return View(logits_);
}

}  // namespace strata
