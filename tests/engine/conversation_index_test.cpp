// The index of saved conversations: the longest point by tokens, never by a hash; pages as long as
// they are needed.
#include "engine/conversation_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/engine/conversation_fixture.h"

namespace strata::conversations {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A hash as bad as can be: every edge of the tree is a candidate for every other.
std::uint64_t same_for_all(std::span<const std::byte>, std::uint64_t) {
  return 7;
}

std::vector<Hash128> pages_of(const Tokens& tokens) {
  const SavedPoint point = make_point(tokens);
  std::vector<Hash128> ids;
  for (std::size_t i = 0; i < small_shape().full_pages(tokens.size()); ++i)
    ids.push_back(page_id(small_shape(), {point.pages[i].get(), small_shape().page_bytes}));
  return ids;
}

// Every test runs with the real hash and with one that finds nothing.
class ConversationIndexTest : public testing::TestWithParam<bool> {
 protected:
  void save(const Tokens& tokens, std::int64_t last_use = 1) {
    const std::vector<Hash128> pages = pages_of(tokens);
    for (const Hash128& page : pages) index_.page_is_there(page, 224);
    const auto point = index_.add(point_id(small_shape(), tokens), tokens, pages);
    ASSERT_TRUE(point) << point.error().message;
    index_.set_stored(**point, point_file_bytes(small_shape(), tokens.size()), last_use);
  }
  void remove(const Tokens& tokens) { index_.remove(point_id(small_shape(), tokens)); }
  std::uint32_t longest(const Tokens& prompt) const {
    const auto* point = index_.longest(prompt);
    return point == nullptr ? 0 : point->tokens;
  }

  ConversationIndex index_ = GetParam() ? ConversationIndex(small_shape(), same_for_all)
                                        : ConversationIndex(small_shape());
};
INSTANTIATE_TEST_SUITE_P(GoodAndBadHash, ConversationIndexTest, testing::Bool());

TEST_P(ConversationIndexTest, FindsTheLongestThatLeavesAToken) {
  for (const std::size_t count : {1, 3, 4, 5, 8, 11}) save(counting(count));
  for (std::size_t prompt = 0; prompt <= 14; ++prompt) {
    std::uint32_t expected = 0;
    for (const std::uint32_t count : {1, 3, 4, 5, 8, 11})
      if (count < prompt) expected = count;
    EXPECT_EQ(longest(counting(prompt)), expected) << prompt << " tokens";
  }
}

TEST_P(ConversationIndexTest, ComparesEveryToken) {
  save(counting(11));
  for (std::size_t i = 0; i < 11; ++i) {
    Tokens other = counting(12);
    other[i] = 1000;
    EXPECT_EQ(longest(other), 0u) << "token " << i;
    EXPECT_EQ(index_.find(Tokens(other.begin(), other.end() - 1)), nullptr);
  }
  EXPECT_EQ(longest(counting(12)), 11u);
  ASSERT_NE(index_.find(counting(11)), nullptr);
  EXPECT_EQ(index_.find(counting(10)), nullptr);
}

TEST_P(ConversationIndexTest, AgreesWithComparingAllPoints) {
  std::mt19937 random(1);
  std::vector<Tokens> saved;
  const auto random_tokens = [&] {
    Tokens tokens(1 + random() % 14);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 2);
    return tokens;
  };
  for (int round = 0; round < 3000; ++round) {
    const Tokens tokens = random_tokens();
    if (random() % 3 == 0) {
      save(tokens);
      if (std::ranges::find(saved, tokens) == saved.end()) saved.push_back(tokens);
    } else if (random() % 3 == 0 && !saved.empty()) {
      const std::size_t victim = random() % saved.size();
      remove(saved[victim]);
      saved.erase(saved.begin() + static_cast<std::ptrdiff_t>(victim));
    }
    std::size_t expected = 0;
    for (const Tokens& candidate : saved) {
      if (candidate.size() < tokens.size() && candidate.size() > expected &&
          std::equal(candidate.begin(), candidate.end(), tokens.begin()))
        expected = candidate.size();
    }
    ASSERT_EQ(longest(tokens), expected) << "round " << round;
  }
  for (const Tokens& tokens : saved) remove(tokens);
  for (const auto& [id, page] : index_.pages()) EXPECT_EQ(page.needed_by, 0u);
}

