#include "chat/tool_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/json.h"

namespace strata::chat {

namespace {

namespace json = boost::json;

// References and unions are followed this deep; deeper ones count as untyped.
constexpr int kSchemaDepth = 8;

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
      type.object = true;
      break;
    default:
      type.number = true;
  }
}

class SchemaReader {
 public:
  explicit SchemaReader(const json::object& root) : root_(root) {}

  void read(ParameterType& type, const json::value& schema, int depth) const {
    const json::object* object = schema.if_object();
    if (!object || depth > kSchemaDepth) {
      type.any = true;
      return;
    }
    if (const json::value* nullable = find(*object, "nullable")) {
      if (nullable->is_bool() && nullable->get_bool()) type.null = true;
    }
    if (const json::value* name = find(*object, "type")) {
      read_names(type, *name);
    } else if (const json::value* reference = find(*object, "$ref")) {
      read_reference(type, *reference, depth);
    } else if (!read_union(type, *object, depth) && !read_values(type, *object)) {
      type.any = true;
    }
    if (find(*object, "type")) read_words(type, *object);
  }

 private:
  static void read_names(ParameterType& type, const json::value& name) {
    if (name.is_string()) {
      allow(type, name.get_string());
    } else if (name.is_array()) {
      for (const auto& one : name.get_array()) {
        if (one.is_string()) allow(type, one.get_string());
      }
    } else {
      type.any = true;
    }
  }

  void read_reference(ParameterType& type, const json::value& reference, int depth) const {
    const json::string* path = reference.if_string();
    if (!path || !path->starts_with("#/")) {
      type.any = true;
      return;
    }
    const json::value* target = nullptr;
    const json::object* place = &root_;
    for (std::string_view rest = std::string_view(*path).substr(2); place;) {
      const std::size_t slash = rest.find('/');
      target = find(*place, rest.substr(0, slash));
      place = target ? target->if_object() : nullptr;
      if (slash == std::string_view::npos) break;
      rest.remove_prefix(slash + 1);
    }
    if (target) {
      read(type, *target, depth + 1);
    } else {
      type.any = true;
    }
  }

  bool read_union(ParameterType& type, const json::object& object, int depth) const {
    for (const std::string_view key : {"anyOf", "oneOf", "allOf"}) {
      const json::value* choices = find(object, key);
      if (!choices || !choices->is_array() || choices->get_array().empty()) continue;
      for (const auto& choice : choices->get_array()) read(type, choice, depth + 1);
      return true;
    }
    return false;
  }

  static bool read_values(ParameterType& type, const json::object& object) {
    if (const json::value* values = find(object, "enum"); values && values->is_array()) {
      for (const auto& value : values->get_array()) allow_value(type, value);
      return true;
    }
    if (const json::value* value = find(object, "const")) {
      allow_value(type, *value);
      return true;
    }
    return false;
  }

  // Strings among the values of a typed enum: they win over their reading as JSON.
  static void read_words(ParameterType& type, const json::object& object) {
    const json::value* values = find(object, "enum");
    if (!type.string || !values || !values->is_array()) return;
    for (const auto& value : values->get_array()) {
      if (value.is_string()) type.words.emplace_back(value.get_string());
    }
  }

  const json::object& root_;
};

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

bool is_whole(double number) {
  return std::abs(number) < 9e15 && std::equal_to<double>()(number, std::trunc(number));
}

// The JSON value if `type` allows it, adapted to it; else undefined.
std::optional<json::value> fit(const ParameterType& type, const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return type.null ? std::optional(value) : std::nullopt;
    case json::kind::bool_:
      return type.boolean ? std::optional(value) : std::nullopt;
    case json::kind::int64:
    case json::kind::uint64:
      return type.integer || type.number ? std::optional(value) : std::nullopt;
    case json::kind::double_:
      if (type.integer && is_whole(value.get_double())) {
        return json::value(static_cast<std::int64_t>(value.get_double()));
      }
      // A fraction for an integer is the model's mistake; the tool will say so better than we can.
      return type.integer || type.number ? std::optional(value) : std::nullopt;
    case json::kind::array:
      return type.array ? std::optional(value) : std::nullopt;
    case json::kind::object:
      return type.object ? std::optional(value) : std::nullopt;
    case json::kind::string:
      return std::nullopt;  // quotes belong to the text
  }
  return std::nullopt;
}

void write(std::string& out, const json::value& value) {
  switch (value.kind()) {
    case json::kind::array: {
      out += '[';
      bool first = true;
      for (const auto& item : value.get_array()) {
        if (!first) out += ',';
        first = false;
        write(out, item);
      }
      out += ']';
      break;
    }
    case json::kind::object: {
      out += '{';
      bool first = true;
      for (const auto& [key, item] : value.get_object()) {
        if (!first) out += ',';
        first = false;
        out += json::serialize(json::value(key));
        out += ':';
        write(out, item);
      }
      out += '}';
      break;
    }
    case json::kind::double_: {
      const double number = value.get_double();
      const std::string text = std::isfinite(number) ? fmt::format("{}", number) : "null";
      out += text;
      if (text.find_first_of(".en") == std::string::npos) out += ".0";
      break;
    }
    default:
      out += json::serialize(value);
  }
}

}  // namespace

ToolTypes::ToolTypes(const json::array& tools) {
  for (const auto& tool : tools) {
    const json::object* object = tool.if_object();
    const json::value* function = object ? find(*object, "function") : nullptr;
    if (function) object = function->if_object();
    const json::value* name = object ? find(*object, "name") : nullptr;
    if (!name || !name->is_string()) continue;
    Parameters& parameters = tools_[std::string(name->get_string())];
    const json::value* schema = find(*object, "parameters");
    if (!schema || !schema->is_object()) continue;
    const json::value* properties = find(schema->get_object(), "properties");
    if (!properties || !properties->is_object()) continue;
    const SchemaReader reader(schema->get_object());
    for (const auto& [key, property] : properties->get_object()) {
      reader.read(parameters[std::string(key)], property, 0);
    }
  }
}

bool ToolTypes::declares(std::string_view tool) const {
  return tools_.contains(tool);
}

const ParameterType& ToolTypes::parameter(std::string_view tool, std::string_view name) const {
  static const ParameterType untyped = [] {
    ParameterType type;
    type.any = true;
    return type;
  }();
  const auto parameters = tools_.find(tool);
  if (parameters == tools_.end()) return untyped;
  const auto found = parameters->second.find(name);
  return found == parameters->second.end() ? untyped : found->second;
}

json::value argument_value(const ParameterType& type, std::string_view text) {
  const bool is_word = std::ranges::find(type.words, text) != type.words.end();
  if (type.only_string() || is_word) return json::value(text);
  const std::string_view trimmed = trim(text);
  if (type.boolean && (trimmed == "True" || trimmed == "False")) {
    return json::value(trimmed == "True");
  }
  if (type.null && trimmed == "None") return json::value(nullptr);
  const auto parsed = parse_json(trimmed, "the argument");
  if (!parsed) return json::value(text);
  if (auto value = fit(type, *parsed)) return *value;
  return type.any ? *parsed : json::value(text);
}

std::string arguments_text(const json::value& value) {
  std::string out;
  write(out, value);
  return out;
}

}  // namespace strata::chat
