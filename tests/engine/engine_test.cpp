#include "engine/engine.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <thread>

#include "engine/logits.h"
#include "tests/engine/tiny_model.h"

namespace strata {
namespace {

using test::Collector;
using testing::HasSubstr;

class EngineTest : public testing::Test {
 protected:
  void SetUp() override {
    model_ = test::tiny_model();
    ASSERT_NE(model_, nullptr);
  }

  std::unique_ptr<Engine> open(EngineOptions options = {}) {
    options.model_path = "model.gguf";
    auto engine = Engine::open(model_->files, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }

  // Runs a request alone; its tokens.
  static std::vector<TokenId> run(Engine& engine, Request request) {
    auto collector = std::make_shared<Collector>();
    const auto id = engine.submit(std::move(request), collector);
    EXPECT_TRUE(id) << id.error().message;
    if (!id) return {};
    collector->wait();
    return collector->tokens();
  }

  std::string refusal(Engine& engine, Request request) {
    auto collector = std::make_shared<Collector>();
    const auto id = engine.submit(std::move(request), collector);
    EXPECT_FALSE(id);
    EXPECT_EQ(collector->times_finished(), 0);
    return id ? "" : id.error().message;
  }

  std::unique_ptr<test::Converted> model_;
};

TEST_F(EngineTest, GreedyEqualsHf) {
  const test::Golden golden(test::golden_dir() + "/tiny-a/golden.safetensors");
  EngineOptions options;
  options.prompt_chunk = 32;
  const auto engine = open(options);
  for (int i = 0; golden.has(fmt::format("ids.{}", i)); ++i) {
    Request request;
    request.prompt = golden.ids(fmt::format("ids.{}", i));
    request.max_tokens = 24;
    EXPECT_EQ(run(*engine, request), golden.ids(fmt::format("greedy.{}", i)));
  }
  EXPECT_EQ(engine->counters().requests, 5u);
  EXPECT_EQ(engine->counters().generated_tokens, 5u * 24);
}

std::vector<Request> mixed_requests(std::size_t count) {
  std::mt19937 random(11);
  std::vector<Request> requests(count);
  for (Request& r : requests) {
    r.prompt.resize(1 + random() % 60);
    for (TokenId& id : r.prompt) id = static_cast<TokenId>(random() % 512);
    r.max_tokens = static_cast<std::uint32_t>(1 + random() % 30);
    r.stop_ids = {2};
    if (random() % 2 == 0) r.sampling = {0.9f, 40, 0.95f, 0.01f, random()};
  }
  return requests;
}

TEST_F(EngineTest, EveryAnswerEqualsItsSoloAnswer) {
  const std::vector<Request> requests = mixed_requests(24);
  std::vector<std::vector<TokenId>> solo;
  {
    EngineOptions options;
    options.threads = 1;
    options.parallel = 1;
    const auto engine = open(options);
    for (const Request& r : requests) solo.push_back(run(*engine, r));
  }
  EngineOptions options;
  options.threads = 2;
  options.parallel = 5;
  options.prompt_chunk = 7;
  const auto engine = open(options);
  std::vector<std::shared_ptr<Collector>> collectors;
  for (const Request& r : requests) {
    collectors.push_back(std::make_shared<Collector>());
    ASSERT_TRUE(engine->submit(r, collectors.back()));
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Completion done = collectors[i]->wait();
    EXPECT_EQ(collectors[i]->tokens(), solo[i]) << "request " << i;
    EXPECT_EQ(done.generated_tokens, solo[i].size());
    EXPECT_EQ(done.prompt_tokens, requests[i].prompt.size());
    EXPECT_EQ(done.reason,
              solo[i].size() < requests[i].max_tokens ? FinishReason::stop : FinishReason::length);
    EXPECT_EQ(collectors[i]->progress_seen().back(), requests[i].prompt.size());
  }
  EXPECT_EQ(engine->counters().running, 0u);
  EXPECT_EQ(engine->counters().waiting, 0u);
}

TEST_F(EngineTest, StopIdsEndTheAnswerUnreported) {
  const auto engine = open();
  Request request;
  request.prompt = {5, 6, 7};
  request.max_tokens = 20;
  const std::vector<TokenId> all = run(*engine, request);
  ASSERT_EQ(all.size(), 20u);
  request.stop_ids = {all[9]};
  const auto first = std::find(all.begin(), all.end(), all[9]);
  EXPECT_EQ(run(*engine, request), std::vector<TokenId>(all.begin(), first));
}

TEST_F(EngineTest, RefusalsNameTheNumbers) {
  EngineOptions options;
  options.context = 64;
  const auto engine = open(options);
  EXPECT_EQ(engine->facts().context, 64u);
  Request request;
  EXPECT_THAT(refusal(*engine, request), HasSubstr("the prompt is empty"));
  request.prompt = {512};
  EXPECT_THAT(refusal(*engine, request),
              HasSubstr("token id 512 is outside the vocabulary of 512"));
  request.prompt = {-1};
  EXPECT_THAT(refusal(*engine, request), HasSubstr("token id -1"));
  request.prompt.assign(64, 5);
  EXPECT_THAT(refusal(*engine, request),
              HasSubstr("the prompt has 64 tokens but the context holds 64"));
  request.prompt.assign(60, 5);
  request.max_tokens = 5;
  EXPECT_THAT(refusal(*engine, request), HasSubstr("ask for at most 4"));
  request.max_tokens = 0;
  EXPECT_EQ(run(*engine, request).size(), 4u) << "the room that is left";
  for (const Sampling& bad : {Sampling{-1}, Sampling{NAN}, Sampling{1, -1}, Sampling{1, 0, 0},
                              Sampling{1, 0, 1.5f}, Sampling{1, 0, 1, 2}}) {
    request.sampling = bad;
    EXPECT_THAT(refusal(*engine, request), HasSubstr("allowed is"));
  }
}

TEST_F(EngineTest, CancelWorksInEveryPhaseAndDisturbsNobody) {
  EngineOptions options;
  options.parallel = 2;
  options.prompt_chunk = 4;
  const auto engine = open(options);
  Request quiet;
  quiet.prompt = {9, 8, 7};
  quiet.max_tokens = 60;
  const std::vector<TokenId> expected = run(*engine, quiet);
  auto beside = std::make_shared<Collector>();
  ASSERT_TRUE(engine->submit(quiet, beside));
  Request request;
  request.prompt.assign(200, 3);
  std::vector<std::shared_ptr<Collector>> cancelled;
  for (int i = 0; i < 12; ++i) {
    cancelled.push_back(std::make_shared<Collector>());
    request.prompt.resize(i % 3 == 0 ? 2 : 200);
    request.prompt.resize(200, 3);
    if (i % 3 == 0) request.prompt.resize(2);
    const auto id = engine->submit(request, cancelled.back());
    ASSERT_TRUE(id);
    if (i % 3 == 0) cancelled.back()->wait_for_tokens(3);
    engine->cancel(*id);
    engine->cancel(*id);
    EXPECT_EQ(cancelled.back()->wait().reason, FinishReason::cancelled);
  }
  beside->wait();
  EXPECT_EQ(beside->tokens(), expected);
  for (const auto& c : cancelled) EXPECT_EQ(c->times_finished(), 1);
  engine->cancel(123456);
  EXPECT_EQ(engine->counters().running + engine->counters().waiting, 0u);
}

TEST_F(EngineTest, FullQueueIsRefusedAndTheEndCancelsTheRest) {
  std::vector<std::shared_ptr<Collector>> collectors;
  {
    EngineOptions options;
    options.parallel = 1;
    options.queue_limit = 3;
    const auto engine = open(options);
    Request request;
    request.prompt.assign(300, 3);
    int refused = 0;
    for (int i = 0; i < 12; ++i) {
      auto collector = std::make_shared<Collector>();
      const auto id = engine->submit(request, collector);
      if (id) {
        collectors.push_back(collector);
      } else {
        ++refused;
        EXPECT_EQ(id.error().code, ErrorCode::exhausted);
        EXPECT_THAT(id.error().message, HasSubstr("requests wait already"));
      }
    }
    EXPECT_GE(refused, 7);
  }
  for (const auto& c : collectors) {
    EXPECT_EQ(c->times_finished(), 1);
    EXPECT_EQ(c->wait().reason, FinishReason::cancelled);
  }
}

TEST_F(EngineTest, OpeningSaysWhatIsWrong) {
  const auto message = [&](const std::string& path, EngineOptions options = {}) {
    options.model_path = path;
    const auto engine = Engine::open(model_->files, options);
    EXPECT_FALSE(engine);
    return engine ? std::string() : engine.error().message;
  };
  EXPECT_THAT(message("nowhere.gguf"), HasSubstr("nowhere.gguf"));
  Bytes whole = *model_->files.get("model.gguf");
  for (const std::size_t size : {std::size_t{3}, whole.size() / 3, whole.size() - 1}) {
    model_->files.put("cut.gguf",
                      Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
    EXPECT_THAT(message("cut.gguf"), HasSubstr("cut.gguf"));
  }
  const auto plain = test::convert({test::golden_dir() + "/tiny-a"});
  model_->files.put("plain.gguf", *plain->files.get("model.gguf"));
  EXPECT_THAT(message("plain.gguf"), HasSubstr("cannot be served"));
  EngineOptions options;
  options.prompt_chunk = 0;
  EXPECT_THAT(message("model.gguf", options), HasSubstr("allowed is 1 to 2048"));
  options = {};
  options.context = 4097;
  EXPECT_EQ(
      message("model.gguf", options),
      "model 'model.gguf': a context of 4097 tokens is more than the model's 4096 positions; its "
      "file declares no scaling of positions (rope.scaling.type linear or yarn)");
}

TEST_F(EngineTest, LogitsOfEveryPosition) {
  const test::Golden golden(test::golden_dir() + "/tiny-a/golden.safetensors");
  const auto ids = golden.ids("ids.3");
  for (const bool reference : {false, true}) {
    LogitsOptions options;
    options.model_path = "model.gguf";
    options.chunk = 13;
    options.reference = reference;
    std::vector<float> all;
    const auto status =
        compute_logits(model_->files, options, ids, [&](std::span<const float> rows) -> Status {
          all.insert(all.end(), rows.begin(), rows.end());
          return {};
        });
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_LT(test::largest_difference(all, golden.floats("logits.3")), 2e-4);
  }
}

// What the engine says of each token is the log-softmax of the logits that the subcommand prints.
TEST_F(EngineTest, ChancesAreThoseOfTheLogits) {
  EngineOptions exact;
  exact.kv_type = KvType::f32;  // as the logits beside them
  const auto engine = open(exact);
  Request request;
  for (TokenId id = 0; id < 40; ++id) request.prompt.push_back((id * 37 + 5) % 512);
  request.max_tokens = 12;
  request.logprobs = 3;
  request.prompt_logprobs = true;
  // Neither changes what is reported.
  request.sampling.repetition_penalty = 1.5f;
  request.logit_bias = {{7, -100}};
  auto collector = std::make_shared<Collector>();
  ASSERT_TRUE(engine->submit(request, collector));
  collector->wait();
  std::vector<TokenId> ids = request.prompt;
  for (const TokenId id : collector->tokens()) ids.push_back(id);
  const auto chances = collector->all_chances();
  ASSERT_EQ(chances.size(), ids.size() - 1);

  std::vector<float> logits;
  LogitsOptions options;
  options.model_path = "model.gguf";
  ASSERT_TRUE(
      compute_logits(model_->files, options, ids, [&](std::span<const float> rows) -> Status {
        logits.insert(logits.end(), rows.begin(), rows.end());
        return {};
      }));
  const std::size_t width = logits.size() / ids.size();
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
    const auto row = std::span<const float>(logits).subspan(i * width, width);
    double total = 0;
    for (const float logit : row) total += std::exp(double{logit});
    const auto logprob = [&](TokenId id) {
      return double{row[static_cast<std::size_t>(id)]} - std::log(total);
    };
    EXPECT_EQ(chances[i].chosen.id, ids[i + 1]);
    EXPECT_NEAR(chances[i].chosen.logprob, logprob(ids[i + 1]), 1e-4);
    ASSERT_EQ(chances[i].top.size(), 3u);
    const auto best = std::max_element(row.begin(), row.end()) - row.begin();
    EXPECT_EQ(chances[i].top[0].id, best);
    double sum = 0;
    for (const auto& chance : chances[i].top) {
      EXPECT_NEAR(chance.logprob, logprob(chance.id), 1e-4);
      sum += std::exp(double{chance.logprob});
    }
    EXPECT_LE(sum, 1 + 1e-6);
  }
}

TEST_F(EngineTest, PenaltiesAndBiasesSteerTheAnswer) {
  const auto engine = open();
  Request request;
  request.prompt = {5, 6, 7};
  request.max_tokens = 8;
  const std::vector<TokenId> plain = run(*engine, request);
  request.logit_bias = {{plain[0], -100}};
  const std::vector<TokenId> banned = run(*engine, request);
  EXPECT_EQ(std::count(banned.begin(), banned.end(), plain[0]), 0);
  request.logit_bias = {{9, 100}};
  EXPECT_EQ(run(*engine, request), std::vector<TokenId>(8, 9));
  request.sampling.presence_penalty = 2;  // as nothing beside +100
  EXPECT_EQ(run(*engine, request), std::vector<TokenId>(8, 9));
  request.logit_bias.clear();
  request.sampling.repetition_penalty = 100;
  request.sampling.penalty_last_n = -1;
  std::vector<TokenId> fresh = run(*engine, request);
  std::sort(fresh.begin(), fresh.end());
  EXPECT_EQ(std::unique(fresh.begin(), fresh.end()), fresh.end()) << "a token came twice";
}

TEST_F(EngineTest, RefusesImpossibleScores) {
  const auto engine = open();
  Request request;
  request.prompt = {1};
  request.logprobs = 21;
  EXPECT_THAT(refusal(*engine, request), HasSubstr("at most 20"));
  request.logprobs.reset();
  request.logit_bias = {{-1, 1}};
  EXPECT_THAT(refusal(*engine, request), HasSubstr("token id -1, outside"));
  request.logit_bias = {{512, 1}};
  EXPECT_THAT(refusal(*engine, request), HasSubstr("token id 512, outside"));
  request.logit_bias = {{3, 1}, {3, 2}};
  EXPECT_THAT(refusal(*engine, request), HasSubstr("token 3 twice"));
  request.logit_bias = {{3, std::nanf("")}};
  EXPECT_THAT(refusal(*engine, request), HasSubstr("token 3 is no number"));
  request.logit_bias.clear();
  for (TokenId id = 0; id < 512; ++id) request.logit_bias.push_back({id, -100});
  EXPECT_THAT(refusal(*engine, request), HasSubstr("bans every token"));
  request.logit_bias.pop_back();
  request.max_tokens = 3;
  EXPECT_EQ(run(*engine, request), std::vector<TokenId>(3, 511));
}

}  // namespace
}  // namespace strata