TEST_P(ConversationIndexTest, PagesStayAsLongAsAPointNeedsThem) {
  const Tokens common = counting(8), left = common + counting(4, 100),
               right = common + counting(5, 200);
  save(left);
  save(right);
  EXPECT_EQ(index_.pages().size(), 4u) << "two common pages, one each";
  EXPECT_EQ(index_.known_pages(common + counting(7, 100)), pages_of(left));
  EXPECT_THAT(index_.unneeded_pages(), IsEmpty());
  remove(left);
  EXPECT_THAT(index_.unneeded_pages(), ElementsAre(pages_of(left)[2]));
  index_.page_is_lost(pages_of(left)[2], false);
  EXPECT_THAT(index_.unneeded_pages(), IsEmpty());
  EXPECT_EQ(longest(right + Tokens{1}), 13u);
  remove(right);
  EXPECT_EQ(index_.unneeded_pages().size(), 3u);
  for (const Hash128& page : pages_of(right)) index_.page_is_lost(page, false);
  EXPECT_EQ(index_.bytes(), 0u);
  EXPECT_TRUE(index_.pages().empty());
}

TEST_P(ConversationIndexTest, ReplacingAPointKeepsWhatBothNeed) {
  save(counting(9));
  save(counting(9), 5);
  EXPECT_EQ(index_.points().size(), 1u);
  EXPECT_THAT(index_.unneeded_pages(), IsEmpty());
  EXPECT_EQ(longest(counting(10)), 9u);
}

TEST_P(ConversationIndexTest, APointWithoutAPageIsNotOffered) {
  save(counting(4));
  save(counting(13));
  index_.page_is_lost(pages_of(counting(13))[1], true);
  EXPECT_EQ(longest(counting(14)), 4u);
  EXPECT_FALSE(index_.complete(*index_.find(counting(13))));
  index_.page_is_there(pages_of(counting(13))[1], 224);
  EXPECT_EQ(longest(counting(14)), 13u);
}

TEST_P(ConversationIndexTest, APointThatIsBeingWrittenIsNotOfferedAndDoesNotGo) {
  const Tokens tokens = counting(6);
  ASSERT_TRUE(index_.add(point_id(small_shape(), tokens), tokens, pages_of(tokens)));
  EXPECT_EQ(longest(counting(7)), 0u);
  EXPECT_EQ(index_.first_to_go(), nullptr);
}

TEST_P(ConversationIndexTest, TheLeastRecentlyUsedGoesFirst) {
  save(counting(3), 30);
  save(counting(4), 10);
  save(counting(5), 20);
  EXPECT_EQ(index_.first_to_go()->tokens, 4u);
  index_.set_stored(*index_.add_unusable({1, 1}), 500, 5);
  EXPECT_FALSE(index_.first_to_go()->usable);
}

TEST_P(ConversationIndexTest, RefusesAPageThatContradictsTheTokens) {
  save(counting(9));
  std::vector<Hash128> pages = pages_of(counting(10));
  pages[1].low ^= 1;
  const auto point = index_.add({5, 5}, counting(10), pages);
  ASSERT_FALSE(point);
  EXPECT_EQ(point.error().code, ErrorCode::corrupt);
  EXPECT_THAT(point.error().message, HasSubstr("page 1 of a saved conversation differs"));
  EXPECT_EQ(longest(counting(11)), 9u);
}

TEST_P(ConversationIndexTest, PagesOfOtherModelsAreNeededByTheirPoints) {
  index_.page_is_there({3, 3}, 5000);
  EXPECT_THAT(index_.unneeded_pages(), IsEmpty()) << "its point may be on its way";
  index_.set_stored(*index_.add_unusable({1, 1}, {{3, 3}, {4, 4}}), 100, 1);
  EXPECT_EQ(index_.bytes(), 8192u + 4096u);
  index_.give_up({3, 3});
  EXPECT_THAT(index_.unneeded_pages(), IsEmpty());
  index_.remove({1, 1});
  EXPECT_THAT(index_.unneeded_pages(), ElementsAre(Hash128{3, 3}));
  EXPECT_EQ(index_.bytes(), 8192u);
}

}  // namespace
}  // namespace strata::conversations
