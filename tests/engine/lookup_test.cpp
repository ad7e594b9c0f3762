// Prompt lookup against comparing all earlier places one by one.
#include "engine/lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace strata {
namespace {

using Tokens = std::vector<TokenId>;
using testing::ElementsAre;
using testing::IsEmpty;

// The same by its definition, without an index.
Lookup::Guess by_comparison(const Tokens& tokens, std::uint32_t most) {
  Lookup::Guess best;
  if (tokens.size() <= Lookup::kGram || most == 0) return best;
  const auto equal_before = [&](std::size_t place) {
    std::uint32_t equal = 0;
    while (equal < place && equal < Lookup::kLongest &&
           tokens[place - 1 - equal] == tokens[tokens.size() - 1 - equal])
      ++equal;
    return equal;
  };
  std::uint32_t tried = 0;
  for (std::size_t place = tokens.size() - 1; place >= Lookup::kGram; --place) {
    const std::uint32_t equal = equal_before(place);
    if (equal < Lookup::kGram) continue;
    if (tried++ == Lookup::kPlaces) break;
    if (equal <= best.match) continue;
    best.match = equal;
    const std::size_t end = std::min<std::size_t>(tokens.size(), place + most);
    best.tokens.assign(tokens.begin() + static_cast<std::ptrdiff_t>(place),
                       tokens.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return best;
}

TEST(Lookup, GuessesWhatFollowedTheSameTokens) {
  Lookup lookup;
  const Lookup::Guess guess = lookup.guess(Tokens{9, 1, 2, 3, 4, 5, 6, 1, 2, 3}, 2);
  EXPECT_THAT(guess.tokens, ElementsAre(4, 5));
  EXPECT_EQ(guess.match, 3u);
}

TEST(Lookup, TheLongerMatchWinsOverTheLaterOne) {
  Lookup lookup;
  const Lookup::Guess guess = lookup.guess(Tokens{8, 1, 2, 3, 40, 7, 1, 2, 3, 50, 8, 1, 2, 3}, 1);
  EXPECT_THAT(guess.tokens, ElementsAre(40));
  EXPECT_EQ(guess.match, 4u);
  // Of equal ones the later.
  Lookup other;
  EXPECT_THAT(other.guess(Tokens{1, 2, 3, 40, 7, 1, 2, 3, 50, 9, 1, 2, 3}, 1).tokens,
              ElementsAre(50));
}

TEST(Lookup, NothingWhereTheTextDoesNotRepeatItself) {
  Lookup lookup;
  EXPECT_THAT(lookup.guess(Tokens{}, 5).tokens, IsEmpty());
  EXPECT_THAT(lookup.guess(Tokens{1, 2, 3}, 5).tokens, IsEmpty());
  EXPECT_THAT(lookup.guess(Tokens{1, 2, 3, 4, 5, 6, 2, 3}, 5).tokens, IsEmpty());
  Lookup none;
  EXPECT_THAT(none.guess(Tokens{1, 2, 3, 1, 2, 3}, 0).tokens, IsEmpty());
}

TEST(Lookup, EqualsComparingAllPlacesAsTheTextGrows) {
  std::mt19937 random(5);
  for (int text = 0; text < 60; ++text) {
    Lookup lookup;
    Tokens tokens;
    const auto alphabet = static_cast<std::uint32_t>(2 + random() % 6);
    while (tokens.size() < 300) {
      const std::size_t more = 1 + random() % 40;
      for (std::size_t i = 0; i < more; ++i)
        tokens.push_back(static_cast<TokenId>(random() % alphabet));
      const auto most = static_cast<std::uint32_t>(random() % 16);
      const Lookup::Guess guess = lookup.guess(tokens, most),
                          expected = by_comparison(tokens, most);
      ASSERT_EQ(guess.tokens, expected.tokens) << text << " at " << tokens.size();
      ASSERT_EQ(guess.match, expected.match) << text << " at " << tokens.size();
    }
  }
}

}  // namespace
}  // namespace strata
