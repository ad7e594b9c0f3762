#include "model/forward.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace strata {

Bytes Sequence::save() const {
  // The recent tokens (a count, then 32-bit ids) stand before the backend's own form.
  const Bytes state = state_->save();
  Bytes out(sizeof(std::uint32_t) * (1 + recent_.size()));
  const auto count = static_cast<std::uint32_t>(recent_.size());
  std::memcpy(out.data(), &count, sizeof count);
  if (count > 0) std::memcpy(out.data() + sizeof count, recent_.data(), count * sizeof recent_[0]);
  out.insert(out.end(), state.begin(), state.end());
  return out;
}

Status Sequence::restore(std::span<const std::byte> saved) {
  std::uint32_t count = 0;
  if (saved.size() >= sizeof count) std::memcpy(&count, saved.data(), sizeof count);
  const std::size_t head = sizeof count * (1 + std::size_t{count});
  if (saved.size() < head || count > 64) {
    return fail(ErrorCode::corrupt, "a saved sequence of {} bytes says it holds {} recent tokens",
                saved.size(), count);
  }
  STRATA_TRY(state_->restore(saved.subspan(head)));
  recent_.resize(count);
  if (count > 0)
    std::memcpy(recent_.data(), saved.data() + sizeof count, count * sizeof recent_[0]);
  return {};
}

Result<Sequence> Forward::new_sequence() {
  Sequence sequence;
  STRATA_ASSIGN(sequence.state_, backend_.new_sequence());
  return sequence;
}

Status Forward::read(std::span<const Rows> window, std::span<const std::uint32_t> logit_rows,
                     std::span<float> logits) {
  tokens_.clear();
  parts_.clear();
  for (const Rows& rows : window) {
    for (const std::int32_t id : rows.tokens) {
      if (id < 0 || static_cast<std::uint32_t>(id) >= network_.embedding.rows) {
        return fail(ErrorCode::invalid_argument, "token id {} is outside the vocabulary of {}", id,
                    network_.embedding.rows);
      }
    }
    parts_.push_back({rows.sequence->state_.get(), static_cast<std::uint32_t>(tokens_.size()),
                      static_cast<std::uint32_t>(rows.tokens.size())});
    tokens_.insert(tokens_.end(), rows.tokens.begin(), rows.tokens.end());
  }
  if (logits.size() != logit_rows.size() * network_.head.rows) {
    return fail(ErrorCode::internal, "room for {} logits of {} rows of {}", logits.size(),
                logit_rows.size(), network_.head.rows);
  }
  for (const std::uint32_t row : logit_rows) {
    if (row >= tokens_.size())
      return fail(ErrorCode::internal, "logits of row {} of {} asked", row, tokens_.size());
  }
  // Everything that can fail comes first; from begin() on only memory can still end the window.
  STRATA_TRY(gather_ngrams(window, tokens_.size()));
  STRATA_TRY(backend_.begin({tokens_, parts_}));
  try {
    layers(tokens_.size());
    backend_.head(network_.mixer, network_.head, logit_rows, logits);
  } catch (const std::bad_alloc&) {  // small buffers of the operations
    return fail(ErrorCode::exhausted, "no memory in the middle of a window of {} rows",
                tokens_.size());
  }
  backend_.end();

  const std::size_t kept =
      network_.params.ngram_layers.empty() ? 0 : network_.params.ngram_size - 1;
  for (const Rows& rows : window) {
    std::vector<std::int32_t>& recent = rows.sequence->recent_;
    const std::size_t fresh = std::min(kept, rows.tokens.size());
    recent.insert(recent.begin(), rows.tokens.rbegin(),
                  rows.tokens.rbegin() + static_cast<std::ptrdiff_t>(fresh));
    if (recent.size() > kept) recent.resize(kept);
  }
  return {};
}

// The network, top to bottom.
void Forward::layers(std::size_t rows) {
  std::vector<float> wide(observer_ ? rows * network_.residual.wide() : 0);
  const auto observed = [&](std::uint32_t layer) {
    if (!observer_) return;
    backend_.copy_residual(wide);
    observer_(layer, wide);
  };
  backend_.embed(network_.embedding);
  for (std::uint32_t l = 0; l < network_.blocks.size(); ++l) {
    const Block& block = network_.blocks[l];
    observed(l);
    if (block.ngram) backend_.inject_ngram(*block.ngram, l, ngrams_[l]);
    backend_.read(block.attention_residual);
    if (block.kind == LayerKind::gdn) {
      backend_.delta_net(block.delta_net, l);
    } else {
      backend_.attention(block.attention, l);
    }
    backend_.write();
    backend_.read(block.experts_residual);
    backend_.experts(block.experts);
    backend_.write();
  }
  observed(static_cast<std::uint32_t>(network_.blocks.size()));
}

Status Forward::gather_ngrams(std::span<const Rows> window, std::size_t rows) {
  ngrams_.resize(network_.blocks.size());
  for (std::size_t l = 0; l < network_.blocks.size(); ++l) {
    const Block& block = network_.blocks[l];
    if (!block.ngram) continue;
    const NgramHash& hash = *block.ngram_hash;
    std::vector<std::uint64_t> ids(rows * hash.heads());
    std::vector<std::int32_t> previous;
    std::size_t row = 0;
    for (const Rows& part : window) {
      previous = part.sequence->recent_;
      for (const std::int32_t token : part.tokens) {
        hash.rows(token, previous, std::span(ids).subspan(row++ * hash.heads(), hash.heads()));
        previous.insert(previous.begin(), token);
        if (previous.size() > hash.ngram_size() - 1) previous.pop_back();
      }
    }
    ngrams_[l].resize(ids.size() * block.ngram_table->width());
    STRATA_TRY(block.ngram_table->gather(ids, ngrams_[l]));
  }
  return {};
}

}  // namespace strata
