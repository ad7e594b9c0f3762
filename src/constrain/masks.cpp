#include "constrain/masks.h"

#include "constrain/trie.h"

namespace strata::constrain {
namespace {

void set(std::span<std::uint64_t> mask, TokenId id) {
  mask[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1}
                                             << (static_cast<std::size_t>(id) % 64);
}

void add_tokens(const Automata& automata, const Readings& readings, std::size_t vocabulary,
                std::span<std::uint64_t> mask) {
  for (const Reading& it : readings.list) {
    const Automata::State* state = &automata.states[it.state];
    for (std::uint32_t i = state[0].tokens; i < state[1].tokens; ++i) {
      const TokenSet& tokens = automata.token_sets[automata.token_edges[i].set];
      if (!tokens.except) {
        for (const TokenId id : tokens.ids) set(mask, id);
        continue;
      }
      for (std::size_t id = 0; id < vocabulary; ++id)
        if (tokens.contains(static_cast<TokenId>(id))) set(mask, static_cast<TokenId>(id));
    }
  }
}

}  // namespace

void fill_mask(const CompiledGrammar::Tables& tables, Stacks& stacks, const Readings& readings,
               std::span<std::uint64_t> mask) {
  const Vocabulary::Trie& trie = tables.vocabulary->trie();
  add_tokens(tables.automata, readings, tables.vocabulary->size(), mask);
  std::vector<Readings> path(std::size_t{trie.longest} + 1);
  path[0] = readings;
  for (std::size_t i = 0; i + 1 < trie.nodes.size();) {
    const Vocabulary::Trie::Node& node = trie.nodes[i];
    if (!stacks.step(path[node.depth - 1U], node.byte, path[node.depth])) {
      i = node.end;
      continue;
    }
    for (std::uint32_t k = node.first_token; k < trie.nodes[i + 1].first_token; ++k)
      set(mask, trie.tokens[k]);
    ++i;
  }
}

}  // namespace strata::constrain
