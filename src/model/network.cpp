// Loading: GGUF tensor names to places in the Network, with every shape checked.
#include "model/network.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>

#include "model/placed_experts.h"
#include "quant/quant.h"

namespace strata {
namespace {

std::string shape_text_of(std::initializer_list<std::uint64_t> ne) {
  return fmt::format("[{}]", fmt::join(ne, ", "));
}

class Loader {
 public:
  Loader(std::shared_ptr<const GgufModel> file, const LoadOptions& options)
      : file_(std::move(file)), options_(options) {}

  Result<Network> load() {
    STRATA_ASSIGN(network_.params, hyperparams_from_gguf(file_->metadata));
    const HyperParams& p = network_.params;
    network_.file = file_;
    network_.residual = {p.streams, p.hidden, p.rms_epsilon};
    STRATA_TRY(matrix(network_.embedding, "token_embd.weight", p.hidden, p.vocabulary));
    if (file_->find("output.weight")) {
      STRATA_TRY(matrix(network_.head, "output.weight", p.hidden, p.vocabulary));
    } else {
      network_.head = network_.embedding;  // tied
      network_.params.tied_embeddings = true;
    }
    STRATA_TRY(residual(network_.mixer, "output_hc_", false));
    network_.blocks.resize(p.layers);
    for (std::uint32_t l = 0; l < p.layers; ++l) {
      STRATA_TRY(block(network_.blocks[l], l, p.kinds[l], p.compress_ratios[l]));
      if (const NgramLayer* ngram = p.ngram_layer(l)) STRATA_TRY(ngram_layer(l, *ngram));
    }
    if (p.draft_layers > 0) STRATA_TRY(draft());
    STRATA_TRY(account());
    place_experts();
    return std::move(network_);
  }

 private:
  Result<const TensorView*> tensor(const std::string& name) {
    const TensorView* found = file_->find(name);
    if (!found) {
      return fail(ErrorCode::corrupt, "tensor '{}' is missing from {}", name,
                  file_->paths.empty() ? "the model" : file_->paths[0]);
    }
    used_.insert(name);
    return found;
  }

  Status shape_error(const TensorView& t, std::initializer_list<std::uint64_t> expected) {
    return fail(ErrorCode::corrupt, "tensor '{}' has shape {}, the model's sizes ask for {}",
                t.name, shape_text(t), shape_text_of(expected));
  }

  // A matrix as [cols, rows] in ggml's order, optionally stacked by expert.
  Status matrix(Matrix& out, const std::string& name, std::uint64_t cols, std::uint64_t rows) {
    STRATA_ASSIGN(const TensorView* t, tensor(name));
    if (t->ne[0] != cols || t->ne[1] != rows || t->ne[2] != 1 || t->ne[3] != 1)
      return shape_error(*t, {cols, rows});
    return view(out, *t);
  }

  Status view(Matrix& out, const TensorView& t) {
    if (!can_decode(t.type)) {
      return fail(ErrorCode::unsupported, "tensor '{}' is stored as {}, which has no decoder",
                  t.name, to_string(t.type));
    }
    STRATA_ASSIGN(const std::uint64_t row_bytes, bytes_of(t.type, t.ne[0]));
    out.type = t.type;
    out.cols = static_cast<std::uint32_t>(t.ne[0]);
    out.rows = static_cast<std::uint32_t>(t.ne[1]);
    out.data = t.data.data();
    out.row_bytes = row_bytes;
    return {};
  }

  // All experts of a block; the count comes from the shape.
  Status experts_of(ExpertMatrices& out, const std::string& name, std::uint64_t cols,
                    std::uint64_t rows, std::uint64_t count) {
    STRATA_ASSIGN(const TensorView* t, tensor(name));
    if (t->ne[0] != cols || t->ne[1] != rows || t->ne[2] != count || t->ne[3] != 1)
      return shape_error(*t, {cols, rows, count});
    out.count = static_cast<std::uint32_t>(count);
    out.stride_rows = static_cast<std::uint32_t>(rows);
    out.part = t->part;
    out.file_offset = t->file_offset;
    return view(out.first, *t);
  }

