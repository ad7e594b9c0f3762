#include "constrain/analysis.h"

#include <algorithm>
#include <span>

namespace strata::constrain {
namespace {

using Kind = Grammar::Node::Kind;

std::uint32_t index(Grammar::Expr expr) {
  return static_cast<std::uint32_t>(expr);
}

// Which nodes and rules stand in which: the vertices are the nodes, then the rules.
class Users {
 public:
  explicit Users(const Grammar& grammar) : nodes_(grammar.nodes().size()) {
    const std::size_t vertices = nodes_ + grammar.rules().size();
    first_.assign(vertices + 1, 0);
    each(grammar, [&](std::size_t part, std::size_t) { ++first_[part + 1]; });
    for (std::size_t i = 0; i < vertices; ++i) first_[i + 1] += first_[i];
    users_.resize(first_[vertices]);
    std::vector<std::uint32_t> at(first_.begin(), first_.end() - 1);
    each(grammar, [&](std::size_t part, std::size_t user) {
      users_[at[part]++] = static_cast<std::uint32_t>(user);
    });
  }
  std::size_t size() const { return first_.size() - 1; }
  std::size_t nodes() const { return nodes_; }
  std::span<const std::uint32_t> of(std::size_t vertex) const {
    return std::span(users_).subspan(first_[vertex], first_[vertex + 1] - first_[vertex]);
  }

 private:
  template <class Visit>
  void each(const Grammar& grammar, Visit visit) const {
    for (std::size_t i = 0; i < nodes_; ++i) {
      const Grammar::Node& node = grammar.nodes()[i];
      if (node.kind == Kind::call) visit(nodes_ + node.first, i);
      if (node.kind != Kind::sequence && node.kind != Kind::choice && node.kind != Kind::repeat)
        continue;
      for (std::uint32_t k = 0; k < node.count; ++k)
        visit(index(grammar.parts()[node.first + k]), i);
    }
    for (std::size_t r = 0; r < grammar.rules().size(); ++r)
      if (grammar.rules()[r].body) visit(index(*grammar.rules()[r].body), nodes_ + r);
  }

  std::size_t nodes_;
  std::vector<std::uint32_t> first_, users_;
};

// The least fixed point: `known` says whether a node has the property by itself, `passes` whether a
// part that has it gives it to the node around it, when all or one of its parts have it.
template <class Known, class Passes>
Derives derive(const Grammar& grammar, const Users& users, bool whole_sequence, Known known,
               Passes passes) {
  std::vector<std::uint8_t> has(users.size(), 0);
  std::vector<std::uint32_t> missing(users.nodes(), 0), fresh;
  const auto give = [&](std::size_t vertex) {
    if (has[vertex]) return;
    has[vertex] = 1;
    fresh.push_back(static_cast<std::uint32_t>(vertex));
  };
  for (std::size_t i = 0; i < users.nodes(); ++i) {
    missing[i] = grammar.nodes()[i].count;
    if (known(grammar.nodes()[i])) give(i);
  }
  while (!fresh.empty()) {
    const std::uint32_t vertex = fresh.back();
    fresh.pop_back();
    for (const std::uint32_t user : users.of(vertex)) {
      if (user >= users.nodes()) {
        give(user);
        continue;
      }
      const bool all = whole_sequence && grammar.nodes()[user].kind == Kind::sequence;
      if (all && --missing[user] > 0) continue;
      if (passes(user)) give(user);
    }
  }
  const auto middle = has.begin() + static_cast<std::ptrdiff_t>(users.nodes());
  return {{has.begin(), middle}, {middle, has.end()}};
}

bool has_byte(const Regular& language) {
  if (language.is_nothing()) return false;
  for (unsigned byte = 0; byte < 256; ++byte)
    if (language.next(language.start(), static_cast<std::uint8_t>(byte)) != Regular::kDead)
      return true;
  return false;
}

Derives finite(const Grammar& grammar, const Users& users, bool nothing_ends) {
  return derive(
      grammar, users, true,
      [&](const Grammar::Node& node) {
        switch (node.kind) {
          case Kind::regular:
            return nothing_ends || !grammar.regulars()[node.first].is_nothing();
          case Kind::token:
            return nothing_ends || node.count > 0;
          case Kind::token_except:
            return true;
          case Kind::sequence:
            return node.count == 0;
          case Kind::choice:
            return nothing_ends && node.count == 0;
          case Kind::repeat:
            return node.least == 0;
          case Kind::call:
            return false;
        }
        return false;
      },
      [](std::uint32_t) { return true; });
}

Derives empty(const Grammar& grammar, const Users& users) {
  return derive(
      grammar, users, true,
      [&](const Grammar::Node& node) {
        if (node.kind == Kind::regular) {
          const Regular& language = grammar.regulars()[node.first];
          return !language.is_nothing() && language.accepting(language.start());
        }
        return (node.kind == Kind::sequence && node.count == 0) ||
               (node.kind == Kind::repeat && node.least == 0);
      },
      [](std::uint32_t) { return true; });
}

Derives nonempty(const Grammar& grammar, const Users& users, const Derives& finite) {
  return derive(
      grammar, users, false,
      [&](const Grammar::Node& node) {
        if (node.kind == Kind::regular) return has_byte(grammar.regulars()[node.first]);
        return (node.kind == Kind::token && node.count > 0) || node.kind == Kind::token_except;
      },
      [&](std::uint32_t user) {
        return finite.node[user] != 0 && grammar.nodes()[user].most != 0U;
      });
}

// The rules called in the body of each rule, each once, as lists one after another.
struct Calls {
  std::vector<std::uint32_t> first, callees;
};

class CallGraph {
 public:
  explicit CallGraph(const Grammar& grammar)
      : grammar_(grammar), seen_(grammar.nodes().size(), 0) {}

