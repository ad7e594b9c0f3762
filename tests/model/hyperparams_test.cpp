#include "model/hyperparams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/file.h"
#include "tests/golden_folder.h"

namespace strata {
namespace {

using boost::json::array;
using boost::json::object;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

object golden_config(const std::string& name) {
  const auto text = real_files().read_text(test::golden_folder(name) + "/config.json");
  EXPECT_TRUE(text) << text.error().message;
  return boost::json::parse(*text).as_object();
}

const std::vector<std::uint64_t> full_multipliers = {23703573157769, 20109073645365, 8052911324071};
const std::vector<std::uint64_t> full_sizes = {
    20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077,
    20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171};
const std::vector<std::uint64_t> full_offsets = {
    0,         20000003,  40000026,  60000059,  80000106,  100000165, 120000228, 140000297,
    160000374, 180000455, 200000548, 220000655, 240000802, 260000955, 280001114, 300001275};

// The numbers of a published file, which this derivation did not make.
TEST(NgramConstants, full_size) {
  const auto c = derive_ngram_constants(248320, 1234, 0, 3, 8, 20000000, 128);
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->multipliers, full_multipliers);
  EXPECT_EQ(c->head_vocab_sizes, full_sizes);
  EXPECT_EQ(c->head_offsets, full_offsets);
  EXPECT_EQ(c->table_rows, 320001536u);
}

TEST(NgramConstants, tiny_and_nano) {
  const auto tiny = derive_ngram_constants(4096, 1234, 0, 3, 8, 2000, 128);
  ASSERT_TRUE(tiny);
  EXPECT_THAT(tiny->multipliers,
              ElementsAre(2043359076095531u, 1677619451946387u, 1270917961443223u));
  EXPECT_THAT(tiny->head_vocab_sizes, ElementsAre(2003, 2011, 2017, 2027, 2029, 2039, 2053, 2063,
                                                  2069, 2081, 2083, 2087, 2089, 2099, 2111, 2113));
  EXPECT_EQ(tiny->head_offsets.back(), 30861u);
  EXPECT_EQ(tiny->table_rows, 33024u);

  const auto nano = derive_ngram_constants(300, 1234, 0, 3, 2, 31, 128);
  ASSERT_TRUE(nano);
  EXPECT_THAT(nano->multipliers,
              ElementsAre(14383222055071283u, 17200026167610081u, 13040324987628097u));
  EXPECT_THAT(nano->head_vocab_sizes, ElementsAre(31, 37, 41, 43));
  EXPECT_EQ(nano->table_rows, 256u);
}

TEST(NgramConstants, second_layer_goes_on_with_the_primes) {
  const auto first = derive_ngram_constants(300, 1234, 0, 3, 2, 31, 128);
  const auto second = derive_ngram_constants(300, 1234, 1, 3, 2, 31, 128);
  ASSERT_TRUE(first && second);
  EXPECT_THAT(second->head_vocab_sizes, ElementsAre(47, 53, 59, 61));
  EXPECT_EQ(second->head_offsets.front(), 0u);
  EXPECT_NE(second->multipliers, first->multipliers);
}

TEST(NgramConstants, refuses_what_cannot_be_addressed) {
  EXPECT_FALSE(derive_ngram_constants(0, 1, 0, 3, 8, 100, 128));
  EXPECT_FALSE(derive_ngram_constants(100, 1, 0, 1, 8, 100, 128));
  EXPECT_FALSE(derive_ngram_constants(100, 1, 0, 3, 0, 100, 128));
  EXPECT_FALSE(derive_ngram_constants(100, 1, 0, 3, 8, 0, 128));
  EXPECT_FALSE(derive_ngram_constants(100, 1, 0, 3, 8, 100, 0));
  EXPECT_FALSE(derive_ngram_constants(100, 1, 0, 3, 8, 0x7fffffff, 128));
  EXPECT_FALSE(derive_ngram_constants(100, 1, 0xffffffff, 3, 8, 100, 128));
}

TEST(HfConfig, tiny_a) {
  const auto p = hyperparams_from_hf(golden_config("tiny-a"));
  ASSERT_TRUE(p) << p.error().message;
  EXPECT_EQ(p->layers, 8u);
  EXPECT_EQ(p->draft_layers, 0u);
  EXPECT_EQ(p->hidden, 64u);
  EXPECT_EQ(p->vocabulary, 512u);
  EXPECT_EQ(p->context, 4096u);
  EXPECT_EQ(p->rms_epsilon, 1e-6f);
  using enum LayerKind;
  EXPECT_THAT(p->kinds, ElementsAre(gdn, gdn, gdn, qsa, gdn, gdn, gdn, qsa));
  EXPECT_THAT(p->compress_ratios, ElementsAre(0, 0, 0, 4, 0, 0, 0, 4));
  EXPECT_EQ(p->stream_rank, 24u);
  EXPECT_EQ(p->heads, 4u);
  EXPECT_EQ(p->head_dim, 32u);
  EXPECT_EQ(p->rotary_dims, 8u);
  EXPECT_THAT(p->rope_sections, ElementsAre(2, 1, 1, 0));
  EXPECT_EQ(p->indexer_heads, 8u);
  EXPECT_EQ(p->indexer_budget, 16u);
  EXPECT_EQ(p->gdn_output_gate, GateActivation::sigmoid);
  EXPECT_EQ(p->experts, 16u);
  EXPECT_EQ(p->shared_ff, 48u);
  ASSERT_EQ(p->ngram_layers.size(), 1u);
  EXPECT_EQ(p->ngram_layers[0].layer, 1u);
  EXPECT_EQ(p->ngram_row_width, 8u);
  EXPECT_EQ(p->ngram_eos, 2);
}

TEST(HfConfig, tiny_noindex_has_two_tables_and_a_silu_gate) {
  STRATA_NEEDS_GOLDEN("tiny-noindex");
  const auto p = hyperparams_from_hf(golden_config("tiny-noindex"));
  ASSERT_TRUE(p) << p.error().message;
  EXPECT_EQ(p->gdn_output_gate, GateActivation::silu);
  ASSERT_EQ(p->ngram_layers.size(), 2u);
  EXPECT_EQ(p->ngram_layers[0].layer, 0u);
  EXPECT_EQ(p->ngram_layers[1].layer, 2u);
  EXPECT_GT(p->ngram_layers[1].head_vocab_sizes.front(),
            p->ngram_layers[0].head_vocab_sizes.back());
}

TEST(HfConfig, defaults) {
  object config = golden_config("tiny-a");
  for (const char* key : {"layer_types", "hc_count", "ngram_size", "norm_topk_prob",
                          "ple_embed_dim", "ple_conv_kernel_size", "output_gate_type", "seed"})
    config.erase(key);
  config["hc_lowrank"] = nullptr;
  config["ple_layer_ids"] = array{7, 2, 7};
  config["rope_parameters"].as_object().erase("mrope_section");
  config["eos_token_id"] = array{5, 2};
  const auto p = hyperparams_from_hf(config);
  ASSERT_TRUE(p) << p.error().message;
  EXPECT_EQ(p->kinds[3], LayerKind::qsa);
  EXPECT_EQ(p->streams, 4u);
  EXPECT_EQ(p->stream_rank, 320u);
  EXPECT_TRUE(p->normalize_top_k);
  EXPECT_EQ(p->gdn_output_gate, GateActivation::silu);
  EXPECT_THAT(p->rope_sections, ElementsAre(11, 11, 10, 0));
  EXPECT_EQ(p->ngram_width(), 64u);
  EXPECT_EQ(p->ngram_eos, 5);
  ASSERT_EQ(p->ngram_layers.size(), 2u);
  EXPECT_EQ(p->ngram_layers[0].layer, 1u);
  EXPECT_EQ(p->ngram_layers[1].layer, 6u);
}

TEST(HfConfig, every_label_of_attention) {
  for (const char* label :
       {"full_attention", "qwen_sparse_attention", "deepseek_sparse_attention"}) {
    object config = golden_config("tiny-a");
    config["layer_types"].as_array()[7] = label;
    const auto p = hyperparams_from_hf(config);
    ASSERT_TRUE(p) << p.error().message;
    EXPECT_EQ(p->kinds[7], LayerKind::qsa) << label;
    EXPECT_EQ(p->compress_ratios[7], 4u) << label;
  }
}

TEST(HfConfig, nested_text_config) {
  object text = golden_config("tiny-a");
  const auto plain = hyperparams_from_hf(text);
  object config;
  config["eos_token_id"] = text["eos_token_id"];
  text.erase("eos_token_id");
  config["model_type"] = "qwen4_exp";
  config["tie_word_embeddings"] = true;
  text.erase("tie_word_embeddings");
  config["text_config"] = text;
  const auto nested = hyperparams_from_hf(config);
  ASSERT_TRUE(nested) << nested.error().message;
  EXPECT_TRUE(nested->tied_embeddings);
  EXPECT_EQ(nested->ngram_eos, plain->ngram_eos);
  EXPECT_EQ(nested->ngram_layers, plain->ngram_layers);
}

struct ConfigCase {
  const char* change;  // JSON merged into tiny-a's config; "absent" removes a key
  const char* sentence;
};

class ConfigErrors : public testing::TestWithParam<ConfigCase> {};

TEST_P(ConfigErrors, say_what_is_wrong) {
  object config = golden_config("tiny-a");
  const object change = boost::json::parse(GetParam().change).as_object();
  for (const auto& [key, value] : change) {
    if (value.is_string() && value.get_string() == "absent")
      config.erase(key);
    else
      config[key] = value;
  }
  const auto p = hyperparams_from_hf(config);
  ASSERT_FALSE(p) << GetParam().change;
  EXPECT_EQ(p.error().message, GetParam().sentence);
}

INSTANTIATE_TEST_SUITE_P(
    Table, ConfigErrors,
    testing::Values(
        ConfigCase{R"({"model_type": "llama"})",
                   "key 'model_type' is 'llama'; this program runs 'qwen4_exp' and "
                   "'qwen4_exp_text'"},
        ConfigCase{R"({"hidden_size": "absent"})", "key 'hidden_size' must be given"},
        ConfigCase{R"({"hidden_size": -1})",
                   "key 'hidden_size' is -1; it must be a whole number of at least 0"},
        ConfigCase{R"({"hidden_size": 6.5})",
                   "key 'hidden_size' is 6.5E0; it must be a whole number of at least 0"},
        ConfigCase{R"({"hidden_size": 0})",
                   "key 'hidden_size' is 0; it must be between 1 and 1048576"},
        ConfigCase{R"({"hidden_size": 5000000000})",
                   "key 'hidden_size' is 5000000000, which does not fit 32 bits"},
        ConfigCase{R"({"vocab_size": null})", "key 'vocab_size' must be given"},
        ConfigCase{R"({"num_hidden_layers": 0})",
                   "key 'num_hidden_layers' is 0; it must be between 1 and 1024"},
        ConfigCase{R"({"num_hidden_layers": 9})",
                   "key 'layer_types' has 8 entries but 'num_hidden_layers' is 9"},
        ConfigCase{R"({"layer_types": "all"})", "key 'layer_types' is \"all\"; it must be a list"},
        ConfigCase{R"({"layer_types": ["a","b","c","d","e","f","g","h"]})",
                   "key 'layer_types' calls layer 0 \"a\"; known are \"linear_attention\", "
                   "\"full_attention\", \"qwen_sparse_attention\" and "
                   "\"deepseek_sparse_attention\""},
        ConfigCase{R"({"layer_types": null, "full_attention_interval": 0})",
                   "key 'full_attention_interval' is 0; it must be at least 1"},
        ConfigCase{R"({"hc_count": 1})", "key 'hc_count' is 1; it must be between 2 and 64"},
        ConfigCase{R"({"num_key_value_heads": 3})",
                   "key 'num_attention_heads' is 4, which is no multiple of "
                   "'num_key_value_heads' = 3"},
        ConfigCase{R"({"rope_parameters": null})",
                   "key 'rope_parameters' must be given, as an object"},
        ConfigCase{R"({"rope_parameters": {"rope_theta": 1e7, "rope_type": "longrope"}})",
                   "key 'rope_parameters.rope_type' is 'longrope'; only default, linear and yarn "
                   "are supported"},
        ConfigCase{
            R"({"rope_parameters": {"rope_theta": 1e7, "rope_type": "linear", "factor": 0}})",
            "key 'rope_parameters.factor' is 0; it must be from 1 to 1024"},
        ConfigCase{R"({"rope_parameters": {"rope_theta": 1e7, "rope_type": "yarn", "factor": 2,
                       "mscale": 1}})",
                   "key 'rope_parameters.mscale' is 1; it is not supported"},
        ConfigCase{R"({"rope_parameters": {"rope_type": "default"}})",
                   "key 'rope_parameters.rope_theta' must be given"},
        ConfigCase{R"({"rope_parameters": {"rope_theta": 0}})",
                   "key 'rope_parameters.rope_theta' is 0; it must be positive"},
        ConfigCase{R"({"rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 2}})",
                   "key 'rope_parameters.partial_rotary_factor' is 2; it must be in (0, 1]"},
        ConfigCase{R"({"rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.1}})",
                   "key 'rope_parameters.partial_rotary_factor' gives 3 rotary dimensions; they "
                   "must be even and at most 'head_dim' = 32"},
        ConfigCase{R"({"indexer_head_dim": 4})",
                   "key 'indexer_head_dim' is 4, less than the 8 rotary dimensions"},
        ConfigCase{R"({"indexer_budget": "absent"})", "key 'indexer_budget' must be given"},
        ConfigCase{R"({"indexer_budget": 18})",
                   "key 'indexer_budget' is 18, which is no multiple of "
                   "'indexer_compress_ratio' = 4"},
        ConfigCase{R"({"indexer_compress_ratio": 0})",
                   "key 'indexer_compress_ratio' is 0; it must be at least 1"},
        ConfigCase{R"({"indexer_kv_heads": 2})",
                   "key 'indexer_kv_heads' is 2; the indexer has one key head"},
        ConfigCase{R"({"linear_num_value_heads": 5})",
                   "key 'linear_num_value_heads' is 5, which is no multiple of "
                   "'linear_num_key_heads' = 2"},
        ConfigCase{R"({"hidden_act": "gelu"})",
                   "key 'hidden_act' is 'gelu'; only 'silu' is supported"},
        ConfigCase{R"({"output_gate_type": "tanh"})",
                   "key 'output_gate_type' is 'tanh'; it must be 'sigmoid' or 'silu'"},
        ConfigCase{R"({"attention_bias": true})",
                   "key 'attention_bias' is true; projections with a bias are not supported"},
        ConfigCase{R"({"num_experts_per_tok": 17})",
                   "key 'num_experts_per_tok' is 17, more than 'num_experts' = 16"},
        ConfigCase{R"({"norm_topk_prob": 1})",
                   "key 'norm_topk_prob' is 1; it must be true or false"},
        ConfigCase{R"({"ple_layer_ids": [0]})",
                   "key 'ple_layer_ids' holds 0; an id is between 1 and 8"},
        ConfigCase{R"({"ple_layer_ids": [9]})",
                   "key 'ple_layer_ids' holds 9; an id is between 1 and 8"},
        ConfigCase{R"({"ple_layer_ids": [4]})",
                   "key 'ple_layer_ids' names layer 3, an attention layer; n-gram layers are delta "
                   "net layers"},
        ConfigCase{R"({"ple_embed_dim": 60})",
                   "key 'ple_embed_dim' is 60, which is no multiple of the 8 n-gram heads"},
        ConfigCase{R"({"eos_token_id": null})",
                   "key 'eos_token_id' is absent; a model with n-gram layers needs a token id"},
        ConfigCase{R"({"eos_token_id": 512})",
                   "key 'eos_token_id' is 512, which is no token of a vocabulary of 512"},
        ConfigCase{R"({"rms_norm_eps": 0})", "key 'rms_norm_eps' is 0; it must be positive"},
        ConfigCase{R"({"tie_word_embeddings": "yes"})",
                   "key 'tie_word_embeddings' is \"yes\"; it must be true or false"},
        ConfigCase{R"({"ngram_size": 1})",
                   "keys 'ngram_size', 'heads_per_ngram', 'ngram_vocab_size_base', "
                   "'make_ngram_vocab_size_divisible_by': the n-gram size is 1; it must be between "
                   "2 and 16"}));

