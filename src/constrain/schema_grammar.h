// Writes a plan of a schema as rules of a grammar.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "constrain/grammar.h"
#include "constrain/json_schema.h"
#include "constrain/schema_plan.h"

namespace strata::constrain {

// The texts of JSON that do not depend on a schema.
class JsonTexts {
 public:
  JsonTexts(Grammar& grammar, const JsonSchemaOptions& options);

  Grammar::Expr value();  // any document
  Grammar::Expr object();
  // Part by part, in brackets, with white space; `inside` may be empty text.
  Grammar::Expr braces(Grammar::Expr inside);
  Grammar::Expr brackets(Grammar::Expr inside);
  Grammar::Expr comma() const { return comma_; }
  Grammar::Expr colon() const { return colon_; }
  Grammar::Expr space() const { return space_; }
  Grammar::Expr regular(const Regular& language);
  // A string of so many characters, any of them.
  Grammar::Expr string(std::uint64_t least, std::optional<std::uint64_t> most);
  // `part` so many times; takes room for the logarithm of the numbers. `part` is never empty.
  Grammar::Expr times(Grammar::Expr part, std::uint64_t least, std::optional<std::uint64_t> most);

 private:
  Grammar::Expr row(std::uint32_t count);
  Grammar::Expr last_row(std::uint32_t least, std::uint32_t most);
  Grammar::Expr exactly(Grammar::Expr part, std::uint64_t count);
  Grammar::Expr at_most(Grammar::Expr part, std::uint64_t count);
  void define_any();

  Grammar& grammar_;
  Grammar::Expr space_, comma_, colon_;
  std::optional<Grammar::Expr> character_;
  std::map<const Regular::Automaton*, Grammar::Rule> regulars_;  // held by the grammar
  std::optional<Grammar::Rule> any_, any_object_;
  std::map<std::pair<Grammar::Expr, std::uint64_t>, Grammar::Rule> exactly_, at_most_;
  std::map<std::uint32_t, Grammar::Rule> rows_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Grammar::Rule> last_rows_;
};

class SchemaGrammar {
 public:
  SchemaGrammar(Grammar& grammar, const Plan& plan, const SchemaDocument& document,
                const JsonSchemaOptions& options)
      : grammar_(grammar), plan_(plan), document_(document), texts_(grammar, options) {}

  Grammar::Expr value(PlanId id);
  // Writes the rules that values call; to be called last.
  void finish();
  // The members of the objects that are valid there, as fields.
  Result<Grammar::Expr> fields(PlanId id, const FieldMarks& marks, const FieldReader& reader);
  JsonTexts& texts() { return texts_; }
  // Members in their order with commas between them, or whatever else stands between.
  struct Part {
    Grammar::Expr text;
    bool required = false;
  };
  Grammar::Expr members(std::span<const Part> parts, std::optional<Grammar::Expr> others,
                        Grammar::Expr between);
  // As rules: `write` writes an edge's value.
  template <class Write>
  Grammar::Expr machine(const Machine& it, Grammar::Expr between, Write write);
  Grammar::Expr arrays_and_objects(const PlanNode& node);

 private:
  Grammar::Expr body(const PlanNode& node);
  Grammar::Expr array(const ArrayPlan& it);
  Grammar::Expr object(const ObjectPlan& it);
  Grammar::Expr member(const Regular& key, PlanId value);
  Grammar::Expr some_of(std::span<const Grammar::Expr> parts, Grammar::Expr between);
  std::string name(PlanId id) const;
  Result<std::optional<Grammar::Expr>> field(const ObjectPlan::Member& it, const FieldMarks& marks,
                                             bool listed);
  Result<std::optional<Grammar::Expr>> field_value(const PlanNode& node, const FieldMarks& marks,
                                                   const FieldReader::Types& types,
                                                   std::span<const std::string> words);
  Result<Regular> field_names(const FieldMarks& marks);
  Result<Regular> field_texts(const FieldMarks& marks);
  Result<std::optional<Grammar::Expr>> fields_of(const ObjectPlan& it, const FieldMarks& marks);

  Grammar& grammar_;
  const Plan& plan_;
  const SchemaDocument& document_;
  JsonTexts texts_;
  std::optional<Regular> field_names_, field_texts_;  // made when first needed
  std::optional<Error> unwritable_;                   // a value that no field can hold
  const FieldReader* reader_ = nullptr;               // of fields
  std::map<PlanId, Grammar::Rule> rules_;
  std::vector<PlanId> pending_;
};

template <class Write>
Grammar::Expr SchemaGrammar::machine(const Machine& it, Grammar::Expr between, Write write) {
  // Only states from which the end can be reached are written; backwards, to a fixed point.
  const std::size_t count = it.states.size();
  std::vector<char> ends(count, 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t s = count; s-- > 0;) {
      if (ends[s] != 0) continue;
      bool now = it.states[s].accepting;
      for (const Machine::Edge& edge : it.states[s].edges)
        now |= ends[edge.to] != 0 && plan_.productive(edge);
      if (now) ends[s] = 1, changed = true;
    }
  }
  std::vector<Grammar::Rule> rules;
  for (std::size_t s = 0; s < count; ++s) rules.push_back(grammar_.declare("state"));
  for (std::size_t s = 0; s < count; ++s) {
    const Machine::State& state = it.states[s];
    std::vector<Grammar::Expr> ways;
    if (state.accepting) ways.push_back(grammar_.empty());
    for (const Machine::Edge& edge : state.edges) {
      if (ends[edge.to] == 0 || !plan_.productive(edge)) continue;
      const Grammar::Expr on = grammar_.call(rules[edge.to]);
      if (!edge.value) {
        ways.push_back(on);
      } else if (state.first) {
        ways.push_back(grammar_.sequence({write(edge), on}));
      } else {
        ways.push_back(grammar_.sequence({between, write(edge), on}));
      }
    }
    grammar_.define(rules[s], grammar_.choice(ways));
  }
  return ends[0] != 0 ? grammar_.call(rules[0]) : grammar_.nothing();
}

}  // namespace strata::constrain
