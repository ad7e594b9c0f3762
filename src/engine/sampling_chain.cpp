#include "engine/sampling_chain.h"

#include <algorithm>
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

SamplingChain::SamplingChain(const Request& request) : sampling_(request.sampling) {
  if (!request.logit_bias.empty()) hooks_.push_back(bias_hook(request.logit_bias));
  if (penalises(sampling_)) hooks_.push_back(penalty_hook(sampling_));
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
