// What the CPU backend keeps of a sequence: paged rows for attention, rings for the convolutions,
// matrices for the delta nets.
#pragma once

#include <memory>
#include <vector>

#include "compute/backend.h"

namespace strata::cpu {

constexpr std::size_t kPageRows = 256;
constexpr std::size_t kDeltaSlice = 64;  // columns of a delta net's state that lie together

// Rows of fixed width that only grow; pages keep their address.
class PagedRows {
 public:
  explicit PagedRows(std::size_t width = 0) : width_(width) {}
  float* row(std::size_t i) { return pages_[i / kPageRows].get() + (i % kPageRows) * width_; }
  const float* row(std::size_t i) const {
    return pages_[i / kPageRows].get() + (i % kPageRows) * width_;
  }
  std::size_t width() const { return width_; }
  std::size_t bytes() const { return pages_.size() * kPageRows * width_ * sizeof(float); }
  // Makes room for `rows` rows; false when memory is out (what was there stays).
  bool reserve(std::size_t rows);

 private:
  std::size_t width_;
  std::vector<std::unique_ptr<float[]>> pages_;
};

// Rows of the last `rows` positions; position p lies in slot p mod rows. Zero before the start.
struct RowRing {
  std::size_t rows = 0, width = 0;
  std::vector<float> values;
  RowRing() = default;
  RowRing(std::size_t count, std::size_t row_width)
      : rows(count), width(row_width), values(count * row_width, 0.0f) {}
  float* row(std::size_t position) { return values.data() + (position % rows) * width; }
};

struct LayerState {
  // delta net
  RowRing conv;  // [conv_kernel - 1 x channels]
  // [value_heads x slices of padded(value_dim) x key_dim x columns of the slice]
  std::vector<float> delta;
  // attention
  PagedRows keys, values;  // [cells x kv_heads * head_dim], keys after norm and rope
  PagedRows block_keys;    // [complete blocks x indexer_dim], pooled, normed and rotated
  RowRing raw_index_keys;  // [block x indexer_dim]
  // n-gram embedding
  RowRing ngram;  // [history x streams * hidden]
};

// Widths are padded to whole vectors where a kernel wants that.
std::size_t padded(std::size_t width);

class CpuSequence final : public SequenceState {
 public:
  explicit CpuSequence(const NetworkShape& shape);
  std::uint32_t tokens() const override { return tokens_; }
  std::size_t bytes() const override;
  Bytes save() const override;
  Status restore(std::span<const std::byte> saved) override;

  LayerState& layer(std::size_t l) { return layers_[l]; }
  // Room for `count` tokens in all.
  Status reserve(std::uint32_t count);
  void advance(std::uint32_t rows) { tokens_ += rows; }

 private:
  template <class Visitor>
  bool visit(std::uint32_t tokens, Visitor&& visitor);
  std::uint64_t fingerprint() const;  // of the shape: a state fits its own kind of network only

  const NetworkShape& shape_;  // the backend's
  std::uint32_t tokens_ = 0;
  std::vector<LayerState> layers_;
};

}  // namespace strata::cpu
