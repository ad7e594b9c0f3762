// A line from a person at a terminal, with editing, history and completion: libedit, in emacs keys.
//
// - Ctrl-C gives the line up, Ctrl-D on an empty one ends, Ctrl-R searches the history, Alt-Enter
//   breaks the line; what is pasted (bracketed paste) arrives as one text, its line breaks too.
// - Letters are UTF-8 whatever the locale says; if there is none at all, bytes are shown as
// numbers.
// - The terminal is in its usual mode whenever read() is not running.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "terminal/screen.h"

namespace strata::terminal {

// What may stand in place of the line's text from `from` up to the cursor.
struct Completions {
  std::size_t from = 0;  // bytes
  std::vector<std::string> texts;
  bool space = true;  // comes behind the only one
};
using Complete = std::function<Completions(std::string_view line_to_cursor)>;

struct Line {
  enum class End { entered, interrupted, closed };
  End end = End::entered;
  std::string text;  // of `entered`
};

class LineEditor {
 public:
  static constexpr std::size_t kMostPasted = 1u << 20;  // characters; the rest is dropped

  static Result<std::unique_ptr<LineEditor>> open(const Screen& screen, Complete complete);
  virtual ~LineEditor() = default;

  // `start` stands in the line already. Only for terminals on standard input and output.
  virtual Line read(const std::string& prompt, const std::string& start = {}) = 0;
  // For the arrow keys and Ctrl-R.
  virtual void remember(const std::string& text) = 0;
};

}  // namespace strata::terminal
