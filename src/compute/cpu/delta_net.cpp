// The recurrent parts of the CPU backend: gated delta net and n-gram injection, with the causal
// convolution they share.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "compute/cpu/backend.h"

namespace strata::cpu {

// Some channels of a row of a causal depthwise convolution (tap k looks (kernel - 1 - k) * dilation
// rows back) and its silu. Rows before the window come from the ring, rows before the sequence are
// zero.
void CpuBackend::convolve_part(const Part& part, RowRing& history, const Rows& input,
                               const Vector& taps, std::size_t kernel, std::size_t dilation,
                               std::size_t row, std::size_t first, std::size_t channels,
                               float* out) const {
  thread_local std::vector<const float*> rows;
  rows.resize(kernel);
  const std::size_t position = part.position + (row - part.first_row);
  for (std::size_t k = 0; k < kernel; ++k) {
    const std::size_t lag = (kernel - 1 - k) * dilation;
    if (lag > position) {
      rows[k] = zeros_.row(0);
    } else if (position - lag >= part.position) {
      rows[k] = input.row(row - lag) + first;
    } else {
      rows[k] = history.row(position - lag) + first;
    }
  }
  kernels_.convolve(taps.data() + first * kernel, kernel, rows.data(), channels, out + first);
}

// Moves the ring on to the end of the window.
void CpuBackend::remember(const Part& part, RowRing& history, const Rows& input) {
  if (history.kept == 0) return;
  const std::size_t kept = std::min(part.rows, history.kept + part.tentative);
  for (std::size_t r = part.rows - kept; r < part.rows; ++r) {
    std::memcpy(history.row(part.position + r), input.row(part.first_row + r),
                history.width * sizeof(float));
  }
}

// Convolution, norms and gates of a row: of `heads` key heads from `first` on, and of the value
// heads that go with them.
void CpuBackend::delta_inputs(const DeltaNetWeights& weights, std::uint32_t layer, std::size_t row,
                              std::size_t first, std::size_t heads) {
  const DeltaNetShape& s = weights.shape;
  const std::size_t queries = std::size_t{s.key_heads} * s.key_dim;
  const Part& part = part_of(row);
  float* qkv = e_.row(row);
  const auto convolve = [&](std::size_t channel, std::size_t count) {
    convolve_part(part, part.state->layer(layer).conv, a_, weights.conv, s.conv_kernel, 1, row,
                  channel, count, qkv);
  };
  const bool all = heads == s.key_heads;
  if (all) {
    convolve(0, s.channels());
  } else {
    convolve(first * s.key_dim, heads * s.key_dim);
    convolve(queries + first * s.key_dim, heads * s.key_dim);
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.key_dim));
  for (std::size_t h = first; h < first + heads; ++h) {
    float* q = qkv + h * s.key_dim;
    kernels_.l2_norm(q, s.key_dim, scale, q);
    kernels_.l2_norm(q + queries, s.key_dim, 1.0f, q + queries);
  }
  float* decay = d_.row(row);
  for (std::size_t h = first; h < s.value_heads; h += s.key_heads) {
    if (!all) convolve(2 * queries + h * s.value_dim, heads * s.value_dim);
    kernels_.delta_gates(weights.a.data() + h, weights.dt_bias.data() + h, heads, decay + h,
                         decay + s.value_heads + h);
  }
}

void CpuBackend::delta_net(const DeltaNetWeights& weights, std::uint32_t layer) {
  const DeltaNetShape& s = weights.shape;
  a_.resize(rows_, s.channels());
  b_.resize(rows_, s.inner());
  c_.resize(rows_, s.inner());
  d_.resize(rows_, 2 * std::size_t{s.value_heads});
  e_.resize(rows_, s.channels());
  ByteInputs bytes =
      quantize_later(std::array{weights.qkv, weights.gate}, mixed_, rows_, bytes_mixed_);
  float *alpha = d_.row(0), *beta = alpha + s.value_heads;
  project({{weights.qkv, mixed_, a_, bytes},
           {weights.gate, mixed_, b_, bytes},
           {weights.alpha, mixed_.row(0), mixed_.stride, alpha, d_.stride},
           {weights.beta, mixed_.row(0), mixed_.stride, beta, d_.stride}});
  const DeltaNetWeights* const w = &weights;
  if (whole_parts_) {
    then(1, [this, w, layer](std::size_t begin, std::size_t end) {
      each_part(begin, end, [&](const Part& part) { delta_part(*w, part, layer); });
    });
  } else {
    flush();
    delta_heads(weights, layer);
    for (const Part& part : parts_) {
      LayerState& state = part.state->layer(layer);
      remember(part, state.conv, a_);
      keep_inputs(s, part, state);
    }
  }
  bytes = quantize_later({&weights.out, 1}, c_, rows_, bytes_inner_);
  project({{weights.out, c_, out_, bytes}});
}

