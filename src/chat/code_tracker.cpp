#include "chat/code_tracker.h"

namespace strata::chat {

namespace {

constexpr std::string_view kQuoteMarks = " \t\r>";
constexpr std::string_view kLineMarks = " \t\r>-*+.)0123456789";  // quotes and lists
constexpr std::size_t kFence = 3;

}  // namespace

void CodeTracker::feed(std::string_view text) {
  for (const char c : text) step(c);
}

void CodeTracker::step(char c) {
  if (run_ > 0 && c == run_char_) {
    ++run_;
    return;
  }
  if (run_ > 0) end_run();
  if (c == '\n') return end_line();
  const bool escaped = escaped_;
  escaped_ = c == '\\' && !escaped && fence_ == 0 && span_ == 0;
  if ((c == '`' && !escaped) || (c == '~' && line_start_)) {
    run_char_ = c;
    run_ = 1;
    run_starts_line_ = fence_ > 0 ? only_quoted_ : line_start_;
    line_start_ = only_quoted_ = only_blanks_ = false;
    return;
  }
  const bool blank = c == ' ' || c == '\t' || c == '\r';
  fence_close_ = fence_close_ && blank;
  only_blanks_ = only_blanks_ && blank;
  only_quoted_ = only_quoted_ && kQuoteMarks.find(c) != std::string_view::npos;
  line_start_ = line_start_ && kLineMarks.find(c) != std::string_view::npos;
}

void CodeTracker::end_run() {
  const std::size_t run = run_;
  if (fence_ > 0 && !fence_line_) {
    fence_close_ = run_closes_fence();
  } else if (fence_ == 0 && run_starts_line_ && run >= kFence) {
    fence_char_ = run_char_;
    fence_ = run;
    fence_line_ = true;
  } else if (run_char_ == '`') {
    if (fence_ > 0 && fence_char_ == '`') {
      // Backticks behind those that start the line: it was a span, not a fence.
      span_ = fence_;
      fence_ = 0;
    }
    if (fence_ == 0) span_ = span_ == 0 ? run : span_ == run ? 0 : span_;
  }
  run_ = 0;
}

void CodeTracker::end_line() {
  if (fence_close_) fence_ = 0;
  fence_line_ = fence_close_ = false;
  span_ = 0;
  line_start_ = only_quoted_ = only_blanks_ = true;
  escaped_ = false;
}

bool CodeTracker::in_code() const {
  CodeTracker now = *this;
  if (now.run_ > 0) now.end_run();
  return (now.fence_ > 0 && !now.fence_close_) || now.span_ > 0;
}

}  // namespace strata::chat
