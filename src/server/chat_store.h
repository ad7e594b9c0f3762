// Chats of web pages and other clients that keep their conversations here: an SQLite database, in
// memory or in a file, searched by words. Thread safe.
//
// What callers may rely on
// - A chat is found by its owner only. Nothing is ever dropped to make room: what does not fit the
//   bounds is refused, and what was there stays as it was.
// - A change names the version it was made from; one that is not the current one changes nothing.
// - Any text may be searched for; none is an error.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace strata::server {

class Database;

struct ChatLimits {
  std::uint64_t chats = 10'000;
  std::uint64_t bytes = std::uint64_t{256} << 20;  // titles, contents, and the texts in them
};

struct StoredChat {
  std::string id;
  std::string title;
  std::string content;  // JSON; lists leave it out
  std::string snippet;  // of lists: where the search hit, else how the chat begins
  std::int64_t created = 0, updated = 0;  // seconds since 1970
  std::int64_t version = 1;
};

class ChatStore {
 public:
  // An empty path: in memory.
  static Result<std::unique_ptr<ChatStore>> open(const std::string& path, ChatLimits limits = {});
  ~ChatStore();

  // What a client wants to be kept; `text` is what of it is searched.
  struct Wish {
    std::optional<std::string> title;
    std::optional<std::string> content;
    std::string text;
  };
  Result<StoredChat> add(const std::string& owner, const Wish& wish, std::int64_t now);
  Result<StoredChat> get(const std::string& owner, const std::string& id);  // not_found
  // What the wish leaves out stays. A conflict: `version` was not the current one, nothing is
  // changed, and the chat is as it is.
  struct Change {
    StoredChat chat;
    bool conflict = false;
  };
  Result<Change> change(const std::string& owner, const std::string& id, std::int64_t version,
                        const Wish& wish, std::int64_t now);
  Status remove(const std::string& owner, const std::string& id);
  // The last changed first, after the chat `after` (not_found) if that is not empty. With words,
  // those that have a word beginning with each of them.
  struct Page {
    std::vector<StoredChat> chats;
    bool more = false;
  };
  Result<Page> list(const std::string& owner, const std::vector<std::string>& words,
                    std::size_t limit, const std::string& after);

 private:
  ChatStore(std::unique_ptr<Database> database, ChatLimits limits);
  struct Row;
  Result<Row> find(const std::string& owner, const std::string& id);
  Status check_room(std::uint64_t bytes, std::uint64_t instead_of, bool one_more);
  Status write(const Row& row, const std::string& owner, const Wish& wish);
  template <class Work>
  auto transaction(Work work) -> decltype(work());
  std::string snippet(std::int64_t number, const std::string& match);

  std::mutex mutex_;
  std::unique_ptr<Database> database_;
  ChatLimits limits_;
};

// The words of a search: what stands between spaces and signs.
std::vector<std::string> search_words(std::string_view query);

}  // namespace strata::server
