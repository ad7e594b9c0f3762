// A thin layer over SQLite: a database that one process holds, and statements whose errors come out
// where they are run. Not thread safe: who uses it has a mutex.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace strata::server {

class Database {
 public:
  struct Kind {
    const char* name;  // "the store of responses", for errors
    int application;   // marks the file as one of this kind
    int version;       // of its tables; newer ones are refused
  };
  // An empty path: in memory. Opens the file or makes it, locks it for this process and begins the
  // transaction that brings its tables up to date: the caller ends it with commit(). A file that
  // another process holds, or that is no such database, is an error and stays as it is.
  static Result<std::unique_ptr<Database>> open(const std::string& path, const Kind& kind);
  ~Database() { sqlite3_close(handle_); }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  std::int64_t found_version() const { return found_version_; }  // 0: it is new
  Status commit();  // of open(); marks the file as of this kind and version
  Status execute(const std::string& sql);
  tl::unexpected<Error> failure() const;  // of the last call
  sqlite3* handle() const { return handle_; }

 private:
  Database(std::string path, const Kind& kind) : path_(std::move(path)), kind_(kind) {}
  std::string path_;
  Kind kind_;
  sqlite3* handle_ = nullptr;
  std::int64_t found_version_ = 0;
};

class Statement {
 public:
  Statement(const Database& database, const char* sql) {
    failed_ = sqlite3_prepare_v2(database.handle(), sql, -1, &statement_, nullptr) != SQLITE_OK;
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(const std::string& text) {
    failed_ |= sqlite3_bind_text64(statement_, ++bound_, text.data(), text.size(), SQLITE_TRANSIENT,
                                   SQLITE_UTF8) != SQLITE_OK;
    return *this;
  }
  Statement& bind(std::int64_t number) {
    failed_ |= sqlite3_bind_int64(statement_, ++bound_, number) != SQLITE_OK;
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

}  // namespace strata::server
