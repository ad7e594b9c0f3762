// Random grammars against the slow matcher of reference.h, on small vocabularies whose tokens begin
// and end in the middle of everything.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "constrain/matcher.h"
#include "tests/constrain/reference.h"

namespace strata::constrain {
namespace {

using reference::Productions;
using reference::Symbol;

constexpr TokenId kEnd = 0;
constexpr TokenId kSpecial = 1;  // and 2, 3

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  int below(int n) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(n)); }

 private:
  std::mt19937_64 engine_;
};

// One grammar, as the library and as the reference know it.
struct Twin {
  Grammar grammar;
  Productions productions;
  std::string text;  // for messages

  struct Part {
    Grammar::Expr expr;
    int name = 0;
  };
  struct RulePart {
    Grammar::Rule rule;
    int name = 0;
  };

  Part bytes(const std::set<int>& values) {
    std::bitset<256> set;
    text += '[';
    for (const int value : values) {
      set.set(static_cast<std::size_t>(value));
      text += static_cast<char>(value);
    }
    text += ']';
    const int name = productions.add();
    productions.of[static_cast<std::size_t>(name)] = {{Symbol{Symbol::Kind::bytes, values, 0}}};
    return {grammar.regular(Regular::bytes(set)), name};
  }
  Part literal(const std::string& letters) {
    text.append("\"").append(letters).append("\"");
    const int name = productions.add();
    std::vector<Symbol> body;
    for (const char c : letters)
      body.push_back({Symbol::Kind::bytes, {static_cast<unsigned char>(c)}, 0});
    productions.of[static_cast<std::size_t>(name)] = {body};
    return {grammar.literal(letters), name};
  }
  Part tokens(const std::set<int>& ids, bool except, int vocabulary) {
    text += except ? "!<" : "<";
    for (const int id : ids) text += fmt::format("{},", id);
    text += '>';
    std::set<int> all;
    for (int id = 0; id < vocabulary; ++id)
      if (ids.contains(id) != except && id != kEnd) all.insert(id);
    const int name = productions.add();
    productions.of[static_cast<std::size_t>(name)] = {{Symbol{Symbol::Kind::tokens, all, 0}}};
    const std::vector<TokenId> list(ids.begin(), ids.end());
    return {except ? grammar.token_except(list) : grammar.token(list), name};
  }
  static Symbol call(int name) { return {Symbol::Kind::name, {}, name}; }

  Part repeat(const Part& part, int least, std::optional<int> most) {
    const int name = productions.add();
    auto& bodies = productions.of[static_cast<std::size_t>(name)];
    const auto times = [&](int n) {
      return std::vector<Symbol>(static_cast<std::size_t>(n), call(part.name));
    };
    if (most) {
      for (int n = least; n <= *most; ++n) bodies.push_back(times(n));
    } else {
      bodies.push_back(times(least));
      bodies.push_back({call(name), call(part.name)});
    }
    return {grammar.repeat(part.expr, static_cast<std::uint32_t>(least),
                           most ? std::optional(static_cast<std::uint32_t>(*most)) : std::nullopt),
            name};
  }
};

class Maker {
 public:
  Maker(Random& random, int vocabulary) : random_(random), vocabulary_(vocabulary) {}

  // True if the reference says that every rule that is used can end.
  bool make(Twin& twin) {
    const int start = twin.productions.add();
    const int count = 1 + random_.below(4);
    for (int i = 0; i < count; ++i)
      rules_.push_back({twin.grammar.declare(fmt::format("r{}", i)), twin.productions.add()});
    for (int i = 0; i < count; ++i) {
      twin.text += fmt::format("\n  r{} ::= ", i);
      const Twin::Part body = part(twin, 3);
      twin.grammar.define(rules_[static_cast<std::size_t>(i)].rule, body.expr);
      twin.productions.of[static_cast<std::size_t>(rules_[static_cast<std::size_t>(i)].name)] = {
          {Twin::call(body.name)}};
    }
    twin.grammar.set_root(twin.grammar.call(rules_[0].rule));
    twin.productions.of[static_cast<std::size_t>(start)] = {{Twin::call(rules_[0].name)}};
    return twin.productions.trim()[0];
  }

 private:
  Twin::Part part(Twin& twin, int depth) {
    const int kind = random_.below(depth == 0 ? 4 : 12);
    switch (kind) {
      case 0:
      case 1: {
        std::string letters;
        for (int n = random_.below(4); n > 0; --n)
          letters += static_cast<char>('a' + random_.below(3));
        return twin.literal(letters);
      }
      case 2: {
        std::set<int> values;
        for (int n = 1 + random_.below(3); n > 0; --n) values.insert('a' + random_.below(4));
        return twin.bytes(values);
      }
      case 3:
      case 4:
      case 5: {
        if (random_.below(6) == 0) {
          std::set<int> ids;
          for (int n = 1 + random_.below(2); n > 0; --n) ids.insert(1 + random_.below(8));
          return twin.tokens(ids, random_.below(3) == 0, vocabulary_);
        }
        const int r = random_.below(static_cast<int>(rules_.size()));
        const Twin::RulePart& rule = rules_[static_cast<std::size_t>(r)];
        twin.text += fmt::format("r{}", r);
        return {twin.grammar.call(rule.rule), rule.name};
      }
      case 6:
      case 7:
      case 8:
        return several(twin, depth, true);
      case 9:
      case 10:
        return several(twin, depth, false);
      default: {
        twin.text += "(";
        const Twin::Part inner = part(twin, depth - 1);
        const int least = random_.below(3);
        const auto most =
            random_.below(2) == 0 ? std::nullopt : std::optional(least + random_.below(3));
        twin.text += fmt::format("){{{},{}}}", least, most ? fmt::to_string(*most) : "");
        return twin.repeat(inner, least, most);
      }
    }
  }

