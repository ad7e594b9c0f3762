#include "engine/drafter.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/log.h"
#include "engine/sampler.h"

namespace strata {
namespace {

// Late cells of the draft block that are no more than what a round leaves.
constexpr std::size_t kFewCells = kMaxDrafts + 1;

bool sampled(const Job& job) {
  return job.request.sampling.temperature > 0;
}

// Of softmax(logits) at `chosen`. What is far below the best is not worth its exp().
float probability(std::span<const float> logits, std::size_t chosen) {
  constexpr float kFar = 14;
  constexpr std::size_t kRun = 64;
  const float best = largest(logits), least = best - kFar;
  const auto near = [least](float logit) { return logit > least; };
  float total = 0;
  for (std::size_t at = 0; at < logits.size(); at += kRun) {
    at = find_run(logits, at, near);
    for (const float logit : logits.subspan(at, std::min(kRun, logits.size() - at)))
      if (near(logit)) total += std::exp(logit - best);
  }
  return std::exp(logits[chosen] - best) / total;
}

}  // namespace

void Drafter::begin(Job& job) const {
  job.chances = policy_.usual_chances(sampled(job));
}

// Guesses that the job's limits leave room for: the last token of an answer is never read.
std::uint32_t Drafter::most(const Job& job) const {
  const std::uint32_t left = job.limit - job.generated() - 1;
  const std::uint32_t wanted =
      std::min(options_.depth.value_or(kMaxDrafts), job.request.drafts.value_or(kMaxDrafts));
  return std::min({wanted, left, kMaxDrafts});
}

void Drafter::add(Job& job, TokenId token, const GuessKind& kind) {
  std::vector<TokenId> ahead = {job.tokens.back()};
  ahead.insert(ahead.end(), job.guesses.tokens.begin(), job.guesses.tokens.end());
  ahead.push_back(token);
  forward_.prefetch(*job.sequence, ahead, ahead.size() - 1);
  job.guesses.tokens.push_back(token);
  job.guesses.kinds.push_back(kind);
  ++rows_;
}

void Drafter::guess(std::span<Job* const> jobs) {
  chains_.clear();
  rows_ = static_cast<std::uint32_t>(jobs.size());
  for (Job* job : jobs) {
    job->guesses = {};
    plan(*job, static_cast<std::uint32_t>(jobs.size()));
  }
  catch_up();
  std::vector<Chain*> open;
  for (Chain& chain : chains_) open.push_back(&chain);
  while (!open.empty() && step(open))
    std::erase_if(
        open, [](const Chain* chain) { return chain->job->guesses.tokens.size() >= chain->depth; });
}

// So that the steps cost what they usually cost.
void Drafter::catch_up() {
  const double start = monotonic_seconds();
  std::size_t cells = 0;
  for (const Chain& chain : chains_) {
    Sequence& sequence = *chain.job->sequence;
    if (forward_.late(sequence) <= kFewCells) continue;
    cells += forward_.late(sequence);
    const Status status = forward_.catch_up(sequence);
    if (!status) log_debug("a draft block stays behind: {}", status.error().message);
  }
  late_seconds_ = monotonic_seconds() - start;
  if (cells > 0) policy_.cells_took(cells, late_seconds_);
}

// Whether the answer has become so long that what guessing would have saved by now is worth the
// draft block's work on tokens read before: then it will most likely go on for as long again.
bool Drafter::worth_catching_up(const Job& job, const DraftPolicy::Plan& plan,
                                std::uint32_t sequences) const {
  const std::size_t cells = forward_.late(*job.sequence);
  if (cells <= kFewCells) return true;
  const double saved = policy_.window_seconds(sequences) / sequences - plan.token_seconds;
  return saved * job.generated() >= policy_.cells_seconds(cells);
}

// What a job's guesses will rest on: taken at once from lookup, or a chain for the draft block.
void Drafter::plan(Job& job, std::uint32_t sequences) {
  Chain chain;
  chain.job = &job;
  chain.most = most(job);
  if (chain.most == 0) return;
  if (options_.source != DraftSource::mtp) chain.lookup = job.lookup.guess(job.tokens, chain.most);
  if (!chain.lookup.tokens.empty() && take_lookup(job, chain.lookup, sequences, chain.most)) return;
  if (!block()) return;
  chain.plan = policy_.plan(sequences, job.chances, chain.most);
  chain.depth = options_.depth ? chain.most : chain.plan.depth;
  if (chain.depth == 0) {
    if (forward_.late(*job.sequence) > kFewCells + kMaxDrafts || !policy_.trial()) return;
    job.guesses.trial = true;
    chain.depth = 1;
  } else if (!options_.depth && !worth_catching_up(job, chain.plan, sequences)) {
    return;
  }
  if (options_.test_guesses) {
    chain.tested = options_.test_guesses(job.tokens, chain.most);
    if (chain.tested.empty()) return;
    chain.most = std::min(chain.most, static_cast<std::uint32_t>(chain.tested.size()));
    chain.depth = std::min(chain.depth, chain.most);
  }
  chains_.push_back(std::move(chain));
}

// True if lookup is the better source here (or the only one).
bool Drafter::take_lookup(Job& job, const Lookup::Guess& found, std::uint32_t sequences,
                          std::uint32_t most) {
  const GuessKind kind = GuessKind::of_lookup(found.match, false, sampled(job));
  const double chance = policy_.chance(kind);
  if (block() && chance <= job.chances[0].value) return false;
  DepthChances chances;
  chances.fill({chance, 0});
  const auto length = static_cast<std::uint32_t>(found.tokens.size());
  std::uint32_t depth = std::min(length, most);
  if (!options_.depth) {
    depth = policy_.plan(sequences, chances, depth, 0).depth;
    if (depth == 0 && !block() && policy_.trial()) {
      job.guesses.trial = true;
      depth = 1;
    }
  }
  for (std::uint32_t i = 0; i < depth; ++i) add(job, found.tokens[i], kind);
  return depth > 0 || !block();
}

// One step of the draft block for all chains; false when there is no memory for it.
bool Drafter::step(std::span<Chain*> chains) {
  std::vector<Forward::DraftStep> steps;
  for (const Chain* chain : chains) {
    const Job& job = *chain->job;
    steps.push_back({&*chain->job->sequence,
                     job.guesses.tokens.empty() ? job.tokens.back() : job.guesses.tokens.back()});
  }
  const std::size_t width = forward_.drafts()->size();
  logits_.resize(steps.size() * width);
  const double start = monotonic_seconds();
  if (const Status status = forward_.draft(steps, logits_); !status) {
    log_warning("a round goes without drafts: {}", status.error().message);
    return false;
  }
  policy_.step_took(static_cast<std::uint32_t>(chains.size()), monotonic_seconds() - start);
  for (std::size_t i = 0; i < chains.size(); ++i)
    if (!take(*chains[i], std::span(logits_).subspan(i * width, width))) chains[i]->depth = 0;
  return true;
}

// Whether a further guess that is right with this chance is worth its row and `step_seconds`.
// As far as the plan goes a row costs what it does on average there, beyond it what it does.
bool Drafter::pays(const Chain& chain, double chance, double step_seconds) const {
  const bool planned = chain.job->guesses.tokens.size() < chain.plan.depth;
  const double row = planned ? chain.plan.row_seconds
                             : policy_.window_seconds(rows_ + 1) - policy_.window_seconds(rows_);
  return chance * chain.plan.token_seconds > row + step_seconds;
}

// Adds the draft block's guess; false when the chain should end.
bool Drafter::take(Chain& chain, std::span<const float> logits) {
  Job& job = *chain.job;
  const auto count = static_cast<std::uint32_t>(job.guesses.tokens.size());
  // With the random number that the token itself will be picked with: much the same distribution
  // then gives much the same token.
  const auto row =
      static_cast<std::size_t>(sample(logits, job.request.sampling, job.tokens.size() + count));
  const bool tested = !chain.tested.empty();
  const GuessKind kind =
      GuessKind::of_draft(tested ? 1.0f : probability(logits, row), sampled(job));
  const TokenId token = tested ? chain.tested[count] : forward_.drafts()->id(row);
  // The end of an answer is never read.
  const auto& stops = job.request.stop_ids;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) return false;
  chain.reached *= policy_.chance(kind);
  const bool free = options_.depth || job.guesses.trial;  // of the policy
  if (!free && !pays(chain, chain.reached, 0)) return false;
  add(job, token, kind);
  if (count == 0 && !chain.lookup.tokens.empty() && chain.lookup.tokens.front() == token) {
    follow(chain);
    return false;
  }
  if (free || count + 1 >= chain.most) return true;
  const auto sequences = static_cast<std::uint32_t>(chains_.size());
  const double next = chain.reached * job.chances[count + 1].value;
  if (!pays(chain, next, policy_.step_seconds(sequences) / sequences)) return false;
  // Where it is all but sure of itself it goes on beyond what is usual.
  if (count + 1 == chain.depth && chain.reached > 0.8) ++chain.depth;
  return true;
}

