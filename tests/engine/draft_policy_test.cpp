// The policy's arithmetic: what windows cost, what guesses are worth, and how much is lost to
// trying.
#include "engine/draft_policy.h"

#include <gtest/gtest.h>

#include <random>

namespace strata {
namespace {

DepthChances chances(std::initializer_list<double> values) {
  DepthChances all;
  std::size_t depth = 0;
  for (const double value : values) all[depth++].value = value;
  while (depth < all.size()) all[depth++].value = 0;
  return all;
}

TEST(DraftPolicy, NothingIsWorthItBeforeAnythingIsMeasured) {
  const DraftPolicy policy;
  EXPECT_EQ(policy.window_seconds(1), 0);
  EXPECT_EQ(policy.plan(1, policy.usual_chances(false), kMaxDrafts).depth, 0u);
}

TEST(DraftPolicy, WindowsBetweenAndBeyondMeasuredOnesLieOnALine) {
  DraftPolicy policy;
  policy.window_took(1, 1.0);
  EXPECT_DOUBLE_EQ(policy.window_seconds(1), 1.0);
  EXPECT_GT(policy.window_seconds(2), 1.0);  // a guess until it is known
  policy.window_took(5, 3.0);
  EXPECT_DOUBLE_EQ(policy.window_seconds(2), 1.5);
  EXPECT_DOUBLE_EQ(policy.window_seconds(4), 2.5);
  EXPECT_DOUBLE_EQ(policy.window_seconds(9), 5.0);
  // More rows never count as cheaper.
  policy.window_took(3, 0.5);
  EXPECT_GE(policy.window_seconds(2), 1.0);
  EXPECT_EQ(policy.window_seconds(100'000), policy.window_seconds(256));
}

TEST(DraftPolicy, OneDisturbedWindowHardlyMovesWhatIsKnown) {
  DraftPolicy policy;
  for (int i = 0; i < 12; ++i) policy.window_took(1, 1.0);
  policy.window_took(1, 1000.0);
  EXPECT_LT(policy.window_seconds(1), 1.2);
  for (int i = 0; i < 100; ++i) policy.window_took(1, 2.0);  // but a change is learned
  EXPECT_NEAR(policy.window_seconds(1), 2.0, 0.05);
}

TEST(DraftPolicy, StepsOfOtherNumbersOfSequencesCountWhereNoneIsMeasured) {
  DraftPolicy policy;
  policy.window_took(1, 1.0);
  EXPECT_GT(policy.step_seconds(1), 0);
  policy.step_took(2, 0.25);
  policy.step_took(8, 0.5);
  EXPECT_DOUBLE_EQ(policy.step_seconds(1), 0.25);
  EXPECT_DOUBLE_EQ(policy.step_seconds(3), 0.25);
  EXPECT_DOUBLE_EQ(policy.step_seconds(64), 0.5);
}

// The plan is the depth of the least time a token, found here by its definition; none where little
// would be gained.
TEST(DraftPolicy, PlansTheDepthOfTheLeastTimeAToken) {
  std::mt19937 random(3);
  const auto uniform = [&] { return double(random()) / double(std::mt19937::max()); };
  bool none = false, some = false;
  for (int trial = 0; trial < 300; ++trial) {
    const double base = 1, row = 0.01 + uniform(), step = 0.3 * uniform();
    const auto sequences = static_cast<std::uint32_t>(1 + random() % 4);
    DraftPolicy policy;
    const auto window = [&](std::uint32_t rows) { return base + row * (rows - 1); };
    for (std::uint32_t rows = 1; rows <= 64; ++rows) policy.window_took(rows, window(rows));
    policy.step_took(sequences, step);
    DepthChances of;
    for (Chance& chance : of) chance.value = uniform();
    const auto most = static_cast<std::uint32_t>(random() % (kMaxDrafts + 1));
    const double alone = window(sequences) / sequences;
    double least = alone;
    std::uint32_t depth = 0;
    for (std::uint32_t d = 1; d <= most; ++d) {
      double tokens = 1, reached = 1;
      for (std::uint32_t i = 0; i < d; ++i) tokens += reached *= of[i].value;
      const double each = (window(sequences * (d + 1)) + d * step) / (sequences * tokens);
      if (each < least - 1e-12) least = each, depth = d;
    }
    const DraftPolicy::Plan plan = policy.plan(sequences, of, most);
    if (plan.depth == 0) {
      EXPECT_GE(least, 0.9 * alone) << trial;
      EXPECT_DOUBLE_EQ(plan.token_seconds, alone) << trial;
    } else {
      EXPECT_EQ(plan.depth, depth) << trial;
      EXPECT_NEAR(plan.token_seconds, least, 1e-9) << trial;
    }
    none |= plan.depth == 0;
    some |= plan.depth > 1;
  }
  EXPECT_TRUE(none && some);
}

TEST(DraftPolicy, FreeRowsAreTakenAndDearOnesAreNot) {
  DraftPolicy cheap, dear;
  for (std::uint32_t rows = 1; rows <= 16; ++rows) {
    cheap.window_took(rows, 1.0);
    dear.window_took(rows, rows);
  }
  const DepthChances good = chances({0.9, 0.9, 0.9, 0.1});
  EXPECT_EQ(cheap.plan(1, good, 3, 0).depth, 3u);
  EXPECT_EQ(cheap.plan(1, good, 2, 0).depth, 2u);  // no more than are wanted
  EXPECT_EQ(dear.plan(1, good, kMaxDrafts, 0).depth, 0u);
}

TEST(DraftPolicy, EveryKindOfGuessIsCountedByItself) {
  DraftPolicy policy;
  const GuessKind sure = GuessKind::of_draft(0.99f, false),
                  vague = GuessKind::of_draft(0.1f, false);
  const GuessKind sampled = GuessKind::of_draft(0.99f, true);
  const GuessKind lookup = GuessKind::of_lookup(3, false, false);
  const double vague_before = policy.chance(vague), sampled_before = policy.chance(sampled),
               lookup_before = policy.chance(lookup);
  for (int i = 0; i < 400; ++i) policy.judged(sure, i % 4 == 0);
  EXPECT_NEAR(policy.chance(sure), 0.25, 0.05);
  EXPECT_EQ(policy.chance(vague), vague_before);
  EXPECT_EQ(policy.chance(sampled), sampled_before);
  EXPECT_EQ(policy.chance(lookup), lookup_before);
}

TEST(DraftPolicy, ARequestStartsWithWhatIsUsualAndGoesItsOwnWay) {
  DraftPolicy policy;
  DepthChances one = policy.usual_chances(false);
  for (int i = 0; i < 200; ++i) policy.judged(0, false, false, one);
  EXPECT_LT(one[0].value, 0.05);
  DepthChances next = policy.usual_chances(false);
  EXPECT_LT(next[0].value, 0.1);
  EXPECT_GT(next[1].value, 0.5);                        // nothing was judged there
  EXPECT_GT(policy.usual_chances(true)[0].value, 0.5);  // nor with sampling
  for (int i = 0; i < 20; ++i) policy.judged(0, true, false, next);
  EXPECT_GT(next[0].value, 0.6);  // its own text counts for more than what is usual
}

TEST(GuessKind, LevelsRiseWithTheProbabilityAndTheMatch) {
  EXPECT_EQ(GuessKind::of_draft(0, false).level, 0);
  EXPECT_EQ(GuessKind::of_draft(1, false).level, GuessKind::kLevels - 1);
  std::uint8_t last = 0;
  for (std::uint32_t match = 3; match <= 200; ++match) {
    const GuessKind kind = GuessKind::of_lookup(match, match % 2 == 0, false);
    EXPECT_GE(kind.level, last);
    EXPECT_LT(kind.level, GuessKind::kLevels);
    EXPECT_EQ(kind.from, match % 2 == 0 ? GuessKind::From::agreed : GuessKind::From::lookup);
    last = kind.level;
  }
  EXPECT_GT(last, 0);
}

// Rounds of one second; a trial takes half a second more and gives no more tokens.
TEST(DraftPolicy, TryingInVainCostsAPercentAtMostAndNeverEnds) {
  DraftPolicy policy;
  policy.window_took(1, 1.0);
  double total = 0, lost = 0;
  std::uint32_t late_trials = 0;
  for (int round = 0; round < 50'000; ++round) {
    const bool trial = policy.trial();
    const double seconds = trial ? 1.5 : 1.0;
    policy.round_took(1, 1, seconds, trial);
    total += seconds;
    lost += seconds - 1;
    late_trials += trial && round > 40'000;
  }
  EXPECT_LT(lost / total, DraftPolicy::kTrialShare * 1.1);
  EXPECT_GT(late_trials, 20u);
}

TEST(DraftPolicy, TryingWithGainIsTriedAgainAtOnce) {
  DraftPolicy policy;
  policy.window_took(1, 1.0);
  std::uint32_t trials = 0;
  for (int round = 0; round < 100; ++round) {
    const bool trial = policy.trial();
    policy.round_took(1, trial ? 2 : 1, trial ? 1.5 : 1.0, trial);
    trials += trial;
  }
  EXPECT_GT(trials, 40u);
}

}  // namespace
}  // namespace strata
