#include "constrain/schema_expand.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/json_number.h"
#include "constrain/time_limit.h"

namespace strata::constrain {

namespace json = boost::json;

namespace {

std::string_view view(json::string_view text) {
  return {text.data(), text.size()};
}

Literal negation(Literal literal) {
  literal.negated = !literal.negated;
  return literal;
}

constexpr std::array kTypes = {"null", "boolean", "number", "integer", "string", "array", "object"};

constexpr std::string_view type_name(Kind kind) {
  switch (kind) {
    case Kind::null:
      return "null";
    case Kind::yes:
    case Kind::no:
      return "boolean";
    case Kind::number:
      return "number";
    case Kind::string:
      return "string";
    case Kind::array:
      return "array";
    case Kind::object:
      return "object";
  }
  return "";
}

// Keywords that only draft 7, or only the current one, knows: elsewhere they are annotations.
bool known_to(Draft draft, std::string_view keyword) {
  constexpr std::array fresh = {"prefixItems",           "dependentRequired", "dependentSchemas",
                                "unevaluatedProperties", "unevaluatedItems",  "minContains",
                                "maxContains",           "$dynamicRef",       "$recursiveRef"};
  constexpr std::array old = {"dependencies", "additionalItems"};
  const auto in = [&](const auto& list) {
    return std::find(list.begin(), list.end(), keyword) != list.end();
  };
  if (draft == Draft::seven) return !in(fresh);
  if (draft == Draft::current) return !in(old);
  return true;
}

template <class Case>
void append(Cases<Case>& to, Cases<Case> from) {
  for (Case& it : from) to.push_back(std::move(it));
}

// One case that allows everything makes the others idle.
template <class Case>
void absorb(Cases<Case>& cases) {
  if (cases.size() < 2) return;
  const auto all =
      std::find_if(cases.begin(), cases.end(), [](const Case& it) { return it.anything(); });
  if (all != cases.end()) cases = {Case{}};
}

}  // namespace

Status Expander::spend(std::size_t members) {
  work_ += members;
  if (work_ <= kMaxWork) return TimeLimit::check();
  return fail(ErrorCode::exhausted,
              "the schema takes more than {} steps to combine; use fewer alternatives in anyOf, "
              "oneOf, allOf and if",
              kMaxWork);
}

template <class Case>
Result<Cases<Case>> Expander::cases(const All& all) {
  Cases<Case> out = {Case{}};
  for (const Literal& it : all) {
    STRATA_ASSIGN(const Cases<Case> more, literal<Case>(it));
    static const json::object none;
    STRATA_ASSIGN(out, product(std::move(out), more, Site{*it.node, none, "", *it.node}));
    if (out.empty()) break;
  }
  return out;
}

template <class Case>
Result<Cases<Case>> Expander::product(Cases<Case> a, const Cases<Case>& b, const Site& site) {
  if (b.size() == 1 && a.size() == 1) {
    STRATA_TRY(spend(a[0].size() + b[0].size()));
    if (!a[0].merge(b[0])) a.clear();
    return a;
  }
  Cases<Case> out;
  for (const Case& left : a) {
    for (const Case& right : b) {
      STRATA_TRY(spend(left.size() + right.size()));
      Case both = left;
      if (both.merge(right)) out.push_back(std::move(both));
      if (out.size() > kMaxCases) {
        return tl::unexpected(
            error(ErrorCode::exhausted, site,
                  fmt::format("the alternatives multiply to more than {} cases; use fewer of them",
                              kMaxCases)));
      }
    }
  }
  if (tracking_ == 0) absorb(out);
  return out;
}

template <class Case>
Result<Cases<Case>> Expander::literal(const Literal& it) {
  STRATA_TRY(spend(1));
  const json::value& node = *it.node;
  if (it.constant) return among(std::array{&node}, it.negated, Case{});
  if (node.is_bool()) {
    return node.get_bool() != it.negated ? Cases<Case>{Case{}} : Cases<Case>{};
  }
  const json::object* schema = object_of(node);
  if (schema == nullptr) {
    return tl::unexpected(document_.error(ErrorCode::invalid_argument, node, "",
                                          "a schema is an object, true or false"));
  }
  if (std::find(open_.begin(), open_.end(), it) != open_.end()) {
    return tl::unexpected(
        document_.error(ErrorCode::invalid_argument, node, "",
                        "the schema refers to itself without an object or array in between"));
  }
  if (open_.size() >= depth_) {
    return tl::unexpected(
        document_.error(ErrorCode::exhausted, node, "",
                        fmt::format("more than {} schemas stand inside each other here", depth_)));
  }
  open_.push_back(it);
  Result<Cases<Case>> out =
      it.negated ? refuted<Case>(node, *schema) : satisfied<Case>(node, *schema);
  open_.pop_back();
  return out;
}

template <class Case>
Result<Cases<Case>> Expander::satisfied(const json::value& node, const json::object& schema) {
  constexpr std::string_view unevaluated = Case::kind == Kind::object  ? "unevaluatedProperties"
                                           : Case::kind == Kind::array ? "unevaluatedItems"
                                                                       : "";
  const json::value* rest = unevaluated.empty() || !known_to(document_.draft(), unevaluated)
                                ? nullptr
                                : schema.if_contains(unevaluated);
  if (rest != nullptr && rest->is_bool() && rest->get_bool() && tracking_ == 0) rest = nullptr;
  const bool alone = document_.draft() == Draft::seven && schema.contains("$ref");
  if (rest != nullptr) ++tracking_;
  Result<Cases<Case>> out = Cases<Case>{Case{}};
  for (const auto& member : schema) {
    const Site site{node, schema, view(member.key()), member.value()};
    if (alone && site.keyword != "$ref") continue;
    Result<std::optional<Cases<Case>>> said = keyword<Case>(site, false);
    if (!said) {
      out = tl::unexpected(std::move(said).error());
    } else if (*said) {
      out = product(*std::move(out), **said, site);
    }
    if (!out || out->empty()) break;
  }
  if (rest == nullptr) return out;
  --tracking_;
  if (!out) return out;
  STRATA_TRY(without_unevaluated(Site{node, schema, unevaluated, *rest}, *out));
  return out;
}

template <class Case>
Result<Cases<Case>> Expander::refuted(const json::value& node, const json::object& schema) {
  const bool alone = document_.draft() == Draft::seven && schema.contains("$ref");
  Cases<Case> out;
  for (const auto& member : schema) {
    const Site site{node, schema, view(member.key()), member.value()};
    if (alone && site.keyword != "$ref") continue;
    const bool objects = Case::kind == Kind::object && site.keyword == "unevaluatedProperties";
    const bool arrays = Case::kind == Kind::array && site.keyword == "unevaluatedItems";
    if ((objects || arrays) && known_to(document_.draft(), site.keyword)) {
      return refuse(site, "cannot be negated (by not, if or an oneOf whose alternatives overlap)");
    }
    STRATA_ASSIGN(std::optional<Cases<Case>> said, keyword<Case>(site, true));
    if (!said) continue;
    append(out, *std::move(said));
    if (out.size() > kMaxCases) {
      return tl::unexpected(error(ErrorCode::exhausted, site,
                                  fmt::format("its negation has more than {} cases", kMaxCases)));
    }
  }
  if constexpr (Case::kind == Kind::object) {
    for (ObjectCase& it : out) it.evaluated = {}, it.all_evaluated = false;
  }
  if constexpr (Case::kind == Kind::array) {
    for (ArrayCase& it : out) it.evaluated = 0, it.all_evaluated = false;
  }
  absorb(out);
  return out;
}

template <class Case>
Result<std::optional<Cases<Case>>> Expander::keyword(const Site& site, bool negated) {
  if (!known_to(document_.draft(), site.keyword)) return std::optional<Cases<Case>>();
  STRATA_ASSIGN(std::optional<Cases<Case>> said, applicator<Case>(site, negated));
  if (said) return said;
  return assertion(site, negated, Case{});
}

template <class Case>
Result<std::optional<Cases<Case>>> Expander::applicator(const Site& site, bool negated) {
  const std::string_view name = site.keyword;
  const auto some = [](Result<Cases<Case>> result) -> Result<std::optional<Cases<Case>>> {
    if (!result) return tl::unexpected(std::move(result).error());
    return std::optional(*std::move(result));
  };
  if (name == "type") return some(types<Case>(site, negated));
  if (name == "const") return some(among(std::array{&site.value}, negated, Case{}));
  if (name == "enum") {
    if (!site.value.is_array()) return wrong(site, "a list of values is needed");
    std::vector<const json::value*> constants;
    for (const json::value& value : site.value.get_array()) constants.push_back(&value);
    STRATA_TRY(spend(constants.size()));
    return some(among(constants, negated, Case{}));
  }
  if (name == "$ref" || name == "$dynamicRef" || name == "$recursiveRef") {
    STRATA_ASSIGN(const std::string_view reference, text(site));
    STRATA_ASSIGN(const json::value* const target,
                  name == "$ref" ? document_.resolve(site.node, reference)
                                 : document_.resolve_dynamic(site.node, reference));
    return some(literal<Case>({target, negated}));
  }
  if (name == "not") return some(literal<Case>({&site.value, !negated}));
  if (name == "allOf" || name == "anyOf" || name == "oneOf") {
    STRATA_ASSIGN(const std::vector<Literal> parts, schemas(site, negated));
    if (name == "oneOf")
      return some(negated ? several_of<Case>(parts, site) : one_of<Case>(parts, site));
    return some((name == "allOf") != negated ? all_of<Case>(parts, site)
                                             : any_of<Case>(parts, site));
  }
  if (name == "if") return some(conditional<Case>(site, negated));
  return std::optional<Cases<Case>>();
}

template <class Case>
Result<Cases<Case>> Expander::all_of(std::span<const Literal> parts, const Site& site) {
  Cases<Case> out = {Case{}};
  for (const Literal& part : parts) {
    STRATA_ASSIGN(const Cases<Case> more, literal<Case>(part));
    STRATA_ASSIGN(out, product(std::move(out), more, site));
    if (out.empty()) break;
  }
  return out;
}

template <class Case>
Result<Cases<Case>> Expander::any_of(std::span<const Literal> parts, const Site& site) {
  constexpr bool tracked = Case::kind == Kind::object || Case::kind == Kind::array;
  if (tracked && tracking_ > 0 && !parts.empty() && !parts[0].negated)
    return any_of_tracked<Case>(parts, site);
  Cases<Case> out;
  for (const Literal& part : parts) {
    STRATA_ASSIGN(Cases<Case> more, literal<Case>(part));
    STRATA_TRY(spend(more.size()));
    append(out, std::move(more));
    if (out.size() > kMaxCases) {
      return tl::unexpected(
          error(ErrorCode::exhausted, site, fmt::format("more than {} alternatives", kMaxCases)));
    }
  }
  absorb(out);
  return out;
}

// What was evaluated depends on every alternative that holds, so each combination is a case.
template <class Case>
Result<Cases<Case>> Expander::any_of_tracked(std::span<const Literal> parts, const Site& site) {
  if (parts.size() > 6)
    return refuse(site, "with unevaluatedProperties or unevaluatedItems at most 6 alternatives");
  Cases<Case> out;
  for (std::size_t set = 1; set < std::size_t{1} << parts.size(); ++set) {
    std::vector<Literal> chosen;
    for (std::size_t i = 0; i < parts.size(); ++i)
      chosen.push_back((set >> i & 1) != 0 ? parts[i] : negation(parts[i]));
    STRATA_ASSIGN(Cases<Case> more, all_of<Case>(chosen, site));
    append(out, std::move(more));
  }
  return out;
}

template <class Case>
Result<bool> Expander::disjoint(const Literal& a, const Literal& b, const Site& site) {
  const std::tuple key(Case::kind, std::min(a, b), std::max(a, b));
  if (const auto known = disjoint_.find(key); known != disjoint_.end()) return known->second;
  STRATA_ASSIGN(const Cases<Case> both, all_of<Case>(std::array{a, b}, site));
  bool apart = true;
  for (const Case& it : both) {
    if (!apart) break;
    STRATA_ASSIGN(apart, impossible(it, 3));
  }
  disjoint_.emplace(key, apart);
  return apart;
}

template <class Case>
Result<Cases<Case>> Expander::one_of(std::span<const Literal> parts, const Site& site) {
  if (looking_) return any_of<Case>(parts, site);  // more than it allows, which is on the safe side
  Cases<Case> out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    STRATA_ASSIGN(Cases<Case> alone, literal<Case>(parts[i]));
    for (std::size_t j = 0; j < parts.size() && !alone.empty(); ++j) {
      if (i == j) continue;
      STRATA_ASSIGN(const bool apart, disjoint<Case>(parts[i], parts[j], site));
      if (apart) continue;
      Result<Cases<Case>> others = literal<Case>(negation(parts[j]));
      if (!others) {
        return refuse(site, fmt::format("alternatives {} and {} overlap ({}); make them differ in "
                                        "type or in a required property with a const",
                                        i, j, others.error().message));
      }
      STRATA_ASSIGN(alone, product(std::move(alone), *others, site));
    }
    append(out, std::move(alone));
    if (out.size() > kMaxCases) {
      return tl::unexpected(
          error(ErrorCode::exhausted, site, fmt::format("more than {} alternatives", kMaxCases)));
    }
  }
  return out;
}

