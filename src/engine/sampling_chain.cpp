#include "engine/sampling_chain.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "base/clock.h"
#include "engine/sampler.h"

namespace strata {
namespace {

class BiasHook final : public LogitHook {
 public:
  explicit BiasHook(std::vector<LogitBias> biases) : biases_(std::move(biases)) {}
  void apply(std::span<float> logits, std::span<const TokenId>) const override {
    for (const LogitBias& bias : biases_) {
      float& logit = logits[static_cast<std::size_t>(bias.id)];
      logit = bias.bias <= kBan ? -std::numeric_limits<float>::infinity() : logit + bias.bias;
    }
  }

 private:
  std::vector<LogitBias> biases_;
};

class PenaltyHook final : public LogitHook {
 public:
  explicit PenaltyHook(const Sampling& sampling) : sampling_(sampling) {}
  void apply(std::span<float> logits, std::span<const TokenId> history) const override {
    const Sampling& s = sampling_;
    const std::size_t window =
        s.penalty_last_n < 0 ? history.size() : static_cast<std::size_t>(s.penalty_last_n);
    std::unordered_map<TokenId, std::uint32_t> counts;
    for (const TokenId id : history.last(std::min(window, history.size()))) ++counts[id];
    for (const auto& [id, count] : counts) {
      float& logit = logits[static_cast<std::size_t>(id)];
      logit = logit > 0 ? logit / s.repetition_penalty : logit * s.repetition_penalty;
      logit -= static_cast<float>(count) * s.frequency_penalty + s.presence_penalty;
    }
  }

 private:
  Sampling sampling_;
};

class DryHook final : public LogitHook {
 public:
  DryHook(const DryPenalty& dry, const Tokenizer& tokenizer) : dry_(dry), tokenizer_(tokenizer) {
    for (const std::string& text : dry_.breakers) longest_ = std::max(longest_, text.size());
  }
  void apply(std::span<float> logits, std::span<const TokenId> history) const override {
    if (dry_.last_n >= 0)
      history = history.last(std::min(history.size(), static_cast<std::size_t>(dry_.last_n)));
    std::unordered_map<TokenId, std::uint32_t> longest;  // run that a token would repeat
    const std::vector<std::uint32_t> runs = runs_before(history);
    for (std::size_t at = 0; at + 1 < history.size(); ++at) {
      if (runs[at] < static_cast<std::uint32_t>(dry_.allowed_length)) continue;
      std::uint32_t& run = longest[history[at + 1]];
      run = std::max(run, runs[at]);
    }
    for (const auto& [id, run] : longest) {
      const double power = double(run) - dry_.allowed_length;
      const double lost = double{dry_.multiplier} * std::pow(double{dry_.base}, power);
      logits[static_cast<std::size_t>(id)] -= static_cast<float>(std::min(lost, kMostLost));
    }
  }

 private:
  static constexpr double kMostLost = 1e6;  // a power of a long run is no number any more

  // Tokens at the end behind the last breaker: none of them is the one in which it begins.
  std::size_t unbroken(std::span<const TokenId> history) const {
    if (longest_ == 0) return history.size();
    std::string text;  // the token, and as much of what follows as a breaker may need
    for (std::size_t length = 0; length < history.size(); ++length) {
      const std::string_view token = tokenizer_.bytes(history[history.size() - 1 - length]);
      text.insert(0, token);
      text.resize(std::min(text.size(), token.size() + longest_ - 1));
      for (const std::string& breaker : dry_.breakers)
        if (text.find(breaker) < token.size()) return length;
    }
    return history.size();
  }

