#include "model/convert_plan.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "quant/quant.h"

namespace strata {
namespace {

using Shape = std::vector<std::uint64_t>;

std::string shape_text_of(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::uint64_t product_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
}

// All integers of an integer tensor.
Result<std::vector<std::uint64_t>> integers_of(const SafetensorView& view) {
  if (view.type != SafetensorType::I64)
    return fail(ErrorCode::corrupt, "tensor '{}' is {}; it must be I64", view.name,
                to_string(view.type));
  std::vector<std::uint64_t> out(view.data.size() / sizeof(std::uint64_t));
  std::memcpy(out.data(), view.data.data(), out.size() * sizeof(std::uint64_t));
  return out;
}

// The only value of a float tensor of one element.
Result<float> scalar_of(const SafetensorView& view) {
  if (product_of(view.shape) != 1)
    return fail(ErrorCode::unsupported,
                "tensor '{}' has shape {}; one scale for the whole table "
                "is supported",
                view.name, shape_text_of(view.shape));
  if (view.type == SafetensorType::F32) {
    float value = 0;
    std::memcpy(&value, view.data.data(), sizeof value);
    return value;
  }
  if (view.type == SafetensorType::BF16) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, view.data.data(), sizeof bits);
    return bf16_to_float(bits);
  }
  return fail(ErrorCode::unsupported, "tensor '{}' is {}; a scale is F32 or BF16", view.name,
              to_string(view.type));
}

// Walks the network in the checkpoint's names. The first failure is kept and everything after it
// does nothing, so that the walk is a plain list of tensors.
class Planner {
 public:
  Planner(const SafetensorCheckpoint& checkpoint, HyperParams& params)
      : checkpoint_(checkpoint), p_(params) {
    trunk_ = checkpoint.find("model.language_model.embed_tokens.weight") != nullptr
                 ? "model.language_model."
                 : "model.";
    // GGUF deals value heads out over the key heads in turn; HF keeps the value heads of a key
    // head together.
    const std::uint32_t per_key = p_.gdn_value_heads / p_.gdn_key_heads;
    for (std::uint32_t h = 0; h < p_.gdn_value_heads; ++h)
      value_heads_.push_back(h % p_.gdn_key_heads * per_key + h / p_.gdn_key_heads);
  }

  Result<ConversionPlan> plan() {
    p_.draft_layers =
        std::any_of(checkpoint_.tensors.begin(), checkpoint_.tensors.end(),
                    [](const SafetensorView& t) { return t.name.starts_with("mtp."); })
            ? 1
            : 0;
    matrix("token_embd.weight", trunk_ + "embed_tokens.weight", p_.vocabulary, p_.hidden);
    head();
    mixer("output_hc_", trunk_ + "hyper_connection_mixer.");
    for (std::size_t o = 0; o < p_.ngram_layers.size(); ++o) table(o);
    for (std::uint32_t l = 0; l < p_.layers && !error_; ++l) layer(l);
    if (p_.draft_layers > 0) draft();
    expert_count();
    account();
    if (error_) return tl::unexpected<Error>(std::move(*error_));
    return std::move(plan_);
  }

 private:
  template <class... Args>
  void refuse(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
    if (!error_) error_ = Error{code, fmt::format(text, std::forward<Args>(args)...)};
  }
  template <class T>
  T keep(Result<T> result) {
    if (result) return std::move(*result);
    if (!error_) error_ = std::move(result).error();
    return T{};
  }

  // The checkpoint's tensor of that name and shape, or nullptr with the error set.
  const SafetensorView* take(const std::string& name, const Shape& shape) {
    if (error_) return nullptr;
    const SafetensorView* view = checkpoint_.find(name);
    if (view == nullptr) {
      refuse(ErrorCode::not_found, "the checkpoint has no tensor '{}' (expected shape {})", name,
             shape_text_of(shape));
      return nullptr;
    }
    if (view->shape != shape) {
      refuse(ErrorCode::corrupt, "tensor '{}' has shape {} but the config asks for {}", name,
             shape_text_of(view->shape), shape_text_of(shape));
      return nullptr;
    }
    used_.insert(view->name);
    return view;
  }

