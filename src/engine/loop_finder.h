// Finds text that has begun to go round in circles. Looked for every kEvery tokens, so that the
// cost a token is small whatever the length of the text:
// - of the last kRecentWords words a quarter or more lies in passages of kPassage words that stand
//   at least kTimes times among the last kWords words; or
// - the last kTail characters are one piece of at most kPeriod characters again and again.
// Words are what white space separates.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

class LoopFinder {
 public:
  static constexpr std::size_t kEvery = 512, kRecentWords = 2000, kPassage = 12, kTimes = 3;
  static constexpr std::size_t kWords = 30'000, kTail = 2048, kPeriod = 64;

  void add(std::string_view token);
  // True once where a loop is seen; only every kEvery tokens.
  bool looping();
  void restart();

 private:
  bool repeats_passages() const;
  bool is_periodic() const;

  std::vector<std::uint64_t> words_;  // their hashes
  std::string word_;                  // not ended yet
  std::string tail_;
  std::size_t tokens_ = 0;  // since the last look
};

}  // namespace strata
