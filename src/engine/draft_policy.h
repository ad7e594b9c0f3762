// How many tokens to guess. A guess is worth its chance to be right times the time a token takes;
// it costs the row it adds to the window and, from the draft block, a step of that. All three are
// measured as the engine runs, so on a machine or text where guessing does not pay it stops, and is
// tried again now and then with no more than a fixed share of the time (kTrialShare).
//
// Belongs to one thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "engine/engine.h"

namespace strata {

// What a guess rests on, for counting how often such guesses are right.
struct GuessKind {
  enum class From : std::uint8_t {
    draft,   // the draft block; `level` by the probability it gives
    lookup,  // an earlier place; `level` by the length of the match
    agreed,  // further tokens of an earlier place whose first one the draft block guessed too
  };
  static constexpr std::uint8_t kLevels = 8;
  From from = From::draft;
  std::uint8_t level = 0;
  bool sampled = false;  // the request does not decode greedily

  static GuessKind of_draft(float probability, bool sampled);
  static GuessKind of_lookup(std::uint32_t match, bool agreed, bool sampled);
};

// How often something happened: a mean that moves fast at first and never settles.
struct Chance {
  double value = 0.5;
  std::uint32_t seen = 0;
  void add(bool happened, double least_weight);
};

// How often the draft block's guesses at each depth are right, those before them given.
using DepthChances = std::array<Chance, kMaxDrafts>;

class DraftPolicy {
 public:
  static constexpr double kTrialShare = 0.01;

  // Measurements, in seconds.
  void window_took(std::uint32_t rows, double seconds);  // windows that only decode
  void step_took(std::uint32_t sequences, double seconds);
  void cells_took(std::size_t cells, double seconds);  // of the draft block, that were late
  // A round of `sequences` as a whole gave so many tokens. `trial`: trial() was true for it.
  void round_took(std::uint32_t sequences, std::uint32_t tokens, double seconds, bool trial);
  void judged(const GuessKind& kind, bool right);
  // The draft block's guess of a request at `depth` (from 0); moves both its own chances and the
  // ones that requests start with.
  void judged(std::uint32_t depth, bool right, bool sampled, DepthChances& own);

  double window_seconds(std::uint32_t rows) const;
  double step_seconds(std::uint32_t sequences) const;
  double cells_seconds(std::size_t cells) const;
  double chance(const GuessKind& kind) const;
  // What a request starts with.
  DepthChances usual_chances(bool sampled) const;

  // What the next round should do, given that `sequences` decode and the chances of one of them.
  struct Plan {
    std::uint32_t depth = 0;   // guesses of the draft block that pay; 0: none do
    double token_seconds = 0;  // a token then takes
    double row_seconds = 0;    // a further row of the window costs, up to `depth`
  };
  // `step`: seconds that each guess takes; by default a step of the draft block.
  Plan plan(std::uint32_t sequences, const DepthChances& chances, std::uint32_t most,
            std::optional<double> step = {}) const;
  // True now and then: guess although it does not seem to pay.
  bool trial();

 private:
  struct Mean {
    double value = 0;
    std::uint32_t count = 0;
    void add(double sample);
  };
  double even_seconds(std::uint32_t rows) const;

  double pace_ = 1;                            // seconds now for a second at an even pace
  static constexpr std::uint32_t kRows = 256;  // windows of more cost as those
  std::array<Mean, kRows + 1> windows_{};
  std::array<Mean, 65> steps_{};
  Mean cell_;
  using Levels = std::array<std::array<std::array<Chance, GuessKind::kLevels>, 3>, 2>;
  Levels levels_ = first_levels();
  std::array<DepthChances, 2> usual_ = first_chances();
  double seconds_ = 0, lost_ = 0;  // in all rounds; by trials, of late
  std::uint32_t since_trial_ = 0, trial_every_ = 8;

  static Levels first_levels();
  static std::array<DepthChances, 2> first_chances();
};

}  // namespace strata
