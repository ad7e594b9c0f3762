// Objects as marked fields instead of JSON.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <iterator>
#include <utility>

#include "base/json_number.h"
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

// Texts that a reader of such values takes for something else than a string.
Result<Regular> lookalikes_of(const FieldReader::Types& types) {
  std::string words;
  const auto add = [&](bool wanted, std::string_view pattern) {
    if (wanted || types.any) fmt::format_to(std::back_inserter(words), "|{}", pattern);
  };
  add(types.number, R"(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+\-]?[0-9]+)?)");
  add(types.boolean, "[Tt]rue|[Ff]alse");
  add(types.null, "null|None");
  add(types.list, R"(\[[\s\S]*\]|\{[\s\S]*\})");
  add(false, R"("[\s\S]*")");
  if (words.empty()) return Regular();
  return regex(fmt::format(R"([ \t\r\n]*({})[ \t\r\n]*)", words.substr(1)), Match::whole);
}
// Numbers that count beside strings: "1.10", "5.0" and "1e5" are text there.
Result<Regular> plain_numbers() {
  STRATA_ASSIGN(const Regular all, regex(R"(-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?)", Match::whole));
  return without(all, Regular::literal("-0"));
}

// Those of `strings` that are read as strings.
Result<Regular> read_as_text(const Regular& strings, const FieldReader::Types& types,
                             std::span<const std::string> words) {
  STRATA_ASSIGN(const Regular lookalikes, lookalikes_of(types));
  if (lookalikes.is_nothing()) return strings;
  std::vector<Regular> texts;
  for (const std::string& word : words)
    if (lookalikes.accepts(word) && strings.accepts(word)) texts.push_back(Regular::literal(word));
  STRATA_ASSIGN(Regular plain, without(strings, lookalikes));
  texts.push_back(std::move(plain));
  return either(texts);
}
// Those of `scalars`, JSON, that are read as JSON.
Result<Regular> read_as_json(const Regular& scalars, const FieldReader::Types& types,
                             std::span<const std::string> words) {
  std::vector<Regular> texts;
  if (types.string && types.number && !types.any) {
    STRATA_ASSIGN(const Regular plain, plain_numbers());
    STRATA_ASSIGN(Regular others, without(json_number(), plain));
    texts.push_back(std::move(others));
  }
  for (const std::string& word : words)
    if (scalars.accepts(word)) texts.push_back(Regular::literal(word));
  if (texts.empty()) return scalars;
  STRATA_ASSIGN(const Regular strings, either(texts));
  return without(scalars, strings);
}

}  // namespace

Result<FieldReader> FieldReader::of(const json::value& description) {
  const auto wrong = [] {
    return fail(ErrorCode::invalid_argument,
                "how fields are read is {{\"named\": {{name: [type ...]}}, \"others\": [type ...], "
                "\"words\": {{name: [text ...]}}}} with the types string, number, boolean, null, "
                "list and any");
  };
  static constexpr std::pair<std::string_view, bool Types::*> kTypes[] = {
      {"string", &Types::string}, {"number", &Types::number}, {"boolean", &Types::boolean},
      {"null", &Types::null},     {"list", &Types::list},     {"any", &Types::any}};
  // Calls use(text) for each of a list of strings.
  const auto each = [](const json::value& list, const auto& use) {
    const json::array* items = list.if_array();
    return items && std::ranges::all_of(*items, [&](const json::value& item) {
             return item.is_string() && use(std::string_view(item.get_string()));
           });
  };
  const auto read = [&](const json::value& list, Types& into) {
    into = {};
    return each(list, [&](std::string_view word) {
      const auto* type =
          std::ranges::find_if(kTypes, [&](const auto& one) { return one.first == word; });
      if (type == std::end(kTypes)) return false;
      into.*type->second = true;
      return true;
    });
  };
  const json::object* object = object_of(description);
  if (!object) return wrong();
  FieldReader reader;
  for (const auto& [key, value] : *object) {
    const json::object* members = object_of(value);
    if (key == "others") {
      if (!read(value, reader.others)) return wrong();
    } else if (key == "named" && members) {
      for (const auto& [name, types] : *members)
        if (!read(types, reader.named[name])) return wrong();
    } else if (key == "words" && members) {
      for (const auto& [name, texts] : *members) {
        std::vector<std::string>& words = reader.words[name];
        const auto keep = [&](std::string_view text) { return words.emplace_back(text), true; };
        if (!each(texts, keep)) return wrong();
      }
    } else {
      return wrong();
    }
  }
  return reader;
}

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

// A string as it is, or other values as JSON. What any document may be is any text.
Result<std::optional<Expr>> SchemaGrammar::field_value(const PlanNode& node,
                                                       const FieldMarks& marks,
                                                       const FieldReader::Types& types,
                                                       std::span<const std::string> words) {
  STRATA_ASSIGN(const Regular open_text, field_texts(marks));
  if (node.any) return std::optional(grammar_.regular(open_text));
  std::vector<Expr> ways;
  // Of the words that look like lists, none may be read as a string where a list is meant.
  const bool lists = std::ranges::none_of(words, [](const std::string& word) {
    return word.starts_with('[') || word.starts_with('{');
  });
  bool some = lists && (!node.arrays.empty() || !node.objects.empty());
  const auto add = [&](Regular text) -> Status {
    STRATA_ASSIGN(text, read_as_text(text, types, words));
    some |= !text.is_nothing();
    ways.push_back(grammar_.regular(std::move(text)));
    return {};
  };
  if (!node.strings.is_nothing()) {
    STRATA_ASSIGN(Regular text, both(node.strings, open_text));
    STRATA_TRY(add(std::move(text)));
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
    STRATA_TRY(add(*std::move(text)));
  }
  if (!node.other_scalars.is_nothing()) {
    STRATA_ASSIGN(const Regular scalars, read_as_json(node.other_scalars, types, words));
    some |= !scalars.is_nothing();
    if (!scalars.is_nothing()) ways.push_back(texts_.regular(scalars));
  }
  if (!some) {
    unwritable_ =
        Error{ErrorCode::unsupported,
              fmt::format("{}: no value of it can be written as a field: strings that look like "
                          "numbers, true, null or lists need a 'type' that allows strings alone",
                          document_.place(*node.all.front().node))};
    return std::optional<Expr>();
  }
  if (lists) ways.push_back(arrays_and_objects(node));
  return std::optional(grammar_.choice(ways));
}

