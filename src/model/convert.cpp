#include "model/convert.h"

#include <algorithm>
#include <regex>
#include <set>
#include <utility>

#include "base/thread_pool.h"
#include "gguf/gguf.h"
#include "gguf/safetensors.h"
#include "model/convert_data.h"
#include "model/convert_metadata.h"
#include "model/convert_plan.h"
#include "model/hyperparams.h"
#include "quant/quant.h"

namespace strata {
namespace {

bool is_plain(TensorType type) {
  return type == TensorType::F32 || type == TensorType::F16 || type == TensorType::BF16;
}

Status check_target(TensorType type) {
  if (type == TensorType::F32 || can_encode(type)) return {};
  std::vector<std::string_view> names;
  for (const TypeTraits& t : all_types())
    if (t.type == TensorType::F32 || can_encode(t.type)) names.push_back(t.name);
  return fail(ErrorCode::invalid_argument, "this program cannot write {}; it writes {}",
              to_string(type), fmt::join(names, ", "));
}

bool divides(TensorType type, std::uint64_t row_width) {
  return row_width % traits(type).block_values == 0;
}

// "blk.7.ffn_up_exps.weight" -> "ffn_up_exps.weight": what is noted once, not once a block.
std::string kind_of(const std::string& name) {
  if (!name.starts_with("blk.")) return name;
  const std::size_t dot = name.find('.', 4);
  return dot == std::string::npos ? name : name.substr(dot + 1);
}

// Chooses the stored type of each tensor and notes where it is not the asked one.
class TypeChooser {
 public:
  static Result<TypeChooser> create(const ConvertOptions& options) {
    TypeChooser chooser(options);
    for (const auto& type : {options.type, options.residual})
      if (type) STRATA_TRY(check_target(*type));
    for (const auto& [pattern, type] : options.tensor_types) {
      STRATA_TRY(check_target(type));
      try {
        chooser.patterns_.emplace_back(pattern, std::regex::ECMAScript);
      } catch (const std::regex_error& error) {
        return fail(ErrorCode::invalid_argument, "'{}' is no regular expression: {}", pattern,
                    error.what());
      }
    }
    return chooser;
  }

  Result<TensorType> choose(const PlannedTensor& tensor) {
    STRATA_ASSIGN(const std::size_t match, first_match(tensor.name));
    if (match < patterns_.size()) return choose_explicit(tensor, match);
    if (tensor.role == TensorRole::exact) return TensorType::F32;
    const bool of_residual = tensor.role == TensorRole::residual && options_.residual;
    const std::optional<TensorType> asked = of_residual ? options_.residual : options_.type;
    if (!asked) return tensor.own;
    const TensorType wanted = *asked;
    if (is_plain(wanted)) return wanted;
    if (tensor.role == TensorRole::sensitive) return tensor.own;
    if (divides(wanted, tensor.ne[0])) return wanted;
    const TensorType plain =
        options_.type && is_plain(*options_.type) ? *options_.type : tensor.own;
    const TensorType instead = divides(TensorType::Q8_0, tensor.ne[0]) ? TensorType::Q8_0 : plain;
    const std::string kind = kind_of(tensor.name);
    if (noted_.insert(kind).second)
      notes_.push_back(fmt::format("'{}' becomes {}: rows of {} are no whole number of {} blocks",
                                   kind, to_string(instead), tensor.ne[0], to_string(wanted)));
    return instead;
  }

  std::vector<std::string> take_notes() { return std::move(notes_); }

 private:
  explicit TypeChooser(const ConvertOptions& options) : options_(options) {}

  Result<std::size_t> first_match(const std::string& name) const {
    try {
      for (std::size_t i = 0; i < patterns_.size(); ++i)
        if (std::regex_search(name, patterns_[i])) return i;
    } catch (const std::regex_error& error) {
      return fail(ErrorCode::invalid_argument, "a tensor type's expression fails on '{}': {}", name,
                  error.what());
    }
    return patterns_.size();
  }

  Result<TensorType> choose_explicit(const PlannedTensor& tensor, std::size_t match) const {
    const auto& [pattern, type] = options_.tensor_types[match];
    if (tensor.role == TensorRole::exact && type != TensorType::F32)
      return fail(ErrorCode::invalid_argument,
                  "tensor '{}' is always F32, but '{}' asks for {}; narrow the expression",
                  tensor.name, pattern, to_string(type));
    if (!divides(type, tensor.ne[0]))
      return fail(ErrorCode::invalid_argument,
                  "tensor '{}' cannot be {}: its rows of {} are no whole number of blocks of {}",
                  tensor.name, to_string(type), tensor.ne[0], traits(type).block_values);
    return type;
  }

