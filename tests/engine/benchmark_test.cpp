// Timed windows: what runs in them, what is counted, and that the clock changes nothing.
#include "engine/benchmark.h"

#include <gtest/gtest.h>

#include "tests/model/golden.h"

namespace strata {
namespace {

double sum_of_seconds(const BenchmarkRun& run) {
  double sum = 0;
  for (const PartUse& use : run.parts) sum += use.seconds;
  return sum;
}

Cost sum_of_costs(const BenchmarkRun& run) {
  Cost sum;
  for (const PartUse& use : run.parts) sum += use.cost;
  return sum;
}

class BenchmarkTest : public testing::Test {
 protected:
  void SetUp() override {
    model_ = test::convert({test::golden_dir() + "/tiny-a"});  // it has no tokenizer
    ASSERT_NE(model_, nullptr);
    BenchmarkOptions options;
    options.model_path = "model.gguf";
    options.chunk = 16;
    auto opened = Benchmark::open(model_->files, options);
    ASSERT_TRUE(opened) << opened.error().message;
    benchmark_ = std::move(*opened);
    ASSERT_TRUE(benchmark_->warm_up(16));
  }

  BenchmarkRun decode(std::uint32_t tokens, std::uint32_t sequences) {
    auto run = benchmark_->decode(tokens, sequences);
    EXPECT_TRUE(run) << run.error().message;
    return run ? *run : BenchmarkRun{};
  }

  // Bytes of a token's keys, values and share of the block keys, in all attention layers.
  double cell_bytes(double cells) const {
    double bytes = 0;
    for (const Block& b : model_->network.blocks) {
      if (b.kind != LayerKind::qsa) continue;
      const AttentionShape& s = b.attention.shape;
      const auto n = static_cast<std::uint64_t>(cells);
      bytes += 2 * 2.0 * double(attended_cells(s, n)) * s.kv_heads * s.head_dim;  // halves
      if (s.block > 0) bytes += 4 * double(n / s.block) * s.indexer_dim;
    }
    return bytes;
  }

  std::unique_ptr<test::Converted> model_;
  std::unique_ptr<Benchmark> benchmark_;
};

TEST_F(BenchmarkTest, decoding_counts_weights_states_and_cells) {
  const Cost token = token_cost(model_->network);
  for (const std::uint32_t depth : {0u, 5u, 40u, 7u}) {
    ASSERT_TRUE(benchmark_->prepare(depth));
    const BenchmarkRun run = decode(3, 1);
    EXPECT_EQ(run.tokens, 3u);
    const Cost cost = sum_of_costs(run);
    double cells = 0;
    for (std::uint32_t t = 1; t <= 3; ++t) cells += cell_bytes(depth + t);
    EXPECT_NEAR(cost.bytes, 3 * token.bytes + cells, 1) << depth;
    EXPECT_NEAR(cost.macs, 3 * token.macs, 1) << depth;
    EXPECT_GT(run.seconds, 0);
    EXPECT_LE(sum_of_seconds(run), run.seconds);
  }
}

TEST_F(BenchmarkTest, sequences_at_once_share_the_weights) {
  ASSERT_TRUE(benchmark_->prepare(5));
  const Cost one = sum_of_costs(decode(2, 1)), eight = sum_of_costs(decode(2, 8));
  EXPECT_EQ(decode(2, 8).tokens, 16u);
  EXPECT_NEAR(eight.macs, 8 * one.macs, 1);
  EXPECT_LT(eight.bytes, 6 * one.bytes);
  EXPECT_GT(eight.bytes, one.bytes);
}

TEST_F(BenchmarkTest, a_prompt_runs_in_chunks_and_needs_the_head_once) {
  const auto run = benchmark_->read_prompt(40);
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(run->tokens, 40u);
  const Cost token = token_cost(model_->network);
  const Cost head = head_cost(model_->network.mixer, model_->network.head, 1);
  const Block& last = model_->network.blocks.back();  // its experts see one row: the last
  Cost once = head;
  once += residual_cost(last.experts_residual, 1);
  once += experts_cost(last.experts, 1);
  EXPECT_NEAR(sum_of_costs(*run).macs, 40 * (token.macs - once.macs) + once.macs, 1);
  EXPECT_NEAR(run->parts[std::size_t(ForwardPart::head)].cost.bytes, head.bytes, 1);
  const double residual = run->parts[std::size_t(ForwardPart::residual_read)].cost.bytes;
  double windows = 0;
  for (const Block& b : model_->network.blocks)
    windows +=
        residual_cost(b.attention_residual, 1).bytes + residual_cost(b.experts_residual, 1).bytes;
  const double unread = residual_cost(last.experts_residual, 1).bytes;
  EXPECT_NEAR(residual, 3 * windows - 2 * unread, 1);  // 16, 16 and 8 tokens
}

TEST_F(BenchmarkTest, timing_changes_no_bit) {
  const Network& network = model_->network;
  auto plain = make_cpu_backend(network.shape(), 1);
  auto inner = make_cpu_backend(network.shape(), 1);
  ASSERT_TRUE(plain && inner);
  TimedBackend timed(std::move(*inner));
  std::vector<float> logits[2];
  Backend* backends[] = {plain->get(), &timed};
  for (int i = 0; i < 2; ++i) {
    Forward forward(network, *backends[i]);
    auto sequence = forward.new_sequence();
    ASSERT_TRUE(sequence);
    const std::vector<std::int32_t> ids = {5, 6, 7, 8, 9, 10, 2, 11};
    const Forward::Rows rows{&*sequence, ids};
    const std::uint32_t last = 7;
    logits[i].resize(network.head.rows);
    ASSERT_TRUE(forward.read({&rows, 1}, {&last, 1}, logits[i]));
  }
  EXPECT_EQ(logits[0], logits[1]);
  EXPECT_EQ(timed.isa(), (*plain)->isa());
}

TEST_F(BenchmarkTest, what_cannot_be_opened_is_said) {
  BenchmarkOptions options;
  options.model_path = "none.gguf";
  const auto missing = Benchmark::open(model_->files, options);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("none.gguf"), std::string::npos);
  options.model_path = "model.gguf";
  options.isa = "mmx";
  EXPECT_FALSE(Benchmark::open(model_->files, options));
}

}  // namespace
}  // namespace strata
