#include "chat/jinja/value.h"

#include <utf8proc.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <ctime>

#include "base/decimal.h"
#include "base/json_number.h"

namespace strata::chat::jinja {

namespace {

constexpr std::size_t kIndexedDictSize = 8;

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};

Value string_from_json(std::string_view text) {
  return Value(Text(std::string(text), false));
}

Value large_integer(std::string_view digits) {
  return Value(LargeNumber{std::make_shared<const std::string>(digits)});
}

}  // namespace

namespace {

std::uint64_t thread_milliseconds() {
  std::timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000 +
         static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000;
}

}  // namespace

Budget::Budget(const Limits& limits)
    : limits_(limits), deadline_(thread_milliseconds() + limits.milliseconds) {}

void Budget::look_at_clock() {
  constexpr std::uint64_t kStepsBetween = 1000;
  next_look_ = steps_ + kStepsBetween;
  if (thread_milliseconds() > deadline_) {
    exceeded("milliseconds of computing", limits_.milliseconds);
  }
}

void Budget::exceeded(std::string_view what, std::uint64_t limit) {
  throw Failure{ErrorCode::exhausted,
                fmt::format("the template needs more than {} {}", limit, what), false};
}

// --- Value ---

Value Value::undefined(std::string reason) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(reason))});
}

Value list_from_json(const boost::json::array& json) {
  auto list = std::make_shared<List>();
  list->items_.reserve(json.size());
  for (const auto& item : json) {
    list->items_.push_back(Value::from_json(item));
    list->depth_ = std::max(list->depth_, 1 + list->items_.back().depth());
  }
  return Value(std::shared_ptr<const List>(std::move(list)));
}

Value Value::from_json(const boost::json::value& json) {
  switch (json.kind()) {
    case boost::json::kind::null:
      return none();
    case boost::json::kind::bool_:
      return Value(json.get_bool());
    case boost::json::kind::int64:
      return Value(std::int64_t{json.get_int64()});
    case boost::json::kind::uint64: {
      const std::uint64_t number = json.get_uint64();
      if (std::in_range<std::int64_t>(number)) return Value(static_cast<std::int64_t>(number));
      return large_integer(fmt::format("{}", number));
    }
    case boost::json::kind::double_:
      return Value(json.get_double());
    case boost::json::kind::string:
      return string_from_json(json.get_string());
    case boost::json::kind::array:
      return list_from_json(json.get_array());
    case boost::json::kind::object:
      if (const auto text = long_number(json)) {  // as Python reads it, but never as infinity
        if (text->find_first_of(".eE") == std::string_view::npos) return large_integer(*text);
        const double nearest = nearest_double(*text);
        if (std::isfinite(nearest)) return Value(nearest);
        return Value(LargeNumber{std::make_shared<const std::string>(*text), false});
      }
      break;
  }
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, value] : json.get_object()) {
    dict->set(string_from_json(key), from_json(value));
  }
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

double Value::number() const {
  return std::visit(Overloaded{[](bool v) { return v ? 1.0 : 0.0; }, [](double v) { return v; },
                               [](std::int64_t v) { return static_cast<double>(v); },
                               [](const LargeNumber& v) { return nearest_double(*v.text); },
                               [](const auto&) { return 0.0; }},
                    storage_);
}

const std::string& Value::undefined_reason() const {
  static const std::string unknown = "the value is undefined";
  const auto& reason = std::get<Undefined>(storage_).reason;
  return reason ? *reason : unknown;
}

std::int64_t Value::integer(std::string_view what) const {
  if (const auto* value = std::get_if<std::int64_t>(&storage_)) return *value;
  if (const auto* value = std::get_if<bool>(&storage_)) return *value ? 1 : 0;
  if (is_undefined()) raise("{}", undefined_reason());
  if (is_integer()) raise("{} must be an integer of 64 bits; this one is larger", what);
  raise("{} must be an integer of 64 bits, not '{}'", what, type_name());
}

