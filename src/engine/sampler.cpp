#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace strata {

namespace {

struct Candidate {
  float logit;
  TokenId id;
};

bool better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

TokenId greedy(std::span<const float> logits) {
  const float best = largest(logits);
  const auto at = find_run(logits, 0, [best](float v) { return v == best; });
  const auto from = logits.begin() + static_cast<std::ptrdiff_t>(at);
  return static_cast<TokenId>(std::find(from, logits.end(), best) - logits.begin());
}

std::uint64_t mix(std::uint64_t x) {  // splitmix64's finaliser
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// The best candidates, sorted: as many as top_k and top_p leave. `total` is the sum of exp(logit -
// best) over the candidates that top_k leaves.
std::vector<Candidate> shortlist(std::span<const float> logits, const Sampling& s) {
  std::vector<Candidate> all(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) all[i] = {logits[i], static_cast<TokenId>(i)};
  std::size_t limit = all.size();
  if (s.top_k > 0) limit = std::min(limit, static_cast<std::size_t>(s.top_k));
  if (limit < all.size()) {
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(limit), all.end(),
                     better);
    all.resize(limit);
  }
  const float top = std::min_element(all.begin(), all.end(), better)->logit;
  const auto mass = [&](const Candidate& c) { return std::exp(double{c.logit} - top); };
  double total = 0;
  for (const Candidate& c : all) total += mass(c);

  // Sort only as far as top_p needs: in steps that grow.
  double sum = 0;
  std::size_t sorted = 0, kept = 0;
  while (kept < all.size()) {
    if (kept == sorted) {
      sorted = std::min(all.size(), std::max<std::size_t>(64, sorted * 4));
      std::partial_sort(all.begin() + static_cast<std::ptrdiff_t>(kept),
                        all.begin() + static_cast<std::ptrdiff_t>(sorted), all.end(), better);
    }
    sum += mass(all[kept++]);
    if (s.top_p < 1.0f && sum >= double{s.top_p} * total) break;
  }
  all.resize(kept);
  if (s.min_p > 0) {
    const auto end = std::find_if(all.begin(), all.end(),
                                  [&](const Candidate& c) { return mass(c) < double{s.min_p}; });
    all.erase(std::max(end, all.begin() + 1), all.end());
  }
  return all;
}

}  // namespace

Status validate(const Sampling& s) {
  const auto bad = [](const char* name, double value, const char* range) {
    return fail(ErrorCode::invalid_argument, "{} is {}, allowed is {}", name, value, range);
  };
  if (!(s.temperature >= 0 && s.temperature <= 100))
    return bad("temperature", s.temperature, "0 to 100");
  if (s.top_k < 0) return bad("top_k", s.top_k, "0 (off) or more");
  if (!(s.top_p > 0 && s.top_p <= 1)) return bad("top_p", s.top_p, "more than 0, up to 1");
  if (!(s.min_p >= 0 && s.min_p <= 1)) return bad("min_p", s.min_p, "0 to 1");
  if (!(s.repetition_penalty > 0 && s.repetition_penalty <= 100))
    return bad("repetition_penalty", s.repetition_penalty, "more than 0, up to 100");
  if (!(s.frequency_penalty >= -2 && s.frequency_penalty <= 2))
    return bad("frequency_penalty", s.frequency_penalty, "-2 to 2");
  if (!(s.presence_penalty >= -2 && s.presence_penalty <= 2))
    return bad("presence_penalty", s.presence_penalty, "-2 to 2");
  if (s.penalty_last_n < -1)
    return bad("penalty_last_n", s.penalty_last_n, "-1 (all), 0 (none) or more");
  return {};
}

