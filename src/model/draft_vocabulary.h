// The tokens that the draft block may guess. Of a large vocabulary a part is enough: the head is
// most of what a draft costs, and a token that is never guessed costs a draft, not a word.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/network.h"

namespace strata {

// Immutable, thread safe.
class DraftVocabulary {
 public:
  // Every token; the head is the network's own, which must outlive this.
  static DraftVocabulary all(const Network& network);
  // A copy of the head's rows of these ids (sorted here; at least one, each once and inside the
  // vocabulary: `invalid_argument`; `exhausted` when memory is out).
  static Result<DraftVocabulary> of(const Network& network, std::vector<std::int32_t> ids);
  // The usual choice: byte pairs are numbered by how often they occur, so the first ids and the
  // specials at the end of the vocabulary make most of a text. All of a vocabulary of no more than
  // `most` tokens.
  static Result<DraftVocabulary> usual(const Network& network, std::uint32_t most = 65536);

  DraftVocabulary(DraftVocabulary&&) = default;  // the head may point into what is held here
  DraftVocabulary& operator=(DraftVocabulary&&) = default;

  std::size_t size() const { return head_.rows; }
  const Matrix& head() const { return head_; }
  std::int32_t id(std::size_t row) const {
    return ids_.empty() ? static_cast<std::int32_t>(row) : ids_[row];
  }
  std::size_t bytes() const { return rows_.size(); }  // of the copy

 private:
  DraftVocabulary() = default;

  std::vector<std::int32_t> ids_;  // empty: all
  std::vector<std::byte> rows_;
  Matrix head_;
};

}  // namespace strata
