#include "constrain/schema_plan.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/json_number.h"

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

}  // namespace

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
      const json::object* schema = object_of(*it.node);
      const json::value* reference = schema ? schema->if_contains("$ref") : nullptr;
      if (reference == nullptr || !reference->is_string()) break;
      const bool alone = expander_.document().draft() == Draft::seven ||
                         std::all_of(schema->begin(), schema->end(), [](const auto& member) {
                           return member.key() == "$ref" || is_annotation(view(member.key()));
                         });
      if (!alone) break;
      STRATA_ASSIGN(it.node, expander_.document().resolve(*it.node, view(reference->get_string())));
    }
    const json::object* object = object_of(*it.node);
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
                      fmt::format("minLength {} is more than any answer has; at most {}",
                                  count_text(it.least), kMaxLeast));
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

namespace {

// Numbers within the range as they are written out; of `bounds` all but the bounds is given.
Result<Regular> numbers_within(const Range& range, NumberBounds bounds) {
  std::string least, most;
  if (range.least) {
    least = range.least->value.text();
    bounds.least = least;
    bounds.above_least = range.least->excluded;
  }
  if (range.most) {
    most = range.most->value.text();
    bounds.most = most;
    bounds.below_most = range.most->excluded;
  }
  return json_number(bounds);
}

// Multiples of the fraction, which divides 1 and has at most four places.
Result<Regular> fraction_multiples(const Decimal& step) {
  const auto places = static_cast<std::size_t>(
      std::max<std::int64_t>(static_cast<std::int64_t>(step.digits.size()) - step.point, 0));
  const std::uint64_t power = places == 1 ? 10 : places == 2 ? 100 : places == 3 ? 1'000 : 10'000;
  const std::uint64_t digits = step.digits.size() <= 4 ? std::stoull(step.digits) : 0;
  if (places > 4 || digits == 0 || power % digits != 0) {
    return fail(ErrorCode::unsupported,
                "multipleOf: {} cannot be enforced; whole numbers and fractions that divide 1, "
                "of at most 4 places, can",
                step.text());
  }
  std::string pattern = "-?(?:0|[1-9][0-9]*)(?:\\.(?:";
  for (std::uint64_t n = 0; n < power; n += digits) {
    std::string behind = fmt::format("{:0{}}", n, places);
    while (behind.ends_with('0')) behind.pop_back();
    pattern += (n == 0 ? "" : "|") + behind + (behind.empty() ? "0" : "") + "0*";
  }
  return regex(pattern + "))?", Match::whole);
}

// The whole steps among them as one.
Result<std::optional<std::uint64_t>> whole_step(const std::vector<Decimal>& steps) {
  constexpr std::uint64_t kLargest = 10'000;
  std::optional<std::uint64_t> out;
  for (const Decimal& step : steps) {
    if (!step.whole()) continue;
    if (step.point <= 5) out = std::lcm(out.value_or(1), std::stoull(step.text()));
    if (step.point > 5 || *out > kLargest) {
      return fail(ErrorCode::unsupported, "multipleOf: {} (all together) is too large; at most {}",
                  step.text(), kLargest);
    }
  }
  return out;
}

}  // namespace

// Where readers agree on the numbers at the bounds, texts with and without a point are one
// language.
Result<Regular> Plan::number_range(const NumberCase& it, NumberBounds bounds) {
  constexpr std::int64_t kSafeDigits = 15;  // of whole numbers that all doubles hold
  const auto& [whole, part] = it.ranges;
  const auto safe = [](const std::optional<Bound>& bound) {
    return !bound || bound->value.point <= kSafeDigits;
  };
  const bool constant = whole.only() && whole.only() == part.only() && whole.only()->whole();
  if (constant) bounds.integer = true;  // whose zeros are bounded
  const bool simple = bounds.integer && !whole.none && safe(whole.least) && safe(whole.most);
  if (whole == part || constant || simple) return numbers_within(whole, bounds);
  std::vector<Regular> out;
  if (!whole.empty()) {
    NumberBounds without = bounds;
    without.integer = true;
    without.zeros = false;
    STRATA_ASSIGN(Regular numbers, numbers_within(whole, without));
    out.push_back(std::move(numbers));
  }
  if (!part.empty()) {
    bounds.integer = bounds.integer || (part.only() && part.only()->whole());
    bounds.fraction = true;
    STRATA_ASSIGN(Regular numbers, numbers_within(part, bounds));
    out.push_back(std::move(numbers));
  }
  return either(out);
}

Result<Regular> Plan::number_language(const NumberCase& it) {
  static const Regular plain = *regex("-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?", Match::whole);
  static const Regular fractions = *regex("-?(?:0|[1-9][0-9]*)\\.[0-9]*[1-9][0-9]*", Match::whole);
  STRATA_TRY(expander_.spend(100));
  NumberBounds bounds;
  bounds.zeros = true;
  STRATA_ASSIGN(bounds.multiple_of, whole_step(it.steps));
  bounds.integer = it.integer || bounds.multiple_of;
  STRATA_ASSIGN(Regular out, number_range(it, bounds));
  for (const Decimal& step : it.steps) {
    if (step.whole()) continue;
    STRATA_ASSIGN(const Regular multiples, fraction_multiples(step));
    STRATA_ASSIGN(out, both(out, multiples));
  }
  if (it.fraction) {
    STRATA_ASSIGN(out, both(out, fractions));
  }
  for (const Decimal& step : it.not_steps) {
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
