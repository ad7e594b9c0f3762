// HF's tokenizer.json. Whatever in it would change ids is read or refused; what concerns only the
// Python side (truncation, padding) is left alone.
#include <algorithm>
#include <array>
#include <new>

#include "base/json.h"
#include "tokenizer/quoted.h"
#include "tokenizer/tokenizer.h"

namespace strata {

namespace {

namespace json = boost::json;

const JsonSource kSource("tokenizer.json", ErrorCode::corrupt);

std::string_view text_of(const json::value& value) {
  const json::string& text = value.get_string();
  return {text.data(), text.size()};
}

// The member, or null if the object has none or it is null.
const json::value* member(const json::object& object, std::string_view name) {
  const json::value* found = object.if_contains(name);
  return found == nullptr || found->is_null() ? nullptr : found;
}

// The text of a member that is a string, else an empty text.
std::string_view text_member(const json::object& object, std::string_view name) {
  const json::value* found = member(object, name);
  return found != nullptr && found->is_string() ? text_of(*found) : std::string_view{};
}

bool is_true(const json::object& object, std::string_view name) {
  const json::value* found = member(object, name);
  return found != nullptr && !(found->is_bool() && !found->get_bool());
}

std::string_view type_of(const json::value& value) {
  return value.is_object() ? text_member(value.get_object(), "type") : std::string_view{};
}

// A section may be absent, or an object of one of the types that leave ids as they are.
Status require_type(const json::object& root, std::string_view section,
                    std::initializer_list<std::string_view> types) {
  const json::value* found = member(root, section);
  if (found == nullptr) return {};
  const std::string_view type = type_of(*found);
  if (std::find(types.begin(), types.end(), type) != types.end()) return {};
  return fail(ErrorCode::unsupported, "{} has the type {}; this program reads {} there", section,
              quoted(type), fmt::join(types, ", "));
}

tl::unexpected<Error> refuse_pre_tokenizer(std::string_view what) {
  return fail(ErrorCode::unsupported,
              "pre_tokenizer {}; this program knows a ByteLevel, and the sequence of a Split with "
              "the pattern of {} and a ByteLevel",
              what, kPreTokenizerNames);
}

// Whether a ByteLevel splits by gpt-2's pattern. Both options are on in tokenizers when they are
// absent.
Result<bool> splits_again(const json::object& level) {
  if (member(level, "add_prefix_space") == nullptr || is_true(level, "add_prefix_space")) {
    return refuse_pre_tokenizer("has a ByteLevel that adds a space");
  }
  return member(level, "use_regex") == nullptr || is_true(level, "use_regex");
}

Result<PreTokenizer> read_split(const json::object& split) {
  const json::value* pattern = member(split, "pattern");
  const auto pre = pattern != nullptr && pattern->is_object()
                       ? pre_tokenizer_by_pattern(text_member(pattern->get_object(), "Regex"))
                       : std::nullopt;
  if (!pre) return refuse_pre_tokenizer("has another pattern");
  // The patterns leave no character out, so to remove what is no match is to isolate the matches.
  const bool invert = is_true(split, "invert");
  if (text_member(split, "behavior") != (invert ? "Removed" : "Isolated")) {
    return refuse_pre_tokenizer("does not isolate the matches");
  }
  return *pre;
}

Result<PreTokenizer> read_pre_tokenizer(const json::object& root) {
  const json::value* found = member(root, "pre_tokenizer");
  if (found == nullptr) return refuse_pre_tokenizer("is absent");
  if (type_of(*found) == "ByteLevel") {
    STRATA_ASSIGN(const bool by_gpt2, splits_again(found->get_object()));
    if (!by_gpt2) return refuse_pre_tokenizer("does not split");
    return PreTokenizer{PreTokenizerKind::gpt2, false};
  }
  if (type_of(*found) != "Sequence") return refuse_pre_tokenizer("is no Sequence");
  const json::value* list = member(found->get_object(), "pretokenizers");
  if (list == nullptr || !list->is_array() || list->get_array().size() != 2) {
    return refuse_pre_tokenizer("has not two steps");
  }
  const json::value& split = list->get_array()[0];
  const json::value& level = list->get_array()[1];
  if (type_of(split) != "Split") return refuse_pre_tokenizer("does not begin with a Split");
  STRATA_ASSIGN(const PreTokenizer pre, read_split(split.get_object()));
  if (type_of(level) != "ByteLevel") return refuse_pre_tokenizer("does not end with a ByteLevel");
  STRATA_ASSIGN(const bool again, splits_again(level.get_object()));
  if (again) return refuse_pre_tokenizer("has a ByteLevel that splits again");
  return pre;
}

Status check_model(const json::object& model) {
  if (const json::value* type = member(model, "type"); type != nullptr && type_of(model) != "BPE") {
    return fail(ErrorCode::unsupported, "model.type is {}; this program reads BPE only",
                quoted(type->is_string() ? text_of(*type) : "no string"));
  }
  if (is_true(model, "byte_fallback")) {
    return fail(ErrorCode::unsupported,
                "model.byte_fallback is on; this program encodes without it");
  }
  for (const std::string_view name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const json::value* found = member(model, name);
    if (found != nullptr && !(found->is_string() && found->get_string().empty())) {
      return fail(ErrorCode::unsupported, "model.{} is set; this program encodes without it", name);
    }
  }
  return {};
}

// Token texts by id, as vocab and added_tokens name them.
class Tokens {
 public:
  Status add(std::string_view place, std::string_view text, const json::value& id_value,
             TokenKind kind) {
    const auto id = json_uint(id_value, place, kSource);
    if (!id || *id >= Tokenizer::kMaxTokens) {
      return fail(ErrorCode::corrupt, "{} gives {} an id that is no number from 0 to {}", place,
                  quoted(text), Tokenizer::kMaxTokens - 1);
    }
    if (*id >= named_.size()) {
      named_.resize(*id + 1);
      vocabulary_.tokens.resize(*id + 1);
      vocabulary_.kinds.resize(*id + 1, TokenKind::unused);
    }
    std::string& here = vocabulary_.tokens[*id];
    // Some files list their added tokens in the vocabulary too.
    if (named_[*id] && (here != text || kind == TokenKind::normal)) {
      return fail(ErrorCode::corrupt, "{} gives the id {} to {}, but it is the id of {}", place,
                  *id, quoted(text), quoted(here));
    }
    named_[*id] = true;
    here = text;
    vocabulary_.kinds[*id] = kind;
    return {};
  }

