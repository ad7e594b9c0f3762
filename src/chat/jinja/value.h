// Values of the template language: Python's, as far as chat templates can see them.
//
// Values are immutable (templates run in what Jinja calls an immutable sandbox), so they are shared
// freely and cannot form cycles; the one exception, namespace(), is an Object that the interpreter
// empties at the end of a rendering.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/result.h"
#include "chat/jinja/text.h"

namespace strata::chat::jinja {

// What a rendering may use. Every limit is an `exhausted` error with its number.
struct Limits {
  std::uint64_t steps = 10'000'000;    // evaluated nodes, plus one per 256 bytes of text made
  std::uint64_t milliseconds = 1'000;  // of the thread's CPU time, not counting the last operation
  std::uint64_t iterations = 1'000'000;  // of all loops together
  std::size_t depth = 1200;              // nested evaluations (expressions, blocks, macros)
  std::size_t output_bytes = 32u << 20;  // of the rendered text, and of each string
  std::size_t list_items = 1'000'000;    // of each list, dict or range
  std::size_t value_depth = 400;         // lists in lists; what requests hold has kJsonDepth
  std::size_t namespaces = 10'000;       // namespace objects of one rendering
};

// Thrown inside the interpreter only; render() turns it into a Result.
struct Failure {
  ErrorCode code = ErrorCode::invalid_argument;
  std::string message;
  bool own_words = false;  // raise_exception: the message goes out as it is
};

template <class... Args>
[[noreturn]] void raise(fmt::format_string<Args...> text, Args&&... args) {
  throw Failure{ErrorCode::invalid_argument, fmt::format(text, std::forward<Args>(args)...), false};
}

// Counts work against the limits of one rendering.
class Budget {
 public:
  explicit Budget(const Limits& limits);
  const Limits& limits() const { return limits_; }
  void step(std::uint64_t count = 1) {
    steps_ += count;
    if (steps_ > limits_.steps) exceeded("evaluation steps", limits_.steps);
    if (steps_ >= next_look_) look_at_clock();
  }
  void iteration() {
    if (++iterations_ > limits_.iterations) exceeded("loop iterations", limits_.iterations);
  }
  // Text of that size is about to be made or scanned.
  void text(std::size_t bytes) {
    if (bytes > limits_.output_bytes) exceeded("bytes in one string", limits_.output_bytes);
    step(bytes / 256);
  }
  void items(std::size_t count) {
    if (count > limits_.list_items) exceeded("items in one list", limits_.list_items);
    step(count / 16);
  }
  [[noreturn]] static void exceeded(std::string_view what, std::uint64_t limit);

 private:
  void look_at_clock();

  Limits limits_;
  std::uint64_t deadline_ = 0;  // milliseconds of this thread's CPU clock
  std::uint64_t steps_ = 0;
  std::uint64_t next_look_ = 0;
  std::uint64_t iterations_ = 0;
};

class Value;
class List;
class Dict;
class Object;

// A name or member that is not there. Printing gives nothing, using it is an error with `reason`.
struct Undefined {
  std::shared_ptr<const std::string> reason;
};
struct None {};
// A number that neither 64 bits with a sign nor a double holds, as JSON writes it: a whole one as
// its digits, without zeros before them, or one beyond 1.8e308 with a point or an exponent, which
// is a float whose text is not that of infinity.
struct LargeNumber {
  std::shared_ptr<const std::string> text;
  bool whole = true;
};

class Value {
 public:
  using Storage = std::variant<Undefined, None, bool, std::int64_t, LargeNumber, double,
                               std::shared_ptr<const Text>, std::shared_ptr<const List>,
                               std::shared_ptr<const Dict>, std::shared_ptr<Object>>;

  Value() = default;  // undefined
  template <class T>
    requires std::constructible_from<Storage, T>
  Value(T value) : storage_(std::move(value)) {}  // NOLINT: a value is a value
  Value(Text text) : storage_(std::make_shared<const Text>(std::move(text))) {}  // NOLINT