// Not exactly one: none of them, or two. `parts` are negated already.
template <class Case>
Result<Cases<Case>> Expander::several_of(std::span<const Literal> parts, const Site& site) {
  STRATA_ASSIGN(Cases<Case> out, all_of<Case>(parts, site));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (std::size_t j = i + 1; j < parts.size(); ++j) {
      const std::array two = {negation(parts[i]), negation(parts[j])};
      STRATA_ASSIGN(Cases<Case> more, all_of<Case>(two, site));
      append(out, std::move(more));
    }
  }
  if (out.size() > kMaxCases) {
    return tl::unexpected(error(ErrorCode::exhausted, site,
                                fmt::format("its negation has more than {} cases", kMaxCases)));
  }
  return out;
}

template <class Case>
Result<Cases<Case>> Expander::conditional(const Site& site, bool negated) {
  const json::value* then = site.sibling("then");
  const json::value* otherwise = site.sibling("else");
  if (then == nullptr && otherwise == nullptr && tracking_ == 0)
    return negated ? Cases<Case>{} : Cases<Case>{Case{}};
  Cases<Case> out;
  for (const bool holds : {true, false}) {
    const json::value* branch = holds ? then : otherwise;
    if (branch == nullptr && negated) continue;
    std::vector<Literal> parts = {{&site.value, !holds}};
    if (branch != nullptr) parts.push_back({branch, negated});
    STRATA_ASSIGN(Cases<Case> more, all_of<Case>(parts, site));
    append(out, std::move(more));
  }
  return out;
}