  // Rules called from an expression, each once.
  std::vector<std::uint32_t> from(Grammar::Expr expr) {
    ++stamp_;
    std::vector<std::uint32_t> found;
    visit(expr);
    while (!open_.empty()) {
      const Grammar::Node& node = grammar_.nodes()[open_.back()];
      open_.pop_back();
      if (node.kind == Kind::call) found.push_back(node.first);
      if (node.kind != Kind::sequence && node.kind != Kind::choice && node.kind != Kind::repeat)
        continue;
      for (std::uint32_t k = 0; k < node.count; ++k) visit(grammar_.parts()[node.first + k]);
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }

 private:
  void visit(Grammar::Expr expr) {
    if (seen_[index(expr)] == stamp_) return;
    seen_[index(expr)] = stamp_;
    open_.push_back(index(expr));
  }

  const Grammar& grammar_;
  std::vector<std::uint32_t> seen_, open_;
  std::uint32_t stamp_ = 0;
};

// Tarjan's strongly connected components without recursion: they come out callees first.
class Components {
 public:
  Components(const std::vector<std::vector<std::uint32_t>>& calls, Analysis& out)
      : calls_(calls), out_(out), number_(calls.size(), 0), low_(calls.size(), 0) {}

  void from(std::uint32_t root) {
    if (number_[root] != 0) return;
    enter(root);
    while (!frames_.empty()) {
      Frame& top = frames_.back();
      if (top.next < calls_[top.rule].size()) {
        const std::uint32_t callee = calls_[top.rule][top.next++];
        if (callee == top.rule) out_.recursive[callee] = 1;
        if (number_[callee] == 0) {
          enter(callee);
        } else if (number_[callee] != kDone) {
          low_[top.rule] = std::min(low_[top.rule], number_[callee]);
        }
        continue;
      }
      leave();
    }
  }

 private:
  static constexpr std::uint32_t kDone = UINT32_MAX;
  struct Frame {
    std::uint32_t rule = 0;
    std::size_t next = 0;
  };

  void enter(std::uint32_t rule) {
    number_[rule] = low_[rule] = ++count_;
    out_.reachable[rule] = 1;
    open_.push_back(rule);
    frames_.push_back({rule, 0});
  }

  void leave() {
    const std::uint32_t rule = frames_.back().rule;
    frames_.pop_back();
    if (!frames_.empty()) {
      std::uint32_t& low = low_[frames_.back().rule];
      low = std::min(low, low_[rule]);
    }
    if (low_[rule] != number_[rule]) return;
    const bool several = open_.back() != rule;
    for (bool last = false; !last;) {
      const std::uint32_t member = open_.back();
      open_.pop_back();
      last = member == rule;
      number_[member] = kDone;
      if (several) out_.recursive[member] = 1;
      out_.order.push_back(member);
    }
  }

  const std::vector<std::vector<std::uint32_t>>& calls_;
  Analysis& out_;
  std::vector<std::uint32_t> number_, low_, open_;
  std::vector<Frame> frames_;
  std::uint32_t count_ = 0;
};

}  // namespace

Result<Analysis> analyse(const Grammar& grammar) {
  const std::size_t rules = grammar.rules().size();
  Analysis out;
  out.reachable.assign(rules, 0);
  out.recursive.assign(rules, 0);
  CallGraph graph(grammar);
  std::vector<std::vector<std::uint32_t>> calls(rules);
  for (std::size_t r = 0; r < rules; ++r)
    if (grammar.rules()[r].body) calls[r] = graph.from(*grammar.rules()[r].body);
  Components components(calls, out);
  for (const std::uint32_t rule : graph.from(*grammar.root())) components.from(rule);

  const Users users(grammar);
  const Derives ends = finite(grammar, users, true);
  for (const std::uint32_t rule : out.order) {
    const Grammar::RuleBody& it = grammar.rules()[rule];
    if (!it.body)
      return fail(ErrorCode::invalid_argument, "the rule '{}' is used but not defined", it.name);
    if (!ends.rule[rule]) {
      return fail(ErrorCode::invalid_argument,
                  "the rule '{}' can never end: each of its alternatives needs it again", it.name);
    }
  }
  out.finite = finite(grammar, users, false);
  out.empty = empty(grammar, users);
  out.nonempty = nonempty(grammar, users, out.finite);
  return out;
}

}  // namespace strata::constrain
