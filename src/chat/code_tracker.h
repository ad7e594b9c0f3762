// Knows whether the end of a growing Markdown text stands in code: inside a fence (``` or ~~~) or
// an inline span. What looks like a call or a think block there is an example.
//
// A fence starts a line, behind indentation, block quote and list marks at most, and lasts to a
// line of at least as many of its marks. An inline span lasts to a run of as many backticks, and
// never longer than its line: a stray backtick must not swallow what follows.
#pragma once

#include <cstddef>
#include <string_view>

namespace strata::chat {

class CodeTracker {
 public:
  void feed(std::string_view text);
  bool in_code() const;
  // Nothing but blanks stands in the line so far.
  bool at_line_start() const { return only_blanks_; }
  void reset() { *this = {}; }

 private:
  void step(char c);
  void end_run();
  void end_line();
  bool run_closes_fence() const {
    return run_starts_line_ && run_char_ == fence_char_ && run_ >= fence_;
  }

  char fence_char_ = 0;
  std::size_t fence_ = 0;     // marks of the open fence, 0: none
  bool fence_line_ = false;   // this line opened it
  bool fence_close_ = false;  // this line closes it, if nothing else follows
  std::size_t span_ = 0;      // backticks of the open span, 0: none
  char run_char_ = 0;
  std::size_t run_ = 0;  // marks in a row at the end of the text
  bool run_starts_line_ = false;
  bool line_start_ = true;  // only marks of quotes and lists so far
  bool only_blanks_ = true;
  bool only_quoted_ = true;  // only blanks and '>' so far
  bool escaped_ = false;     // behind a backslash
};

}  // namespace strata::chat
