#include "engine/lookup.h"

#include <algorithm>

namespace strata {
namespace {

// Collisions do no harm: the tokens are compared.
std::uint64_t gram_at(const TokenId* tokens) {
  std::uint64_t hash = 0;
  for (std::uint32_t i = 0; i < Lookup::kGram; ++i)
    hash = (hash ^ static_cast<std::uint32_t>(tokens[i])) * 0x9E3779B97F4A7C15ull;
  return hash;
}

}  // namespace

// Grams that end before the last token: the last gram is the one that is looked for.
void Lookup::index(std::span<const TokenId> tokens) {
  before_.resize(tokens.size());
  for (std::uint32_t end = std::max(indexed_, kGram); end < tokens.size(); ++end) {
    std::uint32_t& last = last_[gram_at(tokens.data() + end - kGram)];
    before_[end] = last;
    last = end;
  }
  indexed_ = static_cast<std::uint32_t>(tokens.size());
}

Lookup::Guess Lookup::guess(std::span<const TokenId> tokens, std::uint32_t most) {
  Guess best;
  if (tokens.size() <= kGram || most == 0) return best;
  index(tokens);
  const auto found = last_.find(gram_at(tokens.data() + tokens.size() - kGram));
  std::uint32_t place = found == last_.end() ? 0 : found->second, from = 0;
  for (std::uint32_t tried = 0; place > 0 && tried < kPlaces; ++tried, place = before_[place]) {
    std::uint32_t equal = 0;
    while (equal < std::min(place, kLongest) &&
           tokens[place - 1 - equal] == tokens[tokens.size() - 1 - equal])
      ++equal;
    if (equal < kGram || equal <= best.match) continue;
    best.match = equal;
    from = place;
  }
  if (best.match == 0) return best;
  const auto rest = tokens.subspan(from);
  best.tokens.assign(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(
                                                      std::min<std::size_t>(most, rest.size())));
  return best;
}

}  // namespace strata
