// The `qwen35` pre-tokenizer: cuts text into the pieces inside which byte pairs are merged.
//
// It is the alternation below (first alternative that matches wins), written by hand so that it
// is linear and works on bytes that are not UTF-8:
//
//   (?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])
//   [^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+
//   \p{N}
//    ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*
//   \s*[\r\n]+
//   \s+(?!\S)
//   \s+
//
// \s is the Unicode property White_Space; the classes are those of the Unicode version in
// unicode_generated.h, and characters assigned later count as symbols. So does a byte that belongs
// to no character.
#pragma once

#include <cstddef>
#include <string_view>

namespace strata {

// The end of the piece that begins at `begin` < text.size(); always greater than `begin`. Pieces
// are cut from left to right: the next one begins where this one ends. The end of `text` is the
// end of the input for \s+(?!\S).
std::size_t piece_end(std::string_view text, std::size_t begin);

}  // namespace strata
