// Where a prompt gets checkpoints.
#include "engine/checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "compute/backend.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr TokenId kTurn = 99;

// Tokens with a turn at each of these places.
std::vector<TokenId> prompt(std::uint32_t size, std::initializer_list<std::uint32_t> turns) {
  std::vector<TokenId> tokens(size, 1);
  for (const std::uint32_t turn : turns) tokens[turn] = kTurn;
  return tokens;
}

CacheOptions options(std::uint32_t every, std::uint32_t gap) {
  CacheOptions made;
  made.every = every;
  made.gap = gap;
  return made;
}

// What many short questions share is worth a checkpoint although little follows it.
TEST(Checkpoints, TheEndOfASystemPromptBeforeAShortQuestion) {
  std::vector<TokenId> prompt(200, 1);
  prompt[0] = kTurn;
  prompt.insert(prompt.end(), {kTurn, 5, 6, 7, kTurn, 8, 9});
  const CheckpointPlan plan = plan_checkpoints(prompt, 0, kTurn, options(0, 32));
  EXPECT_EQ(plan.cuts, std::vector<std::uint32_t>{200});
  EXPECT_EQ(plan.tail, 0u);  // too close to be worth another
}

TEST(Checkpoints, AfterTheSystemPromptAtTheLastQuestionAndBeforeTheAnswer) {
  // System, three turns, and the opening of the answer.
  const auto tokens = prompt(405, {0, 100, 200, 300, 400});
  const CheckpointPlan plan = plan_checkpoints(tokens, 0, kTurn, options(0, 32));
  EXPECT_THAT(plan.cuts, ElementsAre(100, 300));
  EXPECT_EQ(plan.tail, 5u);
}

TEST(Checkpoints, EveryManyTokens) {
  const auto tokens = prompt(1000, {});
  const CheckpointPlan plan = plan_checkpoints(tokens, 0, kTurn, options(300, 32));
  EXPECT_THAT(plan.cuts, ElementsAre(300, 600, 900));
  EXPECT_EQ(plan.tail, 1u);  // regenerating reads the last token only
  EXPECT_THAT(plan_checkpoints(tokens, 0, {}, options(0, 32)).cuts, IsEmpty());
}

TEST(Checkpoints, OnlyWhereSomethingIsToBeRead) {
  const auto tokens = prompt(405, {0, 100, 200, 300, 400});
  EXPECT_THAT(plan_checkpoints(tokens, 100, kTurn, options(0, 32)).cuts, ElementsAre(300));
  EXPECT_THAT(plan_checkpoints(tokens, 290, kTurn, options(0, 32)).cuts, IsEmpty());
  const CheckpointPlan all = plan_checkpoints(tokens, 404, kTurn, options(100, 32));
  EXPECT_THAT(all.cuts, IsEmpty());
  EXPECT_EQ(all.tail, 0u);
}

TEST(Checkpoints, ShortPromptsHaveNone) {
  for (std::uint32_t size = 0; size < 32; ++size) {
    const auto tokens = prompt(size, {});
    const CheckpointPlan plan = plan_checkpoints(tokens, 0, kTurn, options(8, 32));
    EXPECT_THAT(plan.cuts, IsEmpty()) << size;
    EXPECT_EQ(plan.tail, 0u) << size;
  }
}

TEST(Checkpoints, AnOpeningThatIsTooLongForAWindowsEndIsNoTail) {
  const auto tokens = prompt(200, {0, 200 - kMaxTentative - 1});
  const CheckpointPlan plan = plan_checkpoints(tokens, 0, kTurn, options(0, 10));
  EXPECT_EQ(plan.tail, 1u);
  EXPECT_THAT(plan.cuts, ElementsAre(200 - kMaxTentative - 1));
}

TEST(Checkpoints, AreOrderedAndAGapApartWhateverThePrompt) {
  std::mt19937 random(17);
  for (int i = 0; i < 5000; ++i) {
    const auto size = static_cast<std::uint32_t>(random() % 400);
    std::vector<TokenId> tokens(size);
    for (TokenId& token : tokens) token = random() % 20 == 0 ? kTurn : 1;
    const auto below = [&](std::uint32_t end) {
      return static_cast<std::uint32_t>(random() % end);
    };
    const std::uint32_t from = size == 0 ? 0 : below(size), gap = 1 + below(64), every = below(100);
    const CheckpointPlan plan = plan_checkpoints(tokens, from, kTurn, options(every, gap));
    std::uint32_t last = from;
    for (const std::uint32_t cut : plan.cuts) {
      ASSERT_GE(cut, last + gap) << i;
      ASSERT_LT(cut, size) << i;
      ASSERT_TRUE(tokens[cut] == kTurn || (every > 0 && cut % every == 0)) << i;
      last = cut;
    }
    ASSERT_LE(plan.tail, kMaxTentative) << i;
    if (plan.tail == 0) continue;
    ASSERT_GE(size - plan.tail, last + gap) << i;
    ASSERT_TRUE(plan.tail == 1 || tokens[size - plan.tail] == kTurn) << i;
  }
}

}  // namespace
}  // namespace strata
