// What the soak consists of: texts to ask, the answers they must get, and engines that come and go.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/engine/conversation_fixture.h"

namespace strata::soak {

inline std::string model_path() {
  return STRATA_SOURCE_DIR "/models/demo/strata-demo-46m.gguf";
}

// Tokens that a request may generate.
inline constexpr std::uint32_t kMostTokens = 24;

// Ways to sample. With the prompt they say what the answer is.
inline constexpr std::uint32_t kManners = 6;
inline Request request_in(std::uint32_t manner, std::vector<TokenId> prompt) {
  Request request;
  request.prompt = std::move(prompt);
  Sampling& s = request.sampling;
  if (manner > 1) s = {0.5f + 0.2f * float(manner), 40, 0.95f, 0.01f, 1000 + manner};
  if (manner == 3) s.presence_penalty = 0.5f;
  if (manner == 4) s.repetition_penalty = 1.2f;
  if (manner == 5) request.logit_bias = {{100, 2.0f}, {9, -100}};
  return request;
}

struct Texts {
  std::vector<std::vector<TokenId>> systems;    // what conversations begin with
  std::vector<std::vector<TokenId>> questions;  // with the opening of the answer
  std::vector<TokenId> end;                     // of an answer
};

inline Texts texts_of(const Tokenizer& tokenizer) {
  Texts texts;
  const auto encode = [&](std::string_view text) { return tokenizer.encode(text); };
  texts.systems.emplace_back();  // most have none
  for (const int repeats : {1, 8, 30}) {
    std::string text = "<|im_start|>system\nYou are a helpful assistant.";
    for (int i = 1; i < repeats; ++i) text += fmt::format(" Rule {}: be brief and polite.", i);
    texts.systems.push_back(encode(text + "<|im_end|>\n"));
  }
  std::vector<std::string> questions = {
      "Hello",
      "What is the capital of France?",
      "Tell me a story about a cat.",
      "Say: one two three one two three one two three one two three",
      "What is 3 plus 4?",
      "Who are you?",
      "What is a tree?"};
  std::string listing = "Repeat this:";
  for (int i = 0; i < 24; ++i) listing += fmt::format("\nfor i in range({}): print(i)", i % 5);
  questions.push_back(listing);
  for (const std::string& question : questions) {
    texts.questions.push_back(encode("<|im_start|>user\n" + question +
                                     "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  }
  texts.end = encode("<|im_end|>\n");
  return texts;
}

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;  // of them, if they were asked for
  FinishReason reason = FinishReason::stop;
  Completion completion;
};

// An engine with a number of open requests that its counters must agree with.
class EngineSlot {
 public:
  struct Ticket {
    RequestId id = 0;
    std::uint64_t generation = 0;
  };

  Status open(const EngineOptions& options) {
    STRATA_ASSIGN(auto engine, Engine::open(real_files(), options));
    const std::unique_lock lock(mutex_);
    engine_ = std::move(engine);
    started_ = returned_ = finished_ = 0;
    ++generation_;
    return {};
  }
  // Cancels what runs.
  void close() {
    const std::unique_lock lock(mutex_);
    engine_.reset();
    ++generation_;
    EXPECT_EQ(started_, finished_) << "requests that nobody heard the end of";
  }

  std::optional<Ticket> submit(const Request& request, std::shared_ptr<Listener> listener) {
    const std::shared_lock lock(mutex_);
    if (!engine_) return {};
    ++started_;
    const auto id = engine_->submit(request, std::move(listener));
    EXPECT_TRUE(id) << id.error().message;
    if (!id) {
      --started_;
      return {};
    }
    ++returned_;
    return Ticket{*id, generation_};
  }
  void cancel(const Ticket& ticket) {
    const std::shared_lock lock(mutex_);
    if (ticket.generation == generation_) engine_->cancel(ticket.id);
  }
  bool closed_since(const Ticket& ticket) const {
    const std::shared_lock lock(mutex_);
    return ticket.generation != generation_;
  }
  void note_finished() { ++finished_; }

  // What is open lies between what was open before and after; a request that has been taken out may
  // not have been told yet.
  void check_counters() const {
    const std::shared_lock lock(mutex_);
    if (!engine_) return;
    const std::int64_t returned = returned_, finished = finished_;
    const EngineCounters counters = engine_->counters();
    const std::int64_t count = std::int64_t{counters.running} + counters.waiting;
    const std::int64_t finished_after = finished_, started = started_;
    EXPECT_LE(returned - finished_after - 1, count);
    EXPECT_GE(started - finished, count);
  }
  void expect_idle() const {
    const std::shared_lock lock(mutex_);
    const EngineCounters counters = engine_->counters();
    EXPECT_EQ(counters.running, 0u);
    EXPECT_EQ(counters.waiting, 0u);
    EXPECT_EQ(counters.requests, static_cast<std::uint64_t>(started_));
    EXPECT_EQ(started_, finished_);
    EXPECT_EQ(counters.reserved_bytes, 0u);
  }
  EngineCounters counters() const {
    const std::shared_lock lock(mutex_);
    return engine_->counters();
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unique_ptr<Engine> engine_;
  std::uint64_t generation_ = 0;
  std::atomic<std::int64_t> started_{0}, returned_{0}, finished_{0};
};

// Hears what a request gives.
class Heard final : public Listener {
 public:
  explicit Heard(EngineSlot* engine = nullptr) : engine_(engine) {}
  void chances(const TokenChances& chances) override {
    const std::lock_guard lock(mutex_);
    answer_.logprobs.push_back(chances.chosen.logprob);
  }
  void token(TokenId id) override {
    const std::lock_guard lock(mutex_);
    answer_.tokens.push_back(id);
    changed_.notify_all();
  }
  void finished(const Completion& completion) override {
    if (engine_) engine_->note_finished();
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(over_) << "an end that came twice";
    over_ = true;
    answer_.completion = completion;
    answer_.reason = completion.reason;
    EXPECT_EQ(completion.generated_tokens, answer_.tokens.size());
    changed_.notify_all();
  }

  Answer wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return over_; });
    return answer_;
  }
  void wait_for(std::size_t tokens, std::chrono::milliseconds most) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, most, [&] { return over_ || answer_.tokens.size() >= tokens; });
  }

 private:
  EngineSlot* engine_;  // that counts its requests; may be null
  std::mutex mutex_;
  std::condition_variable changed_;
  Answer answer_;
  bool over_ = false;
};

