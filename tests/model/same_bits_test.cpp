// Law 1: the logits of a position have the same bits whatever led there.
#include <random>

#include "compute/cpu/kernels.h"
#include "model/forward.h"
#include "tests/model/golden.h"

namespace strata {
namespace {

using test::Golden;

using Tested = std::tuple<std::string, KvType>;

class SameBits : public testing::TestWithParam<Tested> {
 protected:
  void SetUp() override {
    const std::string& name = std::get<0>(GetParam());
    STRATA_NEEDS_GOLDEN(name);
    const std::string folder = test::golden_folder(name);
    ConvertOptions options;
    if (name == "tiny-noindex") options.type = TensorType::Q8_0;
    converted_ = test::convert({folder}, options);
    ASSERT_NE(converted_, nullptr);
    const Golden golden(folder + "/golden.safetensors");
    for (int i = 0; golden.has(fmt::format("ids.{}", i)); ++i)
      ids_ = golden.ids(fmt::format("ids.{}", i));  // the last is the longest
    expected_ = run(1, "portable", {ids_.size()});
  }

  NetworkShape shape() const {
    NetworkShape shape = converted_->network.shape();
    shape.kv_type = std::get<1>(GetParam());
    return shape;
  }

  // All logits, the tokens read in windows of the given sizes (the last size repeats).
  std::vector<float> run(std::uint32_t threads, const std::string& isa,
                         const std::vector<std::size_t>& windows) {
    auto backend = make_cpu_backend(shape(), threads, isa);
    EXPECT_TRUE(backend) << backend.error().message;
    if (!backend) return {};
    Forward forward(converted_->network, **backend);
    auto sequence = forward.new_sequence();
    std::vector<float> all;
    std::size_t at = 0, window = 0;
    while (at < ids_.size()) {
      const std::size_t size =
          std::min(ids_.size() - at, windows[std::min(window++, windows.size() - 1)]);
      append(forward, *sequence, at, size, all);
      at += size;
    }
    return all;
  }

  void append(Forward& forward, Sequence& sequence, std::size_t at, std::size_t size,
              std::vector<float>& all) {
    std::vector<std::uint32_t> rows(size);
    for (std::uint32_t r = 0; r < size; ++r) rows[r] = r;
    std::vector<float> logits(size * vocabulary());
    const auto status = forward.read(
        std::vector<Forward::Rows>{{&sequence, std::span(ids_).subspan(at, size)}}, rows, logits);
    ASSERT_TRUE(status) << status.error().message;
    all.insert(all.end(), logits.begin(), logits.end());
  }

  void side_by_side(std::uint32_t threads, std::size_t count, std::size_t most);

  std::size_t vocabulary() const { return converted_->network.head.rows; }
  static bool equal(std::span<const float> a, std::span<const float> b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
  }

