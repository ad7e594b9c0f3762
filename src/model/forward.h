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

  // Not ok once a window could not read all n-gram rows of this sequence: what it holds is of no
  // use any more; drop it, or restore() it.
  const Status& status() const { return status_; }
  // How the n-gram rows of its tokens were found, since new_sequence().
  const RowCounts& row_counts() const { return row_counts_; }

 private:
  friend class Forward;
  std::unique_ptr<SequenceState> state_;
  std::vector<std::int32_t> recent_;  // newest first, at most n-gram size - 1
  Status status_;
  RowCounts row_counts_;
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
  // An n-gram row that cannot be read fails only the sequences that need it (Sequence::status;
  // their logits mean nothing); if that is all of them, the first one's error is returned.
  Status read(std::span<const Rows> window, std::span<const std::uint32_t> logit_rows,
              std::span<float> logits);

  // Says early which tokens a sequence will probably read next, so that their n-gram rows are there
  // in time. The first `known` of `tokens` are being read already. Never waits.
  void prefetch(const Sequence& sequence, std::span<const std::int32_t> tokens,
                std::size_t known = 0);

  // For bisecting: called with the wide residual [T x streams * hidden] entering each layer.
  using Observer = std::function<void(std::uint32_t layer, std::span<const float> wide)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

 private:
  Status request_ngrams(std::span<const Rows> window);
  void collect_ngrams(std::span<const Rows> window, std::uint32_t layer);
  void layers(std::span<const Rows> window);

  const Network& network_;
  Backend& backend_;
  Observer observer_;
  std::vector<std::int32_t> tokens_;
  std::vector<WindowPart> parts_;
  std::vector<std::vector<std::unique_ptr<RowRequest>>> requests_;  // by layer and part
  std::vector<float> ngrams_;  // table rows of the window's tokens, for one layer
};

}  // namespace strata