void expect_round_trip(const HyperParams& p) {
  Metadata metadata;
  write_hyperparams(p, metadata);
  const auto read = hyperparams_from_gguf(metadata);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(*read == p);
}

HyperParams tiny_a() {
  auto p = hyperparams_from_hf(golden_config("tiny-a"));
  EXPECT_TRUE(p);
  return *p;
}

TEST(Gguf, round_trip_of_golden_models) {
  STRATA_NEEDS_GOLDEN("tiny-noindex");
  for (const char* name : {"tiny-a", "tiny-noindex"}) {
    auto p = hyperparams_from_hf(golden_config(name));
    ASSERT_TRUE(p);
    expect_round_trip(*p);
    p->draft_layers = 1;
    p->name = name;
    expect_round_trip(*p);
  }
}

TEST(Gguf, round_trip_of_what_llama_cpp_has_no_key_for) {
  HyperParams p = tiny_a();
  p.gdn_value_dim = 24;
  p.normalize_top_k = false;
  p.tied_embeddings = true;
  p.gdn_output_gate = GateActivation::silu;
  p.ngram_row_width = 5;
  expect_round_trip(p);

  p.kinds.assign(8, LayerKind::gdn);  // no pattern of llama.cpp's interval
  p.kinds[2] = p.kinds[3] = LayerKind::qsa;
  p.compress_ratios = {0, 0, 8, 0, 0, 0, 0, 0};
  p.draft_layers = 1;
  expect_round_trip(p);
  Metadata metadata;
  write_hyperparams(p, metadata);
  EXPECT_FALSE(metadata.contains("qwen4exp.full_attention_interval"));
  EXPECT_THAT(*metadata.integers("qwen4exp.attention.recurrent_layers"),
              ElementsAre(1, 1, 0, 0, 1, 1, 1, 1, 0));

  p.kinds.assign(8, LayerKind::gdn);
  p.compress_ratios.assign(8, 0);
  expect_round_trip(p);
  p.ngram_layers.clear();
  p.ngram_size = 3;
  p.heads_per_ngram = 8;
  p.ngram_row_width = 0;
  p.ngram_eos = -1;
  p.kinds.assign(8, LayerKind::qsa);
  expect_round_trip(p);
}

