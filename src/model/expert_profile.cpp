#include "model/expert_profile.h"

#include <cmath>
#include <cstring>

#include "base/hash.h"

namespace strata {
namespace {

constexpr char kMagic[8] = {'S', 'T', 'R', 'A', 'T', 'A', 'E', 'X'};
constexpr std::uint32_t kVersion = 1;

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t layers;
  std::uint64_t model;
  std::uint64_t experts;   // of all layers
  std::uint64_t checksum;  // of what follows
};
static_assert(sizeof(Header) == 40);

}  // namespace

ExpertProfile::ExpertProfile(std::uint64_t model, std::vector<std::uint32_t> counts)
    : model_(model), counts_(std::move(counts)) {
  std::size_t total = 0;
  for (const std::uint32_t count : counts_) {
    first_.push_back(total);
    total += count;
  }
  heat_.resize(total);
  recent_.resize(total);
}

void ExpertProfile::passed(std::uint32_t choices) {
  constexpr double kMostWeight = 1e100;
  weight_ *= std::exp2(choices / kRecentHalfLife);
  if (weight_ > kMostWeight) {
    for (double& recent : recent_) recent /= weight_;
    weight_ = 1;
  }
  choices_ += choices;
  if (choices_ < kHalfLife) return;
  choices_ = 1;  // still learned
  for (float& heat : heat_) heat /= 2;
}

Status ExpertProfile::save(FileSystem& files, const std::string& path) const {
  const auto values = std::as_bytes(std::span(heat_));
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.layers = static_cast<std::uint32_t>(counts_.size());
  header.model = model_;
  header.experts = heat_.size();
  header.checksum = hash64(values);
  const std::string partial = path + ".partial";
  if (files.exists(partial)) STRATA_TRY(files.remove(partial));
  STRATA_ASSIGN(auto file, files.create_private(partial));
  STRATA_TRY(file->write(std::as_bytes(std::span(&header, 1))));
  STRATA_TRY(file->write(values));
  STRATA_TRY(file->finish());
  return files.rename(partial, path);
}

Status ExpertProfile::load(FileSystem& files, const std::string& path) {
  STRATA_ASSIGN(const auto file, files.open_private(path));
  const auto corrupt = [&](const char* what) {
    return fail(ErrorCode::corrupt, "expert profile '{}' {}", path, what);
  };
  Header header = {};
  std::vector<float> heat(heat_.size());
  if (file->size() < sizeof header) return corrupt("is too short for its header");
  STRATA_TRY(file->read_exact(0, std::as_writable_bytes(std::span(&header, 1))));
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    return fail(ErrorCode::unsupported, "'{}' is no expert profile and is left as it is", path);
  if (header.version != kVersion) return corrupt("is of another version");
  if (header.model != model_ || header.layers != counts_.size() || header.experts != heat.size())
    return fail(ErrorCode::invalid_argument, "expert profile '{}' is of another model", path);
  const auto values = std::as_writable_bytes(std::span(heat));
  if (file->size() != sizeof header + values.size()) return corrupt("has not the size it says");
  STRATA_TRY(file->read_exact(sizeof header, values));
  if (hash64(values) != header.checksum) return corrupt("is damaged: its checksum differs");
  for (const float value : heat)
    if (!std::isfinite(value) || value < 0) return corrupt("counts something that is no number");
  heat_ = std::move(heat);
  return {};
}

}  // namespace strata
