#include "base/nearest.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace strata {
namespace {

TEST(Nearest, FindsTypingMistakesAndNothingElse) {
  const std::array<std::string_view, 4> names = {"temperature", "top_p", "top_k", "n"};
  EXPECT_EQ(nearest("temprature", names), "temperature");
  EXPECT_EQ(nearest("topp", names), "top_p");
  EXPECT_EQ(nearest("top-k", names), "top_k");
  EXPECT_EQ(nearest("zzz", names), std::nullopt);
  EXPECT_EQ(nearest("x", names), std::nullopt);
  EXPECT_EQ(nearest("", names), std::nullopt);
  EXPECT_EQ(nearest(std::string(1 << 20, 'a'), names), std::nullopt);
  EXPECT_EQ(nearest("temperature", {}), std::nullopt);
}

}  // namespace
}  // namespace strata
