// Samples of sources once a second for the last hour, taken by a thread of its own.
//
// What callers may rely on
// - It samples once a second while someone looks: for kLookSeconds after each look(). When nobody
//   does, it samples every kSlowSeconds while there is work, and else not at all: the thread sleeps
//   until look() or stir(), and samples at once.
// - Sources are made and read by that thread only, the first time that it samples. No other
//   function waits for a reading.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "telemetry/prometheus.h"
#include "telemetry/source.h"

namespace strata::telemetry {

inline constexpr std::size_t kMostSamples = 3600;
inline constexpr double kLookSeconds = 90, kSlowSeconds = 10;
// Readings further apart give no rates.
inline constexpr double kMostSpan = 15;

// What is kept, and the readings themselves. Not thread safe.
class Recorder {
 public:
  explicit Recorder(Sources sources);

  // `time` in seconds since 1970, `now` of a clock that never goes back.
  void sample(double time, double now);
  void rest();

  const std::vector<Field>& fields() const { return fields_; }
  const boost::json::object& facts() const { return facts_; }
  // Of the last sample; a value a field.
  double time() const { return time_; }
  std::span<const double> values() const { return values_; }

 private:
  Sources sources_;
  std::vector<Field> fields_;
  boost::json::object facts_;
  std::vector<double> values_;
  double time_ = 0;
  std::optional<double> last_;
};

class Sampler {
 public:
  struct Options {
    std::function<Sources()> sources;
    std::function<bool()> busy;  // is there work? Asked when nobody looks; may be empty
    // For tests: what a second is.
    std::chrono::duration<double> second{1};
  };
  explicit Sampler(Options options);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  void look();  // someone reads it
  void stir();  // work begins. Cheap, and never waits
  void stop();  // no more samples; the thread ends

  struct Samples {
    std::uint64_t seq = 0;  // of the last sample, counted from 1; 0: there is none yet
    std::vector<Field> fields;
    boost::json::object facts;
    std::vector<double> times;  // seconds since 1970
    std::vector<float> values;  // a value a field, sample after sample
  };
  // Those after the sample `seq`, or all that are kept.
  Samples since(std::uint64_t seq) const;
  // The last one, if it is not older than kMostSpan.
  std::optional<Samples> latest() const;
  bool asleep() const { return asleep_; }  // until someone looks or work begins

 private:
  using Clock = std::chrono::steady_clock;
  void run();
  void take(Recorder& recorder);
  Clock::duration span(double seconds) const;

  Options options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Clock::time_point last_look_{};  // zero: never
  bool woken_ = false, stopped_ = false;
  std::atomic<bool> asleep_{true};
  // The ring; sample number n (from 1) has the place (n - 1) % kMostSamples.
  std::vector<Field> fields_;
  boost::json::object facts_;
  std::vector<double> times_;
  std::vector<float> values_;
  std::uint64_t seq_ = 0;
  Clock::time_point last_sample_{};
  std::thread thread_;
};

// Families of the fields that have one, all of `families` said, with the sample's values.
void write_gauges(PrometheusText& text, std::span<const Family> families,
                  const std::optional<Sampler::Samples>& sample);

}  // namespace strata::telemetry
