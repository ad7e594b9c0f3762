// Methods of str, dict and list, as far as they leave their value unchanged.
#include <utf8proc.h>

#include <algorithm>
#include <map>

#include "chat/jinja/objects.h"

namespace strata::chat::jinja {

namespace {

using Method = Value (*)(Evaluator&, const Value& self, const Arguments&);

const Value* given(const Value* value) {
  return value && !value->is_none() ? value : nullptr;
}

std::size_t checked_lines(Budget& budget, const Text& text) {
  budget.text(text.size());
  return text.size();
}

Value list_of_texts(Budget& budget, std::vector<Text> parts) {
  budget.items(parts.size());
  std::vector<Value> items;
  items.reserve(parts.size());
  for (Text& part : parts) items.emplace_back(std::move(part));
  return make_list(budget, std::move(items));
}

// --- str ---

template <Side side>
Value string_strip(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  return Value(
      strip(evaluator.budget(), self.text(), side, bind("strip", arguments, {"chars"})[0]));
}

// Splits at white space, from the left or the right, at most `count` times.
std::vector<Text> split_at_spaces(Budget& budget, const Text& text, std::int64_t count,
                                  bool from_right) {
  std::vector<Text> parts;
  Text rest = strip(budget, text, from_right ? Side::right : Side::left, nullptr);
  // Word borders, in one pass.
  struct Word {
    std::size_t begin, end;
  };
  std::vector<Word> words;
  std::uint32_t c = 0;
  bool in_word = false;
  for (std::size_t at = 0; at < rest.size();) {
    const std::size_t next = at + decode_utf8(rest.bytes(), at, c);
    if (is_space(c)) {
      in_word = false;
    } else if (in_word) {
      words.back().end = next;
    } else {
      words.push_back({at, next});
      in_word = true;
    }
    at = next;
  }
  const auto limit = count < 0 ? words.size() : static_cast<std::size_t>(count);
  if (words.size() <= limit) {
    for (const Word& word : words) parts.push_back(rest.slice(word.begin, word.end));
  } else if (!from_right) {
    for (std::size_t i = 0; i < limit; ++i)
      parts.push_back(rest.slice(words[i].begin, words[i].end));
    parts.push_back(rest.slice(words[limit].begin, rest.size()));
  } else {
    const std::size_t kept = words.size() - limit;
    parts.push_back(rest.slice(0, words[kept - 1].end));
    for (std::size_t i = kept; i < words.size(); ++i) {
      parts.push_back(rest.slice(words[i].begin, words[i].end));
    }
  }
  return parts;
}

std::vector<Text> split_at(const Text& text, const std::string& separator, std::int64_t count,
                           bool from_right) {
  std::vector<Text> parts;
  const std::string& bytes = text.bytes();
  if (!from_right) {
    std::size_t at = 0;
    for (; count != 0; --count) {
      const std::size_t found = bytes.find(separator, at);
      if (found == std::string::npos) break;
      parts.push_back(text.slice(at, found));
      at = found + separator.size();
    }
    parts.push_back(text.slice(at, bytes.size()));
    return parts;
  }
  std::size_t end = bytes.size();
  for (; count != 0 && end >= separator.size(); --count) {
    const std::size_t found = bytes.rfind(separator, end - separator.size());
    if (found == std::string::npos) break;
    parts.push_back(text.slice(found + separator.size(), end));
    end = found;
  }
  parts.push_back(text.slice(0, end));
  std::ranges::reverse(parts);
  return parts;
}

template <bool from_right>
Value string_split(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const auto bound = bind("split", arguments, {"sep", "maxsplit"});
  const std::int64_t count = bound[1] ? bound[1]->integer("maxsplit") : -1;
  Budget& budget = evaluator.budget();
  budget.text(self.text().size());
  if (!given(bound[0])) {
    return list_of_texts(budget, split_at_spaces(budget, self.text(), count, from_right));
  }
  const std::string& separator = require_text(*bound[0], "a separator as a string").bytes();
  if (separator.empty()) raise("the separator of split is empty");
  budget.step(self.text().size() / 256 * (separator.size() / 64));
  return list_of_texts(budget, split_at(self.text(), separator, count, from_right));
}

template <bool from_right>
Value string_partition(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Text& separator =
      require_text(*bind("partition", arguments, {"sep"}, 1)[0], "a separator as a string");
  if (separator.empty()) raise("the separator of partition is empty");
  Budget& budget = evaluator.budget();
  budget.text(self.text().size());
  budget.step(self.text().size() / 256 * (separator.size() / 64));
  std::vector<Text> parts = split_at(self.text(), separator.bytes(), 1, from_right);
  std::vector<Value> items(3, Value::trusted(""));
  if (parts.size() == 1) {
    items[from_right ? 2 : 0] = Value(std::move(parts[0]));
  } else {
    items = {Value(std::move(parts[0])), Value(separator), Value(std::move(parts[1]))};
  }
  return make_list(budget, std::move(items), List::Kind::tuple);
}

Value string_splitlines(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const auto bound = bind("splitlines", arguments, {"keepends"});
  checked_lines(evaluator.budget(), self.text());
  return list_of_texts(evaluator.budget(),
                       split_lines(self.text(), bound[0] && bound[0]->truthy()));
}

template <bool at_end>
Value string_has_affix(Evaluator&, const Value& self, const Arguments& arguments) {
  const auto bound = bind(at_end ? "endswith" : "startswith", arguments, {"affix"}, 1);
  const std::string_view text = self.text().bytes();
  const auto fits = [&](const Value& affix) {
    const std::string& part = require_text(affix, "a string or a tuple of strings").bytes();
    return at_end ? text.ends_with(part) : text.starts_with(part);
  };
  if (!bound[0]->is_list()) return Value(fits(*bound[0]));
  return Value(std::ranges::any_of(bound[0]->list().items(), fits));
}

template <bool at_end>
Value string_remove_affix(Evaluator&, const Value& self, const Arguments& arguments) {
  const auto bound = bind(at_end ? "removesuffix" : "removeprefix", arguments, {"affix"}, 1);
  const Text& text = self.text();
  const std::string& part = require_text(*bound[0], "a string").bytes();
  if (at_end && text.bytes().ends_with(part)) {
    return Value(text.slice(0, text.size() - part.size()));
  }
  if (!at_end && text.bytes().starts_with(part)) {
    return Value(text.slice(part.size(), text.size()));
  }
  return self;
}

template <Text (*operation)(Budget&, const Text&)>
Value string_map(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  bind("the method", arguments, {});
  return Value(operation(evaluator.budget(), self.text()));
}

Text python_title(Budget& budget, const Text& text) {
  budget.text(text.size());
  Text out;
  std::uint32_t c = 0;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t next = at + decode_utf8(text.bytes(), at, c);
    const Text character = text.slice(at, next);
    budget.step(next % 64 == 0 ? 1 : 0);
    out.append(in_word ? lower(budget, character) : capitalize(budget, character));
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    in_word = category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
              category == UTF8PROC_CATEGORY_LT;
    at = next;
  }
  return out;
}

Value string_replace(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const auto bound = bind("replace", arguments, {"old", "new", "count"}, 2);
  return Value(replace(evaluator.budget(), self.text(), require_text(*bound[0], "a string"),
                       require_text(*bound[1], "a string"),
                       bound[2] ? bound[2]->integer("the count") : -1));
}

// Finds from the left or the right; in characters, -1 if it is not there.
template <bool from_right, bool must_exist>
Value string_find(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const auto bound = bind("find", arguments, {"sub", "start", "end"}, 1);
  const std::string_view text = self.text().bytes();
  const std::string& part = require_text(*bound[0], "a string").bytes();
  evaluator.budget().text(text.size());
  evaluator.budget().step(text.size() / 256 * (part.size() / 64));
  const auto size = static_cast<std::int64_t>(count_characters(text));
  const auto place = [&](const Value* value, std::int64_t otherwise) {
    std::int64_t at = given(value) ? value->integer("a bound of find") : otherwise;
    if (at < 0) at = std::max<std::int64_t>(0, std::max(at, -size) + size);
    return at;
  };
  const std::int64_t begin = place(bound[1], 0);
  const std::int64_t end = std::min(place(bound[2], size), size);
  std::size_t found = std::string_view::npos;
  if (begin <= end) {
    const std::size_t from = offset_of_character(text, static_cast<std::size_t>(begin));
    const std::size_t to = offset_of_character(text, static_cast<std::size_t>(end));
    const std::string_view window = text.substr(from, to - from);
    found = from_right ? window.rfind(part) : window.find(part);
    if (found != std::string_view::npos) {
      return Value::integer(count_characters(text.substr(0, from + found)));
    }
  }
  if (must_exist) raise("the substring is not there");
  return Value(std::int64_t{-1});
}

Value string_count(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const std::string& part =
      require_text(*bind("count", arguments, {"sub"}, 1)[0], "a string").bytes();
  const std::string& text = self.text().bytes();
  evaluator.budget().text(text.size());
  evaluator.budget().step(text.size() / 256 * (part.size() / 64));
  if (part.empty()) return Value::integer(count_characters(text) + 1);
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) {
    ++count;
  }
  return Value::integer(count);
}

