#include "constrain/matcher.h"

#include <algorithm>
#include <unordered_map>

#include "constrain/masks.h"
#include "constrain/stacks.h"
#include "constrain/tables.h"
#include "constrain/time_limit.h"
#include "constrain/trie.h"

namespace strata::constrain {

CompiledGrammar::CompiledGrammar(std::unique_ptr<Tables> tables) : tables_(std::move(tables)) {}
CompiledGrammar::~CompiledGrammar() = default;

std::size_t CompiledGrammar::bytes() const {
  const Automata& it = tables_->automata;
  std::size_t sum = sizeof(Tables) + it.states.size() * sizeof(Automata::State) +
                    it.ranges.size() * sizeof(Automata::Range) +
                    it.calls.size() * sizeof(Automata::Call) +
                    it.token_edges.size() * sizeof(Automata::TokenEdge);
  for (const TokenSet& set : it.token_sets) sum += sizeof(set) + set.ids.size() * sizeof(TokenId);
  return sum + (it.row.size() + it.rows.size()) * sizeof(std::uint32_t) + tables_->masks.bytes();
}

Result<std::shared_ptr<const CompiledGrammar>> CompiledGrammar::compile(
    const Grammar& grammar, std::shared_ptr<const Vocabulary> vocabulary,
    const CompileLimits& limits) {
  STRATA_TRY(grammar.status());
  if (!grammar.root()) return fail(ErrorCode::invalid_argument, "the grammar has no root");
  const TimeLimit time(limits.seconds);
  STRATA_ASSIGN(const Analysis analysis, analyse(grammar));
  if (!analysis.finite.node[static_cast<std::uint32_t>(*grammar.root())])
    return fail(ErrorCode::invalid_argument, "the constraint allows no text at all");
  STRATA_ASSIGN(const Nfa nfa, build_nfa(grammar, analysis, limits, vocabulary->size()));
  STRATA_ASSIGN(Automata automata, determinise(nfa, limits));
  auto compiled = std::make_shared<const CompiledGrammar>(
      std::make_unique<Tables>(std::move(vocabulary), limits, std::move(automata)));
  Readings start;
  Stacks(compiled->tables().automata, limits).begin(start);
  if (start.dead()) {
    return fail(ErrorCode::exhausted,
                "the constraint has more than the limit of {} readings at its beginning, or rules "
                "that are open {} deep",
                limits.parallel, limits.depth);
  }
  return compiled;
}

struct Matcher::Impl {
  Impl(std::shared_ptr<const CompiledGrammar> compiled, std::vector<TokenId> end_tokens)
      : grammar(std::move(compiled)),
        ends(std::move(end_tokens)),
        stacks(grammar->tables().automata, grammar->tables().limits) {
    const auto size = static_cast<TokenId>(grammar->tables().vocabulary->size());
    std::erase_if(ends, [&](TokenId id) { return id < 0 || id >= size; });
    std::sort(ends.begin(), ends.end());
    Readings start;
    stacks.begin(start);
    history.push_back(number_of(std::move(start)));
  }

  const Readings& now() const { return known[history.back()]; }
  // It has no text.
  bool is_special(TokenId id) const {
    return grammar->tables().vocabulary->trie().texts[static_cast<std::size_t>(id)].empty();
  }
  bool is_end(TokenId id) const { return std::binary_search(ends.begin(), ends.end(), id); }

  std::uint32_t number_of(Readings readings) {
    const auto number = static_cast<std::uint32_t>(known.size());
    const auto [it, fresh] = numbers.emplace(stacks.hash(readings), number);
    if (!fresh && known[it->second].list == readings.list &&
        known[it->second].complete == readings.complete)
      return it->second;
    readings_held += readings.list.size();
    known.push_back(std::move(readings));
    return number;
  }

  // What the text becomes with a token.
  Verdict step(TokenId id, Readings& out) {
    if (id < 0 || static_cast<std::size_t>(id) >= grammar->tables().vocabulary->size())
      return Verdict::forbidden;
    if (is_end(id)) {
      out = now();
      if (out.complete) return Verdict::allowed;
      refresh();
      return any ? Verdict::forbidden : Verdict::allowed;
    }
    stacks.step_token(now(), id, out);
    if (stacks.overflowed()) return Verdict::unknown;
    Readings from = now(), to;
    for (const char c : grammar->tables().vocabulary->trie().texts[static_cast<std::size_t>(id)]) {
      if (!stacks.step(from, static_cast<std::uint8_t>(c), to)) {
        if (stacks.overflowed()) return Verdict::unknown;
        from.clear();
        break;
      }
      std::swap(from, to);
    }
    if (!is_special(id)) Stacks::merge(from, out);
    return out.dead() ? Verdict::forbidden : Verdict::allowed;
  }

  void push(Readings next) {
    history.push_back(number_of(std::move(next)));
    if (readings_held > most_readings || stacks.places() > most_places) compact();
  }

