#include "server/response_store.h"

#include <algorithm>

#include "server/sqlite.h"

namespace strata::server {

namespace {

constexpr Database::Kind kKind = {"the store of responses", 0x53747261, 2};  // "Stra"

// Version 1 had no owners and kept no events.
constexpr std::string_view kFromVersion1 =
    "ALTER TABLE responses ADD COLUMN owner TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE responses ADD COLUMN events TEXT NOT NULL DEFAULT '';";

constexpr std::string_view kTables =
    "CREATE TABLE IF NOT EXISTS responses (id TEXT PRIMARY KEY, created INTEGER, "
    "expires INTEGER, previous TEXT, body TEXT, input TEXT, bytes INTEGER, "
    "owner TEXT NOT NULL DEFAULT '', events TEXT NOT NULL DEFAULT '');"
    "CREATE INDEX IF NOT EXISTS by_age ON responses(created, bytes);"
    "UPDATE responses SET body=json_set(body,'$.status','failed',"
    "'$.error',json('{\"code\":\"server_error\",\"message\":\"the server stopped "
    "before the response was complete\"}')) "
    "WHERE json_extract(body,'$.status') IN ('queued','in_progress');";

}  // namespace

ResponseStore::ResponseStore(std::unique_ptr<Database> database, StoreLimits limits)
    : database_(std::move(database)), limits_(limits) {}
ResponseStore::~ResponseStore() = default;

Result<std::unique_ptr<ResponseStore>> ResponseStore::open(const std::string& path,
                                                           StoreLimits limits) {
  STRATA_ASSIGN(auto database, Database::open(path, kKind));
  if (database->found_version() == 1) STRATA_TRY(database->execute(std::string(kFromVersion1)));
  STRATA_TRY(database->execute(std::string(kTables)));
  STRATA_TRY(database->commit());
  return std::unique_ptr<ResponseStore>(new ResponseStore(std::move(database), limits));
}

Status ResponseStore::put(const StoredResponse& response, std::int64_t now) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t bytes = response.body.size() + response.input.size() + response.events.size();
  if (bytes > limits_.bytes) {
    return fail(ErrorCode::exhausted, "a response of {} bytes does not fit the store of {}", bytes,
                limits_.bytes);
  }
  {
    Statement put(*database_,
                  "INSERT INTO responses(id,created,expires,previous,body,input,bytes,owner,events)"
                  " VALUES(?,?,?,?,?,?,?,?,?) ON CONFLICT(id) DO UPDATE SET body=excluded.body, "
                  "bytes=excluded.bytes, events=excluded.events");
    put.bind(response.id).bind(now).bind(now + limits_.lifetime).bind(response.previous);
    put.bind(response.body).bind(response.input).bind(static_cast<std::int64_t>(bytes));
    put.bind(response.owner).bind(response.events);
    if (put.step() != SQLITE_DONE) return database_->failure();
  }
  return make_room(now);
}

// Expired ones go, then the oldest until the bounds hold.
Status ResponseStore::make_room(std::int64_t now) {
  {
    Statement expired(*database_, "DELETE FROM responses WHERE expires<=?");
    if (expired.bind(now).step() != SQLITE_DONE) return database_->failure();
  }
  for (;;) {
    std::int64_t count = 0, bytes = 0;
    {
      Statement sum(*database_, "SELECT COUNT(*), COALESCE(SUM(bytes),0) FROM responses");
      if (sum.step() != SQLITE_ROW) return database_->failure();
      count = sum.number(0);
      bytes = sum.number(1);
    }
    if (static_cast<std::uint64_t>(count) <= limits_.responses &&
        static_cast<std::uint64_t>(bytes) <= limits_.bytes) {
      return {};
    }
    Statement oldest(*database_,
                     "DELETE FROM responses WHERE rowid IN "
                     "(SELECT rowid FROM responses ORDER BY created, rowid LIMIT ?)");
    if (oldest.bind(std::max<std::int64_t>(1, count / 20)).step() != SQLITE_DONE) {
      return database_->failure();
    }
  }
}

Result<std::optional<StoredResponse>> ResponseStore::find(const std::string& id,
                                                          const std::string& owner,
                                                          std::int64_t now) {
  Statement get(*database_,
                "SELECT id,owner,previous,body,input FROM responses "
                "WHERE id=? AND owner=? AND expires>?");
  const int status = get.bind(id).bind(owner).bind(now).step();
  if (status == SQLITE_DONE) return std::optional<StoredResponse>();
  if (status != SQLITE_ROW) return database_->failure();
  return std::optional(
      StoredResponse{get.text(0), get.text(1), get.text(2), get.text(3), get.text(4), {}});
}

namespace {

tl::unexpected<Error> missing(const std::string& id) {
  return fail(ErrorCode::not_found,
              "there is no response '{}': it was not stored, was deleted, or has expired",
              id.substr(0, 100));
}

}  // namespace

Result<StoredResponse> ResponseStore::get(const std::string& id, const std::string& owner,
                                          std::int64_t now) {
  const std::lock_guard lock(mutex_);
  STRATA_ASSIGN(auto found, find(id, owner, now));
  if (!found) return missing(id);
  return std::move(*found);
}

Result<std::string> ResponseStore::events(const std::string& id, const std::string& owner,
                                          std::int64_t now) {
  const std::lock_guard lock(mutex_);
  Statement get(*database_, "SELECT events FROM responses WHERE id=? AND owner=? AND expires>?");
  const int status = get.bind(id).bind(owner).bind(now).step();
  if (status == SQLITE_DONE) return missing(id);
  if (status != SQLITE_ROW) return database_->failure();
  return get.text(0);
}

Result<std::vector<StoredResponse>> ResponseStore::chain(const std::string& id,
                                                         const std::string& owner,
                                                         std::int64_t now) {
  const std::lock_guard lock(mutex_);
  std::vector<StoredResponse> responses;
  for (std::string next = id; !next.empty();) {
    if (responses.size() == limits_.chain) {
      return fail(ErrorCode::exhausted, "the response continues more than {} others",
                  limits_.chain);
    }
    STRATA_ASSIGN(auto found, find(next, owner, now));
    if (!found) return missing(next);
    next = found->previous;
    responses.push_back(std::move(*found));
  }
  std::reverse(responses.begin(), responses.end());
  return responses;
}

Status ResponseStore::remove(const std::string& id, const std::string& owner) {
  const std::lock_guard lock(mutex_);
  Statement remove(*database_, "DELETE FROM responses WHERE id=? AND owner=?");
  if (remove.bind(id).bind(owner).step() != SQLITE_DONE) return database_->failure();
  if (sqlite3_changes(database_->handle()) == 0) return missing(id);
  return {};
}

Result<std::uint64_t> ResponseStore::count() {
  const std::lock_guard lock(mutex_);
  Statement count(*database_, "SELECT COUNT(*) FROM responses");
  if (count.step() != SQLITE_ROW) return database_->failure();
  return static_cast<std::uint64_t>(count.number(0));
}

}  // namespace strata::server
