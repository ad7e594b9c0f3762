#include "constrain/schema_grammar.h"

#include <algorithm>
#include <array>

namespace strata::constrain {

using Expr = Grammar::Expr;
using Rule = Grammar::Rule;

namespace {

constexpr std::uint32_t kShared = 128;  // states of automata that are written once
constexpr std::uint64_t kWritten = 8;   // repetitions up to here are written one by one
// Characters are counted by states, which masks are quickly made of, in rows of this length.
constexpr std::uint32_t kRow = 256;

// What is built of a few bytes is far from every limit.
Regular joined(std::initializer_list<Regular> parts) {
  return concat(std::span(parts.begin(), parts.size())).value_or(Regular());
}
Regular one_of(std::initializer_list<Regular> parts) {
  return either(std::span(parts.begin(), parts.size())).value_or(Regular());
}
Regular any_byte_of(std::string_view bytes) {
  std::bitset<256> set;
  for (const char byte : bytes) set.set(static_cast<unsigned char>(byte));
  return Regular::bytes(set);
}

// One character of a string literal, in each of its spellings.
const Regular& string_character() {
  static const Regular language = [] {
    constexpr std::array kPlain = {CodePoints{0x20, 0x21}, CodePoints{0x23, 0x5B},
                                   CodePoints{0x5D, kLastCodePoint}};
    const Regular hex = any_byte_of("0123456789abcdefABCDEF");
    const Regular low = joined({any_byte_of("dD"), any_byte_of("cdefCDEF"), hex, hex});
    const Regular high = joined({any_byte_of("dD"), any_byte_of("89abAB"), hex, hex});
    const Regular other = one_of({joined({any_byte_of("0123456789abcefABCEF"), hex, hex, hex}),
                                  joined({any_byte_of("dD"), any_byte_of("01234567"), hex, hex})});
    const Regular unit = Regular::literal("\\u");
    return one_of({Regular::characters(kPlain),
                   joined({Regular::literal("\\"), any_byte_of("\"\\/bfnrt")}),
                   joined({unit, other}), joined({unit, high, unit, low})});
  }();
  return language;
}

const Regular& any_string() {
  static const Regular language = json_string(Regular::text()).value_or(Regular());
  return language;
}

const Regular& any_scalar() {
  static const Regular language = one_of({any_string(), json_number(), Regular::literal("null"),
                                          Regular::literal("true"), Regular::literal("false")});
  return language;
}

// Nothing, a space, or a line break and an indentation.
Regular white_space(std::uint32_t indent) {
  return one_of({Regular::empty(), Regular::literal(" "),
                 joined({Regular::literal("\n"),
                         repeat(any_byte_of(" \t"), 0, indent).value_or(Regular::empty())})});
}

}  // namespace

// A line break is only taken where printers put one: behind an opening bracket or a comma, and
// before a closing bracket. It would cost automata their states everywhere else too.
JsonTexts::JsonTexts(Grammar& grammar, const JsonSchemaOptions& options) : grammar_(grammar) {
  const Regular wide = white_space(std::min<std::uint32_t>(options.indent, 1'024));
  const Regular narrow = one_of({Regular::empty(), Regular::literal(" ")});
  space_ = grammar.regular(wide);
  comma_ = grammar.regular(joined({narrow, Regular::literal(","), wide}));
  colon_ = grammar.regular(joined({narrow, Regular::literal(":"), narrow}));
}

void JsonTexts::define_any() {
  any_ = grammar_.declare("any JSON value");
  any_object_ = grammar_.declare("any JSON object");
  const Expr any = grammar_.call(*any_);
  const Expr member = grammar_.sequence({grammar_.regular(any_string()), colon_, any});
  const auto list = [&](Expr item) {
    return grammar_.optional(grammar_.sequence(
        {item, grammar_.repeat(grammar_.sequence({comma_, item}), 0, std::nullopt)}));
  };
  grammar_.define(*any_object_, braces(list(member)));
  grammar_.define(*any_, grammar_.choice({grammar_.regular(any_scalar()),
                                          grammar_.call(*any_object_), brackets(list(any))}));
}

Expr JsonTexts::value() {
  if (!any_) define_any();
  return grammar_.call(*any_);
}

Expr JsonTexts::object() {
  if (!any_) define_any();
  return grammar_.call(*any_object_);
}

Expr JsonTexts::braces(Expr inside) {
  return grammar_.sequence({grammar_.literal("{"), space_, inside, space_, grammar_.literal("}")});
}

Expr JsonTexts::brackets(Expr inside) {
  return grammar_.sequence({grammar_.literal("["), space_, inside, space_, grammar_.literal("]")});
}

// Large automata are rules, so that they are made once.
Expr JsonTexts::regular(const Regular& language) {
  if (language.states() <= kShared) return grammar_.regular(language);
  const auto [it, fresh] = regulars_.try_emplace(&language.automaton(), Rule{});
  if (fresh) {
    it->second = grammar_.declare(fmt::format("a text of {} states", language.states()));
    grammar_.define(it->second, grammar_.regular(language));
  }
  return grammar_.call(it->second);
}

Expr JsonTexts::string(std::uint64_t least, std::optional<std::uint64_t> most) {
  const Expr quote = grammar_.literal("\"");
  if (!character_) character_ = grammar_.regular(string_character());
  if (most && *most < least) return grammar_.nothing();
  if (most && *most <= 2 * kRow)
    return grammar_.sequence(
        {quote, last_row(static_cast<std::uint32_t>(least), static_cast<std::uint32_t>(*most))});
  const Expr full = row(kRow);
  const auto rest = [](std::uint64_t count) { return static_cast<std::uint32_t>(count % kRow); };
  const Expr needed = grammar_.sequence({exactly(full, least / kRow), row(rest(least))});
  if (!most)
    return grammar_.sequence({quote, needed, grammar_.repeat(*character_, 0, std::nullopt), quote});
  const std::uint64_t more = *most - least, rows = more / kRow;
  const Expr last = grammar_.sequence({exactly(full, rows), last_row(0, rest(more))});
  const Expr others = rows == 0
                          ? grammar_.nothing()
                          : grammar_.sequence({at_most(full, rows - 1), last_row(0, kRow - 1)});
  return grammar_.sequence({quote, needed, grammar_.choice({others, last})});
}

// So many characters; the same rule for all who ask for as many.
Expr JsonTexts::row(std::uint32_t count) {
  if (count <= kWritten) return grammar_.repeat(*character_, count, count);
  const auto [it, fresh] = rows_.try_emplace(count);
  if (fresh) {
    it->second = grammar_.declare(fmt::format("{} characters", count));
    grammar_.define(it->second, grammar_.repeat(*character_, count, count));
  }
  return grammar_.call(it->second);
}

// So many characters and the quote behind them: no state before it is one where the rule may end,
// which masks would have to look behind for every character.
Expr JsonTexts::last_row(std::uint32_t least, std::uint32_t most) {
  const auto [it, fresh] = last_rows_.try_emplace({least, most});
  if (fresh) {
    it->second = grammar_.declare(fmt::format("{} to {} characters and a quote", least, most));
    grammar_.define(it->second, grammar_.sequence({grammar_.repeat(*character_, least, most),
                                                   grammar_.literal("\"")}));
  }
  return grammar_.call(it->second);
}

Expr JsonTexts::times(Expr part, std::uint64_t least, std::optional<std::uint64_t> most) {
  const Expr needed = exactly(part, least);
  if (!most) return grammar_.sequence({needed, grammar_.repeat(part, 0, std::nullopt)});
  if (*most <= least) return needed;
  return grammar_.sequence({needed, at_most(part, *most - least)});
}

// Halves, which are mostly the same rule.
Expr JsonTexts::exactly(Expr part, std::uint64_t count) {
  if (count <= kWritten) {
    const std::vector<Expr> parts(count, part);
    return grammar_.sequence(parts);
  }
  const auto known = exactly_.find({part, count});
  if (known != exactly_.end()) return grammar_.call(known->second);
  const Rule rule = grammar_.declare(fmt::format("{} times", count));
  exactly_.emplace(std::pair(part, count), rule);
  const std::uint64_t half = count / 2;
  grammar_.define(rule, grammar_.sequence({exactly(part, half), exactly(part, count - half)}));
  return grammar_.call(rule);
}

// Up to a half, or just over a half and then up to what is left.
Expr JsonTexts::at_most(Expr part, std::uint64_t count) {
  if (count <= kWritten) {
    Expr out = grammar_.empty();
    for (std::uint64_t i = 0; i < count; ++i)
      out = grammar_.optional(grammar_.sequence({part, out}));
    return out;
  }
  const auto known = at_most_.find({part, count});
  if (known != at_most_.end()) return grammar_.call(known->second);
  const Rule rule = grammar_.declare(fmt::format("up to {} times", count));
  at_most_.emplace(std::pair(part, count), rule);
  const std::uint64_t half = count / 2;
  grammar_.define(rule, grammar_.choice({at_most(part, half),
                                         grammar_.sequence({exactly(part, half + 1),
                                                            at_most(part, count - half - 1)})}));
  return grammar_.call(rule);
}

std::string SchemaGrammar::name(PlanId id) const {
  std::string out;
  for (const Literal& it : plan_.node(id).all) {
    if (!out.empty()) out += " and ";
    if (it.negated) out += "not ";
    out += document_.place(*it.node);
    if (out.size() > 200) break;
  }
  return out;
}

Expr SchemaGrammar::value(PlanId id) {
  const PlanNode& node = plan_.node(id);
  if (node.any) return texts_.value();
  const bool flat = node.arrays.empty() && node.objects.empty() && node.long_strings.empty();
  if (flat && node.literals.size() + (node.other_scalars.is_nothing() ? 0 : 1) <= 2)
    return body(node);
  const auto known = rules_.find(id);
  if (known != rules_.end()) return grammar_.call(known->second);
  const Rule rule = grammar_.declare(name(id));
  rules_.emplace(id, rule);
  pending_.push_back(id);
  return grammar_.call(rule);
}

void SchemaGrammar::finish() {
  while (!pending_.empty()) {
    const PlanId id = pending_.back();
    pending_.pop_back();
    const Expr is = body(plan_.node(id));
    grammar_.define(rules_.at(id), is);
  }
}

Expr SchemaGrammar::body(const PlanNode& node) {
  std::vector<Expr> ways;
  if (!node.other_scalars.is_nothing()) ways.push_back(texts_.regular(node.other_scalars));
  for (const Regular& it : node.literals) ways.push_back(texts_.regular(it));
  for (const PlanNode::Lengths& it : node.long_strings)
    ways.push_back(texts_.string(it.least, it.most));
  if (!node.arrays.empty() || !node.objects.empty()) ways.push_back(arrays_and_objects(node));
  return grammar_.choice(ways);
}

Expr SchemaGrammar::arrays_and_objects(const PlanNode& node) {
  std::vector<Expr> ways;
  for (const ArrayPlan& it : node.arrays)
    if (plan_.ends(it)) ways.push_back(array(it));
  for (const ObjectPlan& it : node.objects)
    if (plan_.ends(it)) ways.push_back(object(it));
  return grammar_.choice(ways);
}

Expr SchemaGrammar::array(const ArrayPlan& it) {
  const Expr comma = texts_.comma();
  if (it.machine) {
    return texts_.brackets(
        machine(*it.machine, comma, [&](const Machine::Edge& edge) { return value(*edge.value); }));
  }
  // Items up to the first that has no value, or to the most.
  std::vector<Expr> prefix;
  std::uint64_t most = it.most.value_or(UINT64_MAX);
  for (std::size_t i = 0; i < it.prefix.size() && i < most; ++i) {
    if (!plan_.node(it.prefix[i]).productive) most = i;
    if (i < most) prefix.push_back(value(it.prefix[i]));
  }
  if (!it.rest || !plan_.node(*it.rest).productive)
    most = std::min<std::uint64_t>(most, prefix.size());
  const auto listed = static_cast<std::uint64_t>(prefix.size());
  std::optional<Expr> tail;  // behind the prefix
  if (most > listed) {
    const Expr item = value(*it.rest);
    const Expr next = grammar_.sequence({comma, item});
    const std::uint64_t least = it.least > listed ? it.least - listed : 0;
    const std::optional<std::uint64_t> left =
        most == UINT64_MAX ? std::nullopt : std::optional(most - listed);
    if (listed > 0) {
      tail = texts_.times(next, least, left);
    } else {
      const std::optional<std::uint64_t> others = left ? std::optional(*left - 1) : std::nullopt;
      tail = grammar_.sequence({item, texts_.times(next, least > 0 ? least - 1 : 0, others)});
      if (least == 0) tail = grammar_.optional(*tail);
    }
  }
  Expr out = tail.value_or(grammar_.empty());
  for (std::size_t i = prefix.size(); i-- > 0;) {
    out = i == 0 ? grammar_.sequence({prefix[i], out}) : grammar_.sequence({comma, prefix[i], out});
    if (i >= it.least) out = grammar_.optional(out);
  }
  return texts_.brackets(out);
}

Expr SchemaGrammar::member(const Regular& key, PlanId id) {
  return grammar_.sequence({texts_.regular(key), texts_.colon(), value(id)});
}

Expr SchemaGrammar::object(const ObjectPlan& it) {
  if (it.machine) {
    return texts_.braces(machine(*it.machine, texts_.comma(), [&](const Machine::Edge& edge) {
      const bool listed = edge.key < it.members.size();
      return member(listed ? it.members[edge.key].key : it.others[edge.key - it.members.size()].key,
                    *edge.value);
    }));
  }
  std::vector<Part> parts;
  std::vector<Expr> others;
  for (const ObjectPlan::Member& part : it.members)
    if (plan_.node(part.value).productive)
      parts.push_back({member(part.key, part.value), part.required});
  for (const ObjectPlan::Member& part : it.others)
    if (plan_.node(part.value).productive) others.push_back(member(part.key, part.value));
  const std::optional<Expr> rest =
      others.empty() ? std::nullopt : std::optional(grammar_.choice(others));
  return texts_.braces(members(parts, rest, texts_.comma()));
}

// Around a member that must be there each other one brings its comma along: before it those that
// come before, behind it those that come behind. Where none must be there, some_of() sorts it out.
Expr SchemaGrammar::members(std::span<const Part> parts, std::optional<Expr> others, Expr between) {
  const auto pivot =
      std::find_if(parts.begin(), parts.end(), [](const Part& part) { return part.required; });
  if (pivot == parts.end()) {
    std::vector<Expr> all;
    for (const Part& part : parts) all.push_back(part.text);
    if (others) {
      const Expr more = grammar_.sequence({between, *others});
      all.push_back(grammar_.sequence({*others, grammar_.repeat(more, 0, std::nullopt)}));
    }
    return all.empty() ? grammar_.empty() : grammar_.optional(some_of(all, between));
  }
  std::vector<Expr> out;
  for (auto it = parts.begin(); it != pivot; ++it)
    out.push_back(grammar_.optional(grammar_.sequence({it->text, between})));
  out.push_back(pivot->text);
  for (auto it = pivot + 1; it != parts.end(); ++it) {
    const Expr part = grammar_.sequence({between, it->text});
    out.push_back(it->required ? part : grammar_.optional(part));
  }
  if (others) {
    out.push_back(grammar_.repeat(grammar_.sequence({between, *others}), 0, std::nullopt));
  }
  return grammar_.sequence(out);
}

// At least one of the parts, in their order: some of the first half and perhaps of the second, or
// some of the second alone. The halves are rules, so the size stays linear.
Expr SchemaGrammar::some_of(std::span<const Expr> parts, Expr between) {
  if (parts.size() == 1) return parts[0];
  const std::size_t half = parts.size() / 2;
  const Expr left = some_of(parts.first(half), between);
  Expr right = some_of(parts.subspan(half), between);
  if (parts.size() > 2) {
    const Rule rule = grammar_.declare("some members");
    grammar_.define(rule, right);
    right = grammar_.call(rule);
  }
  return grammar_.choice(
      {grammar_.sequence({left, grammar_.optional(grammar_.sequence({between, right}))}), right});
}

}  // namespace strata::constrain
