// How often each expert was used: what a memory budget keeps is chosen by it. It is learned while
// tokens are generated. Two counts fade, one over a day's work, which survives in a file
// (docs/formats/experts.md), and one over some hundred tokens, which does not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"

namespace strata {

class ExpertProfile {
 public:
  // `model` says which model it is of; `counts` how many experts each layer has.
  ExpertProfile(std::uint64_t model, std::vector<std::uint32_t> counts);

  std::size_t size() const { return heat_.size(); }
  std::size_t id(std::uint32_t layer, std::uint32_t expert) const { return first_[layer] + expert; }
  float heat(std::size_t id) const { return heat_[id]; }
  // How often it is chosen, by both counts: what is kept of two experts is the one with more.
  double score(std::size_t id) const {
    return heat_[id] / double{kHalfLife} + recent_[id] / (weight_ * kRecentHalfLife);
  }
  void used(std::size_t id, std::uint32_t rows) {
    heat_[id] += static_cast<float>(rows);
    recent_[id] += weight_ * rows;
  }
  // A layer has chosen so many more experts: what is long ago counts less and less.
  void passed(std::uint32_t choices);
  // Without what a file does not keep.
  ExpertProfile as_saved() const {
    ExpertProfile saved(model_, counts_);
    saved.heat_ = heat_;
    return saved;
  }
  bool learned() const { return choices_ > 0; }  // since it was made or read

  // Replaces the file; either the old or the new one stands there whatever happens.
  Status save(FileSystem& files, const std::string& path) const;
  // `not_found`, `corrupt`, or `invalid_argument` for another model's; this is unchanged then.
  Status load(FileSystem& files, const std::string& path);

 private:
  // In choices of a layer: 10 for each token, usually.
  static constexpr std::uint32_t kHalfLife = 163'840;
  static constexpr double kRecentHalfLife = 2560;

  std::uint64_t model_;
  std::vector<std::uint32_t> counts_;
  std::vector<std::size_t> first_;  // id of each layer's expert 0
  std::vector<float> heat_;
  std::vector<double> recent_;  // a choice counts weight_, which grows: what is older counts less
  double weight_ = 1;
  std::uint32_t choices_ = 0;  // since everything was halved
};

}  // namespace strata
