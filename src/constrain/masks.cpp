#include "constrain/masks.h"

#include <algorithm>
#include <string_view>

#include "constrain/trie.h"

namespace strata::constrain {
namespace {

using Trie = Vocabulary::Trie;
using Words = std::vector<std::uint64_t>;

void set(Words& mask, TokenId id) {
  mask[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1}
                                             << (static_cast<std::size_t>(id) % 64);
}

bool has(const Words& mask, TokenId id) {
  return (mask[static_cast<std::size_t>(id) / 64] >> (static_cast<std::size_t>(id) % 64)) & 1U;
}

// Tokens that are read as such. True if only those in `left` can still be missing.
bool add_tokens(const Automata& automata, const Readings& readings, std::size_t vocabulary,
                Words& mask, std::vector<TokenId>& left) {
  bool all = false;
  for (const Reading& it : readings.list) {
    const Automata::State* state = &automata.states[it.state];
    for (std::uint32_t i = state[0].tokens; i < state[1].tokens; ++i) {
      const TokenSet& tokens = automata.token_sets[automata.token_edges[i].set];
      if (!tokens.except) {
        for (const TokenId id : tokens.ids) set(mask, id);
        continue;
      }
      left.clear();
      for (const TokenId id : tokens.ids)
        if (!has(mask, id)) left.push_back(id);
      mask.assign(mask.size(), ~std::uint64_t{0});
      if (vocabulary % 64 != 0) mask.back() = (std::uint64_t{1} << (vocabulary % 64)) - 1;
      for (const TokenId id : left)
        mask[static_cast<std::size_t>(id) / 64] &=
            ~(std::uint64_t{1} << (static_cast<std::size_t>(id) % 64));
      all = true;
    }
  }
  return all;
}

// Walks the readings down a tree of tokens. A single reading in a state that neither ends nor calls
// is one look into a table for each byte.
class Walk {
 public:
  Walk(const CompiledGrammar::Tables& tables, Stacks& stacks, const Readings& readings, Words& mask)
      : automata_(tables.automata), stacks_(stacks), mask_(mask) {
    const std::size_t depths = std::size_t{tables.vocabulary->trie().longest} + 1;
    frames_.resize(depths);
    many_.resize(depths);
    many_[0] = readings;
    settle(0);
  }

  void run(const Trie::Tree& tree) {
    for (std::size_t i = 0; i + 1 < tree.nodes.size();) {
      const Trie::Node& node = tree.nodes[i];
      if (!step(node.depth, node.byte)) {
        i = node.end;
        continue;
      }
      for (std::uint32_t k = node.first_token; k < tree.nodes[i + 1].first_token; ++k)
        set(mask_, tree.tokens[k]);
      ++i;
    }
  }

  bool takes(std::string_view text) {
    std::size_t depth = 0;
    for (const char c : text)
      if (!step(++depth, static_cast<std::uint8_t>(c))) return false;
    return depth > 0;
  }

 private:
  struct Frame {
    Reading single;
    bool is_single = false;
  };

  bool step(std::size_t depth, std::uint8_t byte) {
    const Frame& from = frames_[depth - 1];
    Readings& to = many_[depth];
    if (from.is_single) {
      const std::uint32_t next = automata_.next(from.single.state, byte);
      if (next == Automata::kDead) return false;
      if (automata_.states[next].plain) {
        frames_[depth] = {{next, from.single.stack}, true};
        return true;
      }
      if (stacks_.work() > kMaxMaskWork || !stacks_.enter({next, from.single.stack}, to))
        return false;
    } else if (stacks_.work() > kMaxMaskWork || !stacks_.step(many_[depth - 1], byte, to)) {
      return false;
    }
    settle(depth);
    return true;
  }

  void settle(std::size_t depth) {
    Frame& frame = frames_[depth];
    frame.is_single = many_[depth].list.size() == 1;
    if (frame.is_single) frame.single = many_[depth].list.front();
  }

  const Automata& automata_;
  Stacks& stacks_;
  Words& mask_;
  std::vector<Frame> frames_;   // by depth
  std::vector<Readings> many_;  // where the frame is not of a single one
};

// Adds the tokens that are known without asking; false for a kind that must be walked as well.
bool add_kind(const Trie::Kind& kind, const std::vector<Span>& spans, bool only, Words& mask) {
  std::uint32_t certain = 0;
  bool exact = false;
  for (const Span& span : spans) {
    if ((kind.letters & ~span.letters) != 0 || span.certain < certain) continue;
    certain = span.certain;
    exact = span.exact;
  }
  const std::size_t length = std::min<std::size_t>(certain, kind.up_to.size() - 1);
  const std::uint32_t count = kind.up_to[length];
  for (std::uint32_t k = 0; k < count; ++k) set(mask, kind.by_length[k]);
  return count == kind.by_length.size() || (exact && only);
}

void add_texts(const CompiledGrammar::Tables& tables, Stacks& stacks, const Readings& readings,
               Words& mask) {
  const Trie& trie = tables.vocabulary->trie();
  std::vector<Span> spans;
  bool reads = false;
  for (const Reading& it : readings.list) {
    if (!tables.automata.has_bytes(it.state)) continue;
    reads = true;
    const Span span = tables.span_of(it.state);
    if (span.letters != 0) spans.push_back(span);
  }
  if (!reads) return;
  Walk walk(tables, stacks, readings, mask);
  if (spans.empty()) return walk.run(trie.all);
  for (const Trie::Kind& kind : trie.kinds)
    if (!add_kind(kind, spans, readings.list.size() == 1, mask)) walk.run(kind.tree);
  walk.run(trie.broken);
}

}  // namespace

MaskWords make_mask(const CompiledGrammar::Tables& tables, Stacks& stacks,
                    const Readings& readings) {
  const std::size_t vocabulary = tables.vocabulary->size();
  auto mask = std::make_shared<Words>((vocabulary + 63) / 64, 0);
  const std::size_t entries = stacks.size();
  stacks.begin_work();
  std::vector<TokenId> left;
  if (!add_tokens(tables.automata, readings, vocabulary, *mask, left)) {
    add_texts(tables, stacks, readings, *mask);
  } else if (!left.empty()) {
    Walk walk(tables, stacks, readings, *mask);
    for (const TokenId id : left)
      if (walk.takes(tables.vocabulary->trie().texts[static_cast<std::size_t>(id)])) set(*mask, id);
  }
  stacks.forget(entries);
  return mask;
}

}  // namespace strata::constrain