std::string_view Value::type_name() const {
  return std::visit(
      Overloaded{[](const Undefined&) -> std::string_view { return "Undefined"; },
                 [](const None&) -> std::string_view { return "NoneType"; },
                 [](bool) -> std::string_view { return "bool"; },
                 [](std::int64_t) -> std::string_view { return "int"; },
                 [](const LargeNumber& v) -> std::string_view { return v.whole ? "int" : "float"; },
                 [](double) -> std::string_view { return "float"; },
                 [](const std::shared_ptr<const Text>&) -> std::string_view { return "str"; },
                 [](const std::shared_ptr<const List>& v) -> std::string_view {
                   switch (v->kind()) {
                     case List::Kind::list:
                       return "list";
                     case List::Kind::lazy:
                       return "generator";
                     case List::Kind::view:
                       return "dict view";
                     default:
                       return "tuple";
                   }
                 },
                 [](const std::shared_ptr<const Dict>&) -> std::string_view { return "dict"; },
                 [](const std::shared_ptr<Object>& v) { return v->type_name(); }},
      storage_);
}

bool Value::truthy() const {
  return std::visit(
      Overloaded{[](const Undefined&) { return false; }, [](const None&) { return false; },
                 [](bool v) { return v; }, [](std::int64_t v) { return v != 0; },
                 [](const LargeNumber&) { return true; },
                 [](double v) { return v < 0 || v > 0 || std::isnan(v); },
                 [](const std::shared_ptr<const Text>& v) { return !v->empty(); },
                 [](const std::shared_ptr<const List>& v) {
                   return v->kind() == List::Kind::lazy || !v->items().empty();
                 },
                 [](const std::shared_ptr<const Dict>& v) { return !v->entries().empty(); },
                 [](const std::shared_ptr<Object>&) { return true; }},
      storage_);
}

std::size_t Value::depth() const {
  if (is_list()) return list().depth();
  if (is_dict()) return dict().depth();
  if (is_object()) return object()->depth();
  return 0;
}

// --- containers ---

Value make_list(Budget& budget, std::vector<Value> items, List::Kind kind) {
  budget.items(items.size());
  auto list = std::make_shared<List>();
  for (const Value& item : items) list->depth_ = std::max(list->depth_, 1 + item.depth());
  if (list->depth_ > budget.limits().value_depth) {
    Budget::exceeded("levels of nested values", budget.limits().value_depth);
  }
  list->items_ = std::move(items);
  list->kind_ = kind;
  return Value(std::shared_ptr<const List>(std::move(list)));
}

Value make_dict(Budget& budget, Dict dict) {
  budget.items(dict.entries().size());
  if (dict.depth() > budget.limits().value_depth) {
    Budget::exceeded("levels of nested values", budget.limits().value_depth);
  }
  return Value(std::shared_ptr<const Dict>(std::make_shared<Dict>(std::move(dict))));
}

std::string integer_text(const Value& value) {
  if (const LargeNumber* large = value.large()) return *large->text;
  return fmt::format("{}", value.integer("a number"));
}

std::optional<std::string> canonical_key(const Value& value) {
  if (value.is_string()) return fmt::format("s{}", value.text().bytes());
  if (value.is_none()) return "n";
  if (value.is_number()) {
    if (value.is_integer()) return fmt::format("i{}", integer_text(value));
    const double number = value.number();
    if (number == std::floor(number) && std::abs(number) < 9.2e18) {
      return fmt::format("i{}", static_cast<std::int64_t>(number));
    }
    return fmt::format("f{}", number);
  }
  if (value.is_list() && value.list().kind() == List::Kind::tuple) {
    std::string key = "(";
    for (const Value& item : value.list().items()) {
      const auto part = canonical_key(item);
      if (!part) return std::nullopt;
      key += fmt::format("{}:{}", part->size(), *part);
    }
    return key;
  }
  return std::nullopt;
}