  // A float vector of any plain shape (convolutions come as [taps, channels]).
  Status vector(Vector& out, const std::string& name, std::initializer_list<std::uint64_t> ne) {
    STRATA_ASSIGN(const TensorView* t, tensor(name));
    std::uint64_t size = 1;
    std::size_t i = 0;
    for (const std::uint64_t n : ne) {
      if (t->ne[i++] != n) return shape_error(*t, ne);
      size *= n;
    }
    if (t->values() != size) return shape_error(*t, ne);
    const auto address = reinterpret_cast<std::uintptr_t>(t->data.data());
    if (t->type == TensorType::F32 && address % alignof(float) == 0) {
      out = {reinterpret_cast<const float*>(t->data.data()), size};
      return {};
    }
    auto copy = std::make_unique<float[]>(size);
    if (auto status = decode(t->type, t->data, {copy.get(), size}); !status)
      return with_context(std::move(status).error(), fmt::format("tensor '{}'", name));
    out = {copy.get(), size};
    network_.converted.push_back(std::move(copy));
    return {};
  }

  Status residual(ResidualWeights& out, const std::string& prefix, bool inject) {
    const HyperParams& p = network_.params;
    STRATA_TRY(vector(out.norm, prefix + "norm.weight", {p.wide()}));
    STRATA_TRY(matrix(out.down, prefix + "down.weight", p.wide(), p.stream_rank));
    STRATA_TRY(matrix(out.up, prefix + "up.weight", p.stream_rank, p.wide()));
    if (inject) STRATA_TRY(matrix(out.inject, prefix + "inject.weight", p.wide(), p.streams));
    return {};
  }

  Status block(Block& out, std::uint32_t layer, LayerKind kind, std::uint32_t ratio) {
    const std::string prefix = fmt::format("blk.{}.", layer);
    out.kind = kind;
    STRATA_TRY(residual(out.attention_residual, prefix + "hc_attn_", true));
    if (kind == LayerKind::gdn) {
      STRATA_TRY(delta_net(out.delta_net, prefix));
    } else {
      STRATA_TRY(attention(out.attention, prefix, ratio));
    }
    STRATA_TRY(residual(out.experts_residual, prefix + "hc_ffn_", true));
    return experts(out.experts, prefix);
  }

  Status delta_net(DeltaNetWeights& out, const std::string& prefix) {
    const HyperParams& p = network_.params;
    out.shape = {p.gdn_key_heads, p.gdn_value_heads, p.gdn_key_dim,
                 p.gdn_value_dim, p.gdn_conv_kernel, p.gdn_output_gate};
    const DeltaNetShape& s = out.shape;
    STRATA_TRY(matrix(out.qkv, prefix + "attn_qkv.weight", p.hidden, s.channels()));
    STRATA_TRY(matrix(out.gate, prefix + "attn_gate.weight", p.hidden, s.inner()));
    STRATA_TRY(vector(out.conv, prefix + "ssm_conv1d.weight", {s.conv_kernel, s.channels()}));
    STRATA_TRY(vector(out.dt_bias, prefix + "ssm_dt.bias", {s.value_heads}));
    STRATA_TRY(vector(out.a, prefix + "ssm_a", {s.value_heads}));
    STRATA_TRY(matrix(out.alpha, prefix + "ssm_alpha.weight", p.hidden, s.value_heads));
    STRATA_TRY(matrix(out.beta, prefix + "ssm_beta.weight", p.hidden, s.value_heads));
    STRATA_TRY(vector(out.norm, prefix + "ssm_norm.weight", {s.value_dim}));
    return matrix(out.out, prefix + "ssm_out.weight", s.inner(), p.hidden);
  }

  Status attention(AttentionWeights& out, const std::string& prefix, std::uint32_t ratio) {
    const HyperParams& p = network_.params;
    AttentionShape& s = out.shape;
    s.heads = p.heads;
    s.kv_heads = p.kv_heads;
    s.head_dim = p.head_dim;
    s.rotary_dims = p.rotary_dims;
    s.block = ratio;
    s.budget = p.indexer_budget;
    s.rule = options_.rule;
    s.inverse_frequencies = inverse_frequencies(p.rotary_dims, p.rope_theta, p.rope_scale);
    s.rotation_factor = rotation_factor(p.rope_scale);
    STRATA_TRY(matrix(out.q, prefix + "attn_q.weight", p.hidden, 2ull * s.heads * s.head_dim));
    STRATA_TRY(matrix(out.k, prefix + "attn_k.weight", p.hidden, s.kv_heads * s.head_dim));
    STRATA_TRY(matrix(out.v, prefix + "attn_v.weight", p.hidden, s.kv_heads * s.head_dim));
    STRATA_TRY(matrix(out.out, prefix + "attn_output.weight", s.heads * s.head_dim, p.hidden));
    STRATA_TRY(vector(out.q_norm, prefix + "attn_q_norm.weight", {s.head_dim}));
    STRATA_TRY(vector(out.k_norm, prefix + "attn_k_norm.weight", {s.head_dim}));
    // A dense layer may still carry its indexer (the draft block does); without one it must be
    // dense.
    if (ratio == 0 && !file_->find(prefix + "indexer.q_proj.weight")) return {};
    s.indexer_heads = p.indexer_heads;
    s.indexer_dim = p.indexer_dim;
    STRATA_TRY(matrix(out.index_q, prefix + "indexer.q_proj.weight", p.hidden,
                      s.indexer_heads * s.indexer_dim));
    STRATA_TRY(matrix(out.index_k, prefix + "indexer.k_proj.weight", p.hidden, s.indexer_dim));
    STRATA_TRY(vector(out.index_q_norm, prefix + "indexer.q_norm.weight", {s.indexer_dim}));
    return vector(out.index_k_norm, prefix + "indexer.k_norm.weight", {s.indexer_dim});
  }

