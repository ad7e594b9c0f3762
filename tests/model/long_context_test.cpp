// Far positions: the same bits there too, whatever led to them, and rotations as exact as float32
// angles allow.
#include <cmath>
#include <cstring>

#include "compute/cpu/math.h"
#include "model/forward.h"
#include "tests/model/golden.h"

namespace strata {
namespace {

constexpr std::uint32_t kEnd = 262'144;

// A sequence of `tokens` tokens made of cells that were computed near its beginning: what is in
// them does not matter, where they stand does.
SavedSequence far_away(const SavedSequence& near, std::uint32_t tokens) {
  SavedSequence far = near;
  while (far.tokens.size() < tokens)
    far.tokens.insert(far.tokens.end(), near.tokens.begin(), near.tokens.end());
  far.tokens.resize(tokens);
  far.pages.resize(tokens / 64);
  for (std::size_t p = near.pages.size(); p < far.pages.size(); ++p)
    far.pages[p] = near.pages[p * 7 % near.pages.size()];
  // The state's header: magic, tokens.
  auto state = std::make_shared<Bytes>(*near.state);
  std::memcpy(state->data() + 4, &tokens, sizeof tokens);
  far.state = state;
  return far;
}

class LongContext : public testing::TestWithParam<KvType> {
 protected:
  void SetUp() override {
    converted_ = test::convert({test::golden_dir() + "/tiny-a"});
    ASSERT_NE(converted_, nullptr);
    open("", 2);
    auto sequence = forward_->new_sequence();
    std::vector<std::int32_t> ids(5 * 64);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * i % 251);
    ASSERT_TRUE(forward_->read(std::vector<Forward::Rows>{{&*sequence, ids}}, {}, {}));
    const auto saved = forward_->save(*sequence);
    ASSERT_TRUE(saved);
    far_ = far_away(*saved, kEnd - 64);
  }
  bool open(const std::string& isa, std::uint32_t threads) {
    NetworkShape shape = converted_->network.shape();
    shape.kv_type = GetParam();
    auto backend = make_cpu_backend(shape, threads, isa);
    if (!backend) return false;
    forward_.reset();
    backend_ = std::move(*backend);
    forward_.emplace(converted_->network, *backend_);
    return true;
  }
  // The last row's logits after each window; the windows' sizes repeat.
  std::vector<float> run(const std::vector<std::uint32_t>& windows, std::uint32_t tokens) {
    auto sequence = forward_->restore(far_);
    EXPECT_TRUE(sequence) << sequence.error().message;
    std::vector<float> last(converted_->network.head.rows);
    for (std::uint32_t at = 0, w = 0; at < tokens; ++w) {
      const std::uint32_t size = std::min(tokens - at, windows[w % windows.size()]);
      std::vector<std::int32_t> ids(size);
      for (std::uint32_t i = 0; i < size; ++i)
        ids[i] = static_cast<std::int32_t>((at + i) * 3 % 97);
      const std::uint32_t row[] = {size - 1};
      const auto status = forward_->read(std::vector<Forward::Rows>{{&*sequence, ids}}, row, last);
      EXPECT_TRUE(status) << status.error().message;
      at += size;
    }
    EXPECT_EQ(sequence->tokens(), kEnd - 64 + tokens);
    return last;
  }

  std::unique_ptr<test::Converted> converted_;
  std::unique_ptr<Backend> backend_;
  std::optional<Forward> forward_;
  SavedSequence far_;
};

TEST_P(LongContext, HasTheSameBitsAroundTheTrainedEnd) {
  const std::vector<float> expected = run({70}, 70);
  for (const float v : expected) ASSERT_TRUE(std::isfinite(v));
  EXPECT_EQ(run({1}, 70), expected);
  EXPECT_EQ(run({64, 1, 2, 3}, 70), expected);
  EXPECT_EQ(run({11, 2}, 70), expected);
  ASSERT_TRUE(open("", 1));
  EXPECT_EQ(run({7, 1}, 70), expected);
  const std::vector<float> few = run({5}, 5);
  for (const char* isa : {"avx512", "avx2", "portable"}) {
    if (!open(isa, 2)) continue;
    EXPECT_EQ(run({4, 1}, 5), few) << isa;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, LongContext, testing::ValuesIn(kKvTypes),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

// Sine and cosine of the float32 angle, far out; beside the C library's of the same angle.
TEST(Rotations, AreExactAtFarPositions) {
  for (const std::uint32_t position :
       {1u, 4'095u, 32'769u, kEnd - 1, kEnd, 1'048'575u, 4'194'303u}) {
    for (int i = 0; i < 32; ++i) {
      const auto frequency = static_cast<float>(std::pow(1e7, -i / 32.0));
      const float angle = static_cast<float>(position) * frequency;
      const cpu::SinCos v = cpu::sin_cos(angle);
      EXPECT_NEAR(v.sin, std::sin(double{angle}), 6e-8) << position << " " << i;
      EXPECT_NEAR(v.cos, std::cos(double{angle}), 6e-8) << position << " " << i;
      EXPECT_NEAR(double{v.sin} * v.sin + double{v.cos} * v.cos, 1, 2e-7);
    }
  }
}

// Values computed apart, in float64, from yarn's definition: pairs 0 to 14 stay, those from 22 on
// are stretched.
TEST(Rotations, AreStretchedAsDeclared) {
  const RopeScale none;
  const auto plain = inverse_frequencies(64, 1e7f, none);
  ASSERT_EQ(plain.size(), 32u);
  EXPECT_EQ(rotation_factor(none), 1.0f);
  EXPECT_EQ(scaled_context(kEnd, none), kEnd);
  const RopeScale linear{RopeScaling::linear, 4, kEnd};
  for (std::size_t i = 0; i < 32; ++i)
    EXPECT_FLOAT_EQ(inverse_frequencies(64, 1e7f, linear)[i], plain[i] / 4);
  EXPECT_EQ(rotation_factor(linear), 1.0f);
  EXPECT_EQ(scaled_context(kEnd, linear), 4 * kEnd);
  const std::pair<std::size_t, double> twice[] = {{0, 1.0},
                                                  {13, 0.00143301257},
                                                  {14, 0.000865964323},
                                                  {15, 0.00049059292},
                                                  {18, 8.66086489e-05},
                                                  {21, 1.43341692e-05},
                                                  {22, 7.69963263e-06},
                                                  {31, 8.2740855e-08}};
  const std::pair<std::size_t, double> four_times[] = {{0, 1.0},
                                                       {13, 0.00143301257},
                                                       {14, 0.000865964323},
                                                       {15, 0.000474239823},
                                                       {18, 7.2173874e-05},
                                                       {21, 8.75977007e-06},
                                                       {22, 3.84981632e-06},
                                                       {31, 4.13704275e-08}};
  const RopeScale by_two{RopeScaling::yarn, 2, kEnd}, by_four{RopeScaling::yarn, 4, kEnd};
  for (const auto& [i, value] : twice)
    EXPECT_NEAR(inverse_frequencies(64, 1e7f, by_two)[i], value, 1e-6 * value) << i;
  for (const auto& [i, value] : four_times)
    EXPECT_NEAR(inverse_frequencies(64, 1e7f, by_four)[i], value, 1e-6 * value) << i;
  EXPECT_FLOAT_EQ(rotation_factor(by_two), 1.0693147f);
  EXPECT_FLOAT_EQ(rotation_factor(by_four), 1.1386294f);
  EXPECT_EQ(scaled_context(kEnd, by_two), 524'288u);
}

}  // namespace
}  // namespace strata
