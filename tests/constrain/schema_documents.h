// What a schema's grammar accepts, byte by byte.
#pragma once

#include <boost/json/value.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_number.h"
#include "constrain/json_schema.h"
#include "constrain/matcher.h"

namespace strata::constrain {

inline constexpr TokenId kEndOfText = 256;

// Token N is the byte N; token 256 has no text and ends an answer.
inline const std::shared_ptr<const Vocabulary>& byte_vocabulary() {
  static const std::shared_ptr<const Vocabulary> vocabulary = [] {
    std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    texts.emplace_back();
    return *Vocabulary::make(std::move(texts));
  }();
  return vocabulary;
}

class SchemaDocuments {
 public:
  static Result<SchemaDocuments> make(
      const boost::json::value& schema, const JsonSchemaOptions& options = {},
      const std::shared_ptr<const Vocabulary>& vocabulary = byte_vocabulary()) {
    Grammar grammar;
    STRATA_ASSIGN(const Grammar::Expr root, json_schema(grammar, schema, options));
    return make(grammar, root, vocabulary);
  }
  static Result<SchemaDocuments> make(
      Grammar& grammar, Grammar::Expr root,
      const std::shared_ptr<const Vocabulary>& vocabulary = byte_vocabulary()) {
    grammar.set_root(root);
    STRATA_ASSIGN(std::shared_ptr<const CompiledGrammar> compiled,
                  CompiledGrammar::compile(grammar, vocabulary));
    return SchemaDocuments(std::move(compiled));
  }

  // How many bytes of the text are accepted; npos: all, and it may end there.
  std::size_t refused_at(std::string_view text) const {
    Matcher matcher(compiled_, {kEndOfText});
    for (std::size_t i = 0; i < text.size(); ++i)
      if (!matcher.accept(static_cast<unsigned char>(text[i]))) return i;
    return matcher.can_end() ? std::string_view::npos : text.size();
  }
  bool accepts(std::string_view text) const { return refused_at(text) == std::string_view::npos; }
  const std::shared_ptr<const CompiledGrammar>& compiled() const { return compiled_; }

 private:
  explicit SchemaDocuments(std::shared_ptr<const CompiledGrammar> compiled)
      : compiled_(std::move(compiled)) {}
  std::shared_ptr<const CompiledGrammar> compiled_;
};

}  // namespace strata::constrain