  // Texts whose readings are always new ones would gather them without end: all but the last are
  // given up.
  void compact() {
    const std::size_t keep = std::min(history.size(), kMinRollback + 1);
    forgotten += history.size() - keep;
    history.erase(history.begin(), history.end() - static_cast<std::ptrdiff_t>(keep));
    std::vector<Readings> kept;
    std::unordered_map<std::uint32_t, std::uint32_t> place;
    for (std::uint32_t& number : history) {
      const auto [it, fresh] = place.emplace(number, static_cast<std::uint32_t>(kept.size()));
      if (fresh) kept.push_back(std::move(known[number]));
      number = it->second;
    }
    stacks.keep_only(kept);
    known = std::move(kept);
    numbers.clear();
    readings_held = 0;
    for (std::uint32_t k = 0; k < known.size(); ++k) {
      numbers.emplace(stacks.hash(known[k]), k);
      readings_held += known[k].list.size();
    }
    most_readings = std::max(kManyReadings, 2 * readings_held);
    most_places = std::max(kManyReadings, 2 * stacks.places());
    masked = kNone;
  }

  void refresh() {
    if (masked == history.back()) return;
    const CompiledGrammar::Tables& tables = grammar->tables();
    const std::uint64_t key = stacks.hash(now());
    made = tables.masks.find(key);
    if (!made) {
      made = make_mask(tables, stacks, now());
      tables.masks.keep(key, made);
    }
    mask = made->words;
    const bool has_end =
        std::any_of(ends.begin(), ends.end(), [&](TokenId id) { return allows(mask, id); });
    if (has_end || now().complete) {
      own = made->words;
      for (const TokenId id : ends) set(id, now().complete);
      mask = own;
    }
    any = std::any_of(mask.begin(), mask.end(), [](std::uint64_t word) { return word != 0; });
    if (!any) {
      own = made->words;
      for (const TokenId id : ends) set(id, true);
      mask = own;
    }
    masked = history.back();
  }

  void set(TokenId id, bool value) {
    std::uint64_t& word = own[static_cast<std::size_t>(id) / 64];
    const std::uint64_t bit = std::uint64_t{1} << (static_cast<std::size_t>(id) % 64);
    word = value ? word | bit : word & ~bit;
  }

  static constexpr std::size_t kMinRollback = 256;
  static constexpr std::size_t kManyReadings = std::size_t{1} << 16;
  static constexpr std::uint32_t kNone = UINT32_MAX;

  std::shared_ptr<const CompiledGrammar> grammar;
  std::vector<TokenId> ends;
  Stacks stacks;
  std::vector<Readings> known;  // each once, as far as their hashes differ
  std::unordered_map<std::uint64_t, std::uint32_t> numbers;  // of them, by their hash
  std::vector<std::uint32_t> history;  // in `known`: before the first token, after each
  std::size_t forgotten = 0;           // tokens before the history
  std::size_t readings_held = 0, most_readings = kManyReadings, most_places = kManyReadings;

  // The mask of the readings `masked`: `made`, or `own` where the ends change it.
  std::uint32_t masked = kNone;
  SharedMask made;
  std::vector<std::uint64_t> own;
  Mask mask;
  bool any = false;  // something is allowed
};

Matcher::Matcher(std::shared_ptr<const CompiledGrammar> grammar, std::vector<TokenId> ends)
    : impl_(std::make_unique<Impl>(std::move(grammar), std::move(ends))) {}
Matcher::Matcher(const Matcher& other) : impl_(std::make_unique<Impl>(*other.impl_)) {
  impl_->masked = Impl::kNone;  // it may be the other's own
}
Matcher& Matcher::operator=(const Matcher& other) {
  if (this != &other) *this = Matcher(other);
  return *this;
}
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;
Matcher::~Matcher() = default;

Mask Matcher::mask() {
  impl_->refresh();
  return impl_->mask;
}

bool Matcher::mask_is_exact() {
  impl_->refresh();
  return impl_->made->exact;
}

Matcher::Verdict Matcher::verdict(TokenId id) {
  Readings next;
  return impl_->step(id, next);
}

bool Matcher::accept(TokenId id) {
  Readings next;
  if (impl_->step(id, next) != Verdict::allowed) return false;
  impl_->push(std::move(next));
  return true;
}

void Matcher::rollback(std::size_t tokens) {
  if (tokens == 0) return;
  impl_->history.resize(impl_->history.size() - std::min(tokens, impl_->history.size() - 1));
}

std::size_t Matcher::accepted() const {
  return impl_->forgotten + impl_->history.size() - 1;
}

bool Matcher::can_end() const {
  return impl_->now().complete;
}

bool Matcher::must_end() const {
  return impl_->now().complete && impl_->now().list.empty();
}

bool Matcher::stuck() const {
  if (impl_->now().complete) return false;
  impl_->refresh();
  return !impl_->any;
}

}  // namespace strata::constrain
