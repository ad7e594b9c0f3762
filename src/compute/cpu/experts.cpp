// Routing and experts of the CPU backend. Rows are grouped by expert, so that each expert's weights
// are decoded once a window; a row's results are summed in ascending expert id, then the shared
// one.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "compute/cpu/backend.h"
#include "compute/cpu/math.h"

namespace strata::cpu {

// Fills routed_ (by expert, then row) and row_slots_ from the router's logits in d_.
void CpuBackend::route(const ExpertsWeights& weights) {
  const std::size_t used = weights.shape.used, experts = weights.router.rows;
  routed_.resize(rows_ * used);
  for_rows(rows_, [&](std::size_t r) {
    thread_local std::vector<std::uint32_t> order;
    order.resize(experts);
    std::iota(order.begin(), order.end(), 0u);
    const float* logits = d_.row(r);
    const auto middle = order.begin() + static_cast<std::ptrdiff_t>(used);
    std::partial_sort(order.begin(), middle, order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    });
    const float top = logits[order[0]];
    std::sort(order.begin(), middle);
    float chosen = 0.0f, total = 0.0f;
    for (std::size_t i = 0; i < used; ++i) chosen += exp(logits[order[i]] - top);
    if (!weights.shape.normalize)
      for (std::size_t e = 0; e < experts; ++e) total += exp(logits[e] - top);
    for (std::size_t i = 0; i < used; ++i) {
      const float weight = exp(logits[order[i]] - top) / (weights.shape.normalize ? chosen : total);
      routed_[r * used + i] = {static_cast<std::uint32_t>(r), order[i], weight};
    }
  });
  std::stable_sort(routed_.begin(), routed_.end(),
                   [](const Routed& a, const Routed& b) { return a.expert < b.expert; });
  row_slots_.resize(rows_ * used);
  slot_counts_.assign(rows_, 0);
  for (std::uint32_t slot = 0; slot < routed_.size(); ++slot) {
    const std::uint32_t row = routed_[slot].row;
    row_slots_[row * used + slot_counts_[row]++] = slot;
  }
}

void CpuBackend::experts(const ExpertsWeights& weights) {
  d_.resize(rows_, weights.router.rows);
  Pointers mixed, logits;
  point(mixed, mixed_, rows_);
  point(logits, d_, rows_);
  multiply(std::vector<Product>{{weights.router, mixed.data(), logits.data(), rows_}});
  route(weights);
  run_experts(weights);
  const std::size_t used = weights.shape.used, hidden = shape_.residual.hidden;
  for_rows(rows_, [&](std::size_t r) {
    thread_local std::vector<const std::byte*> results;  // cells of float32
    thread_local std::vector<float> shares;
    results.clear();
    shares.clear();
    for (std::size_t i = 0; i < used; ++i) {
      const std::uint32_t slot = row_slots_[r * used + i];
      results.push_back(reinterpret_cast<const std::byte*>(expert_out_.row(slot)));
      shares.push_back(routed_[slot].weight);
    }
    results.push_back(reinterpret_cast<const std::byte*>(c_.row(r)));
    shares.push_back(sigmoid(kernels_.dot(weights.shared_router.data(), mixed_.row(r), hidden)));
    const float* weight = shares.data();
    float* y = out_.row(r);
    kernels_.weigh_cells(CellFormat::f32, results.data(), results.size(), 0, hidden, &weight, 1, &y,
                         true);
  });
}

// Calls body(expert, first slot, slots) for every expert that has rows, ascending.
template <class Body>
void CpuBackend::for_experts(const Body& body) const {
  for (std::size_t i = 0; i < routed_.size();) {
    std::size_t end = i;
    while (end < routed_.size() && routed_[end].expert == routed_[i].expert) ++end;
    body(routed_[i].expert, i, end - i);
    i = end;
  }
}

// Routed experts into expert_out_, the shared one into c_.
void CpuBackend::run_experts(const ExpertsWeights& weights) {
  const std::size_t slots = routed_.size();
  expert_hidden_.resize(slots, weights.gate.first.rows);
  expert_up_.resize(slots, weights.gate.first.rows);
  expert_out_.resize(slots, shape_.residual.hidden);
  a_.resize(rows_, weights.shared_gate.rows);
  b_.resize(rows_, weights.shared_gate.rows);
  c_.resize(rows_, shape_.residual.hidden);
  Pointers mixed, shared_gate, shared_up, shared_out, input(slots), gate, up, out;
  point(mixed, mixed_, rows_);
  point(shared_gate, a_, rows_);
  point(shared_up, b_, rows_);
  point(shared_out, c_, rows_);
  point(gate, expert_hidden_, slots);
  point(up, expert_up_, slots);
  point(out, expert_out_, slots);
  for (std::size_t i = 0; i < slots; ++i) input[i] = mixed_.row(routed_[i].row);

  const ByteInputs bytes = quantize(
      std::array{weights.shared_gate, weights.shared_up, weights.gate.first, weights.up.first},
      mixed.data(), rows_, bytes_mixed_);
  // The same rows once more, in the order of the slots.
  std::vector<QuantizedRow> slot_rows[kBlockKinds];
  ByteInputs slot_bytes;
  for (std::size_t kind = 0; kind < kBlockKinds; ++kind) {
    if (!bytes.of[kind]) continue;
    for (const Routed& routed : routed_) slot_rows[kind].push_back(bytes.of[kind][routed.row]);
    slot_bytes.of[kind] = slot_rows[kind].data();
  }
  std::vector<Product> first = {
      {weights.shared_gate, mixed.data(), shared_gate.data(), rows_, bytes},
      {weights.shared_up, mixed.data(), shared_up.data(), rows_, bytes}};
  for_experts([&](std::uint32_t expert, std::size_t i, std::size_t count) {
    const ByteInputs inputs = slot_bytes.from(i);
    first.push_back({weights.gate.at(expert), &input[i], &gate[i], count, inputs});
    first.push_back({weights.up.at(expert), &input[i], &up[i], count, inputs});
  });
  multiply(first);
  for_rows(slots + rows_, [&](std::size_t i) {
    if (i < slots) {
      kernels_.silu_product(expert_hidden_.row(i), expert_up_.row(i), expert_up_.width);
    } else {
      kernels_.silu_product(a_.row(i - slots), b_.row(i - slots), a_.width);
    }
  });
  const ByteInputs hidden = quantize({&weights.down.first, 1}, gate.data(), slots, bytes_hidden_);
  const ByteInputs shared =
      quantize({&weights.shared_down, 1}, shared_gate.data(), rows_, bytes_shared_);
  std::vector<Product> second = {
      {weights.shared_down, shared_gate.data(), shared_out.data(), rows_, shared}};
  for_experts([&](std::uint32_t expert, std::size_t i, std::size_t count) {
    second.push_back({weights.down.at(expert), &gate[i], &out[i], count, hidden.from(i)});
  });
  multiply(second);
}

}  // namespace strata::cpu
