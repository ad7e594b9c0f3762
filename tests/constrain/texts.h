// Vocabularies and texts for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "constrain/gbnf.h"
#include "constrain/matcher.h"

namespace strata::constrain {

// A token for each byte, whose id is the byte; then special tokens, the end first.
inline constexpr TokenId kByteEnd = 256;
inline std::shared_ptr<const Vocabulary> byte_vocabulary(std::size_t special = 8) {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  texts.resize(texts.size() + special);
  return *Vocabulary::make(std::move(texts));
}

inline std::optional<TokenId> special_name(std::string_view literal) {
  if (literal == "<end>") return kByteEnd;
  if (literal == "<think>") return kByteEnd + 1;
  if (literal == "</think>") return kByteEnd + 2;
  return std::nullopt;
}

inline Result<std::shared_ptr<const CompiledGrammar>> compile_gbnf(
    std::string_view text, std::shared_ptr<const Vocabulary> vocabulary,
    const CompileLimits& limits = {}) {
  STRATA_ASSIGN(const Grammar grammar, parse_gbnf(text, special_name));
  return CompiledGrammar::compile(grammar, std::move(vocabulary), limits);
}

// Whether each byte of the text is allowed after those before, and the text may end.
inline bool is_prefix(Matcher matcher, std::string_view text) {
  for (const char c : text)
    if (!matcher.accept(static_cast<unsigned char>(c))) return false;
  return true;
}
inline bool is_whole(Matcher matcher, std::string_view text) {
  for (const char c : text)
    if (!matcher.accept(static_cast<unsigned char>(c))) return false;
  return matcher.can_end();
}

}  // namespace strata::constrain