  // [i]: how many tokens up to i equal those up to the end, breakers excluded: the Z function of
  // the sequence read backwards, in linear time.
  std::vector<std::uint32_t> runs_before(std::span<const TokenId> history) const {
    const std::size_t n = history.size();
    std::vector<std::uint32_t> runs(n, 0);
    const std::size_t most = unbroken(history);
    const auto back = [&](std::size_t i) { return history[n - 1 - i]; };
    std::vector<std::size_t> z(n, 0);
    for (std::size_t i = 1, left = 0, right = 0; i < n; ++i) {
      if (i < right) z[i] = std::min(right - i, z[i - left]);
      while (i + z[i] < n && back(z[i]) == back(i + z[i])) ++z[i];
      if (i + z[i] > right) {
        left = i;
        right = i + z[i];
      }
      runs[n - 1 - i] = static_cast<std::uint32_t>(std::min(z[i], most));
    }
    return runs;
  }

  DryPenalty dry_;
  const Tokenizer& tokenizer_;
  std::size_t longest_ = 0;  // breaker
};

class BannedStringsHook final : public LogitHook {
 public:
  BannedStringsHook(std::vector<std::string> strings, std::size_t prompt, const TokenBytes& tokens)
      : strings_(std::move(strings)), prompt_(prompt), tokens_(tokens) {
    for (const std::string& s : strings_) {
      const std::vector<TokenId> holding = tokens_.holding(s);
      whole_.insert(whole_.end(), holding.begin(), holding.end());
      longest_ = std::max(longest_, s.size());
    }
  }

  void apply(std::span<float> logits, std::span<const TokenId> history) const override {
    std::vector<TokenId> banned = whole_;
    const std::string tail = tail_of(history.subspan(std::min(prompt_, history.size())));
    for (const std::string_view s : strings_) {
      for (std::size_t written = 1; written < s.size() && written <= tail.size(); ++written) {
        if (!std::string_view(tail).ends_with(s.substr(0, written))) continue;
        const auto rest = tokens_.beginning_with(s.substr(written));
        banned.insert(banned.end(), rest.begin(), rest.end());
      }
    }
    std::sort(banned.begin(), banned.end());
    banned.erase(std::unique(banned.begin(), banned.end()), banned.end());
    if (banned.size() >= tokens_.size()) return;
    for (const TokenId id : banned)
      if (static_cast<std::size_t>(id) < logits.size())
        logits[static_cast<std::size_t>(id)] = -std::numeric_limits<float>::infinity();
  }

 private:
  // The last bytes of the answer, as many as a string may have begun with.
  std::string tail_of(std::span<const TokenId> answer) const {
    std::string tail;
    for (std::size_t i = answer.size(); i > 0 && tail.size() + 1 < longest_; --i)
      tail.insert(0, tokens_.tokenizer().bytes(answer[i - 1]));
    return tail;
  }

  std::vector<std::string> strings_;
  std::size_t prompt_;
  const TokenBytes& tokens_;
  std::vector<TokenId> whole_;  // tokens that hold one of the strings
  std::size_t longest_ = 0;
};

// False if no token is left.
bool apply_mask(constrain::Mask mask, std::span<float> logits) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  bool left = false;
  for (std::size_t word = 0, at = 0; at < logits.size(); ++word, at += 64) {
    const std::uint64_t bits = word < mask.size() ? mask[word] : 0;
    if (bits == ~std::uint64_t{0} && left) continue;
    const std::size_t count = std::min<std::size_t>(64, logits.size() - at);
    for (std::size_t i = 0; i < count; ++i) {
      if (!((bits >> i) & 1)) logits[at + i] = kNever;
      left = left || logits[at + i] != kNever;
    }
  }
  return left;
}

bool penalises(const Sampling& s) {
  return s.penalty_last_n != 0 &&
         (s.repetition_penalty != 1 || s.frequency_penalty != 0 || s.presence_penalty != 0);
}

}  // namespace

std::unique_ptr<LogitHook> bias_hook(std::vector<LogitBias> biases) {
  return std::make_unique<BiasHook>(std::move(biases));
}

std::unique_ptr<LogitHook> penalty_hook(const Sampling& sampling) {
  return std::make_unique<PenaltyHook>(sampling);
}

std::unique_ptr<LogitHook> dry_hook(const DryPenalty& dry, const Tokenizer& tokenizer) {
  return std::make_unique<DryHook>(dry, tokenizer);
}

