// A Backend around another one that measures its operations: seconds, bytes and arithmetic by part.
// The kernels have no clocks in them; this costs two readings of one an operation.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "compute/backend.h"
#include "model/costs.h"

namespace strata {

enum class ForwardPart : std::uint8_t {
  embed,
  ngram,
  residual_read,
  delta_net,
  attention,
  experts,
  residual_write,
  head,
};
inline constexpr std::size_t kForwardParts = 8;
std::string_view to_string(ForwardPart part);  // "residual read"

struct PartUse {
  double seconds = 0;
  Cost cost;
};
using PartUses = std::array<PartUse, kForwardParts>;  // by ForwardPart

class TimedBackend final : public Backend {
 public:
  explicit TimedBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  // What the inner backend stores of keys and values, for the cost of its cells.
  void set_kv_type(KvType type) { kv_type_ = type; }
  // What was used since the last call.
  PartUses take() { return std::exchange(uses_, {}); }

  std::string isa() const override { return inner_->isa(); }
  std::uint32_t threads() const override { return inner_->threads(); }
  Result<std::unique_ptr<SequenceState>> new_sequence() override { return inner_->new_sequence(); }
  std::uint32_t page_tokens() const override { return inner_->page_tokens(); }
  std::size_t page_bytes() const override { return inner_->page_bytes(); }
  std::size_t state_bytes() const override { return inner_->state_bytes(); }
  void settle(SequenceState& state) override { inner_->settle(state); }
  std::uint64_t workspace_bytes(std::uint32_t rows) override {
    return inner_->workspace_bytes(rows);
  }
  Status reserve(std::uint32_t rows) override { return inner_->reserve(rows); }
  Status begin(const Window& window) override;
  void end() override { inner_->end(); }
  void embed(const Matrix& embedding) override;
  void embed_draft(const DraftWeights& weights, const Matrix& embedding,
                   std::span<const float> wide) override {
    inner_->embed_draft(weights, embedding, wide);
  }
  void inject_ngram(const NgramWeights& weights, std::uint32_t layer,
                    std::span<const float> rows) override;
  void read(const ResidualWeights& weights) override;
  void delta_net(const DeltaNetWeights& weights, std::uint32_t layer) override;
  void attention(const AttentionWeights& weights, std::uint32_t layer) override;
  void attention_cells(const AttentionWeights& weights, std::uint32_t layer) override {
    inner_->attention_cells(weights, layer);
  }
  void experts(const ExpertsWeights& weights) override;
  void write() override;
  void pick(std::span<const std::uint32_t> rows) override {
    inner_->pick(rows);
    rows_ = rows.size();
  }
  void head(const ResidualWeights& mixer, const Matrix& head, std::span<const std::uint32_t> rows,
            std::span<float> out) override;
  Status failure(std::uint32_t part) const override { return inner_->failure(part); }
  std::vector<KernelUse> kernels() const override { return inner_->kernels(); }
  void copy_residual(std::uint32_t first_row, std::span<float> out) override {
    inner_->copy_residual(first_row, out);
  }

 private:
  template <class Operation>
  void time(ForwardPart part, const Cost& cost, const Operation& operation);
  double cell_bytes(const AttentionShape& shape) const;

  std::unique_ptr<Backend> inner_;
  PartUses uses_{};
  KvType kv_type_ = KvType::f32;
  std::uint64_t rows_ = 0;  // of the window
  struct Part {
    std::uint64_t before = 0, rows = 0;  // cells in the cache, rows of the window
  };
  std::vector<Part> parts_;
};

}  // namespace strata
