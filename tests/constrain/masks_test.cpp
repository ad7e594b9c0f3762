// Masks of grammars that read text, on a vocabulary of many kinds of pieces: a mask must have the
// tokens that can be accepted byte by byte, and no others.
#include <gtest/gtest.h>

#include <random>

#include "tests/constrain/pieces.h"
#include "tests/constrain/texts.h"

namespace strata::constrain {
namespace {

const std::string_view kGrammars[] = {
    R"(root ::= "\"" ([^"\\\x00-\x1f] | "\\" ["\\/bfnrt])* "\"")",
    R"(root ::= "\"" ([^"\\\x00-\x1f] | "\\" ["\\/bfnrt]){0,7} "\"" "x"?)",
    R"(root ::= [^"\\\x00-\x1f]{3,12})",
    R"(root ::= .{0,40})",
    R"(root ::= [a-z]{1,5} [A-Z]{0,9} [a-zA-Z0-9_-]*)",
    R"(root ::= [A-Z][a-z]* (" " [A-Z]?[a-z]+)* [.!?])",
    R"(root ::= %until "</parameter>" "</parameter>" "\n"*)",
    R"(root ::= %until "\n" | "{" [^}]* "}")",
    R"(root ::= [\x00-\u07ff]* [^a-m]{2})",
    R"(root ::= [^\x00-\x7f]+ | [a-z ]{2,} "-" root?)",
    R"(root ::= "[" (value ("," value)*)? "]"
value ::= root | text | [0-9]+
text ::= "\"" [^"\\\x00-\x1f]* "\"")",
    R"(root ::= a | b
a ::= [a-z ]* "." | "x" a
b ::= [a-z]{0,6} ("," | b ";"))",
    R"(root ::= [ \t\n]{0,20} "{" ws "\"" [a-z]+ "\"" ws ":" ws [0-9]{1,4} "}"
ws ::= (" " | "\n" [ \t]{0,8})?)",
    R"(root ::= !<[256]>* <[256]> [^"]* | "a" [a-z]*)",
    R"(root ::= (!<[256,65,300]> | [A-Z] | <[258]>)*)",
    R"(root ::= "\"" %regex ".*foo.*" "\"")",
    R"(root ::= %json {"type":"string","pattern":"ab"})",
    R"(root ::= ([a-z] [a-z ] | [A-Z] "x"){0,9} "end" [^<]*)",
    R"(root ::= "\xe4"? [^\u4e00-\u5fff]* "end")",
};

std::shared_ptr<const Vocabulary> vocabulary() {
  std::vector<std::string> texts = Pieces::make(3'000);
  for (std::size_t id = 256; id < 264; ++id) texts[id].clear();  // special
  return *Vocabulary::make(std::move(texts));
}

// The mask against every token, along a random text.
void check_along(Matcher& matcher, std::size_t vocabulary_size, int steps,
                 std::mt19937_64& engine) {
  for (int step = 0; step < steps; ++step) {
    const Mask mask = matcher.mask();
    Matcher probe = matcher;
    std::vector<TokenId> allowed;
    for (TokenId id = 0; id < static_cast<TokenId>(vocabulary_size); ++id) {
      const bool accepted = probe.accept(id);
      ASSERT_EQ(allows(mask, id), accepted) << "token " << id << " at step " << step;
      if (!accepted) continue;
      probe.rollback(1);
      if (id != kByteEnd + 1) allowed.push_back(id);
    }
    if (allowed.empty()) {
      ASSERT_TRUE(matcher.must_end());
      return;
    }
    ASSERT_TRUE(matcher.accept(allowed[engine() % allowed.size()]));
  }
}

TEST(Masks, AreWhatCanBeAccepted) {
  const auto tokens = vocabulary();
  std::mt19937_64 engine(7);
  for (const std::string_view grammar : kGrammars) {
    SCOPED_TRACE(grammar);
    const auto compiled = compile_gbnf(grammar, tokens);
    ASSERT_TRUE(compiled) << compiled.error().message;
    for (int walk = 0; walk < 4; ++walk) {
      Matcher matcher(*compiled, {kByteEnd + 1});
      ASSERT_NO_FATAL_FAILURE(check_along(matcher, tokens->size(), 25, engine));
    }
  }
}

// Characters that are counted in rows of rules: around the ends of rows and of the text.
TEST(Masks, AreWhatCanBeAcceptedOfCountedTexts) {
  const auto tokens = vocabulary();
  std::mt19937_64 engine(8);
  struct Place {
    std::string_view schema;
    std::size_t before;  // characters
  };
  for (const Place& place : {Place{R"({"type":"string","maxLength":20})", 3},
                             Place{R"({"type":"string","maxLength":600})", 250},
                             Place{R"({"type":"string","maxLength":600})", 585},
                             Place{R"({"type":"string","minLength":530,"maxLength":1100})", 520},
                             Place{R"({"type":"string","minLength":530,"maxLength":1100})", 1090},
                             Place{R"({"type":"string","minLength":3000})", 2990},
                             Place{R"({"type":"string","maxLength":5000})", 4980}}) {
    SCOPED_TRACE(fmt::format("{} after {}", place.schema, place.before));
    const auto compiled = compile_gbnf(fmt::format("root ::= %json {}", place.schema), tokens);
    ASSERT_TRUE(compiled) << compiled.error().message;
    Matcher matcher(*compiled, {kByteEnd + 1});
    ASSERT_TRUE(matcher.accept('"'));
    for (std::size_t i = 0; i < place.before; ++i) ASSERT_TRUE(matcher.accept('x'));
    ASSERT_NO_FATAL_FAILURE(check_along(matcher, tokens->size(), 12, engine));
  }
}

TEST(Masks, AreSharedByAnswersAndBounded) {
  const auto tokens = vocabulary();
  CompileLimits limits;
  limits.mask_cache_bytes = 4'096;
  const auto compiled = compile_gbnf(kGrammars[1], tokens, limits);
  ASSERT_TRUE(compiled);
  const std::size_t before = (*compiled)->bytes();
  Matcher matcher(*compiled, {kByteEnd});
  ASSERT_TRUE(matcher.accept('"'));
  const Mask first = matcher.mask();
  Matcher other(*compiled, {kByteEnd});
  ASSERT_TRUE(other.accept('"'));
  EXPECT_EQ(other.mask().data(), first.data());
  for (int k = 0; k < 7; ++k) {
    ASSERT_TRUE(matcher.accept('x'));
    matcher.mask();
    EXPECT_LE((*compiled)->bytes(), before + limits.mask_cache_bytes);
  }
}

}  // namespace
}  // namespace strata::constrain