Value string_join(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const auto items = iterate(evaluator.budget(), *bind("join", arguments, {"iterable"}, 1)[0]);
  std::vector<Text> parts;
  for (const Value& item : items->items()) {
    parts.push_back(require_text(item, "strings to join"));
  }
  return Value(join(evaluator.budget(), self.text(), parts));
}

// str.format with {}, {0} and {name}; conversions and format specifications are refused.
Value string_format(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Text& format = self.text();
  const std::string& bytes = format.bytes();
  Budget& budget = evaluator.budget();
  Text out;
  std::size_t automatic = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
    out.append(format, at, brace);
    if (brace == bytes.size()) break;
    if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
      out.append(format, brace, brace + 1);
      at = brace + 2;
      continue;
    }
    const std::size_t end = bytes.find('}', brace);
    if (bytes[brace] == '}' || end == std::string::npos) raise("a format has a single brace");
    const std::string field = bytes.substr(brace + 1, end - brace - 1);
    if (field.find_first_of(":!.[{") != std::string::npos) {
      raise("the format field '{{{}}}' is not supported", field);
    }
    const bool number = field.find_first_not_of("0123456789") == std::string::npos;
    const Value* value = nullptr;
    if (number && field.size() < 7) {
      const std::size_t index = field.empty() ? automatic++ : std::stoul(field);
      if (index < arguments.positional.size()) value = &arguments.positional[index];
    } else {
      for (const auto& [name, named] : arguments.named) {
        if (name == field) value = &named;
      }
    }
    if (!value) raise("the format field '{{{}}}' has no argument", field);
    out.append(to_text(budget, *value));
    budget.text(out.size());
    at = end + 1;
  }
  return Value(std::move(out));
}

