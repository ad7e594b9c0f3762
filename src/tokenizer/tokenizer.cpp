#include "tokenizer/tokenizer.h"

#include "tokenizer/tokenizer_state.h"

namespace strata {

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::from_vocabulary(Vocabulary vocabulary, const VocabularyNames& names) {
  auto state = std::make_unique<State>();
  state->vocabulary = std::move(vocabulary);
  STRATA_ASSIGN(state->parts, read_vocabulary(state->vocabulary, names));
  state->whole.build(state->parts.bytes, state->vocabulary.kinds, state->parts.pairs,
                     state->vocabulary.rules.ignore_merges);
  return Tokenizer(std::unique_ptr<const State>(std::move(state)));
}

const Tokenizer::Vocabulary& Tokenizer::vocabulary() const {
  return state_->vocabulary;
}

std::size_t Tokenizer::size() const {
  return state_->parts.bytes.size();
}

std::string_view Tokenizer::bytes(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= size()) return {};
  return state_->parts.bytes[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (const TokenId id : ids) text += bytes(id);
  return text;
}

TokenKind Tokenizer::kind(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= size()) return TokenKind::unknown;
  return state_->vocabulary.kinds[static_cast<std::size_t>(id)];
}

std::optional<TokenId> Tokenizer::special(std::string_view literal) const {
  return state_->parts.specials.find(literal);
}

}  // namespace strata
