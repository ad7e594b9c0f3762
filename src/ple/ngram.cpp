#include "ple/ngram.h"

#include <limits>

namespace strata {

Result<NgramHash> NgramHash::create(std::vector<std::uint64_t> multipliers,
                                    std::vector<std::uint64_t> head_vocab_sizes,
                                    std::vector<std::uint64_t> head_offsets, std::int32_t eos) {
  if (multipliers.size() < 2) {
    return fail(ErrorCode::corrupt, "the n-gram hash has {} multipliers, at least 2 are needed",
                multipliers.size());
  }
  const std::size_t orders = multipliers.size() - 1;
  const std::size_t heads = head_vocab_sizes.size();
  if (heads == 0 || heads % orders != 0) {
    return fail(ErrorCode::corrupt, "the n-gram hash has {} heads, no multiple of its {} orders",
                heads, orders);
  }
  if (head_offsets.size() != heads) {
    return fail(ErrorCode::corrupt, "the n-gram hash has {} head sizes but {} offsets", heads,
                head_offsets.size());
  }
  NgramHash hash;
  for (std::size_t h = 0; h < heads; ++h) {
    constexpr std::uint64_t limit = std::numeric_limits<std::int64_t>::max();
    if (head_vocab_sizes[h] == 0 || head_vocab_sizes[h] > limit || head_offsets[h] > limit) {
      return fail(ErrorCode::corrupt, "n-gram head {} has size {} and offset {}", h,
                  head_vocab_sizes[h], head_offsets[h]);
    }
    hash.table_rows_ = std::max(hash.table_rows_, head_vocab_sizes[h] + head_offsets[h]);
  }
  hash.heads_per_ngram_ = heads / orders;
  hash.multipliers_ = std::move(multipliers);
  hash.head_vocab_sizes_ = std::move(head_vocab_sizes);
  hash.head_offsets_ = std::move(head_offsets);
  hash.eos_ = eos;
  return hash;
}

void NgramHash::rows(std::int32_t token, std::span<const std::int32_t> previous,
                     std::span<std::uint64_t> rows) const {
  const auto id = [](std::int32_t t) {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(t));
  };
  std::uint64_t mixed = id(token) * multipliers_[0];
  bool cut = false;
  std::size_t head = 0;
  for (std::size_t k = 1; k < multipliers_.size(); ++k) {
    cut = cut || k > previous.size() || previous[k - 1] == eos_;
    mixed ^= id(cut ? eos_ : previous[k - 1]) * multipliers_[k];
    for (std::size_t i = 0; i < heads_per_ngram_; ++i, ++head)
      rows[head] = mixed % head_vocab_sizes_[head] + head_offsets_[head];
  }
}

}  // namespace strata
