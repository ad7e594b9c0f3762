// Filters: the functions behind `|`. What Jinja gives as a generator is a lazy list here.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/json_number.h"
#include "chat/jinja/objects.h"

namespace strata::chat::jinja {

namespace {

using Filter = Value (*)(Evaluator&, const Value&, const Arguments&);

const Value* given(const Value* value) {
  return value && !value->is_none() ? value : nullptr;
}
bool flag(const Value* value, bool otherwise = false) {
  return value ? value->truthy() : otherwise;
}
Value lazy(Evaluator& e, std::vector<Value> items) {
  return make_list(e.budget(), std::move(items), List::Kind::lazy);
}
const std::vector<Value>& items_of(std::shared_ptr<const List>& keep, Evaluator& e,
                                   const Value& value) {
  keep = iterate(e.budget(), value);
  return keep->items();
}

// "a.b.0": members by name or index, from the outside in.
Value follow(Evaluator& e, Value value, std::string_view path) {
  while (true) {
    const std::size_t dot = path.find('.');
    const std::string_view part = path.substr(0, dot);
    const bool number = !part.empty() && part.size() < 10 &&
                        part.find_first_not_of("0123456789") == std::string_view::npos;
    value = e.item(
        value, number ? Value(std::int64_t{std::stol(std::string(part))}) : Value::trusted(part));
    if (dot == std::string_view::npos) return value;
    path.remove_prefix(dot + 1);
  }
}

Value follow(Evaluator& e, const Value& value, const Value& path) {
  if (path.is_integer()) return e.item(value, path);
  return follow(e, value, require_text(path, "an attribute as a string").bytes());
}

// Sorting and comparing ignore case unless told otherwise.
Value comparison_key(Evaluator& e, const Value& value, const Value* attribute,
                     bool case_sensitive) {
  Value key = given(attribute) ? follow(e, value, *attribute) : value;
  if (!case_sensitive && key.is_string()) return Value(lower(e.budget(), key.text()));
  return key;
}

// --- text ---

Value filter_trim(Evaluator& e, const Value& v, const Arguments& a) {
  const auto bound = bind("trim", a, {"chars"});
  return Value(strip(e.budget(), to_text(e.budget(), v), Side::both, bound[0]));
}

template <Text (*operation)(Budget&, const Text&)>
Value filter_text(Evaluator& e, const Value& v, const Arguments& a) {
  bind("the filter", a, {});
  return Value(operation(e.budget(), to_text(e.budget(), v)));
}

// Jinja's own title: words begin behind white space and - ( { [ <.
Text title(Budget& budget, const Text& text) {
  Text out;
  std::uint32_t c = 0;
  std::size_t word = 0;
  const auto flush = [&](std::size_t end) {
    if (end > word) out.append(capitalize(budget, text.slice(word, end)));
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t next = at + decode_utf8(text.bytes(), at, c);
    if (is_space(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) !=
                                        std::string_view::npos)) {
      flush(at);
      out.append(text, at, next);
      word = next;
    }
    at = next;
  }
  flush(text.size());
  return out;
}

Text escape(Budget& budget, const Text& text) {
  static constexpr std::string_view kFrom = "&<>\"'";
  static constexpr std::string_view kTo[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
  Text out;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t found = std::min(text.bytes().find_first_of(kFrom, at), text.size());
    out.append(text, at, found);
    if (found == text.size()) break;
    out.append(kTo[kFrom.find(text.bytes()[found])], text.trusted(found, found + 1));
    at = found + 1;
  }
  budget.text(out.size());
  return out;
}

Value filter_replace(Evaluator& e, const Value& v, const Arguments& a) {
  const auto bound = bind("replace", a, {"old", "new", "count"}, 2);
  Budget& budget = e.budget();
  return Value(replace(budget, to_text(budget, v), to_text(budget, *bound[0]),
                       to_text(budget, *bound[1]),
                       given(bound[2]) ? bound[2]->integer("the count") : -1));
}

Value filter_indent(Evaluator& e, const Value& v, const Arguments& a) {
  const auto bound = bind("indent", a, {"width", "first", "blank"});
  Text indent(std::string(4, ' '), true);
  if (bound[0] && bound[0]->is_string()) {
    indent = bound[0]->text();
  } else if (bound[0]) {
    const std::int64_t width = std::max<std::int64_t>(0, bound[0]->integer("the width"));
    e.budget().text(static_cast<std::size_t>(width));
    indent = Text(std::string(static_cast<std::size_t>(width), ' '), true);
  }
  Text source = require_text(v, "a string to indent");
  source.append("\n", true);
  const std::vector<Text> lines = split_lines(source, false);
  Text out;
  if (flag(bound[1])) out.append(indent);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      out.append("\n", true);
      if (flag(bound[2]) || !lines[i].empty()) out.append(indent);
    }
    out.append(lines[i]);
    if (out.size() > e.budget().limits().output_bytes) e.budget().text(out.size());
  }
  e.budget().text(out.size());
  return Value(std::move(out));
}