  // The GGUF type that holds a checkpoint type unchanged.
  std::optional<TensorType> own_type(const SafetensorView& view, bool is_table) {
    switch (view.type) {
      case SafetensorType::F64:
      case SafetensorType::F32:
        return TensorType::F32;
      case SafetensorType::F16:
        return TensorType::F16;
      case SafetensorType::BF16:
        return TensorType::BF16;
      case SafetensorType::F8_E4M3:
        if (is_table) return TensorType::I8;
        refuse(ErrorCode::unsupported,
               "tensor '{}' is F8_E4M3; only an n-gram table may be, convert the checkpoint's BF16 "
               "release",
               view.name);
        return {};
      default:
        refuse(ErrorCode::unsupported, "tensor '{}' is {}; weights must be F32, F16, BF16 or F64",
               view.name, to_string(view.type));
        return {};
    }
  }

  void add(PlannedTensor tensor, bool is_table = false) {
    if (error_) return;
    std::optional<TensorType> own;
    const SafetensorView* last = nullptr;
    for (const ValueRun& run : tensor.runs) {
      if (run.view == last) continue;
      last = run.view;
      const std::optional<TensorType> type = own_type(*run.view, is_table);
      if (!type) return;
      own = !own || own == type ? type : TensorType::F32;
    }
    if (own) tensor.own = *own;
    plan_.tensors.push_back(std::move(tensor));
  }

  static ValueRun whole(const SafetensorView& view) { return {&view, 0, product_of(view.shape)}; }
  static ValueRun rows_of(const SafetensorView& view, std::uint64_t first, std::uint64_t rows,
                          std::uint64_t width) {
    return {&view, first * width, rows * width};
  }

  void matrix(std::string name, const std::string& source, std::uint64_t rows, std::uint64_t cols,
              TensorRole role = TensorRole::matrix) {
    if (const SafetensorView* view = take(source, {rows, cols}))
      add({.name = std::move(name), .ne = {cols, rows}, .role = role, .runs = {whole(*view)}});
  }
  void vector(std::string name, const std::string& source, std::uint64_t size,
              ValueTransform transform) {
    if (const SafetensorView* view = take(source, {size}))
      add({.name = std::move(name),
           .ne = {size},
           .role = TensorRole::exact,
           .transform = transform,
           .runs = {whole(*view)}});
  }
  void norm(std::string name, const std::string& source, std::uint64_t size) {
    vector(std::move(name), source, size, ValueTransform::plus_one);
  }

  // Runs of `rows` rows a value head, from row `first` on, in GGUF's order of heads.
  void append_value_heads(std::vector<ValueRun>& runs, const SafetensorView& view,
                          std::uint64_t first, std::uint64_t rows, std::uint64_t width) const {
    for (const std::uint32_t head : value_heads_)
      runs.push_back(rows_of(view, first + head * rows, rows, width));
  }

  void head() {
    const SafetensorView* view = checkpoint_.find("lm_head.weight");
    if (!p_.tied_embeddings) {
      matrix("output.weight", "lm_head.weight", p_.vocabulary, p_.hidden);
    } else if (view != nullptr) {
      used_.insert(view->name);
      plan_.notes.push_back(
          "tensor 'lm_head.weight' is left out: the config ties the head to the embedding");
    }
  }

  // A gated read of the residual streams.
  void residual(const std::string& name, const std::string& source) {
    norm(name + "norm.weight", source + "hc_norm.weight", p_.wide());
    matrix(name + "down.weight", source + "input_mix_weight_down.weight", p_.stream_rank, p_.wide(),
           TensorRole::residual);
    matrix(name + "up.weight", source + "input_mix_weight_up.weight", p_.wide(), p_.stream_rank,
           TensorRole::residual);
  }
  // A final mixer only reads.
  void mixer(const std::string& name, const std::string& source) {
    residual(name, source);
    const std::string inject = source + "block_inject_weight.weight";
    if (const SafetensorView* view = checkpoint_.find(inject)) {
      used_.insert(view->name);
      plan_.notes.push_back(
          fmt::format("tensor '{}' is left out: a final mixer writes to no stream", inject));
    }
  }
  void residual_with_inject(const std::string& name, const std::string& source) {
    residual(name, source);
    matrix(name + "inject.weight", source + "block_inject_weight.weight", p_.streams, p_.wide(),
           TensorRole::sensitive);
  }

  void layer(std::uint32_t l) {
    const std::string name = fmt::format("blk.{}.", l);
    const std::string source = fmt::format("{}layers.{}.", trunk_, l);
    if (p_.ngram_layer(l) != nullptr) ngram(name, source + "ple.");
    block(name, source, p_.kinds[l]);
  }

