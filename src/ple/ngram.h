// The n-gram embedding's addressing (which rows of the table a token reads) and the table itself.
// Spec: model.md 3.4. Integer arithmetic in 64 bits, exact.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "gguf/gguf.h"

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

// The table of one n-gram layer: fixed-width rows of float values, whatever their stored form.
class RowTable {
 public:
  virtual ~RowTable() = default;
  virtual std::uint64_t rows() const = 0;
  virtual std::uint32_t width() const = 0;
  // out: [ids.size() x width()]. Ids must be below rows(). Thread safe.
  virtual Status gather(std::span<const std::uint64_t> ids, std::span<float> out) const = 0;
};

// A table that is read from the mapped model file. Block formats, F32, F16 and BF16; I8 together
// with strata.ple.format = "f8_e4m3" and strata.ple.scale is the FP8 form.
Result<std::shared_ptr<RowTable>> open_row_table(std::shared_ptr<const GgufModel> model,
                                                 const TensorView& tensor);

}  // namespace strata
