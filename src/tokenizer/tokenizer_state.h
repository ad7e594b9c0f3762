// What a Tokenizer is made of; for its own sources.
#pragma once

#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary_reader.h"
#include "tokenizer/whole_pieces.h"

namespace strata {

struct Tokenizer::State {
  Vocabulary vocabulary;
  VocabularyParts parts;
  WholePieces whole;
};

// A place behind a match of a special token.
struct ResumePoint {
  std::size_t text = 0;  // offset of the byte behind it
  std::size_t ids = 0;   // ids of the text before it
};

// Appends the ids of text[from, end) and the points in it. `from` as in SpecialScan.
void encode_tail(const Tokenizer::State& state, std::string_view text,
                 std::span<const Tokenizer::Range> trusted, std::size_t from,
                 std::vector<TokenId>& ids, std::vector<ResumePoint>& points);

}  // namespace strata
