// The reference and the fast forward against HF transformers' outputs (tests/golden).
#include <filesystem>

#include "model/forward.h"
#include "model/reference.h"
#include "tests/model/golden.h"

namespace strata {
namespace {

using test::Golden;

std::vector<std::string> checkpoints() {
  std::vector<std::string> names = {"tiny-a", "tiny-noindex"};
  const std::filesystem::path variants = test::golden_dir() + "/variants";
  if (std::filesystem::exists(variants))
    for (const auto& entry : std::filesystem::directory_iterator(variants))
      if (entry.is_directory()) names.push_back("variants/" + entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

class GoldenTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    STRATA_NEEDS_GOLDEN(GetParam());
    const std::string folder = test::golden_folder(GetParam());
    converted_ = test::convert({folder});
    ASSERT_NE(converted_, nullptr);
    golden_ = std::make_unique<Golden>(folder + "/golden.safetensors");
  }
  std::unique_ptr<test::Converted> converted_;
  std::unique_ptr<Golden> golden_;
};

TEST_P(GoldenTest, ReferenceEqualsHf) {
  const Network& network = converted_->network;
  ReferenceWeights weights(network);
  const std::size_t vocabulary = network.head.rows;
  for (int i = 0; golden_->has(fmt::format("ids.{}", i)); ++i) {
    ReferenceSequence sequence(weights);
    std::vector<std::vector<float>> hidden(network.blocks.size() + 1);
    std::vector<float> logits, last;
    for (const std::int32_t id : golden_->ids(fmt::format("ids.{}", i))) {
      const auto row = sequence.read(id, [&](std::uint32_t l, std::span<const float> values) {
        hidden[l].insert(hidden[l].end(), values.begin(), values.end());
      });
      ASSERT_TRUE(row) << row.error().message;
      logits.insert(logits.end(), row->begin(), row->end());
    }
    EXPECT_LT(test::largest_difference(logits, golden_->floats(fmt::format("logits.{}", i))), 2e-4)
        << "sequence " << i;
    for (std::size_t l = 0; l < hidden.size(); ++l) {
      const std::string name = fmt::format("hidden.{}.{}", i, l);
      if (!golden_->has(name)) continue;
      EXPECT_LT(test::largest_difference(hidden[l], golden_->floats(name)), 4e-4) << name;
    }
    std::int32_t next = test::argmax(std::span(logits).last(vocabulary));
    std::vector<std::int32_t> greedy;
    const auto expected = golden_->ids(fmt::format("greedy.{}", i));
    while (greedy.size() < expected.size()) {
      greedy.push_back(next);
      const auto row = sequence.read(next);
      ASSERT_TRUE(row) << row.error().message;
      next = test::argmax(*row);
    }
    EXPECT_EQ(greedy, expected) << "sequence " << i;
  }
}

TEST_P(GoldenTest, FastForwardEqualsHf) {
  const Network& network = converted_->network;
  for (const char* isa : {"avx512", "avx2", "portable"}) {
    auto backend = make_cpu_backend(network.shape(), 2, isa);
    if (!backend) continue;  // this CPU lacks it
    Forward forward(network, **backend);
    const std::size_t vocabulary = network.head.rows;
    for (int i = 0; golden_->has(fmt::format("ids.{}", i)); ++i) {
      const auto ids = golden_->ids(fmt::format("ids.{}", i));
      auto sequence = forward.new_sequence();
      ASSERT_TRUE(sequence);
      std::vector<std::uint32_t> rows(ids.size());
      for (std::uint32_t r = 0; r < rows.size(); ++r) rows[r] = r;
      std::vector<float> logits(ids.size() * vocabulary);
      const auto status = forward.read(std::vector<Forward::Rows>{{&*sequence, ids}}, rows, logits);
      ASSERT_TRUE(status) << status.error().message;
      EXPECT_LT(test::largest_difference(logits, golden_->floats(fmt::format("logits.{}", i))),
                2e-4)
          << isa << ", sequence " << i;
      std::vector<std::int32_t> greedy;
      std::vector<float> row(logits.end() - static_cast<std::ptrdiff_t>(vocabulary), logits.end());
      const auto expected = golden_->ids(fmt::format("greedy.{}", i));
      while (greedy.size() < expected.size()) {
        greedy.push_back(test::argmax(row));
        const std::uint32_t zero = 0;
        ASSERT_TRUE(forward.read(
            std::vector<Forward::Rows>{{&*sequence, std::span(greedy).last(1)}}, {&zero, 1}, row));
      }
      EXPECT_EQ(greedy, expected) << isa << ", sequence " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, GoldenTest, testing::ValuesIn(checkpoints()),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           for (char& c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           return name;
                         });

// Our reading of the specification, computed in float64 by an independent program.
TEST(DraftBlock, FirstDraftsAndChainsEqualTheSpecification) {
  const std::string trunk = test::golden_dir() + "/tiny-a",
                    draft = test::golden_dir() + "/tiny-a-mtp";
  const auto converted = test::convert({trunk, draft});
  ASSERT_NE(converted, nullptr);
  const Network& network = converted->network;
  const Golden ids(trunk + "/golden.safetensors"), golden(draft + "/golden.safetensors");
  const std::size_t wide = network.residual.wide(), vocabulary = network.head.rows;
  ReferenceWeights weights(network);
  for (int i = 2; i <= 4; ++i) {
    const auto tokens = ids.ids(fmt::format("ids.{}", i));
    // From our own trunk's residual and, on its own, from the golden one.
    for (const bool own : {true, false}) {
      ReferenceSequence sequence(weights);
      std::vector<float> residual;
      for (const std::int32_t id : tokens) {
        ASSERT_TRUE(sequence.read(id));
        residual.insert(residual.end(), sequence.wide().begin(), sequence.wide().end());
      }
      const auto golden_residual = golden.floats(fmt::format("wide.{}", i));
      EXPECT_LT(test::largest_difference(residual, golden_residual), 4e-4);
      if (!own) residual = golden_residual;

      ReferenceDraft block(weights);
      std::vector<float> first;
      for (std::size_t c = 0; c + 1 < tokens.size(); ++c) {
        const auto row = block.cell(std::span(residual).subspan(c * wide, wide), tokens[c + 1]);
        ASSERT_TRUE(row) << row.error().message;
        first.insert(first.end(), row->begin(), row->end());
      }
      EXPECT_LT(test::largest_difference(first, golden.floats(fmt::format("draft1.{}", i))), 2e-4);

      std::vector<float> chain_logits;
      std::vector<std::int32_t> chain;
      std::vector<float> from(residual.end() - static_cast<std::ptrdiff_t>(wide), residual.end());
      std::int32_t token = ids.ids(fmt::format("greedy.{}", i))[0];
      for (int step = 0; step < 3; ++step) {
        const auto row = block.cell(from, token);
        ASSERT_TRUE(row);
        chain_logits.insert(chain_logits.end(), row->begin(), row->end());
        token = test::argmax(*row);
        chain.push_back(token);
        from.assign(block.wide().begin(), block.wide().end());
      }
      EXPECT_EQ(chain, golden.ids(fmt::format("chain.{}", i)));
      EXPECT_LT(
          test::largest_difference(chain_logits, golden.floats(fmt::format("chain_logits.{}", i))),
          2e-4);
    }
  }
  EXPECT_EQ(vocabulary, 512u);
}

}  // namespace
}  // namespace strata
