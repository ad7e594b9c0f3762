#include "constrain/schema_plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>

namespace strata::constrain {

namespace json = boost::json;

namespace {

std::string_view view(json::string_view text) {
  return {text.data(), text.size()};
}

// Keywords beside a $ref that say nothing about values.
bool is_annotation(std::string_view keyword) {
  constexpr std::array kAnnotations = {"title",    "description", "default",  "examples",
                                       "$comment", "deprecated",  "readOnly", "writeOnly"};
  return std::find(kAnnotations.begin(), kAnnotations.end(), keyword) != kAnnotations.end();
}

constexpr long double kTwo63 = 9223372036854775808.0L;

// step = digits / 10^places, as the shortest text of the double says.
struct Decimal {
  std::uint64_t digits = 0;
  unsigned places = 0;
};

std::optional<Decimal> decimal(double step) {
  const std::string text = plain_decimal(step);
  Decimal out;
  bool behind = false;
  for (const char c : text) {
    if (c == '.') {
      behind = true;
      continue;
    }
    if (out.digits > 100'000'000'000'000'000) return std::nullopt;
    out.digits = out.digits * 10 + static_cast<unsigned>(c - '0');
    out.places += behind ? 1 : 0;
  }
  return out;
}

}  // namespace

std::string plain_decimal(long double value) {
  if (value == std::floor(value) && std::abs(value) < kTwo63 * 2)
    return fmt::format("{}{}", value < 0 ? "-" : "", static_cast<std::uint64_t>(std::abs(value)));
  // d.dddde+XX, the shortest text that reads back the same
  std::string text = fmt::format("{:e}", static_cast<double>(value));
  for (int digits = 0; digits <= 17; ++digits) {
    text = fmt::format("{:.{}e}", static_cast<double>(value), digits);
    double read = 0;  // the smallest numbers, too, which std::stod refuses
    std::from_chars(text.data(), text.data() + text.size(), read);
    if (read == static_cast<double>(value)) break;
  }
  const std::size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  std::string digits;
  for (const char c : text.substr(0, e))
    if (c >= '0' && c <= '9') digits += c;
  const std::string sign = text[0] == '-' ? "-" : "";
  while (digits.size() > 1 && digits.back() == '0') digits.pop_back();
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0');
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

tl::unexpected<Error> Plan::refuse(ErrorCode code, std::string_view message) const {
  if (place_ == nullptr) return tl::unexpected(Error{code, std::string(message)});
  return tl::unexpected(
      const_cast<Expander&>(expander_).document().error(code, *place_, "", message));
}

Result<PlanId> Plan::make(const json::value& schema) {
  STRATA_ASSIGN(const PlanId root, id_of({{&schema}}));
  for (std::size_t i = 0; i < nodes_.size(); ++i) STRATA_TRY(open(nodes_[i]));
  find_productive();
  return root;
}

// Leaves out what says nothing and follows references that stand alone, so that equal languages
// are one node.
Result<All> Plan::simplified(const All& all) {
  All out;
  for (Literal it : all) {
    for (int steps = 0; !it.constant && steps < 64; ++steps) {
      const json::object* schema = it.node->if_object();
      const json::value* reference = schema ? schema->if_contains("$ref") : nullptr;
      if (reference == nullptr || !reference->is_string()) break;
      const bool alone = expander_.document().draft() == Draft::seven ||
                         std::all_of(schema->begin(), schema->end(), [](const auto& member) {
                           return member.key() == "$ref" || is_annotation(view(member.key()));
                         });
      if (!alone) break;
      STRATA_ASSIGN(it.node, expander_.document().resolve(*it.node, view(reference->get_string())));
    }
    const json::object* object = it.node->if_object();
    const bool says_nothing =
        !it.constant && ((it.node->is_bool() && it.node->get_bool() != it.negated) ||
                         (object != nullptr && object->empty() && !it.negated));
    if (!says_nothing) add(out, {it});
  }
  return out;
}

Result<PlanId> Plan::id_of(All all) {
  STRATA_ASSIGN(all, simplified(all));
  const auto known = known_.find(all);
  if (known != known_.end()) return known->second;
  if (nodes_.size() >= kMaxNodes) {
    return refuse(ErrorCode::exhausted,
                  fmt::format("the schema has more than {} different parts", kMaxNodes));
  }
  if (depth_ >= options_.depth) {
    return refuse(ErrorCode::exhausted,
                  fmt::format("schemas are nested deeper than {} levels", options_.depth));
  }
  const PlanId id{static_cast<std::uint32_t>(nodes_.size())};
  PlanNode& node = nodes_.emplace_back();
  node.all = all;
  node.depth = depth_ + 1;
  node.any = all.empty();
  known_.emplace(std::move(all), id);
  return id;
}

Status Plan::open(PlanNode& node) {
  if (node.any) return {};
  depth_ = node.depth;
  place_ = node.all[0].constant ? place_ : node.all[0].node;
  STRATA_TRY(open_scalars(node));
  STRATA_ASSIGN(const Cases<ArrayCase> arrays, expander_.cases<ArrayCase>(node.all));
  for (const ArrayCase& it : arrays) {
    STRATA_ASSIGN(ArrayPlan plan, array(it));
    node.arrays.push_back(std::move(plan));
  }
  STRATA_ASSIGN(const Cases<ObjectCase> cases, expander_.cases<ObjectCase>(node.all));
  for (const ObjectCase& it : cases) STRATA_TRY(objects(it, node.objects));
  return {};
}

Status Plan::open_scalars(PlanNode& node) {
  std::vector<Regular> scalars, texts, all_texts;
  STRATA_ASSIGN(const auto null, expander_.cases<PlainCase<Kind::null>>(node.all));
  if (!null.empty()) scalars.push_back(Regular::literal("null"));
  STRATA_ASSIGN(const auto yes, expander_.cases<PlainCase<Kind::yes>>(node.all));
  if (!yes.empty()) scalars.push_back(Regular::literal("true"));
  STRATA_ASSIGN(const auto no, expander_.cases<PlainCase<Kind::no>>(node.all));
  if (!no.empty()) scalars.push_back(Regular::literal("false"));
  STRATA_ASSIGN(const Cases<NumberCase> numbers, expander_.cases<NumberCase>(node.all));
  const auto located = [&](Error error) { return refuse(error.code, error.message); };
  for (const NumberCase& it : numbers) {
    Result<Regular> language = number_language(it);
    if (!language) return located(std::move(language).error());
    scalars.push_back(*std::move(language));
  }
  STRATA_ASSIGN(const Cases<StringCase> strings, expander_.cases<StringCase>(node.all));
  for (const StringCase& it : strings) {
    const bool lengths_only = !it.values && it.not_values.empty() && it.in.empty() &&
                              it.not_in.empty() &&
                              (it.least > kShortLength || it.most.value_or(0) > kShortLength);
    if (lengths_only) {
      if (it.least > kMaxLeast) {
        return refuse(ErrorCode::exhausted,
                      fmt::format("minLength {} is more than any answer has; at most {}", it.least,
                                  kMaxLeast));
      }
      node.long_strings.push_back({it.least, it.most});
      continue;
    }
    Result<Regular> language = expander_.texts(it);
    if (!language) return located(std::move(language).error());
    const bool format_only = it.format && !it.values && it.not_values.empty() &&
                             it.not_in.empty() && it.least == 0 && !it.most;
    if (format_only) {
      Result<Regular> literals = format_literals(it.in[0]);
      if (!literals) return located(std::move(literals).error());
      node.literals.push_back(*std::move(literals));
    } else {
      texts.push_back(*language);
    }
    all_texts.push_back(*std::move(language));
  }
  if (!texts.empty()) {
    Result<Regular> text = either(texts);
    if (text) text = json_string(*text);
    if (!text) return located(std::move(text).error());
    if (!text->is_nothing()) node.literals.push_back(*std::move(text));
  }
  Result<Regular> raw = either(all_texts);
  if (!raw) return located(std::move(raw).error());
  node.strings = *std::move(raw);
  Result<Regular> others = either(scalars);
  if (!others) return located(std::move(others).error());
  node.other_scalars = *std::move(others);
  return {};
}

Result<Regular> Plan::number_language(const NumberCase& it) {
  static const Regular plain = *regex("-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?", Match::whole);
  static const Regular fractions = *regex("-?(?:0|[1-9][0-9]*)\\.[0-9]*[1-9][0-9]*", Match::whole);
  STRATA_TRY(expander_.spend(100));
  NumberBounds bounds;
  std::string least, most;
  if (it.least) {
    least = plain_decimal(it.least->value);
    bounds.least = least;
    bounds.above_least = it.least->excluded;
  }
  if (it.most) {
    most = plain_decimal(it.most->value);
    bounds.most = most;
    bounds.below_most = it.most->excluded;
  }
  const bool whole_constant = it.least && it.most && it.least->value == it.most->value &&
                              std::trunc(it.least->value) == it.least->value;
  bounds.integer = it.integer || whole_constant;  // whose zeros are bounded
  bounds.zeros = true;
  std::uint64_t whole_step = 1;
  std::vector<Regular> also;
  for (const double step : it.steps) {
    const std::optional<Decimal> parts = decimal(step);
    if (!parts) return fail(ErrorCode::unsupported, "multipleOf: {} has too many digits", step);
    std::uint64_t power = 1;
    for (unsigned i = 0; i < std::min(parts->places, 9U); ++i) power *= 10;
    if (parts->places == 0) {
      bounds.integer = true;
      whole_step = std::lcm(whole_step, std::min<std::uint64_t>(parts->digits, 1'000'000));
      if (whole_step > 10'000 || parts->digits > 10'000) {
        return fail(ErrorCode::unsupported,
                    "multipleOf: {} (all together) is too large; at most 10000", step);
      }
      continue;
    }
    if (parts->places > 4 || power % parts->digits != 0) {
      return fail(ErrorCode::unsupported,
                  "multipleOf: {} cannot be enforced; whole numbers and fractions that divide 1, "
                  "of at most 4 places, can",
                  step);
    }
    std::string pattern = "-?(?:0|[1-9][0-9]*)(?:\\.(?:";
    for (std::uint64_t n = 0; n < power; n += parts->digits) {
      std::string digits = fmt::format("{:0{}}", n, parts->places);
      while (digits.ends_with('0')) digits.pop_back();
      pattern += (n == 0 ? "" : "|") + digits + (digits.empty() ? "0" : "") + "0*";
    }
    STRATA_ASSIGN(Regular fraction, regex(pattern + "))?", Match::whole));
    also.push_back(std::move(fraction));
  }
  if (bounds.integer) bounds.multiple_of = whole_step;
  STRATA_ASSIGN(Regular out, json_number(bounds));
  for (const Regular& language : also) {
    STRATA_ASSIGN(out, both(out, language));
  }
  if (it.fraction) {
    STRATA_ASSIGN(out, both(out, fractions));
  }
  for (const double step : it.not_steps) {
    NumberCase multiple;
    multiple.steps.push_back(step);
    STRATA_ASSIGN(const Regular multiples, number_language(multiple));
    STRATA_ASSIGN(out, both(out, plain));
    STRATA_ASSIGN(out, without(out, multiples));
  }
  return out;
}

void Plan::find_productive() {
  for (bool changed = true; changed;) {
    changed = false;
    for (PlanNode& it : nodes_) {
      if (it.productive) continue;
      it.productive = it.any || !it.other_scalars.is_nothing() || !it.literals.empty() ||
                      !it.long_strings.empty() ||
                      std::any_of(it.arrays.begin(), it.arrays.end(),
                                  [&](const ArrayPlan& plan) { return ends(plan); }) ||
                      std::any_of(it.objects.begin(), it.objects.end(),
                                  [&](const ObjectPlan& plan) { return ends(plan); });
      changed |= it.productive;
    }
  }
}

bool Plan::ends(const ArrayPlan& it) const {
  if (it.machine) return ends(*it.machine);
  for (std::size_t i = 0; i < it.least; ++i) {
    if (i < it.prefix.size()) {
      if (!node(it.prefix[i]).productive) return false;
    } else {
      return it.rest && node(*it.rest).productive;
    }
  }
  return true;
}

bool Plan::ends(const ObjectPlan& it) const {
  if (it.machine) return ends(*it.machine);
  return std::all_of(it.members.begin(), it.members.end(), [&](const ObjectPlan::Member& member) {
    return !member.required || node(member.value).productive;
  });
}

bool Plan::ends(const Machine& it) const {
  std::vector<bool> seen(it.states.size(), false);
  std::vector<std::uint32_t> open = {0};
  seen[0] = true;
  while (!open.empty()) {
    const Machine::State& state = it.states[open.back()];
    open.pop_back();
    if (state.accepting) return true;
    for (const Machine::Edge& edge : state.edges) {
      if (seen[edge.to] || !productive(edge)) continue;
      seen[edge.to] = true;
      open.push_back(edge.to);
    }
  }
  return false;
}

}  // namespace strata::constrain
