// Answers within a grammar: what is generated, with drafts and without, alone and in batches.
#include "engine/constraints.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "constrain/gbnf.h"
#include "tests/engine/tiny_model.h"

namespace strata {
namespace {

using test::Collector;
using testing::ElementsAre;
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
            ErrorCode::invalid_argument);
}

// The first thing a listener hears of a request whose grammar cannot be is its end; of others,
// nothing before the grammar is there.
class Order final : public Listener {
 public:
  void queued(std::uint32_t) override { add("queued"); }
  void started(std::uint32_t) override { add("started"); }
  void token(TokenId) override {}
  void finished(const Completion& completion) override {
    add(std::string(to_string(completion.reason)));
    end_.set_value();
  }
  std::vector<std::string> wait() {
    end_.get_future().wait();
    return said_;
  }

 private:
  void add(std::string word) { said_.push_back(std::move(word)); }
  std::vector<std::string> said_;
  std::promise<void> end_;
};

TEST_F(ConstraintsTest, NothingIsHeardBeforeTheGrammarIsThere) {
  EngineOptions options;
  options.model_path = "model.gguf";
  options.parallel = 1;
  auto engine = Engine::open(model_->files, options);
  ASSERT_TRUE(engine) << engine.error().message;
  Request endless = request("", 1);
  endless.stop_ids.clear();
  endless.max_tokens = 0;
  const auto before = std::make_shared<Collector>();
  const auto running = (*engine)->submit(endless, before);
  ASSERT_TRUE(running);
  before->wait_for_tokens(1);
  // The only place is taken: the wrong one does not wait for it.
  const auto wrong = std::make_shared<Order>();
  ASSERT_TRUE((*engine)->submit(request("root ::= nowhere", 1), wrong));
  EXPECT_THAT(wrong->wait(), ElementsAre("error"));
  const auto right = std::make_shared<Order>();
  ASSERT_TRUE((*engine)->submit(request("root ::= \"b\"", 1), right));
  (*engine)->cancel(*running);
  const auto heard = right->wait();
  EXPECT_EQ(heard.back(), "stop");
  EXPECT_EQ(heard[heard.size() - 2], "started");
}

// Grammars that take all the time there is, by one client, and a quick one behind them.
TEST_F(ConstraintsTest, SlowGrammarsLetQuickOnesBy) {
  const auto engine = open(0);
  Constraints constraints(engine->tokenizer(), {0.05, 0.4, 0.8});
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t done = 0;
  const auto ready = [&] {
    const std::lock_guard lock(mutex);
    ++done;
    changed.notify_all();
  };
  std::vector<std::shared_ptr<const PendingGrammar>> slow;
  for (int i = 0; i < 3; ++i) {
    std::string schema = R"(root ::= %json {"type":"object","properties":{)";
    for (int k = 0; k < 4'000; ++k) {
      schema += fmt::format(R"({}"p{}":{{"type":"string","pattern":"^{}{}(a|b)*a(a|b){{11}}$"}})",
                            k == 0 ? "" : ",", k, i, k);
    }
    slow.push_back(*constraints.compile(schema + "}}", 1, ready));
  }
  const auto quick = *constraints.compile("root ::= \"quick\"", 1, ready);
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return quick->ready(); });
  EXPECT_TRUE(quick->result());
  EXPECT_FALSE(slow.back()->ready()) << "the slow ones went first";
  changed.wait(lock, [&] { return done == 4; });
  lock.unlock();
  for (const auto& it : slow) {
    ASSERT_TRUE(it->failed());
    EXPECT_EQ(it->result().error().code, ErrorCode::exhausted);
    EXPECT_THAT(it->result().error().message, HasSubstr("takes more than 0.8 s to compile"));
  }
  EXPECT_EQ(constraints.counters().compiled, 1u);
  EXPECT_EQ(constraints.counters().refused, 3u);
  constraints.stop();
}

