// Costs of a token beside the sizes in the file itself.
#include "model/costs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/golden.h"

namespace strata {
namespace {

bool is_matrix(const std::string& name) {
  for (const char* no : {"norm", "conv1d", "ssm_dt", "ssm_a.", "token_embd", "shexp.weight"})
    if (name.find(no) != std::string::npos)
      return name.find("ffn_gate_shexp") != std::string::npos ||
             name.find("ffn_up_shexp") != std::string::npos ||
             name.find("ffn_down_shexp") != std::string::npos;
  return !name.ends_with("ssm_a");
}

TEST(Costs, a_token_reads_every_matrix_once_and_its_experts) {
  for (const char* checkpoint : {"/tiny-a", "/variants/v1", "/variants/v4"}) {
    const auto converted = test::convert({test::golden_dir() + checkpoint});
    ASSERT_NE(converted, nullptr);
    const Network& network = converted->network;
    double bytes = double(network.embedding.row_bytes), macs = 0;
    for (const TensorView& t : converted->model->tensors) {
      if (!is_matrix(t.name)) continue;
      double share = 1;
      if (t.name.find("_exps") != std::string::npos)
        share = double(network.params.experts_used) / double(t.ne[2]);
      bytes += share * double(t.data.size());
      macs += share * double(t.values());
    }
    if (network.params.tied_embeddings) {
      bytes += double(network.head.rows) * double(network.head.row_bytes);
      macs += double(network.head.rows) * network.head.cols;
    }
    for (const LayerKind kind : network.params.kinds) {
      const HyperParams& p = network.params;
      if (kind == LayerKind::gdn)
        bytes += 2.0 * 4 * p.gdn_value_heads * p.gdn_key_dim * p.gdn_value_dim;
    }
    const Cost cost = token_cost(network);
    EXPECT_NEAR(cost.bytes, bytes, 1e-9 * bytes) << checkpoint;
    EXPECT_NEAR(cost.macs, macs, 1e-9 * macs) << checkpoint;
  }
}

TEST(Costs, rows_share_weights_and_meet_experts_by_chance) {
  const auto converted = test::convert({test::golden_dir() + "/tiny-a"});
  ASSERT_NE(converted, nullptr);
  const ExpertsWeights& w = converted->network.blocks[0].experts;
  const Cost one = experts_cost(w, 1), many = experts_cost(w, 1000);
  EXPECT_DOUBLE_EQ(many.macs, 1000 * one.macs);
  const double all = double(w.gate.count) * w.gate.first.rows * double(w.gate.first.row_bytes) * 2 +
                     double(w.down.count) * w.down.first.rows * double(w.down.first.row_bytes);
  const double used = all * w.shape.used / w.gate.count;
  EXPECT_NEAR(many.bytes - one.bytes, all - used, 1e-6 * all);
  const ResidualWeights& r = converted->network.mixer;
  EXPECT_DOUBLE_EQ(residual_cost(r, 9).bytes, residual_cost(r, 1).bytes);
  EXPECT_DOUBLE_EQ(residual_cost(r, 9).macs, 9 * residual_cost(r, 1).macs);
  EXPECT_EQ(head_cost(r, converted->network.head, 0).bytes, 0);
}

TEST(Costs, attended_cells_end_at_the_budget) {
  AttentionShape shape;
  EXPECT_EQ(attended_cells(shape, 100000), 100000u);
  shape.block = 4;
  shape.budget = 2048;
  EXPECT_EQ(attended_cells(shape, 1), 1u);
  EXPECT_EQ(attended_cells(shape, 2051), 2051u);
  EXPECT_EQ(attended_cells(shape, 2052), 2048u);
  EXPECT_EQ(attended_cells(shape, 2055), 2051u);
}

}  // namespace
}  // namespace strata