const Value* Dict::find(std::string_view key) const {
  if (!index_.empty()) {
    const auto found = index_.find(fmt::format("s{}", key));
    return found == index_.end() ? nullptr : &entries_[found->second].second;
  }
  for (const auto& [name, value] : entries_) {
    if (name.is_string() && name.text().bytes() == key) return &value;
  }
  return nullptr;
}

std::optional<std::size_t> Dict::position(const Value& key) const {
  const auto canonical = canonical_key(key);
  if (!canonical) raise("a value of type '{}' cannot be a key of a dict", key.type_name());
  if (!index_.empty()) {
    const auto found = index_.find(*canonical);
    return found == index_.end() ? std::nullopt : std::optional(found->second);
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (canonical_key(entries_[i].first) == canonical) return i;
  }
  return std::nullopt;
}

const Value* Dict::find(const Value& key) const {
  if (key.is_string()) return find(key.text().bytes());
  const auto at = position(key);
  return at ? &entries_[*at].second : nullptr;
}

void Dict::set(Value key, Value value) {
  depth_ = std::max({depth_, 1 + value.depth(), 1 + key.depth()});
  if (const auto at = position(key)) {
    entries_[*at].second = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  if (entries_.size() == kIndexedDictSize + 1) {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      index_.emplace(*canonical_key(entries_[i].first), i);
    }
  } else if (entries_.size() > kIndexedDictSize + 1) {
    index_.emplace(*canonical_key(entries_.back().first), entries_.size() - 1);
  }
}

std::optional<Value> Object::attribute(std::string_view) const {
  return std::nullopt;
}

Value Object::call(Evaluator&, Arguments) {
  raise("a '{}' cannot be called", type_name());
}

// --- equality and order ---

namespace {

Decimal decimal_of(const Value& number) {
  if (number.is_integer() || number.large() != nullptr) return Decimal::of(integer_text(number));
  const double value = number.number();
  return value == std::trunc(value) ? Decimal::of_whole(value) : Decimal::shortest(value);
}

std::partial_ordering number_order(Budget& budget, const Value& a, const Value& b) {
  const auto large = [&](const Value& v) {
    if (v.large() != nullptr) budget.text(v.large()->text->size());
    return v.large() != nullptr;
  };
  const auto infinite = [](const Value& v) {
    return v.is_float() && v.large() == nullptr && !std::isfinite(v.number());
  };
  const bool a_large = large(a), b_large = large(b);
  if ((a_large || b_large) && !infinite(a) && !infinite(b)) return decimal_of(a) <=> decimal_of(b);
  if (a.is_float() || b.is_float()) return a.number() <=> b.number();
  return a.integer("a number") <=> b.integer("a number");
}

}  // namespace

bool equal(Budget& budget, const Value& a, const Value& b) {
  budget.step();
  if (a.is_number() && b.is_number()) return number_order(budget, a, b) == 0;
  if (a.is_string() && b.is_string()) {
    budget.text(std::min(a.text().size(), b.text().size()));
    return a.text().bytes() == b.text().bytes();
  }
  if (a.is_undefined() || a.is_none()) return a.storage().index() == b.storage().index();
  if (a.is_list() && b.is_list()) {
    const auto tuple = [](const List& list) {
      return list.kind() == List::Kind::tuple || list.kind() == List::Kind::group;
    };
    if (tuple(a.list()) != tuple(b.list())) return false;
    const auto& left = a.list().items();
    const auto& right = b.list().items();
    return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                      [&](const Value& x, const Value& y) { return equal(budget, x, y); });
  }
  if (a.is_dict() && b.is_dict()) {
    if (a.dict().entries().size() != b.dict().entries().size()) return false;
    for (const auto& [key, value] : a.dict().entries()) {
      const Value* other = b.dict().find(key);
      if (!other || !equal(budget, value, *other)) return false;
    }
    return true;
  }
  return a.is_object() && b.is_object() && a.object() == b.object();
}

