#include "model/synth.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/hash.h"
#include "model/hyperparams.h"
#include "quant/quant.h"
#include "quant/random_blocks.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer.h"

namespace strata {
namespace {

using enum TensorType;
using Part = SynthPart;

constexpr std::string_view kPartNames[kSynthParts] = {
    "gate_up", "down",  "shared",  "shared_down", "attention",   "out",       "residual", "inject",
    "router",  "gates", "indexer", "ngram_key",   "ngram_value", "embedding", "head",     "table"};
constexpr std::string_view kDense = "dense";
constexpr Part kDenseParts[] = {Part::shared, Part::shared_down, Part::attention, Part::out};

constexpr float kDeviation = 0.02f;  // of weights: activations keep their size
constexpr std::uint32_t kInterval = 4;
constexpr std::uint32_t kControlTokens = 3;
constexpr std::uint32_t kLeastVocabulary = 256 + kControlTokens;
constexpr std::uint64_t kNgramSeed = 1234, kTableMultiple = 128;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// For rows that no block of 256 divides: the smallest type of 32 that is no coarser.
TensorType narrow(TensorType type) {
  if (traits(type).block_values < 256) return type;
  const auto bits = [](TensorType t) {
    return 8.0 * traits(t).block_bytes / traits(t).block_values;
  };
  for (const TensorType candidate : {IQ4_NL, Q5_1})
    if (bits(candidate) >= bits(type)) return candidate;
  return Q8_0;
}

}  // namespace

std::vector<std::string_view> SynthTypes::mix_names() {
  return {"q4_k", "q2_0", "iq2_xs", "iq3_s"};
}

std::vector<std::string_view> SynthTypes::part_names() {
  std::vector<std::string_view> names(std::begin(kPartNames), std::end(kPartNames));
  names.push_back(kDense);
  return names;
}

Status SynthTypes::set(std::string_view part, TensorType type) {
  if (part == kDense) {
    for (const Part each : kDenseParts) types_[static_cast<std::size_t>(each)] = type;
    return {};
  }
  const auto* found = std::find(std::begin(kPartNames), std::end(kPartNames), part);
  if (found == std::end(kPartNames)) {
    return fail(ErrorCode::invalid_argument, "'{}' is no part of a model; the parts are {}", part,
                fmt::join(part_names(), ", "));
  }
  types_[static_cast<std::size_t>(found - std::begin(kPartNames))] = type;
  return {};
}

Result<SynthTypes> SynthTypes::mix(std::string_view name) {
  SynthTypes mix;
  const auto put = [&](Part part, TensorType type) {
    mix.types_[static_cast<std::size_t>(part)] = type;
  };
  const std::string key = lower(name);
  const auto single = type_from_name(key);
  if (single && can_decode(*single) && traits(*single).block_values == 1) {
    mix.types_.fill(*single);
    return mix;
  }
  // Sizes as in published files: experts small, what every token passes through larger.
  const bool low = key == "q2_0" || key == "iq2_xs" || key == "iq3_s";
  if (!low && !(single && can_decode(*single))) {
    return fail(ErrorCode::invalid_argument,
                "'{}' is no mix; known are {}, and every tensor type by its name", name,
                fmt::join(mix_names(), ", "));
  }
  mix.types_.fill(low ? BF16 : Q8_0);
  put(Part::gate_up, *single);
  put(Part::head, Q6_K);
  put(Part::table, IQ4_NL);
  if (!low) {
    put(Part::down, *single == Q4_K ? Q5_1 : narrow(*single));
    put(Part::inject, F32);
    put(Part::router, F32);
    put(Part::gates, F32);
    put(Part::indexer, BF16);
    return mix;
  }
  put(Part::down, key == "q2_0" ? Q2_0 : IQ4_NL);
  put(Part::shared, IQ4_XS);
  put(Part::shared_down, Q5_0);
  put(Part::attention, IQ4_XS);
  put(Part::out, Q5_K);
  put(Part::embedding, key == "iq3_s" ? IQ4_XS : Q4_K);
  return mix;
}

namespace {

// The production sizes, with what the options choose.
Result<HyperParams> synth_params(const SynthOptions& o) {
  HyperParams p;
  p.name = fmt::format("synthetic {}, {} layers of {} experts", o.mix, o.layers, o.experts);
  p.layers = o.layers;
  p.draft_layers = o.draft_block ? 1 : 0;
  p.hidden = 2560;
  p.vocabulary = o.vocabulary;
  p.context = 262144;
  p.heads = 24;
  p.kv_heads = 2;
  p.head_dim = 256;
  p.rotary_dims = 64;
  p.indexer_heads = 4;
  p.indexer_dim = 128;
  p.indexer_budget = 2048;
  p.gdn_key_heads = 16;
  p.gdn_value_heads = 48;
  p.gdn_key_dim = p.gdn_value_dim = 128;
  p.experts = o.experts;
  p.experts_used = o.used;
  p.expert_ff = p.shared_ff = 640;
  p.ngram_row_width = 160;
  p.ngram_eos = static_cast<std::int32_t>(o.vocabulary - kControlTokens);
  for (std::uint32_t l = 0; l < o.layers; ++l) {
    const bool attention = l % kInterval == kInterval - 1;
    p.kinds.push_back(attention ? LayerKind::qsa : LayerKind::gdn);
    p.compress_ratios.push_back(attention ? 4 : 0);
  }
  STRATA_ASSIGN(NgramConstants constants,
                derive_ngram_constants(o.vocabulary, kNgramSeed, 0, p.ngram_size, p.heads_per_ngram,
                                       o.ngram_rows, kTableMultiple));
  p.ngram_layers.push_back({o.layers > 1 ? 1u : 0u, std::move(constants.multipliers),
                            std::move(constants.head_vocab_sizes),
                            std::move(constants.head_offsets)});
  STRATA_TRY(validate(p));
  return p;
}

// 256 bytes, then pairs of them with a merge each (letters first), unused ones, control tokens.
Result<Tokenizer> synth_tokenizer(std::uint32_t count) {
  std::vector<std::uint8_t> order(256);
  for (std::size_t b = 0; b < 256; ++b) order[b] = static_cast<std::uint8_t>(b);
  const auto rank = [](std::uint8_t b) { return b >= 'a' && b <= 'z' ? 0 : b == ' ' ? 1 : 2; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint8_t a, std::uint8_t b) { return rank(a) < rank(b); });
  Tokenizer::Vocabulary v;
  const auto add = [&](std::string text, TokenKind kind) {
    v.tokens.push_back(std::move(text));
    v.kinds.push_back(kind);
  };
  const std::uint32_t others = count - kControlTokens;
  for (int b = 0; b < 256; ++b)
    add(std::string(printable(static_cast<std::uint8_t>(b))), TokenKind::normal);
  for (std::size_t i = 0; i < 65536 && v.tokens.size() < others; ++i) {
    const std::string_view a = printable(order[i / 256]), b = printable(order[i % 256]);
    add(fmt::format("{}{}", a, b), TokenKind::normal);
    v.merges.push_back(fmt::format("{} {}", a, b));
  }
  while (v.tokens.size() < others) add(fmt::format("[PAD{}]", v.tokens.size()), TokenKind::unused);
  for (const char* control : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
    add(control, TokenKind::control);
  v.rules.pre.kind = PreTokenizerKind::qwen35;
  v.rules.pre.long_s = false;
  return Tokenizer::from_vocabulary(std::move(v), {});
}

// The tensors that network.cpp asks for, in the order of the network.
class Planner {
 public:
  Planner(const HyperParams& params, const SynthTypes& types) : p_(params), types_(types) {}

