// Hyper-parameters from HF's config.json: its keys, its defaults, its label of each layer.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "model/hyperparams.h"
#include "model/hyperparams_keys.h"

namespace strata {

const HyperParamKeys hf_keys = {
    .layers = "num_hidden_layers",
    .hidden = "hidden_size",
    .vocabulary = "vocab_size",
    .context = "max_position_embeddings",
    .rms_epsilon = "rms_norm_eps",
    .streams = "hc_count",
    .stream_rank = "hc_lowrank",
    .heads = "num_attention_heads",
    .kv_heads = "num_key_value_heads",
    .head_dim = "head_dim",
    .rotary_dims = "rope_parameters.partial_rotary_factor",
    .rope_theta = "rope_parameters.rope_theta",
    .rope_type = "rope_parameters.rope_type",
    .rope_factor = "rope_parameters.factor",
    .rope_context = "rope_parameters.original_max_position_embeddings",
    .rope_beta_fast = "rope_parameters.beta_fast",
    .rope_beta_slow = "rope_parameters.beta_slow",
    .indexer_heads = "indexer_n_heads",
    .indexer_dim = "indexer_head_dim",
    .indexer_budget = "indexer_budget",
    .compress_ratio = "indexer_compress_ratio",
    .gdn_key_heads = "linear_num_key_heads",
    .gdn_value_heads = "linear_num_value_heads",
    .gdn_key_dim = "linear_key_head_dim",
    .gdn_value_dim = "linear_value_head_dim",
    .gdn_conv_kernel = "linear_conv_kernel_dim",
    .experts = "num_experts",
    .experts_used = "num_experts_per_tok",
    .expert_ff = "moe_intermediate_size",
    .shared_ff = "shared_expert_intermediate_size",
    .ngram_layers = "ple_layer_ids",
    .ngram_size = "ngram_size",
    .heads_per_ngram = "heads_per_ngram",
    .ngram_row_width = "ple_embed_dim",
    .ngram_conv_kernel = "ple_conv_kernel_size",
    .ngram_eos = "eos_token_id",
    .multipliers = "seed",
    .head_vocab_sizes = "ngram_vocab_size_base",
    .head_offsets = "ngram_vocab_size_base",
};

namespace {

using boost::json::object;
using boost::json::value;

// The settings of a config. Null counts as absent. The first failure is kept and later look-ups
// answer with zeros, so that the readers below are plain lists of assignments.
class ConfigReader {
 public:
  // `prefix` is what a sentence puts before a key ("rope_parameters.").
  ConfigReader(const object& settings, std::string prefix)
      : settings_(settings), prefix_(std::move(prefix)) {}

  const value* find(std::string_view key) const {
    const value* found = settings_.if_contains(key);
    return found != nullptr && !found->is_null() ? found : nullptr;
  }

  std::uint64_t u64(std::string_view key, std::optional<std::uint64_t> absent = {}) {
    const value* found = find(key);
    if (found == nullptr) {
      if (absent) return *absent;
      refuse("key '{}{}' must be given", prefix_, key);
      return 0;
    }
    if (found->is_uint64()) return found->get_uint64();
    if (found->is_int64() && found->get_int64() >= 0)
      return static_cast<std::uint64_t>(found->get_int64());
    refuse("key '{}{}' is {}; it must be a whole number of at least 0", prefix_, key,
           brief(*found));
    return 0;
  }
  std::uint32_t u32(std::string_view key, std::optional<std::uint32_t> absent = {}) {
    const std::uint64_t v = u64(key, absent ? std::optional<std::uint64_t>(*absent) : std::nullopt);
    if (v > std::numeric_limits<std::uint32_t>::max()) {
      refuse("key '{}{}' is {}, which does not fit 32 bits", prefix_, key, v);
      return 0;
    }
    return static_cast<std::uint32_t>(v);
  }
  double number(std::string_view key, std::optional<double> absent = {}) {
    const value* found = find(key);
    if (found == nullptr) {
      if (absent) return *absent;
      refuse("key '{}{}' must be given", prefix_, key);
      return 0;
    }
    if (found->is_number()) return found->to_number<double>();
    refuse("key '{}{}' is {}; it must be a number", prefix_, key, brief(*found));
    return 0;
  }
  bool boolean(std::string_view key, bool absent) {
    const value* found = find(key);
    if (found == nullptr) return absent;
    if (found->is_bool()) return found->get_bool();
    refuse("key '{}{}' is {}; it must be true or false", prefix_, key, brief(*found));
    return absent;
  }
  std::string string(std::string_view key, std::string absent) {
    const value* found = find(key);
    if (found == nullptr) return absent;
    if (found->is_string()) return std::string(found->get_string());
    refuse("key '{}{}' is {}; it must be a string", prefix_, key, brief(*found));
    return absent;
  }
  const boost::json::array* array(std::string_view key) {
    const value* found = find(key);
    if (found == nullptr) return nullptr;
    if (found->is_array()) return &found->get_array();
    refuse("key '{}{}' is {}; it must be a list", prefix_, key, brief(*found));
    return nullptr;
  }

