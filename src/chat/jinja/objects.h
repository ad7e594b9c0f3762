// The objects a template can hold: namespaces, loops, macros and functions.
#pragma once

#include <functional>

#include "chat/jinja/evaluator.h"

namespace strata::chat::jinja {

class Namespace final : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  std::optional<Value> attribute(std::string_view name) const override {
    const Value* value = attributes_.find(name);
    return value ? std::optional(*value) : std::nullopt;
  }
  void set(Budget& budget, std::string_view name, Value value) {
    if (value.depth() >= budget.limits().value_depth) {
      Budget::exceeded("levels of nested values", budget.limits().value_depth);
    }
    attributes_.set(Value::trusted(name), std::move(value));
  }
  void clear() { attributes_ = Dict(); }

 private:
  Dict attributes_;
};

// `loop` inside a for.
class Loop final : public Object, public std::enable_shared_from_this<Loop> {
 public:
  Loop(std::shared_ptr<const List> items, std::size_t depth, const Statement* recursive,
       std::shared_ptr<Scope> scope)
      : items_(std::move(items)), depth_(depth), recursive_(recursive), scope_(std::move(scope)) {}

  std::string_view type_name() const override { return "LoopContext"; }
  std::optional<Value> attribute(std::string_view name) const override;
  bool callable() const override { return recursive_ != nullptr; }
  Value call(Evaluator& evaluator, Arguments arguments) override;
  std::size_t depth() const override { return items_->depth() + 1; }

  std::size_t index = 0;

 private:
  std::shared_ptr<const List> items_;
  std::size_t depth_;
  const Statement* recursive_;
  // Outer scope of the loop; weak, because that scope may hold this object.
  std::weak_ptr<Scope> scope_;
  std::optional<std::string> last_seen_;  // of loop.changed, as repr
};

class Macro final : public Object {
 public:
  Macro(const MacroBody& body, std::shared_ptr<Scope> scope)
      : body_(body), scope_(std::move(scope)) {}
  std::string_view type_name() const override { return "Macro"; }
  std::optional<Value> attribute(std::string_view name) const override {
    return name == "name" ? std::optional(Value::trusted(body_.name)) : std::nullopt;
  }
  bool callable() const override { return true; }
  Value call(Evaluator& evaluator, Arguments arguments) override {
    return evaluator.call_macro(body_, scope_, std::move(arguments));
  }

 private:
  const MacroBody& body_;
  std::shared_ptr<Scope> scope_;
};

// A function of the library, or a method with its value.
class Function final : public Object {
 public:
  using Body = std::function<Value(Evaluator&, const Arguments&)>;
  Function(Body body, std::size_t depth) : body_(std::move(body)), depth_(depth) {}
  std::string_view type_name() const override { return "function"; }
  bool callable() const override { return true; }
  Value call(Evaluator& evaluator, Arguments arguments) override {
    return body_(evaluator, arguments);
  }
  std::size_t depth() const override { return depth_; }

 private:
  Body body_;
  std::size_t depth_;
};

inline Value make_function(Function::Body body, std::size_t depth = 1) {
  return Value(std::shared_ptr<Object>(std::make_shared<Function>(std::move(body), depth)));
}

}  // namespace strata::chat::jinja
