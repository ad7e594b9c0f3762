#include "telemetry/sampler.h"

#include <pthread.h>

#include <algorithm>

#include "base/clock.h"

namespace strata::telemetry {

Recorder::Recorder(Sources sources) : sources_(std::move(sources)) {
  for (const auto& source : sources_) {
    fields_.insert(fields_.end(), source->fields().begin(), source->fields().end());
    source->add_facts(facts_);
  }
  values_.resize(fields_.size(), kUnknown);
}

void Recorder::sample(double time, double now) {
  const double passed = last_ ? now - *last_ : 0;
  const double seconds = passed > 0 && passed <= kMostSpan ? passed : 0;
  last_ = now;
  time_ = time;
  std::fill(values_.begin(), values_.end(), kUnknown);
  std::span<double> rest(values_);
  for (const auto& source : sources_) {
    const std::size_t size = source->fields().size();
    source->read(seconds, rest.first(size));
    rest = rest.subspan(size);
  }
}

void Recorder::rest() {
  for (const auto& source : sources_) source->rest();
}

Sampler::Sampler(Options options) : options_(std::move(options)) {
  thread_ = std::thread([this] { run(); });
}

Sampler::~Sampler() {
  stop();
}

void Sampler::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Sampler::look() {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  // While it is looked at anyway there is nothing to wake.
  const bool slow = last_look_ == Clock::time_point{} || now - last_look_ > span(kLookSeconds);
  last_look_ = now;
  if (!slow) return;
  woken_ = true;
  wake_.notify_all();
}

void Sampler::stir() {
  if (!asleep_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  woken_ = true;
  wake_.notify_all();
}

Sampler::Clock::duration Sampler::span(double seconds) const {
  return std::chrono::duration_cast<Clock::duration>(options_.second * seconds);
}

void Sampler::run() {
#ifdef __linux__
  ::pthread_setname_np(::pthread_self(), "sampler");
#endif
  std::optional<Recorder> recorder;  // made when it is first needed: it may open libraries
  std::unique_lock lock(mutex_);
  Clock::time_point next = Clock::now();
  while (!stopped_) {
    const bool looked =
        last_look_ != Clock::time_point{} && Clock::now() - last_look_ <= span(kLookSeconds);
    if (!looked && !woken_) {
      asleep_ = true;  // first, so that work which begins meanwhile wakes it
      lock.unlock();
      const bool work = options_.busy && options_.busy();
      if (!work && recorder) recorder->rest();
      lock.lock();
      if (!work) wake_.wait(lock, [&] { return woken_ || stopped_; });
      if (stopped_) break;
    }
    asleep_ = woken_ = false;
    lock.unlock();
    if (!recorder) recorder.emplace(options_.sources());
    take(*recorder);
    lock.lock();
    const bool fast =
        last_look_ != Clock::time_point{} && Clock::now() - last_look_ <= span(kLookSeconds);
    // Steps of one length; after a delay they begin anew.
    const Clock::duration step = span(fast ? 1 : kSlowSeconds);
    const Clock::time_point now = Clock::now();
    next = next + step > now && next + step <= now + step ? next + step : now + step;
    wake_.wait_until(lock, next, [&] { return woken_ || stopped_; });
  }
}

void Sampler::take(Recorder& recorder) {
  const double time =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  recorder.sample(time, monotonic_seconds());
  const std::lock_guard lock(mutex_);
  const std::size_t width = recorder.fields().size();
  if (seq_ == 0) {
    fields_ = recorder.fields();
    facts_ = recorder.facts();
  }
  const auto place = static_cast<std::size_t>(seq_ % kMostSamples);
  if (times_.size() <= place) {
    times_.resize(place + 1);
    values_.resize((place + 1) * width);
  }
  times_[place] = time;
  std::transform(recorder.values().begin(), recorder.values().end(),
                 values_.begin() + static_cast<std::ptrdiff_t>(place * width),
                 [](double value) { return static_cast<float>(value); });
  ++seq_;
  last_sample_ = Clock::now();
}

Sampler::Samples Sampler::since(std::uint64_t seq) const {
  const std::lock_guard lock(mutex_);
  Samples samples{seq_, fields_, facts_, {}, {}};
  // A number from another run of the server: everything.
  if (seq > seq_) seq = 0;
  const std::uint64_t kept = std::min<std::uint64_t>(seq_ - seq, times_.size());
  for (std::uint64_t number = seq_ - kept; number < seq_; ++number) {
    const auto place = static_cast<std::size_t>(number % kMostSamples);
    samples.times.push_back(times_[place]);
    const auto begin = values_.begin() + static_cast<std::ptrdiff_t>(place * fields_.size());
    samples.values.insert(samples.values.end(), begin,
                          begin + static_cast<std::ptrdiff_t>(fields_.size()));
  }
  return samples;
}

std::optional<Sampler::Samples> Sampler::latest() const {
  std::uint64_t seq = 0;
  {
    const std::lock_guard lock(mutex_);
    if (seq_ == 0 || Clock::now() - last_sample_ > span(kMostSpan)) return std::nullopt;
    seq = seq_;
  }
  return since(seq - 1);
}

void write_gauges(PrometheusText& text, std::span<const Family> families,
                  const std::optional<Sampler::Samples>& sample) {
  for (const Family& family : families) {
    text.family(family.name, "gauge", family.help);
    if (!sample || sample->times.empty()) continue;
    const std::size_t first = (sample->times.size() - 1) * sample->fields.size();
    for (std::size_t i = 0; i < sample->fields.size(); ++i) {
      const Field& field = sample->fields[i];
      if (field.metric == family.name)
        text.sample(field.labels, static_cast<float>(field.scale) * sample->values[first + i]);
    }
  }
}

}  // namespace strata::telemetry
