#include "engine/timed_backend.h"

#include "base/clock.h"

namespace strata {

std::string_view to_string(ForwardPart part) {
  constexpr std::string_view names[kForwardParts] = {"embed",          "ngram",     "residual read",
                                                     "delta net",      "attention", "experts",
                                                     "residual write", "head"};
  return names[static_cast<std::size_t>(part)];
}

template <class Operation>
void TimedBackend::time(ForwardPart part, const Cost& cost, const Operation& operation) {
  const double start = monotonic_seconds();
  operation();
  PartUse& use = uses_[static_cast<std::size_t>(part)];
  use.seconds += monotonic_seconds() - start;
  use.cost += cost;
}

Status TimedBackend::begin(const Window& window) {
  rows_ = window.tokens.size();
  parts_.clear();
  for (const WindowPart& part : window.parts) parts_.push_back({part.state->tokens(), part.rows});
  return inner_->begin(window);
}

// Keys and values of the attended cells, the indexer's keys of all blocks. A prompt's rows attend
// to much the same cells: those of the last row are counted, or all where each row chooses its own.
double TimedBackend::cell_bytes(const AttentionShape& shape) const {
  double bytes = 0;
  for (const Part& part : parts_) {
    const std::uint64_t cells = part.before + part.rows;
    const std::uint64_t attended = part.rows == 1 ? attended_cells(shape, cells) : cells;
    bytes += attention_cell_bytes(shape, kv_type_, attended, cells);
  }
  return bytes;
}

void TimedBackend::embed(const Matrix& embedding) {
  time(ForwardPart::embed, embed_cost(embedding, rows_), [&] { inner_->embed(embedding); });
}

void TimedBackend::inject_ngram(const NgramWeights& weights, std::uint32_t layer,
                                std::span<const float> rows) {
  time(ForwardPart::ngram, ngram_cost(weights, rows_),
       [&] { inner_->inject_ngram(weights, layer, rows); });
}

void TimedBackend::read(const ResidualWeights& weights) {
  time(ForwardPart::residual_read, residual_cost(weights, rows_), [&] { inner_->read(weights); });
}

void TimedBackend::delta_net(const DeltaNetWeights& weights, std::uint32_t layer) {
  time(ForwardPart::delta_net, delta_net_cost(weights, rows_, parts_.size()),
       [&] { inner_->delta_net(weights, layer); });
}

void TimedBackend::attention(const AttentionWeights& weights, std::uint32_t layer) {
  Cost cost = attention_cost(weights, rows_);
  cost.bytes += cell_bytes(weights.shape);
  time(ForwardPart::attention, cost, [&] { inner_->attention(weights, layer); });
}

void TimedBackend::experts(const ExpertsWeights& weights) {
  time(ForwardPart::experts, experts_cost(weights, rows_), [&] { inner_->experts(weights); });
}

void TimedBackend::write() {
  time(ForwardPart::residual_write, {}, [&] { inner_->write(); });
}

void TimedBackend::head(const ResidualWeights& mixer, const Matrix& head,
                        std::span<const std::uint32_t> rows, std::span<float> out) {
  time(ForwardPart::head, head_cost(mixer, head, rows.size()),
       [&] { inner_->head(mixer, head, rows, out); });
}

}  // namespace strata
