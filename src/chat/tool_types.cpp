#include "chat/tool_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/decimal.h"
#include "base/json_number.h"

namespace strata::chat {

namespace {

namespace json = boost::json;

// References and unions are followed this deep, and so many schemas are read for one parameter
// (a recursive schema with many choices has no end otherwise); the rest counts as untyped.
constexpr int kSchemaDepth = 16;
constexpr int kSchemaVisits = 2000;

const json::value* find(const json::object& object, std::string_view key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &found->value();
}

void allow(ParameterType& type, std::string_view name) {
  if (name == "string") {
    type.string = true;
  } else if (name == "integer") {
    type.integer = true;
  } else if (name == "number") {
    type.number = true;
  } else if (name == "boolean") {
    type.boolean = true;
  } else if (name == "null") {
    type.null = true;
  } else if (name == "array") {
    type.array = true;
  } else if (name == "object") {
    type.object = true;
  } else {
    type.any = true;
  }
}

void allow_value(ParameterType& type, const json::value& value) {
  switch (value.kind()) {
    case json::kind::string:
      type.string = true;
      type.words.emplace_back(value.get_string());
      break;
    case json::kind::null:
      type.null = true;
      break;
    case json::kind::bool_:
      type.boolean = true;
      break;
    case json::kind::array:
      type.array = true;
      break;
    case json::kind::object:
      (long_number(value) ? type.number : type.object) = true;
      break;
    default:
      type.number = true;
  }
}

// A number that is written with a point or an exponent and is whole: 5.0, 1e20.
bool is_pointed_whole(const json::value& value) {
  if (!value.is_double() && !long_number(value)) return false;
  const std::string text = number_text(value);
  if (text.find_first_of(".eE") == std::string::npos) return false;
  const Decimal number = Decimal::of(text);
  return number.whole() && number.written() <= Decimal::kMostDigits;
}

json::value without_point(const json::value& whole) {
  return number_value(Decimal::of(number_text(whole)).text());
}

ParameterType untyped() {
  ParameterType type;
  type.any = true;
  return type;
}

// What either of two types allows.
void join(ParameterType& type, const ParameterType& other) {
  type.any |= other.any;
  type.string |= other.string;
  type.integer |= other.integer;
  type.number |= other.number;
  type.boolean |= other.boolean;
  type.null |= other.null;
  type.array |= other.array;
  type.object |= other.object;
  type.words.insert(type.words.end(), other.words.begin(), other.words.end());
}

// What both types allow.
void meet(ParameterType& type, const ParameterType& other) {
  if (other.any) return;
  if (type.any) {
    type = other;
    return;
  }
  type.string &= other.string;
  type.integer =
      (type.integer && (other.integer || other.number)) || (type.number && other.integer);
  type.number &= other.number;
  type.boolean &= other.boolean;
  type.null &= other.null;
  type.array &= other.array;
  type.object &= other.object;
  if (type.words.empty()) type.words = other.words;
}

// Reads parts of one schema, which its references mean.
class SchemaReader {
 public:
  explicit SchemaReader(const json::value& root) : root_(root) {}

  ParameterType read(const json::value& schema) {
    visits_ = kSchemaVisits;
    return read(schema, 0);
  }

  // Calls use(name, schema) for each of the properties, and others(schema) for the rest's schema.
  template <class Use, class Others>
  void properties(const json::value& schema, const Use& use, const Others& others) {
    visits_ = kSchemaVisits;
    properties(schema, use, others, 0);
  }

  // Makes whole numbers integers where the schema wants integers. One budget for the whole value.
  void adapt(json::value& value, const json::value& schema) {
    visits_ = kAdaptVisits;
    adapt(value, schema, 0);
  }

 private:
  static constexpr int kAdaptVisits = 100'000;
  static constexpr std::string_view kUnions[] = {"anyOf", "oneOf"};
  static constexpr std::string_view kBranches[] = {"anyOf", "oneOf", "allOf"};

  bool enough(int depth) { return depth > kSchemaDepth || --visits_ < 0; }

  ParameterType read(const json::value& schema, int depth) {
    const json::object* object = object_of(schema);
    if (!object || enough(depth)) return untyped();
    ParameterType type = untyped();
    if (const json::value* name = find(*object, "type")) meet(type, read_names(*name));
    if (const json::value* target = referenced(*object)) meet(type, read(*target, depth + 1));
    if (const json::value* all = find(*object, "allOf"); all && all->is_array()) {
      for (const auto& one : all->get_array()) meet(type, read(one, depth + 1));
    }
    for (const std::string_view key : kUnions) {
      const json::value* choices = find(*object, key);
      if (!choices || !choices->is_array() || choices->get_array().empty()) continue;
      ParameterType either;
      for (const auto& choice : choices->get_array()) join(either, read(choice, depth + 1));
      meet(type, either);
    }
    read_values(type, *object);
    const json::value* nullable = find(*object, "nullable");
    if (nullable && nullable->is_bool() && nullable->get_bool()) type.null = true;
    return type;
  }

