#include "base/decimal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

namespace strata {
namespace {

TEST(Decimal, WrittenOut) {
  const std::pair<const char*, const char*> cases[] = {
      {"0", "0"},          {"-0.00e9", "0"},   {"12", "12"},
      {"-1.50", "-1.5"},   {"1e3", "1000"},    {"12.5E-3", "0.0125"},
      {"100e-2", "1"},     {"-0.05", "-0.05"}, {"123.456e1", "1234.56"},
      {"1.000e+2", "100"}, {"0.001e3", "1"},   {"18446744073709551616", "18446744073709551616"},
      {"1e0", "1"},        {"10.10", "10.1"},  {"-9223372036854775809", "-9223372036854775809"},
  };
  for (const auto& [text, written] : cases) {
    const Decimal it = Decimal::of(text);
    EXPECT_EQ(it.text(), written) << text;
    const std::string digits = written;
    const auto count =
        std::count_if(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
    const bool below_one = digits.starts_with("0.") || digits.starts_with("-0.");
    EXPECT_EQ(it.written(), static_cast<std::uint64_t>(count) - (below_one ? 1 : 0)) << text;
    EXPECT_EQ(Decimal::of(it.text()), it) << text;
  }
  EXPECT_EQ(Decimal::of("1e2000").written(), 2001u);
  EXPECT_EQ(Decimal::of("1e-2000").written(), 2000u);
  EXPECT_GT(Decimal::of("1e99999999999999999999").written(), 1'000'000u);
  EXPECT_GT(Decimal::of("1e-99999999999999999999").written(), 1'000'000u);
}

TEST(Decimal, InTheirOrder) {
  const char* ascending[] = {"-1e400",
                             "-18446744073709551617",
                             "-18446744073709551616",
                             "-10",
                             "-9.5",
                             "-0.1000000000000000000001",
                             "-0.1",
                             "-1e-400",
                             "0",
                             "1e-400",
                             "0.1",
                             "0.1000000000000000000001",
                             "0.2",
                             "1",
                             "9",
                             "10",
                             "10.5",
                             "100",
                             "18446744073709551615",
                             "18446744073709551616",
                             "1e400"};
  for (std::size_t i = 0; i < std::size(ascending); ++i) {
    for (std::size_t j = 0; j < std::size(ascending); ++j) {
      const Decimal a = Decimal::of(ascending[i]), b = Decimal::of(ascending[j]);
      EXPECT_EQ(a <=> b, i <=> j) << ascending[i] << " and " << ascending[j];
      EXPECT_EQ(a == b, i == j);
      EXPECT_EQ(-a <=> -b, j <=> i);
    }
  }
  EXPECT_EQ(Decimal::of("1e2"), Decimal::of("100.0"));
  EXPECT_EQ(-Decimal::of("0"), Decimal::of("-0"));
}

TEST(Decimal, WholeDoublesExactly) {
  EXPECT_EQ(Decimal::of_whole(1e23).text(), "99999999999999991611392");
  EXPECT_EQ(Decimal::of_whole(-9007199254740992.0).text(), "-9007199254740992");
  EXPECT_EQ(Decimal::of_whole(0x1p200).text(),
            "1606938044258990275541962092341162602522202993782792835301376");
  EXPECT_EQ(Decimal::of_whole(1.7976931348623157e308).written(), 309u);
  EXPECT_EQ(Decimal::shortest(1e23).text(), "100000000000000000000000");
  EXPECT_EQ(Decimal::shortest(5e-324), Decimal::of("5e-324"));
}

TEST(Decimal, NearestDoubles) {
  EXPECT_EQ(nearest_double("1e400"), INFINITY);
  EXPECT_EQ(nearest_double("-1e400"), -INFINITY);
  EXPECT_EQ(nearest_double("1e-400"), 0);
  EXPECT_EQ(nearest_double("5e-324"), 5e-324);
  EXPECT_EQ(nearest_double("0.1000000000000000000001"), 0.1);
  EXPECT_EQ(nearest_double("9007199254740993"), 9007199254740992.0);
  std::mt19937_64 random(1);
  for (int i = 0; i < 10'000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    EXPECT_EQ(nearest_double(Decimal::shortest(value).text()), value);
  }
}

}  // namespace
}  // namespace strata