  const ConvertOptions& options_;
  std::vector<std::regex> patterns_;
  std::set<std::string> noted_;
  std::vector<std::string> notes_;
};

// The FP8 form of the n-gram table: bytes of type I8 with their scale in the metadata.
void write_table_format(const ConversionPlan& plan, const std::vector<TensorType>& types,
                        Metadata& metadata) {
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (types[i] != TensorType::I8) continue;
    metadata.set("strata.ple.format", MetaValue::string("f8_e4m3"));
    metadata.set("strata.ple.scale", MetaValue::f32(plan.tensors[i].scale));
  }
}

Status write_tensors(GgufWriter& writer, const ConversionPlan& plan,
                     const std::vector<TensorType>& types, const ConvertOptions& options) {
  for (std::size_t i = 0; i < types.size(); ++i)
    STRATA_TRY(writer.declare(plan.tensors[i].name, types[i], plan.tensors[i].ne));
  ThreadPool pool(0);
  const ByteSink sink = [&](std::span<const std::byte> bytes) { return writer.write_data(bytes); };
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (options.progress) options.progress(plan.tensors[i].name, i, types.size());
    STRATA_TRY(stream_tensor(plan.tensors[i], types[i], pool, sink));
  }
  if (options.progress && !types.empty())
    options.progress(plan.tensors.back().name, types.size(), types.size());
  return {};
}

bool expects_draft(const boost::json::object& config) {
  const auto asks = [](const boost::json::object& from) {
    const boost::json::value* count = from.if_contains("mtp_num_hidden_layers");
    return count != nullptr && count->is_int64() && count->get_int64() > 0;
  };
  const boost::json::value* text = config.if_contains("text_config");
  return asks(config) || (text != nullptr && text->is_object() && asks(text->get_object()));
}

// What llama.cpp makes of such a file (docs/peers.md): a person who converts for both should know.
void note_other_program(const HyperParams& p, std::vector<std::string>& notes) {
  std::vector<std::string> refused, changed;
  if (p.ngram_layers.size() > 1)
    refused.push_back(fmt::format("it has {} n-gram layers, not one", p.ngram_layers.size()));
  if (!p.ngram_layers.empty() && p.ngram_width() != p.hidden)
    refused.push_back(
        fmt::format("its n-gram embeddings are {} wide, the model {}", p.ngram_width(), p.hidden));
  if (p.gdn_key_dim != p.gdn_value_dim)
    refused.push_back(fmt::format("its delta net's keys are {} wide, the values {}", p.gdn_key_dim,
                                  p.gdn_value_dim));
  if (p.draft_layers > 0) refused.push_back("it has a draft (MTP) block");
  if (p.gdn_output_gate == GateActivation::silu)
    changed.push_back("it takes the delta net's silu output gate for a sigmoid");
  if (!p.normalize_top_k)
    changed.push_back("it normalises the chosen experts' weights ('norm_topk_prob' is false)");
  for (const std::string& why : refused)
    notes.push_back(fmt::format("llama.cpp refuses this file: {}", why));
  if (!refused.empty()) return;  // what it does not load it does not change
  for (const std::string& why : changed)
    notes.push_back(fmt::format("llama.cpp loads this file but computes another model: {}", why));
}

}  // namespace

Result<ConvertReport> convert_hf(FileSystem& files, const std::string& folder,
                                 const std::string& output, const ConvertOptions& options) {
  STRATA_ASSIGN(TypeChooser chooser, TypeChooser::create(options));
  const std::string config_path = path_in(folder, "config.json");
  STRATA_ASSIGN(const boost::json::object config, read_json_object(files, config_path));
  auto read = hyperparams_from_hf(config);
  if (!read) return with_context(std::move(read).error(), config_path);
  HyperParams params = std::move(*read);
  params.name = model_name(config, folder);

  STRATA_ASSIGN(const SafetensorCheckpoint checkpoint, open_safetensors(files, folder));
  STRATA_ASSIGN(ConversionPlan plan, plan_conversion(checkpoint, params));
  ConvertReport report;
  report.notes = std::move(plan.notes);
  for (const std::string& name : checkpoint.skipped_files)
    report.notes.push_back(
        fmt::format("file '{}' is no part of the checkpoint and left out", name));
  if (params.draft_layers == 0 && expects_draft(config))
    report.notes.push_back(
        "the config speaks of a draft (MTP) block but the checkpoint has no 'mtp.' tensors");

  note_other_program(params, report.notes);

  std::vector<TensorType> types;
  for (const PlannedTensor& tensor : plan.tensors) {
    STRATA_ASSIGN(const TensorType type, chooser.choose(tensor));
    types.push_back(type);
  }
  for (std::string& note : chooser.take_notes()) report.notes.push_back(std::move(note));

  STRATA_ASSIGN(GgufWriter writer, GgufWriter::create(files, output));
  Metadata& metadata = writer.metadata();
  write_hyperparams(params, metadata);
  metadata.set("general.type", MetaValue::string("model"));
  if (std::any_of(types.begin(), types.end(),
                  [](TensorType t) { return traits(t).block_values > 1; }))
    metadata.set("general.quantization_version", MetaValue::u32(2));
  write_table_format(plan, types, metadata);
  STRATA_TRY(write_checkpoint_metadata(files, folder, config, params, metadata, report.notes));
  STRATA_TRY(write_tensors(writer, plan, types, options));
  STRATA_TRY(writer.finish());

  report.tensors = plan.tensors.size();
  STRATA_ASSIGN(const auto written, files.open(output));
  report.bytes = written->size();
  return report;
}

}  // namespace strata
