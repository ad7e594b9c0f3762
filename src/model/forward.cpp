#include "model/forward.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <new>
#include <numeric>

namespace strata {
namespace {

// Table rows of the tokens from `known` on; `history` stands before the first one.
std::vector<std::uint64_t> rows_of(const NgramHash& hash, std::span<const std::int32_t> history,
                                   std::span<const std::int32_t> tokens, std::size_t known) {
  const std::size_t before = hash.ngram_size() - 1;
  std::vector<std::int32_t> recent;  // newest first
  const auto add = [&](std::int32_t token) {
    recent.insert(recent.begin(), token);
    if (recent.size() > before) recent.pop_back();
  };
  for (const std::int32_t token : history.last(std::min(before, history.size()))) add(token);
  std::vector<std::uint64_t> ids((tokens.size() - known) * hash.heads());
  for (std::size_t i = known - std::min(known, before); i < tokens.size(); ++i) {
    if (i >= known) {
      hash.rows(tokens[i], recent,
                std::span(ids).subspan((i - known) * hash.heads(), hash.heads()));
    }
    add(tokens[i]);
  }
  return ids;
}

// Positions whose draft cells may be missing: they are computed together, which is cheaper, and not
// at all where nobody drafts.
constexpr std::size_t kLateCells = 512;
// Rows of a window of the draft block.
constexpr std::size_t kDraftRows = 512;

}  // namespace

// --- sequences ----------------------------------------------------------------------------------

Status Sequence::reserve(std::uint32_t tokens) {
  try {
    history_.reserve(tokens);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::exhausted, "no memory for {} token ids", tokens);
  }
  return state_->reserve(tokens);
}

void Sequence::trim() {
  history_.shrink_to_fit();
  chain_residual_ = {};
  state_->trim();
}

std::size_t Sequence::own_bytes() const {
  return state_->own_bytes() + history_.capacity() * sizeof history_[0] +
         (residuals_.capacity() + chain_residual_.capacity()) * sizeof(float);
}

Result<Sequence> Forward::new_sequence() {
  Sequence sequence;
  STRATA_ASSIGN(sequence.state_, backend_.new_sequence());
  return sequence;
}

Status Forward::settle(Sequence& sequence) {
  STRATA_TRY(sequence.status_);
  backend_.settle(*sequence.state_);
  // The last position's cell depends on a token that another continuation need not have.
  sequence.drafted_after_.reset();
  return {};
}

Result<Sequence> Forward::fork(Sequence& sequence, std::uint32_t before) {
  STRATA_TRY(sequence.status_);
  if (before == 0) STRATA_TRY(settle(sequence));
  try {
    Sequence copy;
    copy.history_.assign(sequence.history_.begin(), sequence.history_.end() - before);
    copy.draft_cells_ = sequence.draft_cells_;
    copy.residuals_.assign(sequence.residuals_.begin(),
                           sequence.residuals_.end() -
                               (drafts_ ? before * std::ptrdiff_t{network_.residual.wide()} : 0));
    STRATA_ASSIGN(copy.state_, sequence.state_->fork(before));
    return copy;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::exhausted, "no memory for a copy of a sequence");
  }
}

// The state is R of the last position, if there are drafts, and the backend's own form.
Result<SavedSequence> Forward::save(Sequence& sequence) {
  STRATA_TRY(settle(sequence));
  if (drafts_) STRATA_TRY(catch_up(sequence));  // a page must hold all of its cells
  try {
    SavedSequence saved;
    saved.tokens = sequence.history_;
    saved.pages = sequence.state_->pages();
    const Bytes state = sequence.state_->save();
    const auto residuals = std::as_bytes(std::span(sequence.residuals_));
    auto bytes = std::make_shared<Bytes>(residuals.begin(), residuals.end());
    bytes->insert(bytes->end(), state.begin(), state.end());
    saved.state = std::move(bytes);
    return saved;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::exhausted, "no memory to save a sequence");
  }
}

std::size_t Forward::saved_state_bytes() const {
  return backend_.state_bytes() + (drafts_ ? network_.residual.wide() * sizeof(float) : 0);
}