template <bool (*holds)(std::uint32_t)>
Value string_is(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  bind("the method", arguments, {});
  const std::string& text = self.text().bytes();
  evaluator.budget().text(text.size());
  std::uint32_t c = 0;
  for (std::size_t at = 0; at < text.size(); at += decode_utf8(text, at, c)) {
    decode_utf8(text, at, c);
    if (!holds(c)) return Value(false);
  }
  return Value(!text.empty());
}

bool is_letter_or_number(std::uint32_t c) {
  return is_letter(c) || is_number(c);
}

Value string_is_ascii(Evaluator&, const Value& self, const Arguments& arguments) {
  bind("isascii", arguments, {});
  return Value(std::ranges::none_of(self.text().bytes(), [](char c) { return c < 0; }));
}

Text swap_case(Budget& budget, const Text& text) {
  Text out;
  std::uint32_t c = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t next = at + decode_utf8(text.bytes(), at, c);
    const Text character = text.slice(at, next);
    budget.step(next % 64 == 0 ? 1 : 0);
    const Text low = lower(budget, character);
    out.append(low.bytes() == character.bytes() ? upper(budget, character) : low);
    at = next;
  }
  budget.text(out.size());
  return out;
}

template <bool want_upper>
Value string_is_case(Evaluator& evaluator, const Value& self, const Arguments&) {
  const Text& text = self.text();
  Budget& budget = evaluator.budget();
  const bool same =
      (want_upper ? upper(budget, text) : lower(budget, text)).bytes() == text.bytes();
  const bool cased =
      (want_upper ? lower(budget, text) : upper(budget, text)).bytes() != text.bytes();
  return Value(same && cased);
}

template <int side>  // -1: text at the left, 0: centred, 1: text at the right
Value string_pad(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const auto bound = bind("the method", arguments, {"width", "fillchar"}, 1);
  const std::int64_t width = bound[0]->integer("the width");
  const Text fill = bound[1] ? require_text(*bound[1], "a character") : Text(" ", true);
  if (count_characters(fill.bytes()) != 1) raise("the fill must be one character");
  const auto size = static_cast<std::int64_t>(count_characters(self.text().bytes()));
  if (width <= size) return self;
  const auto total = static_cast<std::size_t>(width - size);
  evaluator.budget().text(total);
  const std::size_t left = side < 0   ? 0
                           : side > 0 ? total
                                      : total / 2 + (total & static_cast<std::size_t>(width) & 1);
  Text out;
  for (std::size_t i = 0; i < left; ++i) out.append(fill);
  out.append(self.text());
  for (std::size_t i = left; i < total; ++i) out.append(fill);
  evaluator.budget().text(out.size());
  return Value(std::move(out));
}