Value filter_join(Evaluator& e, const Value& v, const Arguments& a) {
  const auto bound = bind("join", a, {"d", "attribute"});
  std::shared_ptr<const List> keep;
  std::vector<Text> parts;
  std::size_t total = 0;
  for (const Value& item : items_of(keep, e, v)) {
    parts.push_back(to_text(e.budget(), given(bound[1]) ? follow(e, item, *bound[1]) : item));
    total += parts.back().size();
    if (total > e.budget().limits().output_bytes) e.budget().text(total);
  }
  return Value(join(e.budget(), bound[0] ? to_text(e.budget(), *bound[0]) : Text(), parts));
}

Value filter_format(Evaluator& e, const Value& v, const Arguments& a) {
  const Text format = to_text(e.budget(), v);
  if (!a.named.empty()) {
    if (!a.positional.empty()) raise("format takes positional or named values, not both");
    Dict dict;
    for (const auto& [name, value] : a.named) dict.set(Value::trusted(name), value);
    return Value(format_percent(e.budget(), format, make_dict(e.budget(), std::move(dict))));
  }
  return Value(
      format_percent(e.budget(), format, make_list(e.budget(), a.positional, List::Kind::tuple)));
}

Value filter_wordcount(Evaluator& e, const Value& v, const Arguments&) {
  const Text text = to_text(e.budget(), v);
  std::size_t words = 0;
  bool in_word = false;
  std::uint32_t c = 0;
  for (std::size_t at = 0; at < text.size();) {
    at += decode_utf8(text.bytes(), at, c);
    const bool part = c == '_' || is_letter(c) || is_number(c);
    if (part && !in_word) ++words;
    in_word = part;
  }
  return Value::integer(words);
}

Value filter_length(Evaluator& e, const Value& v, const Arguments&);

Value filter_truncate(Evaluator& e, const Value& v, const Arguments& a) {
  const auto bound = bind("truncate", a, {"length", "killwords", "end", "leeway"});
  if (v.is_undefined()) return v;
  const std::int64_t length = bound[0] ? bound[0]->integer("the length") : 255;
  const bool short_list =
      (v.is_list() || v.is_dict()) && filter_length(e, v, {}).integer("the length") <= length;
  if (short_list) return v;
  const Text& text = require_text(v, "a string to truncate");
  const std::int64_t leeway = given(bound[3]) ? bound[3]->integer("the leeway") : 5;
  const Text end = bound[2] ? to_text(e.budget(), *bound[2]) : Text("...", true);
  const auto end_size = static_cast<std::int64_t>(count_characters(end.bytes()));
  if (length < end_size || leeway < 0 || length > (std::int64_t{1} << 40)) {
    raise("truncate needs a length of at least {} and a leeway of at least 0", end_size);
  }
  if (static_cast<std::int64_t>(count_characters(text.bytes())) <=
      length + std::min<std::int64_t>(leeway, std::int64_t{1} << 40)) {
    return Value(text);
  }
  Text out =
      text.slice(0, offset_of_character(text.bytes(), static_cast<std::size_t>(length - end_size)));
  if (!flag(bound[1])) {
    const std::size_t space = out.bytes().rfind(' ');
    if (space != std::string::npos) out = out.slice(0, space);
  }
  out.append(end);
  return Value(std::move(out));
}

