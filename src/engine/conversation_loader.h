// Reads saved points: a few threads that share the files of one load after another. Internal to the
// engine.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/conversation_format.h"

namespace strata {

// One load on its way.
struct ConversationLoadTask {
  Hash128 id;
  std::vector<TokenId> tokens;    // the point's
  std::vector<Hash128> page_ids;  // its full pages
  std::size_t files() const { return page_ids.size() + 1; }

  std::atomic<bool> cancelled = false;
  std::atomic<bool> done = false;  // from then on nobody but the one who asked looks at `point`

  // Of the loader, behind its mutex.
  std::size_t begun = 0, ended = 0;

  std::mutex mutex;  // of all that follows
  SavedPoint point;
  // The first file that could not be had; which of them, unless the loader itself has ended.
  std::optional<ConversationName> faulty;
  std::optional<Error> error;
  std::function<void()> wake;
};

class ConversationLoader {
 public:
  static constexpr std::size_t kReaders = 4;
  static constexpr std::size_t kMaxLoads = 64;  // waiting

  // Called on a reader's thread when a load has ended that nobody cancelled, before its `wake`.
  using Ended = std::function<void(const ConversationLoadTask& task)>;

  ConversationLoader(FileSystem& files, std::string folder, const ConversationShape& shape,
                     Ended ended);
  ~ConversationLoader();  // loads that have not ended end as `unavailable`
  ConversationLoader(const ConversationLoader&) = delete;
  ConversationLoader& operator=(const ConversationLoader&) = delete;

  Status start(std::shared_ptr<ConversationLoadTask> task);

 private:
  void run();
  void read(ConversationLoadTask& task, std::size_t file);
  Status read_file(ConversationLoadTask& task, const ConversationName& name, std::size_t file);
  void finish(ConversationLoadTask& task);

  FileSystem& files_;
  const std::string folder_;
  const ConversationShape shape_;
  const Ended ended_;

  std::mutex mutex_;
  std::condition_variable work_;
  bool stopping_ = false;
  std::deque<std::shared_ptr<ConversationLoadTask>> tasks_;  // with files that nobody has begun
  std::vector<std::thread> readers_;
};

}  // namespace strata
