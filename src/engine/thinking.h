// Watches an answer's thinking and says when the engine has to end it (ThinkingLimit in engine.h).
// Internal to the engine; belongs to its thread.
#pragma once

#include <cstdint>
#include <span>

#include "engine/engine.h"

namespace strata {

class ThinkingWatch {
 public:
  ThinkingWatch() = default;  // of a request without a limit
  // The tokenizer must outlive this.
  ThinkingWatch(const ThinkingLimit& limit, const Tokenizer& tokenizer);

  // What must be written next whatever the model says; empty: it decides.
  std::span<const TokenId> forced() const;
  // A token of the answer was written, forced or not.
  void wrote(TokenId id);
  bool cut() const { return cut_; }  // the wrap-up has begun

 private:
  ThinkingLimit limit_;
  const Tokenizer* tokenizer_ = nullptr;  // null: nothing to watch
  bool inside_ = false, in_call_ = false, cut_ = false;
  std::uint32_t tokens_ = 0;   // of thinking
  std::size_t written_ = 0;    // of the wrap-up
  std::uint32_t missing_ = 0;  // bytes of a character that has begun
};

}  // namespace strata