int compare(Budget& budget, const Value& a, const Value& b) {
  budget.step();
  if (a.is_number() && b.is_number()) {
    const std::partial_ordering order = number_order(budget, a, b);
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (a.is_string() && b.is_string()) {
    budget.text(std::min(a.text().size(), b.text().size()));
    return a.text().bytes().compare(b.text().bytes());
  }
  if (a.is_list() && b.is_list() && a.type_name() == b.type_name()) {
    const auto& left = a.list().items();
    const auto& right = b.list().items();
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!equal(budget, left[i], right[i])) return compare(budget, left[i], right[i]);
    }
    return left.size() < right.size() ? -1 : left.size() > right.size() ? 1 : 0;
  }
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) raise("{}", value->undefined_reason());
  }
  raise("values of type '{}' and '{}' have no order", a.type_name(), b.type_name());
}

// --- text of values ---

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

namespace {

bool is_printable(std::uint32_t code_point) {
  if (code_point == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

void write_python_string(std::string& out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  std::uint32_t c = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = decode_utf8(text, at, c);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\\' || c == static_cast<unsigned char>(quote)) {
      out += '\\';
      out += static_cast<char>(c);
    } else if (is_printable(c)) {
      out += text.substr(at, length);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += c < 0x10000 ? fmt::format("\\u{:04x}", c) : fmt::format("\\U{:08x}", c);
    }
    at += length;
  }
  out += quote;
}

void write_json_string(std::string& out, std::string_view text, bool ensure_ascii) {
  out += '"';
  std::uint32_t c = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = decode_utf8(text, at, c);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (c < 0x20 || (ensure_ascii && c >= 0x7F && c < 0x10000)) {
          out += fmt::format("\\u{:04x}", c);
        } else if (ensure_ascii && c >= 0x10000) {
          out += fmt::format("\\u{:04x}\\u{:04x}", 0xD7C0 + (c >> 10), 0xDC00 + (c & 0x3FF));
        } else {
          out += text.substr(at, length);
        }
    }
    at += length;
  }
  out += '"';
}

std::string scalar_text(const Value& value) {
  if (value.is_none()) return "None";
  if (value.is_bool()) return value.truthy() ? "True" : "False";
  if (value.is_integer() || value.large() != nullptr) return integer_text(value);
  if (value.is_float()) return float_text(value.number());
  if (value.is_object()) return fmt::format("<{}>", value.object()->type_name());
  return value.is_undefined() ? "Undefined" : "";
}

struct PythonWriter {
  Budget& budget;
  std::string out;
  bool trusted = true;

  void write(const Value& value) {
    budget.step();
    budget.text(out.size() / 64);
    if (value.is_string()) {
      budget.text(value.text().size());
      trusted = trusted && value.text().trusted();
      write_python_string(out, value.text().bytes());
    } else if (value.is_list()) {
      write_list(value.list());
    } else if (value.is_dict()) {
      write_dict(value.dict());
    } else {
      out += scalar_text(value);
    }
    if (out.size() > budget.limits().output_bytes) budget.text(out.size());
  }

  void write_list(const List& list) {
    const bool tuple = list.kind() == List::Kind::tuple || list.kind() == List::Kind::group;
    out += tuple ? '(' : '[';
    for (std::size_t i = 0; i < list.items().size(); ++i) {
      if (i > 0) out += ", ";
      write(list.items()[i]);
    }
    if (tuple && list.items().size() == 1) out += ',';
    out += tuple ? ')' : ']';
  }

  void write_dict(const Dict& dict) {
    out += '{';
    bool first = true;
    for (const auto& [key, value] : dict.entries()) {
      if (!first) out += ", ";
      first = false;
      write(key);
      out += ": ";
      write(value);
    }
    out += '}';
  }
};

struct JsonWriter {
  Budget& budget;
  const JsonStyle& style;
  std::string out;
  bool trusted = true;
  std::size_t level = 0;