// Absent where no value can be written.
Result<std::optional<Expr>> SchemaGrammar::field(const ObjectPlan::Member& it,
                                                 const FieldMarks& marks, bool listed) {
  STRATA_ASSIGN(const Regular names, field_names(marks));
  STRATA_ASSIGN(Regular name, both(it.name, names));
  if (listed && name.is_nothing()) {
    return fail(ErrorCode::unsupported,
                "#: the property {} cannot be written as a field: a name has one line, no '{}' and "
                "no white space around it",
                json::serialize(json::value(it.name.automaton().word.value_or("?"))),
                marks.middle.front());
  }
  const FieldReader::Types* types = &reader_->others;
  std::span<const std::string> words;
  if (const auto& word = it.name.automaton().word) {
    if (const auto found = reader_->named.find(*word); found != reader_->named.end())
      types = &found->second;
    if (const auto found = reader_->words.find(*word); found != reader_->words.end())
      words = found->second;
  }
  STRATA_ASSIGN(const std::optional<Expr> value,
                field_value(plan_.node(it.value), marks, *types, words));
  if (!value) return std::optional<Expr>();
  return std::optional(
      grammar_.sequence({grammar_.literal(marks.open), grammar_.regular(std::move(name)),
                         grammar_.literal(marks.middle), *value, grammar_.literal(marks.close)}));
}

// Absent where a value that must be there cannot be written.
Result<std::optional<Expr>> SchemaGrammar::fields_of(const ObjectPlan& it,
                                                     const FieldMarks& marks) {
  std::vector<Part> parts;
  std::vector<Expr> others;
  for (const ObjectPlan::Member& part : it.members) {
    Expr text = grammar_.nothing();  // a choice without alternatives: left out where it may be
    if (plan_.node(part.value).productive) {
      STRATA_ASSIGN(const std::optional<Expr> written, field(part, marks, true));
      if (!written && (part.required || it.machine)) return std::optional<Expr>();
      if (written) text = *written;
    }
    parts.push_back({text, part.required});
  }
  for (const ObjectPlan::Member& part : it.others) {
    Expr text = grammar_.nothing();
    if (plan_.node(part.value).productive) {
      STRATA_ASSIGN(const std::optional<Expr> written, field(part, marks, false));
      if (!written && it.machine) return std::optional<Expr>();
      if (written) text = *written;
    }
    others.push_back(text);
  }
  if (it.machine) {
    return std::optional(machine(*it.machine, grammar_.empty(), [&](const Machine::Edge& edge) {
      const bool listed = edge.key < parts.size();
      return listed ? parts[edge.key].text : others[edge.key - parts.size()];
    }));
  }
  const std::optional<Expr> rest =
      others.empty() ? std::nullopt : std::optional(grammar_.choice(others));
  return std::optional(members(parts, rest, grammar_.empty()));
}

Result<Expr> SchemaGrammar::fields(PlanId id, const FieldMarks& marks, const FieldReader& reader) {
  reader_ = &reader;
  const PlanNode& node = plan_.node(id);
  if (node.any) {
    ObjectPlan any;
    any.others.push_back({Regular::text(), Regular(), id, false});
    STRATA_ASSIGN(const std::optional<Expr> way, fields_of(any, marks));
    return way.value_or(grammar_.empty());
  }
  std::vector<Expr> ways;
  for (const ObjectPlan& it : node.objects) {
    if (!plan_.ends(it)) continue;
    STRATA_ASSIGN(const std::optional<Expr> way, fields_of(it, marks));
    if (way) ways.push_back(*way);
  }
  if (ways.empty() && unwritable_) return tl::unexpected(*unwritable_);
  if (ways.empty()) return fail(ErrorCode::invalid_argument, "#: the schema allows no object");
  return grammar_.choice(ways);
}

Result<Expr> json_fields(Grammar& grammar, const json::value& schema, const FieldMarks& marks,
                         const FieldReader& reader, const JsonSchemaOptions& options) {
  if (marks.open.empty() || marks.middle.empty() || marks.close.empty())
    return fail(ErrorCode::invalid_argument, "the marks of a field must not be empty");
  STRATA_ASSIGN(SchemaDocument document, SchemaDocument::make(schema));
  Plan plan(document, options);
  STRATA_ASSIGN(const PlanId root, plan.make(schema));
  SchemaGrammar writer(grammar, plan, document, options);
  STRATA_ASSIGN(const Expr out, writer.fields(root, marks, reader));
  writer.finish();
  if (!grammar.status()) return tl::unexpected(grammar.status().error());
  return out;
}

// Whether the schema can be enforced is tried on a grammar that is thrown away: what is left of a
// failure would stay in this one.
Result<Expr> json_fields_if_able(Grammar& grammar, const json::value& schema,
                                 const FieldMarks& marks, const FieldReader& reader,
                                 const JsonSchemaOptions& options) {
  Grammar trial;
  if (json_fields(trial, schema, marks, reader, options))
    return json_fields(grammar, schema, marks, reader, options);
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
