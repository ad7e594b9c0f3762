#include "engine/draft_policy.h"

#include <algorithm>
#include <cmath>

namespace strata {
namespace {

// Before anything is measured: a further row costs this part of a window of one row, a step of the
// draft block that part.
constexpr double kRowShare = 0.35, kStepShare = 0.15;
constexpr double kFirstChance = 0.75;
constexpr double kLeastGain = 0.96;  // guessing is to take this part of the time, or less
constexpr double kPaceWeight = 0.1;  // of the newest window, in the machine's pace

constexpr double kUsualWeight = 0.02, kOwnWeight = 0.08;  // of the newest judgement, at least
constexpr std::uint32_t kPrior = 3, kOwnPrior = 8;        // judgements that a first chance is worth

std::size_t index_of(GuessKind::From from) {
  return static_cast<std::size_t>(from);
}

}  // namespace

void Chance::add(bool happened, double least_weight) {
  ++seen;
  value += std::max(least_weight, 1.0 / (seen + kPrior)) * ((happened ? 1.0 : 0.0) - value);
}

GuessKind GuessKind::of_draft(float probability, bool sampled) {
  const auto level =
      static_cast<std::uint8_t>(std::clamp(probability * float{kLevels}, 0.0f, float{kLevels} - 1));
  return {From::draft, level, sampled};
}

GuessKind GuessKind::of_lookup(std::uint32_t match, bool agreed, bool sampled) {
  std::uint8_t level = 0;
  for (std::uint32_t reach = 4; level + 1 < kLevels && match >= reach; reach += 1 + reach / 3)
    ++level;
  return {agreed ? From::agreed : From::lookup, level, sampled};
}

DraftPolicy::Levels DraftPolicy::first_levels() {
  Levels levels;
  for (auto& sampled : levels) {
    for (std::size_t level = 0; level < GuessKind::kLevels; ++level) {
      sampled[index_of(GuessKind::From::draft)][level].value =
          (double(level) + 0.5) / double{GuessKind::kLevels};
      sampled[index_of(GuessKind::From::lookup)][level].value = 0.4 + 0.07 * double(level);
      sampled[index_of(GuessKind::From::agreed)][level].value = 0.7 + 0.035 * double(level);
    }
  }
  return levels;
}

std::array<DepthChances, 2> DraftPolicy::first_chances() {
  std::array<DepthChances, 2> chances;
  for (DepthChances& of : chances) of.fill({kFirstChance, 0});
  return chances;
}

DepthChances DraftPolicy::usual_chances(bool sampled) const {
  DepthChances chances = usual_[sampled];
  for (Chance& chance : chances) chance.seen = std::min(chance.seen, kOwnPrior);
  return chances;
}

// A mean that forgets. A sample far above it is most likely another process's doing.
void DraftPolicy::Mean::add(double sample) {
  if (count >= 4) sample = std::min(sample, 1.5 * value);
  ++count;
  value += (sample - value) / std::min(count, 12u);
}

// The machine's pace changes (clocks, neighbours) and sizes are measured at different times: what
// is kept of a size is its time at an even pace.
void DraftPolicy::window_took(std::uint32_t rows, double seconds) {
  Mean& mean = windows_[std::min(rows, kRows)];
  if (mean.count > 0)
    pace_ *= std::pow(std::clamp(seconds / (pace_ * mean.value), 0.5, 2.0), kPaceWeight);
  mean.add(seconds / pace_);
}

void DraftPolicy::step_took(std::uint32_t sequences, double seconds) {
  steps_[std::min<std::size_t>(sequences, steps_.size() - 1)].add(seconds / pace_);
}

void DraftPolicy::cells_took(std::size_t cells, double seconds) {
  cell_.add(seconds / pace_ / static_cast<double>(cells));
}

double DraftPolicy::cells_seconds(std::size_t cells) const {
  const double one = cell_.count > 0 ? pace_ * cell_.value : 0.1 * step_seconds(1);
  return one * static_cast<double>(cells);
}

double DraftPolicy::window_seconds(std::uint32_t rows) const {
  return pace_ * even_seconds(rows);
}

// Between and beyond measured sizes a straight line.
double DraftPolicy::even_seconds(std::uint32_t rows) const {
  rows = std::min(rows, kRows);
  std::uint32_t below = rows, above = rows;
  while (below > 0 && windows_[below].count == 0) --below;
  while (above <= kRows && windows_[above].count == 0) ++above;
  if (below == rows && rows > 0) return windows_[rows].value;
  const auto usual = [](double seconds, std::uint32_t of, std::uint32_t wanted) {
    return seconds * (1 + kRowShare * (wanted - 1)) / (1 + kRowShare * (of - 1));
  };
  if (below == 0) return above > kRows ? 0 : usual(windows_[above].value, above, rows);
  const double low = windows_[below].value;
  if (above <= kRows) {
    const double high = std::max(low, windows_[above].value);
    return low + (high - low) * (rows - below) / (above - below);
  }
  std::uint32_t before = below - 1;
  while (before > 0 && windows_[before].count == 0) --before;
  if (before == 0) return usual(low, below, rows);
  const double slope = std::max(0.0, low - windows_[before].value) / (below - before);
  return low + slope * (rows - below);
}

double DraftPolicy::step_seconds(std::uint32_t sequences) const {
  std::size_t nearest = 0;
  for (std::size_t s = 1; s < steps_.size(); ++s) {
    if (steps_[s].count == 0) continue;
    const auto distance = [&](std::size_t at) { return std::abs(double(at) - sequences); };
    if (nearest == 0 || distance(s) < distance(nearest)) nearest = s;
  }
  return nearest > 0 ? pace_ * steps_[nearest].value : kStepShare * window_seconds(1);
}

double DraftPolicy::chance(const GuessKind& kind) const {
  return levels_[kind.sampled][index_of(kind.from)][kind.level].value;
}

void DraftPolicy::judged(const GuessKind& kind, bool right) {
  levels_[kind.sampled][index_of(kind.from)][kind.level].add(right, kUsualWeight);
}

void DraftPolicy::judged(std::uint32_t depth, bool right, bool sampled, DepthChances& own) {
  usual_[sampled][depth].add(right, kUsualWeight);
  own[depth].add(right, kOwnWeight);
}

void DraftPolicy::round_took(std::uint32_t sequences, std::uint32_t tokens, double seconds,
                             bool trial) {
  constexpr double kMemory = 0.999;
  const double alone = window_seconds(sequences) / std::max(sequences, 1u);
  seconds_ = seconds_ * kMemory + seconds;
  lost_ *= kMemory;
  if (!trial) return;
  const double lost = seconds - tokens * alone;
  lost_ += std::max(0.0, lost);
  // What was worth it is tried again soon.
  trial_every_ = lost > 0 ? std::min(2 * trial_every_, 128u) : 2;
}

bool DraftPolicy::trial() {
  if (++since_trial_ < trial_every_ || lost_ > kTrialShare * seconds_) return false;
  since_trial_ = 0;
  return true;
}

DraftPolicy::Plan DraftPolicy::plan(std::uint32_t sequences, const DepthChances& chances,
                                    std::uint32_t most, std::optional<double> step) const {
  const double alone = window_seconds(sequences);
  if (!step) step = step_seconds(sequences);
  Plan best{0, alone / sequences, window_seconds(sequences + 1) - alone};
  double tokens = 1, reached = 1;
  for (std::uint32_t depth = 1; depth <= most; ++depth) {
    reached *= chances[depth - 1].value;
    tokens += reached;
    const double window = window_seconds(sequences * (depth + 1));
    const double each = (window + depth * *step) / (sequences * tokens);
    const double bar = best.depth == 0 ? kLeastGain * best.token_seconds : best.token_seconds;
    if (each < bar) best = {depth, each, std::max(0.0, window - alone) / (sequences * depth)};
  }
  return best;
}

}  // namespace strata
