#include "server/stop_filter.h"

#include <algorithm>
#include <utility>

namespace strata::server {

StopFilter::StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {}

std::string StopFilter::feed(std::string_view text) {
  if (matched_) return {};
  if (stops_.empty()) return std::string(text);
  held_ += text;
  std::size_t best_end = std::string::npos;
  std::size_t best_start = 0;
  for (const std::string& stop : stops_) {
    const std::size_t start = held_.find(stop);
    if (start == std::string::npos) continue;
    const std::size_t end = start + stop.size();
    if (end < best_end || (end == best_end && start < best_start)) {
      best_end = end;
      best_start = start;
      matched_ = stop;
    }
  }
  std::string out;
  if (matched_) {
    out = held_.substr(0, best_start);
    held_.clear();
    return out;
  }
  const std::size_t certain = held_.size() - possible_beginning();
  out = held_.substr(0, certain);
  held_.erase(0, certain);
  return out;
}

std::string StopFilter::flush() {
  return std::exchange(held_, {});
}

std::size_t StopFilter::possible_beginning() const {
  std::size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > longest; --n) {
      if (held_.ends_with(std::string_view(stop).substr(0, n))) longest = n;
    }
  }
  return longest;
}

}  // namespace strata::server
