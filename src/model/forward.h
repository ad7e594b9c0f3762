// The only fast forward pass, written once over the Backend's operations. It reads a window: rows
// of one or more sequences, prompt or decode alike.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "compute/backend.h"
#include "model/network.h"

namespace strata {

// One sequence as the forward pass continues it: what the backend keeps, and the last tokens for
// the n-gram hash. Belongs to one thread at a time.
class Sequence {
 public:
  std::uint32_t tokens() const { return state_->tokens(); }
  std::size_t bytes() const { return state_->bytes(); }
  // A copy of the whole state; continuing from it gives the same bits.
  Bytes save() const;
  // Leaves the sequence as it was when the copy is damaged or of another model.
  Status restore(std::span<const std::byte> saved);

 private:
  friend class Forward;
  std::unique_ptr<SequenceState> state_;
  std::vector<std::int32_t> recent_;  // newest first, at most n-gram size - 1
};

class Forward {
 public:
  // Both must outlive this. Belongs to one thread.
  Forward(const Network& network, Backend& backend) : network_(network), backend_(backend) {}

  Result<Sequence> new_sequence();

  // The next tokens of a sequence. A sequence may occur once in a window.
  struct Rows {
    Sequence* sequence = nullptr;
    std::span<const std::int32_t> tokens;  // at least one
  };
  // Reads the rows of a window. `logits` [logit_rows.size() x vocabulary] receives the logits of
  // the given rows (counted over the whole window, in its order). On failure no sequence counts the
  // window's tokens; after `exhausted` its sequences must be dropped or restored.
  Status read(std::span<const Rows> window, std::span<const std::uint32_t> logit_rows,
              std::span<float> logits);

  // For bisecting: called with the wide residual [T x streams * hidden] entering each layer.
  using Observer = std::function<void(std::uint32_t layer, std::span<const float> wide)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

 private:
  Status gather_ngrams(std::span<const Rows> window, std::size_t rows);
  void layers(std::size_t rows);

  const Network& network_;
  Backend& backend_;
  Observer observer_;
  std::vector<std::int32_t> tokens_;
  std::vector<WindowPart> parts_;
  std::vector<std::vector<float>> ngrams_;  // by layer: table rows of the window's tokens
};

}  // namespace strata