template <class Case>
Result<Cases<Case>> Expander::types(const Site& site, bool negated) {
  std::vector<std::string_view> names;
  if (const json::string* name = site.value.if_string()) names.push_back(view(*name));
  if (const json::array* list = site.value.if_array()) {
    for (const json::value& it : *list) {
      if (!it.is_string()) return wrong(site, "names of types are strings");
      names.push_back(view(it.get_string()));
    }
  }
  if (names.empty()) return wrong(site, "the name of a type, or a list of them, is needed");
  bool whole = false, integer = false;
  for (const std::string_view name : names) {
    if (std::find(kTypes.begin(), kTypes.end(), name) == kTypes.end())
      return wrong(site, fmt::format("'{}' is no type of JSON", name));
    whole |= name == type_name(Case::kind);
    integer |= name == "integer";
  }
  // OpenAPI 3.0: {"type": "string", "nullable": true} is a string or null.
  const json::value* nullable = site.sibling("nullable");
  whole |= Case::kind == Kind::null && nullable != nullptr && nullable->is_bool() &&
           nullable->get_bool();
  if constexpr (Case::kind == Kind::number) {
    if (!whole && integer) {
      NumberCase it;
      (negated ? it.fraction : it.integer) = true;
      return Cases<Case>{it};
    }
  }
  return whole != negated ? Cases<Case>{Case{}} : Cases<Case>{};
}

