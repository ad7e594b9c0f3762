// The experts of a model whose weights all have a place of their own: in memory or in the mapped
// file.
#pragma once

#include <vector>

#include "compute/weights.h"

namespace strata {

class PlacedExperts final : public ExpertSource {
 public:
  // `pinned` in memory, or `mapped`.
  explicit PlacedExperts(ExpertLifetime lifetime) : lifetime_(lifetime) {}
  // The next layer; the bytes must outlive this.
  void add(const ExpertsWeights& weights);

  void begin(std::uint32_t layer, std::span<const ExpertUse> uses, bool decode) override;
  std::span<const ExpertBlob> next() override;
  const Status& failure() const override { return success_; }
  bool looks_ahead() const override { return false; }
  void prefetch(std::uint32_t, std::span<const std::uint32_t>) override {}
  ExpertLifetime lifetime(std::uint32_t, std::uint32_t) const override { return lifetime_; }
  ExpertCounters counters() const override { return counters_; }

 private:
  struct Layer {
    ExpertMatrices gate, up, down;
  };
  ExpertLifetime lifetime_;
  std::vector<Layer> layers_;
  std::vector<ExpertBlob> blobs_;
  bool given_ = true;
  Status success_;
  ExpertCounters counters_;
};

}  // namespace strata