  std::unique_ptr<test::Converted> converted_;
  std::vector<std::int32_t> ids_;
  std::vector<float> expected_;
};

TEST_P(SameBits, WhateverTheWindowThreadsAndInstructions) {
  const std::vector<std::vector<std::size_t>> windows = {
      {1}, {2}, {3}, {7}, {16}, {64}, {5, 1, 1, 12, 1}, {149, 1}, {1000}};
  for (const auto& sizes : windows) {
    EXPECT_TRUE(equal(run(1, "", sizes), expected_)) << "windows of " << sizes[0];
    EXPECT_TRUE(equal(run(2, "", sizes), expected_)) << "two threads, windows of " << sizes[0];
  }
  for (const cpu::Kernels* kernels : cpu::supported_kernels()) {
    const std::string isa(kernels->isa);
    EXPECT_TRUE(equal(run(2, isa, {1000}), expected_)) << isa;
    EXPECT_TRUE(equal(run(2, isa, {11, 1}), expected_)) << isa;
  }
}

// Rows whose logits nobody wants go no further than the last layer's state.
TEST_P(SameBits, WhicheverLogitsAreWanted) {
  const auto rows = static_cast<std::uint32_t>(std::min<std::size_t>(ids_.size() - 1, 70));
  for (const std::vector<std::uint32_t>& wanted : std::vector<std::vector<std::uint32_t>>{
           {}, {rows - 1}, {0}, {0, 3, rows - 1}, {rows - 1, 2}}) {
    auto backend = make_cpu_backend(shape(), 2);
    ASSERT_TRUE(backend);
    Forward forward(converted_->network, **backend);
    auto sequence = forward.new_sequence();
    std::vector<float> logits(wanted.size() * vocabulary()), next;
    const Forward::Rows window{&*sequence, std::span(ids_).first(rows)};
    ASSERT_TRUE(forward.read({&window, 1}, wanted, logits));
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_TRUE(equal(std::span(logits).subspan(i * vocabulary(), vocabulary()),
                        std::span(expected_).subspan(wanted[i] * vocabulary(), vocabulary())))
          << "row " << wanted[i] << " of " << wanted.size();
    append(forward, *sequence, rows, ids_.size() - rows, next);
    EXPECT_TRUE(equal(next, std::span(expected_).subspan(rows * vocabulary())));
  }
}

TEST_P(SameBits, SavedAndRestoredAtEveryPosition) {
  auto backend = make_cpu_backend(shape(), 2);
  ASSERT_TRUE(backend);
  Forward forward(converted_->network, **backend);
  auto sequence = forward.new_sequence();
  for (std::size_t cut = 0; cut < ids_.size(); ++cut) {
    const auto saved = forward.save(*sequence);
    ASSERT_TRUE(saved) << "at " << cut;
    std::vector<float> rest;
    auto other = forward.restore(*saved);
    ASSERT_TRUE(other) << "at " << cut;
    append(forward, *other, cut, ids_.size() - cut, rest);
    EXPECT_TRUE(equal(rest, std::span(expected_).subspan(cut * vocabulary()))) << "at " << cut;
    std::vector<float> one;
    append(forward, *sequence, cut, 1, one);
  }
}

// Windows of sequences side by side, of 0 to `most` rows each: small ones are divided among the
// threads by rows, and by whole sequences where that is fair.
void SameBits::side_by_side(std::uint32_t threads, std::size_t count, std::size_t most) {
  auto backend = make_cpu_backend(shape(), threads);
  ASSERT_TRUE(backend);
  Forward forward(converted_->network, **backend);
  std::mt19937 random(7);
  std::vector<Sequence> sequences;
  std::vector<std::size_t> at(count, 0);
  std::vector<std::vector<float>> all(count);
  for (std::size_t s = 0; s < count; ++s) sequences.push_back(*forward.new_sequence());
  for (bool open = true; open;) {
    std::vector<Forward::Rows> window;
    std::vector<std::size_t> which;
    std::uint32_t total = 0;
    for (std::size_t s = 0; s < count; ++s) {
      const std::size_t size = std::min<std::size_t>(random() % (most + 1), ids_.size() - at[s]);
      if (size == 0) continue;
      window.push_back({&sequences[s], std::span(ids_).subspan(at[s], size)});
      which.push_back(s);
      at[s] += size;
      total += static_cast<std::uint32_t>(size);
    }
    std::vector<std::uint32_t> rows(total);
    for (std::uint32_t r = 0; r < total; ++r) rows[r] = r;
    std::vector<float> logits(total * vocabulary());
    if (total > 0) {
      ASSERT_TRUE(forward.read(window, rows, logits));
    }
    auto from = logits.begin();
    for (std::size_t i = 0; i < window.size(); ++i) {
      const auto end = from + static_cast<std::ptrdiff_t>(window[i].tokens.size() * vocabulary());
      all[which[i]].insert(all[which[i]].end(), from, end);
      from = end;
    }
    open = std::any_of(at.begin(), at.end(), [&](std::size_t a) { return a < ids_.size(); });
  }
  for (const auto& logits : all)
    EXPECT_TRUE(equal(logits, expected_)) << threads << " threads, " << count << " of " << most;
}

TEST_P(SameBits, AloneOrBesideOtherSequences) {
  side_by_side(2, 4, 8);
  for (const std::uint32_t threads : {1u, 2u, 3u})
    for (const std::size_t count : {2u, 3u, 8u}) {
      side_by_side(threads, count, 1);
      side_by_side(threads, count, 2);
    }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, SameBits,
                         testing::Combine(testing::Values("tiny-a", "tiny-noindex"),
                                          testing::ValuesIn(kKvTypes)),
                         [](const auto& tested) {
                           const bool sparse = std::get<0>(tested.param) == "tiny-a";
                           return fmt::format("{}_{}", sparse ? "Sparse" : "DenseQuantised",
                                              to_string(std::get<1>(tested.param)));
                         });

}  // namespace
}  // namespace strata