  void block(const std::string& name, const std::string& source, LayerKind kind) {
    residual_with_inject(name + "hc_attn_", source + "attn_hyper_connection.");
    if (kind == LayerKind::gdn)
      delta_net(name, source + "linear_attn.");
    else
      attention(name, source + "self_attn.");
    residual_with_inject(name + "hc_ffn_", source + "mlp_hyper_connection.");
    experts(name, source + "mlp.");
  }

  void delta_net(const std::string& name, const std::string& source) {
    const std::uint64_t keys = std::uint64_t{p_.gdn_key_heads} * p_.gdn_key_dim;
    const std::uint64_t channels = p_.gdn_conv_channels();
    const std::uint64_t inner = p_.gdn_inner();
    const std::uint64_t heads = p_.gdn_value_heads;
    const std::uint64_t kernel = p_.gdn_conv_kernel;

    // Rows of queries and keys as they are, rows of values by head.
    const auto channel_runs = [&](const SafetensorView& view, std::uint64_t width) {
      std::vector<ValueRun> runs = {rows_of(view, 0, 2 * keys, width)};
      append_value_heads(runs, view, 2 * keys, p_.gdn_value_dim, width);
      return runs;
    };
    const auto head_runs = [&](const SafetensorView& view, std::uint64_t rows,
                               std::uint64_t width) {
      std::vector<ValueRun> runs;
      append_value_heads(runs, view, 0, rows, width);
      return runs;
    };

    if (const auto* view = take(source + "in_proj_qkv.weight", {channels, p_.hidden}))
      add({.name = name + "attn_qkv.weight",
           .ne = {p_.hidden, channels},
           .runs = channel_runs(*view, p_.hidden)});
    if (const auto* view = take(source + "in_proj_z.weight", {inner, p_.hidden}))
      add({.name = name + "attn_gate.weight",
           .ne = {p_.hidden, inner},
           .runs = head_runs(*view, p_.gdn_value_dim, p_.hidden)});
    if (const auto* view = take(source + "conv1d.weight", {channels, 1, kernel}))
      add({.name = name + "ssm_conv1d.weight",
           .ne = {kernel, channels},
           .role = TensorRole::exact,
           .runs = channel_runs(*view, kernel)});
    if (const auto* view = take(source + "dt_bias", {heads}))
      add({.name = name + "ssm_dt.bias",
           .ne = {heads},
           .role = TensorRole::exact,
           .runs = head_runs(*view, 1, 1)});
    if (const auto* view = take(source + "A_log", {heads}))
      add({.name = name + "ssm_a",
           .ne = {heads},
           .role = TensorRole::exact,
           .transform = ValueTransform::negative_exp,
           .runs = head_runs(*view, 1, 1)});
    if (const auto* view = take(source + "in_proj_b.weight", {heads, p_.hidden}))
      add({.name = name + "ssm_beta.weight",
           .ne = {p_.hidden, heads},
           .role = TensorRole::sensitive,
           .runs = head_runs(*view, 1, p_.hidden)});
    if (const auto* view = take(source + "in_proj_a.weight", {heads, p_.hidden}))
      add({.name = name + "ssm_alpha.weight",
           .ne = {p_.hidden, heads},
           .role = TensorRole::sensitive,
           .runs = head_runs(*view, 1, p_.hidden)});
    // The one norm whose gain is stored as it is.
    vector(name + "ssm_norm.weight", source + "norm.weight", p_.gdn_value_dim,
           ValueTransform::none);
    if (const auto* view = take(source + "out_proj.weight", {p_.hidden, inner}))
      add({.name = name + "ssm_out.weight",
           .ne = {inner, p_.hidden},
           .runs = {whole(*view)},
           .column_order = value_heads_,
           .column_block = p_.gdn_value_dim});
  }