// All threads together. Where there are few rows, and key heads enough, one takes what goes with a
// key head through all of it.
void CpuBackend::delta_heads(const DeltaNetWeights& weights, std::uint32_t layer) {
  const std::size_t keys = weights.shape.key_heads, values = weights.shape.value_heads;
  if (few_ && keys >= 2 * pool_.threads()) {
    pool_.run_near(parts_.size() * keys, [&](std::size_t i) {
      const Part& part = parts_[i / keys];
      for (std::size_t r = 0; r < part.rows; ++r)
        delta_inputs(weights, layer, part.first_row + r, i % keys, 1);
      for (std::size_t head = i % keys; head < values; head += keys)
        delta_head(weights, part, layer, head);
    });
    return;
  }
  for_rows(rows_, 1, [&](std::size_t r) { delta_inputs(weights, layer, r, 0, keys); });
  pool_.run_near(parts_.size() * values, [&](std::size_t i) {
    delta_head(weights, parts_[i / values], layer, i % values);
  });
}

// All rows and heads of a part, on one thread.
void CpuBackend::delta_part(const DeltaNetWeights& weights, const Part& part, std::uint32_t layer) {
  for (std::size_t i = 0; i < part.rows; ++i)
    delta_inputs(weights, layer, part.first_row + i, 0, weights.shape.key_heads);
  for (std::size_t head = 0; head < weights.shape.value_heads; ++head)
    delta_head(weights, part, layer, head);
  LayerState& state = part.state->layer(layer);
  remember(part, state.conv, a_);
  keep_inputs(weights.shape, part, state);
}

namespace {

// Steps of one value head. The inputs of more than a few are copied side by side: in the window
// they are a row's width apart, which the caches and their prefetchers are bad at. Values end with
// whole vectors.
struct DeltaSteps {
  std::vector<float> inputs, out;
  std::vector<DeltaStep> steps;
  std::size_t stride = 0;
  bool copied = false;

  void begin(const DeltaNetShape& s, std::size_t count) {
    constexpr std::size_t few = 4;
    stride = padded(s.value_dim);
    copied = count > few || s.value_dim < stride;
    if (copied) inputs.resize(count * (2 * s.key_dim + stride));
    out.resize(count * stride);
    steps.clear();
  }
  void add(const DeltaNetShape& s, const float* q, const float* k, const float* values,
           const float* gates, std::size_t head) {
    const std::size_t key_head = head % s.key_heads * s.key_dim;
    if (!copied) {
      steps.push_back({q + key_head, k + key_head, values + head * s.value_dim, gates[head],
                       gates[s.value_heads + head], out.data() + steps.size() * stride});
      return;
    }
    float* to = inputs.data() + steps.size() * (2 * s.key_dim + stride);
    std::memcpy(to, q + key_head, s.key_dim * sizeof(float));
    std::memcpy(to + s.key_dim, k + key_head, s.key_dim * sizeof(float));
    float* v = to + 2 * std::size_t{s.key_dim};
    std::memcpy(v, values + head * s.value_dim, s.value_dim * sizeof(float));
    std::memset(v + s.value_dim, 0, (stride - s.value_dim) * sizeof(float));
    steps.push_back({to, to + s.key_dim, v, gates[head], gates[s.value_heads + head],
                     out.data() + steps.size() * stride});
  }
  // Rows that wait to enter the state. Their outputs were given before, so any query will do.
  void add_waiting(const DeltaNetShape& s, const LayerState& state, std::size_t count,
                   std::size_t head) {
    const DeltaInputs places(s);
    for (std::size_t i = 0; i < count; ++i) {
      const float* row = state.waiting.data() + i * places.width;
      add(s, row + places.keys, row + places.keys, row + places.values, row + places.gates, head);
    }
  }
  void next_slice(std::size_t width) {
    for (DeltaStep& step : steps) {
      step.v += width;
      step.out += width;
    }
  }
};

}  // namespace