// The keys of a file of llama.cpp's converter, with the published values.
Metadata published() {
  Metadata m;
  m.set("general.architecture", MetaValue::string("qwen4exp"));
  const std::pair<const char*, std::uint32_t> numbers[] = {
      {"block_count", 48},
      {"context_length", 262144},
      {"embedding_length", 2560},
      {"attention.head_count", 24},
      {"attention.head_count_kv", 2},
      {"attention.key_length", 256},
      {"attention.value_length", 256},
      {"rope.dimension_count", 64},
      {"expert_count", 512},
      {"expert_used_count", 10},
      {"expert_feed_forward_length", 640},
      {"expert_shared_feed_forward_length", 640},
      {"ssm.conv_kernel", 4},
      {"ssm.state_size", 128},
      {"ssm.group_count", 16},
      {"ssm.time_step_rank", 48},
      {"ssm.inner_size", 6144},
      {"hyper_connection.count", 4},
      {"hyper_connection.low_rank", 320},
      {"attention.indexer.head_count", 4},
      {"attention.indexer.key_length", 128},
      {"attention.indexer.top_k", 2048},
      {"ple.ngram_size", 3},
      {"ple.heads_per_ngram", 8},
      {"ple.conv_kernel", 4},
      {"ple.eos_token_id", 248044},
      {"ple.image_token_id", 248056},
      {"embedding_length_per_layer_input", 160},
  };
  for (const auto& [key, value] : numbers)
    m.set(std::string("qwen4exp.") + key, MetaValue::u32(value));
  m.set("qwen4exp.attention.layer_norm_rms_epsilon", MetaValue::f32(1e-6f));
  m.set("qwen4exp.rope.freq_base", MetaValue::f32(1e7f));
  m.set("qwen4exp.rope.dimension_sections", MetaValue::array(MetaType::i32, {11, 11, 10, 0}));
  MetaValue::Integers ratios;
  for (int l = 0; l < 48; ++l) ratios.push_back(l % 4 == 3 ? 4 : 0);
  m.set("qwen4exp.attention.compress_ratios", MetaValue::array(MetaType::i32, ratios));
  m.set("qwen4exp.ple.layers", MetaValue::array(MetaType::i32, {1}));
  const auto u64s = [](const std::vector<std::uint64_t>& list) {
    return MetaValue::array(MetaType::u64, MetaValue::Integers(list.begin(), list.end()));
  };
  m.set("qwen4exp.ple.layer_multipliers", u64s(full_multipliers));
  m.set("qwen4exp.ple.head_vocab_sizes", u64s(full_sizes));
  m.set("qwen4exp.ple.head_offsets", u64s(full_offsets));
  m.set("tokenizer.ggml.tokens", MetaValue::strings(MetaValue::Strings(248320, "x")));
  return m;
}