  Status experts(ExpertsWeights& out, const std::string& prefix) {
    const HyperParams& p = network_.params;
    out.shape = {p.experts_used, p.normalize_top_k};
    const std::string router = prefix + "ffn_gate_inp.weight";
    STRATA_ASSIGN(const TensorView* t, tensor(router));
    const std::uint64_t count = t->ne[1];
    if (count < p.experts_used || count > 1u << 20) {
      return fail(ErrorCode::corrupt, "tensor '{}' routes to {} experts, of which {} are used",
                  router, count, p.experts_used);
    }
    STRATA_TRY(matrix(out.router, router, p.hidden, count));
    if (file_->find(prefix + "ffn_gate_up_exps.weight")) {
      STRATA_TRY(fused_experts(out, prefix + "ffn_gate_up_exps.weight", count));
    } else {
      STRATA_TRY(
          experts_of(out.gate, prefix + "ffn_gate_exps.weight", p.hidden, p.expert_ff, count));
      STRATA_TRY(experts_of(out.up, prefix + "ffn_up_exps.weight", p.hidden, p.expert_ff, count));
    }
    STRATA_TRY(experts_of(out.down, prefix + "ffn_down_exps.weight", p.expert_ff, p.hidden, count));
    STRATA_TRY(vector(out.shared_router, prefix + "ffn_gate_inp_shexp.weight", {p.hidden}));
    STRATA_TRY(matrix(out.shared_gate, prefix + "ffn_gate_shexp.weight", p.hidden, p.shared_ff));
    STRATA_TRY(matrix(out.shared_up, prefix + "ffn_up_shexp.weight", p.hidden, p.shared_ff));
    return matrix(out.shared_down, prefix + "ffn_down_shexp.weight", p.shared_ff, p.hidden);
  }

  // Gate rows then up rows of each expert in one tensor.
  Status fused_experts(ExpertsWeights& out, const std::string& name, std::uint64_t count) {
    const HyperParams& p = network_.params;
    ExpertMatrices fused;
    STRATA_TRY(experts_of(fused, name, p.hidden, 2ull * p.expert_ff, count));
    fused.first.rows = p.expert_ff;
    out.gate = out.up = fused;
    out.up.first.data += std::size_t{p.expert_ff} * fused.first.row_bytes;
    out.up.file_offset += std::size_t{p.expert_ff} * fused.first.row_bytes;
    return {};
  }

  Status ngram_layer(std::uint32_t layer, const NgramLayer& constants) {
    const HyperParams& p = network_.params;
    const std::string prefix = fmt::format("blk.{}.", layer);
    NgramWeights weights;
    weights.shape = {p.ngram_conv_kernel, p.ngram_size};
    STRATA_TRY(matrix(weights.key, prefix + "ple_key.weight", p.ngram_width(), p.wide()));
    STRATA_TRY(matrix(weights.value, prefix + "ple_value.weight", p.ngram_width(), p.hidden));
    STRATA_TRY(vector(weights.norm_key, prefix + "ple_norm_key.weight", {p.wide()}));
    STRATA_TRY(vector(weights.norm_query, prefix + "ple_norm_query.weight", {p.wide()}));
    STRATA_TRY(vector(weights.norm_conv, prefix + "ple_norm_conv.weight", {p.wide()}));
    STRATA_TRY(vector(weights.conv, prefix + "ple_conv1d.weight", {p.ngram_conv_kernel, p.wide()}));
    STRATA_ASSIGN(auto hash, NgramHash::create(constants.multipliers, constants.head_vocab_sizes,
                                               constants.head_offsets, p.ngram_eos));
    const bool first = &constants == &p.ngram_layers.front();
    const std::string table_name =
        first ? "per_layer_token_embd.weight"
              : fmt::format("strata.blk.{}.per_layer_token_embd.weight", layer);
    STRATA_ASSIGN(const TensorView* t, tensor(table_name));
    if (t->ne[0] != p.ngram_row_width || t->ne[1] < hash.table_rows() || t->dims != 2)
      return shape_error(*t, {p.ngram_row_width, hash.table_rows()});
    Block& block = network_.blocks[layer];
    if (options_.files) {
      TableOptions table = options_.table;
      table.cache_bytes /= p.ngram_layers.size();
      STRATA_ASSIGN(block.ngram_table, open_table(*options_.files, file_, *t, table));
    } else {
      STRATA_ASSIGN(block.ngram_table, open_mapped_table(file_, *t));
    }
    block.ngram = weights;
    block.ngram_hash = std::move(hash);
    return {};
  }

