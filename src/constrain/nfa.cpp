#include "constrain/nfa.h"

#include <algorithm>

#include "constrain/automaton.h"
#include "constrain/time_limit.h"

namespace strata::constrain {
namespace {

using Node = Grammar::Node;
using Kind = Node::Kind;
using Expr = Grammar::Expr;

constexpr std::uint32_t kSmallRule = 256;     // states; written where it is called
constexpr std::uint32_t kMaxNesting = 1'000;  // of expressions and rules inside each other

std::uint32_t index(Expr expr) {
  return static_cast<std::uint32_t>(expr);
}

std::uint64_t saturating(std::uint64_t a, std::uint64_t b) {
  return a != 0 && b > (std::uint64_t{1} << 40) / a ? std::uint64_t{1} << 40 : a * b;
}

// How often a repetition writes its part.
std::uint64_t copies(const Node& node) {
  return std::max<std::uint64_t>(node.most.value_or(std::max(node.least, 1U)), 1);
}

// How large expressions and rules become, and which rules are written where they are called.
class Plan {
 public:
  Plan(const Grammar& grammar, const Analysis& analysis)
      : grammar_(grammar),
        analysis_(analysis),
        size_(grammar.nodes().size(), 0),
        nesting_(grammar.nodes().size(), 0),
        known_(grammar.nodes().size(), 0),
        rule_size_(grammar.rules().size(), 0),
        rule_nesting_(grammar.rules().size(), 0),
        sites_(grammar.rules().size(), 0),
        inlined_(grammar.rules().size(), 0) {
    count_sites();
    for (const std::uint32_t rule : analysis.order) {
      const Expr body = *grammar.rules()[rule].body;
      measure(index(body));
      rule_size_[rule] = size_[index(body)];
      rule_nesting_[rule] = nesting_[index(body)];
      inlined_[rule] = !analysis.recursive[rule] && rule_nesting_[rule] < kMaxNesting / 2 &&
                       (rule_size_[rule] <= kSmallRule || sites_[rule] <= 1);
    }
    measure(index(*grammar.root()));
  }
  bool inlined(std::uint32_t rule) const { return inlined_[rule]; }
  std::uint64_t size(Expr expr) const { return size_[index(expr)]; }
  std::uint32_t nesting(Expr expr) const { return nesting_[index(expr)]; }

 private:
  // Parts are older than the expressions they stand in, so one pass from the newest sees users
  // first.
  void count_sites() {
    std::vector<std::uint64_t> times(grammar_.nodes().size(), 0);
    times[index(*grammar_.root())] = 1;
    for (const std::uint32_t rule : analysis_.order) ++times[index(*grammar_.rules()[rule].body)];
    for (std::size_t i = times.size(); i-- > 0;) {
      const Node& node = grammar_.nodes()[i];
      if (times[i] == 0) continue;
      if (node.kind == Kind::call)
        sites_[node.first] =
            std::min<std::uint64_t>(sites_[node.first] + times[i], std::uint64_t{1} << 40);
      if (node.kind != Kind::sequence && node.kind != Kind::choice && node.kind != Kind::repeat)
        continue;
      const std::uint64_t each = node.kind == Kind::repeat ? copies(node) : 1;
      for (std::uint32_t k = 0; k < node.count; ++k) {
        std::uint64_t& part = times[index(grammar_.parts()[node.first + k])];
        part = std::min(part + saturating(times[i], each), std::uint64_t{1} << 40);
      }
    }
  }

  // Sizes of the expression's parts first, without recursion.
  void measure(std::uint32_t expr) {
    std::vector<std::uint32_t> open{expr};
    while (!open.empty()) {
      const std::uint32_t at = open.back();
      const Node& node = grammar_.nodes()[at];
      const bool compound =
          node.kind == Kind::sequence || node.kind == Kind::choice || node.kind == Kind::repeat;
      const std::size_t before = open.size();
      for (std::uint32_t k = 0; compound && !known_[at] && k < node.count; ++k) {
        const std::uint32_t part = index(grammar_.parts()[node.first + k]);
        if (!known_[part]) open.push_back(part);
      }
      if (open.size() > before) continue;
      open.pop_back();
      if (!known_[at]) combine(at, node);
      known_[at] = 1;
    }
  }