template <Kind K>
Result<Cases<PlainCase<K>>> Expander::among(Constants constants, bool negated,
                                            const PlainCase<K>&) {
  const bool there = std::any_of(constants.begin(), constants.end(), [](const json::value* it) {
    return K == Kind::null ? it->is_null() : it->is_bool() && it->get_bool() == (K == Kind::yes);
  });
  return there != negated ? Cases<PlainCase<K>>{{}} : Cases<PlainCase<K>>{};
}

template <class Case>
Status Expander::without_unevaluated(const Site& site, Cases<Case>& cases) {
  if constexpr (Case::kind == Kind::object) {
    for (ObjectCase& it : cases) {
      if (!it.all_evaluated) {
        NameSet rest = it.evaluated;
        rest.complement = true;
        it.rules.push_back({std::move(rest), {{&site.value}}});
      }
      it.all_evaluated = true;
    }
  } else if constexpr (Case::kind == Kind::array) {
    for (ArrayCase& it : cases) {
      if (!it.all_evaluated && !it.counts.empty())
        return refuse(site, "cannot be enforced together with contains");
      if (!it.all_evaluated) {
        ArrayCase rest;
        rest.prefix.resize(it.evaluated);
        rest.rest = {{&site.value}};
        if (!it.merge(rest)) return wrong(site, "nothing is left");
      }
      it.all_evaluated = true;
    }
  }
  return {};
}

