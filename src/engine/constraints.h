// Grammars of requests: compiled beside the model's work, and kept for the next request with the
// same text. Internal to the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.h"
#include "base/serial_worker.h"
#include "constrain/matcher.h"
#include "engine/engine.h"
#include "tokenizer/tokenizer.h"

namespace strata {

using Grammars = Result<std::shared_ptr<const constrain::CompiledGrammar>>;

// A grammar on its way. Any thread.
class PendingGrammar {
 public:
  bool ready() const;
  Grammars result() const;  // once it is ready

 private:
  friend class Constraints;
  void set(Grammars grammar);

  mutable std::mutex mutex_;
  std::optional<Grammars> grammar_;
  std::vector<std::function<void()>> waiting_;
};

// Any thread. One grammar is compiled at a time; one that nobody waits for any more is left out.
class Constraints {
 public:
  static constexpr std::size_t kMaxKept = 64;
  static constexpr std::size_t kMaxKeptBytes = std::size_t{256} << 20;

  explicit Constraints(const Tokenizer& tokenizer);  // which must outlive this

  // `ready` is called by another thread when the result is there, unless it is there at once.
  std::shared_ptr<const PendingGrammar> compile(const std::string& text,
                                                std::function<void()> ready);
  EngineCounters::Grammars counters() const;
  void stop();  // no `ready` is called any more

 private:
  Grammars make(const std::string& text);
  Result<std::shared_ptr<const constrain::Vocabulary>> vocabulary();
  void run(const std::weak_ptr<PendingGrammar>& pending, const std::string& text);
  std::shared_ptr<PendingGrammar> find(const std::string& text);
  void keep(const std::string& text, const std::shared_ptr<PendingGrammar>& grammar);

  struct Entry {
    std::shared_ptr<PendingGrammar> grammar;
    std::list<std::string>::iterator age;
    std::size_t bytes = 0;
  };

  const Tokenizer& tokenizer_;
  std::shared_ptr<const constrain::Vocabulary> vocabulary_;  // the worker's, made when first needed
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Entry> kept_;                          // by text
  std::unordered_map<std::string, std::weak_ptr<PendingGrammar>> open_;  // that are being compiled
  std::list<std::string> ages_;  // the least recently used first
  std::size_t kept_bytes_ = 0;
  EngineCounters::Grammars counters_;
  SerialWorker worker_;  // last: nothing runs when the rest is gone
};

}  // namespace strata
