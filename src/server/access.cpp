#include "server/access.h"

#include <algorithm>

namespace strata::server {
namespace {

bool local_name(std::string_view host) {
  return is_loopback(host) || host.ends_with(".localhost");
}

bool json_content(const HttpRequest& request) {
  const std::string* header = request.header("Content-Type");
  if (header == nullptr) return false;
  std::string type = header->substr(0, header->find(';'));
  type.erase(std::remove(type.begin(), type.end(), ' '), type.end());
  std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : static_cast<char>(c);
  });
  return type == "application/json" ||
         (type.starts_with("application/") && type.ends_with("+json"));
}

// Pages of this machine; programs with a scheme of their own (extensions, desktop applications).
bool origin_allowed(std::string_view origin, std::string_view bound_host) {
  const std::size_t mark = origin.find("://");
  if (mark == origin.npos) return false;  // "null" too
  const std::string_view scheme = origin.substr(0, mark);
  if (scheme != "http" && scheme != "https") return true;
  const std::string host = host_name(origin.substr(mark + 3));
  return local_name(host) || host == bound_host;
}

}  // namespace

std::string host_name(std::string_view authority) {
  std::string_view host;
  if (authority.starts_with('[')) {
    host = authority.substr(1, authority.find(']') - 1);
  } else {
    host = authority.substr(0, authority.find(':'));
  }
  std::string name(host);
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return name;
}

Answer<void> check_access(const HttpRequest& request, std::string_view bound_host) {
  if (const std::string* host = request.header("Host"); host != nullptr && !host->empty()) {
    const std::string name = host_name(*host);
    if (!local_name(name) && !is_ip_address(name) && name != bound_host) {
      return refuse(403, "",
                    "this server does not answer for the host '{}'; use localhost or an IP address",
                    name);
    }
  }
  if (request.method != "POST") return {};
  const std::string* origin = request.header("Origin");
  if (origin == nullptr) return {};
  if (!origin_allowed(*origin, bound_host)) {
    return refuse(403, "", "pages of '{}' may not use this server", *origin);
  }
  if (!json_content(request)) {
    return refuse(415, "", "send the body with Content-Type: application/json");
  }
  return {};
}

}  // namespace strata::server
