#include "model/placed_experts.h"

namespace strata {

void PlacedExperts::add(const ExpertsWeights& weights) {
  layers_.push_back({weights.gate, weights.up, weights.down});
  const std::uint64_t each = weights.gate.bytes() + weights.up.bytes() + weights.down.bytes();
  counters_.total_bytes += each * weights.gate.count;
  if (lifetime_ == ExpertLifetime::pinned) counters_.resident_bytes = counters_.total_bytes;
}

void PlacedExperts::begin(std::uint32_t layer, std::span<const ExpertUse> uses, bool) {
  const Layer& l = layers_[layer];
  blobs_.clear();
  for (const ExpertUse& use : uses) {
    blobs_.push_back({use.expert, l.gate.at(use.expert).data, l.up.at(use.expert).data,
                      l.down.at(use.expert).data});
  }
  (lifetime_ == ExpertLifetime::pinned ? counters_.pinned_hits : counters_.mapped_hits) +=
      uses.size();
  given_ = false;
}

std::span<const ExpertBlob> PlacedExperts::next() {
  if (given_) return {};
  given_ = true;
  return blobs_;
}

}  // namespace strata