std::unique_ptr<LogitHook> banned_strings_hook(std::vector<std::string> strings, std::size_t prompt,
                                               const TokenBytes& tokens) {
  return std::make_unique<BannedStringsHook>(std::move(strings), prompt, tokens);
}

SamplingChain::SamplingChain(const Request& request, std::size_t prompt, const TokenBytes& tokens)
    : sampling_(request.sampling) {
  if (!request.logit_bias.empty()) hooks_.push_back(bias_hook(request.logit_bias));
  if (penalises(sampling_)) hooks_.push_back(penalty_hook(sampling_));
  if (request.dry.multiplier > 0) hooks_.push_back(dry_hook(request.dry, tokens.tokenizer()));
  if (!request.banned_strings.empty())
    hooks_.push_back(banned_strings_hook(request.banned_strings, prompt, tokens));
}

void SamplingChain::prepare() {
  if (!matcher_) return;
  const double start = monotonic_seconds();
  matcher_->mask();
  constexpr double kNewest = 0.25;
  mask_seconds_ += kNewest * (monotonic_seconds() - start - mask_seconds_);
}

std::size_t SamplingChain::allowed(std::span<const TokenId> guesses) {
  if (!matcher_) return guesses.size();
  std::size_t count = 0;
  while (count < guesses.size() && matcher_->accept(guesses[count])) ++count;
  matcher_->rollback(count);
  return count;
}

TokenId SamplingChain::pick(std::span<const float> logits, std::span<const TokenId> history) {
  if (!hooks_.empty() || matcher_) {
    changed_.assign(logits.begin(), logits.end());
    for (const auto& hook : hooks_) hook->apply(changed_, history);
    if (!prepared_) prepare();
    prepared_ = false;
    // Where the other hooks have forbidden all that the grammar allows, the grammar stands.
    if (matcher_ && !apply_mask(matcher_->mask(), changed_)) {
      changed_.assign(logits.begin(), logits.end());
      apply_mask(matcher_->mask(), changed_);
    }
    if (matcher_ && !matcher_->mask_is_exact()) return pick_known(logits, history.size());
    logits = changed_;
  }
  return sample(logits, sampling_, history.size());
}

// Of a mask with tokens that nothing is known about: those that are picked are asked for, one by
// one. What comes is the same whatever was asked before, as the mask is.
TokenId SamplingChain::pick_known(std::span<const float> logits, std::size_t position) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  constexpr int kMostTries = 1'000;
  std::vector<TokenId> forbidden;
  TokenId id = 0;
  for (int tries = 0; tries < kMostTries; ++tries) {
    if (*std::max_element(changed_.begin(), changed_.end()) == kNever) {
      if (forbidden.empty()) break;
      // The hooks forbid all that the grammar allows.
      changed_.assign(logits.begin(), logits.end());
      apply_mask(matcher_->mask(), changed_);
      for (const TokenId other : forbidden) changed_[static_cast<std::size_t>(other)] = kNever;
      if (*std::max_element(changed_.begin(), changed_.end()) == kNever) break;
    }
    id = sample(changed_, sampling_, position);
    if (matcher_->verdict(id) != constrain::Matcher::Verdict::forbidden) return id;
    forbidden.push_back(id);
    changed_[static_cast<std::size_t>(id)] = kNever;
  }
  return id;  // wrote() will refuse it
}

std::string SamplingChain::refusal(TokenId id) {
  if (matcher_->verdict(id) == constrain::Matcher::Verdict::unknown) {
    return fmt::format(
        "the constraint of the answer can be read in more than {} ways at once; make it less "
        "ambiguous",
        constrain::CompileLimits().parallel);
  }
  if (!matcher_->mask_is_exact()) {
    return "finding out what the constraint of the answer allows next takes too many readings; "
           "make it less ambiguous";
  }
  return fmt::format(
      "the engine had to write token {} to end the thinking, which the constraint of the answer "
      "does not allow",
      id);
}

}  // namespace strata
