#include "model/hyperparams.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "model/hyperparams_keys.h"

namespace strata {

const HyperParamKeys gguf_keys = {
    .layers = "qwen4exp.block_count",
    .hidden = "qwen4exp.embedding_length",
    .vocabulary = "qwen4exp.vocab_size",
    .context = "qwen4exp.context_length",
    .rms_epsilon = "qwen4exp.attention.layer_norm_rms_epsilon",
    .streams = "qwen4exp.hyper_connection.count",
    .stream_rank = "qwen4exp.hyper_connection.low_rank",
    .heads = "qwen4exp.attention.head_count",
    .kv_heads = "qwen4exp.attention.head_count_kv",
    .head_dim = "qwen4exp.attention.key_length",
    .rotary_dims = "qwen4exp.rope.dimension_count",
    .rope_theta = "qwen4exp.rope.freq_base",
    .rope_type = "qwen4exp.rope.scaling.type",
    .rope_factor = "qwen4exp.rope.scaling.factor",
    .rope_context = "qwen4exp.rope.scaling.original_context_length",
    .rope_beta_fast = "qwen4exp.rope.scaling.yarn_beta_fast",
    .rope_beta_slow = "qwen4exp.rope.scaling.yarn_beta_slow",
    .indexer_heads = "qwen4exp.attention.indexer.head_count",
    .indexer_dim = "qwen4exp.attention.indexer.key_length",
    .indexer_budget = "qwen4exp.attention.indexer.top_k",
    .compress_ratio = "qwen4exp.attention.compress_ratios",
    .gdn_key_heads = "qwen4exp.ssm.group_count",
    .gdn_value_heads = "qwen4exp.ssm.time_step_rank",
    .gdn_key_dim = "qwen4exp.ssm.state_size",
    .gdn_value_dim = "qwen4exp.ssm.inner_size",
    .gdn_conv_kernel = "qwen4exp.ssm.conv_kernel",
    .experts = "qwen4exp.expert_count",
    .experts_used = "qwen4exp.expert_used_count",
    .expert_ff = "qwen4exp.expert_feed_forward_length",
    .shared_ff = "qwen4exp.expert_shared_feed_forward_length",
    .ngram_layers = "qwen4exp.ple.layers",
    .ngram_size = "qwen4exp.ple.ngram_size",
    .heads_per_ngram = "qwen4exp.ple.heads_per_ngram",
    .ngram_row_width = "qwen4exp.embedding_length_per_layer_input",
    .ngram_conv_kernel = "qwen4exp.ple.conv_kernel",
    .ngram_eos = "qwen4exp.ple.eos_token_id",
    .multipliers = "qwen4exp.ple.layer_multipliers",
    .head_vocab_sizes = "qwen4exp.ple.head_vocab_sizes",
    .head_offsets = "qwen4exp.ple.head_offsets",
};

namespace {

// Limits far above every known model, low enough that no product below leaves 64 bits.
constexpr std::uint32_t max_layers = 1024;
constexpr std::uint32_t max_dimension = 1u << 20;
constexpr std::uint32_t max_wide = 1u << 26;  // products of two of them
constexpr std::uint32_t max_int32 = 0x7fffffff;
constexpr std::uint32_t max_ngram_size = 16;
constexpr std::uint32_t max_ngram_heads = 4096;
constexpr std::uint64_t max_primes = 16384;

// The metadata's values by key. The first failure is kept and later look-ups answer with zeros, so
// that a reader is a plain list of assignments with one check at its end.
class KeyReader {
 public:
  explicit KeyReader(const Metadata& metadata) : metadata_(metadata) {}

  std::uint32_t u32(std::string_view key) { return narrow(key, keep(metadata_.uint(key))); }
  std::uint32_t u32(std::string_view key, std::uint32_t absent) {
    return metadata_.contains(key) ? u32(key) : absent;
  }
  float f32(std::string_view key) { return static_cast<float>(keep(metadata_.number(key))); }
  bool boolean(std::string_view key, bool absent) {
    return metadata_.contains(key) ? keep(metadata_.boolean(key)) : absent;
  }
  std::string string(std::string_view key, std::string absent) {
    return metadata_.contains(key) ? keep(metadata_.string(key)) : std::move(absent);
  }
  MetaValue::Integers integers(std::string_view key) { return keep(metadata_.integers(key)); }
  bool contains(std::string_view key) const { return metadata_.contains(key); }

  template <class... Args>
  void refuse(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
    if (!error_) error_ = Error{code, fmt::format(text, std::forward<Args>(args)...)};
  }
  bool failed() const { return error_.has_value(); }
  Status status() const {
    if (error_) return tl::unexpected<Error>(*error_);
    return {};
  }

 private:
  template <class T>
  T keep(Result<T> result) {
    if (result) return std::move(*result);
    if (!error_) error_ = std::move(result).error();
    return T{};
  }
  std::uint32_t narrow(std::string_view key, std::uint64_t value) {
    if (value > std::numeric_limits<std::uint32_t>::max()) {
      refuse(ErrorCode::corrupt, "key '{}' is {}, which does not fit 32 bits", key, value);
      return 0;
    }
    return static_cast<std::uint32_t>(value);
  }