  void combine(std::uint32_t at, const Node& node) {
    std::uint64_t sum = 1;
    std::uint32_t deepest = 0;
    switch (node.kind) {
      case Kind::regular:
        sum += grammar_.regulars()[node.first].states();
        break;
      case Kind::token:
      case Kind::token_except:
        break;
      case Kind::call:
        if (inlined_[node.first]) {
          sum += rule_size_[node.first];
          deepest = rule_nesting_[node.first];
        }
        break;
      default:
        for (std::uint32_t k = 0; k < node.count; ++k) {
          const std::uint32_t part = index(grammar_.parts()[node.first + k]);
          sum += size_[part];
          deepest = std::max(deepest, nesting_[part]);
        }
        if (node.kind == Kind::repeat) sum = saturating(sum, copies(node));
    }
    size_[at] = std::min(sum, std::uint64_t{1} << 40);
    nesting_[at] = deepest + 1;
  }

  const Grammar& grammar_;
  const Analysis& analysis_;
  std::vector<std::uint64_t> size_;
  std::vector<std::uint32_t> nesting_;
  std::vector<std::uint8_t> known_;
  std::vector<std::uint64_t> rule_size_;
  std::vector<std::uint32_t> rule_nesting_;
  std::vector<std::uint64_t> sites_;
  std::vector<std::uint8_t> inlined_;
};

class Builder {
 public:
  Builder(const Grammar& grammar, const Analysis& analysis, const CompileLimits& limits,
          std::size_t vocabulary)
      : grammar_(grammar),
        analysis_(analysis),
        limits_(limits),
        vocabulary_(vocabulary),
        plan_(grammar, analysis),
        number_(grammar.rules().size(), Nfa::kNone) {}

  Result<Nfa> build() {
    STRATA_TRY(add_rule("root", *grammar_.root()));
    // Rules are numbered when they are first called; the list grows while it is worked through.
    for (std::size_t k = 0; k < called_.size(); ++k) {
      const Grammar::RuleBody& rule = grammar_.rules()[called_[k]];
      STRATA_TRY(add_rule(rule.name, *rule.body));
    }
    nfa_.token_sets.resize(sets_.size());
    for (auto& [set, label] : sets_) nfa_.token_sets[label] = set;
    return std::move(nfa_);
  }

 private:
  Status add_rule(const std::string& name, Expr body) {
    name_ = name;
    if (plan_.size(body) > limits_.states ||
        nfa_.states.size() + plan_.size(body) > std::size_t{2} * limits_.states) {
      return fail(ErrorCode::exhausted,
                  "the rule '{}' needs more than the limit of {} states; use smaller repetitions",
                  name, limits_.states);
    }
    if (plan_.nesting(body) > kMaxNesting) {
      return fail(ErrorCode::exhausted, "the rule '{}' is nested more than {} deep", name,
                  kMaxNesting);
    }
    const std::uint32_t start = add_state(), last = add_state();
    const std::uint32_t at = index(body);
    if (analysis_.finite.node[at]) STRATA_TRY(expr(body, start, last));
    nfa_.rules.push_back({name, start, last, analysis_.empty.node[at] != 0});
    return {};
  }

  std::uint32_t add_state() {
    nfa_.states.emplace_back();
    return static_cast<std::uint32_t>(nfa_.states.size() - 1);
  }

  void bridge(std::uint32_t from, std::uint32_t to) {
    if (from == to) return;
    nfa_.links.push_back({to, nfa_.states[from].empty});
    nfa_.states[from].empty = static_cast<std::uint32_t>(nfa_.links.size() - 1);
  }

  // The texts of the expression, from one state to another. Parts that cannot end are left out.
  Status expr(Expr expr, std::uint32_t from, std::uint32_t to) {
    STRATA_TRY(TimeLimit::check());
    const Node& node = grammar_.nodes()[index(expr)];
    switch (node.kind) {
      case Kind::regular:
        regular(grammar_.regulars()[node.first], from, to);
        return {};
      case Kind::token:
      case Kind::token_except:
        return tokens(node, from, to);
      case Kind::sequence:
        return sequence(node, from, to);
      case Kind::choice:
        for (std::uint32_t k = 0; k < node.count; ++k) {
          const Expr part = grammar_.parts()[node.first + k];
          if (analysis_.finite.node[index(part)]) STRATA_TRY(this->expr(part, from, to));
        }
        return {};
      case Kind::repeat:
        return repeat(node, from, to);
      case Kind::call:
        return call(node.first, from, to);
    }
    return {};
  }

  Status sequence(const Node& node, std::uint32_t from, std::uint32_t to) {
    if (node.count == 0) bridge(from, to);
    for (std::uint32_t k = 0; k < node.count; ++k) {
      const std::uint32_t next = k + 1 == node.count ? to : add_state();
      STRATA_TRY(expr(grammar_.parts()[node.first + k], from, next));
      from = next;
    }
    return {};
  }

