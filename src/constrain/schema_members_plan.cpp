// What cases of arrays and objects become: sequences where that is enough, automata over items and
// members where something is counted.
#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/json_number.h"
#include "constrain/schema_plan.h"

namespace strata::constrain {

namespace json = boost::json;

namespace {

// States found on the way, by what they know.
template <class Knowledge>
class States {
 public:
  std::uint32_t of(const Knowledge& knowledge) {
    const auto number = static_cast<std::uint32_t>(order_.size());
    const auto [it, fresh] = numbers_.emplace(knowledge, number);
    if (fresh) order_.push_back(knowledge);
    return it->second;
  }
  std::size_t size() const { return order_.size(); }
  Knowledge operator[](std::size_t number) const { return order_[number]; }

 private:
  std::map<Knowledge, std::uint32_t> numbers_;
  std::vector<Knowledge> order_;
};

}  // namespace

// --- arrays

Result<ArrayPlan> Plan::array(ArrayCase it) {
  ArrayPlan out;
  if (it.least > kMaxLeast) {
    return refuse(ErrorCode::exhausted,
                  fmt::format("minItems {} is more than any answer has; at most {}",
                              count_text(it.least), kMaxLeast));
  }
  if (it.most && *it.most < it.prefix.size()) it.prefix.resize(static_cast<std::size_t>(*it.most));
  std::erase_if(it.counts,
                [](const ArrayCase::Count& count) { return count.least == 0 && !count.most; });
  if (it.unique && (!it.most || *it.most > 1)) {
    STRATA_ASSIGN(out.machine, distinct(it));
    return out;
  }
  if (!it.counts.empty()) {
    STRATA_ASSIGN(out.machine, counting(it));
    return out;
  }
  out.least = it.least;
  out.most = it.most;
  for (All& item : it.prefix) {
    STRATA_ASSIGN(const PlanId id, id_of(std::move(item)));
    out.prefix.push_back(id);
  }
  STRATA_ASSIGN(out.rest, id_of(std::move(it.rest)));
  return out;
}

// An automaton that knows how many items there are, as far as that matters, and how many of them
// are in each of the counted languages.
Result<Machine> Plan::counting(const ArrayCase& it) {
  struct Counter {
    const ArrayCase::Count* count;
    std::uint64_t enough;  // counts above are the same
    bool exact;            // items outside are told apart from those inside
  };
  std::vector<Counter> counters;
  // At least one: a comma comes before every item but the first.
  std::uint64_t enough = std::max<std::uint64_t>({it.prefix.size(), it.least, 1});
  if (it.most) enough = std::max(enough, *it.most);
  for (const ArrayCase::Count& count : it.counts) {
    enough = std::max(enough, count.from);
    All outside;
    for (const Literal& literal : count.value)
      outside.push_back({literal.node, !literal.negated, literal.constant});
    bool exact = count.value.size() == 1;
    if (exact && !count.most) {  // if "not in it" cannot be said, more than needed may be in it
      exact = expander_.cases<ObjectCase>(outside).has_value() &&
              expander_.cases<ArrayCase>(outside).has_value();
    }
    if (!exact && count.most)
      return refuse(ErrorCode::unsupported, "maxContains cannot be enforced with this contains");
    counters.push_back({&count, count.most ? *count.most + 1 : count.least, exact});
  }
  if (counters.size() > 4)
    return refuse(ErrorCode::exhausted, "more than 4 contains for one array");

  using Knowledge = std::vector<std::uint64_t>;  // items, then the counts
  States<Knowledge> states;
  states.of(Knowledge(counters.size() + 1, 0));
  Machine out;
  for (std::size_t s = 0; s < states.size(); ++s) {
    if (states.size() > kMaxStates) {
      return refuse(
          ErrorCode::exhausted,
          fmt::format("counting items needs more than {} states; use smaller bounds", kMaxStates));
    }
    const Knowledge now = states[s];
    Machine::State state{.edges = {}, .accepting = now[0] >= it.least, .first = s == 0};
    for (std::size_t c = 0; c < counters.size(); ++c)
      state.accepting &= now[c + 1] >= counters[c].count->least;
    const bool full = it.most && now[0] >= *it.most;
    for (std::size_t signs = 0; !full && signs < std::size_t{1} << counters.size(); ++signs) {
      All item = now[0] < it.prefix.size() ? it.prefix[now[0]] : it.rest;
      Knowledge next = now;
      next[0] = std::min(now[0] + 1, enough);
      bool possible = true;
      for (std::size_t c = 0; c < counters.size(); ++c) {
        const Counter& counter = counters[c];
        const bool in = (signs >> c & 1) != 0;
        const bool idle =
            now[0] < counter.count->from || (!counter.count->most && now[c + 1] >= counter.enough);
        if (idle) {
          possible &= !in;
        } else if (in) {
          add(item, counter.count->value);
          next[c + 1] = now[c + 1] + 1;
          possible &= !counter.count->most || next[c + 1] <= *counter.count->most;
        } else if (counter.exact) {
          const Literal& literal = counter.count->value[0];
          add(item, {{literal.node, !literal.negated, literal.constant}});
        }
      }
      if (!possible || is_false(item)) continue;
      STRATA_ASSIGN(const PlanId value, id_of(std::move(item)));
      state.edges.push_back({value, 0, states.of(next)});
    }
    out.states.push_back(std::move(state));
  }
  return out;
}

// The values of a finite language as constants.
Result<std::vector<const json::value*>> Plan::finite(const All& all) {
  std::vector<json::value> found;
  const auto infinite = [&] {
    return refuse(ErrorCode::unsupported,
                  "uniqueItems can be enforced for items of an enum, const, boolean or null only; "
                  "leave it out or list the values of `items` in an enum");
  };
  STRATA_ASSIGN(const auto null, expander_.cases<PlainCase<Kind::null>>(all));
  if (!null.empty()) found.emplace_back(nullptr);
  STRATA_ASSIGN(const auto yes, expander_.cases<PlainCase<Kind::yes>>(all));
  if (!yes.empty()) found.emplace_back(true);
  STRATA_ASSIGN(const auto no, expander_.cases<PlainCase<Kind::no>>(all));
  if (!no.empty()) found.emplace_back(false);
  STRATA_ASSIGN(const Cases<NumberCase> numbers, expander_.cases<NumberCase>(all));
  for (const NumberCase& it : numbers) {
    const std::optional<std::string> only = it.ranges.only();
    if (!only) return infinite();
    STRATA_ASSIGN(const Regular language, number_language(it));
    if (!language.is_nothing()) found.push_back(number_value(*only));
  }
  STRATA_ASSIGN(const Cases<StringCase> strings, expander_.cases<StringCase>(all));
  for (const StringCase& it : strings) {
    if (!it.values) return infinite();
    STRATA_ASSIGN(const Regular left, expander_.texts(it));
    for (const std::string& value : *it.values)
      if (left.accepts(value)) found.emplace_back(value);
  }
  STRATA_ASSIGN(const Cases<ArrayCase> arrays, expander_.cases<ArrayCase>(all));
  STRATA_ASSIGN(const Cases<ObjectCase> objects, expander_.cases<ObjectCase>(all));
  if (!arrays.empty() || !objects.empty()) return infinite();
  std::vector<const json::value*> out;
  for (json::value& value : found) {
    const auto known = std::find(constants_.begin(), constants_.end(), value);
    if (known != constants_.end()) {
      out.push_back(&*known);
    } else {
      out.push_back(&constants_.emplace_back(std::move(value)));
    }
  }
  return out;
}

// An automaton that knows which values have been used.
Result<Machine> Plan::distinct(const ArrayCase& it) {
  if (!it.counts.empty())
    return refuse(ErrorCode::unsupported, "uniqueItems together with contains");
  std::vector<std::vector<const json::value*>> allowed;
  std::vector<const json::value*> all;
  for (std::size_t i = 0; i <= it.prefix.size(); ++i) {
    const bool behind = i == it.prefix.size();
    if (behind && it.most && *it.most <= i) {
      allowed.emplace_back();
      break;
    }
    STRATA_ASSIGN(std::vector<const json::value*> values, finite(behind ? it.rest : it.prefix[i]));
    for (const json::value* value : values)
      if (std::find(all.begin(), all.end(), value) == all.end()) all.push_back(value);
    allowed.push_back(std::move(values));
  }
  if (all.size() > kMaxDistinct) {
    return refuse(ErrorCode::unsupported,
                  fmt::format("uniqueItems can be enforced for at most {} different values, not {}",
                              kMaxDistinct, all.size()));
  }
  using Knowledge = std::pair<std::uint64_t, std::uint32_t>;  // items, and which values they are
  States<Knowledge> states;
  states.of({0, 0});
  Machine out;
  for (std::size_t s = 0; s < states.size(); ++s) {
    const auto [items, used] = states[s];
    Machine::State state{.edges = {}, .accepting = items >= it.least, .first = s == 0};
    const bool full = it.most && items >= *it.most;
    const std::size_t place = std::min<std::size_t>(items, it.prefix.size());
    for (std::size_t v = 0; !full && v < all.size(); ++v) {
      const auto& here = allowed[place];
      if ((used >> v & 1) != 0 || std::find(here.begin(), here.end(), all[v]) == here.end())
        continue;
      STRATA_ASSIGN(const PlanId value, id_of({{all[v], false, true}}));
      state.edges.push_back({value, 0, states.of({items + 1, used | 1U << v})});
    }
    out.states.push_back(std::move(state));
  }
  return out;
}

// --- objects

// Where some property must have a name or value, it is a listed one or another: cases again.
Status Plan::objects(ObjectCase it, std::vector<ObjectPlan>& out) {
  struct Open {
    ObjectCase object;
    std::vector<NameSet> others;  // names of which one behind the listed must be
  };
  std::vector<Open> open = {{std::move(it), {}}};
  while (!open.empty()) {
    Open now = std::move(open.back());
    open.pop_back();
    STRATA_TRY(expander_.spend(now.object.size()));
    if (now.object.witnesses.empty()) {
      STRATA_TRY(object(std::move(now.object), now.others, out));
      if (out.size() <= Expander::kMaxCases) continue;
      return refuse(ErrorCode::exhausted,
                    fmt::format("more than {} alternatives of an object", Expander::kMaxCases));
    }
    ObjectCase::Rule witness = now.object.witnesses.back();
    now.object.witnesses.pop_back();
    STRATA_ASSIGN(witness.value, simplified(witness.value));
    for (const ObjectCase::Property& property : now.object.properties) {
      if (property.absent || !witness.names.contains(property.name)) continue;
      Open listed = now;
      listed.object.mention({.name = property.name, .value = witness.value, .required = true});
      open.push_back(std::move(listed));
    }
    if (is_false(witness.value)) continue;
    const bool closed = std::any_of(
        now.object.rules.begin(), now.object.rules.end(), [&](const ObjectCase::Rule& rule) {
          return rule.names.complement && rule.names.languages.empty() && is_false(rule.value);
        });
    if (!witness.value.empty()) {
      if (closed) continue;
      return refuse(ErrorCode::unsupported,
                    "the negation of additionalProperties or patternProperties with a schema "
                    "cannot be enforced where other names are allowed");
    }
    now.others.push_back(witness.names);
    open.push_back(std::move(now));
  }
  return {};
}

Status Plan::object(ObjectCase it, const std::vector<NameSet>& witnesses,
                    std::vector<ObjectPlan>& out) {
  std::stable_partition(it.properties.begin(), it.properties.end(),
                        [](const ObjectCase::Property& property) { return property.placed; });
  std::optional<Regular> names;
  for (const All& all : it.names) {
    STRATA_ASSIGN(Regular more, expander_.texts(all, *place_));
    if (!names) {
      names = std::move(more);
    } else {
      STRATA_ASSIGN(names, both(*names, more));
    }
  }
  ObjectPlan plan;
  NameSet listed;
  std::uint64_t required = 0;
  for (ObjectCase::Property& property : it.properties) {
    listed.names.push_back(property.name);
    bool absent = property.absent || (names && !names->accepts(property.name));
    All value = std::move(property.value);
    STRATA_TRY(expander_.spend(1 + it.rules.size()));
    for (const ObjectCase::Rule& rule : it.rules)
      if (rule.names.contains(property.name)) add(value, rule.value);
    absent |= is_false(value);
    if (absent && property.required) return {};
    if (absent) continue;
    Regular name = Regular::literal(property.name);
    STRATA_ASSIGN(Regular key, json_string(name));
    STRATA_ASSIGN(const PlanId id, id_of(std::move(value)));
    plan.members.push_back({std::move(name), std::move(key), id, property.required});
    required += property.required ? 1 : 0;
  }
  STRATA_ASSIGN(const std::vector<Cell> others, cells(it, listed, witnesses));
  std::vector<bool> seen(plan.members.size(), false);
  for (const Cell& cell : others) {
    Result<Regular> key = json_string(cell.names);
    if (!key) return refuse(key.error().code, std::move(key).error().message);
    STRATA_ASSIGN(const PlanId id, id_of(cell.value));
    plan.others.push_back({cell.names, *std::move(key), id, false});
    seen.push_back(cell.witness);
  }
  if (!witnesses.empty() && std::find(seen.begin(), seen.end(), true) == seen.end()) return {};
  if (others.empty() && it.most && *it.most >= plan.members.size()) it.most.reset();
  if (it.least > required && !others.empty() && it.least > 1 && it.least > required + 1) {
    return refuse(ErrorCode::unsupported,
                  fmt::format("minProperties {} cannot be enforced where names that are not listed "
                              "may repeat; set additionalProperties to false",
                              count_text(it.least)));
  }
  if (it.least > required || it.most || !witnesses.empty()) {
    STRATA_ASSIGN(plan.machine, counted(plan, seen, it));
  }
  out.push_back(std::move(plan));
  return {};
}

// The names that are not listed, parted so that all names of a part have the same rules.
Result<std::vector<Plan::Cell>> Plan::cells(const ObjectCase& it, const NameSet& listed,
                                            const std::vector<NameSet>& witnesses) {
  const auto everywhere = [&](const NameSet& names) {
    if (!names.complement || !names.languages.empty()) return false;
    return std::all_of(names.names.begin(), names.names.end(), [&](const std::string& name) {
      return std::find(listed.names.begin(), listed.names.end(), name) != listed.names.end();
    });
  };
  All always;
  std::vector<const ObjectCase::Rule*> local;
  for (const ObjectCase::Rule& rule : it.rules) {
    if (everywhere(rule.names)) {
      add(always, rule.value);
    } else {
      local.push_back(&rule);
    }
  }
  std::vector<Cell> out;
  if (is_false(always)) return out;
  NameSet start = listed;
  start.complement = true;
  const auto located = [&](Error error) { return refuse(error.code, error.message); };
  Result<Regular> names = expander_.texts(start);
  for (const All& all : it.names) {
    if (!names) break;
    STRATA_ASSIGN(const Regular more, expander_.texts(all, *place_));
    names = both(*names, more);
  }
  if (!names) return located(std::move(names).error());
  out.push_back({*std::move(names), std::move(always)});
  for (const ObjectCase::Rule* rule : local) STRATA_TRY(split(out, rule->names, &rule->value));
  std::erase_if(out, [](const Cell& cell) { return is_false(cell.value); });
  if (witnesses.size() > 1) {
    return refuse(ErrorCode::unsupported,
                  "several properties that are not listed would have to be there at once");
  }
  for (const NameSet& witness : witnesses) STRATA_TRY(split(out, witness, nullptr));
  std::erase_if(out, [](const Cell& cell) { return cell.names.is_nothing(); });
  return out;
}

// Parts every cell by whether a name is in the set; those within get the value, or are witnesses.
Status Plan::split(std::vector<Cell>& cells, const NameSet& by, const All* value) {
  const auto located = [&](Error error) { return refuse(error.code, error.message); };
  const Result<Regular> names = expander_.texts(by);
  if (!names) return located(names.error());
  std::vector<Cell> out;
  for (Cell& cell : cells) {
    STRATA_TRY(expander_.spend(100));
    Result<Regular> within = both(cell.names, *names);
    if (!within) return located(std::move(within).error());
    if (!within->is_nothing()) {
      Cell inside{*std::move(within), cell.value, cell.witness};
      if (value != nullptr) add(inside.value, *value);
      inside.witness |= value == nullptr;
      out.push_back(std::move(inside));
    }
    Result<Regular> outside = without(cell.names, *names);
    if (!outside) return located(std::move(outside).error());
    if (!outside->is_nothing()) out.push_back({*std::move(outside), cell.value, cell.witness});
  }
  if (out.size() > kMaxLanguages) {
    return refuse(
        ErrorCode::exhausted,
        fmt::format("patternProperties part the names into more than {} kinds", kMaxLanguages));
  }
  cells = std::move(out);
  return {};
}

// An automaton that knows which listed property comes next, how many there are, as far as that
// matters, and whether a property of the kind that must be there has been seen.
Result<Machine> Plan::counted(const ObjectPlan& plan, const std::vector<bool>& witness,
                              const ObjectCase& bounds) {
  const bool wanted = std::find(witness.begin(), witness.end(), true) != witness.end();
  const std::uint64_t enough = std::max<std::uint64_t>({bounds.least, bounds.most.value_or(0), 1});
  using Knowledge = std::array<std::uint64_t, 3>;
  States<Knowledge> states;
  states.of({0, 0, wanted ? 0U : 1U});
  Machine out;
  const std::size_t listed = plan.members.size();
  for (std::size_t s = 0; s < states.size(); ++s) {
    if (states.size() > kMaxStates) {
      return refuse(ErrorCode::exhausted,
                    fmt::format("counting properties needs more than {} states; use smaller bounds",
                                kMaxStates));
    }
    const auto [at, count, seen] = states[s];
    Machine::State state{.edges = {},
                         .accepting = at == listed && count >= bounds.least && seen == 1,
                         .first = count == 0};
    const bool full = bounds.most && count >= *bounds.most;
    const std::uint64_t more = std::min(count + 1, enough);
    if (at < listed) {
      const ObjectPlan::Member& member = plan.members[at];
      const auto key = static_cast<std::uint32_t>(at);
      if (!full) state.edges.push_back({member.value, key, states.of({at + 1, more, seen})});
      if (!member.required)
        state.edges.push_back({std::nullopt, 0, states.of({at + 1, count, seen})});
    }
    for (std::size_t k = listed; !full && at == listed && k < witness.size(); ++k) {
      const std::uint64_t now_seen = witness[k] ? 1 : seen;
      state.edges.push_back({plan.others[k - listed].value, static_cast<std::uint32_t>(k),
                             states.of({at, more, now_seen})});
    }
    out.states.push_back(std::move(state));
  }
  return out;
}

}  // namespace strata::constrain
