// Which tokens may come next: a grammar compiled for a vocabulary, and the state of one answer
// within it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "constrain/grammar.h"
#include "tokenizer/token.h"

namespace strata::constrain {

// The texts of a vocabulary as a trie, with what can be computed once for all grammars. Immutable;
// any thread. Special tokens (every added token, control or not) and unused ids have no text here:
// only Grammar::token names them.
class Vocabulary {
 public:
  // `texts[id]`: the token's bytes, empty for a special or unused one.
  static Result<std::shared_ptr<const Vocabulary>> make(std::vector<std::string> texts);
  std::size_t size() const;  // ids are 0 .. size()-1

  struct Trie;
  const Trie& trie() const { return *trie_; }
  explicit Vocabulary(std::unique_ptr<const Trie> trie);
  ~Vocabulary();

 private:
  std::unique_ptr<const Trie> trie_;
};

struct CompileLimits {
  std::uint32_t states = 200'000;  // of all automata together
  std::uint32_t depth = 256;       // of open rules in one answer
  std::uint32_t parallel = 1'024;  // readings of one text that are alive at a time
  double seconds = 2;              // to compile, beside what a TimeLimit says
  std::size_t mask_cache_bytes = std::size_t{64} << 20;
};

// Immutable but for caches of masks, which are behind a lock: any thread.
class CompiledGrammar {
 public:
  // `unsupported`, `exhausted` or `invalid_argument` in a sentence that names the rule or the
  // limit.
  static Result<std::shared_ptr<const CompiledGrammar>> compile(
      const Grammar& grammar, std::shared_ptr<const Vocabulary> vocabulary,
      const CompileLimits& limits = {});
  std::size_t bytes() const;  // memory it holds, caches included

  struct Tables;
  const Tables& tables() const { return *tables_; }
  explicit CompiledGrammar(std::unique_ptr<Tables> tables);
  ~CompiledGrammar();

 private:
  std::unique_ptr<Tables> tables_;
};

// A bit for each token id, words of 64, the lowest id in the lowest bit.
using Mask = std::span<const std::uint64_t>;
inline bool allows(Mask mask, TokenId id) {
  return (mask[static_cast<std::size_t>(id) / 64] >> (static_cast<std::size_t>(id) % 64)) & 1;
}

// The state of one answer. Belongs to one thread; copies are cheap and independent.
class Matcher {
 public:
  // `ends`: the tokens that end an answer. They are allowed where the text may end, and only there,
  // and accepting one changes nothing but accepted().
  Matcher(std::shared_ptr<const CompiledGrammar> grammar, std::vector<TokenId> ends);
  Matcher(const Matcher&);
  Matcher& operator=(const Matcher&);
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;
  ~Matcher();

  // Tokens that can come next; never all zero while every accepted token was allowed. If the
  // vocabulary or the limit of depth leaves none, the ends are allowed and stuck() says so.
  // Valid until the next call that is not const.
  Mask mask();
  // False where finding out about every token takes too long (masks.h): then mask() also has the
  // tokens that nothing is known about, and verdict() says of each. An exact mask has no token that
  // the grammar forbids; of one it has, verdict() may still be `unknown`.
  bool mask_is_exact();
  enum class Verdict : std::uint8_t {
    allowed,
    forbidden,
    unknown,  // with it the text has more readings than the limit
  };
  Verdict verdict(TokenId id);
  // False, and nothing changes, for a token whose verdict is another than allowed.
  bool accept(TokenId id);
  // Takes back the last accepted ones; of more than 256, as many as it still knows: an ambiguous
  // grammar may make it forget the others.
  void rollback(std::size_t tokens);
  std::size_t accepted() const;
  bool can_end() const;   // the text so far is whole
  bool must_end() const;  // and nothing can follow
  bool stuck() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::constrain