Value filter_center(Evaluator& e, const Value& v, const Arguments& a) {
  const auto bound = bind("center", a, {"width"});
  const Value width = bound[0] ? *bound[0] : Value(std::int64_t{80});
  const auto method = find_method(Value(to_text(e.budget(), v)), "center");
  return e.call(*method, {{width}, {}});
}

Value filter_tojson(Evaluator& e, const Value& v, const Arguments& a) {
  const auto bound = bind("tojson", a, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = flag(bound[0]);
  style.sort_keys = flag(bound[3]);
  if (given(bound[1])) {
    if (bound[1]->is_string()) {
      style.indent = bound[1]->text().bytes();
    } else {
      const std::int64_t width = bound[1]->integer("the indent");
      if (width > 1000) raise("an indent of {} is above 1000", width);
      style.indent = std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
    }
    style.item_separator.assign(1, ',');  // = ","; draws a false -Wrestrict from g++ 12
  }
  if (given(bound[2])) {
    const auto pair = iterate(e.budget(), *bound[2]);
    if (pair->items().size() != 2) raise("separators must be a pair of strings");
    style.item_separator = require_text(pair->items()[0], "a separator as a string").bytes();
    style.key_separator = require_text(pair->items()[1], "a separator as a string").bytes();
  }
  return Value(to_json(e.budget(), v, style));
}

// --- numbers ---

bool parse_whole(std::string_view text, std::int64_t base, std::int64_t& out) {
  bool negative = false;
  std::size_t i = 0;
  if (i < text.size() && (text[i] == '-' || text[i] == '+')) negative = text[i++] == '-';
  const auto prefix = [&](char letter) {
    return text.size() > i + 1 && text[i] == '0' && (text[i + 1] | 0x20) == letter;
  };
  if ((base == 16 || base == 0) && prefix('x')) {
    i += 2;
    base = 16;
  } else if ((base == 8 || base == 0) && prefix('o')) {
    i += 2;
    base = 8;
  } else if ((base == 2 || base == 0) && prefix('b')) {
    i += 2;
    base = 2;
  }
  if (base == 0) base = 10;
  if (i >= text.size() || base < 2 || base > 36) return false;
  out = 0;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '_') continue;
    const int digit = c >= '0' && c <= '9'                     ? c - '0'
                      : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10
                                                               : 99;
    if (digit >= base || __builtin_mul_overflow(out, base, &out) ||
        __builtin_sub_overflow(out, std::int64_t{digit}, &out)) {
      return false;
    }
  }
  return negative || !__builtin_sub_overflow(std::int64_t{0}, out, &out);
}

bool parse_float(const std::string& text, double& out) {
  if (text.empty() || text.size() > 1000) return false;
  char* end = nullptr;
  if (text.find_first_of("xX") != std::string::npos) return false;
  out = std::strtod(text.c_str(), &end);
  return end == text.c_str() + text.size();
}

Value whole(double number, const Value& otherwise) {
  if (!(std::abs(number) < 9.2e18)) return otherwise;
  return Value(static_cast<std::int64_t>(number));
}

Value filter_int(Evaluator& e, const Value& v, const Arguments& a) {
  const auto bound = bind("int", a, {"default", "base"});
  const Value otherwise = bound[0] ? *bound[0] : Value(std::int64_t{0});
  if (v.is_undefined()) raise("{}", v.undefined_reason());
  if (v.is_float()) return whole(v.number(), otherwise);
  if (v.is_bool()) return Value(std::int64_t{v.truthy() ? 1 : 0});
  if (v.is_number()) return v;
  if (!v.is_string()) return otherwise;
  const std::string text = strip(e.budget(), v.text(), Side::both, nullptr).bytes();
  std::int64_t number = 0;
  if (parse_whole(text, bound[1] ? bound[1]->integer("the base") : 10, number)) {
    return Value(number);
  }
  const auto large = parse_json_exact(text, "the number");
  if (large && long_number(*large)) {
    const Value value = Value::from_json(*large);
    if (value.is_integer()) return value;
  }
  double real = 0;
  return parse_float(text, real) ? whole(real, otherwise) : otherwise;
}

