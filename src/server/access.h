// Who may talk to a server that has no key: programs of this machine, but no web page of someone
// else (spec: DNS rebinding, cross-site requests).
#pragma once

#include <string>
#include <string_view>

#include "server/api_error.h"
#include "server/http.h"

namespace strata::server {

// 403 for a Host that is neither a loopback name, an IP address nor `bound_host` (a missing one
// passes), and for a POST from a page of another site; 415 for a POST from a page that is not
// JSON.
Answer<void> check_access(const HttpRequest& request, std::string_view bound_host);

// "Example.COM:80" and "[::1]:80" to "example.com" and "::1".
std::string host_name(std::string_view authority);

}  // namespace strata::server
