// Byte-level BPE with one of the pre-tokenizers of pre_tokenizer.h; ids are those of HF's
// tokenizers for the same tokenizer.json.
//
// A Tokenizer is immutable after loading and may be used from several threads. Text is bytes:
// invalid UTF-8 is encoded byte by byte. decode(encode(s)) == s for every byte string s, but for
// vocabularies that ask for NFC (TokenizerRules::nfc): there it is the NFC of s, so equal for text
// in NFC. No token is added at either end. The time to encode is O(n log n) at worst, whatever the
// text.
//
// Vocabularies are checked when they are loaded: every byte has a normal token; no two tokens
// (unused ones aside) have the same text; every merge names normal tokens, once. So encoding
// cannot fail, and plain text can never give a special token.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/gguf.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/token.h"

namespace strata {

class ThreadPool;

enum class TokenKind : std::uint8_t {
  normal = 1,  // BPE token
  unknown = 2,
  control = 3,       // matched only where the text's origin allows specials (templates)
  user_defined = 4,  // matched wherever specials are parsed or user-defined ones are allowed
  unused = 5,
  byte = 6,
};

// Which literals of special tokens become tokens.
enum class Specials {
  none,          // everything is plain text (text of users)
  user_defined,  // <think>, <tool_call>, ... but no control tokens
  all,           // template text
};

// How text is cut and merged, beside the tokens themselves.
struct TokenizerRules {
  PreTokenizer pre;
  // A piece that is a normal token as it stands becomes that token, whatever merging would give.
  bool ignore_merges = false;
  // Text between special tokens is brought to normalisation form C first. Literals of special
  // tokens are looked for before that.
  bool nfc = false;

  bool operator==(const TokenizerRules&) const = default;
};

class Tokenizer {
 public:
  // Limits of a vocabulary (`exhausted` above them).
  static constexpr std::size_t kMaxTokens = std::size_t{1} << 22;
  static constexpr std::size_t kMaxMerges = std::size_t{1} << 23;
  static constexpr std::size_t kMaxJsonBytes = std::size_t{1} << 28;

  // From GGUF metadata. tokenizer.ggml.* names the pre-tokenizer and implies the rest of the rules
  // as other programs understand it: long_s for all but qwen35 and gpt-2, ignore_merges for
  // llama-bpe, no normalisation. Where a vocabulary differs, write_tokenizer adds keys of our own:
  //   strata.tokenizer.normalizer     "nfc" or "none"
  //   strata.tokenizer.ignore_merges  bool
  //   strata.tokenizer.long_s         bool
  // Any other tokenizer is `unsupported`.
  static Result<Tokenizer> from_gguf(const Metadata& metadata);
  // From the text of HF's tokenizer.json. Added tokens are control tokens if they are `special`
  // there and user-defined ones if not. Ids without a token, up to `vocabulary_size` (0: up to the
  // highest id), become unused tokens "[PAD<id>]". What would change ids and is not in
  // TokenizerRules is `unsupported`.
  static Result<Tokenizer> from_tokenizer_json(std::string_view json,
                                               std::size_t vocabulary_size = 0);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // The arrays a GGUF file stores: tokens in printable-byte form, types, merges as "a b".
  struct Vocabulary {
    std::vector<std::string> tokens;
    std::vector<TokenKind> kinds;
    std::vector<std::string> merges;
    TokenizerRules rules{};
  };
  // How errors call the three arrays.
  struct VocabularyNames {
    std::string_view tokens = "tokens";
    std::string_view kinds = "kinds";
    std::string_view merges = "merges";
  };
  // From the arrays themselves. Texts of normal tokens are in printable-byte form, those of others
  // literal.
  static Result<Tokenizer> from_vocabulary(Vocabulary vocabulary, const VocabularyNames& names);
  const Vocabulary& vocabulary() const;

  std::size_t size() const;  // ids are 0 .. size()-1
  std::vector<TokenId> encode(std::string_view text, Specials specials = Specials::all) const;
  // Bytes [begin, end) of a text.
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool operator==(const Range&) const = default;
  };
  // Text of mixed origin: special literals count only where they lie wholly inside one of the
  // `trusted` ranges (ascending, disjoint, within the text). All else is plain and is encoded as
  // one run between specials, wherever the borders of the ranges are.
  std::vector<TokenId> encode(std::string_view text, std::span<const Range> trusted) const;
  // The same ids, with the work of long texts divided over the pool's threads.
  std::vector<TokenId> encode(std::string_view text, Specials specials, ThreadPool& pool) const;
  std::vector<TokenId> encode(std::string_view text, std::span<const Range> trusted,
                              ThreadPool& pool) const;
  // Bytes of one token; empty for ids outside the vocabulary. Specials give their literal.
  std::string_view bytes(TokenId id) const;
  std::string decode(std::span<const TokenId> ids) const;
  TokenKind kind(TokenId id) const;  // unknown for ids outside the vocabulary
  // The id of a special token by its literal ("<|im_end|>").
  std::optional<TokenId> special(std::string_view literal) const;

  // For the tokenizer's own sources.
  struct State;
  const State& state() const { return *state_; }

 private:
  explicit Tokenizer(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

// Sets the keys from which from_gguf makes an equal tokenizer.
void write_tokenizer(const Tokenizer& tokenizer, Metadata& metadata);

}  // namespace strata
