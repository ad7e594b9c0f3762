// The demo checkpoint in its own types (bf16 weights, float32 arithmetic) against HF's outputs. The
// checkpoint is 91 MB and not part of the tree: it is looked for beside it.
#include <cstdlib>
#include <filesystem>

#include "model/forward.h"
#include "model/reference.h"
#include "tests/model/golden.h"

namespace strata {
namespace {

// Positions of this prompt and its continuation before the first that rounding may route elsewhere.
std::size_t strict_positions(const test::Golden& golden, int prompt) {
  const auto gaps = golden.floats(fmt::format("router_gap.{}", prompt));
  std::size_t n = 0;
  while (n < gaps.size() && gaps[n] >= 5e-7f) ++n;
  return n;
}

class DemoGolden : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = test::shared_dir() + "/demo-model";
    if (!std::filesystem::exists(folder_ + "/golden.safetensors"))
      GTEST_SKIP() << "no demo checkpoint at " << folder_ << " (set STRATA_SHARED_DIR)";
    const auto report = convert_hf(real_files(), folder_, model_path(), {});
    ASSERT_TRUE(report) << report.error().message;
    auto model = open_gguf(real_files(), model_path());
    ASSERT_TRUE(model) << model.error().message;
    auto network = load_network(std::make_shared<const GgufModel>(std::move(*model)));
    ASSERT_TRUE(network) << network.error().message;
    network_ = std::move(*network);
  }
  void TearDown() override { std::filesystem::remove(model_path()); }
  static std::string model_path() { return testing::TempDir() + "strata-demo-golden.gguf"; }

  // `read` takes one token and gives its logits.
  void check(const std::function<std::function<std::vector<float>(std::int32_t)>()>& start) {
    const test::Golden golden(folder_ + "/golden.safetensors");
    for (int i = 0; i < 6; ++i) {
      const auto ids = golden.ids(fmt::format("ids.{}", i));
      const auto first = static_cast<std::size_t>(golden.ids(fmt::format("first.{}", i))[0]);
      const auto expected = golden.floats(fmt::format("logits.{}", i));
      const auto greedy = golden.ids(fmt::format("greedy.{}", i));
      const std::size_t strict = strict_positions(golden, i), vocabulary = network_.head.rows;
      const auto read = start();
      std::vector<float> row;
      for (std::size_t p = 0; p < ids.size(); ++p) {
        row = read(ids[p]);
        if (p < first || p >= strict) continue;
        EXPECT_LT(test::largest_difference(
                      row, std::span(expected).subspan((p - first) * vocabulary, vocabulary)),
                  2e-4)
            << "prompt " << i << ", position " << p;
      }
      std::size_t equal = 0;
      for (; equal < greedy.size() && ids.size() + equal <= strict; ++equal) {
        ASSERT_EQ(test::argmax(row), greedy[equal]) << "prompt " << i << ", token " << equal;
        row = read(greedy[equal]);
      }
      if (strict >= ids.size() + greedy.size()) {
        EXPECT_EQ(equal, greedy.size());
      }
    }
  }

  std::string folder_;
  Network network_;
};

TEST_F(DemoGolden, ReferenceEqualsHf) {
  ReferenceWeights weights(network_);
  check([&] {
    auto sequence = std::make_shared<ReferenceSequence>(weights);
    return [sequence](std::int32_t token) {
      const auto logits = sequence->read(token);
      EXPECT_TRUE(logits) << logits.error().message;
      return logits ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
    };
  });
}

TEST_F(DemoGolden, FastForwardEqualsHf) {
  auto backend = make_cpu_backend(network_.shape(), 0);
  ASSERT_TRUE(backend) << backend.error().message;
  Forward forward(network_, **backend);
  check([&] {
    auto sequence = std::make_shared<Sequence>(*forward.new_sequence());
    return [&, sequence](std::int32_t token) {
      std::vector<float> logits(network_.head.rows);
      const Forward::Rows rows{sequence.get(), {&token, 1}};
      const std::uint32_t zero = 0;
      const auto status = forward.read({&rows, 1}, {&zero, 1}, logits);
      EXPECT_TRUE(status) << status.error().message;
      return logits;
    };
  });
}

}  // namespace
}  // namespace strata