Value string_zfill(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const std::int64_t width = bind("zfill", arguments, {"width"}, 1)[0]->integer("the width");
  const Text& text = self.text();
  const auto size = static_cast<std::int64_t>(count_characters(text.bytes()));
  if (width <= size) return self;
  evaluator.budget().text(static_cast<std::size_t>(width));
  const std::size_t sign = text.bytes().find_first_of("+-") == 0 ? 1 : 0;
  Text out = text.slice(0, sign);
  out.append(std::string(static_cast<std::size_t>(width - size), '0'), true);
  out.append(text, sign, text.size());
  return Value(std::move(out));
}

// --- dict and list ---

Value dict_get(Evaluator&, const Value& self, const Arguments& arguments) {
  const auto bound = bind("get", arguments, {"key", "default"}, 1);
  const Value* found = self.dict().find(*bound[0]);
  return found ? *found : bound[1] ? *bound[1] : Value::none();
}

Value dict_items(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  bind("items", arguments, {});
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries()) {
    items.push_back(make_list(evaluator.budget(), {key, value}, List::Kind::tuple));
  }
  return make_list(evaluator.budget(), std::move(items), List::Kind::view);
}

template <bool keys>
Value dict_column(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  bind(keys ? "keys" : "values", arguments, {});
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries()) items.push_back(keys ? key : value);
  return make_list(evaluator.budget(), std::move(items), List::Kind::view);
}

Value copy(Evaluator&, const Value& self, const Arguments& arguments) {
  bind("copy", arguments, {});
  return self;
}

Value list_index(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const auto bound = bind("index", arguments, {"value"}, 1);
  const auto& items = self.list().items();
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (equal(evaluator.budget(), items[i], *bound[0])) return Value::integer(i);
  }
  raise("the value is not in the list");
}

Value list_count(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const auto bound = bind("count", arguments, {"value"}, 1);
  return Value::integer(
      static_cast<std::size_t>(std::ranges::count_if(self.list().items(), [&](const Value& item) {
        return equal(evaluator.budget(), item, *bound[0]);
      })));
}

const std::map<std::string_view, Method> kStringMethods = {
    {"strip", string_strip<Side::both>},
    {"lstrip", string_strip<Side::left>},
    {"rstrip", string_strip<Side::right>},
    {"split", string_split<false>},
    {"rsplit", string_split<true>},
    {"partition", string_partition<false>},
    {"rpartition", string_partition<true>},
    {"splitlines", string_splitlines},
    {"startswith", string_has_affix<false>},
    {"endswith", string_has_affix<true>},
    {"removeprefix", string_remove_affix<false>},
    {"removesuffix", string_remove_affix<true>},
    {"upper", string_map<upper>},
    {"lower", string_map<lower>},
    {"casefold", string_map<lower>},
    {"title", string_map<python_title>},
    {"capitalize", string_map<capitalize>},
    {"replace", string_replace},
    {"find", string_find<false, false>},
    {"rfind", string_find<true, false>},
    {"index", string_find<false, true>},
    {"rindex", string_find<true, true>},
    {"count", string_count},
    {"join", string_join},
    {"format", string_format},
    {"isdigit", string_is<is_digit>},
    {"isdecimal", string_is<is_decimal>},
    {"isnumeric", string_is<is_number>},
    {"isascii", string_is_ascii},
    {"swapcase", string_map<swap_case>},
    {"isalpha", string_is<is_letter>},
    {"isalnum", string_is<is_letter_or_number>},
    {"isspace", string_is<is_space>},
    {"isupper", string_is_case<true>},
    {"islower", string_is_case<false>},
    {"ljust", string_pad<-1>},
    {"center", string_pad<0>},
    {"rjust", string_pad<1>},
    {"zfill", string_zfill},
};
const std::map<std::string_view, Method> kDictMethods = {
    {"get", dict_get},
    {"items", dict_items},
    {"keys", dict_column<true>},
    {"values", dict_column<false>},
    {"copy", copy},
};
const std::map<std::string_view, Method> kListMethods = {
    {"index", list_index},
    {"count", list_count},
    {"copy", copy},
};

}  // namespace

std::optional<Value> find_method(const Value& self, std::string_view name) {
  const auto* methods = self.is_string() ? &kStringMethods
                        : self.is_dict() ? &kDictMethods
                        : self.is_list() ? &kListMethods
                                         : nullptr;
  if (!methods) return std::nullopt;
  const auto found = methods->find(name);
  if (found == methods->end()) return std::nullopt;
  return make_function(
      [self, method = found->second](Evaluator& evaluator, const Arguments& arguments) {
        return method(evaluator, self, arguments);
      },
      self.depth() + 1);
}

}  // namespace strata::chat::jinja
