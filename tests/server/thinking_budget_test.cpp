#include "server/thinking_budget.h"

#include <gtest/gtest.h>

namespace strata::server {
namespace {

TEST(ThinkingBudget, FollowsTheRule) {
  const ThinkingOptions room;
  // Nobody says anything: from 1,024 tokens on an answer keeps a quarter, at least 512.
  EXPECT_EQ(thinking_budget({}, room, 1023), std::nullopt);
  EXPECT_EQ(thinking_budget({}, room, 1024), 512u);
  EXPECT_EQ(thinking_budget({}, room, 2048), 1536u);
  EXPECT_EQ(thinking_budget({}, room, 4096), 3072u);
  EXPECT_EQ(thinking_budget({}, room, 32768), 24576u);
  // Asked for.
  EXPECT_EQ(thinking_budget(100, room, 32768), 100u);
  EXPECT_EQ(thinking_budget(30000, room, 32768), 24576u);
  EXPECT_EQ(thinking_budget(600, room, 600), 300u);
  EXPECT_EQ(thinking_budget(80, room, 100), 50u);
  EXPECT_EQ(thinking_budget(1, room, 100), 1u);
  EXPECT_EQ(thinking_budget(5, room, 1), 1u);
  for (const std::int64_t none : {0, -1, -100})
    EXPECT_EQ(thinking_budget(none, room, 32768), std::nullopt);
  // Of the configuration.
  ThinkingOptions configured;
  configured.budget = 200;
  configured.answer_room = false;
  EXPECT_EQ(thinking_budget({}, configured, 4096), 200u);
  EXPECT_EQ(thinking_budget({}, configured, 100), 50u);
  EXPECT_EQ(thinking_budget(10, configured, 4096), 10u);
  EXPECT_EQ(thinking_budget(0, configured, 4096), std::nullopt);
  configured.budget = 0;
  EXPECT_EQ(thinking_budget({}, configured, 4096), std::nullopt);
}

}  // namespace
}  // namespace strata::server