// The state after `settled` stays; `tentative` works on a copy of it.
void CpuBackend::delta_slice(float* state, std::size_t key_dim, std::size_t width,
                             std::span<const DeltaStep> settled,
                             std::span<const DeltaStep> tentative) {
  kernels_.delta_steps(state, key_dim, width, settled.data(), settled.size());
  if (tentative.empty()) return;
  thread_local std::vector<float> copy;
  copy.assign(state, state + key_dim * width);
  kernels_.delta_steps(copy.data(), key_dim, width, tentative.data(), tentative.size());
}

// What waits of the last window, then all rows of one part, through one value head, in order. Some
// rows at a time: what they need besides the state stays in the caches.
void CpuBackend::delta_head(const DeltaNetWeights& weights, const Part& part, std::uint32_t layer,
                            std::size_t head) {
  constexpr std::size_t most = 64;
  std::size_t first = 0;
  for (; part.rows - first > most + part.tentative; first += most)
    delta_rows(weights, part, layer, head, first, most);
  delta_rows(weights, part, layer, head, first, part.rows - first);
}

// Rows first to first + count of a part; the last of them may be tentative.
void CpuBackend::delta_rows(const DeltaNetWeights& weights, const Part& part, std::uint32_t layer,
                            std::size_t head, std::size_t first, std::size_t count) {
  const DeltaNetShape& s = weights.shape;
  const std::size_t stride = padded(s.value_dim);
  const std::size_t waiting = first == 0 ? part.state->waiting() : 0;
  const std::size_t tentative = first + count == part.rows ? part.tentative : 0;
  thread_local DeltaSteps scratch;
  thread_local std::vector<float> normed;
  LayerState& layer_state = part.state->layer(layer);
  const std::size_t queries = std::size_t{s.key_heads} * s.key_dim;
  scratch.begin(s, waiting + count);
  scratch.add_waiting(s, layer_state, waiting, head);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t r = part.first_row + first + i;
    const float* qkv = e_.row(r);
    scratch.add(s, qkv, qkv + queries, qkv + 2 * queries, d_.row(r), head);
  }
  // The state lies slice by slice of columns, each of which fits the first cache.
  float* state = layer_state.delta.data() + head * s.key_dim * stride;
  for (std::size_t column = 0; column < stride; column += kDeltaSlice) {
    const std::size_t width = std::min(kDeltaSlice, stride - column);
    const std::span<const DeltaStep> steps = scratch.steps;
    delta_slice(state + column * s.key_dim, s.key_dim, width, steps.first(steps.size() - tentative),
                steps.last(tentative));
    scratch.next_slice(width);
  }
  normed.resize(stride);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t r = part.first_row + first + i;
    const float* from = scratch.out.data() + (waiting + i) * stride;
    const float* z = b_.row(r) + head * s.value_dim;
    float* out = c_.row(r) + head * s.value_dim;
    const bool sigmoid = s.output_gate == GateActivation::sigmoid;
    float* norm = sigmoid ? out : normed.data();
    kernels_.rms_norm(from, weights.norm.data(), s.value_dim, shape_.residual.epsilon, norm);
    if (sigmoid) {
      kernels_.sigmoid_product(out, z, s.value_dim);
    } else {
      std::memcpy(out, z, s.value_dim * sizeof(float));
      kernels_.silu_product(out, normed.data(), s.value_dim);
    }
  }
}

// The tentative rows' inputs, for the window that follows. After the window's products: what waited
// until now is in the state.
void CpuBackend::keep_inputs(const DeltaNetShape& s, const Part& part, LayerState& state) const {
  const DeltaInputs inputs(s);
  for (std::size_t i = 0; i < part.tentative; ++i) {
    const std::size_t r = part.first_row + part.rows - part.tentative + i;
    float* row = state.waiting.data() + i * inputs.width;
    // Keys and values lie side by side behind the queries.
    std::memcpy(row, e_.row(r) + inputs.values, inputs.gates * sizeof(float));
    std::memcpy(row + inputs.gates, d_.row(r), (inputs.width - inputs.gates) * sizeof(float));
  }
}

