// A context-free grammar over bytes and tokens, as the compilers of JSON Schema and GBNF build it
// and the matcher runs it.
//
// Building cannot fail: what exceeds a limit is remembered and comes out of compile(). Expressions
// and rules belong to the grammar that made them. Not thread-safe; a value that may be moved.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "constrain/regular.h"
#include "tokenizer/token.h"

namespace strata::constrain {

class Grammar {
 public:
  enum class Expr : std::uint32_t {};
  enum class Rule : std::uint32_t {};
  static constexpr std::size_t kMaxNodes = 400'000;

  Expr empty();
  Expr nothing();  // matches no text; a choice without alternatives
  Expr literal(std::string_view bytes);
  Expr regular(Regular language);
  // One token by its id, whatever its text: how special tokens are named. Special tokens match
  // nothing else.
  Expr token(std::vector<TokenId> any_of);
  Expr token_except(std::vector<TokenId> none_of);  // any token of the vocabulary but these
  Expr sequence(std::span<const Expr> parts);
  Expr sequence(std::initializer_list<Expr> parts) {
    return sequence(std::span(parts.begin(), parts.size()));
  }
  Expr choice(std::span<const Expr> parts);
  Expr choice(std::initializer_list<Expr> parts) {
    return choice(std::span(parts.begin(), parts.size()));
  }
  Expr optional(Expr part) { return repeat(part, 0, 1); }
  Expr repeat(Expr part, std::uint32_t least, std::optional<std::uint32_t> most);

  // Rules may call each other and themselves, before they are defined too; left recursion is
  // `unsupported` if it cannot be removed by the matcher. The name is for messages.
  Rule declare(std::string name);
  void define(Rule rule, Expr body);
  Expr call(Rule rule);
  void set_root(Expr root);

  // --- for the matcher ---
  struct Node {
    enum class Kind : std::uint8_t { regular, token, token_except, sequence, choice, repeat, call };
    Kind kind = Kind::sequence;
    std::uint32_t first = 0, count = 0;  // in parts(), tokens() or regulars(); call: the rule
    std::uint32_t least = 0;
    std::optional<std::uint32_t> most = std::nullopt;
  };
  struct RuleBody {
    std::string name;
    std::optional<Expr> body;
  };
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Expr>& parts() const { return parts_; }
  const std::vector<TokenId>& tokens() const { return tokens_; }
  const std::vector<Regular>& regulars() const { return regulars_; }
  const std::vector<RuleBody>& rules() const { return rules_; }
  std::optional<Expr> root() const { return root_; }
  // What went wrong while it was built: too many nodes, a rule defined twice.
  const Status& status() const { return status_; }
  void refuse(Error error);  // a compiler's own; the first one stays

 private:
  Expr add(Node node);

  std::vector<Node> nodes_;
  std::vector<Expr> parts_;
  std::vector<TokenId> tokens_;
  std::vector<Regular> regulars_;
  std::vector<RuleBody> rules_;
  std::optional<Expr> root_;
  Status status_;
};

}  // namespace strata::constrain
