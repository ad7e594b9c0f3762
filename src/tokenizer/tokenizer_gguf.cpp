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

constexpr const char* kByteLevelBpe = "gpt2";  // what GGUF calls the method
constexpr const char* kQwen35 = "qwen35";

Status require(const Metadata& metadata, const char* key, const char* value) {
  STRATA_ASSIGN(const std::string found, metadata.string(key));
  if (found == value) return {};
  return fail(ErrorCode::unsupported, "{} is {}; this program reads '{}' only", key, quoted(found),
              value);
}

Result<Tokenizer> read(const Metadata& metadata) {
  STRATA_TRY(require(metadata, kModel, kByteLevelBpe));
  STRATA_TRY(require(metadata, kPre, kQwen35));
  Tokenizer::Vocabulary vocabulary;
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
  metadata.set(kPre, MetaValue::string(kQwen35));
  metadata.set(kTokens, MetaValue::strings(vocabulary.tokens));
  metadata.set(kTokenType, MetaValue::array(MetaType::i32, std::move(types)));
  metadata.set(kMerges, MetaValue::strings(vocabulary.merges));
}

}  // namespace strata