Value filter_float(Evaluator& e, const Value& v, const Arguments& a) {
  const auto bound = bind("float", a, {"default"});
  if (v.is_undefined()) raise("{}", v.undefined_reason());
  double number = 0;
  if (v.is_float()) return v;
  if (v.is_number()) return Value(v.number());
  if (v.is_string() &&
      parse_float(strip(e.budget(), v.text(), Side::both, nullptr).bytes(), number)) {
    return Value(number);
  }
  return bound[0] ? *bound[0] : Value(0.0);
}

Value filter_abs(Evaluator& e, const Value& v, const Arguments&) {
  if (v.is_undefined()) raise("{}", v.undefined_reason());
  if (!v.is_number()) raise("abs needs a number, not a '{}'", v.type_name());
  if (v.is_float() && v.large() == nullptr) return Value(std::abs(v.number()));
  if (compare(e.budget(), v, Value(std::int64_t{0})) >= 0 && !v.is_bool()) return v;
  return v.is_bool() ? Value(v.integer("a number")) : negated(e.budget(), v);
}

Value filter_round(Evaluator&, const Value& v, const Arguments& a) {
  const auto bound = bind("round", a, {"precision", "method"});
  const std::int64_t precision = bound[0] ? bound[0]->integer("the precision") : 0;
  const std::string method =
      bound[1] ? require_text(*bound[1], "a method as a string").bytes() : "common";
  if (precision < -300 || precision > 300) raise("a precision of {} is out of range", precision);
  if (v.is_undefined()) raise("{}", v.undefined_reason());
  if (!v.is_number()) raise("round needs a number, not a '{}'", v.type_name());
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value(std::ceil(v.number() * scale) / scale);
  if (method == "floor") return Value(std::floor(v.number() * scale) / scale);
  if (method != "common") raise("the method of round must be common, ceil or floor");
  if (v.is_integer() && precision >= 0) return v.is_bool() ? Value(v.integer("a number")) : v;
  if (v.is_integer()) return whole(std::nearbyint(v.number() * scale) / scale, v);
  if (precision < 0) return Value(std::nearbyint(v.number() * scale) / scale);
  return Value(std::stod(fmt::format("{:.{}f}", v.number(), static_cast<int>(precision))));
}

// --- containers ---

Value filter_length(Evaluator& e, const Value& v, const Arguments&) {
  if (v.is_undefined()) return Value(std::int64_t{0});
  if (v.is_string()) {
    e.budget().text(v.text().size());
    return Value::integer(count_characters(v.text().bytes()));
  }
  if (v.is_dict()) return Value::integer(v.dict().entries().size());
  if (v.is_list() && v.list().kind() != List::Kind::lazy) {
    return Value::integer(v.list().items().size());
  }
  raise("a '{}' has no length{}", v.type_name(), v.is_list() ? "; use the list filter first" : "");
}

Value filter_first(Evaluator& e, const Value& v, const Arguments&) {
  const auto items = iterate(e.budget(), v);
  return items->items().empty() ? Value::undefined("there is no first item")
                                : items->items().front();
}

Value filter_last(Evaluator& e, const Value& v, const Arguments&) {
  if (v.is_list() && v.list().kind() == List::Kind::lazy) {
    raise("a generator has no last item; use the list filter first");
  }
  const auto items = iterate(e.budget(), v);
  return items->items().empty() ? Value::undefined("there is no last item") : items->items().back();
}

Value filter_list(Evaluator& e, const Value& v, const Arguments&) {
  return make_list(e.budget(), iterate(e.budget(), v)->items());
}

Value filter_items(Evaluator& e, const Value& v, const Arguments&) {
  if (v.is_undefined()) return lazy(e, {});
  if (!v.is_dict()) raise("items needs a mapping, not a '{}'", v.type_name());
  const auto pairs = iterate(e.budget(), e.call(*find_method(v, "items"), {}));
  return lazy(e, pairs->items());
}

Value filter_reverse(Evaluator& e, const Value& v, const Arguments&) {
  const auto items = iterate(e.budget(), v);
  if (!v.is_string()) return lazy(e, {items->items().rbegin(), items->items().rend()});
  Text out;
  for (auto i = items->items().rbegin(); i != items->items().rend(); ++i) out.append(i->text());
  return Value(std::move(out));
}

