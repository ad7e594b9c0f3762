// Tests: the words behind `is`.
#include <algorithm>
#include <map>

#include "chat/jinja/objects.h"

namespace strata::chat::jinja {

namespace {

using Test = bool (*)(Evaluator&, const Value&, const Arguments&);

const Value& operand(const Arguments& arguments) {
  return *bind("the test", arguments, {"other"}, 1)[0];
}

bool is_iterable(const Value& value) {
  return value.is_list() || value.is_dict() || value.is_string() || value.is_undefined();
}

bool is_sequence(const Value& value) {
  if (value.is_undefined()) return false;
  return is_iterable(value) && !(value.is_list() && (value.list().kind() == List::Kind::lazy ||
                                                     value.list().kind() == List::Kind::view));
}

bool same(Budget& budget, const Value& a, const Value& b) {
  if (a.storage().index() != b.storage().index()) return false;
  if (a.is_list()) return a.list_pointer() == b.list_pointer();
  if (a.is_dict()) return &a.dict() == &b.dict();
  return equal(budget, a, b);
}

bool has_case(Evaluator& evaluator, const Value& value, bool want_upper) {
  const Text text = to_text(evaluator.budget(), value);
  Budget& budget = evaluator.budget();
  const std::string up = upper(budget, text).bytes();
  const std::string low = lower(budget, text).bytes();
  return up != low && text.bytes() == (want_upper ? up : low);
}

bool has_rest(Evaluator& e, const Value& value, const Value& divisor, std::int64_t rest) {
  return equal(e.budget(),
               apply_arithmetic(e.budget(), Expression::Operator::modulo, value, divisor),
               Value(rest));
}

const std::map<std::string_view, Test> kTests = {
    {"defined", [](Evaluator&, const Value& v, const Arguments&) { return !v.is_undefined(); }},
    {"undefined", [](Evaluator&, const Value& v, const Arguments&) { return v.is_undefined(); }},
    {"none", [](Evaluator&, const Value& v, const Arguments&) { return v.is_none(); }},
    {"boolean", [](Evaluator&, const Value& v, const Arguments&) { return v.is_bool(); }},
    {"true",
     [](Evaluator&, const Value& v, const Arguments&) { return v.is_bool() && v.truthy(); }},
    {"false",
     [](Evaluator&, const Value& v, const Arguments&) { return v.is_bool() && !v.truthy(); }},
    {"integer",
     [](Evaluator&, const Value& v, const Arguments&) { return v.is_integer() && !v.is_bool(); }},
    {"float", [](Evaluator&, const Value& v, const Arguments&) { return v.is_float(); }},
    {"number", [](Evaluator&, const Value& v, const Arguments&) { return v.is_number(); }},
    {"string", [](Evaluator&, const Value& v, const Arguments&) { return v.is_string(); }},
    {"mapping", [](Evaluator&, const Value& v, const Arguments&) { return v.is_dict(); }},
    {"sequence", [](Evaluator&, const Value& v, const Arguments&) { return is_sequence(v); }},
    {"iterable", [](Evaluator&, const Value& v, const Arguments&) { return is_iterable(v); }},
    {"callable", [](Evaluator&, const Value& v,
                    const Arguments&) { return v.is_object() && v.object()->callable(); }},
    {"escaped", [](Evaluator&, const Value&, const Arguments&) { return false; }},
    {"lower", [](Evaluator& e, const Value& v, const Arguments&) { return has_case(e, v, false); }},
    {"upper", [](Evaluator& e, const Value& v, const Arguments&) { return has_case(e, v, true); }},
    {"odd", [](Evaluator& e, const Value& v,
               const Arguments&) { return has_rest(e, v, Value(std::int64_t{2}), 1); }},
    {"even", [](Evaluator& e, const Value& v,
                const Arguments&) { return has_rest(e, v, Value(std::int64_t{2}), 0); }},
    {"divisibleby", [](Evaluator& e, const Value& v,
                       const Arguments& a) { return has_rest(e, v, operand(a), 0); }},
    {"sameas", [](Evaluator& e, const Value& v,
                  const Arguments& a) { return same(e.budget(), v, operand(a)); }},
    {"in",
     [](Evaluator& e, const Value& v, const Arguments& a) { return e.contains(operand(a), v); }},
    {"eq", [](Evaluator& e, const Value& v,
              const Arguments& a) { return equal(e.budget(), v, operand(a)); }},
    {"ne", [](Evaluator& e, const Value& v,
              const Arguments& a) { return !equal(e.budget(), v, operand(a)); }},
    {"lt", [](Evaluator& e, const Value& v,
              const Arguments& a) { return compare(e.budget(), v, operand(a)) < 0; }},
    {"le", [](Evaluator& e, const Value& v,
              const Arguments& a) { return compare(e.budget(), v, operand(a)) <= 0; }},
    {"gt", [](Evaluator& e, const Value& v,
              const Arguments& a) { return compare(e.budget(), v, operand(a)) > 0; }},
    {"ge", [](Evaluator& e, const Value& v,
              const Arguments& a) { return compare(e.budget(), v, operand(a)) >= 0; }},
};

std::string_view resolve(std::string_view name) {
  static const std::map<std::string_view, std::string_view> aliases = {
      {"equalto", "eq"}, {"lessthan", "lt"}, {"greaterthan", "gt"}, {"==", "eq"}, {"!=", "ne"},
      {"<", "lt"},       {"<=", "le"},       {">", "gt"},           {">=", "ge"},
  };
  const auto found = aliases.find(name);
  return found == aliases.end() ? name : found->second;
}

}  // namespace

bool Evaluator::test(std::string_view name, const Value& input, const Arguments& arguments) {
  budget_.step();
  const auto found = kTests.find(resolve(name));
  if (found == kTests.end()) raise("there is no test '{}'", name);
  return found->second(*this, input, arguments);
}

}  // namespace strata::chat::jinja
