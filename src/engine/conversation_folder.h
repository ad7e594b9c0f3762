// The folder of saved conversations as one thread changes it: looking for files, writing points,
// making room. What it finds is in an index that other threads read. Internal to the engine.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine/conversation_files.h"
#include "engine/conversation_index.h"

namespace strata {

// What all threads see.
struct ConversationCatalog {
  explicit ConversationCatalog(const ConversationShape& shape) : index(shape) {}
  std::mutex mutex;
  ConversationIndex index;
  ConversationFilesCounters counters;  // those since the start
};

// Nanoseconds since 1970, as files have it.
std::int64_t calendar_now();

class ConversationFolder {
 public:
  // Points of this program that are looked at in one folder at most.
  static constexpr std::size_t kMaxPoints = std::size_t{1} << 16;
  // Files that nobody has finished, and pages without a point, are removed when they are so old:
  // somebody may still be at work.
  static constexpr std::chrono::hours kAbandoned{1};

  ConversationFolder(const ConversationFilesOptions& options, ConversationCatalog& catalog,
                     const std::atomic<bool>& stopping);

  // Makes the folder, tries to write and looks through it.
  Status open();

  // Looks for what other processes have changed, if anything did. One line in the log for all that
  // cannot be used.
  Status scan();

  // A whole point. Null pages must lie in the folder. `exhausted` if there is no room for it.
  Status write(const SavedPoint& point);
  void touch(const Hash128& point);
  void remove_point(const Hash128& id);
  // Removes a damaged file, if it is ours and has not been replaced by a good one.
  void discard(const ConversationName& name);

 private:
  struct Temporary;
  struct NewPage;

  std::string path_of(const std::string& name) const { return options_.folder + "/" + name; }
  Result<Temporary> create();
  Result<std::vector<Hash128>> ids_of(const SavedPoint& point);
  Status write_files(const SavedPoint& point, const std::vector<Hash128>& ids);
  Status write_pages(std::vector<NewPage> pages);
  Status make_room(std::uint64_t room);
  Status evict(const Hash128& id);
  void remove_unneeded_pages();
  void refresh_last_uses();

  void forget_vanished(const std::vector<std::string>& names);
  void look_at(const std::string& name, std::int64_t now);
  void look_at_temporary(const std::string& name, std::int64_t now);
  Status look_at_page(const Hash128& id, std::int64_t now);
  Status look_at_point(const Hash128& id, std::int64_t now);

  const ConversationFilesOptions& options_;
  FileSystem& files_;
  ConversationCatalog& catalog_;
  const std::atomic<bool>& stopping_;

  std::uint64_t next_temporary_;
  std::int64_t scanned_ = 0;    // what the folder's time of change was then
  std::int64_t last_scan_ = 0;  // when
  std::int64_t last_refresh_ = 0;
  std::set<std::string, std::less<>> ignored_;  // names that are not ours to use or remove
  // Of the scan that is under way.
  std::size_t unusable_ = 0;
  std::size_t foreign_ = 0;  // points of other shapes, since the start
  std::string first_unusable_;
};

}  // namespace strata