  Status draft() {
    const HyperParams& p = network_.params;
    const std::string prefix = fmt::format("blk.{}.", p.layers);
    DraftBlock& d = network_.draft.emplace();
    STRATA_TRY(block(d.block, p.layers, LayerKind::qsa, 0));
    STRATA_TRY(vector(d.input.embedding_norm, prefix + "nextn.enorm.weight", {p.hidden}));
    STRATA_TRY(vector(d.input.hidden_norm, prefix + "nextn.hnorm.weight", {p.wide()}));
    STRATA_TRY(matrix(d.input.combine, prefix + "nextn.eh_proj.weight", 2ull * p.hidden, p.hidden));
    return residual(d.mixer, prefix + "nextn.hc_head_", false);
  }

  void place_experts() {
    auto placed = std::make_shared<PlacedExperts>(options_.in_memory ? ExpertLifetime::pinned
                                                                     : ExpertLifetime::mapped);
    for (const ExpertsWeights* weights : network_.expert_layers()) placed->add(*weights);
    network_.take_experts_from(std::move(placed));
    for (std::size_t l = 1; l < network_.blocks.size(); ++l)
      network_.blocks[l - 1].experts.next_router = network_.blocks[l].experts.router;
  }

  // Nothing ignored silently: a tensor that no rule asked for is a model of another kind.
  Status account() {
    for (const TensorView& t : file_->tensors) {
      if (!used_.contains(t.name)) {
        return fail(ErrorCode::unsupported, "tensor '{}' {} has no place in a qwen4exp network",
                    t.name, shape_text(t));
      }
      network_.parameters += t.values();
      network_.weight_bytes += t.data.size();
    }
    return {};
  }

  std::shared_ptr<const GgufModel> file_;
  LoadOptions options_;
  Network network_;
  std::set<std::string> used_;
};

}  // namespace

std::vector<ExpertsWeights*> Network::expert_layers() {
  std::vector<ExpertsWeights*> layers;
  for (Block& b : blocks) layers.push_back(&b.experts);
  if (draft) layers.push_back(&draft->block.experts);
  return layers;
}

void Network::take_experts_from(std::shared_ptr<ExpertSource> source) {
  experts = std::move(source);
  std::uint32_t layer = 0;
  for (ExpertsWeights* weights : expert_layers()) {
    weights->source = experts.get();
    weights->layer = layer++;
  }
}

NetworkShape Network::shape(bool drafts) const {
  NetworkShape shape;
  shape.residual = residual;
  shape.stream_rank = params.stream_rank;
  shape.experts_used = params.experts_used;
  shape.expert_ff = params.expert_ff;
  shape.shared_ff = params.shared_ff;
  const auto add = [&](const Block& b) -> NetworkShape::Layer& {
    NetworkShape::Layer layer;
    layer.attention = b.kind == LayerKind::qsa;
    layer.delta_net = b.delta_net.shape;
    layer.attention_shape = b.attention.shape;
    layer.ngram = b.ngram.has_value();
    if (b.ngram) layer.ngram_shape = b.ngram->shape;
    shape.experts = std::max(shape.experts, b.experts.router.rows);
    return shape.layers.emplace_back(std::move(layer));
  };
  for (const Block& b : blocks) add(b);
  if (drafts && draft) add(draft->block).draft = true;
  return shape;
}

Result<Network> load_network(std::shared_ptr<const GgufModel> file, const LoadOptions& options) {
  return Loader(std::move(file), options).load();
}

}  // namespace strata
