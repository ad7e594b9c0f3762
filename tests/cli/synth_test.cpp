// Models of random weights: of every type, loadable, with logits, the same for the same seed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/cli/program.h"

namespace {

using namespace strata::test;
using testing::HasSubstr;

class Synth : public Program {
 protected:
  // One layer, few experts and tokens: every part but attention.
  static constexpr const char* kSmall = " --layers 1 --experts 4 --vocabulary 300 --ple-rows 50 ";

  std::string path(const std::string& name) const { return (folder / name).string(); }

  std::string written(const std::string& name, const std::string& options) const {
    const Outcome r = run("synth " + path(name) + options);
    EXPECT_EQ(r.code, 0) << options << r.error;
    return path(name);
  }

  // Root mean square of the logits of a few tokens; NaN if one is not finite.
  double logits_size(const std::string& model) const {
    EXPECT_EQ(std::system(("echo '[65, 66, 299, 67, 1]' >" + path("ids")).c_str()), 0);
    const Outcome r = run("logits -m " + model + " --ids " + path("ids") + " -o " + path("logits"));
    EXPECT_EQ(r.code, 0) << model << r.error;
    const std::string bytes = slurp(path("logits"));
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    double squares = 0;
    for (const float v : values) squares += double{v} * v;
    return std::sqrt(squares / double(values.size()));
  }
};

TEST_F(Synth, every_type_is_written_and_gives_logits) {
  std::size_t count = 0;
  for (const std::string type :
       {"F32",     "F16",    "BF16",  "Q4_0",    "Q4_1",  "Q5_0",   "Q5_1",  "Q8_0",
        "Q2_0",    "Q2_K",   "Q3_K",  "Q4_K",    "Q5_K",  "Q6_K",   "IQ1_S", "IQ1_M",
        "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"}) {
    const std::string model =
        written("model.gguf", kSmall + std::string("--type ") + type + " --set attention=" + type);
    const auto found = types_of(run("inspect --json " + model).out);
    EXPECT_EQ(found.at("blk.0.ffn_gate_exps.weight"), type);
    EXPECT_EQ(found.at("blk.0.attn_qkv.weight"), type);
    const double size = logits_size(model);
    EXPECT_TRUE(size > 0.1 && size < 2) << type << ": " << size;
    ++count;
  }
  EXPECT_EQ(count, 23u);
}

TEST_F(Synth, the_seed_decides_all_bytes) {
  const std::string type = "--type iq2_xs";
  const std::string model = slurp(written("a.gguf", kSmall + type + " --threads 1"));
  EXPECT_TRUE(slurp(written("b.gguf", kSmall + type + " --threads 3")) == model);
  EXPECT_FALSE(slurp(written("c.gguf", kSmall + type + " --seed 2")) == model);
  EXPECT_FALSE(std::filesystem::exists(folder / "a.gguf.partial"));
}

TEST_F(Synth, a_file_says_what_it_is_and_has_all_parts) {
  const std::string model =
      written("model.gguf",
              " --layers 4 --experts 10 --vocabulary 70000 --ple-rows 100 --type q2_0 "
              "--set residual=Q8_0 --set dense=Q6_K --set shared_down=Q8_0 --set down=Q5_0");
  const Outcome r = run("inspect --json " + model);
  const auto json = boost::json::parse(r.out).as_object();
  const auto& metadata = json.at("metadata").as_object();
  const auto value = [&](const char* key) { return metadata.at(key).at("value"); };
  EXPECT_TRUE(value("strata.synthetic").as_bool());
  EXPECT_EQ(value("strata.synthetic.seed").to_number<int>(), 1);
  EXPECT_EQ(value("general.name").as_string(),
            "synthetic q2_0 residual=Q8_0 dense=Q6_K shared_down=Q8_0 down=Q5_0, 4 layers of 10 "
            "experts");
  EXPECT_EQ(value("qwen4exp.ple.head_vocab_sizes").at(0).to_number<int>(), 101);
  EXPECT_EQ(metadata.at("tokenizer.ggml.tokens").at("length").to_number<int>(), 70000);
  const auto found = types_of(run("inspect --json " + model).out);
  EXPECT_EQ(found.at("blk.0.hc_ffn_up.weight"), "Q8_0");
  EXPECT_EQ(found.at("blk.3.attn_output.weight"), "Q6_K");
  EXPECT_EQ(found.at("blk.3.ffn_down_shexp.weight"), "Q8_0");
  EXPECT_EQ(found.at("blk.3.ffn_down_exps.weight"), "Q5_0");
  EXPECT_EQ(found.at("blk.3.ffn_up_exps.weight"), "Q2_0");
  EXPECT_EQ(found.at("blk.1.ple_key.weight"), "BF16");
  EXPECT_GT(logits_size(model), 0.1);
  const Outcome ids = run("tokenize -p 'ab<|im_end|>' -m " + model);
  EXPECT_EQ(ids.code, 0) << ids.error;
  EXPECT_THAT(ids.out, HasSubstr("69999"));
}

TEST_F(Synth, what_cannot_be_is_refused) {
  const std::map<std::string, std::string> sentences = {
      {"--type q9", "'q9' is no mix; known are q4_k, q2_0, iq2_xs, iq3_s, and every tensor type"},
      {"--type q8_k", "'q8_k' is no mix"},
      {"--set head", "'head' is not of the form PART=TYPE with a known type"},
      {"--set feet=F32", "'feet' is no part of a model; the parts are gate_up, down"},
      {"--set down=Q4_K",
       "'blk.0.ffn_down_exps.weight' cannot be Q4_K: its rows of 640 are no "
       "whole number of blocks of 256"},
      {"--experts 4 --used 5", "is 5, more than"},
      {"--type bf16 --layers 1000 --experts 60000", "GB of disk and"},
  };
  for (const auto& [options, sentence] : sentences) {
    const Outcome r = run("synth " + path("no.gguf") + " " + options);
    EXPECT_EQ(r.code, 1) << options;
    EXPECT_THAT(r.error, HasSubstr(sentence)) << options;
    EXPECT_TRUE(std::filesystem::is_empty(folder) || !std::filesystem::exists(path("no.gguf")));
  }
  EXPECT_EQ(run("synth a.gguf --shape llama").code, 2);
  EXPECT_EQ(run("synth a.gguf --vocabulary 258").code, 2);
}

}  // namespace
