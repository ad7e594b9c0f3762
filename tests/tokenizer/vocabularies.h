// Tokenizers for tests: the demo model's, and small ones made on the spot.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer.h"

namespace strata {

inline std::string golden_text(const std::string& name) {
  std::ifstream file(std::string(STRATA_GOLDEN_DIR) + "/demo-tokenizer/" + name, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << name;
  return text.str();
}

inline const Tokenizer& demo_tokenizer() {
  static const Tokenizer tokenizer = [] {
    auto loaded = Tokenizer::from_tokenizer_json(golden_text("tokenizer.json"), 8192);
    if (!loaded) throw std::runtime_error(loaded.error().message);
    return std::move(*loaded);
  }();
  return tokenizer;
}

// The 256 byte tokens (id = byte), then `merges` ("a b", in printable form) and their products,
// then special tokens.
inline Tokenizer::Vocabulary small_vocabulary(
    std::vector<std::string> merges = {},
    const std::vector<std::pair<std::string, TokenKind>>& specials = {}) {
  Tokenizer::Vocabulary v;
  for (unsigned b = 0; b < 256; ++b) v.tokens.emplace_back(printable(static_cast<std::uint8_t>(b)));
  for (const std::string& merge : merges) {
    const auto space = merge.find(' ');
    v.tokens.push_back(merge.substr(0, space) + merge.substr(space + 1));
  }
  v.merges = std::move(merges);
  v.kinds.assign(v.tokens.size(), TokenKind::normal);
  for (const auto& [text, kind] : specials) {
    v.tokens.push_back(text);
    v.kinds.push_back(kind);
  }
  return v;
}

inline std::string message_of(const Result<Tokenizer>& result) {
  return result ? "loaded" : result.error().message;
}

}  // namespace strata
