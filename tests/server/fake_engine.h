// An engine that plays scripts: each request is answered by the next script (the last one stays).
// Everything a caller may rely on holds: listener calls from one thread per request and in order,
// finished() once and last, cancel() takes effect within one token.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"

namespace strata::server::testing {

struct Script {
  std::string text = {};  // encoded with specials; one token event a token
  FinishReason reason = FinishReason::stop;
  Error error = {};                                   // when reason is error
  std::chrono::milliseconds wait{0};                  // before the first token, as if queued
  std::chrono::milliseconds pace{0};                  // between tokens
  bool endless = false;                               // repeats `text` until cancelled
  bool bytes = false;                                 // one token a byte
  bool refused = false;                               // after `wait`: nothing is heard but the end
  std::uint32_t cached = 0;                           // tokens of the prompt
  std::vector<std::uint32_t> ahead = {};              // told while it waits, `wait` after each
  std::uint32_t drafted = 0, accepted = 0, disk = 0;  // as the completion says
};

class FakeEngine final : public Engine {
 public:
  FakeEngine(Tokenizer tokenizer, std::string chat_template) : tokenizer_(std::move(tokenizer)) {
    metadata_.set("tokenizer.chat_template", MetaValue::string(std::move(chat_template)));
    facts_.model_name = "fake-model";
    facts_.architecture = "qwen4exp";
    facts_.context = 2048;
    facts_.parallel = 2;
    facts_.vocabulary = static_cast<std::uint32_t>(tokenizer_.size());
    facts_.stop_ids = {tokenizer_.special("<|im_end|>").value_or(0)};
  }
  ~FakeEngine() override {
    {
      const std::lock_guard lock(mutex_);
      for (auto& [id, cancelled] : running_) *cancelled = true;
    }
    for (auto& thread : threads_) thread.join();
  }

  Result<RequestId> submit(Request request, std::shared_ptr<Listener> listener) override {
    const std::lock_guard lock(mutex_);
    if (queue_full) return fail(ErrorCode::exhausted, "256 requests are waiting, the limit");
    const RequestId id = next_++;
    if (requests_.size() >= accept_at_most)
      return fail(ErrorCode::exhausted, "256 requests are waiting, the limit");
    const Script script = scripts_[std::min(requests_.size(), scripts_.size() - 1)];
    requests_.push_back(request);
    auto cancelled = std::make_shared<std::atomic<bool>>(false);
    running_[id] = cancelled;
    threads_.emplace_back([this, id, script, request = std::move(request), cancelled,
                           listener = std::move(listener)]() mutable {
      play(script, request, *cancelled, *listener);
      listener.reset();
      const std::lock_guard inner(mutex_);
      running_.erase(id);
    });
    return id;
  }
  void cancel(RequestId id) override {
    const std::lock_guard lock(mutex_);
    const auto found = running_.find(id);
    if (found == running_.end()) return;
    *found->second = true;
    ++cancels_;
  }
  void conversation(ConversationTask task, ConversationDone done) override {
    tasks_.push_back(task);
    done(task_result_);
  }
  const EngineFacts& facts() const override { return facts_; }
  EngineCounters counters() const override { return counters_; }
  const Metadata& metadata() const override { return metadata_; }
  const Tokenizer& tokenizer() const override { return tokenizer_; }

  void script(std::vector<Script> scripts) { scripts_ = std::move(scripts); }
  Request request(std::size_t index) {
    const std::lock_guard lock(mutex_);
    return requests_.at(index);
  }
  std::size_t requests() {
    const std::lock_guard lock(mutex_);
    return requests_.size();
  }
  void forget() {  // scripts begin anew
    const std::lock_guard lock(mutex_);
    requests_.clear();
  }
  std::string prompt(std::size_t index) { return tokenizer_.decode(request(index).prompt); }
  std::size_t running() {
    const std::lock_guard lock(mutex_);
    return running_.size();
  }
  std::size_t cancels() {
    const std::lock_guard lock(mutex_);
    return cancels_;
  }

  std::vector<TokenId> tokens_of(const Script& script) const {
    if (!script.bytes) return tokenizer_.encode(script.text, Specials::all);
    std::vector<TokenId> ids;
    for (const TokenId whole : tokenizer_.encode(script.text, Specials::all)) {
      if (tokenizer_.kind(whole) != TokenKind::normal) {
        ids.push_back(whole);
        continue;
      }
      for (const char byte : tokenizer_.bytes(whole)) {
        const auto single = tokenizer_.encode(std::string_view(&byte, 1), Specials::none);
        ids.insert(ids.end(), single.begin(), single.end());
      }
    }
    return ids;
  }
  std::vector<ConversationTask> tasks_;
  Result<ConversationResult> task_result_ = ConversationResult{};
  EngineFacts facts_;
  EngineCounters counters_;  // before requests
  Metadata metadata_;
  std::atomic<bool> queue_full{false};
  std::atomic<std::size_t> accept_at_most{SIZE_MAX};  // requests in all

 private:
  static bool wait(std::chrono::milliseconds time, const std::atomic<bool>& cancelled) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (!cancelled && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return !cancelled;
  }
  void play(const Script& script, const Request& request, const std::atomic<bool>& cancelled,
            Listener& listener) const {
    Completion done;
    done.reason = script.reason;
    done.error = script.error;
    done.prompt_tokens = static_cast<std::uint32_t>(request.prompt.size());
    done.cached_tokens = script.cached;
    done.cached_disk_tokens = script.disk;
    done.rounds = 7;
    done.drafted = script.drafted;
    done.accepted = script.accepted;
    done.prompt_seconds = 0.5;
    done.decode_seconds = 0.25;
    if (script.refused) {
      wait(script.wait, cancelled);
      return listener.finished(done);
    }
    for (const std::uint32_t ahead : script.ahead) {
      listener.queued(ahead);
      wait(script.wait, cancelled);
    }
    if (script.ahead.empty()) wait(script.wait, cancelled);
    listener.started(script.cached);
    // Told as -1 for a prompt's token and -0.5 for a generated one; the runner-up is token 0.
    const auto chances = [&](TokenId id, float logprob) {
      TokenChances told{{id, logprob}, {}};
      if (request.logprobs.value_or(0) > 0) told.top.push_back({id, logprob});
      if (request.logprobs.value_or(0) > 1) told.top.push_back({0, logprob - 1});
      return told;
    };
    if (request.prompt_logprobs) {
      for (std::size_t i = 1; i < request.prompt.size(); ++i)
        listener.prompt_chances(chances(request.prompt[i], -1));
    }
    listener.progress(done.prompt_tokens, done.prompt_tokens);
    const std::vector<TokenId> ids = tokens_of(script);
    do {
      for (const TokenId id : ids) {
        if (!wait(script.pace, cancelled)) break;
        if (request.logprobs) listener.chances(chances(id, -0.5f));
        listener.token(id);
        if (++done.generated_tokens == request.max_tokens) {
          done.reason = FinishReason::length;
          return listener.finished(done);
        }
      }
    } while (script.endless && !cancelled);
    if (cancelled) done.reason = FinishReason::cancelled;
    listener.finished(done);
  }

  Tokenizer tokenizer_;
  std::mutex mutex_;
  std::vector<Script> scripts_ = {Script{}};
  std::vector<Request> requests_;
  std::map<RequestId, std::shared_ptr<std::atomic<bool>>> running_;
  std::vector<std::thread> threads_;
  RequestId next_ = 1;
  std::size_t cancels_ = 0;
};

}  // namespace strata::server::testing