TEST(Gguf, published_file) {
  Metadata m = published();  // without interval and name
  const auto p = hyperparams_from_gguf(m);
  ASSERT_TRUE(p) << p.error().message;
  EXPECT_EQ(p->vocabulary, 248320u);
  EXPECT_EQ(p->kinds[3], LayerKind::qsa);
  EXPECT_EQ(p->kinds[46], LayerKind::gdn);
  EXPECT_EQ(p->gdn_value_dim, 128u);
  EXPECT_EQ(p->gdn_conv_channels(), 10240u);
  EXPECT_EQ(p->ngram_width(), 2560u);
  EXPECT_EQ(p->ngram_layers[0].rows(), 320001446u);
  EXPECT_EQ(p->gdn_output_gate, GateActivation::sigmoid);
  EXPECT_TRUE(p->normalize_top_k);
  EXPECT_EQ(p->name, "");

  // With a draft block the per-layer lists may count it.
  m.set("qwen4exp.block_count", MetaValue::u32(49));
  m.set("qwen4exp.nextn_predict_layers", MetaValue::u32(1));
  const auto short_list = hyperparams_from_gguf(m);
  ASSERT_TRUE(short_list) << short_list.error().message;
  MetaValue::Integers ratios = *m.integers("qwen4exp.attention.compress_ratios");
  ratios.push_back(0);
  m.set("qwen4exp.attention.compress_ratios", MetaValue::array(MetaType::i32, ratios));
  const auto long_list = hyperparams_from_gguf(m);
  ASSERT_TRUE(long_list) << long_list.error().message;
  EXPECT_TRUE(*long_list == *short_list);
  EXPECT_EQ(long_list->layers, 48u);
  EXPECT_EQ(long_list->draft_layers, 1u);
  EXPECT_EQ(long_list->compress_ratios.size(), 48u);
}

