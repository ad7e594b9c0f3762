#include "terminal/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/clock.h"
#include "terminal/text.h"

namespace strata::terminal {
namespace {

constexpr int kBar = 20;

// "2.5", "250": three digits, or all of a whole number.
std::string short_number(double value) {
  return value < 10 ? fmt::format("{:.2f}", value)
                    : (value < 100 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value));
}

struct Scale {
  double size;
  const char* name;
};
Scale scale_of(double bytes) {
  if (bytes >= 1e9) return {1e9, "GB"};
  if (bytes >= 1e6) return {1e6, "MB"};
  return {1e3, "kB"};
}

std::string amount(const Stage& s) {
  if (s.unit != Unit::bytes) {
    const std::string all = s.all > 0 ? fmt::format(" of {}", s.all) : std::string();
    return fmt::format("{}{}{}", s.done, all, s.unit == Unit::tokens ? " tokens" : "");
  }
  const Scale scale = scale_of(double(std::max(s.all, s.done)));
  const std::string done = short_number(double(s.done) / scale.size);
  if (s.all == 0) return fmt::format("{} {}", done, scale.name);
  return fmt::format("{} of {} {}", done, short_number(double(s.all) / scale.size), scale.name);
}

double rate_of(const Stage& s) {
  return s.seconds > 0 && s.done > s.first ? double(s.done - s.first) / s.seconds : 0;
}

std::string rate_text(const Stage& s) {
  const double rate = rate_of(s);
  if (rate <= 0 || s.unit == Unit::items) return {};
  if (s.unit == Unit::tokens) return short_number(rate) + " tokens/s";
  const Scale scale = scale_of(rate);
  return fmt::format("{} {}/s", short_number(rate / scale.size), scale.name);
}

std::string time_left(const Stage& s) {
  constexpr double kKnown = 1;  // second, before which a guess is worth nothing
  constexpr double kMost = 100 * 3600.0;
  const double rate = rate_of(s);
  if (rate <= 0 || s.seconds < kKnown || s.all <= s.done) return {};
  const double seconds = double(s.all - s.done) / rate;
  if (seconds > kMost) return {};
  const auto whole = static_cast<unsigned>(seconds + 0.5);
  if (whole >= 3600)
    return fmt::format("{}:{:02}:{:02} left", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02} left", whole / 60, whole % 60);
}

std::string bar(const Stage& s) {
  const auto full =
      static_cast<std::size_t>(std::min<double>(kBar, kBar * double(s.done) / double(s.all)));
  return fmt::format("[{}{}]", std::string(full, '#'), std::string(kBar - full, '.'));
}

}  // namespace

std::string progress_line(const Stage& s, int columns) {
  struct Part {
    int worth;  // the least goes first
    std::string text;
  };
  std::vector<Part> parts;
  const auto add = [&](int worth, std::string text) {
    if (!text.empty()) parts.push_back({worth, std::move(text)});
  };
  add(9, safe_line(s.what));
  if (s.all > 0) {
    add(2, bar(s));
    add(8, fmt::format("{:>2.0f} %", std::min(100.0, 100 * double(s.done) / double(s.all))));
  }
  if (s.all > 0 || s.done > 0) add(5, amount(s));
  add(4, rate_text(s));
  add(6, time_left(s));
  add(3, safe_line(s.note));
  const auto width = [&] {
    int sum = -2;
    for (const Part& part : parts) sum += 2 + width_of(part.text);
    return sum;
  };
  const auto less = [](const Part& a, const Part& b) { return a.worth < b.worth; };
  while (parts.size() > 1 && width() > columns)
    parts.erase(std::min_element(parts.begin(), parts.end(), less));
  std::string line;
  for (const Part& part : parts) line += (line.empty() ? "" : "  ") + part.text;
  return fitting(line, columns);
}

Progress::Output Progress::standard_error(bool wanted) {
  if (!wanted || !screen_of(STDERR_FILENO).moves) return {};
  return {.write =
              [](std::string_view text) {
                std::fflush(stdout);  // what was said before stands before
                std::fwrite(text.data(), 1, text.size(), stderr);
                std::fflush(stderr);
              },
          .columns = [] { return columns_of(STDERR_FILENO); },
          .clock = monotonic_seconds};
}

Progress::Progress(Output output, std::string what, Unit unit) : output_(std::move(output)) {
  stage_.what = std::move(what);
  stage_.unit = unit;
}

void Progress::next(std::string what, Unit unit) {
  const std::lock_guard lock(mutex_);
  stage_ = {};
  stage_.what = std::move(what);
  stage_.unit = unit;
  begun_ = false;
}

void Progress::update(std::uint64_t done, std::uint64_t all, std::string_view note) {
  if (!output_.write) return;
  const std::lock_guard lock(mutex_);
  const double now = output_.clock();
  if (!begun_) {
    begun_ = true;
    start_ = now;
    const bool told = all > 0 || done > 0;  // else it is only said that it has begun
    last_ = shown_ ? last_ : told ? now + kPatience - kPause : now - kPause;
    stage_.first = done;
  }
  stage_.done = std::max(stage_.done, done);  // threads may overtake each other
  stage_.all = all;
  stage_.note = note;
  stage_.seconds = now - start_;
  if (now < last_ + kPause) return;
  last_ = now;
  shown_ = true;
  output_.write(fmt::format("\r\x1b[K{}", progress_line(stage_, output_.columns() - 1)));
}

void Progress::clear() {
  const std::lock_guard lock(mutex_);
  if (shown_) output_.write("\r\x1b[K");
  shown_ = false;
}

}  // namespace strata::terminal