Result<Sequence> Forward::restore(const SavedSequence& saved) {
  const std::size_t values = drafts_ && !saved.tokens.empty() ? network_.residual.wide() : 0;
  const std::size_t head = values * sizeof(float);
  if (!saved.state || saved.state->size() < head)
    return fail(ErrorCode::corrupt, "a saved sequence is shorter than its head");
  STRATA_TRY(check(saved.tokens));
  try {
    STRATA_ASSIGN(Sequence sequence, new_sequence());
    const std::span<const std::byte> state = *saved.state;
    STRATA_TRY(sequence.state_->restore(state.subspan(head), saved.pages));
    if (sequence.tokens() != saved.tokens.size()) {
      return fail(ErrorCode::corrupt, "a saved sequence of {} tokens has the state of {}",
                  saved.tokens.size(), sequence.tokens());
    }
    sequence.history_ = saved.tokens;
    if (values > 0) {
      sequence.residuals_.resize(values);
      std::memcpy(sequence.residuals_.data(), state.data(), head);
      sequence.draft_cells_ = sequence.tokens() - 1;
    }
    return sequence;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::exhausted, "no memory to restore a sequence");
  }
}

// --- reading ------------------------------------------------------------------------------------

Status Forward::check(std::span<const std::int32_t> tokens) const {
  for (const std::int32_t id : tokens) {
    if (id < 0 || static_cast<std::uint32_t>(id) >= network_.embedding.rows) {
      return fail(ErrorCode::invalid_argument, "token id {} is outside the vocabulary of {}", id,
                  network_.embedding.rows);
    }
  }
  return {};
}

Status Forward::read(std::span<const Rows> window, std::span<const std::uint32_t> logit_rows,
                     std::span<float> logits) {
  std::uint32_t total = 0;
  for (const Rows& rows : window) {
    STRATA_TRY(rows.sequence->status_);
    STRATA_TRY(check(rows.tokens));
    total += static_cast<std::uint32_t>(rows.tokens.size());
  }
  if (logits.size() != logit_rows.size() * network_.head.rows) {
    return fail(ErrorCode::internal, "room for {} logits of {} rows of {}", logits.size(),
                logit_rows.size(), network_.head.rows);
  }
  for (const std::uint32_t row : logit_rows)
    if (row >= total) return fail(ErrorCode::internal, "logits of row {} of {} asked", row, total);
  // Everything that can fail comes first; from begin() on only memory can still end the window.
  try {
    if (drafts_)
      for (const Rows& rows : window) STRATA_TRY(catch_up(*rows.sequence, kLateCells));
    tokens_.clear();
    parts_.clear();
    for (const Rows& rows : window) {
      parts_.push_back({rows.sequence->state_.get(), static_cast<std::uint32_t>(tokens_.size()),
                        static_cast<std::uint32_t>(rows.tokens.size()), rows.sequence->tokens(),
                        rows.tentative});
      tokens_.insert(tokens_.end(), rows.tokens.begin(), rows.tokens.end());
    }
    STRATA_TRY(request_ngrams(window));
    STRATA_TRY(backend_.begin({tokens_, parts_}));
    const bool picked = wants_less(logit_rows);
    layers(window, picked ? &logit_rows : nullptr);
    if (drafts_) keep_residuals(window);
    std::vector<std::uint32_t> places(picked ? logit_rows.size() : 0);
    std::iota(places.begin(), places.end(), 0u);
    backend_.head(network_.mixer, network_.head,
                  picked ? std::span<const std::uint32_t>(places) : logit_rows, logits);
    for (const Rows& rows : window) {
      std::vector<std::int32_t>& history = rows.sequence->history_;
      history.insert(history.end(), rows.tokens.begin(), rows.tokens.end());
    }
  } catch (const std::bad_alloc&) {  // small buffers of the operations
    return fail(ErrorCode::exhausted, "no memory in the middle of a window of {} rows", total);
  }
  for (std::uint32_t p = 0; p < window.size(); ++p)
    if (Status& status = window[p].sequence->status_; status) status = backend_.failure(p);
  backend_.end();
  if (!window.empty() &&
      std::all_of(window.begin(), window.end(), [](const Rows& r) { return !r.sequence->status_; }))
    return window.front().sequence->status_;
  return {};
}