TEST(Gguf, no_ngram_layers) {
  const Metadata whole = published();
  Metadata m;
  for (const auto& [key, value] : whole.entries())
    if (!key.starts_with("qwen4exp.ple.")) m.set(key, value);
  const auto p = hyperparams_from_gguf(m);
  ASSERT_TRUE(p) << p.error().message;
  EXPECT_TRUE(p->ngram_layers.empty());
}

struct GgufCase {
  const char* key;
  MetaValue value;
  const char* sentence;
};

TEST(Gguf, errors_name_key_value_and_rule) {
  const auto ints = [](MetaValue::Integers v) { return MetaValue::array(MetaType::i32, v); };
  const GgufCase cases[] = {
      {"general.architecture", MetaValue::string("llama"),
       "key 'general.architecture' is 'llama'; this program runs 'qwen4exp'"},
      {"qwen4exp.block_count", MetaValue::u32(0),
       "key 'qwen4exp.block_count' is 0 with 0 draft blocks; there must be 1 to 1024 layers"},
      {"qwen4exp.block_count", MetaValue::u32(4000000000),
       "key 'qwen4exp.block_count' is 4000000000 with 0 draft blocks; there must be 1 to 1024 "
       "layers"},
      {"qwen4exp.nextn_predict_layers", MetaValue::u32(2),
       "key 'qwen4exp.nextn_predict_layers' is 2; at most one draft block is supported"},
      {"qwen4exp.full_attention_interval", MetaValue::u32(0),
       "key 'qwen4exp.full_attention_interval' is 0; it must be at least 1"},
      {"qwen4exp.attention.compress_ratios", ints({0, 4}),
       "key 'qwen4exp.attention.compress_ratios' has 2 entries but the model has 48 layers"},
      {"qwen4exp.attention.value_length", MetaValue::u32(128),
       "key 'qwen4exp.attention.value_length' is 128 but 'qwen4exp.attention.key_length' is 256; "
       "they must be equal"},
      {"qwen4exp.ssm.inner_size", MetaValue::u32(6145),
       "key 'qwen4exp.ssm.inner_size' is 6145, which is no multiple of "
       "'qwen4exp.ssm.time_step_rank' = 48"},
      {"qwen4exp.hyper_connection.count", MetaValue::u32(1),
       "key 'qwen4exp.hyper_connection.count' is 1; it must be between 2 and 64"},
      {"qwen4exp.expert_used_count", MetaValue::u32(513),
       "key 'qwen4exp.expert_used_count' is 513, more than 'qwen4exp.expert_count' = 512"},
      {"qwen4exp.rope.scaling.type", MetaValue::string("longrope"),
       "key 'qwen4exp.rope.scaling.type' is 'longrope'; only none, linear and yarn are supported"},
      {"qwen4exp.expert_gating_func", MetaValue::u32(2),
       "key 'qwen4exp.expert_gating_func' is 2; only softmax (1) is supported"},
      {"qwen4exp.ple.layers", ints({3}),
       "key 'qwen4exp.ple.layers' names layer 3, an attention layer; n-gram layers are delta net "
       "layers"},
      {"qwen4exp.ple.layers", ints({48}),
       "key 'qwen4exp.ple.layers' names layer 48 but the model has 48 layers"},
      {"qwen4exp.ple.layers", ints({1, 2}),
       "key 'qwen4exp.ple.layer_multipliers' has 3 entries; 2 n-gram layers with 3 each need 6"},
      {"qwen4exp.ple.eos_token_id", MetaValue::u32(248320),
       "key 'qwen4exp.ple.eos_token_id' is 248320, which is no token of a vocabulary of 248320"},
      {"qwen4exp.ple.head_offsets", MetaValue::array(MetaType::u64, MetaValue::Integers(16, 5)),
       "key 'qwen4exp.ple.head_offsets' holds 5 for head 0 of layer 1; the sizes before it add up "
       "to 0"},
      {"qwen4exp.ple.head_vocab_sizes",
       MetaValue::array(MetaType::u64, MetaValue::Integers(16, -1)),
       "key 'qwen4exp.ple.head_vocab_sizes' is 18446744073709551615; it must be between 1 and "
       "2147483647"},
      {"qwen4exp.vocab_size", MetaValue::u32(7),
       "key 'qwen4exp.vocab_size' is 7 but 'tokenizer.ggml.tokens' has 248320 entries"},
      {"strata.gdn.output_gate", MetaValue::string("relu"),
       "key 'strata.gdn.output_gate' is 'relu'; it must be 'sigmoid' or 'silu'"},
      {"qwen4exp.embedding_length", MetaValue::u32(1u << 21),
       "key 'qwen4exp.embedding_length' is 2097152; it must be between 1 and 1048576"},
  };
  for (const GgufCase& c : cases) {
    Metadata m = published();
    m.set(c.key, c.value);
    const auto p = hyperparams_from_gguf(m);
    ASSERT_FALSE(p) << c.key;
    EXPECT_EQ(p.error().message, c.sentence);
  }
}

TEST(Gguf, every_required_key_is_asked_for) {
  const Metadata whole = published();
  for (const auto& [left_out, ignored] : whole.entries()) {
    if (left_out == "qwen4exp.ple.image_token_id" || left_out == "qwen4exp.ple.layers" ||
        left_out == "qwen4exp.rope.dimension_count" ||
        left_out == "qwen4exp.rope.dimension_sections" ||
        left_out == "qwen4exp.attention.value_length")
      continue;
    Metadata m;
    for (const auto& [key, value] : whole.entries())
      if (key != left_out) m.set(key, value);
    const auto p = hyperparams_from_gguf(m);
    ASSERT_FALSE(p) << left_out;
    const std::string named =
        left_out == "tokenizer.ggml.tokens" ? "qwen4exp.vocab_size" : left_out;
    EXPECT_THAT(p.error().message, HasSubstr(named));
  }
}

}  // namespace
}  // namespace strata