  template <class... Args>
  void refuse(fmt::format_string<Args...> text, Args&&... args) {
    if (!error_) error_ = Error{ErrorCode::corrupt, fmt::format(text, std::forward<Args>(args)...)};
  }
  template <class... Args>
  void unsupported(fmt::format_string<Args...> text, Args&&... args) {
    if (!error_)
      error_ = Error{ErrorCode::unsupported, fmt::format(text, std::forward<Args>(args)...)};
  }
  void adopt(const ConfigReader& other) {
    if (!error_) error_ = other.error_;
  }
  bool failed() const { return error_.has_value(); }
  Status status() const {
    if (error_) return tl::unexpected<Error>(*error_);
    return {};
  }

  static std::string brief(const value& v) {
    std::string text = boost::json::serialize(v);
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    return text;
  }

 private:
  const object& settings_;
  std::string prefix_;
  std::optional<Error> error_;
};

void read_kinds(ConfigReader& in, HyperParams& p) {
  p.kinds.assign(p.layers, LayerKind::gdn);
  if (const boost::json::array* types = in.array("layer_types")) {
    if (types->size() != p.layers) {
      in.refuse("key 'layer_types' has {} entries but 'num_hidden_layers' is {}", types->size(),
                p.layers);
      return;
    }
    for (std::size_t l = 0; l < types->size(); ++l) {
      const value& label = (*types)[l];
      const std::string_view text =
          label.is_string() ? std::string_view(label.get_string()) : std::string_view();
      if (text == "full_attention" || text == "qwen_sparse_attention" ||
          text == "deepseek_sparse_attention") {
        p.kinds[l] = LayerKind::qsa;
      } else if (text != "linear_attention") {
        in.unsupported(
            "key 'layer_types' calls layer {} {}; known are \"linear_attention\", "
            "\"full_attention\", \"qwen_sparse_attention\" and "
            "\"deepseek_sparse_attention\"",
            l, ConfigReader::brief(label));
        return;
      }
    }
    return;
  }
  const std::uint32_t interval = in.u32("full_attention_interval", 4);
  if (in.failed()) return;
  if (interval == 0) {
    in.refuse("key 'full_attention_interval' is 0; it must be at least 1");
    return;
  }
  for (std::uint32_t l = 0; l < p.layers; ++l)
    if ((std::uint64_t{l} + 1) % interval == 0) p.kinds[l] = LayerKind::qsa;
}

void read_rope(ConfigReader& in, HyperParams& p) {
  const value* found = in.find("rope_parameters");
  if (found == nullptr || !found->is_object()) {
    in.refuse("key 'rope_parameters' must be given, as an object");
    return;
  }
  ConfigReader rope(found->get_object(), "rope_parameters.");
  const std::string type = rope.string("rope_type", "default");
  if (type == "linear" || type == "yarn") {
    RopeScale& scale = p.rope_scale;
    scale.type = type == "yarn" ? RopeScaling::yarn : RopeScaling::linear;
    scale.factor = static_cast<float>(rope.number("factor"));
    scale.original_context = rope.u32("original_max_position_embeddings", p.context);
    scale.beta_fast = static_cast<float>(rope.number("beta_fast", 32));
    scale.beta_slow = static_cast<float>(rope.number("beta_slow", 1));
    for (const char* key : {"attention_factor", "mscale", "mscale_all_dim", "truncate"})
      if (const value* given = rope.find(key); given != nullptr)
        rope.unsupported("key 'rope_parameters.{}' is {}; it is not supported", key,
                         ConfigReader::brief(*given));
  } else if (type != "default") {
    rope.unsupported(
        "key 'rope_parameters.rope_type' is '{}'; only default, linear and yarn are supported",
        type);
  }
  p.rope_theta = static_cast<float>(rope.number("rope_theta"));
  const double factor = rope.number("partial_rotary_factor", 1.0);
  if (!(factor > 0 && factor <= 1))
    rope.refuse("key 'rope_parameters.partial_rotary_factor' is {}; it must be in (0, 1]", factor);
  else
    p.rotary_dims = static_cast<std::uint32_t>(std::floor(p.head_dim * factor));
  if (const boost::json::array* sections = rope.array("mrope_section")) {
    if (sections->size() > p.rope_sections.size())
      rope.refuse("key 'rope_parameters.mrope_section' has {} entries; at most 4",
                  sections->size());
    p.rope_sections.fill(0);
    for (std::size_t i = 0; i < std::min(sections->size(), p.rope_sections.size()); ++i) {
      const value& v = (*sections)[i];
      if (!v.is_int64() || v.get_int64() < 0 || v.get_int64() > 65536)
        rope.refuse("key 'rope_parameters.mrope_section' holds {}; a section is 0 to 65536",
                    ConfigReader::brief(v));
      else
        p.rope_sections[i] = static_cast<std::uint32_t>(v.get_int64());
    }
  }
  in.adopt(rope);
}

void read_indexer(ConfigReader& in, HyperParams& p) {
  p.indexer_heads = in.u32("indexer_n_heads");
  p.indexer_dim = in.u32("indexer_head_dim");
  p.indexer_budget = in.u32("indexer_budget");
  const std::uint32_t ratio = in.u32("indexer_compress_ratio");
  const std::uint32_t key_heads = in.u32("indexer_kv_heads", 1);
  if (in.failed()) return;
  if (key_heads != 1)
    in.unsupported("key 'indexer_kv_heads' is {}; the indexer has one key head", key_heads);
  if (ratio == 0) in.refuse("key 'indexer_compress_ratio' is 0; it must be at least 1");
  for (const LayerKind kind : p.kinds)
    p.compress_ratios.push_back(kind == LayerKind::qsa ? ratio : 0);
}

void read_delta_net(ConfigReader& in, HyperParams& p) {
  p.gdn_key_heads = in.u32("linear_num_key_heads");
  p.gdn_value_heads = in.u32("linear_num_value_heads");
  p.gdn_key_dim = in.u32("linear_key_head_dim");
  p.gdn_value_dim = in.u32("linear_value_head_dim");
  p.gdn_conv_kernel = in.u32("linear_conv_kernel_dim");
  const std::string activation = in.string("hidden_act", "silu");
  if (activation != "silu")
    in.unsupported("key 'hidden_act' is '{}'; only 'silu' is supported", activation);
  const std::string gate = in.string("output_gate_type", activation);
  if (gate != "sigmoid" && gate != "silu")
    in.unsupported("key 'output_gate_type' is '{}'; it must be 'sigmoid' or 'silu'", gate);
  p.gdn_output_gate = gate == "sigmoid" ? GateActivation::sigmoid : GateActivation::silu;
}

// 1-based in the config; sorted and without doubles here, as the reference takes them.
std::vector<std::uint32_t> ngram_layer_indices(ConfigReader& in, std::uint32_t layers) {
  std::vector<std::uint32_t> out;
  const boost::json::array* ids = in.array("ple_layer_ids");
  if (ids == nullptr) return out;
  for (const value& id : *ids) {
    if (!id.is_int64() || id.get_int64() < 1 || id.get_int64() > layers) {
      in.refuse("key 'ple_layer_ids' holds {}; an id is between 1 and {}", ConfigReader::brief(id),
                layers);
      return {};
    }
    out.push_back(static_cast<std::uint32_t>(id.get_int64() - 1));
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// The first one of a list: the n-gram hash knows a single end of text.
void read_ngram_eos(ConfigReader& in, const value* eos, HyperParams& p) {
  if (eos != nullptr && eos->is_array() && !eos->get_array().empty()) eos = &eos->get_array()[0];
  if (eos == nullptr || !eos->is_int64() || eos->get_int64() < 0 ||
      eos->get_int64() > std::numeric_limits<std::int32_t>::max()) {
    in.refuse("key 'eos_token_id' is {}; a model with n-gram layers needs a token id",
              eos == nullptr ? "absent" : ConfigReader::brief(*eos));
    return;
  }
  p.ngram_eos = static_cast<std::int32_t>(eos->get_int64());
}

Status read_ngram(ConfigReader& in, const value* eos, HyperParams& p) {
  const std::vector<std::uint32_t> layers = ngram_layer_indices(in, p.layers);
  STRATA_TRY(in.status());
  if (layers.empty()) return {};
  p.ngram_size = in.u32("ngram_size", 3);
  p.heads_per_ngram = in.u32("heads_per_ngram", 8);
  p.ngram_conv_kernel = in.u32("ple_conv_kernel_size", 4);
  const std::uint32_t width = in.u32("ple_embed_dim", p.hidden);
  const std::uint64_t base = in.u64("ngram_vocab_size_base", 20'000'000);
  const std::uint64_t divisible_by = in.u64("make_ngram_vocab_size_divisible_by", 128);
  const std::uint64_t seed = in.u64("seed", 1234);
  read_ngram_eos(in, eos, p);
  STRATA_TRY(in.status());
  for (std::uint32_t ordinal = 0; ordinal < layers.size(); ++ordinal) {
    auto constants = derive_ngram_constants(p.vocabulary, seed, ordinal, p.ngram_size,
                                            p.heads_per_ngram, base, divisible_by);
    if (!constants)
      return with_context(std::move(constants).error(),
                          "keys 'ngram_size', 'heads_per_ngram', 'ngram_vocab_size_base', "
                          "'make_ngram_vocab_size_divisible_by'");
    p.ngram_layers.push_back({.layer = layers[ordinal],
                              .multipliers = std::move(constants->multipliers),
                              .head_vocab_sizes = std::move(constants->head_vocab_sizes),
                              .head_offsets = std::move(constants->head_offsets)});
  }
  if (width == 0 || width % p.ngram_heads() != 0)
    return fail(ErrorCode::corrupt,
                "key 'ple_embed_dim' is {}, which is no multiple of the {} n-gram heads", width,
                p.ngram_heads());
  p.ngram_row_width = width / p.ngram_heads();
  return {};
}

}  // namespace

Result<HyperParams> hyperparams_from_hf(const object& config) {
  const value* nested = config.if_contains("text_config");
  const bool multimodal = nested != nullptr && nested->is_object();
  const object& settings = multimodal ? nested->get_object() : config;
  ConfigReader in(settings, "");
  const ConfigReader top(config, "");
  // A multimodal config may keep what concerns the whole model at its top level.
  const auto either = [&](std::string_view key) {
    const value* found = in.find(key);
    return found != nullptr ? found : top.find(key);
  };

  const std::string type = in.string("model_type", "qwen4_exp_text");
  if (type != "qwen4_exp_text" && type != "qwen4_exp")
    return fail(ErrorCode::unsupported,
                "key 'model_type' is '{}'; this program runs 'qwen4_exp' and 'qwen4_exp_text'",
                type);
  HyperParams p;
  p.layers = in.u32("num_hidden_layers");
  p.hidden = in.u32("hidden_size");
  p.vocabulary = in.u32("vocab_size");
  p.context = in.u32("max_position_embeddings");
  p.rms_epsilon = static_cast<float>(in.number("rms_norm_eps"));
  p.streams = in.u32("hc_count", 4);
  p.stream_rank = in.u32("hc_lowrank", 320);
  p.heads = in.u32("num_attention_heads");
  p.kv_heads = in.u32("num_key_value_heads");
  p.head_dim = in.u32("head_dim");
  STRATA_TRY(in.status());
  if (p.layers == 0 || p.layers > 1024)
    return fail(ErrorCode::corrupt, "key 'num_hidden_layers' is {}; it must be between 1 and 1024",
                p.layers);
  if (in.boolean("attention_bias", false))
    in.unsupported("key 'attention_bias' is true; projections with a bias are not supported");
  read_kinds(in, p);
  read_rope(in, p);
  STRATA_TRY(in.status());
  read_indexer(in, p);
  read_delta_net(in, p);
  p.experts = in.u32("num_experts");
  p.experts_used = in.u32("num_experts_per_tok");
  p.expert_ff = in.u32("moe_intermediate_size");
  p.shared_ff = in.u32("shared_expert_intermediate_size");
  p.normalize_top_k = in.boolean("norm_topk_prob", true);
  if (const value* tied = either("tie_word_embeddings")) {
    if (tied->is_bool())
      p.tied_embeddings = tied->get_bool();
    else
      in.refuse("key 'tie_word_embeddings' is {}; it must be true or false",
                ConfigReader::brief(*tied));
  }
  STRATA_TRY(in.status());
  STRATA_TRY(read_ngram(in, either("eos_token_id"), p));
  STRATA_TRY(validate(p, hf_keys));
  return p;
}

}  // namespace strata
