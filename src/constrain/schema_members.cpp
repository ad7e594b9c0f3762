// Keywords of objects and arrays.
#include <algorithm>

#include "base/json_number.h"
#include "constrain/schema_expand.h"

namespace strata::constrain {

namespace json = boost::json;

namespace {

using Property = ObjectCase::Property;

std::string text_of(json::string_view text) {
  return {text.data(), text.size()};
}

const json::value& never() {
  static const json::value value(false);
  return value;
}

ObjectCase with(Property property) {
  ObjectCase it;
  it.properties.push_back(std::move(property));
  return it;
}

ObjectCase witness(NameSet names, All value) {
  ObjectCase it;
  it.witnesses.push_back({std::move(names), std::move(value)});
  return it;
}

Property required_property(std::string_view name, All value = {}) {
  return {.name = std::string(name), .value = std::move(value), .required = true};
}

Property absent_property(std::string_view name) {
  return {.name = std::string(name), .value = {}, .absent = true};
}

template <class Case>
std::optional<Cases<Case>> one(Case it) {
  return Cases<Case>{std::move(it)};
}

bool always(const json::value& schema) {
  return (schema.is_bool() && schema.get_bool()) ||
         (schema.is_object() && schema.get_object().empty());
}

// What a count of members or items must be; false if nothing can be so.
template <class Case>
bool set_bound(Case& it, bool least, bool negated, std::uint64_t bound) {
  if (least && negated && bound == 0) return false;
  if (least == negated) {
    it.most = least ? bound - 1 : bound;
  } else {
    it.least = least ? bound : bound + 1;
  }
  return true;
}

}  // namespace

Result<std::optional<Cases<ObjectCase>>> Expander::assertion(const Site& site, bool negated,
                                                             const ObjectCase&) {
  const std::string_view name = site.keyword;
  if (name == "properties") return properties(site, negated);
  if (name == "patternProperties") return pattern_properties(site, negated);
  if (name == "additionalProperties") return other_properties(site, negated);
  if (name == "required") return required(site, negated);
  if (name == "propertyNames") return property_names(site, negated);
  if (name == "dependentRequired" || name == "dependentSchemas" || name == "dependencies")
    return dependencies(site, negated);
  if (name != "minProperties" && name != "maxProperties") return std::optional<Cases<ObjectCase>>();
  STRATA_ASSIGN(const std::uint64_t bound, count(site, site.value));
  ObjectCase it;
  if (!set_bound(it, name == "minProperties", negated, bound))
    return std::optional<Cases<ObjectCase>>();
  return one(it);
}

Result<std::optional<Cases<ObjectCase>>> Expander::properties(const Site& site, bool negated) {
  STRATA_ASSIGN(const json::object* const members, map(site));
  STRATA_TRY(spend(members->size()));
  if (members->size() > kMaxProperties) {
    return tl::unexpected(error(
        ErrorCode::exhausted, site,
        fmt::format("{} properties; at most {} can be enforced", members->size(), kMaxProperties)));
  }
  ObjectCase it;
  Cases<ObjectCase> refuted;
  for (const auto& member : *members) {
    const std::string name = text_of(member.key());
    if (negated) {
      if (!always(member.value()))
        refuted.push_back(with(required_property(name, {{&member.value(), true}})));
      continue;
    }
    const All value = always(member.value()) ? All{} : All{{&member.value()}};
    it.properties.push_back({.name = name, .value = value, .placed = true});
    it.evaluated.names.push_back(name);
  }
  if (negated) return refuted;
  return one(std::move(it));
}

Result<std::optional<Cases<ObjectCase>>> Expander::pattern_properties(const Site& site,
                                                                      bool negated) {
  STRATA_ASSIGN(const json::object* const members, map(site));
  ObjectCase it;
  Cases<ObjectCase> refuted;
  for (const auto& member : *members) {
    STRATA_ASSIGN(const Language language, pattern(site, text_of(member.key())));
    const NameSet names{.names = {}, .languages = {language}};
    if (negated) {
      refuted.push_back(witness(names, {{&member.value(), true}}));
      continue;
    }
    it.rules.push_back({names, {{&member.value()}}});
    it.evaluated.languages.push_back(language);
  }
  if (negated) return refuted;
  return one(std::move(it));
}

// The names that additionalProperties is not about.
Result<NameSet> Expander::named_or_matched(const Site& site) {
  NameSet out;
  if (const json::value* named = site.sibling("properties"); named && object_of(*named))
    for (const auto& member : named->get_object()) out.names.push_back(text_of(member.key()));
  if (const json::value* matched = site.sibling("patternProperties");
      matched && object_of(*matched)) {
    for (const auto& member : matched->get_object()) {
      STRATA_ASSIGN(Language language, pattern(site, text_of(member.key())));
      out.languages.push_back(std::move(language));
    }
  }
  STRATA_TRY(spend(out.names.size()));
  return out;
}

Result<std::optional<Cases<ObjectCase>>> Expander::other_properties(const Site& site,
                                                                    bool negated) {
  if (always(site.value)) {
    if (negated) return std::optional<Cases<ObjectCase>>();
    ObjectCase it;
    it.all_evaluated = true;
    return one(std::move(it));
  }
  STRATA_ASSIGN(NameSet names, named_or_matched(site));
  names.complement = true;
  if (negated) return one(witness(std::move(names), {{&site.value, true}}));
  ObjectCase it;
  it.rules.push_back({std::move(names), {{&site.value}}});
  it.all_evaluated = true;
  return one(std::move(it));
}

Result<std::optional<Cases<ObjectCase>>> Expander::required(const Site& site, bool negated) {
  STRATA_ASSIGN(const std::vector<std::string_view> names, name_list(site, site.value));
  STRATA_TRY(spend(names.size()));
  Cases<ObjectCase> refuted;
  ObjectCase it;
  for (const std::string_view name : names) {
    if (negated) {
      refuted.push_back(with(absent_property(name)));
    } else {
      it.properties.push_back(required_property(name));
    }
  }
  if (negated) return refuted;
  ObjectCase distinct;  // a name that is given twice is one
  distinct.merge(ObjectCase{});
  for (const Property& property : it.properties) distinct.mention(property);
  return one(std::move(distinct));
}

Result<std::optional<Cases<ObjectCase>>> Expander::property_names(const Site& site, bool negated) {
  if (!negated) {
    ObjectCase it;
    it.names.push_back({{&site.value}});
    return one(std::move(it));
  }
  STRATA_ASSIGN(Regular refused, texts({{&site.value, true}}, site.value));
  if (refused.is_nothing()) return std::optional<Cases<ObjectCase>>();
  NameSet names{.names = {}, .languages = {std::make_shared<const Regular>(std::move(refused))}};
  return one(witness(std::move(names), {}));
}

// If `name` is there, `on` holds: other names, or a schema.
Result<Cases<ObjectCase>> Expander::dependency(const Site& site, std::string_view name,
                                               const json::value& on, bool negated) {
  const ObjectCase there = with(required_property(name));
  Cases<ObjectCase> out;
  if (!negated) out.push_back(with(absent_property(name)));
  if (on.is_array()) {
    STRATA_ASSIGN(const std::vector<std::string_view> names, name_list(site, on));
    ObjectCase all = there;
    for (const std::string_view other : names) {
      if (negated) {
        ObjectCase missing = there;
        if (missing.mention(absent_property(other))) out.push_back(std::move(missing));
      } else {
        all.mention(required_property(other));
      }
    }
    if (!negated) out.push_back(std::move(all));
    return out;
  }
  STRATA_ASSIGN(const Cases<ObjectCase> holds, literal<ObjectCase>({&on, negated}));
  STRATA_ASSIGN(const Cases<ObjectCase> both, product(Cases<ObjectCase>{there}, holds, site));
  out.insert(out.end(), both.begin(), both.end());
  return out;
}

Result<std::optional<Cases<ObjectCase>>> Expander::dependencies(const Site& site, bool negated) {
  STRATA_ASSIGN(const json::object* const members, map(site));
  Cases<ObjectCase> out;
  if (!negated) out.push_back({});
  for (const auto& member : *members) {
    STRATA_ASSIGN(Cases<ObjectCase> it,
                  dependency(site, text_of(member.key()), member.value(), negated));
    if (negated) {
      out.insert(out.end(), it.begin(), it.end());
    } else {
      STRATA_ASSIGN(out, product(std::move(out), it, site));
    }
  }
  return std::optional(std::move(out));
}

Result<Cases<ObjectCase>> Expander::among(Constants constants, bool negated, const ObjectCase&) {
  Cases<ObjectCase> out;
  if (negated) out.push_back({});
  for (const json::value* constant : constants) {
    const json::object* members = object_of(*constant);
    if (members == nullptr) continue;
    ObjectCase equal;
    Cases<ObjectCase> differs;
    NameSet others{.names = {}, .languages = {}, .complement = true};
    for (const auto& member : *members) {
      const std::string name = text_of(member.key());
      others.names.push_back(name);
      Property property = required_property(name, {{&member.value(), false, true}});
      property.placed = true;
      equal.properties.push_back(std::move(property));
      differs.push_back(with(absent_property(name)));
      differs.push_back(with(required_property(name, {{&member.value(), true, true}})));
    }
    STRATA_TRY(spend(members->size()));
    if (negated) {
      differs.push_back(witness(others, {}));
      static const json::object none;
      STRATA_ASSIGN(out, product(std::move(out), differs, Site{*constant, none, "", *constant}));
    } else {
      equal.rules.push_back({std::move(others), {{&never()}}});
      out.push_back(std::move(equal));
    }
  }
  return out;
}

Result<bool> Expander::impossible(const ObjectCase& it, int levels) {
  std::uint64_t needed = 0;
  for (const Property& property : it.properties) {
    if (!property.required) continue;
    ++needed;
    All value = property.value;
    for (const ObjectCase::Rule& rule : it.rules)
      if (rule.names.contains(property.name)) add(value, rule.value);
    STRATA_TRY(spend(1 + it.rules.size()));
    STRATA_ASSIGN(const bool none, surely_empty(value, levels - 1));
    if (none) return true;
  }
  return it.most && needed > *it.most;
}

Result<std::optional<Cases<ArrayCase>>> Expander::assertion(const Site& site, bool negated,
                                                            const ArrayCase&) {
  const std::string_view name = site.keyword;
  ArrayCase it;
  if (name == "items" || name == "additionalItems") return items(site, negated);
  if (name == "prefixItems") return prefix_items(site, negated);
  if (name == "contains") return contains(site, negated);
  if (name == "uniqueItems") {
    if (!site.value.is_bool()) return wrong(site, "true or false is needed");
    if (!site.value.get_bool()) return std::optional<Cases<ArrayCase>>();
    if (negated) return refuse(site, "cannot be negated");
    it.unique = true;
    return one(it);
  }
  if (name != "minItems" && name != "maxItems") return std::optional<Cases<ArrayCase>>();
  STRATA_ASSIGN(const std::uint64_t bound, count(site, site.value));
  if (!set_bound(it, name == "minItems", negated, bound)) return std::optional<Cases<ArrayCase>>();
  return one(it);
}

// `items` for the items behind the prefix, and additionalItems, which is draft 7's word for it.
Result<std::optional<Cases<ArrayCase>>> Expander::items(const Site& site, bool negated) {
  const bool list = site.keyword == "items" && site.value.is_array();
  if (list) return prefix_items(site, negated);
  const char* before = site.keyword == "items" ? "prefixItems" : "items";
  const json::value* prefix = site.sibling(before);
  const bool behind = prefix != nullptr && prefix->is_array() &&
                      (site.keyword != "items" || document_.draft() != Draft::seven);
  if (site.keyword == "additionalItems" && !behind) return std::optional<Cases<ArrayCase>>();
  const std::size_t from = behind ? prefix->get_array().size() : 0;
  ArrayCase it;
  if (negated) {
    if (always(site.value)) return std::optional<Cases<ArrayCase>>();
    it.counts.push_back(
        {.value = {{&site.value, true}}, .from = from, .least = 1, .most = std::nullopt});
    return one(it);
  }
  it.prefix.resize(from);
  if (!always(site.value)) it.rest = {{&site.value}};
  it.all_evaluated = true;
  return one(it);
}

Result<std::optional<Cases<ArrayCase>>> Expander::prefix_items(const Site& site, bool negated) {
  const json::array* list = site.value.if_array();
  if (list == nullptr) return wrong(site, "a list of schemas is needed");
  STRATA_TRY(spend(list->size()));
  ArrayCase it;
  Cases<ArrayCase> refuted;
  for (const json::value& schema : *list) {
    it.prefix.push_back({{&schema, negated}});
    if (!negated) continue;
    ArrayCase differs;
    differs.prefix.resize(it.prefix.size() - 1);
    differs.prefix.push_back(it.prefix.back());
    differs.least = it.prefix.size();
    refuted.push_back(std::move(differs));
  }
  if (negated) return refuted;
  it.evaluated = it.prefix.size();
  return one(it);
}

Result<std::optional<Cases<ArrayCase>>> Expander::contains(const Site& site, bool negated) {
  ArrayCase::Count range{.value = {{&site.value}}, .least = 1, .most = std::nullopt};
  if (document_.draft() != Draft::seven) {
    if (const json::value* least = site.sibling("minContains")) {
      STRATA_ASSIGN(range.least, count(site, *least));
    }
    if (const json::value* most = site.sibling("maxContains")) {
      STRATA_ASSIGN(range.most, count(site, *most));
    }
  }
  Cases<ArrayCase> out;
  const auto keep = [&](std::uint64_t least, std::optional<std::uint64_t> most) {
    ArrayCase it;
    it.counts.push_back({.value = range.value, .from = 0, .least = least, .most = most});
    out.push_back(std::move(it));
  };
  if (negated) {
    if (range.least > 0) keep(0, range.least - 1);
    if (range.most) keep(*range.most + 1, std::nullopt);
    return out;
  }
  if (range.most && *range.most < range.least) return out;
  if (range.least == 0 && !range.most) {
    // Says nothing about the array, but which items it has looked at.
    return one(ArrayCase{});
  }
  keep(range.least, range.most);
  return out;
}

Result<Cases<ArrayCase>> Expander::among(Constants constants, bool negated, const ArrayCase&) {
  Cases<ArrayCase> out;
  if (negated) out.push_back({});
  for (const json::value* constant : constants) {
    const json::array* items = constant->if_array();
    if (items == nullptr) continue;
    STRATA_TRY(spend(items->size()));
    ArrayCase equal;
    Cases<ArrayCase> differs;
    for (const json::value& item : *items) {
      ArrayCase it;
      it.prefix.resize(equal.prefix.size());
      it.prefix.push_back({{&item, true, true}});
      it.least = it.prefix.size();
      differs.push_back(std::move(it));
      equal.prefix.push_back({{&item, false, true}});
    }
    equal.least = items->size();
    equal.most = items->size();
    if (!negated) {
      out.push_back(std::move(equal));
      continue;
    }
    ArrayCase longer;
    longer.least = items->size() + 1;
    differs.push_back(std::move(longer));
    if (!items->empty()) {
      ArrayCase shorter;
      shorter.most = items->size() - 1;
      differs.push_back(std::move(shorter));
    }
    static const json::object none;
    STRATA_ASSIGN(out, product(std::move(out), differs, Site{*constant, none, "", *constant}));
  }
  return out;
}

Result<bool> Expander::impossible(const ArrayCase& it, int levels) {
  for (std::size_t i = 0; i < it.least && i <= it.prefix.size(); ++i) {
    STRATA_ASSIGN(const bool none,
                  surely_empty(i < it.prefix.size() ? it.prefix[i] : it.rest, levels - 1));
    if (none) return true;
  }
  return false;
}

}  // namespace strata::constrain