// Several keys are compared as Python compares lists: equal ones need no order.
std::vector<Value> sorted(Evaluator& e, const std::vector<Value>& items,
                          const std::vector<std::vector<Value>>& keys, bool reverse,
                          bool as_lists = false) {
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Descending order keeps equal items in their order, as Python's sort does.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    for (std::size_t k = 0; k < keys[a].size(); ++k) {
      if (as_lists && equal(e.budget(), keys[a][k], keys[b][k])) continue;
      const int order_of = compare(e.budget(), keys[a][k], keys[b][k]);
      if (order_of != 0) return reverse ? order_of > 0 : order_of < 0;
    }
    return false;
  });
  std::vector<Value> out;
  for (const std::size_t i : order) out.push_back(items[i]);
  return out;
}

Value filter_sort(Evaluator& e, const Value& v, const Arguments& a) {
  const auto bound = bind("sort", a, {"reverse", "case_sensitive", "attribute"});
  const auto items = iterate(e.budget(), v);
  std::vector<Value> attributes;
  if (given(bound[2]) && bound[2]->is_string()) {
    const auto parts =
        iterate(e.budget(), e.call(*find_method(*bound[2], "split"), {{Value::trusted(",")}, {}}));
    attributes = parts->items();
  } else if (given(bound[2])) {
    attributes = {*bound[2]};
  }
  std::vector<std::vector<Value>> keys;
  for (const Value& item : items->items()) {
    auto& key = keys.emplace_back();
    if (attributes.empty()) key.push_back(comparison_key(e, item, nullptr, flag(bound[1])));
    for (const Value& name : attributes) {
      key.push_back(comparison_key(e, item, &name, flag(bound[1])));
    }
  }
  return make_list(e.budget(),
                   sorted(e, items->items(), keys, flag(bound[0]), !attributes.empty()));
}

Value filter_dictsort(Evaluator& e, const Value& v, const Arguments& a) {
  const auto bound = bind("dictsort", a, {"case_sensitive", "by", "reverse"});
  if (v.is_undefined()) raise("{}", v.undefined_reason());
  if (!v.is_dict()) raise("dictsort needs a mapping, not a '{}'", v.type_name());
  const std::string by = bound[1] ? require_text(*bound[1], "'key' or 'value'").bytes() : "key";
  if (by != "key" && by != "value") raise("dictsort sorts by 'key' or 'value'");
  const auto pairs = iterate(e.budget(), e.call(*find_method(v, "items"), {}));
  std::vector<std::vector<Value>> keys;
  for (const Value& pair : pairs->items()) {
    keys.push_back(
        {comparison_key(e, pair.list().items()[by == "key" ? 0 : 1], nullptr, flag(bound[0]))});
  }
  return make_list(e.budget(), sorted(e, pairs->items(), keys, flag(bound[2])));
}

Value filter_unique(Evaluator& e, const Value& v, const Arguments& a) {
  const auto bound = bind("unique", a, {"case_sensitive", "attribute"});
  const auto items = iterate(e.budget(), v);
  std::unordered_map<std::string, bool> seen;
  std::vector<Value> out;
  for (const Value& item : items->items()) {
    const auto key = canonical_key(comparison_key(e, item, bound[1], flag(bound[0])));
    if (!key) raise("unique needs values that can be keys, not a '{}'", item.type_name());
    e.budget().step();
    e.budget().text(key->size());
    if (seen.emplace(*key, true).second) out.push_back(item);
  }
  return lazy(e, std::move(out));
}

template <bool want_max>
Value filter_extreme(Evaluator& e, const Value& v, const Arguments& a) {
  const auto bound = bind(want_max ? "max" : "min", a, {"case_sensitive", "attribute"});
  const auto items = iterate(e.budget(), v);
  if (items->items().empty()) return Value::undefined("the sequence is empty");
  const Value* best = nullptr;
  Value best_key;
  for (const Value& item : items->items()) {
    Value key = comparison_key(e, item, bound[1], flag(bound[0]));
    const int order = best ? compare(e.budget(), key, best_key) : 0;
    if (!best || (want_max ? order > 0 : order < 0)) {
      best = &item;
      best_key = std::move(key);
    }
  }
  return *best;
}

