// Pre-tokenizers: they cut text into the pieces inside which byte pairs are merged.
//
// Each is an alternation of regular expressions (the first alternative that matches wins), written
// by hand so that it is linear and works on bytes that are not UTF-8. With C for the contractions
// (?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]) and S for \s*[\r\n]+|\s+(?!\S)|\s+ :
//
//   qwen35     C|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|S
//   qwen2      C|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|S
//   llama-bpe  C|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|S
//   gpt-2      's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   gpt-4o     [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+C?|
//              [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*C?|
//              \p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|S
//
// \s is the Unicode property White_Space; see unicode.h for the classes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace strata {

enum class PreTokenizerKind : std::uint8_t { qwen35, qwen2, llama_bpe, gpt2, gpt4o };

struct PreTokenizer {
  PreTokenizerKind kind = PreTokenizerKind::qwen35;
  // C was written (?i:'s|'t|'re|'ve|'m|'ll|'d). With the full case folding that regular expressions
  // of Rust and Oniguruma apply, U+017F (long s) is an s there, too. Nothing else differs.
  bool long_s = false;

  bool operator==(const PreTokenizer&) const = default;
};

// The names of the kinds as GGUF files spell them (tokenizer.ggml.pre).
std::string_view name_of(PreTokenizerKind kind);
std::optional<PreTokenizerKind> pre_tokenizer_by_name(std::string_view name);
inline constexpr std::string_view kPreTokenizerNames = "qwen35, qwen2, llama-bpe, gpt-2, gpt-4o";

// The pre-tokenizer whose regular expression this is, if it is one of those above, with either
// spelling of C.
std::optional<PreTokenizer> pre_tokenizer_by_pattern(std::string_view pattern);

// The end of the piece that begins at `begin` < text.size(); always greater than `begin`. Pieces
// are cut from left to right: the next one begins where this one ends. The end of `text` is the
// end of the input for \s+(?!\S).
std::size_t piece_end(PreTokenizer pre, std::string_view text, std::size_t begin);

// The first position in (from, to) at which a piece ends whatever else the text holds, by any of
// the pre-tokenizers; or std::string_view::npos. The text may be cut there and both halves cut into
// pieces apart, as long as the first is shown the whole text.
std::size_t certain_border(std::string_view text, std::size_t from, std::size_t to);

}  // namespace strata
