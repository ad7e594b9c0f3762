#include "engine/token_bytes.h"

#include <algorithm>

namespace strata {

void TokenBytes::make() const {
  std::call_once(made_, [this] {
    for (std::size_t id = 0; id < tokenizer_.size(); ++id) {
      const auto token = static_cast<TokenId>(id);
      if (!tokenizer_.bytes(token).empty()) sorted_.push_back(token);
    }
    std::sort(sorted_.begin(), sorted_.end(),
              [&](TokenId a, TokenId b) { return tokenizer_.bytes(a) < tokenizer_.bytes(b); });
    for (const TokenId id : sorted_) {
      joined_ += tokenizer_.bytes(id);
      ends_.push_back(joined_.size());
    }
  });
}

std::size_t TokenBytes::size() const {
  make();
  return sorted_.size();
}

std::span<const TokenId> TokenBytes::beginning_with(std::string_view text) const {
  make();
  const auto first = std::lower_bound(
      sorted_.begin(), sorted_.end(), text,
      [&](TokenId id, std::string_view wanted) { return tokenizer_.bytes(id) < wanted; });
  const auto last = std::partition_point(
      first, sorted_.end(), [&](TokenId id) { return tokenizer_.bytes(id).starts_with(text); });
  return {first, last};
}

std::vector<TokenId> TokenBytes::holding(std::string_view text) const {
  make();
  std::vector<TokenId> found;
  for (std::size_t at = joined_.find(text); at != joined_.npos;) {
    const auto index =
        static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin());
    const bool inside = at + text.size() <= ends_[index];
    if (inside) found.push_back(sorted_[index]);
    // One place in a token is enough; what lies over its end is none.
    at = joined_.find(text, inside ? ends_[index] : at + 1);
  }
  return found;
}

}  // namespace strata
