// Stored responses of the Responses API: an SQLite database, in memory or in a file, with expiry
// and bounds. Thread safe.
//
// What callers may rely on
// - A response is found, by its owner only, until it expires, is deleted, or falls to the bounds
//   (the oldest first).
// - After a restart, what was on its way is `failed`.
// - Nothing of a file that another process holds, or that is no such database, is touched: opening
//   it is an error.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace strata::server {

class Database;

struct StoredResponse {
  std::string id;
  std::string owner;     // as Access::owner
  std::string previous;  // the response it continues, may be empty
  std::string body;      // the response object's JSON
  std::string input;     // JSON array of this request's own input items
  std::string events;    // ResponseEvents::stored(), empty if there are none; get() leaves them out
};

struct StoreLimits {
  std::int64_t lifetime = 30 * 24 * 3600;          // seconds
  std::uint64_t bytes = std::uint64_t{256} << 20;  // of bodies, inputs and events
  std::uint64_t responses = 20'000;
  std::uint32_t chain = 1000;  // responses that one may continue, in a row
};

class ResponseStore {
 public:
  // An empty path: in memory.
  static Result<std::unique_ptr<ResponseStore>> open(const std::string& path,
                                                     StoreLimits limits = {});
  ~ResponseStore();

  // New, or in the place of the one with its id. `now` in seconds since 1970.
  Status put(const StoredResponse& response, std::int64_t now);
  // not_found if the owner has none.
  Result<StoredResponse> get(const std::string& id, const std::string& owner, std::int64_t now);
  Result<std::string> events(const std::string& id, const std::string& owner, std::int64_t now);
  // The response and those it continues, the oldest first. not_found names the missing one.
  Result<std::vector<StoredResponse>> chain(const std::string& id, const std::string& owner,
                                            std::int64_t now);
  Status remove(const std::string& id, const std::string& owner);  // not_found if there was none
  Result<std::uint64_t> count();

 private:
  ResponseStore(std::unique_ptr<Database> database, StoreLimits limits);
  Result<std::optional<StoredResponse>> find(const std::string& id, const std::string& owner,
                                             std::int64_t now);
  Status make_room(std::int64_t now);

  std::mutex mutex_;
  std::unique_ptr<Database> database_;
  StoreLimits limits_;
};

}  // namespace strata::server
