#include "server/chat_store.h"

#include <algorithm>

#include "server/answer_json.h"
#include "server/sqlite.h"

namespace strata::server {

namespace {

constexpr Database::Kind kKind = {"the store of chats", 0x53747263, 1};  // "Strc"
constexpr std::size_t kSnippetBytes = 240;
constexpr int kSnippetWords = 16;

// `turn` orders by the last change; `number` is the row of the words.
constexpr const char* kTables =
    "CREATE TABLE IF NOT EXISTS chats (number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, "
    "owner TEXT NOT NULL, turn INTEGER NOT NULL, title TEXT NOT NULL, content TEXT NOT NULL, "
    "created INTEGER NOT NULL, updated INTEGER NOT NULL, version INTEGER NOT NULL, "
    "bytes INTEGER NOT NULL);"
    "CREATE INDEX IF NOT EXISTS by_turn ON chats(owner, turn);"
    "CREATE INDEX IF NOT EXISTS by_bytes ON chats(bytes);"
    "CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(title, text, "
    "tokenize='unicode61 remove_diacritics 2');";

tl::unexpected<Error> missing(const std::string& id) {
  return fail(ErrorCode::not_found, "there is no chat '{}'", id.substr(0, 100));
}

// On one line, cut between characters.
std::string line_of(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  if (text.size() <= kSnippetBytes) return text;
  std::size_t end = kSnippetBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

// Of the search's own language only what is written here.
std::string match_of(const std::vector<std::string>& words) {
  std::string match;
  for (const std::string& word : words) match += fmt::format("\"{}\"* ", word);
  return match;
}

}  // namespace

std::vector<std::string> search_words(std::string_view query) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : query) {
    const bool letter = static_cast<unsigned char>(c) >= 0x80 || (c >= '0' && c <= '9') ||
                        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter) {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::exchange(word, {}));
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

struct ChatStore::Row {
  std::int64_t number = 0;
  std::uint64_t bytes = 0;
  StoredChat chat;
};

ChatStore::ChatStore(std::unique_ptr<Database> database, ChatLimits limits)
    : database_(std::move(database)), limits_(limits) {}
ChatStore::~ChatStore() = default;

Result<std::unique_ptr<ChatStore>> ChatStore::open(const std::string& path, ChatLimits limits) {
  STRATA_ASSIGN(auto database, Database::open(path, kKind));
  STRATA_TRY(database->execute(kTables));
  STRATA_TRY(database->commit());
  return std::unique_ptr<ChatStore>(new ChatStore(std::move(database), limits));
}

// All of it or nothing.
template <class Work>
auto ChatStore::transaction(Work work) -> decltype(work()) {
  if (auto begun = database_->execute("BEGIN IMMEDIATE"); !begun) {
    return tl::unexpected<Error>(begun.error());
  }
  auto result = work();
  if (result) {
    if (auto done = database_->execute("COMMIT"); !done) {
      result = tl::unexpected<Error>(done.error());
    }
  }
  // Some errors have ended the transaction already; then this one says so, and nothing is wrong.
  if (!result) (void)database_->execute("ROLLBACK");
  return result;
}

Result<ChatStore::Row> ChatStore::find(const std::string& owner, const std::string& id) {
  Statement get(*database_,
                "SELECT number,bytes,title,content,created,updated,version FROM chats "
                "WHERE id=? AND owner=?");
  const int status = get.bind(id).bind(owner).step();
  if (status == SQLITE_DONE) return missing(id);
  if (status != SQLITE_ROW) return database_->failure();
  return Row{
      get.number(0), static_cast<std::uint64_t>(get.number(1)),
      StoredChat{id, get.text(2), get.text(3), "", get.number(4), get.number(5), get.number(6)}};
}

Status ChatStore::check_room(std::uint64_t bytes, std::uint64_t instead_of, bool one_more) {
  Statement sum(*database_, "SELECT COUNT(*), COALESCE(SUM(bytes),0) FROM chats");
  if (sum.step() != SQLITE_ROW) return database_->failure();
  const auto chats = static_cast<std::uint64_t>(sum.number(0));
  const std::uint64_t others = static_cast<std::uint64_t>(sum.number(1)) - instead_of;
  if (one_more && chats >= limits_.chats) {
    return fail(ErrorCode::exhausted,
                "{} chats are kept, the limit (chats_max); delete some that are not needed", chats);
  }
  if (others + bytes > limits_.bytes) {
    return fail(ErrorCode::exhausted,
                "the chats that are kept take {} bytes and this one {}, together more than the "
                "limit of {} (chats_mib); delete some that are not needed",
                others, bytes, limits_.bytes);
  }
  return {};
}

// The row's chat with what the wish changes, and its words.
Status ChatStore::write(const Row& row, const std::string& owner, const Wish& wish) {
  {
    Statement put(*database_,
                  "INSERT INTO chats(number,id,owner,turn,title,content,created,updated,version,"
                  "bytes) VALUES(?,?,?,(SELECT COALESCE(MAX(turn),0)+1 FROM chats),?,?,?,?,?,?) "
                  "ON CONFLICT(number) DO UPDATE SET turn=excluded.turn, title=excluded.title, "
                  "content=excluded.content, updated=excluded.updated, version=excluded.version, "
                  "bytes=excluded.bytes");
    const StoredChat& chat = row.chat;
    put.bind(row.number).bind(chat.id).bind(owner).bind(chat.title).bind(chat.content);
    put.bind(chat.created).bind(chat.updated).bind(chat.version);
    if (put.bind(static_cast<std::int64_t>(row.bytes)).step() != SQLITE_DONE) {
      return database_->failure();
    }
  }
  if (!wish.content) {
    Statement words(*database_, "UPDATE words SET title=? WHERE rowid=?");
    if (words.bind(row.chat.title).bind(row.number).step() != SQLITE_DONE) {
      return database_->failure();
    }
    return {};
  }
  Statement words(*database_, "INSERT OR REPLACE INTO words(rowid,title,text) VALUES(?,?,?)");
  words.bind(row.number).bind(row.chat.title).bind(wish.text);
  if (words.step() != SQLITE_DONE) return database_->failure();
  return {};
}

Result<StoredChat> ChatStore::add(const std::string& owner, const Wish& wish, std::int64_t now) {
  const std::lock_guard lock(mutex_);
  return transaction([&]() -> Result<StoredChat> {
    Row row;
    row.chat = {
        new_id("chat_"), wish.title.value_or(""), wish.content.value_or("{}"), "", now, now, 1};
    row.bytes = row.chat.title.size() + row.chat.content.size() + wish.text.size();
    STRATA_TRY(check_room(row.bytes, 0, true));
    {
      Statement next(*database_, "SELECT COALESCE(MAX(number),0)+1 FROM chats");
      if (next.step() != SQLITE_ROW) return database_->failure();
      row.number = next.number(0);
    }
    STRATA_TRY(write(row, owner, {wish.title, row.chat.content, wish.text}));
    return std::move(row.chat);
  });
}

Result<StoredChat> ChatStore::get(const std::string& owner, const std::string& id) {
  const std::lock_guard lock(mutex_);
  STRATA_ASSIGN(Row row, find(owner, id));
  return std::move(row.chat);
}

Result<ChatStore::Change> ChatStore::change(const std::string& owner, const std::string& id,
                                            std::int64_t version, const Wish& wish,
                                            std::int64_t now) {
  const std::lock_guard lock(mutex_);
  return transaction([&]() -> Result<Change> {
    STRATA_ASSIGN(Row row, find(owner, id));
    StoredChat& chat = row.chat;
    if (chat.version != version) return Change{std::move(chat), true};
    const std::uint64_t before = row.bytes;
    const std::uint64_t text = before - chat.title.size() - chat.content.size();
    if (wish.title) chat.title = *wish.title;
    if (wish.content) chat.content = *wish.content;
    chat.updated = now;
    ++chat.version;
    row.bytes = chat.title.size() + chat.content.size() + (wish.content ? wish.text.size() : text);
    STRATA_TRY(check_room(row.bytes, before, false));
    STRATA_TRY(write(row, owner, wish));
    return Change{std::move(chat)};
  });
}

Status ChatStore::remove(const std::string& owner, const std::string& id) {
  const std::lock_guard lock(mutex_);
  return transaction([&]() -> Status {
    STRATA_ASSIGN(const Row row, find(owner, id));
    for (const char* sql :
         {"DELETE FROM chats WHERE number=?", "DELETE FROM words WHERE rowid=?"}) {
      if (Statement(*database_, sql).bind(row.number).step() != SQLITE_DONE) {
        return database_->failure();
      }
    }
    return {};
  });
}

std::string ChatStore::snippet(std::int64_t number, const std::string& match) {
  if (match.empty()) {
    Statement begin(*database_, "SELECT substr(text,1,240) FROM words WHERE rowid=?");
    return begin.bind(number).step() == SQLITE_ROW ? line_of(begin.text(0)) : std::string();
  }
  Statement hit(*database_,
                "SELECT snippet(words,-1,'','','…',?) FROM words WHERE words MATCH ? AND rowid=?");
  hit.bind(kSnippetWords).bind(match).bind(number);
  return hit.step() == SQLITE_ROW ? line_of(hit.text(0)) : std::string();
}

Result<ChatStore::Page> ChatStore::list(const std::string& owner,
                                        const std::vector<std::string>& words, std::size_t limit,
                                        const std::string& after) {
  const std::lock_guard lock(mutex_);
  std::int64_t before = INT64_MAX;
  if (!after.empty()) {
    Statement place(*database_, "SELECT turn FROM chats WHERE id=? AND owner=?");
    const int status = place.bind(after).bind(owner).step();
    if (status == SQLITE_DONE) return missing(after);
    if (status != SQLITE_ROW) return database_->failure();
    before = place.number(0);
  }
  const std::string match = match_of(words);
  Statement rows(*database_, match.empty()
                                 ? "SELECT number,id,title,created,updated,version FROM chats "
                                   "WHERE owner=? AND turn<? ORDER BY turn DESC LIMIT ?"
                                 : "SELECT number,id,title,created,updated,version FROM chats "
                                   "WHERE owner=? AND turn<? AND number IN "
                                   "(SELECT rowid FROM words WHERE words MATCH ?) "
                                   "ORDER BY turn DESC LIMIT ?");
  rows.bind(owner).bind(before);
  if (!match.empty()) rows.bind(match);
  rows.bind(static_cast<std::int64_t>(limit + 1));
  Page page;
  for (;;) {
    const int status = rows.step();
    if (status == SQLITE_DONE) return page;
    if (status != SQLITE_ROW) return database_->failure();
    if (page.chats.size() == limit) {
      page.more = true;
      return page;
    }
    page.chats.push_back({rows.text(1), rows.text(2), "", snippet(rows.number(0), match),
                          rows.number(3), rows.number(4), rows.number(5)});
  }
}

}  // namespace strata::server