  std::vector<SynthTensor> plan() {
    add("token_embd", {p_.hidden, p_.vocabulary}, Part::embedding);
    const NgramLayer& ngram = p_.ngram_layers.front();
    const std::uint64_t rows = (ngram.rows() + kTableMultiple - 1) / kTableMultiple;
    add("per_layer_token_embd", {p_.ngram_row_width, rows * kTableMultiple}, Part::table);
    for (std::uint32_t l = 0; l < p_.layers; ++l) {
      const std::string at = fmt::format("blk.{}.", l);
      if (l == ngram.layer) ngrams(at);
      block(at, p_.kinds[l] == LayerKind::qsa);
    }
    if (p_.draft_layers > 0) draft(fmt::format("blk.{}.", p_.layers));
    residual("output_hc");
    add("output", {p_.hidden, p_.vocabulary}, Part::head);
    return std::move(tensors_);
  }

 private:
  void add(const std::string& name, std::vector<std::uint64_t> ne, Part part) {
    tensors_.push_back({.name = name + ".weight",
                        .type = types_[part],
                        .ne = std::move(ne),
                        .deviation = kDeviation});
  }
  void vector(std::string name, std::vector<std::uint64_t> ne, float deviation, float mean = 0) {
    tensors_.push_back(
        {.name = std::move(name), .ne = std::move(ne), .deviation = deviation, .mean = mean});
  }
  void norm(const std::string& name, std::uint64_t width) {
    vector(name + ".weight", {width}, 0.1f, 1);
  }
  void convolution(const std::string& name, std::uint64_t taps, std::uint64_t channels) {
    vector(name + ".weight", {taps, channels}, 0.3f);
  }