void Forward::take_back(Sequence& sequence, std::uint32_t rows) {
  sequence.state_->take_back(rows);
  sequence.history_.resize(sequence.history_.size() - rows);
  if (drafts_)
    sequence.residuals_.resize(sequence.residuals_.size() -
                               std::size_t{rows} * network_.residual.wide());
}

// Whether the last layer's experts need not see all rows: nobody reads what they make of those
// without logits. (The draft block does, of every position.)
bool Forward::wants_less(std::span<const std::uint32_t> logit_rows) const {
  return !drafts_ && !observer_ && logit_rows.size() < tokens_.size() &&
         std::adjacent_find(logit_rows.begin(), logit_rows.end(), std::greater_equal<>()) ==
             logit_rows.end();
}

// The network, top to bottom. With `wanted`, only these rows leave the last attention or delta net:
// they are the window's rows then.
void Forward::layers(std::span<const Rows> window, const std::span<const std::uint32_t>* wanted) {
  std::vector<float> wide(observer_ ? tokens_.size() * network_.residual.wide() : 0);
  const auto observed = [&](std::uint32_t layer) {
    if (!observer_) return;
    backend_.copy_residual(0, wide);
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
    if (wanted && l + 1 == network_.blocks.size()) {
      if (wanted->empty()) return;
      backend_.pick(*wanted);
    }
    backend_.write();
    feed_forward(block);
  }
  observed(static_cast<std::uint32_t>(network_.blocks.size()));
}

void Forward::feed_forward(const Block& block) {
  backend_.read(block.experts_residual);
  backend_.experts(block.experts);
  backend_.write();
}

// --- drafts -------------------------------------------------------------------------------------

// R of the window's positions, for the draft block's cells.
void Forward::keep_residuals(std::span<const Rows> window) {
  for (std::size_t p = 0; p < window.size(); ++p) {
    Sequence& sequence = *window[p].sequence;
    std::vector<float>& kept = sequence.residuals_;
    if (sequence.drafted_after_ == window[p].tokens.front()) {  // the last position's cell stands
      ++sequence.draft_cells_;
      kept.clear();
    }
    sequence.drafted_after_.reset();
    sequence.chain_ = 0;
    const std::size_t before = kept.size();
    kept.resize(before + window[p].tokens.size() * network_.residual.wide());
    backend_.copy_residual(parts_[p].first_row, std::span(kept).subspan(before));
  }
}

// The draft block on the rows of tokens_; `wide` is R of their positions. Only the wanted rows go
// on behind the caches: they are the window's rows then.
Status Forward::draft_window(std::span<const WindowPart> parts, std::span<const float> wide,
                             std::span<const std::uint32_t> wanted) {
  const DraftBlock& draft = *network_.draft;
  const auto layer = static_cast<std::uint32_t>(network_.blocks.size());
  STRATA_TRY(backend_.begin({tokens_, parts, true}));
  backend_.embed_draft(draft.input, network_.embedding, wide);
  backend_.read(draft.block.attention_residual);
  if (wanted.empty()) {
    backend_.attention_cells(draft.block.attention, layer);
    return {};
  }
  backend_.attention(draft.block.attention, layer);
  if (wanted.size() < tokens_.size()) backend_.pick(wanted);
  backend_.write();
  feed_forward(draft.block);
  return {};
}