  const Metadata& metadata_;
  std::optional<Error> error_;
};

// A list for every trunk layer. llama.cpp's converter may count the draft block in.
MetaValue::Integers per_layer(KeyReader& in, std::string_view key, std::uint32_t layers,
                              std::uint32_t draft_layers) {
  MetaValue::Integers list = in.integers(key);
  if (in.failed()) return {};
  if (list.size() != layers && list.size() != std::size_t{layers} + draft_layers) {
    in.refuse(ErrorCode::corrupt, "key '{}' has {} entries but the model has {} layers", key,
              list.size(), layers);
    return {};
  }
  list.resize(layers);
  return list;
}

void read_layers(KeyReader& in, HyperParams& p) {
  const std::uint32_t blocks = in.u32(gguf_keys.layers);
  p.draft_layers = in.u32("qwen4exp.nextn_predict_layers", 0);
  if (in.failed()) return;
  if (p.draft_layers > 1) {
    in.refuse(ErrorCode::unsupported,
              "key 'qwen4exp.nextn_predict_layers' is {}; at most one draft block is supported",
              p.draft_layers);
    return;
  }
  if (blocks <= p.draft_layers || blocks - p.draft_layers > max_layers) {
    in.refuse(ErrorCode::corrupt,
              "key '{}' is {} with {} draft blocks; there must be 1 to {} layers", gguf_keys.layers,
              blocks, p.draft_layers, max_layers);
    return;
  }
  p.layers = blocks - p.draft_layers;

  constexpr std::string_view recurrent = "qwen4exp.attention.recurrent_layers";
  p.kinds.assign(p.layers, LayerKind::gdn);
  if (in.contains(recurrent)) {
    const MetaValue::Integers list = per_layer(in, recurrent, p.layers, p.draft_layers);
    for (std::size_t l = 0; l < list.size(); ++l)
      p.kinds[l] = list[l] != 0 ? LayerKind::gdn : LayerKind::qsa;
  } else {
    const std::uint32_t interval = in.u32("qwen4exp.full_attention_interval", 4);
    if (in.failed()) return;
    if (interval == 0) {
      in.refuse(ErrorCode::corrupt,
                "key 'qwen4exp.full_attention_interval' is 0; it must be at least 1");
      return;
    }
    for (std::uint32_t l = 0; l < p.layers; ++l)
      if ((std::uint64_t{l} + 1) % interval == 0) p.kinds[l] = LayerKind::qsa;
  }

  for (const std::int64_t ratio :
       per_layer(in, gguf_keys.compress_ratio, p.layers, p.draft_layers)) {
    if (ratio < 0 || ratio > max_dimension) {
      in.refuse(ErrorCode::corrupt, "key '{}' holds {}; a ratio lies between 0 and {}",
                gguf_keys.compress_ratio, ratio, max_dimension);
      return;
    }
    p.compress_ratios.push_back(static_cast<std::uint32_t>(ratio));
  }
}

// How positions are stretched beyond the trained ones, where the file declares it.
void read_rope_scaling(KeyReader& in, HyperParams& p) {
  const std::string type = in.string(gguf_keys.rope_type, "none");
  if (type == "none") return;
  RopeScale& scale = p.rope_scale;
  if (type != "linear" && type != "yarn") {
    in.refuse(ErrorCode::unsupported, "key '{}' is '{}'; only none, linear and yarn are supported",
              gguf_keys.rope_type, type);
    return;
  }
  scale.type = type == "yarn" ? RopeScaling::yarn : RopeScaling::linear;
  scale.factor = in.f32(gguf_keys.rope_factor);
  scale.original_context = in.u32(gguf_keys.rope_context, p.context);
  if (in.contains(gguf_keys.rope_beta_fast)) scale.beta_fast = in.f32(gguf_keys.rope_beta_fast);
  if (in.contains(gguf_keys.rope_beta_slow)) scale.beta_slow = in.f32(gguf_keys.rope_beta_slow);
  // Variants of yarn that are not computed here.
  for (const auto& [key, neutral] :
       {std::pair{"qwen4exp.rope.scaling.attn_factor", 1.0f},
        std::pair{"qwen4exp.rope.scaling.yarn_attn_factor", 1.0f},
        std::pair{"qwen4exp.rope.scaling.yarn_ext_factor", 1.0f},
        std::pair{"qwen4exp.rope.scaling.yarn_log_multiplier", 0.0f}}) {
    if (!in.contains(key)) continue;
    const float value = in.f32(key);
    if (!in.failed() && value != neutral)
      in.refuse(ErrorCode::unsupported, "key '{}' is {}; only {} is supported", key, value,
                neutral);
  }
}

void read_attention(KeyReader& in, HyperParams& p) {
  p.heads = in.u32(gguf_keys.heads);
  p.kv_heads = in.u32(gguf_keys.kv_heads);
  p.head_dim = in.u32(gguf_keys.head_dim);
  const std::uint32_t value_length = in.u32("qwen4exp.attention.value_length", p.head_dim);
  if (value_length != p.head_dim)
    in.refuse(ErrorCode::unsupported,
              "key 'qwen4exp.attention.value_length' is {} but '{}' is {}; they must be equal",
              value_length, gguf_keys.head_dim, p.head_dim);
  p.rotary_dims = in.u32(gguf_keys.rotary_dims, p.head_dim);
  p.rope_theta = in.f32(gguf_keys.rope_theta);
  read_rope_scaling(in, p);
  constexpr std::string_view sections_key = "qwen4exp.rope.dimension_sections";
  if (in.contains(sections_key)) {
    const MetaValue::Integers sections = in.integers(sections_key);
    if (sections.size() > p.rope_sections.size() ||
        std::any_of(sections.begin(), sections.end(),
                    [](std::int64_t s) { return s < 0 || s > max_dimension; })) {
      in.refuse(ErrorCode::corrupt, "key '{}' must be at most 4 numbers between 0 and {}",
                sections_key, max_dimension);
      return;
    }
    p.rope_sections.fill(0);
    std::transform(sections.begin(), sections.end(), p.rope_sections.begin(),
                   [](std::int64_t s) { return static_cast<std::uint32_t>(s); });
  }
  p.indexer_heads = in.u32(gguf_keys.indexer_heads);
  p.indexer_dim = in.u32(gguf_keys.indexer_dim);
  p.indexer_budget = in.u32(gguf_keys.indexer_budget);
}

void read_delta_net(KeyReader& in, HyperParams& p) {
  p.gdn_key_heads = in.u32(gguf_keys.gdn_key_heads);
  p.gdn_value_heads = in.u32(gguf_keys.gdn_value_heads);
  p.gdn_key_dim = in.u32(gguf_keys.gdn_key_dim);
  p.gdn_conv_kernel = in.u32(gguf_keys.gdn_conv_kernel);
  // llama.cpp has one state size; a value head's width follows from the inner size.
  const std::uint32_t inner = in.u32(gguf_keys.gdn_value_dim);
  if (in.failed()) return;
  if (p.gdn_value_heads == 0 || inner % p.gdn_value_heads != 0) {
    in.refuse(ErrorCode::corrupt, "key '{}' is {}, which is no multiple of '{}' = {}",
              gguf_keys.gdn_value_dim, inner, gguf_keys.gdn_value_heads, p.gdn_value_heads);
    return;
  }
  p.gdn_value_dim = inner / p.gdn_value_heads;
  const std::string gate = in.string("strata.gdn.output_gate", "sigmoid");
  if (gate != "sigmoid" && gate != "silu")
    in.refuse(ErrorCode::unsupported,
              "key 'strata.gdn.output_gate' is '{}'; it must be 'sigmoid' or 'silu'", gate);
  p.gdn_output_gate = gate == "silu" ? GateActivation::silu : GateActivation::sigmoid;
}

// The part of a concatenated list that belongs to the n-gram layer with this ordinal.
std::vector<std::uint64_t> slice(const MetaValue::Integers& list, std::size_t ordinal,
                                 std::size_t length) {
  std::vector<std::uint64_t> out(length);
  for (std::size_t i = 0; i < length; ++i)
    out[i] = static_cast<std::uint64_t>(list[ordinal * length + i]);
  return out;
}

void read_ngram(KeyReader& in, HyperParams& p) {
  if (!in.contains(gguf_keys.ngram_layers)) return;
  const MetaValue::Integers layers = in.integers(gguf_keys.ngram_layers);
  if (in.failed() || layers.empty()) return;
  p.ngram_size = in.u32(gguf_keys.ngram_size);
  p.heads_per_ngram = in.u32(gguf_keys.heads_per_ngram);
  p.ngram_conv_kernel = in.u32(gguf_keys.ngram_conv_kernel);
  p.ngram_row_width = in.u32(gguf_keys.ngram_row_width);
  const std::uint32_t eos = in.u32(gguf_keys.ngram_eos);
  const MetaValue::Integers multipliers = in.integers(gguf_keys.multipliers);
  const MetaValue::Integers sizes = in.integers(gguf_keys.head_vocab_sizes);
  const MetaValue::Integers offsets = in.integers(gguf_keys.head_offsets);
  if (in.failed()) return;
  if (eos > max_int32) {
    in.refuse(ErrorCode::corrupt, "key '{}' is {}, which is no token id", gguf_keys.ngram_eos, eos);
    return;
  }
  p.ngram_eos = static_cast<std::int32_t>(eos);
  if (p.ngram_size < 2 || p.ngram_size > max_ngram_size || p.heads_per_ngram == 0 ||
      p.heads_per_ngram > max_ngram_heads) {
    in.refuse(ErrorCode::corrupt,
              "keys '{}' = {} and '{}' = {}: the size must be 2 to {} and the heads 1 to {}",
              gguf_keys.ngram_size, p.ngram_size, gguf_keys.heads_per_ngram, p.heads_per_ngram,
              max_ngram_size, max_ngram_heads);
    return;
  }
  const auto expect = [&](std::string_view key, std::size_t have, std::size_t each) {
    if (have != layers.size() * each)
      in.refuse(ErrorCode::corrupt,
                "key '{}' has {} entries; {} n-gram layers with {} each need {}", key, have,
                layers.size(), each, layers.size() * each);
  };
  expect(gguf_keys.multipliers, multipliers.size(), p.ngram_size);
  expect(gguf_keys.head_vocab_sizes, sizes.size(), p.ngram_heads());
  expect(gguf_keys.head_offsets, offsets.size(), p.ngram_heads());
  if (in.failed()) return;
  for (std::size_t o = 0; o < layers.size(); ++o) {
    if (layers[o] < 0 || layers[o] >= p.layers) {
      in.refuse(ErrorCode::corrupt, "key '{}' names layer {} but the model has {} layers",
                gguf_keys.ngram_layers, layers[o], p.layers);
      return;
    }
    p.ngram_layers.push_back({.layer = static_cast<std::uint32_t>(layers[o]),
                              .multipliers = slice(multipliers, o, p.ngram_size),
                              .head_vocab_sizes = slice(sizes, o, p.ngram_heads()),
                              .head_offsets = slice(offsets, o, p.ngram_heads())});
  }
}

// Keys of llama.cpp that would change the computation and that this program does not implement.
void refuse_foreign(KeyReader& in, const Metadata& metadata) {
  const std::uint32_t gating = in.u32("qwen4exp.expert_gating_func", 1);
  if (gating > 1)
    in.refuse(ErrorCode::unsupported,
              "key 'qwen4exp.expert_gating_func' is {}; only softmax (1) is supported", gating);
  constexpr std::string_view scale_key = "qwen4exp.expert_weights_scale";
  if (metadata.contains(scale_key)) {
    const float scale = in.f32(scale_key);
    if (!in.failed() && scale != 1.0f && scale != 0.0f)
      in.refuse(ErrorCode::unsupported, "key '{}' is {}; only 1 is supported", scale_key, scale);
  }
}

void read_vocabulary(KeyReader& in, const Metadata& metadata, HyperParams& p) {
  constexpr std::string_view tokens_key = "tokenizer.ggml.tokens";
  const MetaValue* tokens = metadata.find(tokens_key);
  const auto* list = tokens != nullptr ? std::get_if<MetaValue::Strings>(&tokens->value) : nullptr;
  if (list == nullptr) {
    p.vocabulary = in.u32(gguf_keys.vocabulary);
    return;
  }
  p.vocabulary = static_cast<std::uint32_t>(std::min<std::size_t>(list->size(), max_int32));
  const std::uint32_t declared = in.u32(gguf_keys.vocabulary, p.vocabulary);
  if (declared != p.vocabulary)
    in.refuse(ErrorCode::corrupt, "key '{}' is {} but '{}' has {} entries", gguf_keys.vocabulary,
              declared, tokens_key, p.vocabulary);
}

}  // namespace

const NgramLayer* HyperParams::ngram_layer(std::uint32_t layer) const {
  const auto found = std::find_if(ngram_layers.begin(), ngram_layers.end(),
                                  [&](const NgramLayer& n) { return n.layer == layer; });
  return found == ngram_layers.end() ? nullptr : &*found;
}

Result<HyperParams> hyperparams_from_gguf(const Metadata& metadata) {
  KeyReader in(metadata);
  HyperParams p;
  STRATA_ASSIGN(const std::string architecture, metadata.string("general.architecture"));
  if (architecture != "qwen4exp")
    return fail(ErrorCode::unsupported,
                "key 'general.architecture' is '{}'; this program runs 'qwen4exp'", architecture);
  p.name = in.string("general.name", "");
  read_layers(in, p);
  STRATA_TRY(in.status());
  p.hidden = in.u32(gguf_keys.hidden);
  p.context = in.u32(gguf_keys.context);
  p.rms_epsilon = in.f32(gguf_keys.rms_epsilon);
  read_vocabulary(in, metadata, p);
  p.streams = in.u32(gguf_keys.streams);
  p.stream_rank = in.u32(gguf_keys.stream_rank);
  read_attention(in, p);
  read_delta_net(in, p);
  p.experts = in.u32(gguf_keys.experts);
  p.experts_used = in.u32(gguf_keys.experts_used);
  p.expert_ff = in.u32(gguf_keys.expert_ff);
  p.shared_ff = in.u32(gguf_keys.shared_ff);
  p.normalize_top_k = in.boolean("strata.expert_weights_norm", true);
  p.tied_embeddings = in.boolean("strata.tied_embeddings", false);
  read_ngram(in, p);
  refuse_foreign(in, metadata);
  STRATA_TRY(in.status());
  STRATA_TRY(validate(p, gguf_keys));
  return p;
}

namespace {

void write_layers(const HyperParams& p, Metadata& m) {
  // The interval of llama.cpp, where the pattern follows it.
  const auto first = std::find(p.kinds.begin(), p.kinds.end(), LayerKind::qsa);
  const std::size_t interval = static_cast<std::size_t>(first - p.kinds.begin()) + 1;
  bool regular = first != p.kinds.end();
  for (std::size_t l = 0; l < p.kinds.size(); ++l)
    regular = regular && (p.kinds[l] == LayerKind::qsa) == ((l + 1) % interval == 0);
  if (regular) {
    m.set("qwen4exp.full_attention_interval", MetaValue::u32(static_cast<std::uint32_t>(interval)));
  } else {
    MetaValue::Integers recurrent;
    for (const LayerKind kind : p.kinds) recurrent.push_back(kind == LayerKind::gdn);
    recurrent.resize(p.kinds.size() + p.draft_layers, 0);
    m.set("qwen4exp.attention.recurrent_layers",
          MetaValue::array(MetaType::boolean, std::move(recurrent)));
  }
  MetaValue::Integers ratios(p.compress_ratios.begin(), p.compress_ratios.end());
  ratios.resize(ratios.size() + p.draft_layers, 0);  // the draft block attends densely
  m.set(std::string(gguf_keys.compress_ratio), MetaValue::array(MetaType::i32, std::move(ratios)));
}

void write_ngram(const HyperParams& p, Metadata& m) {
  if (p.ngram_layers.empty()) return;
  const auto put = [&](std::string_view key, std::uint32_t value) {
    m.set(std::string(key), MetaValue::u32(value));
  };
  MetaValue::Integers layers, multipliers, sizes, offsets;
  const auto append = [](MetaValue::Integers& to, const std::vector<std::uint64_t>& from) {
    for (const std::uint64_t v : from) to.push_back(static_cast<std::int64_t>(v));
  };
  for (const NgramLayer& layer : p.ngram_layers) {
    layers.push_back(layer.layer);
    append(multipliers, layer.multipliers);
    append(sizes, layer.head_vocab_sizes);
    append(offsets, layer.head_offsets);
  }
  m.set(std::string(gguf_keys.ngram_layers), MetaValue::array(MetaType::i32, std::move(layers)));
  put(gguf_keys.ngram_size, p.ngram_size);
  put(gguf_keys.heads_per_ngram, p.heads_per_ngram);
  put(gguf_keys.ngram_conv_kernel, p.ngram_conv_kernel);
  put(gguf_keys.ngram_eos, static_cast<std::uint32_t>(p.ngram_eos));
  put(gguf_keys.ngram_row_width, p.ngram_row_width);
  const auto put_u64 = [&](std::string_view key, MetaValue::Integers list) {
    m.set(std::string(key), MetaValue::array(MetaType::u64, std::move(list)));
  };
  put_u64(gguf_keys.multipliers, std::move(multipliers));
  put_u64(gguf_keys.head_vocab_sizes, std::move(sizes));
  put_u64(gguf_keys.head_offsets, std::move(offsets));
}

}  // namespace

void write_hyperparams(const HyperParams& p, Metadata& m) {
  const auto put = [&](std::string_view key, std::uint32_t value) {
    m.set(std::string(key), MetaValue::u32(value));
  };
  m.set("general.architecture", MetaValue::string("qwen4exp"));
  if (!p.name.empty()) m.set("general.name", MetaValue::string(p.name));
  put(gguf_keys.layers, p.layers + p.draft_layers);
  if (p.draft_layers > 0) put("qwen4exp.nextn_predict_layers", p.draft_layers);
  put(gguf_keys.context, p.context);
  put(gguf_keys.hidden, p.hidden);
  put(gguf_keys.vocabulary, p.vocabulary);
  put(gguf_keys.heads, p.heads);
  put(gguf_keys.kv_heads, p.kv_heads);
  put(gguf_keys.head_dim, p.head_dim);
  put("qwen4exp.attention.value_length", p.head_dim);
  m.set(std::string(gguf_keys.rms_epsilon), MetaValue::f32(p.rms_epsilon));
  m.set("qwen4exp.rope.dimension_sections",
        MetaValue::array(MetaType::i32,
                         MetaValue::Integers(p.rope_sections.begin(), p.rope_sections.end())));
  m.set(std::string(gguf_keys.rope_theta), MetaValue::f32(p.rope_theta));
  put(gguf_keys.rotary_dims, p.rotary_dims);
  if (const RopeScale& scale = p.rope_scale; scale.type != RopeScaling::none) {
    m.set(std::string(gguf_keys.rope_type), MetaValue::string(std::string(to_string(scale.type))));
    m.set(std::string(gguf_keys.rope_factor), MetaValue::f32(scale.factor));
    put(gguf_keys.rope_context, scale.original_context);
    if (scale.type == RopeScaling::yarn) {
      m.set(std::string(gguf_keys.rope_beta_fast), MetaValue::f32(scale.beta_fast));
      m.set(std::string(gguf_keys.rope_beta_slow), MetaValue::f32(scale.beta_slow));
    }
  }
  put(gguf_keys.experts, p.experts);
  put(gguf_keys.experts_used, p.experts_used);
  put(gguf_keys.expert_ff, p.expert_ff);
  put(gguf_keys.shared_ff, p.shared_ff);
  put(gguf_keys.gdn_conv_kernel, p.gdn_conv_kernel);
  put(gguf_keys.gdn_key_dim, p.gdn_key_dim);
  put(gguf_keys.gdn_key_heads, p.gdn_key_heads);
  put(gguf_keys.gdn_value_heads, p.gdn_value_heads);
  put(gguf_keys.gdn_value_dim, p.gdn_inner());
  put(gguf_keys.streams, p.streams);
  put(gguf_keys.stream_rank, p.stream_rank);
  put(gguf_keys.indexer_heads, p.indexer_heads);
  put(gguf_keys.indexer_dim, p.indexer_dim);
  put(gguf_keys.indexer_budget, p.indexer_budget);
  write_layers(p, m);
  write_ngram(p, m);
  // What llama.cpp's form cannot say, only where it differs from what that form means.
  if (p.gdn_output_gate == GateActivation::silu)
    m.set("strata.gdn.output_gate", MetaValue::string("silu"));
  if (!p.normalize_top_k) m.set("strata.expert_weights_norm", MetaValue::boolean(false));
  if (p.tied_embeddings) m.set("strata.tied_embeddings", MetaValue::boolean(true));
}

namespace {

Status check_range(std::string_view key, std::uint64_t value, std::uint64_t low,
                   std::uint64_t high) {
  if (value >= low && value <= high) return {};
  return fail(ErrorCode::corrupt, "key '{}' is {}; it must be between {} and {}", key, value, low,
              high);
}

Status check_multiple(std::string_view key, std::uint64_t value, std::string_view of_key,
                      std::uint64_t of) {
  if (of != 0 && value % of == 0) return {};
  return fail(ErrorCode::corrupt, "key '{}' is {}, which is no multiple of '{}' = {}", key, value,
              of_key, of);
}

Status check_sizes(const HyperParams& p, const HyperParamKeys& k) {
  struct Range {
    std::string_view key;
    std::uint64_t value, low, high;
  };
  const Range ranges[] = {
      {k.layers, p.layers, 1, max_layers},
      {k.hidden, p.hidden, 1, max_dimension},
      {k.vocabulary, p.vocabulary, 1, max_int32},
      {k.context, p.context, 1, max_int32},
      {k.streams, p.streams, 2, 64},
      {k.stream_rank, p.stream_rank, 1, max_dimension},
      {k.heads, p.heads, 1, 65536},
      {k.kv_heads, p.kv_heads, 1, 65536},
      {k.head_dim, p.head_dim, 1, 65536},
      {k.rotary_dims, p.rotary_dims, 2, 65536},
      {k.indexer_heads, p.indexer_heads, 1, 65536},
      {k.indexer_dim, p.indexer_dim, 1, 65536},
      {k.indexer_budget, p.indexer_budget, 1, max_int32},
      {k.gdn_key_heads, p.gdn_key_heads, 1, 65536},
      {k.gdn_value_heads, p.gdn_value_heads, 1, 65536},
      {k.gdn_key_dim, p.gdn_key_dim, 1, 65536},
      {k.gdn_value_dim, p.gdn_value_dim, 1, 65536},
      {k.gdn_conv_kernel, p.gdn_conv_kernel, 1, 64},
      {k.experts, p.experts, 1, 65536},
      {k.experts_used, p.experts_used, 1, 65536},
      {k.expert_ff, p.expert_ff, 1, max_dimension},
      {k.shared_ff, p.shared_ff, 1, max_dimension},
  };
  for (const Range& r : ranges) STRATA_TRY(check_range(r.key, r.value, r.low, r.high));
  // Row counts that are products: they and their doubles stay far inside 32 bits.
  const std::pair<std::string_view, std::uint64_t> products[] = {
      {k.streams, std::uint64_t{p.streams} * p.hidden},
      {k.heads, std::uint64_t{p.heads} * p.head_dim},
      {k.indexer_heads, std::uint64_t{p.indexer_heads} * p.indexer_dim},
      {k.gdn_key_heads, std::uint64_t{p.gdn_key_heads} * p.gdn_key_dim},
      {k.gdn_value_heads, std::uint64_t{p.gdn_value_heads} * p.gdn_value_dim},
  };
  for (const auto& [key, product] : products)
    if (product > max_wide)
      return fail(ErrorCode::corrupt, "key '{}' asks for {} rows in all; at most {} are supported",
                  key, product, max_wide);
  if (!(p.rms_epsilon > 0) || !std::isfinite(p.rms_epsilon))
    return fail(ErrorCode::corrupt, "key '{}' is {}; it must be positive", k.rms_epsilon,
                p.rms_epsilon);
  if (!(p.rope_theta > 0) || !std::isfinite(p.rope_theta))
    return fail(ErrorCode::corrupt, "key '{}' is {}; it must be positive", k.rope_theta,
                p.rope_theta);
  return {};
}

Status check_rope_scale(const RopeScale& scale, const HyperParamKeys& k) {
  constexpr float most = 1024;
  if (scale.type == RopeScaling::none) return {};
  if (!(scale.factor >= 1 && scale.factor <= most))
    return fail(ErrorCode::corrupt, "key '{}' is {}; it must be from 1 to {}", k.rope_factor,
                scale.factor, most);
  if (scale.original_context == 0 || scale.original_context > max_int32)
    return fail(ErrorCode::corrupt, "key '{}' is {}; it must be from 1 to {}", k.rope_context,
                scale.original_context, max_int32);
  if (!(scale.beta_slow > 0 && scale.beta_fast >= scale.beta_slow && scale.beta_fast <= 1e6f))
    return fail(ErrorCode::corrupt, "keys '{}' and '{}' are {} and {}; the first must not be less",
                k.rope_beta_fast, k.rope_beta_slow, scale.beta_fast, scale.beta_slow);
  return {};
}

Status check_attention(const HyperParams& p, const HyperParamKeys& k) {
  STRATA_TRY(check_rope_scale(p.rope_scale, k));
  STRATA_TRY(check_multiple(k.heads, p.heads, k.kv_heads, p.kv_heads));
  STRATA_TRY(
      check_multiple(k.gdn_value_heads, p.gdn_value_heads, k.gdn_key_heads, p.gdn_key_heads));
  if (p.rotary_dims % 2 != 0 || p.rotary_dims > p.head_dim)
    return fail(ErrorCode::corrupt,
                "key '{}' gives {} rotary dimensions; they must be even and at most '{}' = {}",
                k.rotary_dims, p.rotary_dims, k.head_dim, p.head_dim);
  if (p.indexer_dim < p.rotary_dims)
    return fail(ErrorCode::corrupt, "key '{}' is {}, less than the {} rotary dimensions",
                k.indexer_dim, p.indexer_dim, p.rotary_dims);
  if (p.kinds.size() != p.layers || p.compress_ratios.size() != p.layers)
    return fail(ErrorCode::internal, "{} kinds and {} compress ratios for {} layers",
                p.kinds.size(), p.compress_ratios.size(), p.layers);
  for (std::uint32_t l = 0; l < p.layers; ++l) {
    const std::uint32_t ratio = p.compress_ratios[l];
    if (ratio == 0) continue;
    if (p.kinds[l] == LayerKind::gdn)
      return fail(ErrorCode::corrupt,
                  "key '{}' gives layer {} the ratio {}, but it has no attention", k.compress_ratio,
                  l, ratio);
    STRATA_TRY(check_multiple(k.indexer_budget, p.indexer_budget, k.compress_ratio, ratio));
  }
  return {};
}

// Heads of one n-gram layer lie one behind the other in its table, inside 31 bits.
Status check_heads(const NgramLayer& layer, const HyperParams& p, const HyperParamKeys& k) {
  if (layer.multipliers.size() != p.ngram_size ||
      layer.head_vocab_sizes.size() != p.ngram_heads() ||
      layer.head_offsets.size() != p.ngram_heads())
    return fail(ErrorCode::corrupt,
                "n-gram layer {} has {} multipliers, {} sizes and {} offsets; "
                "it needs {}, {} and {}",
                layer.layer, layer.multipliers.size(), layer.head_vocab_sizes.size(),
                layer.head_offsets.size(), p.ngram_size, p.ngram_heads(), p.ngram_heads());
  std::uint64_t sum = 0;
  for (std::size_t h = 0; h < layer.head_vocab_sizes.size(); ++h) {
    const std::uint64_t size = layer.head_vocab_sizes[h];
    STRATA_TRY(check_range(k.head_vocab_sizes, size, 1, max_int32));
    if (layer.head_offsets[h] != sum)
      return fail(ErrorCode::corrupt,
                  "key '{}' holds {} for head {} of layer {}; the sizes before it add up to {}",
                  k.head_offsets, layer.head_offsets[h], h, layer.layer, sum);
    sum += size;
    if (sum > max_int32)
      return fail(ErrorCode::corrupt,
                  "key '{}' needs {} table rows in layer {}; at most {} can be addressed",
                  k.head_vocab_sizes, sum, layer.layer, max_int32);
  }
  return {};
}

Status check_ngram(const HyperParams& p, const HyperParamKeys& k) {
  if (p.ngram_layers.empty()) return {};
  STRATA_TRY(check_range(k.ngram_size, p.ngram_size, 2, max_ngram_size));
  STRATA_TRY(check_range(k.heads_per_ngram, p.heads_per_ngram, 1, max_ngram_heads));
  STRATA_TRY(check_range(k.ngram_row_width, p.ngram_row_width, 1, max_dimension));
  STRATA_TRY(check_range(k.ngram_conv_kernel, p.ngram_conv_kernel, 1, 64));
  if (std::uint64_t{p.ngram_heads()} * p.ngram_row_width > max_wide)
    return fail(ErrorCode::corrupt, "key '{}' gives {} heads of {} values; at most {} in all",
                k.ngram_row_width, p.ngram_heads(), p.ngram_row_width, max_wide);
  if (p.ngram_eos < 0 || static_cast<std::uint32_t>(p.ngram_eos) >= p.vocabulary)
    return fail(ErrorCode::corrupt, "key '{}' is {}, which is no token of a vocabulary of {}",
                k.ngram_eos, p.ngram_eos, p.vocabulary);
  for (std::size_t o = 0; o < p.ngram_layers.size(); ++o) {
    const NgramLayer& layer = p.ngram_layers[o];
    if (layer.layer >= p.layers)
      return fail(ErrorCode::corrupt, "key '{}' names layer {} but the model has {} layers",
                  k.ngram_layers, layer.layer, p.layers);
    if (p.kinds[layer.layer] != LayerKind::gdn)
      return fail(ErrorCode::corrupt,
                  "key '{}' names layer {}, an attention layer; n-gram layers are delta net layers",
                  k.ngram_layers, layer.layer);
    if (o > 0 && p.ngram_layers[o - 1].layer >= layer.layer)
      return fail(ErrorCode::corrupt, "key '{}' must ascend, but {} follows {}", k.ngram_layers,
                  layer.layer, p.ngram_layers[o - 1].layer);
    STRATA_TRY(check_heads(layer, p, k));
  }
  return {};
}

}  // namespace

Status validate(const HyperParams& p, const HyperParamKeys& k) {
  STRATA_TRY(check_sizes(p, k));
  STRATA_TRY(check_attention(p, k));
  if (p.experts_used > p.experts)
    return fail(ErrorCode::corrupt, "key '{}' is {}, more than '{}' = {}", k.experts_used,
                p.experts_used, k.experts, p.experts);
  if (p.draft_layers > 1)
    return fail(ErrorCode::unsupported, "{} draft blocks; at most one is supported",
                p.draft_layers);
  return check_ngram(p, k);
}

Status validate(const HyperParams& params) {
  return validate(params, gguf_keys);
}

namespace {

// One output of the splitmix64 generator for a state.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

bool is_prime(std::uint64_t n) {
  if (n < 4) return n >= 2;
  if (n % 2 == 0) return false;
  for (std::uint64_t d = 3; d * d <= n; d += 2)
    if (n % d == 0) return false;
  return true;
}

}  // namespace

Result<NgramConstants> derive_ngram_constants(std::uint64_t vocabulary, std::uint64_t seed,
                                              std::uint32_t ordinal, std::uint32_t ngram_size,
                                              std::uint32_t heads_per_ngram,
                                              std::uint64_t vocab_size_base,
                                              std::uint64_t divisible_by) {
  if (vocabulary == 0 || vocabulary > max_int32)
    return fail(ErrorCode::invalid_argument, "the vocabulary has {} tokens; it must have 1 to {}",
                vocabulary, max_int32);
  if (ngram_size < 2 || ngram_size > max_ngram_size)
    return fail(ErrorCode::invalid_argument, "the n-gram size is {}; it must be between 2 and {}",
                ngram_size, max_ngram_size);
  if (heads_per_ngram == 0 || heads_per_ngram > max_ngram_heads)
    return fail(ErrorCode::invalid_argument, "{} heads per n-gram; there must be 1 to {}",
                heads_per_ngram, max_ngram_heads);
  if (vocab_size_base == 0 || vocab_size_base > max_int32)
    return fail(ErrorCode::invalid_argument,
                "the n-gram vocabulary base is {}; it must be between 1 and {}", vocab_size_base,
                max_int32);
  if (divisible_by == 0 || divisible_by > max_int32)
    return fail(ErrorCode::invalid_argument,
                "the n-gram table's divisor is {}; it must be between 1 and {}", divisible_by,
                max_int32);
  const std::uint64_t heads = std::uint64_t{ngram_size - 1} * heads_per_ngram;
  const std::uint64_t skipped = heads * ordinal;  // primes of the layers before
  if (skipped + heads > max_primes)
    return fail(ErrorCode::unsupported, "the n-gram layers have {} heads in all; at most {}",
                skipped + heads, max_primes);

  NgramConstants out;
  const std::uint64_t half =
      std::max<std::uint64_t>(1, std::uint64_t{0x7fffffffffffffff} / vocabulary / 2);
  const std::uint64_t base = seed + std::uint64_t{10007} * ordinal;
  for (std::uint64_t i = 1; i <= ngram_size; ++i)
    out.multipliers.push_back(2 * (mix(base + std::uint64_t{0x9E3779B97F4A7C15} * i) % half) + 1);

  std::uint64_t sum = 0;
  std::uint64_t found = 0;
  for (std::uint64_t n = vocab_size_base; found < skipped + heads; ++n) {
    if (!is_prime(n)) continue;
    if (found++ < skipped) continue;
    out.head_offsets.push_back(sum);
    out.head_vocab_sizes.push_back(n);
    sum += n;
    if (sum > max_int32)
      return fail(ErrorCode::unsupported, "{} n-gram heads from {} on need more than {} table rows",
                  heads, vocab_size_base, max_int32);
  }
  out.table_rows = (sum + divisible_by - 1) / divisible_by * divisible_by;
  return out;
}

}  // namespace strata