  void block(const std::string& at, bool attends) {
    residual(at + "hc_attn");
    add(at + "hc_attn_inject", {p_.wide(), p_.streams}, Part::inject);
    if (attends)
      attention(at);
    else
      delta_net(at);
    residual(at + "hc_ffn");
    add(at + "hc_ffn_inject", {p_.wide(), p_.streams}, Part::inject);
    experts(at);
  }

  void draft(const std::string& at) {
    block(at, true);
    norm(at + "nextn.enorm", p_.hidden);
    norm(at + "nextn.hnorm", p_.wide());
    add(at + "nextn.eh_proj", {2 * p_.hidden, p_.hidden}, Part::attention);
    residual(at + "nextn.hc_head");
  }

  void residual(const std::string& at) {
    norm(at + "_norm", p_.wide());
    add(at + "_down", {p_.wide(), p_.stream_rank}, Part::residual);
    add(at + "_up", {p_.stream_rank, p_.wide()}, Part::residual);
  }

  void attention(const std::string& at) {
    const std::uint64_t queries = std::uint64_t{p_.heads} * p_.head_dim;
    const std::uint64_t keys = std::uint64_t{p_.kv_heads} * p_.head_dim;
    add(at + "attn_q", {p_.hidden, 2 * queries}, Part::attention);
    add(at + "attn_k", {p_.hidden, keys}, Part::attention);
    add(at + "attn_v", {p_.hidden, keys}, Part::attention);
    add(at + "attn_output", {queries, p_.hidden}, Part::out);
    norm(at + "attn_q_norm", p_.head_dim);
    norm(at + "attn_k_norm", p_.head_dim);
    add(at + "indexer.q_proj", {p_.hidden, std::uint64_t{p_.indexer_heads} * p_.indexer_dim},
        Part::indexer);
    add(at + "indexer.k_proj", {p_.hidden, p_.indexer_dim}, Part::indexer);
    norm(at + "indexer.q_norm", p_.indexer_dim);
    norm(at + "indexer.k_norm", p_.indexer_dim);
  }

  void delta_net(const std::string& at) {
    const std::uint64_t heads = p_.gdn_value_heads;
    add(at + "attn_qkv", {p_.hidden, p_.gdn_conv_channels()}, Part::attention);
    add(at + "attn_gate", {p_.hidden, p_.gdn_inner()}, Part::attention);
    convolution(at + "ssm_conv1d", p_.gdn_conv_kernel, p_.gdn_conv_channels());
    vector(at + "ssm_dt.bias", {heads}, 1);
    tensors_.push_back({.name = at + "ssm_a",
                        .ne = {heads},
                        .filling = SynthTensor::Filling::decay,
                        .deviation = 1.15f,
                        .mean = -1});
    add(at + "ssm_beta", {p_.hidden, heads}, Part::gates);
    add(at + "ssm_alpha", {p_.hidden, heads}, Part::gates);
    norm(at + "ssm_norm", p_.gdn_value_dim);
    add(at + "ssm_out", {p_.gdn_inner(), p_.hidden}, Part::out);
  }

  void ngrams(const std::string& at) {
    add(at + "ple_key", {p_.ngram_width(), p_.wide()}, Part::ngram_key);
    add(at + "ple_value", {p_.ngram_width(), p_.hidden}, Part::ngram_value);
    for (const char* name : {"ple_norm_key", "ple_norm_query", "ple_norm_conv"})
      norm(at + name, p_.wide());
    convolution(at + "ple_conv1d", p_.ngram_conv_kernel, p_.wide());
  }

  void experts(const std::string& at) {
    add(at + "ffn_gate_inp", {p_.hidden, p_.experts}, Part::router);
    add(at + "ffn_gate_exps", {p_.hidden, p_.expert_ff, p_.experts}, Part::gate_up);
    add(at + "ffn_up_exps", {p_.hidden, p_.expert_ff, p_.experts}, Part::gate_up);
    add(at + "ffn_down_exps", {p_.expert_ff, p_.hidden, p_.experts}, Part::down);
    vector(at + "ffn_gate_inp_shexp.weight", {p_.hidden}, kDeviation);
    add(at + "ffn_gate_shexp", {p_.hidden, p_.shared_ff}, Part::shared);
    add(at + "ffn_up_shexp", {p_.hidden, p_.shared_ff}, Part::shared);
    add(at + "ffn_down_shexp", {p_.shared_ff, p_.hidden}, Part::shared_down);
  }