Status validate(const DryPenalty& dry) {
  const auto bad = [](const char* name, double value, const char* range) {
    return fail(ErrorCode::invalid_argument, "{} is {}, allowed is {}", name, value, range);
  };
  if (!(dry.multiplier >= 0 && dry.multiplier <= 100))
    return bad("dry_multiplier", dry.multiplier, "0 (off) to 100");
  if (!(dry.base >= 1 && dry.base <= 100)) return bad("dry_base", dry.base, "1 to 100");
  if (dry.allowed_length < 1) return bad("dry_allowed_length", dry.allowed_length, "1 or more");
  if (dry.last_n < -1) return bad("dry_penalty_last_n", dry.last_n, "-1 (all), 0 (none) or more");
  if (dry.breakers.size() > kMaxBreakers)
    return bad("dry_sequence_breakers", static_cast<double>(dry.breakers.size()),
               "at most 64 texts");
  for (const std::string& text : dry.breakers) {
    if (text.empty() || text.size() > kMaxBreakerBytes)
      return bad("dry_sequence_breakers", static_cast<double>(text.size()), "1 to 64 bytes each");
  }
  return {};
}

// In lanes that the compiler makes vectors of.
float largest(std::span<const float> values) {
  constexpr std::size_t lanes = 16;
  float best[lanes];
  std::fill_n(best, lanes, values[0]);
  std::size_t i = 0;
  for (; i + lanes <= values.size(); i += lanes)
    for (std::size_t l = 0; l < lanes; ++l)
      best[l] = values[i + l] > best[l] ? values[i + l] : best[l];
  for (; i < values.size(); ++i) best[0] = std::max(best[0], values[i]);
  return *std::max_element(best, best + lanes);
}

bool all_finite(std::span<const float> values) {
  constexpr std::size_t lanes = 16;
  float sums[lanes] = {};  // of zeros, or no number
  std::size_t i = 0;
  for (; i + lanes <= values.size(); i += lanes)
    for (std::size_t l = 0; l < lanes; ++l) sums[l] += values[i + l] * 0.0f;
  for (; i < values.size(); ++i) sums[0] += values[i] * 0.0f;
  return std::all_of(sums, sums + lanes, [](float sum) { return sum == 0.0f; });
}

double uniform_at(std::uint64_t seed, std::uint64_t position) {
  const std::uint64_t bits =
      mix(mix(seed + 0x9E3779B97F4A7C15ull) ^ (position * 0xD1B54A32D192ED03ull + 1));
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

TokenId sample(std::span<const float> logits, const Sampling& sampling, std::uint64_t position) {
  if (sampling.temperature <= 0) return greedy(logits);
  const std::vector<Candidate> candidates = shortlist(logits, sampling);
  std::vector<double> cumulative(candidates.size());
  double total = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const double difference = double{candidates[i].logit} - candidates[0].logit;
    cumulative[i] = total += std::exp(difference / double{sampling.temperature});
  }
  const double target = uniform_at(sampling.seed, position) * total;
  const auto pick = std::upper_bound(cumulative.begin(), cumulative.end(), target);
  const auto index = std::min<std::ptrdiff_t>(pick - cumulative.begin(),
                                              static_cast<std::ptrdiff_t>(candidates.size()) - 1);
  return candidates[static_cast<std::size_t>(index)].id;
}

TokenChances chances_of(std::span<const float> logits, TokenId chosen, std::uint32_t top) {
  const double best = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float logit : logits) total += std::exp(logit - best);
  const double log_total = best + std::log(total);
  const auto chance = [&](TokenId id) {
    return TokenChances::Chance{
        id, static_cast<float>(logits[static_cast<std::size_t>(id)] - log_total)};
  };
  TokenChances chances{chance(chosen), {}};
  // A heap of the best so far, the worst of them in front.
  std::vector<Candidate> heap;
  for (std::size_t i = 0; i < logits.size() && top > 0; ++i) {
    const Candidate candidate{logits[i], static_cast<TokenId>(i)};
    if (heap.size() == top) {
      if (!better(candidate, heap.front())) continue;
      std::pop_heap(heap.begin(), heap.end(), better);
      heap.pop_back();
    }
    heap.push_back(candidate);
    std::push_heap(heap.begin(), heap.end(), better);
  }
  std::sort_heap(heap.begin(), heap.end(), better);
  for (const Candidate& candidate : heap) chances.top.push_back(chance(candidate.id));
  return chances;
}

}  // namespace strata