TEST_F(ConstraintsTest, NoMoreThanTheLimitWaitToBeCompiled) {
  const auto engine = open(0);
  Constraints constraints(engine->tokenizer(), {0.001, 0.001, 0.001});
  std::promise<void> go_on;
  const std::shared_future<void> gate = go_on.get_future().share();
  // The compiling thread waits here.
  std::vector<std::shared_ptr<const PendingGrammar>> open;
  open.push_back(*constraints.compile("root ::= \"first\"", 0, [gate] { gate.wait(); }));
  while (!open.front()->ready()) std::this_thread::yield();
  for (std::size_t i = 0; i < Constraints::kMaxOpen; ++i) {
    auto one = constraints.compile(fmt::format("root ::= \"{}\"", i), i, [] {});
    ASSERT_TRUE(one) << one.error().message;
    open.push_back(std::move(*one));
  }
  const auto refused = constraints.compile("root ::= \"more\"", 99, [] {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::exhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("64 other constraints wait to be compiled"));
  // One that is on its way already is no other; and what nobody waits for makes room.
  EXPECT_TRUE(constraints.compile("root ::= \"3\"", 99, [] {}));
  open.pop_back();
  EXPECT_TRUE(constraints.compile("root ::= \"more\"", 99, [] {}));
  go_on.set_value();
  constraints.stop();
}

// One client sends as many as it may: the next one's is compiled after one of them, and there are
// places for others.
TEST_F(ConstraintsTest, ClientsTakeTurns) {
  const auto engine = open(0);
  Constraints constraints(engine->tokenizer());
  std::promise<void> go_on;
  const std::shared_future<void> gate = go_on.get_future().share();
  const auto first = *constraints.compile("root ::= \"first\"", 0, [gate] { gate.wait(); });
  while (!first->ready()) std::this_thread::yield();  // the compiling thread waits from here on
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> order;
  std::vector<std::shared_ptr<const PendingGrammar>> open;
  const auto ask = [&](std::uint64_t client, int number) {
    const std::string name = fmt::format("{}.{}", client, number);
    auto one = constraints.compile(fmt::format("root ::= \"{}\"", name), client, [&, name] {
      const std::lock_guard lock(mutex);
      order.push_back(name);
      changed.notify_all();
    });
    if (one) open.push_back(*one);
    return one ? std::string() : one.error().message;
  };
  const auto taken_by = [&](std::uint64_t client) {
    int taken = 0;
    while (ask(client, taken).empty()) ++taken;
    return taken;
  };
  EXPECT_EQ(taken_by(1), 32);
  EXPECT_THAT(ask(1, 32), HasSubstr("32 constraints of this client wait to be compiled"));
  EXPECT_EQ(ask(1, 31), "") << "it is on its way already and takes no place";
  EXPECT_EQ(ask(2, 0), "");
  EXPECT_EQ(taken_by(3), 16);
  go_on.set_value();
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return order.size() == 50; });  // 1.31 is heard twice
  order.resize(6);
  EXPECT_THAT(order, ElementsAre("1.0", "2.0", "3.0", "1.1", "3.1", "1.2"));
  lock.unlock();
  constraints.stop();
}

TEST(ClientQueue, TakesOneOfEachInTurns) {
  ClientQueue<std::string> queue;
  for (const char* item : {"a1", "a2", "a3", "b1", "c1", "c2"})
    queue.push(static_cast<std::uint64_t>(item[0]), item);
  std::vector<std::string> order;
  for (int i = 0; i < 2; ++i) order.push_back(queue.pop());
  queue.push('b', "b2");
  queue.push('d', "d1");
  while (!queue.empty()) order.push_back(queue.pop());
  EXPECT_THAT(order, ElementsAre("a1", "b1", "c1", "a2", "b2", "d1", "c2", "a3"));
}

// A token that would give the text more readings than the limit is neither left out nor taken: the
// request ends with a sentence.
TEST_F(ConstraintsTest, TooAmbiguousAnswersFailByName) {
  const auto engine = open(0);
  std::string grammar = "root ::= s0\n";
  for (int i = 0; i < 40; ++i)
    grammar += fmt::format("s{} ::= s{} s{} | \"a\"\n", i, (i + 1) % 40, (i + 7) % 40);
  Request r = request(grammar, 1);
  r.stop_ids.clear();
  r.max_tokens = 2'000;
  const auto answer = start(*engine, std::move(r));
  const Completion done = answer->wait();
  EXPECT_EQ(done.reason, FinishReason::error);
  EXPECT_EQ(done.error.code, ErrorCode::invalid_argument);
  EXPECT_THAT(done.error.message, HasSubstr("more than 1024 ways at once"));
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
