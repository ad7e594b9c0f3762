// One line that says how far a long job is: on standard error where that is a terminal, written
// over and gone when the job is done. The only progress display of the program.
//
//   reading the weights  [########............]  41 %  2.5 of 6.1 GB  1.2 GB/s  0:03 left
//
// What has no room is left out, the bar first. Jobs that take less than kPatience show nothing,
// except those of which nobody knows how long they are (0 of 0 done).
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "terminal/screen.h"

namespace strata::terminal {

enum class Unit : std::uint8_t { items, tokens, bytes };

// How far a job is.
struct Stage {
  std::string what;  // "reading the prompt"
  Unit unit = Unit::items;
  std::uint64_t done = 0, all = 0;  // all = 0: nobody knows
  std::uint64_t first = 0;          // what was done before it began
  double seconds = 0;               // since then
  std::string note;                 // what it is at: "blk.3.ffn_up"
};
// The line, in at most so many columns.
std::string progress_line(const Stage& stage, int columns);

class Progress {
 public:
  static constexpr double kPatience = 0.3;  // seconds
  static constexpr double kPause = 0.1;     // between two lines

  // Where lines go; tests have their own.
  struct Output {
    std::function<void(std::string_view)> write;  // empty: nothing is shown
    Columns columns;
    std::function<double()> clock;  // seconds
  };
  // Standard error if it is a terminal and `wanted`.
  static Output standard_error(bool wanted);

  Progress(Output output, std::string what, Unit unit);
  Progress(bool wanted, std::string what, Unit unit = Unit::items)
      : Progress(standard_error(wanted), std::move(what), unit) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // From any thread. The first call begins the job.
  void update(std::uint64_t done, std::uint64_t all, std::string_view note = {});
  // The next job begins with the next update.
  void next(std::string what, Unit unit = Unit::items);
  // Takes the line away.
  void clear();

 private:
  std::mutex mutex_;
  Output output_;
  Stage stage_;
  bool begun_ = false, shown_ = false;
  double start_ = 0, last_ = 0;
};

}  // namespace strata::terminal
