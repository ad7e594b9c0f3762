#include "chat/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "chat/jinja/lexer.h"

namespace strata::chat::jinja {

namespace {

using Kind = Expression::Kind;
using Operator = Expression::Operator;
using Node = std::unique_ptr<Expression>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Block run() {
    Block block = parse_block({});
    if (peek().kind != Token::Kind::end) error("unexpected end of a block");
    return block;
  }

 private:
  // --- tokens ---

  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const Token& next() {
    const Token& token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  [[noreturn]] void error(std::string_view reason) const {
    raise("line {}: {}", peek().line, reason);
  }
  [[noreturn]] void unexpected(std::string_view wanted) const {
    const Token& token = peek();
    error(token.kind == Token::Kind::end
              ? fmt::format("the template ends where {} is expected", wanted)
              : fmt::format("'{}' stands where {} is expected", token.text, wanted));
  }
  bool is_symbol(std::string_view text, std::size_t ahead = 0) const {
    return peek(ahead).kind == Token::Kind::symbol && peek(ahead).text == text;
  }
  bool is_word(std::string_view text, std::size_t ahead = 0) const {
    return peek(ahead).kind == Token::Kind::name && peek(ahead).text == text;
  }
  bool take_symbol(std::string_view text) {
    if (!is_symbol(text)) return false;
    next();
    return true;
  }
  bool take_word(std::string_view text) {
    if (!is_word(text)) return false;
    next();
    return true;
  }
  void expect_symbol(std::string_view text) {
    if (!take_symbol(text)) unexpected(fmt::format("'{}'", text));
  }
  void expect_word(std::string_view text) {
    if (!take_word(text)) unexpected(fmt::format("'{}'", text));
  }
  std::string expect_name() {
    if (peek().kind != Token::Kind::name) unexpected("a name");
    return next().text;
  }
  void expect_block_end() {
    if (peek().kind != Token::Kind::block_end) unexpected("'%}'");
    next();
  }

  // Counts one level of nesting while it lives.
  class Nested {
   public:
    explicit Nested(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaxNesting) {
        parser_.error(fmt::format("more than {} levels of nesting", kMaxNesting));
      }
    }
    ~Nested() { --parser_.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Parser& parser_;
  };

  // --- building ---

  Node make(Kind kind, int line) const {
    auto node = std::make_unique<Expression>();
    node->kind = kind;
    node->line = line;
    return node;
  }
  void adopt(Expression& parent, ExpressionPtr child) const {
    if (child) {
      parent.depth = std::max(parent.depth, child->depth + 1);
      if (parent.depth > kMaxExpressionDepth) {
        error(fmt::format("an expression has more than {} levels", kMaxExpressionDepth));
      }
    }
    parent.children.push_back(std::move(child));
  }
  template <class... Children>
  Node combine(Kind kind, int line, Children... children) const {
    Node node = make(kind, line);
    (adopt(*node, std::move(children)), ...);
    return node;
  }
  Node constant(Value value) const {
    Node node = make(Kind::constant, peek().line);
    node->value = std::move(value);
    return node;
  }

  // --- statements ---

  // Statements up to one of the end tags, which stays unread (its "{%" is read).
  Block parse_block(std::initializer_list<std::string_view> ends) {
    const Nested nested(*this);
    Block block;
    while (true) {
      const Token& token = next();
      switch (token.kind) {
        case Token::Kind::data:
          block.push_back(text_statement(token));
          break;
        case Token::Kind::variable_begin:
          block.push_back(print_statement());
          break;
        case Token::Kind::block_begin: {
          for (const std::string_view end : ends) {
            if (is_word(end)) return block;
          }
          block.push_back(parse_statement());
          break;
        }
        default:
          if (ends.size() > 0) unexpected(fmt::format("'{{% {} %}}'", *(ends.end() - 1)));
          return block;
      }
    }
  }

  std::unique_ptr<Statement> statement(Statement::Kind kind) const {
    auto node = std::make_unique<Statement>();
    node->kind = kind;
    node->line = peek().line;
    return node;
  }

  std::unique_ptr<Statement> text_statement(const Token& token) const {
    auto node = statement(Statement::Kind::text);
    node->value = Value::trusted(token.text);
    return node;
  }

  std::unique_ptr<Statement> print_statement() {
    auto node = statement(Statement::Kind::print);
    node->expression = parse_tuple(true);
    if (peek().kind != Token::Kind::variable_end) unexpected("'}}'");
    next();
    return node;
  }

  std::unique_ptr<Statement> parse_statement() {
    const std::string tag = expect_name();
    if (tag == "if") return parse_if();
    if (tag == "for") return parse_for();
    if (tag == "set") return parse_set();
    if (tag == "macro") return parse_macro();
    if (tag == "call") return parse_call_block();
    if (tag == "filter") return parse_filter_block();
    if (tag == "with") return parse_with();
    if (tag == "generation") return parse_generation();
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) error(fmt::format("'{}' stands outside of a loop", tag));
      auto node =
          statement(tag == "break" ? Statement::Kind::break_loop : Statement::Kind::continue_loop);
      expect_block_end();
      return node;
    }
    error(fmt::format("unknown tag '{}'", tag));
  }