  Result<Tokenizer::Vocabulary> finish(std::size_t size) {
    if (size > Tokenizer::kMaxTokens) {
      return fail(ErrorCode::exhausted, "the vocabulary is to have {} tokens; the limit is {}",
                  size, Tokenizer::kMaxTokens);
    }
    if (size != 0 && size < named_.size()) {
      return fail(ErrorCode::invalid_argument,
                  "the file has a token {}, but the vocabulary is to have {} tokens only",
                  named_.size() - 1, size);
    }
    named_.resize(std::max(size, named_.size()));
    vocabulary_.tokens.resize(named_.size());
    vocabulary_.kinds.resize(named_.size(), TokenKind::unused);
    for (std::size_t id = 0; id < named_.size(); ++id) {
      if (!named_[id]) vocabulary_.tokens[id] = fmt::format("[PAD{}]", id);
    }
    return std::move(vocabulary_);
  }

 private:
  Tokenizer::Vocabulary vocabulary_;
  std::vector<bool> named_;
};

Status read_vocab(const json::object& model, Tokens& tokens) {
  const json::value* vocab = member(model, "vocab");
  if (vocab == nullptr || !vocab->is_object()) {
    return fail(ErrorCode::corrupt, "model.vocab is no object of tokens and ids");
  }
  for (const auto& [text, id] : vocab->get_object()) {
    STRATA_TRY(tokens.add("model.vocab", {text.data(), text.size()}, id, TokenKind::normal));
  }
  return {};
}

Status read_added_tokens(const json::object& root, Tokens& tokens) {
  const json::value* list = member(root, "added_tokens");
  if (list == nullptr) return {};
  if (!list->is_array()) return fail(ErrorCode::corrupt, "added_tokens is no array");
  for (std::size_t i = 0; i < list->get_array().size(); ++i) {
    const json::value& entry = list->get_array()[i];
    const json::value* id = entry.is_object() ? member(entry.get_object(), "id") : nullptr;
    const std::string_view content =
        entry.is_object() ? text_member(entry.get_object(), "content") : std::string_view{};
    if (id == nullptr || content.empty()) {
      return fail(ErrorCode::corrupt, "added_tokens[{}] lacks an id or a content", i);
    }
    for (const std::string_view option : {"single_word", "lstrip", "rstrip"}) {
      if (is_true(entry.get_object(), option)) {
        return fail(ErrorCode::unsupported,
                    "added_tokens[{}] ({}) has {} on; this program matches the literal only", i,
                    quoted(content), option);
      }
    }
    const TokenKind kind =
        is_true(entry.get_object(), "special") ? TokenKind::control : TokenKind::user_defined;
    STRATA_TRY(tokens.add(fmt::format("added_tokens[{}]", i), content, *id, kind));
  }
  return {};
}

Result<std::vector<std::string>> read_merges(const json::object& model) {
  const json::value* list = member(model, "merges");
  if (list == nullptr || !list->is_array()) {
    return fail(ErrorCode::corrupt, "model.merges is no array");
  }
  std::vector<std::string> merges;
  merges.reserve(list->get_array().size());
  for (const json::value& entry : list->get_array()) {
    if (entry.is_string()) {
      merges.emplace_back(text_of(entry));
      continue;
    }
    const json::array* pair = entry.if_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() ||
        !(*pair)[1].is_string()) {
      return fail(ErrorCode::corrupt,
                  "model.merges[{}] is neither a string nor an array of two strings",
                  merges.size());
    }
    merges.push_back(fmt::format("{} {}", text_of((*pair)[0]), text_of((*pair)[1])));
  }
  return merges;
}

Result<Tokenizer> read(std::string_view text, std::size_t vocabulary_size) {
  if (text.size() > Tokenizer::kMaxJsonBytes) {
    return fail(ErrorCode::exhausted, "tokenizer.json has {} bytes; the limit is {}", text.size(),
                Tokenizer::kMaxJsonBytes);
  }
  STRATA_ASSIGN(const json::value document, parse_json(text, kSource));
  const json::value* model =
      document.is_object() ? member(document.get_object(), "model") : nullptr;
  if (model == nullptr || !model->is_object()) {
    return fail(ErrorCode::corrupt, "tokenizer.json has no object 'model'");
  }
  const json::object& root = document.get_object();
  STRATA_TRY(check_model(model->get_object()));
  STRATA_TRY(require_type(root, "normalizer", {"NFC"}));
  TokenizerRules rules;
  rules.nfc = member(root, "normalizer") != nullptr;
  STRATA_ASSIGN(rules.pre, read_pre_tokenizer(root));
  rules.ignore_merges = is_true(model->get_object(), "ignore_merges");
  STRATA_TRY(require_type(root, "post_processor", {"ByteLevel"}));
  STRATA_TRY(require_type(root, "decoder", {"ByteLevel"}));

  Tokens tokens;
  STRATA_TRY(read_vocab(model->get_object(), tokens));
  STRATA_TRY(read_added_tokens(root, tokens));
  STRATA_ASSIGN(Tokenizer::Vocabulary vocabulary, tokens.finish(vocabulary_size));
  STRATA_ASSIGN(vocabulary.merges, read_merges(model->get_object()));
  vocabulary.rules = rules;
  return Tokenizer::from_vocabulary(std::move(vocabulary),
                                    {"model.vocab", "added_tokens", "model.merges"});
}

}  // namespace

Result<Tokenizer> Tokenizer::from_tokenizer_json(std::string_view text,
                                                 std::size_t vocabulary_size) {
  try {
    return read(text, vocabulary_size);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::exhausted, "there is not enough memory for tokenizer.json ({} bytes)",
                text.size());
  }
}

}  // namespace strata