  void attention(const std::string& name, const std::string& source) {
    const std::uint64_t q = std::uint64_t{p_.heads} * p_.head_dim;
    const std::uint64_t kv = std::uint64_t{p_.kv_heads} * p_.head_dim;
    matrix(name + "attn_q.weight", source + "q_proj.weight", 2 * q, p_.hidden);
    matrix(name + "attn_k.weight", source + "k_proj.weight", kv, p_.hidden);
    matrix(name + "attn_v.weight", source + "v_proj.weight", kv, p_.hidden);
    matrix(name + "attn_output.weight", source + "o_proj.weight", p_.hidden, q);
    norm(name + "attn_q_norm.weight", source + "q_norm.weight", p_.head_dim);
    norm(name + "attn_k_norm.weight", source + "k_norm.weight", p_.head_dim);

    const std::uint64_t index_q = std::uint64_t{p_.indexer_heads} * p_.indexer_dim;
    const std::uint64_t index_k = p_.indexer_dim;
    if (const auto* view =
            take(source + "indexer.index_qk_proj.weight", {index_q + index_k, p_.hidden})) {
      add({.name = name + "indexer.q_proj.weight",
           .ne = {p_.hidden, index_q},
           .role = TensorRole::sensitive,
           .runs = {rows_of(*view, 0, index_q, p_.hidden)}});
      add({.name = name + "indexer.k_proj.weight",
           .ne = {p_.hidden, index_k},
           .role = TensorRole::sensitive,
           .runs = {rows_of(*view, index_q, index_k, p_.hidden)}});
    }
    norm(name + "indexer.q_norm.weight", source + "indexer.q_layernorm.weight", index_k);
    norm(name + "indexer.k_norm.weight", source + "indexer.k_layernorm.weight", index_k);
  }

  void experts(const std::string& name, const std::string& source) {
    if (error_) return;
    // A pruned checkpoint has another number of experts in each block: the router says how many.
    const std::string router = source + "gate.weight";
    const SafetensorView* view = checkpoint_.find(router);
    const std::uint64_t count =
        view != nullptr && view->shape.size() == 2 && view->shape[0] > 0 && view->shape[0] <= 65536
            ? view->shape[0]
            : p_.experts;
    matrix(name + "ffn_gate_inp.weight", router, count, p_.hidden, TensorRole::sensitive);
    if (count < p_.experts_used)
      refuse(ErrorCode::corrupt, "tensor '{}' has {} rows but 'num_experts_per_tok' is {}", router,
             count, p_.experts_used);
    expert_counts_.push_back(count);

    if (checkpoint_.find(source + "experts.0.gate_proj.weight") != nullptr)
      single_experts(name, source + "experts.", count, router);
    else
      stacked_experts(name, source + "experts.", count);

    if (const auto* gate = take(source + "shared_expert_gate.weight", {1, p_.hidden}))
      add({.name = name + "ffn_gate_inp_shexp.weight",
           .ne = {p_.hidden},
           .role = TensorRole::sensitive,
           .runs = {whole(*gate)}});
    const std::string shared = source + "shared_expert.";
    matrix(name + "ffn_gate_shexp.weight", shared + "gate_proj.weight", p_.shared_ff, p_.hidden);
    matrix(name + "ffn_up_shexp.weight", shared + "up_proj.weight", p_.shared_ff, p_.hidden);
    matrix(name + "ffn_down_shexp.weight", shared + "down_proj.weight", p_.hidden, p_.shared_ff);
  }

  void add_experts(const std::string& name, std::uint64_t count, std::vector<ValueRun> gate,
                   std::vector<ValueRun> up, std::vector<ValueRun> down) {
    add({.name = name + "ffn_gate_exps.weight",
         .ne = {p_.hidden, p_.expert_ff, count},
         .runs = std::move(gate)});
    add({.name = name + "ffn_up_exps.weight",
         .ne = {p_.hidden, p_.expert_ff, count},
         .runs = std::move(up)});
    add({.name = name + "ffn_down_exps.weight",
         .ne = {p_.expert_ff, p_.hidden, count},
         .runs = std::move(down)});
  }

  void stacked_experts(const std::string& name, const std::string& source, std::uint64_t count) {
    const std::uint64_t ff = p_.expert_ff;
    const auto* gate_up = take(source + "gate_up_proj", {count, 2 * ff, p_.hidden});
    const auto* down = take(source + "down_proj", {count, p_.hidden, ff});
    if (error_) return;
    std::vector<ValueRun> gate, up;
    for (std::uint64_t x = 0; x < count; ++x) {
      gate.push_back(rows_of(*gate_up, 2 * x * ff, ff, p_.hidden));
      up.push_back(rows_of(*gate_up, (2 * x + 1) * ff, ff, p_.hidden));
    }
    add_experts(name, count, std::move(gate), std::move(up), {whole(*down)});
  }