  std::unique_ptr<Statement> parse_if() {
    auto node = statement(Statement::Kind::branch);
    do {
      Statement::Branch branch;
      branch.condition = parse_tuple(false);
      expect_block_end();
      branch.body = parse_block({"elif", "else", "endif"});
      node->branches.push_back(std::move(branch));
    } while (take_word("elif"));
    if (take_word("else")) {
      expect_block_end();
      node->otherwise = parse_block({"endif"});
    }
    expect_word("endif");
    expect_block_end();
    return node;
  }

  std::unique_ptr<Statement> parse_for() {
    auto node = statement(Statement::Kind::loop);
    node->target = parse_target(false);
    expect_word("in");
    node->expression = parse_tuple(false, "recursive");
    if (take_word("if")) node->condition = parse_expression();
    node->recursive = take_word("recursive");
    expect_block_end();
    ++loops_;
    node->body = parse_block({"else", "endfor"});
    --loops_;
    if (take_word("else")) {
      expect_block_end();
      node->otherwise = parse_block({"endfor"});
    }
    expect_word("endfor");
    expect_block_end();
    return node;
  }

  Target parse_one_target(bool with_attribute) {
    const Nested nested(*this);
    if (take_symbol("(")) {
      Target target = parse_target(with_attribute);
      expect_symbol(")");
      return target;
    }
    Target target;
    target.name = expect_name();
    static constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False",
                                                     "None", "not",   "in",   "is"};
    if (std::ranges::find(kReserved, target.name) != std::end(kReserved)) {
      error(fmt::format("'{}' cannot be assigned to", target.name));
    }
    if (with_attribute && take_symbol(".")) target.attribute = expect_name();
    return target;
  }

  Target parse_target(bool with_attribute) {
    Target first = parse_one_target(with_attribute);
    if (!is_symbol(",")) return first;
    Target tuple;
    tuple.is_tuple = true;
    tuple.items.push_back(std::move(first));
    while (take_symbol(",")) {
      if (peek().kind != Token::Kind::name && !is_symbol("(")) break;
      if (is_word("in")) break;
      tuple.items.push_back(parse_one_target(with_attribute));
    }
    return tuple;
  }

  std::unique_ptr<Statement> parse_set() {
    auto node = statement(Statement::Kind::set);
    node->target = parse_target(true);
    if (take_symbol("=")) {
      node->expression = parse_tuple(true);
      expect_block_end();
      return node;
    }
    node->kind = Statement::Kind::set_block;
    if (is_symbol("|")) node->filter = parse_filters(nullptr);
    expect_block_end();
    node->body = parse_outside_loops({"endset"});
    expect_word("endset");
    expect_block_end();
    return node;
  }

  // The body of a macro, a call or a captured block: break and continue do not reach out of it.
  Block parse_outside_loops(std::initializer_list<std::string_view> ends) {
    const int loops = std::exchange(loops_, 0);
    Block block = parse_block(ends);
    loops_ = loops;
    return block;
  }

  void parse_parameters(MacroBody& macro) {
    expect_symbol("(");
    while (!take_symbol(")")) {
      if (!macro.parameters.empty()) expect_symbol(",");
      if (take_symbol(")")) return;
      MacroBody::Parameter parameter;
      parameter.name = expect_name();
      if (take_symbol("=")) {
        parameter.default_value = parse_expression();
      } else if (!macro.parameters.empty() && macro.parameters.back().default_value) {
        error("a parameter without default follows one with a default");
      }
      macro.parameters.push_back(std::move(parameter));
    }
  }

  void parse_macro_body(MacroBody& macro, std::string_view end) {
    macros_.push_back(&macro);
    macro.body = parse_outside_loops({end});
    macros_.pop_back();
    expect_word(end);
    expect_block_end();
  }

  std::unique_ptr<Statement> parse_macro() {
    auto node = statement(Statement::Kind::macro);
    node->macro.name = expect_name();
    parse_parameters(node->macro);
    expect_block_end();
    parse_macro_body(node->macro, "endmacro");
    return node;
  }

  std::unique_ptr<Statement> parse_call_block() {
    auto node = statement(Statement::Kind::call_block);
    node->macro.name = "caller";
    if (is_symbol("(")) parse_parameters(node->macro);
    node->expression = parse_expression();
    if (node->expression->kind != Kind::call) error("a call block needs a call");
    expect_block_end();
    parse_macro_body(node->macro, "endcall");
    return node;
  }

  std::unique_ptr<Statement> parse_filter_block() {
    auto node = statement(Statement::Kind::filter_block);
    node->filter = parse_filters(nullptr, true);
    expect_block_end();
    node->body = parse_outside_loops({"endfilter"});
    expect_word("endfilter");
    expect_block_end();
    return node;
  }

  std::unique_ptr<Statement> parse_with() {
    auto node = statement(Statement::Kind::with);
    while (peek().kind != Token::Kind::block_end) {
      if (!node->assignments.empty()) expect_symbol(",");
      Statement::Assignment assignment;
      assignment.target = parse_one_target(false);
      expect_symbol("=");
      assignment.value = parse_expression();
      node->assignments.push_back(std::move(assignment));
    }
    expect_block_end();
    node->body = parse_block({"endwith"});
    expect_word("endwith");
    expect_block_end();
    return node;
  }

  std::unique_ptr<Statement> parse_generation() {
    auto node = statement(Statement::Kind::scope);
    expect_block_end();
    node->body = parse_outside_loops({"endgeneration"});
    expect_word("endgeneration");
    expect_block_end();
    return node;
  }

  // --- expressions, loosest first ---

  // One expression, or several with commas as a tuple.
  ExpressionPtr parse_tuple(bool with_condition, std::string_view end_word = {}) {
    const int line = peek().line;
    const auto one = [&] { return with_condition ? parse_expression() : parse_or(); };
    ExpressionPtr first = one();
    if (!is_symbol(",")) return first;
    Node tuple = combine(Kind::tuple, line, std::move(first));
    while (take_symbol(",")) {
      const Token::Kind kind = peek().kind;
      if (kind == Token::Kind::variable_end || kind == Token::Kind::block_end || is_symbol(")") ||
          (!end_word.empty() && is_word(end_word))) {
        break;
      }
      adopt(*tuple, one());
    }
    return tuple;
  }

  ExpressionPtr parse_expression() {
    const Nested nested(*this);
    const int line = peek().line;
    ExpressionPtr value = parse_or();
    while (take_word("if")) {
      ExpressionPtr condition = parse_or();
      ExpressionPtr other;
      if (take_word("else")) other = parse_expression();
      value = combine(Kind::conditional, line, std::move(value), std::move(condition),
                      std::move(other));
    }
    return value;
  }

  ExpressionPtr parse_or() {
    const int line = peek().line;
    ExpressionPtr left = parse_and();
    while (take_word("or")) left = combine(Kind::logical_or, line, std::move(left), parse_and());
    return left;
  }

  ExpressionPtr parse_and() {
    const int line = peek().line;
    ExpressionPtr left = parse_not();
    while (take_word("and")) left = combine(Kind::logical_and, line, std::move(left), parse_not());
    return left;
  }

  ExpressionPtr parse_not() {
    const Nested nested(*this);
    const int line = peek().line;
    if (take_word("not")) return combine(Kind::logical_not, line, parse_not());
    return parse_compare();
  }

  std::optional<Operator> take_comparison() {
    static constexpr std::pair<std::string_view, Operator> kSymbols[] = {
        {"==", Operator::equal},      {"!=", Operator::not_equal}, {"<", Operator::less},
        {"<=", Operator::less_equal}, {">", Operator::greater},    {">=", Operator::greater_equal}};
    for (const auto& [text, value] : kSymbols) {
      if (take_symbol(text)) return value;
    }
    if (take_word("in")) return Operator::in;
    if (is_word("not") && is_word("in", 1)) {
      next();
      next();
      return Operator::not_in;
    }
    return std::nullopt;
  }

  ExpressionPtr parse_compare() {
    const int line = peek().line;
    ExpressionPtr first = parse_sum();
    std::optional<Operator> op = take_comparison();
    if (!op) return first;
    Node node = combine(Kind::compare, line, std::move(first));
    for (; op; op = take_comparison()) {
      node->operators.push_back(*op);
      adopt(*node, parse_sum());
    }
    return node;
  }

  ExpressionPtr arithmetic(Operator op, int line, ExpressionPtr left, ExpressionPtr right) const {
    Node node = combine(Kind::arithmetic, line, std::move(left), std::move(right));
    node->operators.push_back(op);
    return node;
  }

  ExpressionPtr parse_sum() {
    const int line = peek().line;
    ExpressionPtr left = parse_concatenation();
    while (is_symbol("+") || is_symbol("-")) {
      const Operator op = next().text == "+" ? Operator::add : Operator::subtract;
      left = arithmetic(op, line, std::move(left), parse_concatenation());
    }
    return left;
  }

  ExpressionPtr parse_concatenation() {
    const int line = peek().line;
    ExpressionPtr first = parse_product();
    if (!is_symbol("~")) return first;
    Node node = combine(Kind::concatenate, line, std::move(first));
    while (take_symbol("~")) adopt(*node, parse_product());
    return node;
  }

  ExpressionPtr parse_product() {
    static constexpr std::pair<std::string_view, Operator> kSymbols[] = {
        {"*", Operator::multiply},
        {"/", Operator::divide},
        {"//", Operator::floor_divide},
        {"%", Operator::modulo}};
    const int line = peek().line;
    ExpressionPtr left = parse_power();
    while (peek().kind == Token::Kind::symbol) {
      const auto* found = std::ranges::find(kSymbols, std::string_view(peek().text),
                                            &std::pair<std::string_view, Operator>::first);
      if (found == std::end(kSymbols)) break;
      next();
      left = arithmetic(found->second, line, std::move(left), parse_power());
    }
    return left;
  }

  ExpressionPtr parse_power() {
    const int line = peek().line;
    ExpressionPtr left = parse_unary(true);
    while (take_symbol("**")) {
      left = arithmetic(Operator::power, line, std::move(left), parse_unary(true));
    }
    return left;
  }

  ExpressionPtr parse_unary(bool with_filters) {
    const Nested nested(*this);
    const int line = peek().line;
    ExpressionPtr node;
    if (take_symbol("-")) {
      node = combine(Kind::negate, line, parse_unary(false));
    } else if (take_symbol("+")) {
      node = combine(Kind::plus, line, parse_unary(false));
    } else {
      node = parse_primary();
    }
    node = parse_postfix(std::move(node));
    return with_filters ? parse_filters_and_tests(std::move(node)) : std::move(node);
  }

  ExpressionPtr parse_primary() {
    const Token& token = peek();
    switch (token.kind) {
      case Token::Kind::name:
        return parse_name();
      case Token::Kind::string: {
        std::string text = next().text;
        while (peek().kind == Token::Kind::string) text += next().text;
        return constant(Value::trusted(text));
      }
      case Token::Kind::integer:
      case Token::Kind::floating:
        return constant(next().number);
      default:
        break;
    }
    if (is_symbol("(")) return parse_parentheses();
    if (is_symbol("[")) return parse_list();
    if (is_symbol("{")) return parse_dict();
    unexpected("a value");
  }

  ExpressionPtr parse_name() {
    const std::string name = peek().text;
    if (name == "true" || name == "True" || name == "false" || name == "False") {
      next();
      return constant(Value(name == "true" || name == "True"));
    }
    if (name == "none" || name == "None") {
      next();
      return constant(Value::none());
    }
    Node node = make(Kind::name, peek().line);
    node->name = next().text;
    for (MacroBody* macro : macros_) {
      macro->uses_varargs = macro->uses_varargs || name == "varargs";
      macro->uses_kwargs = macro->uses_kwargs || name == "kwargs";
      macro->uses_caller = macro->uses_caller || name == "caller";
    }
    return node;
  }

  ExpressionPtr parse_parentheses() {
    const Nested nested(*this);
    const int line = next().line;
    if (take_symbol(")")) return make(Kind::tuple, line);
    ExpressionPtr inside = parse_tuple(true);
    expect_symbol(")");
    return inside;
  }

  ExpressionPtr parse_list() {
    const Nested nested(*this);
    Node node = make(Kind::list, next().line);
    while (!take_symbol("]")) {
      if (!node->children.empty()) {
        expect_symbol(",");
        if (take_symbol("]")) break;
      }
      adopt(*node, parse_expression());
    }
    return node;
  }

  ExpressionPtr parse_dict() {
    const Nested nested(*this);
    Node node = make(Kind::dict, next().line);
    while (!take_symbol("}")) {
      if (!node->children.empty()) {
        expect_symbol(",");
        if (take_symbol("}")) break;
      }
      adopt(*node, parse_expression());
      expect_symbol(":");
      adopt(*node, parse_expression());
    }
    return node;
  }

  ExpressionPtr parse_postfix(ExpressionPtr node) {
    while (true) {
      if (is_symbol(".")) {
        node = parse_attribute(std::move(node));
      } else if (is_symbol("[")) {
        node = parse_subscript(std::move(node));
      } else if (is_symbol("(")) {
        node = parse_call(std::move(node));
      } else {
        return node;
      }
    }
  }

  ExpressionPtr parse_attribute(ExpressionPtr object) {
    const int line = next().line;
    if (peek().kind == Token::Kind::integer) {
      return combine(Kind::subscript, line, std::move(object), constant(next().number));
    }
    Node node = combine(Kind::attribute, line, std::move(object));
    node->name = expect_name();
    return node;
  }

  ExpressionPtr parse_subscript(ExpressionPtr object) {
    const Nested nested(*this);
    const int line = next().line;
    ExpressionPtr first;
    if (!is_symbol(":")) first = parse_tuple(true);
    if (!is_symbol(":")) {
      expect_symbol("]");
      return combine(Kind::subscript, line, std::move(object), std::move(first));
    }
    ExpressionPtr bounds[2];
    for (ExpressionPtr& bound : bounds) {
      if (take_symbol(":") && !is_symbol(":") && !is_symbol("]")) bound = parse_expression();
    }
    expect_symbol("]");
    return combine(Kind::slice, line, std::move(object), std::move(first), std::move(bounds[0]),
                   std::move(bounds[1]));
  }

  void parse_arguments(Expression& call) {
    const Nested nested(*this);
    expect_symbol("(");
    while (!take_symbol(")")) {
      if (!call.arguments.empty()) {
        expect_symbol(",");
        if (take_symbol(")")) return;
      }
      Argument argument;
      if (take_symbol("*")) {
        argument.kind = Argument::Kind::star;
      } else if (take_symbol("**")) {
        argument.kind = Argument::Kind::double_star;
      } else if (peek().kind == Token::Kind::name && is_symbol("=", 1)) {
        argument.kind = Argument::Kind::named;
        argument.name = next().text;
        next();
      } else if (!call.arguments.empty() &&
                 call.arguments.back().kind != Argument::Kind::positional &&
                 call.arguments.back().kind != Argument::Kind::star) {
        error("a positional argument follows a named one");
      }
      argument.value = parse_expression();
      call.depth = std::max(call.depth, argument.value->depth + 1);
      call.arguments.push_back(std::move(argument));
    }
  }

  ExpressionPtr parse_call(ExpressionPtr callee) {
    Node node = combine(Kind::call, peek().line, std::move(callee));
    parse_arguments(*node);
    return node;
  }

  ExpressionPtr parse_filters_and_tests(ExpressionPtr node) {
    while (true) {
      if (is_symbol("|")) {
        node = parse_filters(std::move(node));
      } else if (is_word("is")) {
        node = parse_test(std::move(node));
      } else if (is_symbol("(")) {
        node = parse_call(std::move(node));
      } else {
        return node;
      }
    }
  }

  std::string dotted_name() {
    std::string name = expect_name();
    while (take_symbol(".")) {
      name += '.';
      name += expect_name();
    }
    return name;
  }

  // `named`: the first filter stands without a "|" in front (filter blocks).
  ExpressionPtr parse_filters(ExpressionPtr node, bool named = false) {
    while (named || take_symbol("|")) {
      named = false;
      Node filter = make(Kind::filter, peek().line);
      filter->name = dotted_name();
      adopt(*filter, std::move(node));
      if (is_symbol("(")) parse_arguments(*filter);
      node = std::move(filter);
    }
    return node;
  }

  // A test's argument may stand without parentheses: `x is divisibleby 3`.
  bool starts_bare_argument() const {
    static constexpr std::string_view kNot[] = {"else", "or", "and", "if", "in", "not"};
    switch (peek().kind) {
      case Token::Kind::name:
        return std::ranges::find(kNot, std::string_view(peek().text)) == std::end(kNot);
      case Token::Kind::string:
      case Token::Kind::integer:
      case Token::Kind::floating:
        return true;
      default:
        return is_symbol("[") || is_symbol("{");
    }
  }

  ExpressionPtr parse_test(ExpressionPtr value) {
    const int line = next().line;
    const bool negated = take_word("not");
    Node node = combine(Kind::test, line, std::move(value));
    node->name = dotted_name();
    if (is_symbol("(")) {
      parse_arguments(*node);
    } else if (starts_bare_argument()) {
      if (is_word("is")) error("tests cannot be chained with 'is'");
      Argument argument;
      argument.value = parse_postfix(parse_primary());
      node->depth = std::max(node->depth, argument.value->depth + 1);
      node->arguments.push_back(std::move(argument));
    }
    if (negated) return combine(Kind::logical_not, line, std::move(node));
    return node;
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::size_t nesting_ = 0;
  int loops_ = 0;
  std::vector<MacroBody*> macros_;
};

}  // namespace

Block parse_template(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    throw Failure{ErrorCode::exhausted,
                  fmt::format("the template has {} bytes, more than the limit of {}", source.size(),
                              kMaxTemplateBytes),
                  false};
  }
  return Parser(tokenize(source)).run();
}

}  // namespace strata::chat::jinja