  static Value none() { return Value(None{}); }
  static Value undefined(std::string reason);
  static Value integer(std::size_t value) { return Value(static_cast<std::int64_t>(value)); }
  static Value trusted(std::string_view text) { return Value(Text(std::string(text), true)); }
  // A value of the conversation: its strings and keys are untrusted.
  static Value from_json(const boost::json::value& json);

  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  bool is_bool() const { return is<bool>(); }
  bool is_string() const { return is<std::shared_ptr<const Text>>(); }
  bool is_list() const { return is<std::shared_ptr<const List>>(); }
  bool is_dict() const { return is<std::shared_ptr<const Dict>>(); }
  bool is_object() const { return is<std::shared_ptr<Object>>(); }
  // Whole numbers and booleans, as Python's int.
  bool is_integer() const {
    const LargeNumber* held = large();
    return is_bool() || is<std::int64_t>() || (held != nullptr && held->whole);
  }
  bool is_float() const {
    const LargeNumber* held = large();
    return is<double>() || (held != nullptr && !held->whole);
  }
  bool is_number() const { return is_integer() || is_float(); }

  // The following require the matching is_...().
  const Text& text() const { return *std::get<std::shared_ptr<const Text>>(storage_); }
  const List& list() const { return *std::get<std::shared_ptr<const List>>(storage_); }
  const std::shared_ptr<const List>& list_pointer() const {
    return std::get<std::shared_ptr<const List>>(storage_);
  }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(storage_); }
  const std::shared_ptr<Object>& object() const {
    return std::get<std::shared_ptr<Object>>(storage_);
  }
  const LargeNumber* large() const { return std::get_if<LargeNumber>(&storage_); }
  double number() const;
  const std::string& undefined_reason() const;
  // An integer that fits 64 bits with a sign; others fail, saying that `what` must be one.
  std::int64_t integer(std::string_view what) const;

  const Storage& storage() const { return storage_; }
  // Python's name of the type: 'str', 'dict', ...
  std::string_view type_name() const;
  bool truthy() const;
  // Levels of lists and dicts inside, itself included.
  std::size_t depth() const;

 private:
  template <class T>
  bool is() const {
    return std::holds_alternative<T>(storage_);
  }
  Storage storage_;
};

class List {
 public:
  // `lazy` is what Jinja's filters give as a generator: iterable and always true, without length.
  // `view` is dict.keys() and its like: it has a length but no index.
  enum class Kind { list, tuple, lazy, view, group };

  const std::vector<Value>& items() const { return items_; }
  Kind kind() const { return kind_; }
  std::size_t depth() const { return depth_; }

 private:
  friend Value make_list(Budget&, std::vector<Value>, Kind);
  friend Value list_from_json(const boost::json::array&);
  std::vector<Value> items_;
  Kind kind_ = Kind::list;
  std::size_t depth_ = 1;
};

// Keys are strings, numbers, booleans, none or tuples of them; their order is kept.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;
  const std::vector<Entry>& entries() const { return entries_; }
  const Value* find(std::string_view key) const;
  const Value* find(const Value& key) const;
  std::size_t depth() const { return depth_; }

  // While it is being made. A second value of a key replaces the first, in place.
  void set(Value key, Value value);

 private:
  std::optional<std::size_t> position(const Value& key) const;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> index_;  // by canonical key, of larger dicts
  std::size_t depth_ = 1;
};

Value make_list(Budget& budget, std::vector<Value> items, List::Kind kind = List::Kind::list);
Value make_dict(Budget& budget, Dict dict);

// Positional and named arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Evaluator;

// Namespaces, loops, macros, functions and bound methods.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  virtual std::optional<Value> attribute(std::string_view name) const;
  virtual bool callable() const { return false; }
  virtual Value call(Evaluator& evaluator, Arguments arguments);
  virtual std::size_t depth() const { return 1; }
};

// --- Python's operations. They charge the budget per node visited. ---

bool equal(Budget& budget, const Value& a, const Value& b);
// Negative, zero or positive; types without an order are an error.
int compare(Budget& budget, const Value& a, const Value& b);
// Which text tells hashable keys apart; nothing for values that cannot be keys.
std::optional<std::string> canonical_key(const Value& value);

// str(value); undefined gives nothing.
Text to_text(Budget& budget, const Value& value);
// repr(value). A container that holds an untrusted string is untrusted as a whole.
Text repr(Budget& budget, const Value& value);
std::string float_text(double value);
std::string integer_text(const Value& value);  // of a whole number or boolean, and any large one

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // of one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// json.dumps(value). Untrusted as a whole if any string or key inside is.
Text to_json(Budget& budget, const Value& value, const JsonStyle& style);

// The items a for loop visits: items of lists, keys of dicts, characters of strings.
std::shared_ptr<const List> iterate(Budget& budget, const Value& value);

}  // namespace strata::chat::jinja