  void single_experts(const std::string& name, const std::string& source, std::uint64_t count,
                      const std::string& router) {
    const std::uint64_t ff = p_.expert_ff;
    std::vector<ValueRun> gate, up, down;
    for (std::uint64_t x = 0; x < count && !error_; ++x) {
      const std::string expert = fmt::format("{}{}.", source, x);
      const auto* g = take(expert + "gate_proj.weight", {ff, p_.hidden});
      const auto* u = take(expert + "up_proj.weight", {ff, p_.hidden});
      const auto* d = take(expert + "down_proj.weight", {p_.hidden, ff});
      if (error_) return;
      gate.push_back(whole(*g));
      up.push_back(whole(*u));
      down.push_back(whole(*d));
    }
    const std::string next = fmt::format("{}{}.gate_proj.weight", source, count);
    if (checkpoint_.find(next) != nullptr)
      refuse(ErrorCode::corrupt, "tensor '{}' routes to {} experts but there is a tensor '{}'",
             router, count, next);
    add_experts(name, count, std::move(gate), std::move(up), std::move(down));
  }

  void ngram(const std::string& name, const std::string& source) {
    matrix(name + "ple_key.weight", source + "key_proj.weight", p_.wide(), p_.ngram_width());
    matrix(name + "ple_value.weight", source + "value_proj.weight", p_.hidden, p_.ngram_width());
    norm(name + "ple_norm_key.weight", source + "norm_key.weight", p_.wide());
    norm(name + "ple_norm_query.weight", source + "norm_query.weight", p_.wide());
    norm(name + "ple_norm_conv.weight", source + "norm_conv.weight", p_.wide());
    if (const auto* view = take(source + "conv1d.weight", {p_.wide(), 1, p_.ngram_conv_kernel}))
      add({.name = name + "ple_conv1d.weight",
           .ne = {p_.ngram_conv_kernel, p_.wide()},
           .role = TensorRole::exact,
           .runs = {whole(*view)}});
  }

  // A checkpoint may store the hash constants; what it stores must be what the config derives.
  void check_constants(const std::string& name, const std::vector<std::uint64_t>& derived) {
    if (checkpoint_.find(name) == nullptr) return;
    const SafetensorView* view = take(name, {derived.size()});
    if (view == nullptr) return;
    const std::vector<std::uint64_t> stored = keep(integers_of(*view));
    if (error_) return;
    for (std::size_t i = 0; i < derived.size(); ++i)
      if (stored[i] != derived[i]) {
        refuse(ErrorCode::corrupt,
               "tensor '{}' holds {} at index {} but the config's seed and sizes derive {}", name,
               stored[i], i, derived[i]);
        return;
      }
  }

  // The parts of a table in the order of their number, which is not that of their names.
  std::vector<const SafetensorView*> table_shards(const std::string& source) {
    std::vector<const SafetensorView*> shards;
    if (const SafetensorView* single = checkpoint_.find(source + "weight")) return {single};
    while (const SafetensorView* shard =
               checkpoint_.find(fmt::format("{}shard_{}.weight", source, shards.size())))
      shards.push_back(shard);
    return shards;
  }

  void table(std::size_t ordinal) {
    if (error_) return;
    const NgramLayer& constants = p_.ngram_layers[ordinal];
    const std::string embedding =
        fmt::format("{}layers.{}.ple.ple_embedding.", trunk_, constants.layer);
    check_constants(embedding + "layer_multipliers", constants.multipliers);
    check_constants(embedding + "ngram_heads_vocab_sizes", constants.head_vocab_sizes);
    check_constants(embedding + "ngram_heads_offsets", constants.head_offsets);
    if (error_) return;

    const std::string source = embedding + "ngram_embedding.";
    const std::vector<const SafetensorView*> shards = table_shards(source);
    if (shards.empty()) {
      refuse(ErrorCode::not_found,
             "the checkpoint has no tensor '{}shard_0.weight' (expected shape [rows, {}], at least "
             "{} rows in all shards)",
             source, p_.ngram_row_width, constants.rows());
      return;
    }
    PlannedTensor tensor;
    tensor.name = ordinal == 0
                      ? "per_layer_token_embd.weight"
                      : fmt::format("strata.blk.{}.per_layer_token_embd.weight", constants.layer);
    std::uint64_t rows = 0;
    for (const SafetensorView* shard : shards) {
      const std::uint64_t height = shard->shape.empty() ? 0 : shard->shape[0];
      if (take(shard->name, {height, p_.ngram_row_width}) == nullptr) return;
      rows += height;
      tensor.runs.push_back(whole(*shard));
    }
    if (rows < constants.rows()) {
      refuse(ErrorCode::corrupt,
             "the {} shards of '{}' have {} rows in all but the n-gram heads reach row {}",
             shards.size(), source, rows, constants.rows());
      return;
    }
    tensor.ne = {p_.ngram_row_width, rows};
    table_scale(source + "weight_scale", *shards[0], tensor);
    add(std::move(tensor), true);
  }

