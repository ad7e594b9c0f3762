// Runs a parsed template. One Evaluator serves one rendering, on one thread.
//
// Every evaluation step is charged to the budget, and nesting (expressions, blocks, macro calls)
// has one common limit, so a hostile template ends in an error and never in a full stack or memory.
#pragma once

#include <array>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/jinja/ast.h"
#include "chat/jinja/value.h"

namespace strata::chat::jinja {

// Variables of a block. Inner scopes see outer ones; assignments stay in their own.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string_view, Value>> variables;

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

// begin, end and step of a slice, where given.
using SliceBounds = std::array<std::optional<std::int64_t>, 3>;

class Evaluator {
 public:
  explicit Evaluator(const Limits& limits);
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  // The names in `variables` must outlive the evaluator, as must `block`.
  Text render(const Block& block, const std::vector<std::pair<std::string, Value>>& variables);
  // Line of the statement or expression evaluated last.
  int line() const { return line_; }

  // --- for filters, tests, functions and methods ---

  Budget& budget() { return budget_; }
  Value attribute(const Value& object, std::string_view name);  // object.name
  Value item(const Value& object, const Value& key);            // object[key]
  Value call(const Value& callee, Arguments arguments);
  Value filter(std::string_view name, const Value& input, const Arguments& arguments);
  bool test(std::string_view name, const Value& input, const Arguments& arguments);
  bool contains(const Value& container, const Value& item);
  Value call_macro(const MacroBody& macro, const std::shared_ptr<Scope>& scope,
                   Arguments arguments);
  // A loop over `items`, its output as a value (recursive loops call themselves with this).
  Value run_recursive_loop(const Statement& loop, const std::shared_ptr<Scope>& scope,
                           const Value& items, std::size_t depth);
  // Objects with changeable content are emptied when the rendering ends: they may form cycles.
  Value new_namespace(std::vector<std::pair<std::string, Value>> attributes);

 private:
  enum class Flow { normal, break_loop, continue_loop };
  class Nesting;

  Flow run(const Block& block);
  Flow run(const Statement& statement);
  Flow run_branch(const Statement& statement);
  Flow run_loop(const Statement& statement, const Value& iterable, std::size_t depth);
  void run_set_block(const Statement& statement);
  void run_call_block(const Statement& statement);
  Flow run_with(const Statement& statement);
  Value make_macro(const MacroBody& macro);
  Text capture(const Block& block);  // in a scope of its own
  void print(const Value& value);
  void assign(const Target& target, const Value& value);

  Value evaluate(const Expression& expression);
  Value evaluate_name(const Expression& expression);
  Value evaluate_dict(const Expression& expression);
  Value evaluate_arithmetic(const Expression& expression);
  Value evaluate_concatenation(const Expression& expression);
  bool evaluate_compare(const Expression& expression);
  Value evaluate_slice(const Expression& expression);
  Text slice_text(const Text& text, const SliceBounds& bounds);
  std::vector<std::size_t> slice_indices(std::size_t size, const SliceBounds& bounds);
  Value evaluate_call(const Expression& expression, const Value* caller = nullptr);
  Value evaluate_filter(const Expression& expression);
  std::vector<Value> evaluate_all(const std::vector<ExpressionPtr>& expressions);
  Arguments evaluate_arguments(const std::vector<Argument>& arguments);

  Budget budget_;
  int line_ = 1;
  std::size_t depth_ = 0;
  std::shared_ptr<Scope> scope_;
  Text* out_ = nullptr;
  const Value* block_text_ = nullptr;  // input of the filter chain of a block
  std::vector<std::shared_ptr<Scope>> macro_scopes_;
  std::vector<std::shared_ptr<Object>> namespaces_;
};

// --- the library: filters.cpp, tests.cpp, methods.cpp, functions.cpp, operators.cpp ---

// Binds a call's arguments to parameter names, as Python does. Absent ones are null. Too many
// arguments, unknown names and missing ones among the first `required` are errors.
std::vector<const Value*> bind(std::string_view function, const Arguments& arguments,
                               std::span<const std::string_view> names, std::size_t required = 0);
inline std::vector<const Value*> bind(std::string_view function, const Arguments& arguments,
                                      std::initializer_list<std::string_view> names,
                                      std::size_t required = 0) {
  return bind(function, arguments, std::span(names.begin(), names.size()), required);
}

Value apply_arithmetic(Budget& budget, Expression::Operator op, const Value& a, const Value& b);
Value negated(Budget& budget, const Value& value);
// Python's text % value.
Text format_percent(Budget& budget, const Text& format, const Value& value);

// The method `name` of a str, dict or list, bound to `self`; nothing if there is none.
std::optional<Value> find_method(const Value& self, std::string_view name);
// range, dict, namespace, ...; undefined if there is none.
Value find_function(std::string_view name);

// Text helpers shared by filters and methods.
enum class Side { left, right, both };
Text strip(Budget& budget, const Text& text, Side side, const Value* characters);
Text replace(Budget& budget, const Text& text, const Text& from, const Text& to,
             std::int64_t count);
Text upper(Budget& budget, const Text& text);
Text lower(Budget& budget, const Text& text);
Text capitalize(Budget& budget, const Text& text);
std::vector<Text> split_lines(const Text& text, bool keep_ends);
Text join(Budget& budget, const Text& separator, std::span<const Text> parts);
// The text of a string; else an error "needs WHAT, not a ...".
const Text& require_text(const Value& value, std::string_view what);

}  // namespace strata::chat::jinja
