#include "chat/jinja/evaluator.h"

#include <algorithm>

#include "chat/jinja/objects.h"

namespace strata::chat::jinja {

// One level of nested evaluation while it lives.
class Evaluator::Nesting {
 public:
  explicit Nesting(Evaluator& evaluator) : evaluator_(evaluator) {
    evaluator_.budget_.step();
    if (++evaluator_.depth_ > evaluator_.budget_.limits().depth) {
      --evaluator_.depth_;
      Budget::exceeded("levels of nested evaluation", evaluator_.budget_.limits().depth);
    }
  }
  ~Nesting() { --evaluator_.depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Evaluator& evaluator_;
};

namespace {

// Sets a variable for the life of a block, exceptions included.
template <class T>
class Replace {
 public:
  Replace(T& variable, T value) : variable_(variable), old_(std::move(variable)) {
    variable_ = std::move(value);
  }
  ~Replace() { variable_ = std::move(old_); }
  Replace(const Replace&) = delete;
  Replace& operator=(const Replace&) = delete;

 private:
  T& variable_;
  T old_;
};

std::shared_ptr<Scope> child_of(const std::shared_ptr<Scope>& parent) {
  auto scope = std::make_shared<Scope>();
  scope->parent = parent;
  return scope;
}

}  // namespace

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope; scope = scope->parent.get()) {
    for (const auto& [key, value] : scope->variables) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [key, old] : variables) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

Evaluator::Evaluator(const Limits& limits) : budget_(limits), scope_(std::make_shared<Scope>()) {}

Evaluator::~Evaluator() {
  // Macros refer to the scope that holds them, namespaces may refer to themselves.
  for (const auto& scope : macro_scopes_) scope->variables.clear();
  for (const auto& object : namespaces_) static_cast<Namespace&>(*object).clear();
}

Text Evaluator::render(const Block& block,
                       const std::vector<std::pair<std::string, Value>>& variables) {
  for (const auto& [name, value] : variables) scope_->set(name, value);
  Text out;
  out_ = &out;
  run(block);
  out_ = nullptr;
  return out;
}

// --- statements ---

Evaluator::Flow Evaluator::run(const Block& block) {
  for (const auto& statement : block) {
    const Flow flow = run(*statement);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Evaluator::Flow Evaluator::run(const Statement& statement) {
  const Nesting nesting(*this);
  line_ = statement.line;
  switch (statement.kind) {
    case Statement::Kind::text:
      print(statement.value);
      break;
    case Statement::Kind::print:
      print(evaluate(*statement.expression));
      break;
    case Statement::Kind::branch:
      return run_branch(statement);
    case Statement::Kind::loop:
      return run_loop(statement, evaluate(*statement.expression), 0);
    case Statement::Kind::set:
      assign(statement.target, evaluate(*statement.expression));
      break;
    case Statement::Kind::set_block:
      run_set_block(statement);
      break;
    case Statement::Kind::macro:
      scope_->set(statement.macro.name, make_macro(statement.macro));
      break;
    case Statement::Kind::call_block:
      run_call_block(statement);
      break;
    case Statement::Kind::filter_block: {
      const Value text(capture(statement.body));
      const Replace input(block_text_, &text);
      print(evaluate(*statement.filter));
      break;
    }
    case Statement::Kind::with:
      return run_with(statement);
    case Statement::Kind::scope:
      print(Value(capture(statement.body)));
      break;
    case Statement::Kind::break_loop:
      return Flow::break_loop;
    case Statement::Kind::continue_loop:
      return Flow::continue_loop;
  }
  return Flow::normal;
}

Evaluator::Flow Evaluator::run_branch(const Statement& statement) {
  for (const auto& branch : statement.branches) {
    if (evaluate(*branch.condition).truthy()) return run(branch.body);
  }
  return run(statement.otherwise);
}

Evaluator::Flow Evaluator::run_loop(const Statement& statement, const Value& iterable,
                                    std::size_t depth) {
  std::shared_ptr<const List> items = iterate(budget_, iterable);
  const std::shared_ptr<Scope> outer = scope_;
  const Replace restore(scope_, child_of(outer));
  const auto fresh_scope = [&] {
    if (scope_.use_count() == 1) {
      scope_->variables.clear();
    } else {
      scope_ = child_of(outer);
    }
  };
  if (statement.condition) {
    std::vector<Value> kept;
    for (const Value& item : items->items()) {
      budget_.iteration();
      fresh_scope();
      assign(statement.target, item);
      if (evaluate(*statement.condition).truthy()) kept.push_back(item);
    }
    items = make_list(budget_, std::move(kept)).list_pointer();
  }
  fresh_scope();
  if (items->items().empty()) return run(statement.otherwise);
  const auto loop =
      std::make_shared<Loop>(items, depth, statement.recursive ? &statement : nullptr, outer);
  for (std::size_t i = 0; i < items->items().size(); ++i) {
    budget_.iteration();
    fresh_scope();
    loop->index = i;
    scope_->set("loop", Value(std::shared_ptr<Object>(loop)));
    assign(statement.target, items->items()[i]);
    if (run(statement.body) == Flow::break_loop) break;
  }
  return Flow::normal;
}

Value Evaluator::run_recursive_loop(const Statement& loop, const std::shared_ptr<Scope>& scope,
                                    const Value& items, std::size_t depth) {
  const Nesting nesting(*this);
  Text text;
  const Replace<Text*> output(out_, &text);
  const Replace<std::shared_ptr<Scope>> enter(scope_, scope);
  run_loop(loop, items, depth);
  return Value(std::move(text));
}

Text Evaluator::capture(const Block& block) {
  Text text;
  const Replace<Text*> output(out_, &text);
  const Replace enter(scope_, child_of(scope_));
  run(block);
  return text;
}

void Evaluator::run_set_block(const Statement& statement) {
  const Value text(capture(statement.body));
  if (statement.filter) {
    const Replace input(block_text_, &text);
    assign(statement.target, evaluate(*statement.filter));
  } else {
    assign(statement.target, text);
  }
}

void Evaluator::run_call_block(const Statement& statement) {
  const Value caller = make_macro(statement.macro);
  print(evaluate_call(*statement.expression, &caller));
}

Evaluator::Flow Evaluator::run_with(const Statement& statement) {
  // Values are evaluated outside, so `with a = a` sees the outer one.
  const auto inner = child_of(scope_);
  for (const auto& assignment : statement.assignments) {
    Value value = evaluate(*assignment.value);
    const Replace enter(scope_, std::shared_ptr<Scope>(inner));
    assign(assignment.target, value);
  }
  const Replace enter(scope_, std::shared_ptr<Scope>(inner));
  return run(statement.body);
}

Value Evaluator::make_macro(const MacroBody& macro) {
  if (macro_scopes_.empty() || macro_scopes_.back() != scope_) {
    budget_.items(macro_scopes_.size() + 1);
    macro_scopes_.push_back(scope_);
  }
  return Value(std::shared_ptr<Object>(std::make_shared<Macro>(macro, scope_)));
}

Value Evaluator::call_macro(const MacroBody& macro, const std::shared_ptr<Scope>& scope,
                            Arguments arguments) {
  const Nesting nesting(*this);
  const auto inner = child_of(scope);
  const std::size_t count = macro.parameters.size();
  std::vector<Value> extra;
  for (std::size_t i = count; i < arguments.positional.size(); ++i) {
    extra.push_back(arguments.positional[i]);
  }
  if (!extra.empty() && !macro.uses_varargs) {
    raise("macro '{}' takes not more than {} argument(s)", macro.name, count);
  }
  std::vector<bool> given(count, false);
  for (std::size_t i = 0; i < std::min(count, arguments.positional.size()); ++i) {
    inner->set(macro.parameters[i].name, arguments.positional[i]);
    given[i] = true;
  }
  Value caller = Value::undefined("no caller defined");
  Dict named;
  for (auto& [name, value] : arguments.named) {
    std::size_t i = 0;
    while (i < count && macro.parameters[i].name != name) ++i;
    if (i < count) {
      if (given[i]) raise("macro '{}' got two values for argument '{}'", macro.name, name);
      inner->set(macro.parameters[i].name, value);
      given[i] = true;
    } else if (name == "caller" && macro.uses_caller) {
      caller = value;
    } else if (macro.uses_kwargs) {
      named.set(Value::trusted(name), value);
    } else {
      raise("macro '{}' takes no keyword argument '{}'", macro.name, name);
    }
  }
  Text text;
  const Replace<Text*> output(out_, &text);
  const Replace enter(scope_, std::shared_ptr<Scope>(inner));
  for (std::size_t i = 0; i < count; ++i) {
    if (given[i]) continue;
    const auto& parameter = macro.parameters[i];
    scope_->set(parameter.name, parameter.default_value
                                    ? evaluate(*parameter.default_value)
                                    : Value::undefined(fmt::format(
                                          "parameter '{}' was not provided", parameter.name)));
  }
  if (macro.uses_caller) scope_->set("caller", std::move(caller));
  if (macro.uses_varargs) {
    scope_->set("varargs", make_list(budget_, std::move(extra), List::Kind::tuple));
  }
  if (macro.uses_kwargs) scope_->set("kwargs", make_dict(budget_, std::move(named)));
  run(macro.body);
  return Value(std::move(text));
}

void Evaluator::print(const Value& value) {
  const Text text = to_text(budget_, value);
  if (out_->size() + text.size() > budget_.limits().output_bytes) {
    Budget::exceeded("bytes of output", budget_.limits().output_bytes);
  }
  out_->append(text);
}

void Evaluator::assign(const Target& target, const Value& value) {
  if (target.is_tuple) {
    const auto items = iterate(budget_, value);
    if (items->items().size() != target.items.size()) {
      raise("{} values cannot be unpacked into {} names", items->items().size(),
            target.items.size());
    }
    for (std::size_t i = 0; i < target.items.size(); ++i)
      assign(target.items[i], items->items()[i]);
  } else if (target.attribute.empty()) {
    scope_->set(target.name, value);
  } else {
    const Value* object = scope_->find(target.name);
    auto* space =
        object && object->is_object() ? dynamic_cast<Namespace*>(object->object().get()) : nullptr;
    if (!space) raise("'{}' is not a namespace: its attributes cannot be set", target.name);
    space->set(budget_, target.attribute, value);
  }
}

Value Evaluator::new_namespace(std::vector<std::pair<std::string, Value>> attributes) {
  if (namespaces_.size() >= budget_.limits().namespaces) {
    Budget::exceeded("namespaces", budget_.limits().namespaces);
  }
  auto space = std::make_shared<Namespace>();
  for (auto& [name, value] : attributes) space->set(budget_, name, std::move(value));
  namespaces_.push_back(space);
  return Value(std::shared_ptr<Object>(std::move(space)));
}

// --- expressions ---

Value Evaluator::evaluate(const Expression& expression) {
  const Nesting nesting(*this);
  line_ = expression.line;
  const auto child = [&](std::size_t i) { return evaluate(*expression.children[i]); };
  switch (expression.kind) {
    case Expression::Kind::constant:
      return expression.value;
    case Expression::Kind::name:
      return evaluate_name(expression);
    case Expression::Kind::list:
      return make_list(budget_, evaluate_all(expression.children));
    case Expression::Kind::tuple:
      return make_list(budget_, evaluate_all(expression.children), List::Kind::tuple);
    case Expression::Kind::dict:
      return evaluate_dict(expression);
    case Expression::Kind::logical_not:
      return Value(!child(0).truthy());
    case Expression::Kind::negate:
      return negated(budget_, child(0));
    case Expression::Kind::plus: {
      Value value = child(0);
      if (value.is_number() && !value.is_bool()) return value;
      return apply_arithmetic(budget_, Expression::Operator::add, Value(std::int64_t{0}), value);
    }
    case Expression::Kind::logical_and: {
      Value left = child(0);
      return left.truthy() ? child(1) : left;
    }
    case Expression::Kind::logical_or: {
      Value left = child(0);
      return left.truthy() ? left : child(1);
    }
    case Expression::Kind::arithmetic:
      return evaluate_arithmetic(expression);
    case Expression::Kind::concatenate:
      return evaluate_concatenation(expression);
    case Expression::Kind::compare:
      return Value(evaluate_compare(expression));
    case Expression::Kind::conditional:
      if (child(1).truthy()) return child(0);
      if (expression.children[2]) return child(2);
      return Value::undefined("the inline if has no else and its condition is false");
    case Expression::Kind::attribute:
      return attribute(child(0), expression.name);
    case Expression::Kind::subscript: {
      const Value object = child(0);
      return item(object, child(1));
    }
    case Expression::Kind::slice:
      return evaluate_slice(expression);
    case Expression::Kind::call:
      return evaluate_call(expression);
    case Expression::Kind::filter:
      return evaluate_filter(expression);
    case Expression::Kind::test: {
      const Value input = child(0);
      return Value(test(expression.name, input, evaluate_arguments(expression.arguments)));
    }
  }
  return {};
}

Value Evaluator::evaluate_name(const Expression& expression) {
  if (const Value* value = scope_->find(expression.name)) return *value;
  Value function = find_function(expression.name);
  if (!function.is_undefined()) return function;
  return Value::undefined(fmt::format("'{}' is undefined", expression.name));
}

Value Evaluator::evaluate_dict(const Expression& expression) {
  Dict dict;
  for (std::size_t i = 0; i + 1 < expression.children.size(); i += 2) {
    Value key = evaluate(*expression.children[i]);
    dict.set(std::move(key), evaluate(*expression.children[i + 1]));
  }
  return make_dict(budget_, std::move(dict));
}

Value Evaluator::evaluate_arithmetic(const Expression& expression) {
  const Value left = evaluate(*expression.children[0]);
  const Value right = evaluate(*expression.children[1]);
  line_ = expression.line;
  return apply_arithmetic(budget_, expression.operators[0], left, right);
}

Value Evaluator::evaluate_concatenation(const Expression& expression) {
  Text text;
  for (const auto& child : expression.children) {
    const Text part = to_text(budget_, evaluate(*child));
    budget_.text(text.size() + part.size());
    text.append(part);
  }
  return Value(std::move(text));
}

bool Evaluator::evaluate_compare(const Expression& expression) {
  using Operator = Expression::Operator;
  Value left = evaluate(*expression.children[0]);
  for (std::size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(*expression.children[i + 1]);
    bool holds = false;
    switch (expression.operators[i]) {
      case Operator::equal:
        holds = equal(budget_, left, right);
        break;
      case Operator::not_equal:
        holds = !equal(budget_, left, right);
        break;
      case Operator::less:
        holds = compare(budget_, left, right) < 0;
        break;
      case Operator::less_equal:
        holds = compare(budget_, left, right) <= 0;
        break;
      case Operator::greater:
        holds = compare(budget_, left, right) > 0;
        break;
      case Operator::greater_equal:
        holds = compare(budget_, left, right) >= 0;
        break;
      case Operator::in:
        holds = contains(right, left);
        break;
      default:
        holds = !contains(right, left);
        break;
    }
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

bool Evaluator::contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    const std::string& text = container.text().bytes();
    const std::string& part = require_text(item, "a string on the left side of 'in'").bytes();
    budget_.text(text.size());
    budget_.step(text.size() / 256 * (part.size() / 64));
    return text.find(part) != std::string::npos;
  }
  if (container.is_dict()) return container.dict().find(item) != nullptr;
  if (container.is_undefined()) return false;
  const auto items = iterate(budget_, container);
  return std::ranges::any_of(items->items(),
                             [&](const Value& other) { return equal(budget_, other, item); });
}

namespace {

// First index of a slice and the one behind its last, as Python computes them.
std::pair<std::int64_t, std::int64_t> slice_range(std::size_t items, const SliceBounds& bounds) {
  const auto size = static_cast<std::int64_t>(items);
  const std::int64_t step = bounds[2].value_or(1);
  if (step == 0) raise("the step of a slice cannot be zero");
  const std::int64_t lowest = step > 0 ? 0 : -1;
  const std::int64_t highest = step > 0 ? size : size - 1;
  const auto place = [&](std::optional<std::int64_t> bound, std::int64_t otherwise) {
    if (!bound) return otherwise;
    const std::int64_t at = *bound < 0 ? std::max(*bound, -size - 1) + size : *bound;
    return std::clamp(at, lowest, highest);
  };
  return {place(bounds[0], step > 0 ? lowest : highest),
          place(bounds[1], step > 0 ? highest : lowest)};
}

}  // namespace

Value Evaluator::evaluate_slice(const Expression& expression) {
  const Value object = evaluate(*expression.children[0]);
  SliceBounds bounds;
  for (std::size_t i = 0; i < 3; ++i) {
    if (!expression.children[i + 1]) continue;
    const Value bound = evaluate(*expression.children[i + 1]);
    if (!bound.is_none()) bounds[i] = bound.integer("a bound of a slice");
  }
  if (!object.is_string() && !object.is_list()) {
    if (object.is_undefined()) raise("{}", object.undefined_reason());
    raise("a '{}' cannot be sliced", object.type_name());
  }
  if (object.is_string()) return Value(slice_text(object.text(), bounds));
  std::vector<Value> picked;
  for (const std::size_t i : slice_indices(object.list().items().size(), bounds)) {
    picked.push_back(object.list().items()[i]);
  }
  return make_list(budget_, std::move(picked), object.list().kind());
}

Text Evaluator::slice_text(const Text& text, const SliceBounds& bounds) {
  budget_.text(text.size());
  const std::size_t size = count_characters(text.bytes());
  if (bounds[2].value_or(1) == 1) {
    const auto [begin, end] = slice_range(size, bounds);
    const std::size_t from = offset_of_character(text.bytes(), static_cast<std::size_t>(begin));
    const std::size_t to = offset_of_character(text.bytes(), static_cast<std::size_t>(end));
    return from < to ? text.slice(from, to) : Text();
  }
  std::vector<std::size_t> offsets = {0};
  std::uint32_t code_point = 0;
  for (std::size_t at = 0; at < text.size();) {
    at += decode_utf8(text.bytes(), at, code_point);
    offsets.push_back(at);
  }
  Text out;
  for (const std::size_t i : slice_indices(size, bounds)) {
    out.append(text, offsets[i], offsets[i + 1]);
  }
  return out;
}

std::vector<std::size_t> Evaluator::slice_indices(std::size_t size, const SliceBounds& bounds) {
  const auto [begin, end] = slice_range(size, bounds);
  const auto limit = static_cast<std::int64_t>(size) + 1;
  const std::int64_t stride = std::clamp(bounds[2].value_or(1), -limit, limit);
  std::vector<std::size_t> indices;
  for (std::int64_t i = begin; stride > 0 ? i < end : i > end; i += stride) {
    indices.push_back(static_cast<std::size_t>(i));
  }
  budget_.step(indices.size() / 16);
  return indices;
}

std::vector<Value> Evaluator::evaluate_all(const std::vector<ExpressionPtr>& expressions) {
  std::vector<Value> values;
  values.reserve(expressions.size());
  for (const auto& expression : expressions) values.push_back(evaluate(*expression));
  return values;
}

Arguments Evaluator::evaluate_arguments(const std::vector<Argument>& arguments) {
  Arguments out;
  for (const Argument& argument : arguments) {
    Value value = evaluate(*argument.value);
    switch (argument.kind) {
      case Argument::Kind::positional:
        out.positional.push_back(std::move(value));
        break;
      case Argument::Kind::named:
        out.named.emplace_back(argument.name, std::move(value));
        break;
      case Argument::Kind::star: {
        const auto items = iterate(budget_, value);
        for (const Value& item : items->items()) out.positional.push_back(item);
        break;
      }
      case Argument::Kind::double_star:
        if (!value.is_dict()) raise("** needs a mapping, not a '{}'", value.type_name());
        for (const auto& [key, item] : value.dict().entries()) {
          out.named.emplace_back(require_text(key, "strings as keys behind **").bytes(), item);
        }
        break;
    }
  }
  budget_.items(out.positional.size() + out.named.size());
  return out;
}

Value Evaluator::evaluate_call(const Expression& expression, const Value* caller) {
  const Value callee = evaluate(*expression.children[0]);
  Arguments arguments = evaluate_arguments(expression.arguments);
  if (caller) arguments.named.emplace_back("caller", *caller);
  line_ = expression.line;
  return call(callee, std::move(arguments));
}

Value Evaluator::call(const Value& callee, Arguments arguments) {
  const Nesting nesting(*this);
  if (callee.is_undefined()) raise("{}", callee.undefined_reason());
  if (!callee.is_object()) raise("a '{}' cannot be called", callee.type_name());
  return callee.object()->call(*this, std::move(arguments));
}

Value Evaluator::evaluate_filter(const Expression& expression) {
  const Value input = expression.children[0] ? evaluate(*expression.children[0]) : *block_text_;
  const Arguments arguments = evaluate_arguments(expression.arguments);
  line_ = expression.line;
  return filter(expression.name, input, arguments);
}

// --- members ---

namespace {

Value missing(const Value& object, std::string_view name) {
  return Value::undefined(
      fmt::format("a '{}' has no attribute '{}'", object.type_name(), name.substr(0, 100)));
}

// Methods that would change a value, and anything a host could leak through.
bool is_refused(const Value& object, std::string_view name) {
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  static constexpr std::string_view kList[] = {"append", "clear",  "extend",  "insert",
                                               "pop",    "remove", "reverse", "sort"};
  if (name.starts_with("__")) return true;
  if (object.is_dict()) return std::ranges::find(kDict, name) != std::end(kDict);
  return object.is_list() && object.list().kind() == List::Kind::list &&
         std::ranges::find(kList, name) != std::end(kList);
}

Value refused(const Value& object, std::string_view name) {
  return Value::undefined(fmt::format("access to attribute '{}' of a '{}' is not allowed",
                                      name.substr(0, 100), object.type_name()));
}

std::optional<Value> member(const Value& object, std::string_view name) {
  if (is_refused(object, name)) return refused(object, name);
  if (object.is_object()) return object.object()->attribute(name);
  if (object.is_list() && object.list().kind() == List::Kind::group) {
    if (name == "grouper") return object.list().items()[0];
    if (name == "list") return object.list().items()[1];
  }
  return find_method(object, name);
}

}  // namespace

Value Evaluator::attribute(const Value& object, std::string_view name) {
  budget_.step();
  if (object.is_undefined()) raise("{}", object.undefined_reason());
  if (auto found = member(object, name)) return *found;
  if (object.is_dict()) {
    if (const Value* value = object.dict().find(name)) return *value;
  }
  return missing(object, name);
}

Value Evaluator::item(const Value& object, const Value& key) {
  budget_.step();
  if (object.is_undefined()) raise("{}", object.undefined_reason());
  if (object.is_dict()) {
    if (const Value* value = object.dict().find(key)) return *value;
  } else if (object.is_list() && key.is_integer()) {
    const auto& items = object.list().items();
    if (object.list().kind() == List::Kind::lazy || object.list().kind() == List::Kind::view) {
      raise("a '{}' has no index; use the list filter first", object.type_name());
    }
    const auto size = static_cast<std::int64_t>(items.size());
    const std::int64_t at = key.integer("an index");
    if (at >= -size && at < size) return items[static_cast<std::size_t>(at < 0 ? at + size : at)];
  } else if (object.is_string() && key.is_integer()) {
    const Text& text = object.text();
    budget_.text(text.size());
    std::int64_t at = key.integer("an index");
    if (at < 0) at += static_cast<std::int64_t>(count_characters(text.bytes()));
    if (at >= 0) {
      const std::size_t begin = offset_of_character(text.bytes(), static_cast<std::size_t>(at));
      std::uint32_t code_point = 0;
      if (begin < text.size()) {
        return Value(text.slice(begin, begin + decode_utf8(text.bytes(), begin, code_point)));
      }
    }
  }
  if (key.is_string()) {
    if (auto found = member(object, key.text().bytes())) return *found;
    return missing(object, key.text().bytes());
  }
  return Value::undefined(fmt::format("a '{}' has no such element", object.type_name()));
}

}  // namespace strata::chat::jinja
