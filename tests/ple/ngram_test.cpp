// The hash against rows computed by another program (HF's formulation), at the full size of the
// model: primes, offsets and multipliers as its configuration has them.
#include "ple/ngram.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

constexpr std::int32_t kEos = 248044;
const std::vector<std::uint64_t> kMultipliers = {23703573157769, 20109073645365, 8052911324071};
const std::vector<std::uint64_t> kSizes = {
    20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077,
    20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171};

NgramHash full_hash() {
  std::vector<std::uint64_t> offsets(kSizes.size(), 0);
  for (std::size_t h = 1; h < kSizes.size(); ++h) offsets[h] = offsets[h - 1] + kSizes[h - 1];
  auto hash = NgramHash::create(kMultipliers, kSizes, offsets, kEos);
  EXPECT_TRUE(hash);
  return std::move(*hash);
}

std::vector<std::uint64_t> rows_at(const NgramHash& hash, const std::vector<std::int32_t>& tokens,
                                   std::size_t position) {
  std::vector<std::int32_t> previous(tokens.rend() - static_cast<std::ptrdiff_t>(position),
                                     tokens.rend());
  std::vector<std::uint64_t> rows(hash.heads());
  hash.rows(tokens[position], previous, rows);
  return rows;
}

const std::vector<std::int32_t> kTokens = {248045, 846, 198, kEos, 9707, 0, 0};

TEST(NgramHash, RowsEqualTheModelsOwn) {
  const NgramHash hash = full_hash();
  EXPECT_EQ(hash.table_rows(), 320001446u);
  EXPECT_EQ(hash.ngram_size(), 3u);
  using Rows = std::vector<std::uint64_t>;
  EXPECT_EQ(rows_at(hash, kTokens, 0),
            (Rows{13981229, 30076798, 49239434, 61315716, 98540601, 111186732, 120378863, 146384625,
                  173637879, 184336749, 217808755, 222173721, 249579227, 277180543, 299757935,
                  312970430}));
  EXPECT_EQ(rows_at(hash, kTokens, 3),
            (Rows{16849591, 37537304, 42290399, 73883125, 88405327, 114186760, 123740665, 158125394,
                  172066454, 182943779, 210981828, 234252677, 240798193, 268401662, 284504606,
                  306781843}));
  EXPECT_EQ(rows_at(hash, kTokens, 4),  // what stands before the end of a text does not count
            (Rows{16410909, 39682429, 55103279, 60931720, 87006904, 116506179, 131512017, 152932897,
                  169641436, 182022480, 209277433, 237891023, 256841529, 277007269, 290665954,
                  300984276}));
  EXPECT_EQ(
      rows_at(hash, kTokens, 6),  // token 0 is a token
      (Rows{0, 20000003, 40000026, 60000059, 80000106, 100000165, 120000228, 140000297, 177118410,
            195760404, 217580545, 220345604, 249814516, 279297510, 282461583, 318305569}));
}

TEST(NgramHash, OnlyTheLastPredecessorsCount) {
  const NgramHash hash = full_hash();
  std::vector<std::uint64_t> two(hash.heads()), many(hash.heads());
  hash.rows(5, std::vector<std::int32_t>{6, 7}, two);
  hash.rows(5, std::vector<std::int32_t>{6, 7, 8, 9, kEos}, many);
  EXPECT_EQ(two, many);
}

TEST(NgramHash, AnyOrderHasItsHeads) {
  // Orders 2 to 4: a fourth-order head must depend on the oldest of three predecessors.
  const auto hash = NgramHash::create({11, 13, 17, 19}, {101, 103, 107}, {0, 101, 204}, -1);
  ASSERT_TRUE(hash);
  EXPECT_EQ(hash->ngram_size(), 4u);
  std::vector<std::uint64_t> a(3), b(3);
  hash->rows(1, std::vector<std::int32_t>{2, 3, 4}, a);
  hash->rows(1, std::vector<std::int32_t>{2, 3, 5}, b);
  EXPECT_EQ(a[0], (11u ^ 26u) % 101);
  EXPECT_EQ(a[1], (11u ^ 26u ^ 51u) % 103 + 101);
  EXPECT_EQ(a[2], (11u ^ 26u ^ 51u ^ 76u) % 107 + 204);
  EXPECT_EQ(a[0], b[0]);
  EXPECT_EQ(a[1], b[1]);
  EXPECT_NE(a[2], b[2]);
}

TEST(NgramHash, ImpossibleConstantsAreRefused) {
  EXPECT_FALSE(NgramHash::create({1}, {7}, {0}, 0));
  EXPECT_FALSE(NgramHash::create({1, 2}, {}, {}, 0));
  EXPECT_FALSE(NgramHash::create({1, 2, 3}, {7, 7, 7}, {0, 7, 14}, 0));
  EXPECT_FALSE(NgramHash::create({1, 2}, {7}, {0, 7}, 0));
  EXPECT_FALSE(NgramHash::create({1, 2}, {0}, {0}, 0));
  EXPECT_FALSE(NgramHash::create({1, 2}, {UINT64_MAX}, {0}, 0));
}

}  // namespace
}  // namespace strata
