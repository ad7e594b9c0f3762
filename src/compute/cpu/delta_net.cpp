// The recurrent parts of the CPU backend: gated delta net and n-gram injection, with the causal
// convolution they share.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "compute/cpu/backend.h"
#include "compute/cpu/math.h"

namespace strata::cpu {

// One row of a causal depthwise convolution (tap k looks (kernel - 1 - k) * dilation rows back) and
// its silu. Rows before the window come from the ring, rows before the sequence are zero.
void CpuBackend::convolve_part(const Part& part, RowRing& history, const Rows& input,
                               const Vector& taps, std::size_t kernel, std::size_t dilation,
                               std::size_t row, float* out) const {
  thread_local std::vector<const float*> rows;
  rows.resize(kernel);
  const std::size_t position = part.position + (row - part.first_row);
  const std::size_t channels = taps.size() / kernel;
  for (std::size_t k = 0; k < kernel; ++k) {
    const std::size_t lag = (kernel - 1 - k) * dilation;
    if (lag > position) {
      rows[k] = zeros_.row(0);
    } else if (position - lag >= part.position) {
      rows[k] = input.row(row - lag);
    } else {
      rows[k] = history.row(position - lag);
    }
  }
  kernels_.convolve(taps.data(), kernel, rows.data(), channels, out);
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

// Convolution, norms and gates of a row.
void CpuBackend::delta_inputs(const DeltaNetWeights& weights, std::uint32_t layer,
                              std::size_t row) {
  const DeltaNetShape& s = weights.shape;
  const std::size_t queries = std::size_t{s.key_heads} * s.key_dim;
  const Part& part = part_of(row);
  float* qkv = e_.row(row);
  convolve_part(part, part.state->layer(layer).conv, a_, weights.conv, s.conv_kernel, 1, row, qkv);
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.key_dim));
  for (std::size_t h = 0; h < s.key_heads; ++h) {
    float* q = qkv + h * s.key_dim;
    kernels_.l2_norm(q, s.key_dim, scale, q);
    kernels_.l2_norm(q + queries, s.key_dim, 1.0f, q + queries);
  }
  float* decay = d_.row(row);
  kernels_.delta_gates(weights.a.data(), weights.dt_bias.data(), s.value_heads, decay,
                       decay + s.value_heads);
}

void CpuBackend::delta_net(const DeltaNetWeights& weights, std::uint32_t layer) {
  const DeltaNetShape& s = weights.shape;
  a_.resize(rows_, s.channels());
  b_.resize(rows_, s.inner());
  c_.resize(rows_, s.inner());
  d_.resize(rows_, 2 * std::size_t{s.value_heads});
  e_.resize(rows_, s.channels());
  Pointers mixed, u, z, alpha, beta, gated, y;
  ByteInputs bytes =
      quantize_later(std::array{weights.qkv, weights.gate}, mixed_, rows_, bytes_mixed_);
  point(mixed, mixed_, rows_);
  point(u, a_, rows_);
  point(z, b_, rows_);
  point(alpha, d_, rows_);
  beta = alpha;
  for (float*& p : beta) p += s.value_heads;
  multiply(std::vector<Product>{{weights.qkv, mixed.data(), u.data(), rows_, bytes},
                                {weights.gate, mixed.data(), z.data(), rows_, bytes},
                                {weights.alpha, mixed.data(), alpha.data(), rows_},
                                {weights.beta, mixed.data(), beta.data(), rows_}});
  const DeltaNetWeights* const w = &weights;
  const std::size_t threads = pool_.threads();
  const bool even = rows_ % threads == 0 || rows_ >= 4 * threads;
  if (parts_.size() == rows_ && even) {  // rows do not know of each other
    then(1, [this, w, layer](std::size_t r) {
      delta_inputs(*w, layer, r);
      for (std::size_t head = 0; head < w->shape.value_heads; ++head)
        delta_head(*w, parts_[r], layer, head);
      remember(parts_[r], parts_[r].state->layer(layer).conv, a_);
    });
  } else {
    for_rows(rows_, 1, [&](std::size_t r) { delta_inputs(weights, layer, r); });
    pool_.run_near(parts_.size() * s.value_heads, [&](std::size_t i) {
      delta_head(weights, parts_[i / s.value_heads], layer, i % s.value_heads);
    });
    for (const Part& part : parts_) {
      LayerState& state = part.state->layer(layer);
      remember(part, state.conv, a_);
      keep_inputs(s, part, state);
    }
  }
  point(gated, c_, rows_);
  point(y, out_, rows_);
  bytes = quantize_later({&weights.out, 1}, c_, rows_, bytes_inner_);
  multiply(std::vector<Product>{{weights.out, gated.data(), y.data(), rows_, bytes}});
}