// The cells of all but the last position, if more than `allowed` positions have none.
Status Forward::catch_up(Sequence& sequence, std::size_t allowed) {
  if (late(sequence) <= allowed) return {};
  const std::size_t wide = network_.residual.wide(), count = late(sequence) - 1;
  const auto after = std::span(sequence.history_).subspan(sequence.draft_cells_ + 1);
  for (std::size_t done = 0; done < count;) {
    const std::size_t rows = std::min(count - done, kDraftRows);
    tokens_.assign(after.begin() + static_cast<std::ptrdiff_t>(done),
                   after.begin() + static_cast<std::ptrdiff_t>(done + rows));
    const WindowPart part{sequence.state_.get(), 0, static_cast<std::uint32_t>(rows),
                          sequence.draft_cells_ + static_cast<std::uint32_t>(done)};
    STRATA_TRY(draft_window({&part, 1},
                            std::span(sequence.residuals_).subspan(done * wide, rows * wide), {}));
    backend_.end();
    done += rows;
  }
  sequence.draft_cells_ += static_cast<std::uint32_t>(count);
  sequence.residuals_.erase(
      sequence.residuals_.begin(),
      sequence.residuals_.begin() + static_cast<std::ptrdiff_t>(count * wide));
  sequence.residuals_.shrink_to_fit();  // it may have held a prompt's chunk
  return {};
}

Status Forward::catch_up_after_prompt(Sequence& sequence) {
  return drafts_ ? catch_up(sequence, kLateCells) : Status();
}

Status Forward::draft(std::span<const DraftStep> steps, std::span<float> logits) {
  if (!drafts_ || logits.size() != steps.size() * drafts_->size()) {
    return fail(ErrorCode::internal, "room for {} draft logits of {} sequences", logits.size(),
                steps.size());
  }
  const std::size_t wide = network_.residual.wide();
  std::vector<std::uint32_t> last;  // row of each sequence
  try {
    for (const DraftStep& step : steps) {
      STRATA_TRY(step.sequence->status_);
      STRATA_TRY(check({&step.token, 1}));
      if (step.sequence->tokens() == 0)
        return fail(ErrorCode::internal, "a draft for a sequence that has read nothing");
      if (step.sequence->chain_ == 0) STRATA_TRY(catch_up(*step.sequence, kLateCells));
    }
    tokens_.clear();
    parts_.clear();
    draft_wide_.clear();
    for (const DraftStep& step : steps) {
      const Sequence& s = *step.sequence;
      const auto first = static_cast<std::uint32_t>(tokens_.size());
      std::uint32_t position = s.tokens() - 1 + s.chain_;
      const std::vector<float>& from = s.chain_ == 0 ? s.residuals_ : s.chain_residual_;
      draft_wide_.insert(draft_wide_.end(), from.begin(), from.end());
      if (s.chain_ == 0) {  // with the cells that are late
        position = s.draft_cells_;
        tokens_.insert(tokens_.end(), s.history_.begin() + position + 1, s.history_.end());
      }
      tokens_.push_back(step.token);
      last.push_back(static_cast<std::uint32_t>(tokens_.size() - 1));
      parts_.push_back({s.state_.get(), first, last.back() + 1 - first, position});
    }
    STRATA_TRY(draft_window(parts_, draft_wide_, last));
    for (std::size_t i = 0; i < steps.size(); ++i) {
      Sequence& s = *steps[i].sequence;
      s.chain_residual_.resize(wide);
      backend_.copy_residual(static_cast<std::uint32_t>(i), s.chain_residual_);
      if (s.chain_++ > 0) continue;
      s.drafted_after_ = steps[i].token;
      s.draft_cells_ = s.tokens() - 1;
      s.residuals_.erase(s.residuals_.begin(),
                         s.residuals_.end() - static_cast<std::ptrdiff_t>(wide));
    }
    std::iota(last.begin(), last.end(), 0u);
    backend_.head(network_.draft->mixer, drafts_->head(), last, logits);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::exhausted, "no memory for a draft");
  }
  backend_.end();
  for (std::uint32_t part = 0; part < parts_.size(); ++part) STRATA_TRY(backend_.failure(part));
  return {};
}

// --- n-gram rows --------------------------------------------------------------------------------

void Forward::prefetch(const Sequence& sequence, std::span<const std::int32_t> tokens,
                       std::size_t known) {
  try {
    for (const Block& block : network_.blocks) {
      if (!block.ngram) continue;
      block.ngram_table->prefetch(rows_of(*block.ngram_hash, sequence.history_, tokens, known));
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
      const auto ids = rows_of(*block.ngram_hash, part.sequence->history_, part.tokens, 0);
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
