#include "engine/sampling_chain.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

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
  explicit DryHook(const DryPenalty& dry) : dry_(dry) {}
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

  // [i]: how many tokens up to i equal those up to the end, breakers excluded: the Z function of
  // the sequence read backwards, in linear time.
  std::vector<std::uint32_t> runs_before(std::span<const TokenId> history) const {
    const std::size_t n = history.size();
    std::vector<std::uint32_t> runs(n, 0);
    const auto breaks = [&](TokenId id) {
      return std::find(dry_.breakers.begin(), dry_.breakers.end(), id) != dry_.breakers.end();
    };
    std::size_t most = 0;  // tokens at the end before the first breaker
    while (most < n && !breaks(history[n - 1 - most])) ++most;
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
};

class BannedStringsHook final : public LogitHook {
 public:
  BannedStringsHook(std::vector<std::string> strings, std::size_t prompt,
                    const Tokenizer& tokenizer)
      : strings_(std::move(strings)), prompt_(prompt), tokenizer_(tokenizer) {
    for (std::size_t id = 0; id < tokenizer.size(); ++id) {
      const auto token = static_cast<TokenId>(id);
      const std::string_view bytes = tokenizer.bytes(token);
      if (bytes.empty()) continue;
      sorted_.push_back(token);
      if (std::any_of(strings_.begin(), strings_.end(), [&](const std::string& s) {
            return bytes.find(s) != std::string_view::npos;
          }))
        whole_.push_back(token);
    }
    std::sort(sorted_.begin(), sorted_.end(),
              [&](TokenId a, TokenId b) { return tokenizer_.bytes(a) < tokenizer_.bytes(b); });
    for (const std::string& s : strings_) longest_ = std::max(longest_, s.size());
  }

  void apply(std::span<float> logits, std::span<const TokenId> history) const override {
    std::vector<TokenId> banned = whole_;
    const std::string tail = tail_of(history.subspan(std::min(prompt_, history.size())));
    for (const std::string& s : strings_) {
      for (std::size_t written = 1; written < s.size() && written <= tail.size(); ++written) {
        if (std::string_view(tail).ends_with(std::string_view(s).substr(0, written)))
          add_beginning_with(std::string_view(s).substr(written), banned);
      }
    }
    std::sort(banned.begin(), banned.end());
    banned.erase(std::unique(banned.begin(), banned.end()), banned.end());
    if (banned.size() >= sorted_.size()) return;
    for (const TokenId id : banned)
      if (static_cast<std::size_t>(id) < logits.size())
        logits[static_cast<std::size_t>(id)] = -std::numeric_limits<float>::infinity();
  }

 private:
  // The last bytes of the answer, as many as a string may have begun with.
  std::string tail_of(std::span<const TokenId> answer) const {
    std::string tail;
    for (std::size_t i = answer.size(); i > 0 && tail.size() + 1 < longest_; --i)
      tail.insert(0, tokenizer_.bytes(answer[i - 1]));
    return tail;
  }
  void add_beginning_with(std::string_view rest, std::vector<TokenId>& banned) const {
    auto at = std::lower_bound(
        sorted_.begin(), sorted_.end(), rest,
        [&](TokenId id, std::string_view text) { return tokenizer_.bytes(id) < text; });
    for (; at != sorted_.end() && tokenizer_.bytes(*at).starts_with(rest); ++at)
      banned.push_back(*at);
  }

  std::vector<std::string> strings_;
  std::size_t prompt_;
  const Tokenizer& tokenizer_;
  std::vector<TokenId> sorted_;  // by bytes
  std::vector<TokenId> whole_;   // tokens that hold one of the strings
  std::size_t longest_ = 0;
};

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

std::unique_ptr<LogitHook> dry_hook(const DryPenalty& dry) {
  return std::make_unique<DryHook>(dry);
}

std::unique_ptr<LogitHook> banned_strings_hook(std::vector<std::string> strings, std::size_t prompt,
                                               const Tokenizer& tokenizer) {
  return std::make_unique<BannedStringsHook>(std::move(strings), prompt, tokenizer);
}

SamplingChain::SamplingChain(const Request& request, std::size_t prompt, const Tokenizer& tokenizer)
    : sampling_(request.sampling) {
  if (!request.logit_bias.empty()) hooks_.push_back(bias_hook(request.logit_bias));
  if (penalises(sampling_)) hooks_.push_back(penalty_hook(sampling_));
  if (request.dry.multiplier > 0) hooks_.push_back(dry_hook(request.dry));
  if (!request.banned_strings.empty())
    hooks_.push_back(banned_strings_hook(request.banned_strings, prompt, tokenizer));
}

TokenId SamplingChain::pick(std::span<const float> logits, std::span<const TokenId> history) {
  if (!hooks_.empty()) {
    changed_.assign(logits.begin(), logits.end());
    for (const auto& hook : hooks_) hook->apply(changed_, history);
    logits = changed_;
  }
  return sample(logits, sampling_, history.size());
}

}  // namespace strata