  const HyperParams& p_;
  const SynthTypes& types_;
  std::vector<SynthTensor> tensors_;
};

Status measure(SynthPlan& plan) {
  for (SynthTensor& t : plan.tensors) {
    const TypeTraits& layout = traits(t.type);
    if (t.ne[0] % layout.block_values != 0) {
      return fail(ErrorCode::invalid_argument,
                  "tensor '{}' cannot be {}: its rows of {} are no whole number of blocks of {}",
                  t.name, layout.name, t.ne[0], layout.block_values);
    }
    std::uint64_t values = 1;  // the counts' ranges keep this far inside 64 bits
    for (const std::uint64_t n : t.ne) values *= n;
    STRATA_ASSIGN(t.bytes, bytes_of(t.type, values));
    const auto sum = checked_add(plan.bytes, t.bytes);
    if (!sum) return fail(ErrorCode::invalid_argument, "the model has more than 2^64 bytes");
    plan.bytes = *sum;
  }
  return {};
}

// A piece of a tensor, filled by one thread.
void fill_piece(const SynthTensor& tensor, const RandomBlocks& random, std::uint64_t seed,
                std::span<std::byte> out) {
  random.fill(seed, out);
  if (tensor.filling == SynthTensor::Filling::plain) return;
  for (std::size_t i = 0; i + sizeof(float) <= out.size(); i += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, &out[i], sizeof value);
    value = -std::exp(value);
    std::memcpy(&out[i], &value, sizeof value);
  }
}

std::uint64_t piece_seed(std::uint64_t tensor_seed, std::uint64_t piece) {
  return hash64(std::as_bytes(std::span(&piece, 1)), tensor_seed);
}

}  // namespace

Result<SynthPlan> plan_synth(const SynthOptions& options) {
  if (options.vocabulary < kLeastVocabulary || options.vocabulary > Tokenizer::kMaxTokens) {
    return fail(ErrorCode::invalid_argument, "a vocabulary of {} tokens: it must have {} to {}",
                options.vocabulary, kLeastVocabulary, Tokenizer::kMaxTokens);
  }
  STRATA_ASSIGN(const HyperParams params, synth_params(options));
  STRATA_ASSIGN(const Tokenizer tokenizer, synth_tokenizer(options.vocabulary));
  SynthPlan plan;
  plan.seed = options.seed;
  Metadata& m = plan.metadata;
  write_hyperparams(params, m);
  m.set("general.type", MetaValue::string("model"));
  m.set("general.quantization_version", MetaValue::u32(2));
  m.set("strata.synthetic", MetaValue::boolean(true));
  m.set("strata.synthetic.seed", MetaValue::u64(options.seed));
  write_tokenizer(tokenizer, m);
  m.set("tokenizer.ggml.eos_token_id", MetaValue::u32(options.vocabulary - 1));
  m.set("tokenizer.ggml.padding_token_id", MetaValue::u32(options.vocabulary - kControlTokens));
  m.set("tokenizer.ggml.add_bos_token", MetaValue::boolean(false));
  plan.tensors = Planner(params, options.types).plan();
  STRATA_TRY(measure(plan));
  return plan;
}

Status write_synth(FileSystem& files, const std::string& path, SynthPlan plan, ThreadPool& pool,
                   const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  STRATA_ASSIGN(GgufWriter writer, GgufWriter::create(files, path));
  writer.metadata() = std::move(plan.metadata);
  for (const SynthTensor& t : plan.tensors) STRATA_TRY(writer.declare(t.name, t.type, t.ne));
  constexpr std::uint64_t piece_bytes = 1 << 20, pieces = 64;  // of the buffer
  std::vector<std::byte> buffer;
  std::uint64_t done = 0;
  for (const SynthTensor& t : plan.tensors) {
    STRATA_ASSIGN(const RandomBlocks random, RandomBlocks::create(t.type, t.deviation, t.mean));
    const std::uint64_t tensor_seed = hash64(t.name, plan.seed);
    const std::uint64_t block = traits(t.type).block_bytes;
    const std::uint64_t piece = piece_bytes / block * block;
    for (std::uint64_t at = 0; at < t.bytes;) {
      buffer.resize(std::min(pieces * piece, t.bytes - at));
      pool.run((buffer.size() + piece - 1) / piece, [&](std::size_t i) {
        const std::uint64_t first = i * piece;
        fill_piece(t, random, piece_seed(tensor_seed, (at + first) / piece),
                   std::span(buffer).subspan(first, std::min(piece, buffer.size() - first)));
      });
      STRATA_TRY(writer.write_data(buffer));
      at += buffer.size();
      done += buffer.size();
      if (progress) progress(done, plan.bytes);
    }
  }
  return writer.finish();
}

}  // namespace strata
