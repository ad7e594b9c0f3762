#include "constrain/grammar.h"

namespace strata::constrain {
namespace {

template <class T>
std::uint32_t position(const std::vector<T>& list) {
  return static_cast<std::uint32_t>(list.size());
}

}  // namespace

void Grammar::refuse(Error error) {
  if (status_) status_ = tl::unexpected<Error>(std::move(error));
}

Grammar::Expr Grammar::add(Node node) {
  if (nodes_.size() >= kMaxNodes) {
    refuse({ErrorCode::exhausted, fmt::format("the grammar has more than {} parts", kMaxNodes)});
    return Expr{0};
  }
  nodes_.push_back(node);
  return Expr{position(nodes_) - 1};
}

Grammar::Expr Grammar::empty() {
  return sequence(std::span<const Expr>());
}

Grammar::Expr Grammar::nothing() {
  return choice(std::span<const Expr>());
}

Grammar::Expr Grammar::literal(std::string_view bytes) {
  return regular(Regular::literal(bytes));
}

Grammar::Expr Grammar::regular(Regular language) {
  regulars_.push_back(std::move(language));
  return add({.kind = Node::Kind::regular, .first = position(regulars_) - 1, .count = 1});
}

Grammar::Expr Grammar::token(std::vector<TokenId> any_of) {
  const Node node{.kind = Node::Kind::token, .first = position(tokens_), .count = position(any_of)};
  tokens_.insert(tokens_.end(), any_of.begin(), any_of.end());
  return add(node);
}

Grammar::Expr Grammar::token_except(std::vector<TokenId> none_of) {
  const Node node{
      .kind = Node::Kind::token_except, .first = position(tokens_), .count = position(none_of)};
  tokens_.insert(tokens_.end(), none_of.begin(), none_of.end());
  return add(node);
}

Grammar::Expr Grammar::sequence(std::span<const Expr> parts) {
  if (parts.size() == 1) return parts[0];
  const Node node{.kind = Node::Kind::sequence,
                  .first = position(parts_),
                  .count = static_cast<std::uint32_t>(parts.size())};
  parts_.insert(parts_.end(), parts.begin(), parts.end());
  return add(node);
}

Grammar::Expr Grammar::choice(std::span<const Expr> parts) {
  if (parts.size() == 1) return parts[0];
  const Node node{.kind = Node::Kind::choice,
                  .first = position(parts_),
                  .count = static_cast<std::uint32_t>(parts.size())};
  parts_.insert(parts_.end(), parts.begin(), parts.end());
  return add(node);
}

Grammar::Expr Grammar::repeat(Expr part, std::uint32_t least, std::optional<std::uint32_t> most) {
  if (most && *most < least) {
    refuse({ErrorCode::invalid_argument,
            fmt::format("a repetition of at least {} and at most {}", least, *most)});
  }
  const Node node{.kind = Node::Kind::repeat,
                  .first = position(parts_),
                  .count = 1,
                  .least = least,
                  .most = most};
  parts_.push_back(part);
  return add(node);
}

Grammar::Rule Grammar::declare(std::string name) {
  rules_.push_back({std::move(name), std::nullopt});
  return Rule{position(rules_) - 1};
}

void Grammar::define(Rule rule, Expr body) {
  RuleBody& it = rules_[static_cast<std::uint32_t>(rule)];
  if (it.body)
    refuse({ErrorCode::invalid_argument, fmt::format("the rule '{}' is defined twice", it.name)});
  it.body = body;
}

Grammar::Expr Grammar::call(Rule rule) {
  return add({.kind = Node::Kind::call, .first = static_cast<std::uint32_t>(rule), .count = 1});
}

void Grammar::set_root(Expr root) {
  root_ = root;
}

}  // namespace strata::constrain
