// The n-gram embedding's addressing: which rows of the table (row_table.h) a token reads.
// Integer arithmetic in 64 bits, exact. Costs the same however long the sequence is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace strata {

// Row ids of one n-gram layer. Immutable, thread safe.
class NgramHash {
 public:
  // One prime and one offset for each head; heads_per_ngram heads for each
  // order 2..multipliers.size().
  static Result<NgramHash> create(std::vector<std::uint64_t> multipliers,
                                  std::vector<std::uint64_t> head_vocab_sizes,
                                  std::vector<std::uint64_t> head_offsets, std::int32_t eos);

  std::size_t heads() const { return head_vocab_sizes_.size(); }
  std::size_t ngram_size() const { return multipliers_.size(); }
  std::uint64_t table_rows() const { return table_rows_; }  // highest row + 1

  // Rows of a token. `previous` holds the tokens before it, newest first, at most ngram_size() - 1
  // of them count; fewer means the sequence starts there. A predecessor that is the end-of-text
  // token turns itself and everything older into end-of-text. `rows` has heads() places.
  void rows(std::int32_t token, std::span<const std::int32_t> previous,
            std::span<std::uint64_t> rows) const;

 private:
  std::vector<std::uint64_t> multipliers_, head_vocab_sizes_, head_offsets_;
  std::int32_t eos_ = -1;
  std::size_t heads_per_ngram_ = 0;
  std::uint64_t table_rows_ = 0;
};

}  // namespace strata
