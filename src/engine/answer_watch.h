// Watches an answer while it is written: brings its thinking to an end (ThinkingLimit in engine.h),
// sees tokens and passages that repeat themselves, and knows where it stops. What it says depends
// on the answer's tokens alone, so drafts, windows and other requests change nothing. Internal to
// the engine; belongs to its thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/loop_finder.h"

namespace strata {

class AnswerWatch {
 public:
  AnswerWatch() = default;  // of no request
  // The tokenizer must outlive this.
  AnswerWatch(const Request& request, const Tokenizer& tokenizer);

  // What must be written next whatever the model says; empty: it decides.
  std::span<const TokenId> forced() const;

  struct Step {
    std::optional<TokenId> token;     // written
    std::optional<FinishReason> end;  // the answer ends here, behind the token if there is one
  };
  // Writes one more of at most `room` tokens (at least 1). `pick` is the model's choice, called
  // unless it has none.
  Step step(const std::function<TokenId()>& pick, std::uint32_t room);

  ThinkingCut thinking_cut() const { return cut_; }
  StoppedBy stopped_by() const { return stopped_; }

 private:
  bool stops(TokenId id) const;
  bool may_stop() const;
  void begin_closing();
  void wrote(TokenId id);
  void count_thinking(TokenId id);
  void look_for_loops(TokenId id);

  const Tokenizer* tokenizer_ = nullptr;  // null: nothing to watch
  std::vector<TokenId> stop_ids_;
  ThinkingLimit limit_;
  std::uint32_t repeat_limit_ = 0;
  LoopGuard loop_guard_ = LoopGuard::off;

  bool inside_ = false, in_call_ = false;
  bool called_ = false;        // in the thinking, and nothing but white space since
  bool answered_ = false;      // something stands outside of the thinking
  std::uint32_t tokens_ = 0;   // of thinking
  std::uint32_t missing_ = 0;  // bytes of a character that has begun

  ThinkingCut cut_ = ThinkingCut::none;
  bool asked_for_room_ = false;
  std::vector<TokenId> forced_;
  std::size_t written_ = 0;  // of them

  TokenId last_ = -1;
  std::uint32_t repeated_ = 0;  // how often it stands at the end
  StoppedBy stopped_ = StoppedBy::none;
  LoopFinder loops_;
};

}  // namespace strata
