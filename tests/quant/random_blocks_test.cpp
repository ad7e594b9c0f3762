// Random weights: of every type, of the size asked for, the same for the same seed.
#include "quant/random_blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "quant/quant.h"

namespace strata {
namespace {

struct Moments {
  double mean = 0, root_mean_square = 0;
  float largest = 0;
};

Moments moments(const std::vector<float>& values) {
  Moments m;
  for (const float v : values) {
    m.mean += v;
    m.root_mean_square += double{v} * v;
    m.largest = std::max(m.largest, std::isfinite(v) ? std::fabs(v) : INFINITY);
  }
  m.mean /= double(values.size());
  m.root_mean_square = std::sqrt(m.root_mean_square / double(values.size()));
  return m;
}

std::vector<std::byte> filled(const RandomBlocks& random, std::uint64_t seed, TensorType type,
                              std::size_t values) {
  std::vector<std::byte> bytes(values / traits(type).block_values * traits(type).block_bytes);
  random.fill(seed, bytes);
  return bytes;
}

TEST(RandomBlocks, every_type_has_the_size_asked_for) {
  constexpr std::size_t count = 1 << 18;
  std::size_t types = 0;
  for (const TypeTraits& t : all_types()) {
    const auto random = RandomBlocks::create(t.type, 0.02f);
    ASSERT_EQ(random.has_value(), can_decode(t.type)) << t.name;
    if (!random) continue;
    ++types;
    std::vector<float> values(count);
    ASSERT_TRUE(decode(t.type, filled(*random, 7, t.type, count), values)) << t.name;
    const Moments m = moments(values);
    EXPECT_NEAR(m.root_mean_square, 0.02, 0.0006) << t.name;
    EXPECT_LT(m.largest, 0.5f) << t.name;
    // Q2_0 has the codes -1 to 2 and no offset; the table of IQ4 leans a little, too.
    EXPECT_LT(std::fabs(m.mean), t.type == TensorType::Q2_0 ? 0.01 : 0.0025) << t.name;
  }
  EXPECT_EQ(types, 23u);
}

TEST(RandomBlocks, bytes_depend_on_the_seed_alone) {
  for (const TensorType type : {TensorType::F32, TensorType::Q5_1, TensorType::IQ1_M}) {
    const auto random = RandomBlocks::create(type, 0.02f);
    const auto again = RandomBlocks::create(type, 0.02f);
    ASSERT_TRUE(random && again);
    const auto bytes = filled(*random, 3, type, 4096);
    EXPECT_EQ(bytes, filled(*again, 3, type, 4096));
    EXPECT_NE(bytes, filled(*random, 4, type, 4096));
    const auto few = filled(*random, 3, type, 1024);
    EXPECT_TRUE(std::equal(few.begin(), few.end(), bytes.begin()));
  }
}

TEST(RandomBlocks, plain_types_have_a_mean) {
  const auto random = RandomBlocks::create(TensorType::F32, 0.1f, 1);
  ASSERT_TRUE(random);
  std::vector<float> values(1 << 16);
  random->fill(1, std::as_writable_bytes(std::span(values)));
  EXPECT_NEAR(moments(values).mean, 1, 0.01);
  EXPECT_FALSE(RandomBlocks::create(TensorType::Q4_0, 0.1f, 1));
}

}  // namespace
}  // namespace strata
