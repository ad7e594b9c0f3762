#include "telemetry/prometheus.h"

#include <algorithm>

namespace strata::telemetry {

std::string escaped_label(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

Histogram::Histogram(std::span<const double> bounds)
    : bounds_(bounds.first(std::min(bounds.size(), kMostBounds))) {}

void Histogram::observe(double value) {
  if (!std::isfinite(value)) return;
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  counts_[static_cast<std::size_t>(bucket - bounds_.begin())].fetch_add(1,
                                                                        std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

Histogram::Picture Histogram::picture() const {
  Picture picture;
  picture.bounds = bounds_;
  for (std::size_t i = 0; i < counts_.size(); ++i)
    picture.counts[i] = counts_[i].load(std::memory_order_relaxed);
  picture.sum = sum_.load(std::memory_order_relaxed);
  return picture;
}

std::span<const double> second_bounds() {
  static constexpr std::array kBounds = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                         0.25,  0.5,   0.75, 1.0,  2.5,  5.0,  7.5,  10.0,
                                         20.0,  40.0,  80.0, 160., 640., 2560.};
  return kBounds;
}

std::span<const double> token_bounds() {
  static constexpr std::array kBounds = {1e0, 2e0, 5e0, 1e1, 2e1, 5e1, 1e2, 2e2, 5e2, 1e3,
                                         2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6};
  return kBounds;
}

void PrometheusText::family(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  fmt::format_to(std::back_inserter(text_), "# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
}

void PrometheusText::histogram(std::string_view name, std::string_view help,
                               const Histogram& histogram, std::string_view labels) {
  family(name, "histogram", help);
  const Histogram::Picture picture = histogram.picture();
  const std::string_view comma = labels.empty() ? "" : ",";
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < picture.bounds.size(); ++i) {
    sum += picture.counts[i];
    sample_of("_bucket", fmt::format("{}{}le=\"{}\"", labels, comma, picture.bounds[i]), sum);
  }
  sum += picture.counts[picture.bounds.size()];
  sample_of("_bucket", fmt::format("{}{}le=\"+Inf\"", labels, comma), sum);
  sample_of("_sum", labels, picture.sum);
  sample_of("_count", labels, sum);
}

}  // namespace strata::telemetry
