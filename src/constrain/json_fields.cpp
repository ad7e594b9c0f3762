// Objects as marked fields instead of JSON.
#include <algorithm>
#include <boost/json.hpp>

#include "constrain/automaton.h"
#include "constrain/json_schema.h"
#include "constrain/schema_grammar.h"
#include "constrain/time_limit.h"

namespace strata::constrain {

namespace json = boost::json;
using Expr = Grammar::Expr;

namespace {

// Who reads fields takes a name up to the first character of `middle` or the end of its line, and
// without white space around it.
Result<Regular> readable_names(const FieldMarks& marks) {
  STRATA_ASSIGN(const Regular line, text_without("\n"));
  STRATA_ASSIGN(const Regular unmarked, text_without(marks.middle.substr(0, 1)));
  STRATA_ASSIGN(const Regular names, both(line, unmarked));
  STRATA_ASSIGN(const Regular padded, regex("^[ \\t\\r]|[ \\t\\r]$", Match::anywhere));
  return without(names, padded);
}

// Raw texts of values: without `close`, and, as readers do without its line break, without what
// else would look like the end of a field with another mark behind it.
Result<Regular> readable_texts(const FieldMarks& marks) {
  const auto word = [](std::string_view mark) {
    mark.remove_prefix(std::min(mark.find_first_not_of("\r\n"), mark.size()));
    return Regular::literal(mark.substr(0, mark.find_last_not_of("\r\n") + 1));
  };
  STRATA_ASSIGN(const Regular blanks, regex("[ \\t\\r\\n]*", Match::whole));
  const Regular open = word(marks.open);
  STRATA_ASSIGN(const Regular closed, text_without(marks.close));
  if (open == Regular::empty() || word(marks.close) == Regular::empty()) return closed;
  const Regular end[] = {Regular::text(), word(marks.close), blanks,
                         Regular::literal(open.automaton().word->substr(0, 1)), Regular::text()};
  STRATA_ASSIGN(const Regular ends, concat(end));
  return without(closed, ends);
}

}  // namespace

Result<Regular> SchemaGrammar::field_names(const FieldMarks& marks) {
  if (field_names_) return *field_names_;
  STRATA_ASSIGN(Regular names, readable_names(marks));
  return field_names_.emplace(std::move(names));
}

Result<Regular> SchemaGrammar::field_texts(const FieldMarks& marks) {
  if (field_texts_) return *field_texts_;
  STRATA_ASSIGN(Regular texts, readable_texts(marks));
  return field_texts_.emplace(std::move(texts));
}

// A string as it is, or other values as JSON. What any document may be is a string like any other.
Result<Expr> SchemaGrammar::field_value(const PlanNode& node, const FieldMarks& marks) {
  STRATA_ASSIGN(const Regular open_text, field_texts(marks));
  if (node.any) return grammar_.regular(open_text);
  std::vector<Expr> ways;
  if (!node.strings.is_nothing()) {
    STRATA_ASSIGN(Regular text, both(node.strings, open_text));
    ways.push_back(grammar_.regular(std::move(text)));
  }
  for (const PlanNode::Lengths& it : node.long_strings) {
    std::optional<std::uint32_t> most;
    constexpr std::uint64_t kTooLong = 1'000'000'000;
    if (it.most) most = static_cast<std::uint32_t>(std::min(*it.most, kTooLong));
    Result<Regular> text =
        repeat(Regular::any_character(), static_cast<std::uint32_t>(it.least), most);
    if (text) text = both(*text, open_text);
    if (!text) {
      return fail(ErrorCode::exhausted,
                  "{}: the length of a string of up to {} characters cannot be enforced in a "
                  "field; use a smaller maxLength or none",
                  document_.place(*node.all.front().node), it.most.value_or(it.least));
    }
    ways.push_back(grammar_.regular(*std::move(text)));
  }
  if (!node.other_scalars.is_nothing()) ways.push_back(texts_.regular(node.other_scalars));
  ways.push_back(arrays_and_objects(node));
  return grammar_.choice(ways);
}

Result<Expr> SchemaGrammar::field(const ObjectPlan::Member& it, const FieldMarks& marks,
                                  bool listed) {
  STRATA_ASSIGN(const Regular names, field_names(marks));
  STRATA_ASSIGN(Regular name, both(it.name, names));
  if (listed && name.is_nothing()) {
    return fail(ErrorCode::unsupported,
                "#: the property {} cannot be written as a field: a name has one line, no '{}' and "
                "no white space around it",
                json::serialize(json::value(it.name.automaton().word.value_or("?"))),
                marks.middle.front());
  }
  STRATA_ASSIGN(const Expr value, field_value(plan_.node(it.value), marks));
  return grammar_.sequence({grammar_.literal(marks.open), grammar_.regular(std::move(name)),
                            grammar_.literal(marks.middle), value, grammar_.literal(marks.close)});
}

Result<Expr> SchemaGrammar::fields_of(const ObjectPlan& it, const FieldMarks& marks) {
  std::vector<Part> parts;
  std::vector<Expr> others;
  for (const ObjectPlan::Member& part : it.members) {
    Expr text = grammar_.nothing();  // a choice without alternatives: left out where it may be
    if (plan_.node(part.value).productive) {
      STRATA_ASSIGN(text, field(part, marks, true));
    }
    parts.push_back({text, part.required});
  }
  for (const ObjectPlan::Member& part : it.others) {
    Expr text = grammar_.nothing();
    if (plan_.node(part.value).productive) {
      STRATA_ASSIGN(text, field(part, marks, false));
    }
    others.push_back(text);
  }
  if (it.machine) {
    return machine(*it.machine, grammar_.empty(), [&](const Machine::Edge& edge) {
      const bool listed = edge.key < parts.size();
      return listed ? parts[edge.key].text : others[edge.key - parts.size()];
    });
  }
  const std::optional<Expr> rest =
      others.empty() ? std::nullopt : std::optional(grammar_.choice(others));
  return members(parts, rest, grammar_.empty());
}

Result<Expr> SchemaGrammar::fields(PlanId id, const FieldMarks& marks) {
  const PlanNode& node = plan_.node(id);
  if (node.any) {
    ObjectPlan any;
    any.others.push_back({Regular::text(), Regular(), id, false});
    return fields_of(any, marks);
  }
  std::vector<Expr> ways;
  for (const ObjectPlan& it : node.objects) {
    if (!plan_.ends(it)) continue;
    STRATA_ASSIGN(const Expr way, fields_of(it, marks));
    ways.push_back(way);
  }
  if (ways.empty()) return fail(ErrorCode::invalid_argument, "#: the schema allows no object");
  return grammar_.choice(ways);
}

Result<Expr> json_fields(Grammar& grammar, const json::value& schema, const FieldMarks& marks,
                         const JsonSchemaOptions& options) {
  if (marks.open.empty() || marks.middle.empty() || marks.close.empty())
    return fail(ErrorCode::invalid_argument, "the marks of a field must not be empty");
  STRATA_ASSIGN(SchemaDocument document, SchemaDocument::make(schema));
  Plan plan(document, options);
  STRATA_ASSIGN(const PlanId root, plan.make(schema));
  SchemaGrammar writer(grammar, plan, document, options);
  STRATA_ASSIGN(const Expr out, writer.fields(root, marks));
  writer.finish();
  if (!grammar.status()) return tl::unexpected(grammar.status().error());
  return out;
}

// Whether the schema can be enforced is tried on a grammar that is thrown away: what is left of a
// failure would stay in this one.
Result<Expr> json_fields_if_able(Grammar& grammar, const json::value& schema,
                                 const FieldMarks& marks, const JsonSchemaOptions& options) {
  Grammar trial;
  if (json_fields(trial, schema, marks, options))
    return json_fields(grammar, schema, marks, options);
  STRATA_TRY(TimeLimit::check());
  STRATA_ASSIGN(const Regular names, readable_names(marks));
  STRATA_ASSIGN(Regular name, without(names, Regular::empty()));
  STRATA_ASSIGN(Regular value, readable_texts(marks));
  const Expr field = grammar.sequence(
      {grammar.literal(marks.open), grammar.regular(std::move(name)), grammar.literal(marks.middle),
       grammar.regular(std::move(value)), grammar.literal(marks.close)});
  return grammar.repeat(field, 0, std::nullopt);
}

}  // namespace strata::constrain
