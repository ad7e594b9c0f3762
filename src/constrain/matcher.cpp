#include "constrain/matcher.h"

#include <algorithm>

#include "constrain/masks.h"
#include "constrain/stacks.h"
#include "constrain/tables.h"
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
  return sum;
}

Result<std::shared_ptr<const CompiledGrammar>> CompiledGrammar::compile(
    const Grammar& grammar, std::shared_ptr<const Vocabulary> vocabulary,
    const CompileLimits& limits) {
  STRATA_TRY(grammar.status());
  if (!grammar.root()) return fail(ErrorCode::invalid_argument, "the grammar has no root");
  Deadline deadline(limits.seconds);
  STRATA_ASSIGN(const Analysis analysis, analyse(grammar));
  if (!analysis.finite.node[static_cast<std::uint32_t>(*grammar.root())])
    return fail(ErrorCode::invalid_argument, "the constraint allows no text at all");
  STRATA_ASSIGN(const Nfa nfa, build_nfa(grammar, analysis, limits, vocabulary->size(), deadline));
  auto tables = std::make_unique<Tables>();
  STRATA_ASSIGN(tables->automata, determinise(nfa, limits, deadline));
  tables->vocabulary = std::move(vocabulary);
  tables->limits = limits;
  return std::make_shared<const CompiledGrammar>(std::move(tables));
}

struct Matcher::Impl {
  Impl(std::shared_ptr<const CompiledGrammar> compiled, std::vector<TokenId> end_tokens)
      : grammar(std::move(compiled)),
        ends(std::move(end_tokens)),
        stacks(grammar->tables().automata, grammar->tables().limits) {
    const auto size = static_cast<TokenId>(grammar->tables().vocabulary->size());
    std::erase_if(ends, [&](TokenId id) { return id < 0 || id >= size; });
    std::sort(ends.begin(), ends.end());
    history.emplace_back();
    stacks.begin(history.back());
  }

  const Readings& now() const { return history.back(); }
  bool is_end(TokenId id) const { return std::binary_search(ends.begin(), ends.end(), id); }

  // What the text becomes with a token.
  bool step(TokenId id, Readings& out) {
    const Vocabulary::Trie& trie = grammar->tables().vocabulary->trie();
    Readings from, to;
    stacks.step_token(now(), id, out);
    const std::string& text = trie.texts[static_cast<std::size_t>(id)];
    if (text.empty()) return !out.dead();
    from = now();
    for (const char c : text) {
      if (!stacks.step(from, static_cast<std::uint8_t>(c), to)) return !out.dead();
      std::swap(from, to);
    }
    Stacks::merge(from, out);
    return true;
  }

  void refresh() {
    if (masked) return;
    const std::size_t words = (grammar->tables().vocabulary->size() + 63) / 64;
    mask.assign(words, 0);
    fill_mask(grammar->tables(), stacks, now(), mask);
    for (const TokenId id : ends) set(id, false);
    any = std::any_of(mask.begin(), mask.end(), [](std::uint64_t word) { return word != 0; });
    if (now().complete || !any)
      for (const TokenId id : ends) set(id, true);
    masked = true;
  }

  void set(TokenId id, bool value) {
    std::uint64_t& word = mask[static_cast<std::size_t>(id) / 64];
    const std::uint64_t bit = std::uint64_t{1} << (static_cast<std::size_t>(id) % 64);
    word = value ? word | bit : word & ~bit;
  }

  std::shared_ptr<const CompiledGrammar> grammar;
  std::vector<TokenId> ends;
  Stacks stacks;
  std::vector<Readings> history;  // before the first token, after each
  std::vector<std::uint64_t> mask;
  bool masked = false;  // `mask` and `any` are those of the text so far
  bool any = false;     // something can follow
};

Matcher::Matcher(std::shared_ptr<const CompiledGrammar> grammar, std::vector<TokenId> ends)
    : impl_(std::make_unique<Impl>(std::move(grammar), std::move(ends))) {}
Matcher::Matcher(const Matcher& other) : impl_(std::make_unique<Impl>(*other.impl_)) {}
Matcher& Matcher::operator=(const Matcher& other) {
  if (this != &other) impl_ = std::make_unique<Impl>(*other.impl_);
  return *this;
}
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;
Matcher::~Matcher() = default;

Mask Matcher::mask() {
  impl_->refresh();
  return impl_->mask;
}

bool Matcher::accept(TokenId id) {
  if (id < 0 || static_cast<std::size_t>(id) >= impl_->grammar->tables().vocabulary->size())
    return false;
  Readings next;
  if (impl_->is_end(id)) {
    if (!can_end() && !stuck()) return false;
    next = impl_->now();
  } else if (!impl_->step(id, next)) {
    return false;
  }
  impl_->history.push_back(std::move(next));
  impl_->masked = false;
  return true;
}

void Matcher::rollback(std::size_t tokens) {
  if (tokens == 0) return;
  impl_->history.resize(impl_->history.size() - std::min(tokens, accepted()));
  impl_->masked = false;
}

std::size_t Matcher::accepted() const {
  return impl_->history.size() - 1;
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
