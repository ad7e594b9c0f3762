// The only fast forward pass, written once over the Backend's operations. It reads a window: rows
// of one or more sequences, prompt, decode and drafts alike.
//
// Drafts. A window may end with tentative rows: tokens that were guessed. Their logits are those
// that the same tokens would have got one by one, and take_back() removes the ones that were wrong.
// The guesses come from the model's draft block (MTP), if the forward pass was made with it: its
// cells follow the sequence on their own, some rows late.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "compute/backend.h"
#include "model/draft_vocabulary.h"
#include "model/network.h"

namespace strata {

// One sequence as the forward pass continues it: the tokens it has read and what the backend keeps
// of them. Belongs to one thread at a time.
class Sequence {
 public:
  std::uint32_t tokens() const { return state_->tokens(); }
  std::span<const std::int32_t> history() const { return history_; }  // these tokens

  // See SequenceState.
  Status reserve(std::uint32_t tokens);
  void trim();
  std::vector<SequenceState::Page> pages() const { return state_->pages(); }
  std::size_t own_bytes() const;  // memory held, all but pages

  // Not ok once a window could not read all n-gram rows of this sequence: what it holds is of no
  // use any more; drop it.
  const Status& status() const { return status_; }
  // How the n-gram rows of its tokens were found, since it was made.
  const RowCounts& row_counts() const { return row_counts_; }

 private:
  friend class Forward;
  std::unique_ptr<SequenceState> state_;
  std::vector<std::int32_t> history_;
  Status status_;
  RowCounts row_counts_;

  // Of the draft block. Its cell i takes R of position i and token i + 1.
  std::uint32_t draft_cells_ = 0;              // cells that stand
  std::vector<float> residuals_;               // R of the positions from draft_cells_ on
  std::optional<std::int32_t> drafted_after_;  // the last position's cell stands for this token
  std::uint32_t chain_ = 0;                    // draft steps since the last window
  std::vector<float> chain_residual_;          // R'' of the last one
};

// A sequence in pieces, to be kept elsewhere: the same tokens always have the same full pages.
struct SavedSequence {
  std::vector<std::int32_t> tokens;
  std::shared_ptr<const Bytes> state;  // all but pages; of the same size for all sequences
  std::vector<SequenceState::Page> pages;
};

class Forward {
 public:
  // All must outlive this. Belongs to one thread. With `drafts` the backend's shape must have the
  // draft block (Network::shape), and draft() can be used.
  Forward(const Network& network, Backend& backend, const DraftVocabulary* drafts = nullptr)
      : network_(network), backend_(backend), drafts_(drafts) {}

  Result<Sequence> new_sequence();
  // One that goes on from the same place by itself. The first one's pages are shared, its recurrent
  // states copied. Does for `sequence` what was put off, which changes nothing that can be seen.
  // `before`: without the last so many rows, of the last window's tentative ones.
  Result<Sequence> fork(Sequence& sequence, std::uint32_t before = 0);
  Result<SavedSequence> save(Sequence& sequence);
  std::size_t saved_state_bytes() const;  // SavedSequence::state, of every sequence
  // Does what was put off, after which the sequence may be kept.
  Status settle(Sequence& sequence);
  // `invalid_argument` when it was saved by another kind of network, `corrupt` when it is damaged.
  Result<Sequence> restore(const SavedSequence& saved);

  // The next tokens of a sequence. A sequence may occur once in a window.
  struct Rows {
    Sequence* sequence = nullptr;
    std::span<const std::int32_t> tokens;  // at least one
    // The last ones that may be taken back; at most kMaxTentative, and not the first.
    std::uint32_t tentative = 0;
  };
  // Reads the rows of a window. `logits` [logit_rows.size() x vocabulary] receives the logits of
  // the given rows (counted over the whole window, in its order). On failure no sequence counts the
  // window's tokens; after `exhausted` its sequences must be dropped.
  // An n-gram row or an expert that cannot be read fails only the sequences that need it
  // (Sequence::status; their logits mean nothing); if that is all of them, the first one's error is
  // returned.
  Status read(std::span<const Rows> window, std::span<const std::uint32_t> logit_rows,
              std::span<float> logits);
  // The last `rows` tokens were not to be: of the last window's tentative ones, before the next.
  void take_back(Sequence& sequence, std::uint32_t rows);

  // One step of drafting for each of the sequences (each once): `token` comes after what was read
  // and drafted so far since the last window. `logits` [steps x drafts->size()] says what may
  // follow it, in the draft vocabulary. Nothing counts as read; on failure the sequences go on
  // without drafts until their next window.
  struct DraftStep {
    Sequence* sequence = nullptr;
    std::int32_t token = 0;
  };
  Status draft(std::span<const DraftStep> steps, std::span<float> logits);
  const DraftVocabulary* drafts() const { return drafts_; }
  // Positions whose draft cells are not computed yet.
  std::size_t late(const Sequence& sequence) const {
    return sequence.residuals_.size() / network_.residual.wide();
  }
  // Computes those of all but the last position: what the next draft() would do first.
  Status catch_up(Sequence& sequence) { return catch_up(sequence, 1); }
  // The same, if they are so many that the next read() would do it.
  Status catch_up_after_prompt(Sequence& sequence);

  // Says early which tokens a sequence will probably read next, so that their n-gram rows are there
  // in time. The first `known` of `tokens` are being read already. Never waits.
  void prefetch(const Sequence& sequence, std::span<const std::int32_t> tokens,
                std::size_t known = 0);

  // For bisecting: called with the wide residual [T x streams * hidden] entering each layer.
  using Observer = std::function<void(std::uint32_t layer, std::span<const float> wide)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

 private:
  Status check(std::span<const std::int32_t> tokens) const;
  Status request_ngrams(std::span<const Rows> window);
  void collect_ngrams(std::span<const Rows> window, std::uint32_t layer);
  bool wants_less(std::span<const std::uint32_t> logit_rows) const;
  void layers(std::span<const Rows> window, const std::span<const std::uint32_t>* wanted);
  void feed_forward(const Block& block);
  void keep_residuals(std::span<const Rows> window);
  Status draft_window(std::span<const WindowPart> parts, std::span<const float> wide,
                      std::span<const std::uint32_t> wanted);
  Status catch_up(Sequence& sequence, std::size_t allowed);

  const Network& network_;
  Backend& backend_;
  const DraftVocabulary* drafts_;
  Observer observer_;
  std::vector<std::int32_t> tokens_;
  std::vector<WindowPart> parts_;
  std::vector<float> draft_wide_;
  std::vector<std::vector<std::unique_ptr<RowRequest>>> requests_;  // by layer and part
  std::vector<float> ngrams_;  // table rows of the window's tokens, for one layer
};

}  // namespace strata
