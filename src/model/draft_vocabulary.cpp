#include "model/draft_vocabulary.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>

namespace strata {

DraftVocabulary DraftVocabulary::all(const Network& network) {
  DraftVocabulary vocabulary;
  vocabulary.head_ = network.head;
  return vocabulary;
}

Result<DraftVocabulary> DraftVocabulary::of(const Network& network, std::vector<std::int32_t> ids) {
  const Matrix& head = network.head;
  std::sort(ids.begin(), ids.end());
  if (ids.empty()) return fail(ErrorCode::invalid_argument, "a draft vocabulary of no tokens");
  if (ids.front() < 0 || static_cast<std::uint32_t>(ids.back()) >= head.rows) {
    return fail(ErrorCode::invalid_argument,
                "the draft vocabulary holds token id {}, outside the vocabulary of {}",
                ids.front() < 0 ? ids.front() : ids.back(), head.rows);
  }
  if (const auto twice = std::adjacent_find(ids.begin(), ids.end()); twice != ids.end())
    return fail(ErrorCode::invalid_argument, "the draft vocabulary holds token id {} twice",
                *twice);
  DraftVocabulary vocabulary;
  try {
    vocabulary.rows_.resize(ids.size() * head.row_bytes);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::exhausted, "no memory for a draft vocabulary of {} tokens ({} MiB)",
                ids.size(), ids.size() * head.row_bytes >> 20);
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::memcpy(vocabulary.rows_.data() + i * head.row_bytes,
                head.row(static_cast<std::size_t>(ids[i])), head.row_bytes);
  }
  vocabulary.head_ = head;
  vocabulary.head_.rows = static_cast<std::uint32_t>(ids.size());
  vocabulary.head_.data = vocabulary.rows_.data();
  vocabulary.ids_ = std::move(ids);
  return vocabulary;
}

Result<DraftVocabulary> DraftVocabulary::usual(const Network& network, std::uint32_t most) {
  const std::uint32_t all_tokens = network.head.rows;
  if (all_tokens <= most) return all(network);
  constexpr std::uint32_t kSpecials = 512;  // and what the vocabulary is padded with
  std::vector<std::int32_t> ids(most);
  const auto first = ids.begin() + std::min(most, kSpecials);
  std::iota(ids.begin(), first, static_cast<std::int32_t>(all_tokens - (first - ids.begin())));
  std::iota(first, ids.end(), 0);
  return of(network, std::move(ids));
}

}  // namespace strata