// The answers that requests get alone: one at a time, on one thread, without drafts and caches.
class Solo {
 public:
  Solo() {
    EngineOptions options;
    options.model_path = model_path();
    options.context = 2048;
    options.parallel = options.threads = 1;
    options.drafts.depth = 0;
    options.cache.ram_bytes = 0;
    auto engine = Engine::open(real_files(), options);
    if (engine) engine_ = std::move(*engine);
  }
  bool opened() const { return engine_ != nullptr; }
  const Tokenizer& tokenizer() const { return engine_->tokenizer(); }
  const std::vector<TokenId>& stop_ids() const { return engine_->facts().stop_ids; }

  Answer answer(const std::vector<TokenId>& prompt, std::uint32_t manner) {
    const std::lock_guard lock(mutex_);
    ++asked_;
    const Hash128 hash = hash128(std::as_bytes(std::span(prompt)), manner);
    const auto key = std::pair(hash.high, hash.low);
    if (const auto found = answers_.find(key); found != answers_.end()) {
      ++known_;
      return found->second;
    }
    Request request = request_in(manner, prompt);
    request.max_tokens = kMostTokens;
    request.stop_ids = stop_ids();
    request.logprobs = 1;
    const auto heard = std::make_shared<Heard>();
    const auto id = engine_->submit(request, heard);
    EXPECT_TRUE(id) << id.error().message;
    if (!id) return {};
    const Answer answer = heard->wait();
    EXPECT_EQ(answer.completion.cached_tokens, 0u);
    EXPECT_EQ(answer.completion.drafted, 0u);
    if (answers_.size() >= kMostKnown) answers_.clear();
    return answers_[key] = answer;
  }
  std::uint64_t asked() const { return asked_; }
  std::uint64_t known() const { return known_; }

 private:
  static constexpr std::size_t kMostKnown = 3000;

  std::mutex mutex_;
  std::unique_ptr<Engine> engine_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Answer> answers_;
  std::uint64_t asked_ = 0, known_ = 0;
};

}  // namespace strata::soak
