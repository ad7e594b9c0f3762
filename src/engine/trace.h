// What every round did, as JSON lines (docs/trace.md): for finding out where time goes, and for
// proving that two runs did the same work.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/file.h"
#include "engine/job.h"

namespace strata {

class Trace {
 public:
  // Anew, or behind what an engine before has left.
  static Result<std::unique_ptr<Trace>> open(FileSystem& files, const std::string& path,
                                             bool append = false);
  ~Trace();

  struct Round {
    std::uint64_t number = 0;
    std::uint32_t rows = 0;         // of the window, T
    std::uint32_t prompt_rows = 0;  // of them
    double draft_seconds = 0, window_seconds = 0, sample_seconds = 0;
    ExpertCounters experts = {};  // of this round
  };
  // One request's part: its rows and, when it decodes, what was guessed and how much was right.
  struct Part {
    RequestId request = 0;
    std::uint32_t position = 0;  // tokens read before
    std::uint32_t rows = 0;
    bool decoding = false;
    std::span<const TokenId> guesses;
    std::span<const GuessKind> kinds;
    std::uint32_t accepted = 0;
    bool trial = false;
  };
  void part(const Part& part);
  void round(const Round& round);  // after its parts
  void flush() { write(); }        // what was said so far stands in the file then

 private:
  explicit Trace(std::unique_ptr<OutputFile> file) : file_(std::move(file)) {}
  void write();

  std::unique_ptr<OutputFile> file_;  // null after a failure
  std::string parts_, lines_;
};

}  // namespace strata