Value filter_sum(Evaluator& e, const Value& v, const Arguments& a) {
  const auto bound = bind("sum", a, {"attribute", "start"});
  Value total = bound[1] ? *bound[1] : Value(std::int64_t{0});
  const auto items = iterate(e.budget(), v);
  for (const Value& item : items->items()) {
    total = apply_arithmetic(e.budget(), Expression::Operator::add, total,
                             given(bound[0]) ? follow(e, item, *bound[0]) : item);
  }
  return total;
}

std::int64_t positive(const Value& value, std::string_view what) {
  const std::int64_t number = value.integer(what);
  if (number < 1) raise("{} must be at least 1", what);
  return number;
}

Value filter_batch(Evaluator& e, const Value& v, const Arguments& a) {
  const auto bound = bind("batch", a, {"linecount", "fill_with"}, 1);
  const auto size = static_cast<std::size_t>(positive(*bound[0], "the size of a batch"));
  e.budget().items(size);
  const auto items = iterate(e.budget(), v);
  std::vector<Value> out;
  std::vector<Value> line;
  for (const Value& item : items->items()) {
    if (line.size() == size) {
      out.push_back(make_list(e.budget(), std::move(line)));
      line = {};
    }
    line.push_back(item);
  }
  if (!line.empty()) {
    if (given(bound[1])) line.resize(size, *bound[1]);
    out.push_back(make_list(e.budget(), std::move(line)));
  }
  return lazy(e, std::move(out));
}

Value filter_slice(Evaluator& e, const Value& v, const Arguments& a) {
  const auto bound = bind("slice", a, {"slices", "fill_with"}, 1);
  const auto slices = static_cast<std::size_t>(positive(*bound[0], "the number of slices"));
  e.budget().items(slices);
  const auto items = iterate(e.budget(), v);
  const std::size_t each = items->items().size() / slices;
  const std::size_t larger = items->items().size() % slices;
  std::vector<Value> out;
  auto at = items->items().begin();
  for (std::size_t i = 0; i < slices; ++i) {
    const auto end = at + static_cast<std::ptrdiff_t>(each + (i < larger ? 1 : 0));
    std::vector<Value> part(at, end);
    at = end;
    if (given(bound[1]) && i >= larger) part.push_back(*bound[1]);
    out.push_back(make_list(e.budget(), std::move(part)));
  }
  return lazy(e, std::move(out));
}

Value filter_groupby(Evaluator& e, const Value& v, const Arguments& a) {
  const auto bound = bind("groupby", a, {"attribute", "default", "case_sensitive"}, 1);
  const auto items = iterate(e.budget(), v);
  const auto key_of = [&](const Value& item) {
    Value key = follow(e, item, *bound[0]);
    return key.is_undefined() && bound[1] ? *bound[1] : key;
  };
  std::vector<std::vector<Value>> keys;
  for (const Value& item : items->items()) {
    keys.push_back({comparison_key(e, key_of(item), nullptr, flag(bound[2]))});
  }
  std::vector<Value> groups;
  std::vector<Value> group;
  Value last;
  const auto flush = [&] {
    if (group.empty()) return;
    const Value first = key_of(group.front());
    Value members = make_list(e.budget(), std::move(group));
    groups.push_back(make_list(e.budget(), {first, std::move(members)}, List::Kind::group));
    group = {};
  };
  for (const Value& item : sorted(e, items->items(), keys, false)) {
    Value key = comparison_key(e, key_of(item), nullptr, flag(bound[2]));
    if (!group.empty() && !equal(e.budget(), key, last)) flush();
    last = std::move(key);
    group.push_back(item);
  }
  flush();
  return make_list(e.budget(), std::move(groups));
}

// --- filters over filters and tests ---