  static ParameterType read_names(const json::value& name) {
    ParameterType type;
    if (name.is_string()) {
      allow(type, name.get_string());
    } else if (name.is_array()) {
      for (const auto& one : name.get_array()) {
        if (one.is_string()) allow(type, one.get_string());
      }
    } else {
      type.any = true;
    }
    return type;
  }

  static void read_values(ParameterType& type, const json::object& object) {
    if (const json::value* values = find(object, "enum"); values && values->is_array()) {
      ParameterType allowed;
      for (const auto& value : values->get_array()) allow_value(allowed, value);
      meet(type, allowed);
    }
    if (const json::value* value = find(object, "const")) {
      ParameterType allowed;
      allow_value(allowed, *value);
      meet(type, allowed);
    }
  }

  // Where "$ref" leads to: "#", or a JSON pointer behind it.
  const json::value* referenced(const json::object& object) const {
    const json::value* reference = find(object, "$ref");
    const json::string* path = reference ? reference->if_string() : nullptr;
    if (!path || !path->starts_with('#')) return nullptr;
    if (path->size() == 1) return &root_;
    boost::system::error_code error;
    return root_.find_pointer(std::string_view(*path).substr(1), error);
  }

  template <class Use, class Others>
  void properties(const json::value& schema, const Use& use, const Others& others, int depth) {
    const json::object* object = object_of(schema);
    if (!object || enough(depth)) return;
    if (const json::value* own = find(*object, "properties"); own && object_of(*own)) {
      for (const auto& [name, property] : own->get_object()) use(name, property);
    }
    if (const json::value* rest = find(*object, "additionalProperties")) others(*rest);
    if (const json::value* target = referenced(*object)) {
      properties(*target, use, others, depth + 1);
    }
    for (const std::string_view key : kBranches) {
      const json::value* branches = find(*object, key);
      if (!branches || !branches->is_array()) continue;
      for (const auto& branch : branches->get_array()) properties(branch, use, others, depth + 1);
    }
  }

  void adapt(json::value& value, const json::value& schema, int depth) {
    if (json::array* items = value.if_array()) {
      adapt_items(*items, schema, depth);
    } else if (json::object* members = object_of(value)) {
      adapt_members(*members, schema, depth);
    } else if (is_pointed_whole(value)) {
      const ParameterType type = read(schema, depth);
      if (type.integer && !type.number && !type.any) value = without_point(value);
    }
  }

  void adapt_items(json::array& items, const json::value& schema, int depth) {
    const json::object* object = object_of(schema);
    if (!object || enough(depth)) return;
    if (const json::value* each = find(*object, "items")) {
      for (json::value& item : items) adapt(item, *each, depth + 1);
    }
    if (const json::value* target = referenced(*object)) adapt_items(items, *target, depth + 1);
    for (const std::string_view key : kBranches) {
      const json::value* branches = find(*object, key);
      if (!branches || !branches->is_array()) continue;
      for (const auto& branch : branches->get_array()) adapt_items(items, branch, depth + 1);
    }
  }

  void adapt_members(json::object& members, const json::value& schema, int depth) {
    if (depth > kSchemaDepth) return;
    const auto one = [&](std::string_view name, const json::value& property) {
      if (json::value* member = members.if_contains(name)) adapt(*member, property, depth + 1);
    };
    properties(schema, one, [](const json::value&) {}, depth);
  }

