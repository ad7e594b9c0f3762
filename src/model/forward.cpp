#include "model/forward.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace strata {
namespace {

// Table rows of the tokens from `known` on; `recent` (newest first) stands before the first one.
std::vector<std::uint64_t> rows_of(const NgramHash& hash, std::vector<std::int32_t> recent,
                                   std::span<const std::int32_t> tokens, std::size_t known) {
  const std::size_t before = hash.ngram_size() - 1;
  std::vector<std::uint64_t> ids((tokens.size() - known) * hash.heads());
  for (std::size_t i = known - std::min(known, before); i < tokens.size(); ++i) {
    if (i >= known) {
      hash.rows(tokens[i], recent,
                std::span(ids).subspan((i - known) * hash.heads(), hash.heads()));
    }
    recent.insert(recent.begin(), tokens[i]);
    if (recent.size() > before) recent.pop_back();
  }
  return ids;
}

}  // namespace

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
  status_ = {};
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
    STRATA_TRY(rows.sequence->status_);
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
  try {
    STRATA_TRY(request_ngrams(window));
    STRATA_TRY(backend_.begin({tokens_, parts_}));
    layers(window);
    backend_.head(network_.mixer, network_.head, logit_rows, logits);
  } catch (const std::bad_alloc&) {  // small buffers of the operations
    return fail(ErrorCode::exhausted, "no memory in the middle of a window of {} rows",
                tokens_.size());
  }
  backend_.end();
  if (!window.empty() &&
      std::all_of(window.begin(), window.end(), [](const Rows& r) { return !r.sequence->status_; }))
    return window.front().sequence->status_;

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
void Forward::layers(std::span<const Rows> window) {
  std::vector<float> wide(observer_ ? tokens_.size() * network_.residual.wide() : 0);
  const auto observed = [&](std::uint32_t layer) {
    if (!observer_) return;
    backend_.copy_residual(wide);
    observer_(layer, wide);
  };
  backend_.embed(network_.embedding);
  for (std::uint32_t l = 0; l < network_.blocks.size(); ++l) {
    const Block& block = network_.blocks[l];
    observed(l);
    if (block.ngram) {
      collect_ngrams(window, l);
      backend_.inject_ngram(*block.ngram, l, ngrams_);
    }
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

void Forward::prefetch(const Sequence& sequence, std::span<const std::int32_t> tokens,
                       std::size_t known) {
  try {
    for (const Block& block : network_.blocks) {
      if (!block.ngram) continue;
      block.ngram_table->prefetch(rows_of(*block.ngram_hash, sequence.recent_, tokens, known));
    }
  } catch (const std::bad_alloc&) {  // the rows are asked for again when they are needed
  }
}

Status Forward::request_ngrams(std::span<const Rows> window) {
  requests_.resize(network_.blocks.size());
  for (std::size_t l = 0; l < network_.blocks.size(); ++l) {
    const Block& block = network_.blocks[l];
    requests_[l].clear();  // of a window that failed
    if (!block.ngram) continue;
    for (const Rows& part : window) {
      const auto ids = rows_of(*block.ngram_hash, part.sequence->recent_, part.tokens, 0);
      STRATA_ASSIGN(auto request, block.ngram_table->request(ids));
      requests_[l].push_back(std::move(request));
    }
  }
  return {};
}

// The rows of one layer into ngrams_. Zeros stand for what could not be read: the window goes on
// for the sake of its other sequences.
void Forward::collect_ngrams(std::span<const Rows> window, std::uint32_t layer) {
  const Block& block = network_.blocks[layer];
  const std::size_t token_values = block.ngram_hash->heads() * block.ngram_table->width();
  ngrams_.resize(tokens_.size() * token_values);
  std::span<float> rest = ngrams_;
  for (std::size_t p = 0; p < window.size(); ++p) {
    const auto out = rest.first(window[p].tokens.size() * token_values);
    rest = rest.subspan(out.size());
    Sequence& sequence = *window[p].sequence;
    RowRequest& request = *requests_[layer][p];
    if (Status status = request.collect(out); !status) {
      std::fill(out.begin(), out.end(), 0.0f);
      if (sequence.status_) sequence.status_ = std::move(status);
    }
    sequence.row_counts_ += request.counts();
  }
  requests_[layer].clear();
}

}  // namespace strata
