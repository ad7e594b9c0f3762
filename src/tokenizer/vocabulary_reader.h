// The checks on a vocabulary's arrays, and what is made of them for encoding.
#pragma once

#include <array>

#include "tokenizer/byte_pairs.h"
#include "tokenizer/special_matcher.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/whole_pieces.h"

namespace strata {

struct VocabularyParts {
  TokenBytes bytes;
  SpecialMatcher specials;
  BytePairs pairs;
};

// Errors name the array, the index and the text.
Result<VocabularyParts> read_vocabulary(const Tokenizer::Vocabulary& vocabulary,
                                        const Tokenizer::VocabularyNames& names);

}  // namespace strata