Result<bool> Expander::surely_empty(const All& all, int levels) {
  if (is_false(all)) return true;
  if (all.size() < 2 || levels <= 0) return false;  // what stands alone is hardly ever empty
  const bool looked = std::exchange(looking_, true);
  const std::uint32_t tracked = std::exchange(tracking_, 0);
  std::vector<Literal> open = std::exchange(open_, {});
  Result<bool> empty =
      surely_empty_kinds<PlainCase<Kind::null>, PlainCase<Kind::yes>, PlainCase<Kind::no>,
                         NumberCase, StringCase, ArrayCase, ObjectCase>(all, levels);
  looking_ = looked;
  tracking_ = tracked;
  open_ = std::move(open);
  // What cannot be done is told where it has to be done.
  if (!empty && empty.error().code == ErrorCode::unsupported) return false;
  return empty;
}

template <class Case, class... Others>
Result<bool> Expander::surely_empty_kinds(const All& all, int levels) {
  STRATA_ASSIGN(const Cases<Case> found, cases<Case>(all));
  for (const Case& it : found) {
    STRATA_ASSIGN(const bool none, impossible(it, levels));
    if (!none) return false;
  }
  if constexpr (sizeof...(Others) > 0) return surely_empty_kinds<Others...>(all, levels);
  return true;
}

template Result<Cases<PlainCase<Kind::null>>> Expander::cases(const All&);
template Result<Cases<PlainCase<Kind::yes>>> Expander::cases(const All&);
template Result<Cases<PlainCase<Kind::no>>> Expander::cases(const All&);
template Result<Cases<NumberCase>> Expander::cases(const All&);
template Result<Cases<StringCase>> Expander::cases(const All&);
template Result<Cases<ArrayCase>> Expander::cases(const All&);
template Result<Cases<ObjectCase>> Expander::cases(const All&);
template Result<Cases<ObjectCase>> Expander::literal(const Literal&);

Result<std::uint64_t> Expander::count(const Site& site, const json::value& value) const {
  const Decimal it = Decimal::of(number_text(value));
  if (!is_number(value) || it.negative || !it.whole())
    return wrong(site, "a whole number of at least 0 is needed");
  if (it.point > 18) return kEndless;
  return static_cast<std::uint64_t>(std::stoull(it.text()));
}

Result<SchemaNumber> Expander::number(const Site& site) const {
  if (!is_number(site.value)) return wrong(site, "a number is needed");
  Result<SchemaNumber> it = SchemaNumber::of(site.value);
  if (it) return it;
  return tl::unexpected(error(it.error().code, site, it.error().message));
}

Result<std::string_view> Expander::text(const Site& site) const {
  if (const json::string* it = site.value.if_string()) return view(*it);
  return wrong(site, "a string is needed");
}

Result<const json::object*> Expander::map(const Site& site) const {
  if (const json::object* it = object_of(site.value)) return it;
  return wrong(site, "an object is needed");
}

Result<std::vector<Literal>> Expander::schemas(const Site& site, bool negated) const {
  const json::array* list = site.value.if_array();
  if (list == nullptr || list->empty()) return wrong(site, "a list of schemas is needed");
  std::vector<Literal> out;
  for (const json::value& it : *list) out.push_back({&it, negated});
  return out;
}

Result<std::vector<std::string_view>> Expander::name_list(const Site& site,
                                                          const json::value& list) const {
  std::vector<std::string_view> out;
  if (!list.is_array()) return wrong(site, "a list of names is needed");
  for (const json::value& it : list.get_array()) {
    if (!it.is_string()) return wrong(site, "names are strings");
    out.push_back(view(it.get_string()));
  }
  return out;
}

}  // namespace strata::constrain
