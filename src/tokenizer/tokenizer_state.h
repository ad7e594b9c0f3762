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

}  // namespace strata
