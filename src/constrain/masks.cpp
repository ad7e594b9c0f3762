#include "constrain/masks.h"

#include <algorithm>
#include <bit>
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

// Tokens that are read as such, where something can follow them: at the limit of depth a rule is
// not called. True if only those in `left` can still be missing.
bool add_tokens(const Automata& automata, Stacks& stacks, const Readings& readings,
                std::size_t vocabulary, Words& mask, std::vector<TokenId>& left) {
  bool all = false;
  Readings after;
  for (const Reading& it : readings.list) {
    const Automata::State* state = &automata.states[it.state];
    for (std::uint32_t i = state[0].tokens; i < state[1].tokens; ++i) {
      const Automata::TokenEdge& edge = automata.token_edges[i];
      if (!stacks.enter({edge.to, it.stack}, after) && !stacks.overflowed()) continue;
      const TokenSet& tokens = automata.token_sets[edge.set];
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
      const Step result = step(node.depth, node.byte);
      const std::size_t next = result == Step::goes_on ? i + 1 : node.end;
      if (result != Step::dead) {
        for (std::uint32_t k = node.first_token; k < tree.nodes[next].first_token; ++k)
          set(mask_, tree.tokens[k]);
      }
      i = next;
    }
  }

  bool may_take(std::string_view text) {
    std::size_t depth = 0;
    for (const char c : text) {
      const Step result = step(++depth, static_cast<std::uint8_t>(c));
      if (result != Step::goes_on) return result == Step::unknown;
    }
    return depth > 0;
  }

  bool exact() const { return exact_; }  // no step was unknown

 private:
  struct Frame {
    Reading single;
    bool is_single = false;
  };

  enum class Step : std::uint8_t { dead, goes_on, unknown };

  Step step(std::size_t depth, std::uint8_t byte) {
    const Frame& from = frames_[depth - 1];
    Readings& to = many_[depth];
    bool alive = false;
    if (from.is_single) {
      const std::uint32_t next = automata_.next(from.single.state, byte);
      if (next == Automata::kDead) return Step::dead;
      if (automata_.states[next].plain) {
        frames_[depth] = {{next, from.single.stack}, true};
        return Step::goes_on;
      }
      if (stacks_.work() > kMaxMaskWork) return unknown();
      alive = stacks_.enter({next, from.single.stack}, to);
    } else {
      if (look_up(many_[depth - 1], byte, to)) {
        if (to.list.empty()) return Step::dead;
        settle(depth);
        return Step::goes_on;
      }
      if (stacks_.work() > kMaxMaskWork) return unknown();
      alive = stacks_.step(many_[depth - 1], byte, to);
    }
    if (!alive) return stacks_.overflowed() ? unknown() : Step::dead;
    settle(depth);
    return Step::goes_on;
  }

  // A step of few readings to states that neither end nor call; false: it is another.
  [[gnu::noinline]] bool look_up(const Readings& from, std::uint8_t byte, Readings& to) const {
    constexpr std::size_t kFew = 4;
    if (from.list.size() > kFew) return false;
    to.clear();
    for (const Reading& it : from.list) {
      const std::uint32_t next = automata_.next(it.state, byte);
      if (next == Automata::kDead) continue;
      if (!automata_.states[next].plain) return false;
      to.list.push_back({next, it.stack});
    }
    std::sort(to.list.begin(), to.list.end());
    to.list.erase(std::unique(to.list.begin(), to.list.end()), to.list.end());
    return true;
  }

  Step unknown() {
    exact_ = false;
    return Step::unknown;
  }

  void settle(std::size_t depth) {
    Frame& frame = frames_[depth];
    frame.is_single = many_[depth].list.size() == 1;
    if (frame.is_single) frame.single = many_[depth].list.front();
  }

  const Automata& automata_;
  Stacks& stacks_;
  Words& mask_;
  bool exact_ = true;
  std::vector<Frame> frames_;   // by depth
  std::vector<Readings> many_;  // where the frame is not of a single one
};

// What the characters of some kinds can do from one of the readings.
struct Reach {
  LetterSet begins = 0;       // kinds of which a character may come next
  LetterSet letters = 0;      // all characters of these kinds,
  std::uint32_t certain = 0;  // as many as this, can follow
  bool exact = false;         // and not one more
  std::uint32_t covered = 0;  // tokens of up to so many are in the mask
};

class Reaches {
 public:
  Reaches(const CompiledGrammar::Tables& tables, Stacks& stacks)
      : tables_(tables), stacks_(stacks) {}

  std::vector<Reach> of(const Readings& readings, int rounds = kRounds) {
    std::vector<Reach> out;
    for (const Reading& it : readings.list)
      if (tables_.automata.has_bytes(it.state)) out.push_back(of(it, rounds));
    return out;
  }

 private:
  // A text that is counted in several rules goes on behind each; a token is not longer than a few.
  static constexpr int kRounds = 3;

