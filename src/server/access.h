// Who may talk to the server.
//
// - With keys: whoever sends one of them (Authorization: Bearer, or x-api-key); only health needs
//   none. Keys are compared in constant time.
// - Without: programs of this machine, but no web page of someone else (DNS rebinding, cross-site
//   requests).
// - Pages of other sites get answers only if they are configured (CORS), and only below /v1/.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "server/api_error.h"
#include "server/http.h"

namespace strata::server {

struct AccessRules {
  std::string bound_host = "127.0.0.1";
  std::vector<std::string> keys = {};             // none: nobody is asked for one
  std::vector<std::string> allowed_hosts = {};    // "name", ".example.com" (and below), "*"
  std::vector<std::string> trusted_origins = {};  // "https://app.example", in any case
  std::vector<std::string> cors_origins = {};     // trusted, and their pages may read answers
};

class Access {
 public:
  Access() : Access(AccessRules{}) {}
  explicit Access(AccessRules rules);

  // 401, 403 or 415. `state` is true for what changes the server itself, where pages need to be
  // trusted even if they know a key.
  Answer<void> check(const HttpRequest& request, bool open_to_all, bool state) const;
  // What a page may be told: headers for an answer below /v1/, none for other origins. With
  // `preflight`, what it may send, too.
  std::vector<std::pair<std::string, std::string>> cors_headers(const HttpRequest& request,
                                                                bool preflight) const;
  // Whose request it is, for what is kept for later: the hash of its key (never the key), empty
  // where nobody is asked for one. For requests that check() let pass.
  std::string owner(const HttpRequest& request) const;
  bool needs_key() const { return !forms_.empty(); }

 private:
  bool key_known(std::string_view given) const;
  bool host_allowed(std::string_view name) const;
  bool origin_allowed(std::string_view origin) const;

  AccessRules rules_;
  std::vector<std::string> forms_;   // keys in UTF-8 and, where it differs, Latin-1
  std::vector<std::string> owners_;  // of each form
};

// Errors for what no header can say, so that a rule would never hold. They do not name the setting.
Status check_host_rule(std::string_view rule);    // "x", ".x.org", "*"
Status check_origin_rule(std::string_view rule);  // "https://x.org", "http://x:8080", "null"

// "Example.COM:80" and "[::1]:80" to "example.com" and "::1".
std::string host_name(std::string_view authority);

// Equal, in a time that depends on the length of `secret` alone.
bool equal_in_constant_time(std::string_view secret, std::string_view given);

}  // namespace strata::server
