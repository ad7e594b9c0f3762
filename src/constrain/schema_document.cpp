#include "constrain/schema_document.h"

#include <array>
#include <charconv>
#include <optional>
#include <vector>

#include "base/json_number.h"

namespace strata::constrain {

namespace json = boost::json;

namespace {

std::string_view view(const json::string& text) {
  return {text.data(), text.size()};
}

std::string_view view(json::string_view text) {
  return {text.data(), text.size()};
}

const json::string* text_of(const json::object& schema, std::string_view keyword) {
  const json::value* value = schema.if_contains(keyword);
  return value == nullptr ? nullptr : value->if_string();
}

// The parts of a URI reference that resolving one against another needs (RFC 3986, section 5.2).
struct Uri {
  std::string_view scheme, authority, path;
  bool has_authority = false;
};

Uri split(std::string_view text) {
  Uri uri;
  const std::size_t colon = text.find_first_of(":/?");
  if (colon != std::string_view::npos && colon > 0 && text[colon] == ':') {
    uri.scheme = text.substr(0, colon);
    text.remove_prefix(colon + 1);
  }
  if (text.starts_with("//")) {
    uri.has_authority = true;
    text.remove_prefix(2);
    uri.authority = text.substr(0, text.find('/'));
    text.remove_prefix(uri.authority.size());
  }
  uri.path = text;
  return uri;
}

std::string without_dots(std::string_view path) {
  std::vector<std::string_view> kept;
  const bool rooted = path.starts_with('/');
  bool open = path.ends_with('/');
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(path.size(), part.size() + 1));
    open = part == "." || part == ".." ? path.empty() : open;
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      if (!kept.empty()) kept.pop_back();
    } else {
      kept.push_back(part);
    }
  }
  std::string out = rooted ? "/" : "";
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (i > 0) out += '/';
    out += kept[i];
  }
  if (open && !out.ends_with('/')) out += '/';
  return out;
}

// `reference` without a fragment, seen from `base`.
std::string join(std::string_view base, std::string_view reference) {
  if (reference.empty()) return std::string(base);
  const Uri to = split(reference);
  if (!to.scheme.empty()) return std::string(reference);
  const Uri from = split(base);
  std::string out;
  if (!from.scheme.empty()) out.append(from.scheme).append(":");
  if (to.has_authority) return out.append(reference);
  if (from.has_authority) out.append("//").append(from.authority);
  if (to.path.starts_with('/')) return out + without_dots(to.path);
  const std::size_t slash = from.path.rfind('/');
  const std::string_view folder =
      slash == std::string_view::npos ? "" : from.path.substr(0, slash + 1);
  return out + without_dots(std::string(folder) + std::string(to.path));
}

// The parts of a reference: before and behind the #.
std::pair<std::string_view, std::string_view> parts(std::string_view reference) {
  const std::size_t mark = reference.find('#');
  if (mark == std::string_view::npos) return {reference, {}};
  return {reference.substr(0, mark), reference.substr(mark + 1)};
}

