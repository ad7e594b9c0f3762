// Global functions of templates, loop objects, and how arguments find their parameters.
#include <algorithm>
#include <ctime>
#include <map>

#include "chat/jinja/objects.h"

namespace strata::chat::jinja {

std::vector<const Value*> bind(std::string_view function, const Arguments& arguments,
                               std::span<const std::string_view> names, std::size_t required) {
  if (arguments.positional.size() > names.size()) {
    raise("{} takes not more than {} argument(s), not {}", function, names.size(),
          arguments.positional.size());
  }
  std::vector<const Value*> bound(names.size(), nullptr);
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    bound[i] = &arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    const auto at = static_cast<std::size_t>(std::ranges::find(names, name) - names.begin());
    if (at == names.size()) raise("{} takes no argument '{}'", function, name);
    if (bound[at]) raise("{} got two values for '{}'", function, name);
    bound[at] = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!bound[i]) raise("{} needs the argument '{}'", function, names[i]);
  }
  return bound;
}

// --- loop ---

std::optional<Value> Loop::attribute(std::string_view name) const {
  const auto& items = items_->items();
  const std::size_t count = items.size();
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(count - index);
  if (name == "revindex0") return Value::integer(count - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == count);
  if (name == "length") return Value::integer(count);
  if (name == "depth") return Value::integer(depth_ + 1);
  if (name == "depth0") return Value::integer(depth_);
  if (name == "previtem") {
    return index > 0 ? items[index - 1] : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < count ? items[index + 1] : Value::undefined("there is no next item");
  }
  const auto self = std::const_pointer_cast<Loop>(shared_from_this());
  if (name == "cycle") {
    return make_function(
        [self](Evaluator&, const Arguments& arguments) {
          if (arguments.positional.empty()) raise("loop.cycle needs values");
          return arguments.positional[self->index % arguments.positional.size()];
        },
        depth() + 1);
  }
  if (name == "changed") {
    return make_function(
        [self](Evaluator& evaluator, const Arguments& arguments) {
          std::string seen;
          for (const Value& value : arguments.positional) {
            seen += repr(evaluator.budget(), value).bytes() + ',';
          }
          evaluator.budget().text(seen.size());
          const bool changed = self->last_seen_ != seen;
          self->last_seen_ = std::move(seen);
          return Value(changed);
        },
        depth() + 1);
  }
  return std::nullopt;
}

Value Loop::call(Evaluator& evaluator, Arguments arguments) {
  if (!recursive_) raise("the loop is not marked 'recursive' and cannot be called");
  const auto scope = scope_.lock();
  if (!scope) raise("a loop cannot be called after it has ended");
  const auto bound = bind("loop", arguments, {"iterable"}, 1);
  return evaluator.run_recursive_loop(*recursive_, scope, *bound[0], depth_ + 1);
}

// --- functions ---