  Status repeat(const Node& node, std::uint32_t from, std::uint32_t to) {
    const Expr part = grammar_.parts()[node.first];
    if (!analysis_.finite.node[index(part)] || node.most == 0U) {
      bridge(from, to);
      return {};
    }
    for (std::uint32_t k = 0; k < node.least; ++k) {
      const std::uint32_t next = add_state();
      STRATA_TRY(expr(part, from, next));
      from = next;
    }
    if (!node.most) {
      const std::uint32_t loop = add_state();
      bridge(from, loop);
      bridge(loop, to);
      const std::uint32_t back = add_state();
      STRATA_TRY(expr(part, loop, back));
      bridge(back, loop);
      return {};
    }
    for (std::uint32_t k = node.least; k < *node.most; ++k) {
      bridge(from, to);
      const std::uint32_t next = add_state();
      STRATA_TRY(expr(part, from, next));
      from = next;
    }
    bridge(from, to);
    return {};
  }

  void regular(const Regular& language, std::uint32_t from, std::uint32_t to) {
    if (language.is_nothing()) return;
    const Regular::Automaton& automaton = language.automaton();
    const auto base = static_cast<std::uint32_t>(nfa_.states.size());
    nfa_.states.resize(base + language.states());
    bridge(from, base + language.start());
    runs_.clear();  // bytes of one class that stand together
    for (unsigned byte = 0; byte < 256; ++byte) {
      const auto value = static_cast<std::uint8_t>(byte);
      const std::uint32_t of = automaton.classes.of[byte];
      if (!runs_.empty() && runs_.back().to == of) {
        runs_.back().last = value;
      } else {
        runs_.push_back({value, value, of});
      }
    }
    for (std::uint32_t state = 0; state < language.states(); ++state) {
      if (language.accepting(state)) bridge(base + state, to);
      std::vector<Nfa::Range>& ranges = nfa_.ranges;
      const std::size_t first = ranges.size();
      for (const Nfa::Range& run : runs_) {
        const Regular::State next = automaton.next_of_class(state, run.to);
        if (next == Regular::kDead) continue;
        if (ranges.size() > first && ranges.back().last + 1U == run.first &&
            ranges.back().to == base + next)
          ranges.back().last = run.last;
        else
          ranges.push_back({run.first, run.last, base + next});
      }
      nfa_.states[base + state].first_range = static_cast<std::uint32_t>(first);
      nfa_.states[base + state].ranges = static_cast<std::uint32_t>(ranges.size() - first);
    }
  }

  Status tokens(const Node& node, std::uint32_t from, std::uint32_t to) {
    TokenSet set{.except = node.kind == Kind::token_except,
                 .ids = {grammar_.tokens().begin() + node.first,
                         grammar_.tokens().begin() + node.first + node.count}};
    std::sort(set.ids.begin(), set.ids.end());
    set.ids.erase(std::unique(set.ids.begin(), set.ids.end()), set.ids.end());
    for (const TokenId id : set.ids) {
      if (id < 0 || static_cast<std::size_t>(id) >= vocabulary_) {
        return fail(ErrorCode::invalid_argument,
                    "the rule '{}' names the token {}, but the vocabulary has {} tokens", name_, id,
                    vocabulary_);
      }
    }
    const auto label = static_cast<std::uint32_t>(sets_.size());
    const auto [it, fresh] = sets_.emplace(std::move(set), label);
    nfa_.edges_of(from).tokens.push_back({it->second, to});
    return {};
  }

  Status call(std::uint32_t rule, std::uint32_t from, std::uint32_t to) {
    if (plan_.inlined(rule)) return expr(*grammar_.rules()[rule].body, from, to);
    if (analysis_.empty.rule[rule]) bridge(from, to);
    if (!analysis_.nonempty.rule[rule]) return {};
    if (number_[rule] == Nfa::kNone) {
      called_.push_back(rule);
      number_[rule] = static_cast<std::uint32_t>(called_.size());
    }
    nfa_.edges_of(from).calls.push_back({number_[rule], to});
    return {};
  }

  const Grammar& grammar_;
  const Analysis& analysis_;
  const CompileLimits& limits_;
  std::size_t vocabulary_;
  Plan plan_;
  std::vector<std::uint32_t> number_, called_;
  std::map<TokenSet, std::uint32_t> sets_;
  std::string name_;
  std::vector<Nfa::Range> runs_;
  Nfa nfa_;
};

}  // namespace

bool TokenSet::contains(TokenId id) const {
  return std::binary_search(ids.begin(), ids.end(), id) != except;
}

Result<Nfa> build_nfa(const Grammar& grammar, const Analysis& analysis, const CompileLimits& limits,
                      std::size_t vocabulary) {
  return Builder(grammar, analysis, limits, vocabulary).build();
}

}  // namespace strata::constrain
