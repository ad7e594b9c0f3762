// E9: tensors that are missing, of another shape or of no place. All are load errors that name the
// tensor; nothing is computed from half a model.
#include <gmock/gmock.h>

#include "tests/model/golden.h"

namespace strata {
namespace {

using testing::HasSubstr;

class HostileNetwork : public testing::Test {
 protected:
  void SetUp() override {
    model_ = test::convert({test::golden_dir() + "/tiny-a", test::golden_dir() + "/tiny-a-mtp"});
    ASSERT_NE(model_, nullptr);
    ASSERT_EQ(load(*model_->model), "loaded");
  }
  static std::string load(GgufModel model) {
    const auto network = load_network(std::make_shared<const GgufModel>(std::move(model)));
    return network ? "loaded" : network.error().message;
  }
  // A copy whose tensors `change` has changed; spans stay those of the file.
  template <class Change>
  std::string loaded_with(Change change) const {
    GgufModel copy;
    copy.metadata = model_->model->metadata;
    copy.tensors = model_->model->tensors;
    copy.paths = model_->model->paths;
    change(copy.tensors);
    return load(std::move(copy));
  }
  std::unique_ptr<test::Converted> model_;
};

TEST_F(HostileNetwork, E9EveryTensorMustBeThere) {
  const std::size_t count = model_->model->tensors.size();
  ASSERT_GT(count, 50u);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = model_->model->tensors[i].name;
    const std::string said = loaded_with(
        [&](auto& tensors) { tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(i)); });
    // Without its indexer the draft block is dense, and what is left of the indexer has no place.
    if (name == "output.weight") {
      EXPECT_EQ(said, "loaded");  // the head is the embedding then
      continue;
    }
    EXPECT_NE(said, "loaded") << name;
    if (!said.ends_with("has no place in a qwen4exp network")) {
      EXPECT_THAT(said, HasSubstr(fmt::format("'{}' is missing from", name)));
    }
  }
}

TEST_F(HostileNetwork, E9EveryShapeMustBeTheModels) {
  const std::size_t count = model_->model->tensors.size();
  for (std::size_t i = 0; i < count; ++i) {
    const TensorView& t = model_->model->tensors[i];
    if (t.name.find("per_layer_token_embd") != std::string::npos) continue;  // may be higher
    for (std::size_t d = 0; d < t.dims; ++d) {
      const std::string said = loaded_with([&](auto& tensors) { ++tensors[i].ne[d]; });
      // How many experts there are is what the router says, so the experts themselves disagree.
      const bool counts_experts = d == 1 && t.name.ends_with("ffn_gate_inp.weight");
      EXPECT_THAT(said, HasSubstr(counts_experts ? "_exps.weight' has shape"
                                                 : fmt::format("tensor '{}'", t.name)))
          << "dimension " << d;
    }
    if (t.dims < 4) {
      const std::string said = loaded_with([&](auto& tensors) { tensors[i].ne[t.dims] = 2; });
      EXPECT_THAT(said, HasSubstr(fmt::format("tensor '{}'", t.name)));
    }
  }
}

TEST_F(HostileNetwork, E9TheNgramTableMustHoldEveryRow) {
  const auto smaller = [&](std::size_t d) {
    return loaded_with([&](auto& tensors) {
      for (TensorView& t : tensors) {
        if (t.name == "per_layer_token_embd.weight") t.ne[d] /= 2;
      }
    });
  };
  EXPECT_THAT(smaller(0), HasSubstr("tensor 'per_layer_token_embd.weight' has shape"));
  EXPECT_THAT(smaller(1), HasSubstr("tensor 'per_layer_token_embd.weight' has shape"));
}

TEST_F(HostileNetwork, E9ATensorOfNoPlace) {
  EXPECT_EQ(loaded_with([](auto& tensors) {
              tensors.push_back(tensors.front());
              tensors.back().name = "blk.0.attn_qkv.scale";
            }),
            fmt::format("tensor 'blk.0.attn_qkv.scale' {} has no place in a qwen4exp network",
                        shape_text(model_->model->tensors.front())));
}

}  // namespace
}  // namespace strata
