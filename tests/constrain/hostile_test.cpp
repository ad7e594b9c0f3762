// Grammars that are meant to hurt: each is refused in a sentence or runs within the limits.
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "constrain/time_limit.h"
#include "tests/constrain/pieces.h"
#include "tests/constrain/texts.h"

namespace strata::constrain {
namespace {

std::string times(std::string_view text, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += text;
  return out;
}

struct Refused {
  std::string grammar;
  ErrorCode code;
  std::string_view says;  // in the message
};

TEST(Hostile, GrammarsThatAreRefused) {
  std::string wide = "root ::= r0";
  for (int i = 1; i < 2'000; ++i) wide += fmt::format(" | r{}", i);
  for (int i = 0; i < 2'000; ++i)
    wide += fmt::format("\nr{} ::= \"a\" r{}? \"b\"", i, (i + 1) % 2'000);
  const Refused list[] = {
      {wide, ErrorCode::exhausted,
       "the constraint has more than the limit of 1024 readings at its beginning"},
      {"root ::= " + times("(", 50'000) + "\"a\"" + times(")", 50'000), ErrorCode::invalid_argument,
       "line 1, column 210: more than 200 groups inside each other"},
      {"root ::= \"a\"{1000000}", ErrorCode::exhausted, "the rule 'root' needs more than"},
      {"root ::= (\"a\"{1000}){1000}", ErrorCode::exhausted, "the rule 'root' needs more than"},
      {"root ::= (((\"a\"{0,4000000000}){0,4000000000}){0,4000000000}){0,4000000000}",
       ErrorCode::exhausted, "the limit of 200000 states"},
      {"root ::= [ab]* \"a\" [ab]{30}", ErrorCode::exhausted, "limit of 200000 states"},
      {"root ::= a\na ::= b | \"x\" a\nb ::= a", ErrorCode::invalid_argument,
       "the rule 'b' can never end"},
      {"root ::= \"x\" nowhere", ErrorCode::invalid_argument, "'nowhere' is used but not defined"},
      {std::string(kMaxGrammarBytes + 1, ' '), ErrorCode::exhausted, "at most 1048576"},
      {"root ::= %regex \"" + times("(", 5'000) + "\"", ErrorCode::exhausted, "%regex"},
      {"root ::= %json " + times("[", 100'000), ErrorCode::invalid_argument,
       "the JSON behind it is nested deeper than 256 levels"},
  };
  const auto vocabulary = byte_vocabulary();
  for (const Refused& it : list) {
    const auto compiled = compile_gbnf(it.grammar, vocabulary);
    ASSERT_FALSE(compiled) << it.grammar.substr(0, 80);
    EXPECT_NE(compiled.error().message.find(it.says), std::string::npos)
        << compiled.error().message;
    EXPECT_EQ(compiled.error().code, it.code) << it.grammar.substr(0, 80);
  }
}

TEST(Hostile, CompilingEndsWithinItsTime) {
  const auto vocabulary = byte_vocabulary();
  CompileLimits limits;
  limits.seconds = 0;
  limits.states = 100'000'000;
  const auto compiled = compile_gbnf("root ::= [ab]* \"a\" [ab]{16}", vocabulary, limits);
  ASSERT_FALSE(compiled);
  EXPECT_EQ(compiled.error().code, ErrorCode::exhausted);
  EXPECT_EQ(compiled.error().message,
            "the constraint takes more than 0 s to compile; make it smaller");
}

struct Bounded {
  std::string grammar;
  std::string_view text;  // what is written over and over
  std::size_t count;
};

// Ambiguity, recursion at both ends and in the middle, rules that match nothing in circles.
TEST(Hostile, GrammarsThatRunWithinTheLimits) {
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 24; ++i) chain += fmt::format("r{} ::= r{} r{}\n", i, i + 1, i + 1);
  std::string wide = "root ::= (r0", empty = "root ::= (";
  for (int i = 1; i < 100; ++i) wide += fmt::format(" | r{}", i);
  wide += ")*\n";
  for (int i = 0; i < 100; ++i) wide += fmt::format("r{} ::= \"a\" r{}? \"b\"\n", i, (i + 1) % 100);
  empty += times("\"\" | ", 1'000) + "\"a\"*)*";
  const Bounded list[] = {
      {"root ::= s\ns ::= s s | s s s | \"a\"", "a", 100},
      {"root ::= s\ns ::= s s | \"(\" s \")\" | \"a\" | \"\"", "(a)", 100},
      {"root ::= s\ns ::= \"a\" s \"a\" | \"a\" s | \"a\"", "a", 100},
      {"root ::= (((\"a\"*)*)*)*", "a", 300},
      {"root ::= (\"a\"? \"a\"? \"a\"? \"a\"? \"a\"? \"a\"? \"a\"?)*", "a", 300},
      {"root ::= a\na ::= b \"x\" | \"x\"\nb ::= c | a\nc ::= b | a \"x\" | d\nd ::= c? \"x\"", "x",
       300},
      {"root ::= \"(\" root \")\" | \"x\"", "(", 250},
      {"root ::= l\nl ::= \"a\" l | \"\"", "a", 3'000},
      {"root ::= r\nr ::= r \"a\" | \"\"", "a", 3'000},
      {chain + "r24 ::= \"ab\"{9}", "ab", 500},
      {empty, "a", 300},
      {wide, "a", 100},
      {"root ::= x x x x x x x x\nx ::= \"a\"* x? \"a\"*", "a", 100},
  };
  const auto vocabulary = byte_vocabulary();
  for (const Bounded& it : list) {
    SCOPED_TRACE(it.grammar.substr(0, 100));
    CompileLimits limits;
    limits.parallel = 256;
    const auto compiled = compile_gbnf(it.grammar, vocabulary, limits);
    ASSERT_TRUE(compiled) << compiled.error().message;
    Matcher matcher(*compiled, {kByteEnd});
    for (std::size_t i = 0; i < it.count && !matcher.stuck(); ++i) {
      for (const char c : it.text) {
        const bool allowed = allows(matcher.mask(), static_cast<unsigned char>(c));
        ASSERT_EQ(matcher.accept(static_cast<unsigned char>(c)), allowed);
        ASSERT_TRUE(allowed) << "after " << matcher.accepted() << " bytes";
      }
    }
  }
}

// A token with which the text has too many readings is not left out: it is allowed by the mask,
// which says that it is not exact, and asking for it says why it cannot be taken.
TEST(Hostile, TooManyReadingsAreSaidAndNothingIsLeftOut) {
  CompileLimits limits;
  limits.parallel = 64;
  const auto compiled =
      compile_gbnf("root ::= s \"!\"\ns ::= s s | \"a\"", byte_vocabulary(), limits);
  ASSERT_TRUE(compiled);
  Matcher matcher(*compiled, {kByteEnd});
  int taken = 0;
  while (matcher.mask_is_exact()) {
    ASSERT_TRUE(allows(matcher.mask(), 'a'));
    ASSERT_EQ(matcher.verdict('a'), Matcher::Verdict::allowed);
    ASSERT_TRUE(matcher.accept('a'));
    ASSERT_LT(++taken, 200);
  }
  EXPECT_GT(taken, 30);
  EXPECT_TRUE(allows(matcher.mask(), 'a'));
  EXPECT_EQ(matcher.verdict('a'), Matcher::Verdict::unknown);
  EXPECT_FALSE(matcher.accept('a'));
  EXPECT_EQ(matcher.accepted(), static_cast<std::size_t>(taken));
  EXPECT_TRUE(allows(matcher.mask(), '!'));
  EXPECT_EQ(matcher.verdict('!'), Matcher::Verdict::allowed);
  EXPECT_FALSE(allows(matcher.mask(), 'b'));
  EXPECT_EQ(matcher.verdict('b'), Matcher::Verdict::forbidden);
  EXPECT_FALSE(allows(matcher.mask(), kByteEnd));
  EXPECT_FALSE(matcher.stuck());
}

// Masks that take too many readings hold every token that can be taken, and others; what they hold
// does not depend on what the matcher has seen before.
TEST(Hostile, MasksThatTakeTooLongLeaveNothingOut) {
  std::vector<std::string> texts = Pieces::make(6'000);
  const auto tokens = *Vocabulary::make(texts);
  const auto compiled = compile_gbnf("root ::= s \"!\"\ns ::= s s | [ -~]", tokens);
  ASSERT_TRUE(compiled);
  Matcher matcher(*compiled, {kByteEnd});
  for (int i = 0; i < 600; ++i) ASSERT_TRUE(matcher.accept('a' + i % 20));
  ASSERT_FALSE(matcher.mask_is_exact());
  const std::vector<std::uint64_t> words(matcher.mask().begin(), matcher.mask().end());
  std::size_t forbidden = 0;
  for (TokenId id = 0; id < static_cast<TokenId>(texts.size()); ++id) {
    const bool can = matcher.verdict(id) == Matcher::Verdict::allowed;
    if (can) {
      ASSERT_TRUE(allows(words, id)) << id;
    } else {
      forbidden += allows(words, id) ? 1 : 0;
    }
  }
  EXPECT_GT(forbidden, 0U) << "the mask was exact after all";
  // The same text, read by a matcher that has seen others, its masks not shared.
  const auto again = compile_gbnf("root ::= s \"!\"\ns ::= s s | [ -~]", tokens);
  Matcher other(*again, {kByteEnd});
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(other.accept('Z'));
  other.mask();
  other.rollback(50);
  for (int i = 0; i < 600; ++i) ASSERT_TRUE(other.accept('a' + i % 20));
  EXPECT_TRUE(std::equal(words.begin(), words.end(), other.mask().begin()));
}

// Schemas whose parts are each within their limits, but not all together.
TEST(Hostile, ATimeLimitHoldsForAllParts) {
  std::string schema = R"({"type":"object","properties":{)";
  for (int i = 0; i < 2'000; ++i) {
    schema += fmt::format(R"({}"p{}":{{"type":"string","pattern":"^{}(a|b)*a(a|b){{11}}$"}})",
                          i == 0 ? "" : ",", i, i);
  }
  schema += "}}";
  {
    const TimeLimit outer(3600);
    const TimeLimit time(0.05);
    const auto grammar = parse_gbnf("root ::= %json " + schema, special_name);
    ASSERT_FALSE(grammar);
    EXPECT_EQ(grammar.error().code, ErrorCode::exhausted);
    EXPECT_NE(grammar.error().message.find("takes more than 0.05 s to compile"), std::string::npos)
        << grammar.error().message;
    EXPECT_TRUE(time.passed());
    EXPECT_FALSE(outer.passed());
  }
  EXPECT_FALSE(TimeLimit::over());
  {
    const TimeLimit outer(0);
    {
      const TimeLimit inner(3600);
      ASSERT_FALSE(parse_gbnf("root ::= %json " + schema, special_name));
      EXPECT_TRUE(inner.passed());
    }
    EXPECT_TRUE(outer.passed());
  }
}

TEST(Hostile, DepthIsBoundedWithoutDeadEnds) {
  CompileLimits limits;
  limits.depth = 20;
  const auto compiled = compile_gbnf(
      "root ::= a\na ::= \"[\" b \"]\" | \"x\"\nb ::= \"q\" c\nc ::= \"{\" d \"}\"\nd ::= \"p\" a "
      "a | a",
      byte_vocabulary(), limits);
  ASSERT_TRUE(compiled) << compiled.error().message;
  std::mt19937_64 engine(3);
  std::size_t deepest = 0;
  for (int walk = 0; walk < 200; ++walk) {
    Matcher matcher(*compiled, {kByteEnd});
    std::size_t depth = 0;
    while (!matcher.must_end()) {
      const Mask mask = matcher.mask();
      std::vector<TokenId> allowed;
      for (TokenId id = 0; id < 256; ++id)
        if (allows(mask, id)) allowed.push_back(id);
      ASSERT_FALSE(allowed.empty()) << "a dead end";
      ASSERT_FALSE(matcher.stuck());
      // Opens whatever it can.
      const TokenId chosen = allows(mask, '[') ? '[' : allowed[engine() % allowed.size()];
      ASSERT_TRUE(matcher.accept(chosen));
      depth += chosen == '[' ? 1 : 0;
      deepest = std::max(deepest, depth);
      if (matcher.accepted() > 2'000) break;
    }
  }
  EXPECT_GT(deepest, 5U);
}

// Tokens after which only a rule could come that is not called any more: as such, and as texts of
// some characters.
TEST(Hostile, TokensThatLeadNowhereAtTheLimitOfDepthAreNotAllowed) {
  CompileLimits limits;
  limits.depth = 20;
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  texts.insert(texts.end(), {"", "ab", "aba", "abab", "\":", "x\xc3\xa4x", "the"});
  const auto size = static_cast<TokenId>(texts.size());
  const std::shared_ptr<const Vocabulary> vocabulary = *Vocabulary::make(std::move(texts));
  for (const char* first : {"!<[256,97]>", ".", "[a-z]", ". . .", "([a-z] .)"}) {
    const std::string grammar =
        fmt::format("root ::= {} root \"+\" n | n\nn ::= \"a\" n | \"0\"", first);
    const auto compiled = compile_gbnf(grammar, vocabulary, limits);
    ASSERT_TRUE(compiled) << compiled.error().message;
    Matcher matcher(*compiled, {256});
    std::size_t deepest = 0;
    for (bool more = true; more; deepest += more ? 1 : 0) {
      const Mask mask = matcher.mask();
      for (TokenId id = 0; id < size; ++id)
        ASSERT_EQ(allows(mask, id), matcher.verdict(id) == Matcher::Verdict::allowed)
            << id << " after " << deepest << " of " << grammar;
      more = matcher.accept('x');
    }
    EXPECT_GT(deepest, 10U);
  }
}

// An ambiguous grammar whose readings are always new: memory stays bounded, the last tokens can
// still be taken back.
TEST(Hostile, LongAnswersForgetTheirBeginnings) {
  const auto compiled = compile_gbnf("root ::= s\ns ::= s s | \"a\"", byte_vocabulary());
  ASSERT_TRUE(compiled);
  Matcher matcher(*compiled, {kByteEnd});
  for (int i = 0; i < 600; ++i) ASSERT_TRUE(matcher.accept('a'));
  const std::vector<std::uint64_t> before(matcher.mask().begin(), matcher.mask().end());
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(matcher.accept('a'));
  matcher.rollback(20);
  EXPECT_EQ(matcher.accepted(), 600U);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), matcher.mask().begin()));
  Matcher other(*compiled, {kByteEnd});
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(other.accept('a'));
  matcher.rollback(100);
  EXPECT_TRUE(std::equal(other.mask().begin(), other.mask().end(), matcher.mask().begin()));
  matcher.rollback(1'000'000);
  EXPECT_GT(matcher.accepted(), 0U);
  EXPECT_LE(matcher.accepted(), 364U);
}

TEST(Hostile, AVocabularyThatCannotWriteIt) {
  std::vector<std::string> texts = {"", "a", "bb"};
  const auto compiled = compile_gbnf("root ::= \"ab\"", *Vocabulary::make(std::move(texts)));
  ASSERT_TRUE(compiled);
  Matcher matcher(*compiled, {0});
  EXPECT_TRUE(allows(matcher.mask(), 1));
  ASSERT_TRUE(matcher.accept(1));
  EXPECT_TRUE(matcher.stuck());
  EXPECT_FALSE(matcher.can_end());
  EXPECT_TRUE(allows(matcher.mask(), 0)) << "the end is all that is left";
  EXPECT_FALSE(matcher.accept(2));
  EXPECT_TRUE(matcher.accept(0));
}

}  // namespace
}  // namespace strata::constrain
