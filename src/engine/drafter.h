// Guesses the next tokens of the sequences of a round (draft_policy.h says how many, lookup.h and
// the draft block which). What it guesses never changes a token, only the time. Internal to the
// engine; belongs to its thread.
#pragma once

#include <span>
#include <vector>

#include "engine/draft_policy.h"
#include "engine/job.h"
#include "model/forward.h"

namespace strata {

class Drafter {
 public:
  // `forward` must outlive this. Without a draft block only lookup is to be had.
  Drafter(Forward& forward, const DraftOptions& options) : forward_(forward), options_(options) {}

  // For a request that begins to decode.
  void begin(Job& job) const;
  // Fills Job::guesses of jobs that decode. Table rows of the guesses are asked for on the way.
  void guess(std::span<Job* const> jobs);
  // The first `right` of the job's guesses were; the one after them, if there is one, was not,
  // unless the answer ended there.
  void judge(Job& job, std::uint32_t right, bool goes_on);

  // Times of a round that only decodes: of its window of so many rows, and as a whole.
  void round_took(std::uint32_t rows, double window_seconds, std::uint32_t sequences,
                  std::uint32_t tokens, double seconds, bool trial);
  bool may_draft() const { return options_.depth != 0u; }
  // Seconds of the last guess() that no guess is to blame for: the draft block's cells of tokens
  // read long before.
  double late_seconds() const { return late_seconds_; }

 private:
  // A job whose guesses the draft block makes.
  struct Chain {
    Job* job = nullptr;
    std::uint32_t most = 0, depth = 0;  // allowed; planned
    DraftPolicy::Plan plan;
    double reached = 1;           // chance that all so far are right
    Lookup::Guess lookup;         // what else there is
    std::vector<TokenId> tested;  // DraftOptions::test_guesses
  };
  std::uint32_t most(const Job& job) const;
  bool block() const { return forward_.drafts() && options_.source != DraftSource::lookup; }
  void plan(Job& job, std::uint32_t sequences);
  bool worth_catching_up(const Job& job, const DraftPolicy::Plan& plan,
                         std::uint32_t sequences) const;
  bool take_lookup(Job& job, const Lookup::Guess& found, std::uint32_t sequences,
                   std::uint32_t most);
  void catch_up();
  bool step(std::span<Chain*> chains);
  bool take(Chain& chain, std::span<const float> logits);
  void follow(Chain& chain);
  bool pays(const Chain& chain, double chance, double step_seconds) const;
  void add(Job& job, TokenId token, const GuessKind& kind);

  Forward& forward_;
  DraftOptions options_;
  DraftPolicy policy_;
  std::vector<Chain> chains_;
  std::uint32_t rows_ = 0;  // of the window so far
  double late_seconds_ = 0;
  std::vector<float> logits_;
};

}  // namespace strata
