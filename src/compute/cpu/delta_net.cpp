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
      rows[k] = zeros_.data();
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
  if (history.rows == 0) return;
  const std::size_t kept = std::min(part.rows, history.rows);
  for (std::size_t r = part.rows - kept; r < part.rows; ++r) {
    std::memcpy(history.row(part.position + r), input.row(part.first_row + r),
                history.width * sizeof(float));
  }
}

void CpuBackend::delta_net(const DeltaNetWeights& weights, std::uint32_t layer) {
  const DeltaNetShape& s = weights.shape;
  const std::size_t queries = std::size_t{s.key_heads} * s.key_dim;
  a_.resize(rows_, s.channels());
  b_.resize(rows_, s.inner());
  c_.resize(rows_, s.inner());
  d_.resize(rows_, 2 * std::size_t{s.value_heads});
  e_.resize(rows_, s.channels());
  Pointers mixed, u, z, alpha, beta, gated, y;
  point(mixed, mixed_, rows_);
  point(u, a_, rows_);
  point(z, b_, rows_);
  point(alpha, d_, rows_);
  beta = alpha;
  for (float*& p : beta) p += s.value_heads;
  ByteInputs bytes =
      quantize(std::array{weights.qkv, weights.gate}, mixed.data(), rows_, bytes_mixed_);
  multiply(std::vector<Product>{{weights.qkv, mixed.data(), u.data(), rows_, bytes},
                                {weights.gate, mixed.data(), z.data(), rows_, bytes},
                                {weights.alpha, mixed.data(), alpha.data(), rows_},
                                {weights.beta, mixed.data(), beta.data(), rows_}});
  for_rows(rows_, [&](std::size_t r) {
    const Part& part = part_of(r);
    float* qkv = e_.row(r);
    convolve_part(part, part.state->layer(layer).conv, a_, weights.conv, s.conv_kernel, 1, r, qkv);
    const float scale = 1.0f / std::sqrt(static_cast<float>(s.key_dim));
    for (std::size_t h = 0; h < s.key_heads; ++h) {
      float* q = qkv + h * s.key_dim;
      kernels_.l2_norm(q, s.key_dim, scale, q);
      kernels_.l2_norm(q + queries, s.key_dim, 1.0f, q + queries);
    }
  });
  pool_.run(parts_.size() * s.value_heads, [&](std::size_t i) {
    delta_head(weights, parts_[i / s.value_heads], layer, i % s.value_heads);
  });
  for (const Part& part : parts_) remember(part, part.state->layer(layer).conv, a_);
  point(gated, c_, rows_);
  point(y, out_, rows_);
  bytes = quantize({&weights.out, 1}, gated.data(), rows_, bytes_inner_);
  multiply(std::vector<Product>{{weights.out, gated.data(), y.data(), rows_, bytes}});
}

// All rows of one part through one value head, in order.
void CpuBackend::delta_head(const DeltaNetWeights& weights, const Part& part, std::uint32_t layer,
                            std::size_t head) {
  const DeltaNetShape& s = weights.shape;
  const std::size_t stride = padded(s.value_dim);
  struct Scratch {
    std::vector<float> v, o, normed;
    std::vector<DeltaStep> steps;
  };
  thread_local Scratch scratch;
  scratch.v.assign(part.rows * stride, 0.0f);
  scratch.o.resize(part.rows * stride);
  scratch.normed.resize(stride);
  scratch.steps.resize(part.rows);
  float* state = part.state->layer(layer).delta.data() + head * s.key_dim * stride;
  const std::size_t queries = std::size_t{s.key_heads} * s.key_dim;
  for (std::size_t i = 0; i < part.rows; ++i) {
    const std::size_t r = part.first_row + i;
    const float* q = e_.row(r) + (head % s.key_heads) * s.key_dim;
    float* v = scratch.v.data() + i * stride;
    std::memcpy(v, e_.row(r) + 2 * queries + head * s.value_dim, s.value_dim * sizeof(float));
    const float alpha = d_.row(r)[head], beta = d_.row(r)[s.value_heads + head];
    const float decay = exp(weights.a[head] * softplus(alpha + weights.dt_bias[head]));
    scratch.steps[i] = {q, q + queries, v, decay, sigmoid(beta), scratch.o.data() + i * stride};
  }
  // The state lies slice by slice of columns, each of which fits the first cache.
  for (std::size_t column = 0; column < stride; column += kDeltaSlice) {
    const std::size_t width = std::min(kDeltaSlice, stride - column);
    kernels_.delta_steps(state + column * s.key_dim, s.key_dim, width, scratch.steps.data(),
                         part.rows);
    for (DeltaStep& step : scratch.steps) {
      step.v += width;
      step.out += width;
    }
  }
  for (std::size_t i = 0; i < part.rows; ++i) {
    const std::size_t r = part.first_row + i;
    float* normed = scratch.normed.data();
    kernels_.rms_norm(scratch.o.data() + i * stride, weights.norm.data(), s.value_dim,
                      shape_.residual.epsilon, normed);
    const float* z = b_.row(r) + head * s.value_dim;
    float* out = c_.row(r) + head * s.value_dim;
    if (s.output_gate == GateActivation::sigmoid) {
      std::memcpy(out, normed, s.value_dim * sizeof(float));
      kernels_.sigmoid_product(out, z, s.value_dim);
    } else {
      std::memcpy(out, z, s.value_dim * sizeof(float));
      kernels_.silu_product(out, normed, s.value_dim);
    }
  }
}

void CpuBackend::inject_ngram(const NgramWeights& weights, std::uint32_t layer,
                              std::span<const float> rows) {
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
  for_rows(rows_, [&](std::size_t r) {
    for (std::size_t stream = 0; stream < s.streams; ++stream) {
      const std::size_t at = stream * s.hidden;
      float *key = a_.row(r) + at, *query = normed_.row(r) + at, *gated = up_.row(r) + at;
      kernels_.rms_norm(key, weights.norm_key.data() + at, s.hidden, s.epsilon, key);
      kernels_.rms_norm(wide_.row(r) + at, weights.norm_query.data() + at, s.hidden, s.epsilon,
                        query);
      const float z = kernels_.dot(key, query, s.hidden) / std::sqrt(static_cast<float>(s.hidden));
      const float root = std::sqrt(std::max(std::fabs(z), 1e-6f));
      const float open = sigmoid(z > 0 ? root : z < 0 ? -root : 0.0f);
      std::memset(gated, 0, s.hidden * sizeof(float));
      kernels_.add_scaled(gated, c_.row(r), open, s.hidden);
      kernels_.rms_norm(gated, weights.norm_conv.data() + at, s.hidden, s.epsilon, e_.row(r) + at);
    }
  });
  for_rows(rows_, [&](std::size_t r) {
    const Part& part = part_of(r);
    convolve_part(part, part.state->layer(layer).ngram, e_, weights.conv, weights.shape.conv_kernel,
                  weights.shape.dilation, r, a_.row(r));
    kernels_.add_scaled(wide_.row(r), up_.row(r), 1.0f, s.wide());
    kernels_.add_scaled(wide_.row(r), a_.row(r), 1.0f, s.wide());
  });
  for (const Part& part : parts_) remember(part, part.state->layer(layer).ngram, e_);
}

}  // namespace strata::cpu
