// Answers within a grammar: what is generated, with drafts and without, alone and in batches.
#include "engine/constraints.h"

#include <gmock/gmock.h>

#include "constrain/gbnf.h"
#include "tests/engine/tiny_model.h"

namespace strata {
namespace {

using test::Collector;
using testing::HasSubstr;
using testing::MatchesRegex;

constexpr TokenId kStop = 300;

class ConstraintsTest : public testing::Test {
 protected:
  void SetUp() override {
    model_ = test::tiny_draft_model();
    ASSERT_NE(model_, nullptr);
  }
  std::unique_ptr<Engine> open(std::optional<std::uint32_t> depth) {
    EngineOptions options;
    options.model_path = "model.gguf";
    options.drafts.depth = depth;
    options.cache.ram_bytes = 0;
    auto engine = Engine::open(model_->files, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }
  static Request request(std::string grammar, std::uint64_t seed) {
    Request r;
    r.prompt = {5, 6, 7, 8};
    r.max_tokens = 200;
    r.stop_ids = {kStop};
    r.sampling.temperature = 1.5f;
    r.sampling.seed = seed;
    r.grammar = std::move(grammar);
    return r;
  }
  static std::shared_ptr<Collector> start(Engine& engine, Request r) {
    auto collector = std::make_shared<Collector>();
    const auto id = engine.submit(std::move(r), collector);
    EXPECT_TRUE(id) << (id ? "" : id.error().message);
    return collector;
  }
  static std::string text(const Engine& engine, const Collector& collector) {
    return engine.tokenizer().decode(collector.tokens());
  }
  std::unique_ptr<test::Converted> model_;
};

TEST_F(ConstraintsTest, TheAnswerIsInTheGrammarWhateverTheDrafts) {
  const std::string grammar = "root ::= [a-c]{3} \"-\" [0-9]+ \".\"\n";
  const auto plain = open(0), guessing = open(4);
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const auto a = start(*plain, request(grammar, seed));
    const auto b = start(*guessing, request(grammar, seed));
    const Completion done = a->wait();
    b->wait();
    EXPECT_EQ(a->tokens(), b->tokens()) << seed;
    if (done.reason == FinishReason::stop) {
      EXPECT_THAT(text(*plain, *a), MatchesRegex("[a-c][a-c][a-c]-[0-9]+[.]")) << seed;
    } else {
      EXPECT_THAT(text(*plain, *a), MatchesRegex("[a-c][a-c][a-c]-[0-9]+")) << seed;
    }
  }
  EXPECT_EQ(plain->counters().grammars.compiled, 1u);
  EXPECT_EQ(plain->counters().grammars.reused, 11u);
}

TEST_F(ConstraintsTest, EachOfABatchKeepsItsOwnAndOthersAreLeftAlone) {
  const auto engine = open(2);
  Request free = request("", 3);
  const auto alone = start(*engine, free);
  alone->wait();
  std::vector<std::shared_ptr<Collector>> answers;
  for (std::uint64_t i = 0; i < 8; ++i) {
    const std::string digit(1, static_cast<char>('1' + i));
    answers.push_back(start(*engine, request("root ::= \"" + digit + "\"{5}", 7)));
  }
  const auto beside = start(*engine, free);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i]->wait().reason, FinishReason::stop);
    EXPECT_EQ(text(*engine, *answers[i]), std::string(5, static_cast<char>('1' + i)));
  }
  beside->wait();
  EXPECT_EQ(beside->tokens(), alone->tokens());
}

// Where biases forbid all that may follow, the grammar stands.
TEST_F(ConstraintsTest, StandsAgainstBans) {
  const auto engine = open(0);
  Request r = request("root ::= \"ab\"", 1);
  r.logit_bias = {{engine->tokenizer().encode("a").front(), kBan}};
  const auto answer = start(*engine, std::move(r));
  EXPECT_EQ(answer->wait().reason, FinishReason::stop);
  EXPECT_EQ(text(*engine, *answer), "ab");
}

TEST_F(ConstraintsTest, AGrammarThatCannotBeFailsItsRequestAlone) {
  const auto engine = open(0);
  for (const auto& [grammar, words] :
       {std::pair{"root ::= \"a", "line 1"}, std::pair{"root ::= a\na ::= \"x\" a", "a"},
        std::pair{"root ::= <nobody>", "<nobody>"}}) {
    const auto answer = start(*engine, request(grammar, 1));
    const Completion done = answer->wait();
    EXPECT_EQ(done.reason, FinishReason::error) << grammar;
    EXPECT_EQ(done.error.code, ErrorCode::invalid_argument) << grammar << done.error.message;
    EXPECT_THAT(done.error.message, HasSubstr(words));
    EXPECT_EQ(done.generated_tokens, 0u);
  }
  EXPECT_EQ(start(*engine, request("root ::= \"b\"", 1))->wait().reason, FinishReason::stop);
  Request large = request(std::string(constrain::kMaxGrammarBytes + 1, ' '), 1);
  EXPECT_EQ(engine->submit(std::move(large), std::make_shared<Collector>()).error().code,
            ErrorCode::exhausted);
}

TEST_F(ConstraintsTest, ACancelledRequestDoesNotWaitForItsGrammar) {
  const auto engine = open(0);
  auto collector = std::make_shared<Collector>();
  const auto id = engine->submit(request("root ::= %regex \"(a|b)*c(a|b){12}\"", 1), collector);
  ASSERT_TRUE(id);
  engine->cancel(*id);
  EXPECT_EQ(collector->wait().reason, FinishReason::cancelled);
}

}  // namespace
}  // namespace strata
