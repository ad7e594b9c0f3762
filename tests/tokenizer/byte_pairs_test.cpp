// Merging against the plainest program for it.
#include "tokenizer/byte_pairs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace strata {
namespace {

using Pairs = std::map<std::pair<TokenId, TokenId>, MergeTable::Merge>;

std::vector<TokenId> plainly(std::string_view piece, const Pairs& pairs) {
  std::vector<TokenId> ids;
  for (const char c : piece) ids.push_back(static_cast<unsigned char>(c));
  for (;;) {
    std::size_t best = ids.size();
    std::uint32_t rank = MergeTable::kNoRank;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = pairs.find({ids[i], ids[i + 1]});
      if (found != pairs.end() && found->second.rank < rank) {
        rank = found->second.rank;
        best = i;
      }
    }
    if (best == ids.size()) return ids;
    ids[best] = pairs.at({ids[best], ids[best + 1]}).merged;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(BytePairs, MergeLowestRankThenLeftmostAtEveryLength) {
  std::array<TokenId, 256> bytes{};
  for (int b = 0; b < 256; ++b) bytes[static_cast<std::size_t>(b)] = b;
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    // Random merges over three letters, in any order of ranks: also those whose parts are made by
    // merges of higher rank.
    const TokenId letters = 3;
    std::vector<TokenId> known = {'a', 'b', 'c'};
    std::vector<std::pair<TokenId, TokenId>> chosen;
    Pairs pairs;
    for (TokenId next = 256; next < 256 + 40; ++next) {
      const TokenId left = known[random() % known.size()];
      const TokenId right = known[random() % known.size()];
      if (pairs.emplace(std::pair(left, right), MergeTable::Merge{0, next}).second) {
        chosen.emplace_back(left, right);
        known.push_back(next);
      }
    }
    std::shuffle(chosen.begin(), chosen.end(), random);
    MergeTable table(chosen.size());
    for (std::uint32_t rank = 0; rank < chosen.size(); ++rank) {
      MergeTable::Merge& merge = pairs[chosen[rank]];
      merge.rank = rank;
      ASSERT_TRUE(table.insert(chosen[rank].first, chosen[rank].second, merge));
      ASSERT_FALSE(table.insert(chosen[rank].first, chosen[rank].second, {999, 999}));
    }
    const BytePairs encoder(bytes, std::move(table));
    for (const std::size_t length : {0, 1, 2, 3, 10, 63, 64, 65, 66, 128, 400}) {
      std::string piece;
      while (piece.size() < length) {
        piece.push_back(static_cast<char>('a' + static_cast<int>(random() % letters)));
      }
      std::vector<TokenId> ids = {-7};  // encode appends
      encoder.encode(piece, ids);
      ASSERT_EQ(ids[0], -7);
      ids.erase(ids.begin());
      ASSERT_EQ(ids, plainly(piece, pairs)) << piece;
    }
  }
}

TEST(MergeTable, FindsWhatWasInsertedAndNothingElse) {
  MergeTable table(5000);
  for (TokenId i = 0; i < 5000; ++i) {
    ASSERT_TRUE(table.insert(i * 37, i % 70, {static_cast<std::uint32_t>(i), i + 1}));
  }
  for (TokenId i = 0; i < 5000; ++i) {
    ASSERT_EQ(table.find(i * 37, i % 70).rank, static_cast<std::uint32_t>(i));
    ASSERT_EQ(table.find(i * 37, i % 70).merged, i + 1);
    ASSERT_EQ(table.find(i * 37 + 1, i % 70).rank, MergeTable::kNoRank);
    ASSERT_EQ(table.find(i % 70, i * 37 + 200000).rank, MergeTable::kNoRank);
  }
  EXPECT_EQ(MergeTable().find(0, 0).rank, MergeTable::kNoRank);
}

}  // namespace
}  // namespace strata
