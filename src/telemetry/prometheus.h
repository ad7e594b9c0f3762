// Prometheus' text form (version 0.0.4).
#pragma once

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace strata::telemetry {

// A metric's name and the sentence that explains it.
struct Family {
  std::string_view name, help;
};

// Backslash, quote and line break, as label values have them.
std::string escaped_label(std::string_view text);

// Observations by size, in fixed buckets. From any thread, without waiting.
class Histogram {
 public:
  static constexpr std::size_t kMostBounds = 24;
  // Ascending; only the first kMostBounds count.
  explicit Histogram(std::span<const double> bounds);

  void observe(double value);

  struct Picture {
    std::span<const double> bounds;
    std::array<std::uint64_t, kMostBounds + 1> counts{};  // in each bucket; the last one: above all
    double sum = 0;
  };
  Picture picture() const;

 private:
  std::span<const double> bounds_;
  std::array<std::atomic<std::uint64_t>, kMostBounds + 1> counts_{};
  std::atomic<double> sum_{0};
};

// A millisecond to 43 minutes, in the steps that vLLM's clients know.
std::span<const double> second_bounds();
// 1 to a million.
std::span<const double> token_bounds();

// Writes families: each is said once, then its samples. What is not a number has no sample.
class PrometheusText {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help);
  // `labels` as they stand between the braces, values escaped: `reason="stop"`; empty: none.
  template <class Value>
  void sample(std::string_view labels, Value value) {
    sample_of({}, labels, value);
  }
  template <class Label, class Value>
  void sample(std::string_view key, const Label& label, Value value) {
    sample(fmt::format("{}=\"{}\"", key, label), value);
  }
  template <class Value>
  void counter(std::string_view name, std::string_view help, Value value,
               std::string_view labels = {}) {
    family(name, "counter", help);
    sample(labels, value);
  }
  template <class Value>
  void gauge(std::string_view name, std::string_view help, Value value,
             std::string_view labels = {}) {
    family(name, "gauge", help);
    sample(labels, value);
  }
  void histogram(std::string_view name, std::string_view help, const Histogram& histogram,
                 std::string_view labels = {});
  std::string text() && { return std::move(text_); }

 private:
  template <class Value>
  void sample_of(std::string_view ending, std::string_view labels, Value value) {
    if constexpr (std::is_floating_point_v<Value>) {
      if (!std::isfinite(value)) return;
    }
    const bool bare = labels.empty();
    fmt::format_to(std::back_inserter(text_), "{}{}{}{}{} {}\n", name_, ending, bare ? "" : "{",
                   labels, bare ? "" : "}", value);
  }
  std::string text_;
  std::string name_;
};

}  // namespace strata::telemetry