namespace {

// Steps of one value head. Their inputs are copied side by side: in the window they are a row's
// width apart, which the caches and their prefetchers are bad at. Values end with whole vectors.
struct DeltaSteps {
  std::vector<float> inputs, out;
  std::vector<DeltaStep> steps;
  std::size_t stride = 0;

  void begin(const DeltaNetShape& s, std::size_t count) {
    stride = padded(s.value_dim);
    inputs.resize(count * (2 * s.key_dim + stride));
    out.resize(count * stride);
    steps.clear();
  }
  void add(const DeltaNetShape& s, const float* q, const float* k, const float* values,
           const float* gates, std::size_t head) {
    float* to = inputs.data() + steps.size() * (2 * s.key_dim + stride);
    const std::size_t key_head = head % s.key_heads * s.key_dim;
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
    kernels_.rms_norm(scratch.out.data() + (waiting + i) * stride, weights.norm.data(), s.value_dim,
                      shape_.residual.epsilon, normed.data());
    const float* z = b_.row(r) + head * s.value_dim;
    float* out = c_.row(r) + head * s.value_dim;
    if (s.output_gate == GateActivation::sigmoid) {
      std::memcpy(out, normed.data(), s.value_dim * sizeof(float));
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
  flush();
  const ResidualShape& s = shape_.residual;
  const std::size_t width = weights.key.cols;
  a_.resize(rows_, s.wide());
  c_.resize(rows_, s.hidden);
  e_.resize(rows_, s.wide());
  std::vector<const float*> embedded(rows_);
  for (std::size_t r = 0; r < rows_; ++r) embedded[r] = rows.data() + r * width;
  Pointers keys, value;
  point(keys, a_, rows_);
  point(value, c_, rows_);
  ByteInputs bytes =
      quantize(std::array{weights.key, weights.value}, embedded.data(), rows_, bytes_mixed_);
  multiply(std::vector<Product>{{weights.key, embedded.data(), keys.data(), rows_, bytes},
                                {weights.value, embedded.data(), value.data(), rows_, bytes}});
  // Some rows at a time: the second step finds what the first one made in a cache.
  for (std::size_t first = 0; first < rows_; first += kPieceRows)
    add_ngrams(weights, layer, first, std::min(kPieceRows, rows_ - first));
  for (const Part& part : parts_) remember(part, part.state->layer(layer).ngram, e_);
}

// Rows first to first + count, from the products of their keys and values in a_ and c_.
void CpuBackend::add_ngrams(const NgramWeights& weights, std::uint32_t layer, std::size_t first,
                            std::size_t count) {
  const ResidualShape& s = shape_.residual;
  for_rows(count, [&](std::size_t i) {
    const std::size_t r = first + i;
    kernels_.rms_norms(a_.row(r), weights.norm_key.data(), s.streams, s.hidden, s.epsilon,
                       a_.row(r));
    kernels_.rms_norms(wide_.row(r), weights.norm_query.data(), s.streams, s.hidden, s.epsilon,
                       normed_.row(i));
    for (std::size_t stream = 0; stream < s.streams; ++stream) {
      const std::size_t at = stream * s.hidden;
      const float *key = a_.row(r) + at, *query = normed_.row(i) + at;
      float* gated = up_.row(i) + at;
      const float z = kernels_.dot(key, query, s.hidden) / std::sqrt(static_cast<float>(s.hidden));
      const float root = std::sqrt(std::max(std::fabs(z), 1e-6f));
      const float open = sigmoid(z > 0 ? root : z < 0 ? -root : 0.0f);
      std::memset(gated, 0, s.hidden * sizeof(float));
      kernels_.add_scaled(gated, c_.row(r), open, s.hidden);
      kernels_.rms_norm(gated, weights.norm_conv.data() + at, s.hidden, s.epsilon, e_.row(r) + at);
    }
  });
  for_rows(count, [&](std::size_t i) {
    const std::size_t r = first + i;
    const Part& part = part_of(r);
    convolve_part(part, part.state->layer(layer).ngram, e_, weights.conv, weights.shape.conv_kernel,
                  weights.shape.dilation, r, normed_.row(i));
    kernels_.add_scaled(wide_.row(r), up_.row(i), 1.0f, s.wide());
    kernels_.add_scaled(wide_.row(r), normed_.row(i), 1.0f, s.wide());
  });
}

}  // namespace strata::cpu