Value filter_map(Evaluator& e, const Value& v, const Arguments& a) {
  if (!v.truthy()) return lazy(e, {});  // of whatever type
  std::vector<Value> out;
  const auto items = iterate(e.budget(), v);
  if (a.positional.empty()) {
    const auto bound = bind("map", a, {"attribute", "default"}, 1);
    for (const Value& item : items->items()) {
      Value found = follow(e, item, *bound[0]);
      out.push_back(found.is_undefined() && bound[1] ? *bound[1] : std::move(found));
    }
    return lazy(e, std::move(out));
  }
  const std::string& name = require_text(a.positional[0], "a filter's name").bytes();
  const Arguments rest{{a.positional.begin() + 1, a.positional.end()}, a.named};
  for (const Value& item : items->items()) out.push_back(e.filter(name, item, rest));
  return lazy(e, std::move(out));
}

// select, reject (by_attribute false) and selectattr, rejectattr.
template <bool by_attribute, bool keep>
Value filter_select(Evaluator& e, const Value& v, const Arguments& a) {
  if (!v.truthy()) return lazy(e, {});  // of whatever type
  std::size_t at = by_attribute ? 1 : 0;
  if (a.positional.size() < at) raise("selectattr needs the name of an attribute");
  std::string test;
  if (a.positional.size() > at) {
    test = require_text(a.positional[at++], "a test's name").bytes();
  }
  const Arguments rest{{a.positional.begin() + static_cast<std::ptrdiff_t>(at), a.positional.end()},
                       a.named};
  std::vector<Value> out;
  const auto items = iterate(e.budget(), v);
  for (const Value& item : items->items()) {
    const Value tested = by_attribute ? follow(e, item, a.positional[0]) : item;
    if ((test.empty() ? tested.truthy() : e.test(test, tested, rest)) == keep) out.push_back(item);
  }
  return lazy(e, std::move(out));
}

Value filter_default(Evaluator&, const Value& v, const Arguments& a) {
  const auto bound = bind("default", a, {"default_value", "boolean"});
  if (!v.is_undefined() && !(flag(bound[1]) && !v.truthy())) return v;
  return bound[0] ? *bound[0] : Value::trusted("");
}

Value filter_attr(Evaluator& e, const Value& v, const Arguments& a) {
  const auto bound = bind("attr", a, {"name"}, 1);
  if (v.is_dict()) {
    const auto method = find_method(v, require_text(*bound[0], "a name as a string").bytes());
    return method ? *method : Value::undefined("a dict has no such attribute");
  }
  return e.attribute(v, require_text(*bound[0], "a name as a string").bytes());
}

Value filter_string(Evaluator& e, const Value& v, const Arguments&) {
  return Value(to_text(e.budget(), v));
}

const std::map<std::string_view, Filter> kFilters = {
    {"abs", filter_abs},
    {"attr", filter_attr},
    {"batch", filter_batch},
    {"capitalize", filter_text<capitalize>},
    {"center", filter_center},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"dictsort", filter_dictsort},
    {"e", filter_text<escape>},
    {"escape", filter_text<escape>},
    {"first", filter_first},
    {"float", filter_float},
    {"forceescape", filter_text<escape>},
    {"format", filter_format},
    {"groupby", filter_groupby},
    {"indent", filter_indent},
    {"int", filter_int},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"lower", filter_text<lower>},
    {"map", filter_map},
    {"max", filter_extreme<true>},
    {"min", filter_extreme<false>},
    {"reject", filter_select<false, false>},
    {"rejectattr", filter_select<true, false>},
    {"replace", filter_replace},
    {"reverse", filter_reverse},
    {"round", filter_round},
    {"safe", filter_string},
    {"select", filter_select<false, true>},
    {"selectattr", filter_select<true, true>},
    {"slice", filter_slice},
    {"sort", filter_sort},
    {"string", filter_string},
    {"sum", filter_sum},
    {"title", filter_text<title>},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"truncate", filter_truncate},
    {"unique", filter_unique},
    {"upper", filter_text<upper>},
    {"wordcount", filter_wordcount},
};

}  // namespace

Value Evaluator::filter(std::string_view name, const Value& input, const Arguments& arguments) {
  budget_.step();
  const auto found = kFilters.find(name);
  if (found == kFilters.end()) raise("there is no filter '{}'", name);
  return found->second(*this, input, arguments);
}

}  // namespace strata::chat::jinja