void CpuBackend::settle(SequenceState& state) {
  auto& sequence = static_cast<CpuSequence&>(state);
  if (sequence.waiting() == 0) return;
  for (std::uint32_t l = 0; l < shape_.layers.size(); ++l) {
    if (shape_.layers[l].attention) continue;
    const DeltaNetShape& s = shape_.layers[l].delta_net;
    const std::size_t stride = padded(s.value_dim);
    pool_.run(s.value_heads, [&](std::size_t head) {
      thread_local DeltaSteps scratch;
      scratch.begin(s, sequence.waiting());
      scratch.add_waiting(s, sequence.layer(l), sequence.waiting(), head);
      float* rows = sequence.layer(l).delta.data() + head * s.key_dim * stride;
      for (std::size_t column = 0; column < stride; column += kDeltaSlice) {
        const std::size_t width = std::min(kDeltaSlice, stride - column);
        delta_slice(rows + column * s.key_dim, s.key_dim, width, scratch.steps, {});
        scratch.next_slice(width);
      }
    });
  }
  sequence.settled();
}

void CpuBackend::inject_ngram(const NgramWeights& weights, std::uint32_t layer,
                              std::span<const float> rows) {
  if (!few_) flush();
  const ResidualShape& s = shape_.residual;
  const std::size_t width = weights.key.cols;
  a_.resize(rows_, s.wide());
  c_.resize(rows_, s.hidden);
  e_.resize(rows_, s.wide());
  const float* const x = rows.data();
  const ByteInputs bytes = room(std::array{weights.key, weights.value}, rows_, bytes_ngram_);
  then(4, [this, bytes, x, width](std::size_t r) { quantize_row(bytes, r, x + r * width, width); });
  project({{weights.key, x, width, a_.row(0), a_.stride, bytes},
           {weights.value, x, width, c_.row(0), c_.stride, bytes}});
  const NgramWeights* const w = &weights;
  if (whole_parts_) {
    then(1, [this, w, layer](std::size_t begin, std::size_t end) {
      for (std::size_t r = begin; r < end; ++r) gate_ngram(*w, r, r);
      for (std::size_t r = begin; r < end; ++r) add_ngram(*w, layer, r, r);
      each_part(begin, end,
                [&](const Part& part) { remember(part, part.state->layer(layer).ngram, e_); });
    });
    return;
  }
  flush();
  // Some rows at a time: the second step finds what the first one made in a cache.
  for (std::size_t first = 0; first < rows_; first += kPieceRows) {
    const std::size_t count = std::min(kPieceRows, rows_ - first);
    for_rows(count, [&](std::size_t i) { gate_ngram(weights, first + i, i); });
    for_rows(count, [&](std::size_t i) { add_ngram(weights, layer, first + i, i); });
  }
  for (const Part& part : parts_) remember(part, part.state->layer(layer).ngram, e_);
}

// What a row's streams let through of its value, and that normed, as the convolution wants it.
// `place` is the row's in what is shared by a few rows.
void CpuBackend::gate_ngram(const NgramWeights& weights, std::size_t row, std::size_t place) {
  const ResidualShape& s = shape_.residual;
  kernels_.rms_norms(a_.row(row), weights.norm_key.data(), s.streams, s.hidden, s.epsilon,
                     a_.row(row));
  kernels_.rms_norms(wide_.row(row), weights.norm_query.data(), s.streams, s.hidden, s.epsilon,
                     normed_.row(place));
  for (std::size_t stream = 0; stream < s.streams; ++stream) {
    const std::size_t at = stream * s.hidden;
    const float *key = a_.row(row) + at, *query = normed_.row(place) + at;
    float* gated = up_.row(place) + at;
    const float z = kernels_.dot(key, query, s.hidden) / std::sqrt(static_cast<float>(s.hidden));
    const float root = std::sqrt(std::max(std::fabs(z), 1e-6f));
    const float open = kernels_.sigmoid(z > 0 ? root : z < 0 ? -root : 0.0f);
    std::memset(gated, 0, s.hidden * sizeof(float));
    kernels_.add_scaled(gated, c_.row(row), open, s.hidden);
    kernels_.rms_norm(gated, weights.norm_conv.data() + at, s.hidden, s.epsilon, e_.row(row) + at);
  }
}

// The convolution over that, and both into the residual.
void CpuBackend::add_ngram(const NgramWeights& weights, std::uint32_t layer, std::size_t row,
                           std::size_t place) {
  const ResidualShape& s = shape_.residual;
  const Part& part = part_of(row);
  convolve_part(part, part.state->layer(layer).ngram, e_, weights.conv, weights.shape.conv_kernel,
                weights.shape.dilation, row, 0, s.wide(), normed_.row(place));
  kernels_.add_scaled(wide_.row(row), up_.row(place), 1.0f, s.wide());
  kernels_.add_scaled(wide_.row(row), normed_.row(place), 1.0f, s.wide());
}

}  // namespace strata::cpu