namespace {

Value make_range(Evaluator& evaluator, const Arguments& arguments) {
  const auto bound = bind("range", arguments, {"start", "stop", "step"}, 1);
  std::int64_t start = 0;
  std::int64_t stop = bound[0]->integer("a bound of range");
  if (bound[1]) {
    start = stop;
    stop = bound[1]->integer("a bound of range");
  }
  const std::int64_t step = bound[2] ? bound[2]->integer("the step of range") : 1;
  if (step == 0) raise("the step of range cannot be zero");
  std::vector<Value> items;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    items.emplace_back(i);
    if (items.size() > evaluator.budget().limits().list_items) {
      evaluator.budget().items(items.size());
    }
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return make_list(evaluator.budget(), std::move(items));
}

// dict(mapping or pairs, name=value, ...), and the same for namespace().
Dict collect(Evaluator& evaluator, std::string_view function, const Arguments& arguments) {
  if (arguments.positional.size() > 1) raise("{} takes one positional argument", function);
  Dict dict;
  if (!arguments.positional.empty()) {
    const Value& first = arguments.positional[0];
    if (first.is_dict()) {
      for (const auto& [key, value] : first.dict().entries()) dict.set(key, value);
    } else {
      const auto pairs = iterate(evaluator.budget(), first);
      for (const Value& pair : pairs->items()) {
        const auto parts = iterate(evaluator.budget(), pair);
        if (parts->items().size() != 2) raise("{} needs pairs of key and value", function);
        dict.set(parts->items()[0], parts->items()[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(Value::trusted(name), value);
  return dict;
}

Value new_dict(Evaluator& evaluator, const Arguments& arguments) {
  return make_dict(evaluator.budget(), collect(evaluator, "dict", arguments));
}

Value new_namespace(Evaluator& evaluator, const Arguments& arguments) {
  const Dict dict = collect(evaluator, "namespace", arguments);
  std::vector<std::pair<std::string, Value>> attributes;
  for (const auto& [key, value] : dict.entries()) {
    attributes.emplace_back(require_text(key, "strings as names of a namespace").bytes(), value);
  }
  return evaluator.new_namespace(std::move(attributes));
}

Value raise_exception(Evaluator& evaluator, const Arguments& arguments) {
  const auto bound = bind("raise_exception", arguments, {"message"}, 1);
  throw Failure{ErrorCode::invalid_argument, to_text(evaluator.budget(), *bound[0]).bytes(), true};
}

Value strftime_now(Evaluator&, const Arguments& arguments) {
  const auto bound = bind("strftime_now", arguments, {"format"}, 1);
  const Text& format = require_text(*bound[0], "a string as the format of strftime_now");
  if (format.size() > 200) raise("strftime_now's format has more than 200 bytes");
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  char buffer[4096];
  const std::size_t size = std::strftime(buffer, sizeof buffer, format.bytes().c_str(), &local);
  return Value(Text(std::string(buffer, size), format.trusted()));
}

class Joiner final : public Object {
 public:
  explicit Joiner(Text separator) : separator_(std::move(separator)) {}
  std::string_view type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  Value call(Evaluator&, Arguments) override {
    return std::exchange(used_, true) ? Value(separator_) : Value::trusted("");
  }

 private:
  Text separator_;
  bool used_ = false;
};

class Cycler final : public Object {
 public:
  explicit Cycler(std::shared_ptr<const List> items) : items_(std::move(items)) {}
  std::string_view type_name() const override { return "Cycler"; }
  std::size_t depth() const override { return items_->depth() + 1; }
  std::optional<Value> attribute(std::string_view name) const override {
    if (name == "current") return items_->items()[*at_];
    if (name != "next" && name != "reset") return std::nullopt;
    return make_function(
        [items = items_, at = at_, next = name == "next"](Evaluator&, const Arguments&) -> Value {
          const std::size_t now = std::exchange(*at, next ? (*at + 1) % items->items().size() : 0);
          return next ? items->items()[now] : Value::none();
        },
        depth() + 1);
  }

 private:
  std::shared_ptr<const List> items_;
  std::shared_ptr<std::size_t> at_ = std::make_shared<std::size_t>(0);
};

Value new_joiner(Evaluator& evaluator, const Arguments& arguments) {
  const auto bound = bind("joiner", arguments, {"sep"});
  Text separator = bound[0] ? to_text(evaluator.budget(), *bound[0]) : Text(", ", true);
  return Value(std::shared_ptr<Object>(std::make_shared<Joiner>(std::move(separator))));
}

Value new_cycler(Evaluator& evaluator, const Arguments& arguments) {
  if (arguments.positional.empty()) raise("cycler needs at least one value");
  const Value items = make_list(evaluator.budget(), arguments.positional);
  return Value(std::shared_ptr<Object>(std::make_shared<Cycler>(items.list_pointer())));
}

}  // namespace

Value find_function(std::string_view name) {
  using Body = Value (*)(Evaluator&, const Arguments&);
  static const std::map<std::string_view, Body> functions = {
      {"range", make_range},          {"dict", new_dict},
      {"namespace", new_namespace},   {"raise_exception", raise_exception},
      {"strftime_now", strftime_now}, {"joiner", new_joiner},
      {"cycler", new_cycler},
  };
  const auto found = functions.find(name);
  return found == functions.end() ? Value() : make_function(found->second);
}

}  // namespace strata::chat::jinja