  void table_scale(const std::string& name, const SafetensorView& shard, PlannedTensor& tensor) {
    const bool is_f8 = shard.type == SafetensorType::F8_E4M3;
    const SafetensorView* view = checkpoint_.find(name);
    if (view == nullptr) {
      if (is_f8)
        refuse(ErrorCode::not_found, "tensor '{}' is F8_E4M3 but the checkpoint has no '{}'",
               shard.name, name);
      return;
    }
    if (!is_f8) return;  // account() names it
    if (p_.ngram_layers.size() > 1) {
      refuse(ErrorCode::unsupported,
             "tensor '{}' is F8_E4M3; that is supported with one n-gram layer, not with {}",
             shard.name, p_.ngram_layers.size());
      return;
    }
    tensor.scale = keep(scalar_of(*view));
    used_.insert(view->name);
  }

  void draft() {
    const std::string name = fmt::format("blk.{}.", p_.layers);
    block(name, "mtp.layers.0.", LayerKind::qsa);
    norm(name + "nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight", p_.hidden);
    norm(name + "nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight", p_.wide());
    const auto* embedding = take("mtp.fc_embedding.weight", {p_.hidden, p_.hidden});
    const auto* hidden = take("mtp.fc_hidden.weight", {p_.hidden, p_.hidden});
    if (error_) return;
    PlannedTensor combine{.name = name + "nextn.eh_proj.weight",
                          .ne = {2 * std::uint64_t{p_.hidden}, p_.hidden}};
    for (std::uint64_t row = 0; row < p_.hidden; ++row) {
      combine.runs.push_back(rows_of(*embedding, row, 1, p_.hidden));
      combine.runs.push_back(rows_of(*hidden, row, 1, p_.hidden));
    }
    add(std::move(combine));
    mixer(name + "nextn.hc_head_", "mtp.hyper_connection_mixer.");
  }

  void expert_count() {
    if (error_ || expert_counts_.empty()) return;
    const auto [low, high] = std::minmax_element(expert_counts_.begin(), expert_counts_.end());
    if (*low == *high && *high == p_.experts) return;
    plan_.notes.push_back(
        *low == *high
            ? fmt::format("the checkpoint has {} experts a block, 'num_experts' says {}", *high,
                          p_.experts)
            : fmt::format("the checkpoint has {} to {} experts a block, 'num_experts' says {}",
                          *low, *high, p_.experts));
    p_.experts = static_cast<std::uint32_t>(*high);
  }

  // Nothing is dropped silently.
  void account() {
    if (error_) return;
    std::size_t vision = 0;
    for (const SafetensorView& view : checkpoint_.tensors) {
      if (used_.contains(view.name)) continue;
      if (view.name.starts_with("model.visual.") || view.name.starts_with("visual.")) {
        ++vision;
        continue;
      }
      refuse(ErrorCode::unsupported, "tensor '{}' {} has no place in a qwen4exp model", view.name,
             shape_text_of(view.shape));
      return;
    }
    if (vision > 0)
      plan_.notes.push_back(
          fmt::format("{} tensors of the vision tower are left out: the model reads text", vision));
  }

  const SafetensorCheckpoint& checkpoint_;
  HyperParams& p_;
  std::string trunk_;                       // prefix of the trunk's names
  std::vector<std::uint32_t> value_heads_;  // checkpoint's head of each GGUF place
  std::vector<std::uint64_t> expert_counts_;
  std::unordered_set<std::string_view> used_;
  ConversionPlan plan_;
  std::optional<Error> error_;
};

}  // namespace

Result<ConversionPlan> plan_conversion(const SafetensorCheckpoint& checkpoint,
                                       HyperParams& params) {
  return Planner(checkpoint, params).plan();
}

}  // namespace strata
