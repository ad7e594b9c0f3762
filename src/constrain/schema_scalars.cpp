// Keywords of numbers and strings.
#include <algorithm>
#include <map>
#include <mutex>

#include "base/json_number.h"
#include "constrain/schema_expand.h"
#include "constrain/time_limit.h"

namespace strata::constrain {

namespace json = boost::json;

namespace {

std::string_view view(json::string_view text) {
  return {text.data(), text.size()};
}

NumberCase within(NumberRanges ranges) {
  NumberCase it;
  it.ranges = std::move(ranges);
  return it;
}

std::optional<Cases<NumberCase>> one(NumberCase it) {
  return Cases<NumberCase>{std::move(it)};
}

std::optional<Cases<StringCase>> one(StringCase it) {
  return Cases<StringCase>{std::move(it)};
}

}  // namespace

Result<std::optional<Cases<NumberCase>>> Expander::assertion(const Site& site, bool negated,
                                                             const NumberCase&) {
  const std::string_view name = site.keyword;
  const bool most = name == "maximum" || name == "exclusiveMaximum";
  const bool excluded = name.starts_with("exclusive");
  if (most || name == "minimum" || name == "exclusiveMinimum") {
    if (excluded && site.value.is_bool()) {  // draft 4, where it says something of `minimum`
      return refuse(site, "true and false are draft 4's; give the number itself");
    }
    STRATA_ASSIGN(const SchemaNumber bound, number(site));
    // What is negated lies beyond it.
    return one(within(most != negated ? NumberRanges::at_most(bound, excluded != negated)
                                      : NumberRanges::at_least(bound, excluded != negated)));
  }
  if (name == "multipleOf") {
    STRATA_ASSIGN(const SchemaNumber step, number(site));
    if (step.exact <= Decimal()) return wrong(site, "a number above 0 is needed");
    NumberCase it;
    (negated ? it.not_steps : it.steps).push_back(step.exact);
    return one(it);
  }
  return std::optional<Cases<NumberCase>>();
}

Result<Cases<NumberCase>> Expander::among(Constants constants, bool negated, const NumberCase&) {
  std::vector<SchemaNumber> points;
  for (const json::value* it : constants) {
    if (!is_number(*it)) continue;
    Result<SchemaNumber> point = SchemaNumber::of(*it);
    if (!point) {
      return tl::unexpected(
          document_.error(point.error().code, *it, "", std::move(point).error().message));
    }
    points.push_back(*std::move(point));
  }
  Cases<NumberCase> out;
  if (negated) {
    for (NumberRanges& it : NumberRanges::without(std::move(points)))
      out.push_back(within(std::move(it)));
    return out;
  }
  std::sort(points.begin(), points.end(), SchemaNumber::before);
  for (const SchemaNumber& point : points) {
    NumberRanges here = NumberRanges::at_least(point, false);
    here.meet(NumberRanges::at_most(point, false));
    const bool known = !out.empty() && out.back().ranges == here;
    if (!known && !here.empty()) out.push_back(within(std::move(here)));
  }
  return out;
}

Result<bool> Expander::impossible(const NumberCase& it, int) {
  return it.integer && it.ranges.whole.without_whole_numbers() &&
         it.ranges.part.without_whole_numbers();
}

// Formats are few and large: what is made of them is kept for all schemas.
Language format_language(std::string_view name) {
  static std::mutex mutex;
  static std::map<std::string, Language, std::less<>> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(name);
  if (found != known.end()) return found->second;
  const std::optional<Regular> texts = format_text(name);
  if (!texts) return nullptr;
  return known.emplace(name, std::make_shared<const Regular>(*texts)).first->second;
}

Result<Regular> format_literals(const Language& texts) {
  static std::mutex mutex;
  static std::map<Language, Regular> known;  // no more than there are formats
  const std::lock_guard lock(mutex);
  const auto found = known.find(texts);
  if (found != known.end()) return found->second;
  const TimeLimit::Exempt all;  // as in format_text
  STRATA_ASSIGN(const Regular literals, json_string(*texts));
  return known.emplace(texts, literals).first->second;
}

Result<Language> Expander::pattern(const Site& site, std::string_view text) {
  const auto known = patterns_.find(text);
  if (known != patterns_.end()) return known->second;
  Result<Regular> made = regex(text, Match::anywhere);
  if (!made) {
    return tl::unexpected(
        error(made.error().code, site, fmt::format("'{}': {}", text, made.error().message)));
  }
  auto language = std::make_shared<const Regular>(*std::move(made));
  patterns_.emplace(text, language);
  return language;
}

Result<std::optional<Cases<StringCase>>> Expander::assertion(const Site& site, bool negated,
                                                             const StringCase&) {
  const std::string_view name = site.keyword;
  StringCase it;
  if (name == "minLength") {
    STRATA_ASSIGN(it.least, count(site, site.value));
    if (!negated) return one(it);
    if (it.least == 0) return std::optional<Cases<StringCase>>();
    it.most = std::exchange(it.least, 0) - 1;
    return one(it);
  }
  if (name == "maxLength") {
    STRATA_ASSIGN(it.most, count(site, site.value));
    if (!negated) return one(it);
    it.least = *std::exchange(it.most, std::nullopt) + 1;
    return one(it);
  }
  const bool format = name == "format";
  if (!format && name != "pattern") return std::optional<Cases<StringCase>>();
  STRATA_ASSIGN(const std::string_view said, text(site));
  if (format) {
    Language language = format_language(said);
    if (language == nullptr) return std::optional<Cases<StringCase>>();  // an annotation
    (negated ? it.not_in : it.in).push_back(std::move(language));
    it.format = !negated;
  } else {
    STRATA_ASSIGN(Language language, pattern(site, said));
    (negated ? it.not_in : it.in).push_back(std::move(language));
  }
  return one(it);
}

Result<Cases<StringCase>> Expander::among(Constants constants, bool negated, const StringCase&) {
  std::vector<std::string> values;
  for (const json::value* it : constants)
    if (const json::string* text = it->if_string()) values.emplace_back(view(*text));
  if (values.empty()) return negated ? Cases<StringCase>{StringCase{}} : Cases<StringCase>{};
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  StringCase it;
  if (negated) {
    it.not_values = std::move(values);
  } else {
    it.values = std::move(values);
  }
  return Cases<StringCase>{it};
}

Result<bool> Expander::impossible(const StringCase& it, int) {
  if (!it.values && it.in.size() + it.not_in.size() < 2) return false;
  const bool finite = it.values && it.values->size() <= 64;
  if (!finite) return false;
  STRATA_ASSIGN(const Regular left, texts(it));
  return left.is_nothing();
}

Result<Regular> Expander::texts(const StringCase& strings) {
  STRATA_TRY(spend(100));
  const auto characters = [](std::string_view text) {
    return static_cast<std::uint64_t>(std::count_if(text.begin(), text.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    }));
  };
  if (strings.values) {
    std::vector<Regular> left;
    for (const std::string& value : *strings.values) {
      const auto accepts = [&](const Language& it) { return it->accepts(value); };
      const std::uint64_t length = characters(value);
      const bool fits = length >= strings.least && (!strings.most || length <= *strings.most);
      if (fits && std::all_of(strings.in.begin(), strings.in.end(), accepts) &&
          std::none_of(strings.not_in.begin(), strings.not_in.end(), accepts))
        left.push_back(Regular::literal(value));
    }
    return either(left);
  }
  Regular out = Regular::text();
  bool first = true;
  for (const Language& it : strings.in) {
    STRATA_ASSIGN(out, first ? Result<Regular>(*it) : both(out, *it));
    first = false;
  }
  if (strings.least > 0 || strings.most) {
    if (strings.least > kLongLength || strings.most.value_or(0) > kLongLength) {
      return fail(ErrorCode::exhausted,
                  "lengths above {} characters together with patterns, formats or other strings",
                  kLongLength);
    }
    std::optional<std::uint32_t> most;
    if (strings.most) most = static_cast<std::uint32_t>(*strings.most);
    STRATA_ASSIGN(const Regular lengths, repeat(Regular::any_character(),
                                                static_cast<std::uint32_t>(strings.least), most));
    STRATA_ASSIGN(out, first ? Result<Regular>(lengths) : both(out, lengths));
  }
  for (const Language& it : strings.not_in) {
    STRATA_ASSIGN(out, without(out, *it));
  }
  if (!strings.not_values.empty()) {
    std::vector<Regular> excluded;
    for (const std::string& value : strings.not_values) excluded.push_back(Regular::literal(value));
    STRATA_ASSIGN(const Regular none_of, either(excluded));
    STRATA_ASSIGN(out, without(out, none_of));
  }
  return out;
}

Result<Regular> Expander::texts(const All& all, const json::value& place) {
  STRATA_ASSIGN(const Cases<StringCase> found, cases<StringCase>(all));
  std::vector<Regular> parts;
  for (const StringCase& it : found) {
    Result<Regular> part = texts(it);
    if (!part) {
      return tl::unexpected(
          document_.error(part.error().code, place, "", std::move(part).error().message));
    }
    parts.push_back(*std::move(part));
  }
  return either(parts);
}

Result<Regular> Expander::texts(const NameSet& set) {
  std::vector<Regular> parts;
  for (const std::string& name : set.names) parts.push_back(Regular::literal(name));
  for (const Language& it : set.languages) parts.push_back(*it);
  STRATA_ASSIGN(Regular out, either(parts));
  if (!set.complement) return out;
  return without(Regular::text(), out);
}

}  // namespace strata::constrain