  Twin::Part several(Twin& twin, int depth, bool sequence) {
    const int name = twin.productions.add();
    std::vector<Grammar::Expr> parts;
    std::vector<Symbol> names;
    twin.text += "(";
    for (int n = 1 + random_.below(3); n > 0; --n) {
      const Twin::Part it = part(twin, depth - 1);
      parts.push_back(it.expr);
      names.push_back(Twin::call(it.name));
      twin.text += n > 1 ? (sequence ? " " : " | ") : ")";
    }
    auto& bodies = twin.productions.of[static_cast<std::size_t>(name)];
    if (sequence)
      bodies.push_back(names);
    else
      for (const Symbol& s : names) bodies.push_back({s});
    return {sequence ? twin.grammar.sequence(parts) : twin.grammar.choice(parts), name};
  }

  Random& random_;
  int vocabulary_;
  std::vector<Twin::RulePart> rules_;
};

std::vector<std::string> make_vocabulary(Random& random) {
  std::vector<std::string> texts(4);  // the end and three special tokens
  for (const char c : {'a', 'b', 'c', 'd'}) texts.emplace_back(1, c);
  for (int n = random.below(24); n > 0; --n) {
    std::string letters;
    for (int k = 2 + random.below(4); k > 0; --k)
      letters += static_cast<char>('a' + random.below(random.below(4) + 1));
    texts.push_back(letters);
  }
  return texts;
}

// The mask must be the reference's at every place of a walk; on the way copies, rollbacks and
// forbidden tokens must change nothing.
void walk(Random& random, const Twin& twin, const std::vector<std::string>& texts, Matcher& matcher,
          std::uint64_t& tokens) {
  reference::Earley slow(twin.productions);
  std::vector<std::vector<std::uint64_t>> masks;
  for (int step = 0; step < 12; ++step) {
    const Mask mask = matcher.mask();
    masks.emplace_back(mask.begin(), mask.end());
    std::vector<TokenId> allowed;
    for (TokenId id = 0; id < static_cast<TokenId>(texts.size()); ++id) {
      reference::Earley after = slow;
      const bool expected =
          id == kEnd ? slow.complete() : after.accept(id, texts[static_cast<std::size_t>(id)]);
      ASSERT_EQ(allows(mask, id), expected) << "token " << id << " at step " << step;
      if (expected && id != kEnd) allowed.push_back(id);
      Matcher copy = matcher;
      ASSERT_EQ(copy.accept(id), expected);
      ASSERT_EQ(copy.accepted(), matcher.accepted() + (expected ? 1 : 0));
      if (!expected || id == kEnd) continue;
      ASSERT_EQ(copy.can_end(), after.complete());
      ASSERT_EQ(copy.must_end(), after.complete() && !after.continues());
    }
    ASSERT_EQ(matcher.can_end(), slow.complete());
    ASSERT_FALSE(matcher.stuck());
    if (allowed.empty()) break;
    const TokenId chosen =
        allowed[static_cast<std::size_t>(random.below(static_cast<int>(allowed.size())))];
    ASSERT_TRUE(matcher.accept(chosen));
    ++tokens;
    ASSERT_TRUE(slow.accept(chosen, texts[static_cast<std::size_t>(chosen)]));
  }
  while (matcher.accepted() > 0) {
    const std::size_t back =
        1 + static_cast<std::size_t>(random.below(static_cast<int>(matcher.accepted())));
    matcher.rollback(back);
    const Mask mask = matcher.mask();
    if (matcher.accepted() < masks.size()) {
      ASSERT_TRUE(std::equal(mask.begin(), mask.end(), masks[matcher.accepted()].begin()));
    }
  }
}

void run(std::uint64_t first, std::uint64_t count) {
  std::uint64_t compiled_ones = 0, tokens = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    Random random(seed);
    const std::vector<std::string> texts = make_vocabulary(random);
    Twin twin;
    const bool finite = Maker(random, static_cast<int>(texts.size())).make(twin);
    SCOPED_TRACE(fmt::format("seed {}{}", seed, twin.text));
    const auto vocabulary = Vocabulary::make(texts);
    ASSERT_TRUE(vocabulary);
    const auto compiled = CompiledGrammar::compile(twin.grammar, *vocabulary);
    if (!compiled) {
      // Only what can never end, in itself or in a rule that it uses.
      ASSERT_EQ(compiled.error().code, ErrorCode::invalid_argument) << compiled.error().message;
      continue;
    }
    ASSERT_TRUE(finite);
    ++compiled_ones;
    Matcher matcher(*compiled, {kEnd});
    for (int n = 0; n < 3; ++n) {
      walk(random, twin, texts, matcher, tokens);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
  // So that the test cannot become empty.
  EXPECT_GT(compiled_ones, count / 2);
  EXPECT_GT(tokens, count * 4);
}

// STRATA_GRAMMAR_SEEDS: how many, where somebody has the time.
TEST(RandomGrammars, MasksAreTheReferences) {
  const char* seeds = std::getenv("STRATA_GRAMMAR_SEEDS");
  run(1, seeds == nullptr ? 1'500 : std::strtoull(seeds, nullptr, 10));
}

}  // namespace
}  // namespace strata::constrain