// The draft block agrees with an earlier place of the text: the rest comes from there.
void Drafter::follow(Chain& chain) {
  Job& job = *chain.job;
  const GuessKind kind = GuessKind::of_lookup(chain.lookup.match, true, sampled(job));
  const auto& tokens = chain.lookup.tokens;
  for (std::size_t i = 1; i < std::min<std::size_t>(tokens.size(), chain.most); ++i) {
    chain.reached *= policy_.chance(kind);
    if (!options_.depth && chain.reached * chain.plan.token_seconds < chain.plan.row_seconds)
      return;
    add(job, tokens[i], kind);
  }
}

void Drafter::judge(Job& job, std::uint32_t right, bool goes_on) {
  const Guesses& guesses = job.guesses;
  const std::uint32_t judged = goes_on ? right + 1 : right;
  for (std::uint32_t i = 0; i < std::min<std::size_t>(guesses.kinds.size(), judged); ++i) {
    const GuessKind& kind = guesses.kinds[i];
    policy_.judged(kind, i < right);
    if (kind.from == GuessKind::From::draft)
      policy_.judged(i, i < right, kind.sampled, job.chances);
  }
}

void Drafter::round_took(std::uint32_t rows, double window_seconds, std::uint32_t sequences,
                         std::uint32_t tokens, double seconds, bool trial) {
  policy_.window_took(rows, window_seconds);
  policy_.round_took(sequences, tokens, seconds, trial);
}

}  // namespace strata
