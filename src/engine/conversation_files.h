// Conversations on the disk: points of them are saved to a folder, survive a restart, and are
// loaded when a prompt continues one.
//
// What callers may rely on
// - All functions may be called from any thread. None waits for the disk, but open() and flush().
// - What is loaded is bit for bit what was saved under exactly these tokens and this shape, or
//   the load fails: hashes find files and prove their content, tokens are compared.
// - Files that are damaged, cut, foreign, links or another model's are a miss and one line in the
//   log. Only files that begin as this program's own are ever removed.
// - Several processes may use one folder at a time, also with different models. Files appear whole
//   or not at all; what one removes while another wants it is a miss.
// - A page of cells that is full is stored once for all points that begin with its tokens. It is
//   taken for granted that cells depend on the model and the tokens before alone.
// - The budget counts all files of the folder that are ours, other models' too. The point whose
//   last use is the longest ago goes first, with the pages that no other point needs.
// - A disk that is full or fails costs what was to be saved and one line in the log; saving is
//   tried again after a while, loading goes on.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "engine/conversation_format.h"

namespace strata {

struct ConversationFilesOptions {
  std::string folder;
  std::uint64_t budget_bytes = 0;  // of the files
  ConversationShape shape;
  // Of states and pages that wait to be written. One point is always taken.
  std::uint64_t queue_bytes = std::uint64_t{2} << 30;
  std::chrono::milliseconds retry_after{60'000};  // after an error of the disk
  std::chrono::milliseconds rescan_after{1'000};  // how often other processes' files are looked for
  FileSystem* files = nullptr;                    // null: the machine's
};

struct ConversationFilesCounters {
  // Now.
  std::uint64_t points = 0, pages = 0;  // files of this model
  std::uint64_t bytes = 0;              // of all files of the folder that are ours
  std::uint64_t queued_bytes = 0;       // waiting to be written
  bool paused = false;                  // the disk failed; nothing is saved for a while
  // Since the start.
  std::uint64_t saved = 0, already_saved = 0, dropped = 0;
  std::uint64_t loaded = 0, missed = 0, damaged = 0;  // loads; damaged ones are missed, too
  std::uint64_t evicted = 0;                          // points
  std::uint64_t written_bytes = 0, read_bytes = 0;
};

// A point that is being read. Dropping it cancels the load; once that has returned, `wake` does
// not run and will not.
class ConversationLoad {
 public:
  explicit ConversationLoad(std::shared_ptr<struct ConversationLoadTask> task);
  ~ConversationLoad();
  ConversationLoad(const ConversationLoad&) = delete;
  ConversationLoad& operator=(const ConversationLoad&) = delete;

  std::uint32_t tokens() const;  // of the point
  bool ready() const;
  // The point, once; `unavailable` before ready(). An error says what was wrong with it. It is
  // forgotten then, so that the next load of the same prompt looks for a shorter one.
  Result<SavedPoint> take();

 private:
  std::shared_ptr<ConversationLoadTask> task_;
};

class ConversationFiles {
 public:
  // Makes the folder, for this user alone, and looks through it. An error says why the folder or
  // an option cannot be used.
  static Result<std::unique_ptr<ConversationFiles>> open(const ConversationFilesOptions& options);
  ~ConversationFiles();  // what is not written yet is lost: flush() first
  ConversationFiles(const ConversationFiles&) = delete;
  ConversationFiles& operator=(const ConversationFiles&) = delete;

  // Returns at once. Not saved, but counted as dropped, is what does not fit the queue or the
  // budget or comes while the disk fails. Of a point that is saved already only the last use is
  // noted. Pages must not change any more.
  void save(SavedPoint point);

  // Tokens of the longest saved point that begins `prompt` and leaves at least one token of it;
  // 0 if there is none. From memory.
  std::uint32_t longest(std::span<const TokenId> prompt) const;

  // Begins to read that point. `wake` is called once, when it is ready, from a thread of this
  // class and perhaps before this returns; if nothing is read (there is no such point, or too much
  // waits) the load is ready at once, without a call. `wake` must do no more than wake somebody,
  // and must not drop the load.
  std::unique_ptr<ConversationLoad> load(std::span<const TokenId> prompt,
                                         std::function<void()> wake);

  // Removes the point of exactly these tokens, soon.
  void forget(std::span<const TokenId> tokens);

  // Waits until all that was saved so far is written (or dropped). False when `limit` has passed.
  bool flush(std::chrono::milliseconds limit);

  ConversationFilesCounters counters() const;

 private:
  struct Parts;
  explicit ConversationFiles(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace strata