  void write(const Value& value) {
    budget.step();
    if (out.size() > budget.limits().output_bytes) budget.text(out.size());
    if (value.is_string()) {
      write_string(value.text());
    } else if (value.is_list()) {
      write_list(value.list());
    } else if (value.is_dict()) {
      write_dict(value.dict());
    } else {
      out += scalar(value);
    }
  }

  void write_string(const Text& text) {
    budget.text(text.size());
    trusted = trusted && text.trusted();
    write_json_string(out, text.bytes(), style.ensure_ascii);
  }

  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is_bool()) return value.truthy() ? "true" : "false";
    if (value.is_undefined()) raise("tojson: {}", value.undefined_reason());
    if (!value.is_number()) raise("tojson: a '{}' has no JSON form", value.type_name());
    if (!value.is_float() || value.large() != nullptr || std::isfinite(value.number()))
      return scalar_text(value);
    if (std::isnan(value.number())) return "NaN";
    return value.number() < 0 ? "-Infinity" : "Infinity";
  }

  void new_line() {
    if (!style.indent) return;
    out += '\n';
    for (std::size_t i = 0; i < level; ++i) out += *style.indent;
  }

  void write_list(const List& list) {
    if (list.kind() == List::Kind::lazy || list.kind() == List::Kind::view) {
      raise("tojson: a generator has no JSON form; use the list filter first");
    }
    if (list.items().empty()) {
      out += "[]";
      return;
    }
    out += '[';
    ++level;
    for (std::size_t i = 0; i < list.items().size(); ++i) {
      if (i > 0) out += style.item_separator;
      new_line();
      write(list.items()[i]);
    }
    --level;
    new_line();
    out += ']';
  }

  void write_dict(const Dict& dict) {
    if (dict.entries().empty()) {
      out += "{}";
      return;
    }
    std::vector<const Dict::Entry*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return compare(budget, a->first, b->first) < 0;
      });
    }
    out += '{';
    ++level;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out += style.item_separator;
      new_line();
      const Value& key = entries[i]->first;
      if (key.is_string()) {
        write_string(key.text());
      } else if (key.is_list()) {
        raise("tojson: keys must be strings, numbers, booleans or none");
      } else {
        out += fmt::format("\"{}\"", scalar(key));
      }
      out += style.key_separator;
      write(entries[i]->second);
    }
    --level;
    new_line();
    out += '}';
  }
};

}  // namespace

Text repr(Budget& budget, const Value& value) {
  PythonWriter writer{budget, {}, true};
  writer.write(value);
  return Text(std::move(writer.out), writer.trusted);
}

Text to_text(Budget& budget, const Value& value) {
  if (value.is_undefined()) return {};
  if (value.is_string()) {
    budget.text(value.text().size());
    return value.text();
  }
  if (value.is_list() && value.list().kind() == List::Kind::lazy) return Text("<generator>", true);
  return repr(budget, value);
}

Text to_json(Budget& budget, const Value& value, const JsonStyle& style) {
  JsonWriter writer{budget, style, {}, true, 0};
  writer.write(value);
  budget.text(writer.out.size());
  return Text(std::move(writer.out), writer.trusted);
}

std::shared_ptr<const List> iterate(Budget& budget, const Value& value) {
  if (value.is_list()) return value.list_pointer();
  std::vector<Value> items;
  if (value.is_dict()) {
    for (const auto& [key, unused] : value.dict().entries()) items.push_back(key);
  } else if (value.is_string()) {
    const Text& text = value.text();
    budget.text(text.size());
    budget.items(count_characters(text.bytes()));
    std::uint32_t code_point = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = at + decode_utf8(text.bytes(), at, code_point);
      items.emplace_back(text.slice(at, end));
      at = end;
    }
  } else if (!value.is_undefined()) {
    raise("a '{}' cannot be iterated", value.type_name());
  }
  return make_list(budget, std::move(items)).list_pointer();
}

}  // namespace strata::chat::jinja
