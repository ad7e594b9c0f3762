#include "server/response_store.h"

#include <sqlite3.h>

#include <algorithm>

namespace strata::server {

struct ResponseStore::Database {
  sqlite3* handle = nullptr;
  std::string name;

  ~Database() { sqlite3_close(handle); }
  tl::unexpected<Error> failure() const {
    return fail(sqlite3_errcode(handle) == SQLITE_BUSY ? ErrorCode::unavailable : ErrorCode::io,
                "the store of responses '{}': {}", name, sqlite3_errmsg(handle));
  }
  Status execute(const char* sql) {
    if (sqlite3_exec(handle, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return failure();
    return {};
  }
};

namespace {

constexpr int kApplication = 0x53747261;  // marks the file as ours ("Stra")
constexpr int kVersion = 1;

// One statement; errors come out of step().
class Statement {
 public:
  Statement(sqlite3* handle, const char* sql) {
    failed_ = sqlite3_prepare_v2(handle, sql, -1, &statement_, nullptr) != SQLITE_OK;
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(const std::string& text) {
    sqlite3_bind_text(statement_, ++bound_, text.data(), static_cast<int>(text.size()),
                      SQLITE_TRANSIENT);
    return *this;
  }
  Statement& bind(std::int64_t number) {
    sqlite3_bind_int64(statement_, ++bound_, number);
    return *this;
  }
  // SQLITE_ROW, SQLITE_DONE, or the error.
  int step() { return failed_ ? SQLITE_ERROR : sqlite3_step(statement_); }
  std::string text(int column) const {
    const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return bytes == nullptr
               ? std::string()
               : std::string(bytes,
                             static_cast<std::size_t>(sqlite3_column_bytes(statement_, column)));
  }
  std::int64_t number(int column) const { return sqlite3_column_int64(statement_, column); }

 private:
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
  bool failed_ = false;
};

}  // namespace

ResponseStore::ResponseStore(std::unique_ptr<Database> database, StoreLimits limits)
    : database_(std::move(database)), limits_(limits) {}
ResponseStore::~ResponseStore() = default;

Result<std::unique_ptr<ResponseStore>> ResponseStore::open(const std::string& path,
                                                           StoreLimits limits) {
  auto database = std::make_unique<Database>();
  database->name = path.empty() ? "in memory" : path;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW;
  if (sqlite3_open_v2(path.empty() ? ":memory:" : path.c_str(), &database->handle, flags,
                      nullptr) != SQLITE_OK) {
    return database->failure();
  }
  // One process a file: the lock is kept from the first statement on.
  STRATA_TRY(
      database->execute("PRAGMA locking_mode=EXCLUSIVE; PRAGMA synchronous=NORMAL;"
                        "BEGIN IMMEDIATE;"));
  {
    Statement application(database->handle, "PRAGMA application_id");
    Statement tables(database->handle, "SELECT COUNT(*) FROM sqlite_master");
    if (application.step() != SQLITE_ROW || tables.step() != SQLITE_ROW) return database->failure();
    if (tables.number(0) != 0 && application.number(0) != kApplication) {
      return fail(ErrorCode::invalid_argument,
                  "'{}' is a database of another program; name another file", path);
    }
    Statement version(database->handle, "PRAGMA user_version");
    if (version.step() != SQLITE_ROW) return database->failure();
    if (version.number(0) > kVersion) {
      return fail(ErrorCode::unsupported,
                  "the store of responses '{}' has the version {}, newer than this program's {}",
                  path, version.number(0), kVersion);
    }
  }
  STRATA_TRY(database->execute(
      fmt::format("PRAGMA application_id={}; PRAGMA user_version={};"
                  "CREATE TABLE IF NOT EXISTS responses (id TEXT PRIMARY KEY, created INTEGER, "
                  "expires INTEGER, previous TEXT, body TEXT, input TEXT, bytes INTEGER);"
                  "CREATE INDEX IF NOT EXISTS by_age ON responses(created, bytes);"
                  "UPDATE responses SET body=json_set(body,'$.status','failed',"
                  "'$.error',json('{{\"code\":\"server_error\",\"message\":\"the server stopped "
                  "before the response was complete\"}}')) "
                  "WHERE json_extract(body,'$.status') IN ('queued','in_progress');"
                  "COMMIT;",
                  kApplication, kVersion)
          .c_str()));
  return std::unique_ptr<ResponseStore>(new ResponseStore(std::move(database), limits));
}

Status ResponseStore::put(const StoredResponse& response, std::int64_t now) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t bytes = response.body.size() + response.input.size();
  if (bytes > limits_.bytes) {
    return fail(ErrorCode::exhausted, "a response of {} bytes does not fit the store of {}", bytes,
                limits_.bytes);
  }
  {
    Statement put(database_->handle,
                  "INSERT INTO responses(id,created,expires,previous,body,input,bytes) "
                  "VALUES(?,?,?,?,?,?,?) ON CONFLICT(id) DO UPDATE SET body=excluded.body, "
                  "bytes=excluded.bytes");
    put.bind(response.id).bind(now).bind(now + limits_.lifetime).bind(response.previous);
    put.bind(response.body).bind(response.input).bind(static_cast<std::int64_t>(bytes));
    if (put.step() != SQLITE_DONE) return database_->failure();
  }
  return make_room(now);
}

// Expired ones go, then the oldest until the bounds hold.
Status ResponseStore::make_room(std::int64_t now) {
  {
    Statement expired(database_->handle, "DELETE FROM responses WHERE expires<=?");
    if (expired.bind(now).step() != SQLITE_DONE) return database_->failure();
  }
  for (;;) {
    std::int64_t count = 0, bytes = 0;
    {
      Statement sum(database_->handle, "SELECT COUNT(*), COALESCE(SUM(bytes),0) FROM responses");
      if (sum.step() != SQLITE_ROW) return database_->failure();
      count = sum.number(0);
      bytes = sum.number(1);
    }
    if (static_cast<std::uint64_t>(count) <= limits_.responses &&
        static_cast<std::uint64_t>(bytes) <= limits_.bytes) {
      return {};
    }
    Statement oldest(database_->handle,
                     "DELETE FROM responses WHERE rowid IN "
                     "(SELECT rowid FROM responses ORDER BY created, rowid LIMIT ?)");
    if (oldest.bind(std::max<std::int64_t>(1, count / 20)).step() != SQLITE_DONE) {
      return database_->failure();
    }
  }
}

Result<std::optional<StoredResponse>> ResponseStore::find(const std::string& id, std::int64_t now) {
  Statement get(database_->handle,
                "SELECT id,previous,body,input FROM responses WHERE id=? AND expires>?");
  const int status = get.bind(id).bind(now).step();
  if (status == SQLITE_DONE) return std::optional<StoredResponse>();
  if (status != SQLITE_ROW) return database_->failure();
  return std::optional(StoredResponse{get.text(0), get.text(1), get.text(2), get.text(3)});
}

namespace {

tl::unexpected<Error> missing(const std::string& id) {
  return fail(ErrorCode::not_found,
              "there is no response '{}': it was not stored, was deleted, or has expired",
              id.substr(0, 100));
}

}  // namespace

Result<StoredResponse> ResponseStore::get(const std::string& id, std::int64_t now) {
  const std::lock_guard lock(mutex_);
  STRATA_ASSIGN(auto found, find(id, now));
  if (!found) return missing(id);
  return std::move(*found);
}

Result<std::vector<StoredResponse>> ResponseStore::chain(const std::string& id, std::int64_t now) {
  const std::lock_guard lock(mutex_);
  std::vector<StoredResponse> responses;
  for (std::string next = id; !next.empty();) {
    if (responses.size() == limits_.chain) {
      return fail(ErrorCode::exhausted, "the response continues more than {} others",
                  limits_.chain);
    }
    STRATA_ASSIGN(auto found, find(next, now));
    if (!found) return missing(next);
    next = found->previous;
    responses.push_back(std::move(*found));
  }
  std::reverse(responses.begin(), responses.end());
  return responses;
}

Status ResponseStore::remove(const std::string& id) {
  const std::lock_guard lock(mutex_);
  Statement remove(database_->handle, "DELETE FROM responses WHERE id=?");
  if (remove.bind(id).step() != SQLITE_DONE) return database_->failure();
  if (sqlite3_changes(database_->handle) == 0) return missing(id);
  return {};
}

Result<std::uint64_t> ResponseStore::count() {
  const std::lock_guard lock(mutex_);
  Statement count(database_->handle, "SELECT COUNT(*) FROM responses");
  if (count.step() != SQLITE_ROW) return database_->failure();
  return static_cast<std::uint64_t>(count.number(0));
}

}  // namespace strata::server
