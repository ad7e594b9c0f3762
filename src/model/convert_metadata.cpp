#include "model/convert_metadata.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "tokenizer/tokenizer.h"

namespace strata {
namespace {

using boost::json::object;
using boost::json::value;

// The member, unless it is absent or null.
const value* member(const object& from, std::string_view key) {
  const value* found = from.if_contains(key);
  return found != nullptr && !found->is_null() ? found : nullptr;
}

// The file's object, or an empty one where there is no such file.
Result<object> optional_object(FileSystem& files, const std::string& path) {
  if (!files.exists(path)) return object{};
  return read_json_object(files, path);
}

// The small files of a checkpoint.
struct SmallFiles {
  object config, generation, tokenizer_config;
};

// The ids of a token id setting: a number or a list of them.
Result<std::vector<std::int32_t>> token_ids(const object& from, std::string_view file,
                                            std::string_view key, std::uint32_t vocabulary) {
  std::vector<std::int32_t> ids;
  const value* found = member(from, key);
  if (found == nullptr) return ids;
  const auto add = [&](const value& v) -> Status {
    if (!v.is_int64() || v.get_int64() < 0 || v.get_int64() >= vocabulary)
      return fail(ErrorCode::corrupt,
                  "{}: key '{}' holds {}, which is no token of a vocabulary of {}", file, key,
                  boost::json::serialize(v), vocabulary);
    ids.push_back(static_cast<std::int32_t>(v.get_int64()));
    return {};
  };
  if (!found->is_array()) {
    STRATA_TRY(add(*found));
    return ids;
  }
  for (const value& v : found->get_array()) STRATA_TRY(add(v));
  return ids;
}

// First the generation config's ids, then the model config's: the one speaks of use, the other of
// training.
Result<std::vector<std::int32_t>> configured_ids(const SmallFiles& small, std::string_view key,
                                                 std::uint32_t vocabulary) {
  STRATA_ASSIGN(std::vector<std::int32_t> ids,
                token_ids(small.generation, "generation_config.json", key, vocabulary));
  if (!ids.empty()) return ids;
  return token_ids(small.config, "config.json", key, vocabulary);
}

// The id of a token that tokenizer_config.json names by its text.
Result<std::optional<std::int32_t>> named_token(const SmallFiles& small, const Tokenizer& tokenizer,
                                                std::string_view key) {
  const value* found = member(small.tokenizer_config, key);
  if (found != nullptr && found->is_object()) found = member(found->get_object(), "content");
  if (found == nullptr || !found->is_string()) return std::optional<std::int32_t>{};
  const std::string_view text(found->get_string());
  const std::optional<TokenId> id = tokenizer.special(text);
  if (!id)
    return fail(
        ErrorCode::corrupt,
        "tokenizer_config.json: key '{}' is '{}', which is no special token of tokenizer.json", key,
        text);
  return std::optional<std::int32_t>(*id);
}

Status write_special_ids(const SmallFiles& small, const Tokenizer& tokenizer,
                         std::uint32_t vocabulary, Metadata& metadata) {
  struct Special {
    std::string_view name, id, key;
  };
  constexpr Special specials[] = {
      {"bos_token", "bos_token_id", "tokenizer.ggml.bos_token_id"},
      {"eos_token", "eos_token_id", "tokenizer.ggml.eos_token_id"},
      {"pad_token", "pad_token_id", "tokenizer.ggml.padding_token_id"},
  };
  for (const Special& special : specials) {
    STRATA_ASSIGN(std::optional<std::int32_t> id, named_token(small, tokenizer, special.name));
    if (!id) {
      STRATA_ASSIGN(const auto ids, configured_ids(small, special.id, vocabulary));
      if (ids.empty()) continue;
      id = ids.front();
    }
    metadata.set(std::string(special.key), MetaValue::u32(static_cast<std::uint32_t>(*id)));
  }
  const value* add_bos = member(small.tokenizer_config, "add_bos_token");
  metadata.set("tokenizer.ggml.add_bos_token",
               MetaValue::boolean(add_bos != nullptr && add_bos->is_bool() && add_bos->get_bool()));
  return {};
}

// A file of its own wins over the tokenizer's config, where it is a text or a list by name.
Result<std::optional<std::string>> chat_template(FileSystem& files, const std::string& folder,
                                                 const SmallFiles& small) {
  const std::string path = path_in(folder, "chat_template.jinja");
  if (files.exists(path)) {
    STRATA_ASSIGN(std::string text, files.read_text(path, 1u << 22));
    return std::optional<std::string>(std::move(text));
  }
  const value* found = member(small.tokenizer_config, "chat_template");
  if (found != nullptr && found->is_array()) {
    const value* chosen = nullptr;
    for (const value& entry : found->get_array()) {
      if (!entry.is_object()) continue;
      const value* name = member(entry.get_object(), "name");
      if (name != nullptr && name->is_string() && name->get_string() == "default")
        chosen = member(entry.get_object(), "template");
    }
    found = chosen;
  }
  if (found == nullptr) return std::optional<std::string>{};
  if (!found->is_string())
    return fail(ErrorCode::corrupt, "tokenizer_config.json: key 'chat_template' is no text");
  return std::optional<std::string>(std::string(found->get_string()));
}

Status write_tokenizer_metadata(FileSystem& files, const std::string& folder,
                                const SmallFiles& small, std::uint32_t vocabulary,
                                Metadata& metadata, std::vector<std::string>& notes) {
  const std::string path = path_in(folder, "tokenizer.json");
  if (!files.exists(path)) {
    notes.push_back(
        "the checkpoint has no tokenizer.json: the file can be measured but not talked to");
    return {};
  }
  STRATA_ASSIGN(const std::string text, files.read_text(path, Tokenizer::kMaxJsonBytes));
  auto tokenizer = Tokenizer::from_tokenizer_json(text, vocabulary);
  if (!tokenizer) return with_context(std::move(tokenizer).error(), path);
  if (tokenizer->size() != vocabulary)
    return fail(ErrorCode::corrupt, "{}: {} tokens, but 'vocab_size' is {}", path,
                tokenizer->size(), vocabulary);
  write_tokenizer(*tokenizer, metadata);
  STRATA_TRY(write_special_ids(small, *tokenizer, vocabulary, metadata));
  STRATA_ASSIGN(std::optional<std::string> jinja, chat_template(files, folder, small));
  if (jinja)
    metadata.set("tokenizer.chat_template", MetaValue::string(std::move(*jinja)));
  else
    notes.push_back("the checkpoint has no chat template");
  return {};
}

// Every id that ends an answer; llama.cpp's form knows one.
Status write_stop_ids(const SmallFiles& small, std::uint32_t vocabulary, Metadata& metadata) {
  STRATA_ASSIGN(const auto ids, configured_ids(small, "eos_token_id", vocabulary));
  MetaValue::Integers stops(ids.begin(), ids.end());
  if (metadata.contains("tokenizer.ggml.eos_token_id")) {
    STRATA_ASSIGN(const std::int64_t eos, metadata.integer("tokenizer.ggml.eos_token_id"));
    if (std::find(stops.begin(), stops.end(), eos) == stops.end()) stops.push_back(eos);
  }
  if (!stops.empty())
    metadata.set("strata.stop_token_ids", MetaValue::array(MetaType::i32, std::move(stops)));
  return {};
}

// A sampling value that no request could ask for is an error: the file's user would get another
// one without a word.
Result<std::optional<double>> sampling_value(const object& generation, std::string_view key,
                                             bool (*allowed)(double), std::string_view range) {
  const value* found = member(generation, key);
  if (found == nullptr) return std::optional<double>{};
  if (!found->is_number() || !allowed(found->to_number<double>()))
    return fail(ErrorCode::corrupt, "generation_config.json: key '{}' is {}; allowed is {}", key,
                boost::json::serialize(*found), range);
  return std::optional<double>(found->to_number<double>());
}

Status write_sampling(const object& generation, Metadata& metadata) {
  STRATA_ASSIGN(std::optional<double> temperature,
                sampling_value(
                    generation, "temperature", [](double t) { return t >= 0 && t <= 100; },
                    "a number from 0 to 100"));
  STRATA_ASSIGN(
      const std::optional<double> top_p,
      sampling_value(
          generation, "top_p", [](double p) { return p <= 1 && static_cast<float>(p) > 0; },
          "a number above 0, up to 1"));
  STRATA_ASSIGN(const std::optional<double> top_k,
                sampling_value(
                    generation, "top_k",
                    [](double k) { return k >= 0 && k <= INT32_MAX && k == std::floor(k); },
                    "a whole number of 0 (off) or more"));
  const value* sample = member(generation, "do_sample");
  if (sample != nullptr && sample->is_bool() && !sample->get_bool()) temperature = 0.0;
  if (temperature)
    metadata.set("general.sampling.temp", MetaValue::f32(static_cast<float>(*temperature)));
  if (top_p) metadata.set("general.sampling.top_p", MetaValue::f32(static_cast<float>(*top_p)));
  if (top_k)
    metadata.set("general.sampling.top_k", MetaValue::i32(static_cast<std::int32_t>(*top_k)));
  return {};
}

}  // namespace

std::string path_in(const std::string& folder, std::string_view name) {
  if (folder.empty() || folder.ends_with('/')) return fmt::format("{}{}", folder, name);
  return fmt::format("{}/{}", folder, name);
}

Result<object> read_json_object(FileSystem& files, const std::string& path) {
  STRATA_ASSIGN(const std::string text, files.read_text(path, 1u << 28));
  STRATA_ASSIGN(boost::json::value parsed, parse_written_json(text, {path, ErrorCode::corrupt}));
  if (!parsed.is_object()) return fail(ErrorCode::corrupt, "{}: not a JSON object", path);
  return std::move(parsed.get_object());
}

std::string model_name(const object& config, const std::string& folder) {
  std::string text = folder;
  if (const value* given = member(config, "_name_or_path");
      given != nullptr && given->is_string() && !given->get_string().empty())
    text = std::string(given->get_string());
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  const std::size_t slash = text.rfind('/');
  if (slash != std::string::npos) text = text.substr(slash + 1);
  return text.empty() || text == "." || text == ".." ? "qwen4exp" : text;
}

Status write_checkpoint_metadata(FileSystem& files, const std::string& folder, const object& config,
                                 const HyperParams& params, Metadata& metadata,
                                 std::vector<std::string>& notes) {
  SmallFiles small;
  const value* text = member(config, "text_config");
  small.config = text != nullptr && text->is_object() ? text->get_object() : config;
  for (const std::string_view key :
       {"bos_token_id", "eos_token_id", "pad_token_id", "image_token_id"})
    if (member(small.config, key) == nullptr && member(config, key) != nullptr)
      small.config[key] = *member(config, key);
  STRATA_ASSIGN(small.generation,
                optional_object(files, path_in(folder, "generation_config.json")));
  STRATA_ASSIGN(small.tokenizer_config,
                optional_object(files, path_in(folder, "tokenizer_config.json")));

  STRATA_TRY(write_sampling(small.generation, metadata));
  STRATA_TRY(write_tokenizer_metadata(files, folder, small, params.vocabulary, metadata, notes));
  STRATA_TRY(write_stop_ids(small, params.vocabulary, metadata));
  if (!params.ngram_layers.empty()) {
    STRATA_ASSIGN(const auto image,
                  token_ids(small.config, "config.json", "image_token_id", params.vocabulary));
    if (!image.empty())
      metadata.set("qwen4exp.ple.image_token_id",
                   MetaValue::u32(static_cast<std::uint32_t>(image.front())));
  }
  return {};
}

}  // namespace strata