std::optional<std::string> without_percent(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned byte = 0;
    if (i + 3 > text.size()) return std::nullopt;
    const auto [end, code] = std::from_chars(&text[i] + 1, &text[i] + 3, byte, 16);
    if (code != std::errc() || end != &text[i] + 3) return std::nullopt;
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

std::string unescaped(std::string_view token) {
  std::string out;
  for (std::size_t i = 0; i < token.size(); ++i) {
    const bool escape = token[i] == '~' && i + 1 < token.size();
    if (escape && (token[i + 1] == '0' || token[i + 1] == '1')) {
      out += token[++i] == '0' ? '~' : '/';
    } else {
      out += token[i];
    }
  }
  return out;
}

std::string escaped(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

struct KeywordHolds {
  std::string_view keyword;
  Holds holds;
};
constexpr std::array kHolds = {
    KeywordHolds{"properties", Holds::map},
    KeywordHolds{"patternProperties", Holds::map},
    KeywordHolds{"additionalProperties", Holds::schema},
    KeywordHolds{"unevaluatedProperties", Holds::schema},
    KeywordHolds{"propertyNames", Holds::schema},
    KeywordHolds{"items", Holds::schema_or_list},
    KeywordHolds{"prefixItems", Holds::list},
    KeywordHolds{"additionalItems", Holds::schema},
    KeywordHolds{"unevaluatedItems", Holds::schema},
    KeywordHolds{"contains", Holds::schema},
    KeywordHolds{"allOf", Holds::list},
    KeywordHolds{"anyOf", Holds::list},
    KeywordHolds{"oneOf", Holds::list},
    KeywordHolds{"not", Holds::schema},
    KeywordHolds{"if", Holds::schema},
    KeywordHolds{"then", Holds::schema},
    KeywordHolds{"else", Holds::schema},
    KeywordHolds{"dependentSchemas", Holds::map},
    KeywordHolds{"dependencies", Holds::map_of_schemas_or_names},
    KeywordHolds{"$defs", Holds::map},
    KeywordHolds{"definitions", Holds::map},
};

// Whether the document is small enough to be looked at; its depth, in objects and arrays, is that
// of the recursion.
bool count_values(const json::value& value, std::size_t depth, std::size_t& left) {
  if (left == 0 || (depth == 0 && (value.is_array() || object_of(value) != nullptr))) return false;
  --left;
  if (const json::object* object = object_of(value)) {
    for (const auto& member : *object)
      if (!count_values(member.value(), depth - 1, left)) return false;
  } else if (const json::array* array = value.if_array()) {
    for (const json::value& item : *array)
      if (!count_values(item, depth - 1, left)) return false;
  }
  return true;
}

const json::value* follow(const json::value* at, std::string_view pointer) {
  while (at != nullptr && !pointer.empty()) {
    if (pointer[0] != '/') return nullptr;
    pointer.remove_prefix(1);
    const std::string_view token = pointer.substr(0, pointer.find('/'));
    pointer.remove_prefix(token.size());
    if (const json::object* object = object_of(*at)) {
      at = object->if_contains(unescaped(token));
    } else if (const json::array* array = at->if_array()) {
      std::size_t index = 0;
      const auto [end, code] = std::from_chars(token.data(), token.data() + token.size(), index);
      const bool number = code == std::errc() && end == token.data() + token.size();
      at = number && index < array->size() ? &(*array)[index] : nullptr;
    } else {
      return nullptr;
    }
  }
  return at;
}

Draft draft_named(std::string_view uri) {
  for (const std::string_view old : {"draft-07", "draft-06", "draft-04", "draft-03"})
    if (uri.find(old) != std::string_view::npos) return Draft::seven;
  return uri.find("json-schema.org/draft/20") != std::string_view::npos ? Draft::current
                                                                        : Draft::unstated;
}

}  // namespace

Holds keyword_holds(std::string_view keyword) {
  for (const KeywordHolds& it : kHolds)
    if (it.keyword == keyword) return it.holds;
  return Holds::none;
}

// Visits every subschema that keywords lead to and notes the names it has.
struct SchemaDocument::Walk {
  SchemaDocument& document;
  Status status = {};

  void name(std::unordered_map<std::string, const json::value*>& table, std::string key,
            const json::value& schema, std::string_view keyword) {
    const auto [it, fresh] = table.emplace(std::move(key), &schema);
    if (fresh || it->second == &schema || !status) return;
    status = tl::unexpected(
        document.error(ErrorCode::invalid_argument, schema, keyword,
                       fmt::format("'{}' names {} too", it->first, document.place(*it->second))));
  }

  void schema(const json::value& value, std::string base) {
    if (!document.base_.emplace(&value, base).second) return;
    const json::object* object = object_of(value);
    if (object == nullptr) return;
    const bool alone = document.draft_ == Draft::seven && object->contains("$ref");
    if (const json::string* id = text_of(*object, "$id"); id != nullptr && !alone)
      base = own_id(value, view(*id), base);
    document.base_[&value] = base;
    for (const char* keyword : {"$anchor", "$dynamicAnchor"}) {
      const json::string* anchor = text_of(*object, keyword);
      if (anchor == nullptr) continue;
      name(document.anchors_, base + "#" + std::string(view(*anchor)), value, keyword);
      if (keyword[1] == 'd') ++document.dynamic_anchors_[std::string(view(*anchor))];
    }
    if (const json::value* it = object->if_contains("$recursiveAnchor"); it && it->is_bool())
      document.dynamic_anchors_[""] += it->get_bool() ? 1 : 0;
    for (const auto& member : *object) inside(view(member.key()), member.value(), base);
  }

  std::string own_id(const json::value& value, std::string_view id, const std::string& base) {
    const auto [uri, fragment] = parts(id);
    if (!fragment.empty())  // draft 7's way to write an anchor
      name(document.anchors_, join(base, uri) + "#" + std::string(fragment), value, "$id");
    if (uri.empty()) return base;
    std::string own = join(base, uri);
    name(document.resources_, own, value, "$id");
    return own;
  }

  void inside(std::string_view keyword, const json::value& value, const std::string& base) {
    const Holds holds = keyword_holds(keyword);
    const bool list = holds == Holds::list || holds == Holds::schema_or_list;
    if (list && value.is_array()) {
      for (const json::value& item : value.get_array()) schema(item, base);
    } else if (holds == Holds::schema || holds == Holds::schema_or_list) {
      schema(value, base);
    } else if (holds >= Holds::map && object_of(value)) {
      for (const auto& member : value.get_object())
        if (!member.value().is_array()) schema(member.value(), base);
    }
  }
};

Result<SchemaDocument> SchemaDocument::make(const json::value& root) {
  std::size_t left = kMaxValues;
  if (!count_values(root, kMaxDepth, left)) {
    if (left == 0)
      return fail(ErrorCode::exhausted, "the schema has more than {} values", kMaxValues);
    return fail(ErrorCode::exhausted, "the schema is nested deeper than {} levels", kMaxDepth);
  }
  SchemaDocument document(root);
  if (const json::object* object = object_of(root))
    if (const json::string* draft = text_of(*object, "$schema"))
      document.draft_ = draft_named(view(*draft));
  document.resources_.emplace("", &root);
  Walk walk{document};
  walk.schema(root, "");
  STRATA_TRY(walk.status);
  return document;
}

const json::value* SchemaDocument::find(std::string_view uri, std::string_view fragment) const {
  const auto resource = resources_.find(std::string(uri));
  if (fragment.empty() || fragment[0] == '/')
    return resource == resources_.end() ? nullptr : follow(resource->second, fragment);
  const auto anchor = anchors_.find(std::string(uri) + "#" + std::string(fragment));
  return anchor == anchors_.end() ? nullptr : anchor->second;
}

Result<const json::value*> SchemaDocument::resolve(const json::value& from,
                                                   std::string_view reference) {
  const auto refuse = [&](ErrorCode code, std::string_view why) {
    return tl::unexpected(error(code, from, "$ref", fmt::format("'{}' {}", reference, why)));
  };
  const auto [uri, raw] = parts(reference);
  const std::optional<std::string> fragment = without_percent(raw);
  if (!fragment) return refuse(ErrorCode::invalid_argument, "has a wrong percent sign");
  const auto base = base_.find(&from);
  const std::string target = join(base == base_.end() ? "" : base->second, uri);
  const json::value* found = find(target, *fragment);
  if (found == nullptr) {
    if (!resources_.contains(target)) {
      return refuse(ErrorCode::unsupported,
                    "is not in this schema, and nothing is fetched; put it under $defs");
    }
    return refuse(ErrorCode::invalid_argument, "names nothing in this schema");
  }
  if (!base_.contains(found)) {  // behind a keyword that holds no schemas
    Walk walk{*this};
    walk.schema(*found, target);
    STRATA_TRY(walk.status);
  }
  return found;
}

Result<const json::value*> SchemaDocument::resolve_dynamic(const json::value& from,
                                                           std::string_view reference) {
  STRATA_ASSIGN(const json::value* const found, resolve(from, reference));
  const json::object* object = object_of(*found);
  if (object == nullptr) return found;
  std::uint32_t candidates = 0;
  if (const json::string* anchor = text_of(*object, "$dynamicAnchor")) {
    const auto it = dynamic_anchors_.find(std::string(view(*anchor)));
    if (parts(reference).second == view(*anchor) && it != dynamic_anchors_.end())
      candidates = it->second;
  } else if (object->contains("$recursiveAnchor") && dynamic_anchors_.contains("")) {
    candidates = dynamic_anchors_.at("");
  }
  if (candidates <= 1) return found;
  return tl::unexpected(
      error(ErrorCode::unsupported, from, "$dynamicRef",
            fmt::format("'{}' can mean {} schemas; use $ref", reference, candidates)));
}

std::string SchemaDocument::place(const json::value& value) const {
  if (parents_.empty()) note_parents(*root_);
  std::vector<std::string> steps;
  for (const json::value* at = &value; at != root_;) {
    const auto parent = parents_.find(at);
    if (parent == parents_.end()) break;
    steps.push_back(parent->second.second);
    at = parent->second.first;
  }
  std::string out = "#";
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    out += '/';
    out += escaped(*step);
  }
  return out;
}

void SchemaDocument::note_parents(const json::value& value) const {
  if (const json::object* object = object_of(value)) {
    for (const auto& member : *object) {
      parents_.emplace(&member.value(), std::pair(&value, std::string(view(member.key()))));
      note_parents(member.value());
    }
  } else if (const json::array* array = value.if_array()) {
    for (std::size_t i = 0; i < array->size(); ++i) {
      parents_.emplace(&(*array)[i], std::pair(&value, std::to_string(i)));
      note_parents((*array)[i]);
    }
  }
}

Error SchemaDocument::error(ErrorCode code, const json::value& schema, std::string_view keyword,
                            std::string_view message) const {
  const std::string where = place(schema);
  if (keyword.empty()) return {code, fmt::format("{}: {}", where, message)};
  return {code, fmt::format("{}: {}: {}", where, keyword, message)};
}

}  // namespace strata::constrain