  const json::value& root_;
  int visits_ = 0;
};

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// Whether a number has neither an exponent nor zeros at the end of its fraction, and is not -0.
bool is_plain(std::string_view number) {
  if (number == "-0" || number.find_first_of("eE") != std::string_view::npos) return false;
  return number.find('.') == std::string_view::npos || number.back() != '0';
}

// The JSON value of `text` if `type` allows it, adapted to it. Where strings are allowed as well, a
// number counts only as JSON would write it.
std::optional<json::value> fit(const ParameterType& type, json::value value,
                               std::string_view text) {
  bool fits = false;
  switch (value.kind()) {
    case json::kind::null:
      fits = type.null;
      break;
    case json::kind::bool_:
      fits = type.boolean;
      break;
    case json::kind::array:
      fits = type.array;
      break;
    case json::kind::object:
      fits = !long_number(value) && type.object;
      break;
    default:
      break;  // quotes belong to the text
  }
  if (is_number(value)) {
    if (type.integer && is_pointed_whole(value)) value = without_point(value);
    // A fraction for an integer is the model's mistake; the tool will say so better than we can.
    fits = (type.integer || type.number) && (!type.string || is_plain(text));
  }
  return fits ? std::optional(std::move(value)) : std::nullopt;
}

// JSON out of a list or dict as Python writes it: quotes, True, False, None. Nothing if it is not
// one; what it makes of other text need not be JSON.
std::optional<std::string> python_to_json(std::string_view text) {
  static constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"True", "true"}, {"False", "false"}, {"None", "null"}};
  std::string out;
  char quote = 0;  // of the string that is open
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == 0) {
      const auto* word = std::ranges::find_if(
          kWords, [&](const auto& one) { return text.substr(i).starts_with(one.first); });
      if (word != std::end(kWords)) {
        out += word->second;
        i += word->first.size() - 1;
      } else {
        if (c == '"' || c == '\'') quote = c;
        out += quote != 0 ? '"' : c;
      }
    } else if (c == quote) {
      quote = 0;
      out += '"';
    } else if (c == '"') {
      out += "\\\"";
    } else if (c == '\\') {
      if (++i == text.size()) return std::nullopt;
      if (text[i] == 'x') {
        out += "\\u00";
      } else if (text[i] == '\'') {
        out += '\'';
      } else {
        out += '\\';
        out += text[i];
      }
    } else {
      out += c;
    }
  }
  return quote == 0 ? std::optional(std::move(out)) : std::nullopt;
}

// The text's JSON value; nothing if it is none.
std::optional<json::value> json_of(const ParameterType& type, std::string_view text) {
  if (type.boolean && (text == "True" || text == "False")) return json::value(text == "True");
  if (type.null && text == "None") return json::value(nullptr);
  if (auto value = parse_json_exact(text, "the argument")) return std::move(*value);
  if (!type.array && !type.object) return std::nullopt;
  const auto written = python_to_json(text);
  if (!written) return std::nullopt;
  auto value = parse_json_exact(*written, "the argument");
  return value ? std::optional(std::move(*value)) : std::nullopt;
}

}  // namespace

ToolTypes::ToolTypes(const json::array& tools) {
  for (const auto& tool : tools) {
    const json::object* object = object_of(tool);
    const json::value* function = object ? find(*object, "function") : nullptr;
    if (function) object = object_of(*function);
    const json::value* name = object ? find(*object, "name") : nullptr;
    if (!name || !name->is_string()) continue;
    Tool& types = tools_[std::string(name->get_string())];
    types.others.any = true;
    const json::value* schema = find(*object, "parameters");
    if (!schema || !object_of(*schema)) continue;
    const auto root = std::make_shared<const json::value>(*schema);
    SchemaReader parts(*root);
    SchemaReader reader(*root);
    // Several schemas of one parameter stand in branches: each may hold.
    const auto add = [&](ParameterType& type, const json::value& part) {
      const bool again = type.schema != nullptr;
      ParameterType read = reader.read(part);
      again ? join(type, read) : void(type = std::move(read));
      type.schema = &part;
      type.root = root;
    };
    parts.properties(
        *root,
        [&](std::string_view parameter, const json::value& part) {
          add(types.parameters[std::string(parameter)], part);
        },
        [&](const json::value& part) { add(types.others, part); });
  }
}

bool ToolTypes::declares(std::string_view tool) const {
  return tools_.contains(tool);
}

void ToolTypes::each(std::string_view tool,
                     const std::function<void(const std::string&, const ParameterType&)>& use,
                     const std::function<void(const ParameterType&)>& others) const {
  const auto found = tools_.find(tool);
  if (found == tools_.end()) return;
  for (const auto& [name, type] : found->second.parameters) use(name, type);
  others(found->second.others);
}

const ParameterType& ToolTypes::parameter(std::string_view tool, std::string_view name) const {
  static const ParameterType unknown = untyped();
  const auto found = tools_.find(tool);
  if (found == tools_.end()) return unknown;
  const auto type = found->second.parameters.find(name);
  return type == found->second.parameters.end() ? found->second.others : type->second;
}

json::value argument_value(const ParameterType& type, std::string_view text) {
  const bool is_word = type.string && std::ranges::find(type.words, text) != type.words.end();
  if (type.only_string() || is_word) return json::value(text);
  const std::string_view trimmed = trim(text);
  auto parsed = json_of(type, trimmed);
  if (!parsed) return json::value(text);
  auto value = type.any ? std::move(parsed) : fit(type, std::move(*parsed), trimmed);
  if (!value) return json::value(text);
  if (type.schema && value->is_structured()) SchemaReader(*type.root).adapt(*value, *type.schema);
  return std::move(*value);
}

}  // namespace strata::chat
