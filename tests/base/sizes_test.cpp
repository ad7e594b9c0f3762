// Sizes as people write them, and the memory that there is.
#include "base/sizes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/memory.h"

namespace strata {
namespace {

constexpr std::uint64_t kKi = 1024, kMi = kKi * kKi, kGi = kMi * kKi, kTi = kGi * kKi;

TEST(ParseSize, UnitsAreOf1024AndMiBWithoutOne) {
  const std::pair<const char*, std::uint64_t> sizes[] = {{"0", 0},
                                                         {"1", kMi},
                                                         {"512", 512 * kMi},
                                                         {"64K", 64 * kKi},
                                                         {"1536M", 1536 * kMi},
                                                         {"2G", 2 * kGi},
                                                         {"3T", 3 * kTi},
                                                         {"2g", 2 * kGi},
                                                         {"2GB", 2 * kGi},
                                                         {"2GiB", 2 * kGi},
                                                         {"2gib", 2 * kGi},
                                                         {"7B", 7 * kMi},
                                                         {"0T", 0},
                                                         {"16777215T", 16777215 * kTi}};
  for (const auto& [text, bytes] : sizes) {
    const auto size = parse_size(text);
    ASSERT_TRUE(size) << text;
    EXPECT_EQ(*size, bytes) << text;
  }
}

TEST(ParseSize, AnythingElseIsRefusedWithASentence) {
  for (const char* text : {"", " ", "M", "-1", "+1", "1.5G", "1 G", " 1G", "1G ", "1X", "1GG",
                           "1GiBB", "1iB ", "0x10", "1e3", "auto", "1\n"}) {
    const auto size = parse_size(text);
    ASSERT_FALSE(size) << text << " is " << *size;
    EXPECT_EQ(size.error().code, ErrorCode::invalid_argument) << text;
    EXPECT_NE(size.error().message.find(std::string("'") + text + "'"), std::string::npos) << text;
  }
}

TEST(ParseSize, WhatDoesNotFitIsRefused) {
  for (const char* text :
       {"16777216T", "17592186044416", "18014398509481984K", "18446744073709551615G",
        "18446744073709551616", "99999999999999999999T"})
    EXPECT_FALSE(parse_size(text)) << text;
}

TEST(AvailableMemory, IsSomeOfTheMachines) {
  const auto machine = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                       static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t available = available_memory();
  EXPECT_GT(available, 0u);
  EXPECT_LE(available, machine);
}

}  // namespace
}  // namespace strata
