// Byte-level BPE with the family's `qwen35` pre-tokenizer (spec: the model's tokenizer.json).
//
// A Tokenizer is immutable after loading and may be used from several threads. Text is bytes:
// invalid UTF-8 is encoded byte by byte and decode(encode(s)) == s for every byte string s.
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

namespace strata {

using TokenId = std::int32_t;

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

class Tokenizer {
 public:
  // From GGUF metadata (tokenizer.ggml.*).
  static Result<Tokenizer> from_gguf(const Metadata& metadata);
  // From the text of HF's tokenizer.json (and added_tokens in it).
  static Result<Tokenizer> from_tokenizer_json(std::string_view json);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // The arrays a GGUF file stores: tokens in printable-byte form, types, merges as "a b".
  struct Vocabulary {
    std::vector<std::string> tokens;
    std::vector<TokenKind> kinds;
    std::vector<std::string> merges;
  };
  const Vocabulary& vocabulary() const;

  std::size_t size() const;  // ids are 0 .. size()-1
  std::vector<TokenId> encode(std::string_view text, Specials specials = Specials::all) const;
  // Bytes of one token; empty for ids outside the vocabulary. Specials give their literal.
  std::string_view bytes(TokenId id) const;
  std::string decode(std::span<const TokenId> ids) const;
  TokenKind kind(TokenId id) const;
  // The id of a special token by its literal ("<|im_end|>").
  std::optional<TokenId> special(std::string_view literal) const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

}  // namespace strata
