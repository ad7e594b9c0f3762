#include "server/sqlite.h"

namespace strata::server {

tl::unexpected<Error> Database::failure() const {
  const int code = sqlite3_errcode(handle_);
  const bool full = code == SQLITE_FULL || code == SQLITE_TOOBIG;
  return fail(code == SQLITE_BUSY ? ErrorCode::unavailable
              : full              ? ErrorCode::exhausted
                                  : ErrorCode::io,
              "{} '{}': {}", kind_.name, path_.empty() ? "in memory" : path_,
              sqlite3_errmsg(handle_));
}

Status Database::execute(const std::string& sql) {
  if (sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) return failure();
  return {};
}

Result<std::unique_ptr<Database>> Database::open(const std::string& path, const Kind& kind) {
  std::unique_ptr<Database> database(new Database(path, kind));
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW;
  if (sqlite3_open_v2(path.empty() ? ":memory:" : path.c_str(), &database->handle_, flags,
                      nullptr) != SQLITE_OK) {
    return database->failure();
  }
  // One process a file: the lock is kept from the first statement on.
  STRATA_TRY(
      database->execute("PRAGMA locking_mode=EXCLUSIVE; PRAGMA synchronous=NORMAL;"
                        "BEGIN IMMEDIATE;"));
  Statement application(*database, "PRAGMA application_id");
  Statement tables(*database, "SELECT COUNT(*) FROM sqlite_master");
  Statement version(*database, "PRAGMA user_version");
  if (application.step() != SQLITE_ROW || tables.step() != SQLITE_ROW ||
      version.step() != SQLITE_ROW) {
    return database->failure();
  }
  if (tables.number(0) != 0 && application.number(0) != kind.application) {
    return fail(ErrorCode::invalid_argument,
                "'{}' is a database of another kind than {}; name another file", path, kind.name);
  }
  database->found_version_ = version.number(0);
  if (database->found_version_ > kind.version) {
    return fail(ErrorCode::unsupported, "{} '{}' has the version {}, newer than this program's {}",
                kind.name, path, database->found_version_, kind.version);
  }
  return database;
}

Status Database::commit() {
  return execute(fmt::format("PRAGMA application_id={}; PRAGMA user_version={}; COMMIT;",
                             kind_.application, kind_.version));
}

}  // namespace strata::server
