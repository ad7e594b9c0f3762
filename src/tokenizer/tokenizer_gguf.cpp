// Tokenizers in GGUF metadata.
#include <new>

#include "tokenizer/quoted.h"
#include "tokenizer/tokenizer.h"

namespace strata {

namespace {

constexpr const char* kModel = "tokenizer.ggml.model";
constexpr const char* kPre = "tokenizer.ggml.pre";
constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTokenType = "tokenizer.ggml.token_type";
constexpr const char* kMerges = "tokenizer.ggml.merges";

constexpr const char* kNormalizer = "strata.tokenizer.normalizer";
constexpr const char* kIgnoreMerges = "strata.tokenizer.ignore_merges";
constexpr const char* kLongS = "strata.tokenizer.long_s";

constexpr const char* kByteLevelBpe = "gpt2";  // what GGUF calls the method
constexpr const char* kNfc = "nfc";
constexpr const char* kNoNormalizer = "none";

// What a pre-tokenizer's name alone says.
TokenizerRules implied_rules(PreTokenizerKind kind) {
  TokenizerRules rules;
  rules.pre.kind = kind;
  rules.pre.long_s = kind != PreTokenizerKind::qwen35 && kind != PreTokenizerKind::gpt2;
  rules.ignore_merges = kind == PreTokenizerKind::llama_bpe;
  return rules;
}

Status read_flag(const Metadata& metadata, const char* key, bool& flag) {
  if (!metadata.contains(key)) return {};
  STRATA_ASSIGN(flag, metadata.boolean(key));
  return {};
}

Result<TokenizerRules> read_rules(const Metadata& metadata) {
  STRATA_ASSIGN(const std::string model, metadata.string(kModel));
  if (model != kByteLevelBpe) {
    return fail(ErrorCode::unsupported, "{} is {}; this program reads '{}' only", kModel,
                quoted(model), kByteLevelBpe);
  }
  STRATA_ASSIGN(const std::string pre, metadata.string(kPre));
  const auto kind = pre_tokenizer_by_name(pre);
  if (!kind) {
    return fail(ErrorCode::unsupported, "{} is {}; this program knows {}", kPre, quoted(pre),
                kPreTokenizerNames);
  }
  TokenizerRules rules = implied_rules(*kind);
  STRATA_TRY(read_flag(metadata, kLongS, rules.pre.long_s));
  STRATA_TRY(read_flag(metadata, kIgnoreMerges, rules.ignore_merges));
  if (metadata.contains(kNormalizer)) {
    STRATA_ASSIGN(const std::string normalizer, metadata.string(kNormalizer));
    if (normalizer != kNfc && normalizer != kNoNormalizer) {
      return fail(ErrorCode::unsupported, "{} is {}; this program knows '{}' and '{}'", kNormalizer,
                  quoted(normalizer), kNfc, kNoNormalizer);
    }
    rules.nfc = normalizer == kNfc;
  }
  return rules;
}

Result<Tokenizer> read(const Metadata& metadata) {
  Tokenizer::Vocabulary vocabulary;
  STRATA_ASSIGN(vocabulary.rules, read_rules(metadata));
  STRATA_ASSIGN(vocabulary.tokens, metadata.strings(kTokens));
  STRATA_ASSIGN(const auto types, metadata.integers(kTokenType));
  STRATA_ASSIGN(vocabulary.merges, metadata.strings(kMerges));
  vocabulary.kinds.reserve(types.size());
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (types[i] < 1 || types[i] > 6) {
      return fail(ErrorCode::corrupt, "{}[{}] is {}; token types are 1 to 6", kTokenType, i,
                  types[i]);
    }
    vocabulary.kinds.push_back(static_cast<TokenKind>(types[i]));
  }
  return Tokenizer::from_vocabulary(std::move(vocabulary), {kTokens, kTokenType, kMerges});
}

}  // namespace

Result<Tokenizer> Tokenizer::from_gguf(const Metadata& metadata) {
  try {
    return read(metadata);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::exhausted, "there is not enough memory for the file's tokenizer");
  }
}

void write_tokenizer(const Tokenizer& tokenizer, Metadata& metadata) {
  const Tokenizer::Vocabulary& vocabulary = tokenizer.vocabulary();
  MetaValue::Integers types;
  types.reserve(vocabulary.kinds.size());
  for (const TokenKind kind : vocabulary.kinds) types.push_back(static_cast<int>(kind));
  metadata.set(kModel, MetaValue::string(kByteLevelBpe));
  const TokenizerRules& rules = vocabulary.rules;
  const TokenizerRules implied = implied_rules(rules.pre.kind);
  metadata.set(kPre, MetaValue::string(std::string(name_of(rules.pre.kind))));
  // A key that an older tokenizer of this metadata needed must not outlive it.
  const auto set_if = [&](bool needed, const char* key, MetaValue value) {
    if (needed || metadata.contains(key)) metadata.set(key, std::move(value));
  };
  set_if(rules.pre.long_s != implied.pre.long_s, kLongS, MetaValue::boolean(rules.pre.long_s));
  set_if(rules.ignore_merges != implied.ignore_merges, kIgnoreMerges,
         MetaValue::boolean(rules.ignore_merges));
  set_if(rules.nfc, kNormalizer, MetaValue::string(rules.nfc ? kNfc : kNoNormalizer));
  metadata.set(kTokens, MetaValue::strings(vocabulary.tokens));
  metadata.set(kTokenType, MetaValue::array(MetaType::i32, std::move(types)));
  metadata.set(kMerges, MetaValue::strings(vocabulary.merges));
}

}  // namespace strata
