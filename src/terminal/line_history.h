// What was typed before, kept in a file that only its owner may read: one entry a line, line breaks
// and backslashes in it as \n and \\. Several programs may append to it at once.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace strata::terminal {

class LineHistory {
 public:
  static constexpr std::size_t kMostEntries = 1000;          // that are remembered
  static constexpr std::size_t kMostBytes = 8u << 20;        // of the file that are read, its end
  static constexpr std::size_t kMostEntryBytes = 64u << 10;  // longer entries are not kept

  // Reads what is there. An empty path: nothing is kept.
  static Result<LineHistory> open(std::string path);

  // $XDG_STATE_HOME/strata/history, else ~/.local/state/strata/history; empty without a home.
  static std::string usual_path(const std::function<const char*(const char*)>& environment);

  // The oldest first.
  const std::vector<std::string>& entries() const { return entries_; }
  // Not what begins with a space, nor what is the last entry already.
  Status add(const std::string& text);

 private:
  std::string path_;
  std::vector<std::string> entries_;
};

}  // namespace strata::terminal