  Reach of(const Reading& reading, int rounds) {
    const Span span = tables_.span_of(reading.state);
    Reach reach{span.begins, span.letters, span.certain, false, 0};
    if (span.letters == 0 || span.certain == Span::kAll) return reach;
    if (stacks_.work() > kMaxMaskWork) return reach;
    Readings after;
    if (span.ends && !behind(reading.stack, after)) return reach;
    reach.exact = span.stops && !span.calls && !takes(after, span.letters);
    // What the last state leads to.
    if (tables_.automata.states[span.last].plain) return reach;
    const bool alive = stacks_.enter({span.last, reading.stack}, after);
    if (!alive) {  // too much to say, or nothing: at the limit of depth a rule is not called
      reach.exact = false;
      if (!stacks_.overflowed() && reach.certain > 0) --reach.certain;
      return reach;
    }
    std::erase(after.list, Reading{span.last, reading.stack});
    if (!takes(after, span.letters)) return reach;
    if (rounds == 0) {
      reach.exact = false;
      return reach;
    }
    std::uint32_t more = 0;
    for (const Reach& it : of(after, rounds - 1)) {
      if ((it.begins & span.letters) == 0) continue;
      const bool covers = (span.letters & ~it.letters) == 0;
      reach.exact = reach.exact && covers && it.exact;
      if (covers) more = std::max(more, it.certain);
    }
    reach.certain = more == Span::kAll ? more : reach.certain + more;
    return reach;
  }

  // False: too many to say.
  bool behind(std::uint32_t stack, Readings& out) {
    out.clear();
    if (stack == 0) return true;
    Readings one;
    const std::vector<Reading> places(stacks_.below(stack).begin(), stacks_.below(stack).end());
    for (const Reading& place : places) {
      stacks_.enter(place, one);
      if (stacks_.overflowed()) return false;
      Stacks::merge(one, out);
    }
    return true;
  }

  bool takes(const Readings& readings, LetterSet letters) const {
    return std::any_of(readings.list.begin(), readings.list.end(), [&](const Reading& it) {
      return (tables_.span_of(it.state).begins & letters) != 0;
    });
  }

  const CompiledGrammar::Tables& tables_;
  Stacks& stacks_;
};

// Most of the tokens that are known without asking are many at once, up to a length; the lengths
// are few, so that they are kept.
void add_covers(const Trie& trie, std::vector<Reach>& reaches, Words& mask) {
  for (Reach& it : reaches) {
    if (it.letters == 0 || it.certain == 0) continue;
    const std::uint32_t length =
        it.certain >= trie.longest ? trie.longest : std::bit_floor(it.certain);
    const auto cover = trie.cover(it.letters, length);
    if (cover == nullptr) continue;
    for (std::size_t i = 0; i < mask.size(); ++i) mask[i] |= (*cover)[i];
    it.covered = length;
  }
}

// Adds the others; false for a kind that must be walked as well.
bool add_kind(const Trie::Kind& kind, const std::vector<Reach>& reaches, Words& mask) {
  std::uint32_t certain = 0, covered = 0;
  bool exact = true;
  for (const Reach& it : reaches) {
    if ((kind.letters & it.begins) == 0) continue;
    const bool covers = (kind.letters & ~it.letters) == 0;
    if (covers) certain = std::max(certain, it.certain);
    if (covers) covered = std::max(covered, it.covered);
    exact = exact && covers && it.exact;
  }
  const auto up_to = [&](std::uint32_t length) {
    return kind.up_to[std::min<std::size_t>(length, kind.up_to.size() - 1)];
  };
  const std::uint32_t count = up_to(certain);
  for (std::uint32_t k = up_to(covered); k < count; ++k) set(mask, kind.by_length[k]);
  return exact || count == kind.by_length.size();
}

// False: the mask is not exact.
bool add_texts(const CompiledGrammar::Tables& tables, Stacks& stacks, const Readings& readings,
               Words& mask) {
  const Trie& trie = tables.vocabulary->trie();
  std::vector<Reach> reaches = Reaches(tables, stacks).of(readings);
  if (reaches.empty()) return true;
  Walk walk(tables, stacks, readings, mask);
  if (std::all_of(reaches.begin(), reaches.end(), [](const Reach& it) { return !it.letters; })) {
    walk.run(trie.all);
    return walk.exact();
  }
  add_covers(trie, reaches, mask);
  for (const Trie::Kind& kind : trie.kinds)
    if (!add_kind(kind, reaches, mask)) walk.run(kind.tree);
  walk.run(trie.broken);
  return walk.exact();
}

}  // namespace

SharedMask make_mask(const CompiledGrammar::Tables& tables, Stacks& stacks,
                     const Readings& readings) {
  const std::size_t vocabulary = tables.vocabulary->size();
  auto mask = std::make_shared<TokenMask>();
  Words& words = mask->words;
  words.assign((vocabulary + 63) / 64, 0);
  const std::size_t entries = stacks.size();
  stacks.begin_work();
  std::vector<TokenId> left;
  if (!add_tokens(tables.automata, stacks, readings, vocabulary, words, left)) {
    mask->exact = add_texts(tables, stacks, readings, words);
  } else if (!left.empty()) {
    Walk walk(tables, stacks, readings, words);
    for (const TokenId id : left) {
      if (walk.may_take(tables.vocabulary->trie().texts[static_cast<std::size_t>(id)]))
        set(words, id);
    }
    mask->exact = walk.exact();
  }
  stacks.forget(entries);
  return mask;
}

}  // namespace strata::constrain
