// From a row's logits to its token: a list of hooks that change the logits, then the sampler. Each
// hook sees the tokens before the row's place, those of earlier rows of the same window included,
// so that a guess that is checked gets what it would have got alone.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "constrain/matcher.h"
#include "engine/engine.h"
#include "engine/token_bytes.h"

namespace strata {

class LogitHook {
 public:
  virtual ~LogitHook() = default;
  // `history`: the prompt, then what was generated up to the row.
  virtual void apply(std::span<float> logits, std::span<const TokenId> history) const = 0;
};

// The chain of one request. Belongs to one thread.
class SamplingChain {
 public:
  SamplingChain() = default;
  // The hooks that the request needs, in the order of Sampling. `prompt` tokens stand before the
  // answer. `tokens` must outlive the chain.
  SamplingChain(const Request& request, std::size_t prompt, const TokenBytes& tokens);

  // From now on only what the grammar allows is picked; each token of the answer is told to it.
  void constrain(constrain::Matcher matcher) { matcher_ = std::move(matcher); }
  bool constrained() const { return matcher_.has_value(); }
  // A token of the answer, picked or not. False: the grammar does not allow it, or cannot say; the
  // sentence is refusal()'s.
  bool wrote(TokenId id) { return !matcher_ || matcher_->accept(id); }
  std::string refusal(TokenId id);
  // The grammar is at an end: nothing can follow. `stuck`: at a limit of its own, not whole.
  bool at_end() const { return matcher_ && matcher_->must_end(); }
  bool stuck() const { return matcher_ && matcher_->stuck(); }
  // Computes what the grammar allows next, so that pick() finds it done. Another thread may do that
  // while nobody else uses the chain. worth_preparing(): it takes longer than to hand it over.
  void prepare_ahead() {
    prepare();
    prepared_ = true;
  }
  bool worth_preparing() const { return mask_seconds_ > kHandOver; }
  // How many of the guesses, from the first, the grammar allows.
  std::size_t allowed(std::span<const TokenId> guesses);

  // The token that follows `history`. Logits must not hold NaN.
  TokenId pick(std::span<const float> logits, std::span<const TokenId> history);

 private:
  void prepare();
  TokenId pick_known(std::span<const float> logits, std::size_t position);

  Sampling sampling_;
  std::vector<std::unique_ptr<const LogitHook>> hooks_;

  static constexpr double kHandOver = 50e-6;

  std::optional<constrain::Matcher> matcher_;
  bool prepared_ = false;    // the mask of the next pick was made ahead
  double mask_seconds_ = 0;  // that a mask took of late
  std::vector<float> changed_;
};

// Adds to some logits; kBan and less makes a token impossible.
std::unique_ptr<LogitHook> bias_hook(std::vector<LogitBias> biases);
// Repetition, frequency and presence penalties.
std::unique_ptr<LogitHook> penalty_hook(const Sampling& sampling);

// Both must outlive the hook.
std::unique_ptr<LogitHook> dry_hook(const DryPenalty& dry, const Tokenizer& tokenizer);
// The tokens that would complete one of the strings in what follows the first `prompt` tokens. If
// that were all tokens, the row is left alone.
std::unique_ptr<LogitHook> banned_strings_hook(std::vector<std::string> strings, std::size_t prompt,
                                               const TokenBytes& tokens);

}  // namespace strata
