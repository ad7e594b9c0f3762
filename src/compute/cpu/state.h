// What the CPU backend keeps of a sequence: pages of cells for attention, rings for the
// convolutions, matrices for the delta nets, and the inputs of tentative rows.
#pragma once

#include <memory>
#include <vector>

#include "compute/backend.h"

namespace strata::cpu {

constexpr std::size_t kPageTokens = 64;
constexpr std::size_t kDeltaSlice = 64;  // columns of a delta net's state that lie together

// Where the rows of each attention layer lie in a page, in bytes from its start. Keys and values
// have a row for each of the page's positions. A block's key lies in the page of the block's last
// cell.
struct PageLayout {
  struct Layer {
    std::size_t keys = 0, values = 0, block_keys = 0;
    std::size_t key_head = 0, value_head = 0;  // bytes of one head in a cell
    std::size_t heads = 0;                     // of keys and values
    std::size_t indexer_width = 0;             // of block keys, in floats
    std::size_t block = 0;                     // cells of one; 0: none
    std::size_t shift = 0;                     // cell i has the row of position i + shift
  };
  std::vector<Layer> layers;  // of the network
  std::size_t bytes = 0;      // of a page

  explicit PageLayout(const NetworkShape& shape);
};

// Pages of kPageTokens positions; see SequenceState.
class CellPages {
 public:
  explicit CellPages(const PageLayout& layout) : layout_(&layout) {}

  // A head of a cell, as store_head() writes it: keys after norm and rope.
  std::byte* key(std::size_t layer, std::size_t cell, std::size_t head) {
    const PageLayout::Layer& l = layout_->layers[layer];
    return row(cell + l.shift, l.keys, l.heads * l.key_head) + head * l.key_head;
  }
  std::byte* value(std::size_t layer, std::size_t cell, std::size_t head) {
    const PageLayout::Layer& l = layout_->layers[layer];
    return row(cell + l.shift, l.values, l.heads * l.value_head) + head * l.value_head;
  }
  // Pooled, normed and rotated.
  float* block_key(std::size_t layer, std::size_t block) {
    const PageLayout::Layer& l = layout_->layers[layer];
    const std::size_t page = ((block + 1) * l.block - 1) / kPageTokens;
    const std::size_t slot = block - page * kPageTokens / l.block;
    return reinterpret_cast<float*>(pages_[page].get() + l.block_keys) + slot * l.indexer_width;
  }

  // Memory for `positions` in all; false when it is out (what was there stays).
  bool reserve(std::size_t positions);
  // Copies the pages of positions [from, to) that others hold too; false when memory is out.
  bool own(std::size_t from, std::size_t to);
  void trim(std::size_t positions);
  std::vector<SequenceState::Page> pages(std::size_t positions) const;
  void take(std::span<const SequenceState::Page> pages);

 private:
  std::byte* row(std::size_t position, std::size_t offset, std::size_t width) {
    return pages_[position / kPageTokens].get() + offset + (position % kPageTokens) * width;
  }

  const PageLayout* layout_;
  // Zeros at first. Only those that nobody else holds are written.
  std::vector<std::shared_ptr<std::byte[]>> pages_;
};

// Rows of the last positions: position p lies in slot p mod rows, and the kMaxTentative rows that
// may be taken back do not displace the `kept` before them. Zero before the start.
struct RowRing {
  std::size_t kept = 0, width = 0;
  std::vector<float> values;
  RowRing() = default;
  RowRing(std::size_t count, std::size_t row_width)
      : kept(count),
        width(row_width),
        values(count == 0 ? 0 : (count + kMaxTentative) * row_width, 0.0f) {}
  std::size_t rows() const { return kept + kMaxTentative; }
  float* row(std::size_t position) { return values.data() + (position % rows()) * width; }
};

struct LayerState {
  // delta net
  RowRing conv;  // [conv_kernel - 1 x channels]
  // [value_heads x slices of padded(value_dim) x key_dim x columns of the slice]
  std::vector<float> delta;
  // Inputs of rows that are not in `delta` yet: keys and values after the convolution, then alpha
  // and beta. [kMaxTentative x DeltaInputs::width]; empty while there never were any.
  std::vector<float> waiting;
  // attention
  RowRing raw_index_keys;  // [block x indexer_dim]
  // n-gram embedding
  RowRing ngram;  // [history x streams * hidden]
};

// The parts of a row of LayerState::waiting.
struct DeltaInputs {
  std::size_t keys = 0, values = 0, gates = 0, width = 0;  // offsets
  explicit DeltaInputs(const DeltaNetShape& shape)
      : values(std::size_t{shape.key_heads} * shape.key_dim),
        gates(values + shape.inner()),
        width(gates + 2 * std::size_t{shape.value_heads}) {}
};

// Widths are padded to whole vectors where a kernel wants that.
std::size_t padded(std::size_t width);

class CpuSequence final : public SequenceState {
 public:
  CpuSequence(const NetworkShape& shape, const PageLayout& layout);
  std::uint32_t tokens() const override { return tokens_; }
  Result<std::unique_ptr<SequenceState>> fork(std::uint32_t before) const override;
  void take_back(std::uint32_t rows) override;
  Status reserve(std::uint32_t tokens) override;
  void trim() override;
  std::size_t own_bytes() const override;
  std::vector<Page> pages() const override { return cells_.pages(tokens_); }
  Bytes save() const override;
  Status restore(std::span<const std::byte> saved, std::span<const Page> pages) override;

  LayerState& layer(std::size_t l) { return layers_[l]; }
  CellPages& cells() { return cells_; }
  // Everything that a window of these rows writes is there and its own afterwards.
  Status prepare(const WindowPart& part);
  // The window's rows stand in the caches; the last ones are not in the delta nets yet.
  void advance(std::uint32_t rows, std::uint32_t tentative) {
    tokens_ += rows;
    waiting_ = tentative;
  }
  // Rows in LayerState::waiting, from its first on.
  std::uint32_t waiting() const { return waiting_; }
  void settled() { waiting_ = 0; }

 private:
  template <class Visitor>
  void visit(std::uint32_t tokens, Visitor&& visitor);
  std::uint64_t fingerprint() const;  // of the shape: a state fits its own kind of network only

  const NetworkShape& shape_;  // the backend's
  const PageLayout& layout_;   // the backend's
  std::uint32_t tokens_ = 0, waiting_ = 0;
  CellPages cells_;
  std::vector<LayerState> layers_;
};

}  // namespace strata::cpu
