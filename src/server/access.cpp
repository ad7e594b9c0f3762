#include "server/access.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>

#include "tokenizer/utf8_stream.h"

namespace strata::server {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

bool local_name(std::string_view host) {
  return is_loopback(host) || host.ends_with(".localhost");
}

bool json_content(const HttpRequest& request) {
  const std::string* header = request.header("Content-Type");
  if (header == nullptr) return false;
  const std::string type = lower(trimmed(std::string_view(*header).substr(0, header->find(';'))));
  return type == "application/json" ||
         (type.starts_with("application/") && type.ends_with("+json"));
}

// Code points below 256 of UTF-8 text as single bytes; nothing if there are others or none above
// 127: then the forms do not differ.
std::optional<std::string> latin1(std::string_view text) {
  std::string out;
  bool differs = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      out += text[i];
    } else if ((byte == 0xC2 || byte == 0xC3) && i + 1 < text.size()) {
      const auto next = static_cast<unsigned char>(text[++i]);
      out += static_cast<char>(((byte & 3u) << 6) | (next & 0x3Fu));
      differs = true;
    } else {
      return std::nullopt;
    }
  }
  return differs ? std::optional(out) : std::nullopt;
}

bool contains(const std::vector<std::string>& list, std::string_view value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

std::string_view key_of(const HttpRequest& request) {
  if (const std::string* header = request.header("Authorization")) {
    constexpr std::string_view kBearer = "bearer ";
    if (lower(std::string_view(*header).substr(0, kBearer.size())) == kBearer) {
      return trimmed(std::string_view(*header).substr(kBearer.size()));
    }
  }
  const std::string* header = request.header("x-api-key");
  return header == nullptr ? std::string_view() : trimmed(*header);
}

std::string hash_of_key(std::string_view key) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

bool equal_in_constant_time(std::string_view secret, std::string_view given) {
  unsigned difference = secret.size() == given.size() ? 0u : 1u;
  for (std::size_t i = 0; i < secret.size(); ++i) {
    const char other = given.empty() ? '\0' : given[i % given.size()];
    difference |= static_cast<unsigned char>(secret[i]) ^ static_cast<unsigned char>(other);
  }
  return difference == 0;
}

std::string host_name(std::string_view authority) {
  if (authority.starts_with('[')) {
    return lower(authority.substr(1, authority.find(']') - 1));
  }
  return lower(authority.substr(0, authority.find(':')));
}

namespace {

bool only_of(std::string_view text, bool (*allowed)(char)) {
  return !text.empty() && std::all_of(text.begin(), text.end(), allowed);
}
bool digit(char c) {
  return c >= '0' && c <= '9';
}
bool letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || digit(c);
}
// Of names as they are sent: others are encoded in these ("xn--...").
bool of_a_name(char c) {
  return letter_or_digit(c) || c == '-' || c == '_' || c == '.';
}
bool of_an_address(char c) {
  return letter_or_digit(c) || c == ':' || c == '.';
}

bool is_host(std::string_view text) {
  return only_of(text, of_a_name) && text.front() != '.' && text.find("..") == text.npos;
}

// What stands behind the scheme; `usual` is the port that is never said.
bool is_authority(std::string_view text, std::string_view usual) {
  std::size_t end = std::min(text.find(':'), text.size());
  bool host = is_host(text.substr(0, end));
  if (text.starts_with('[')) {
    end = std::min(text.find(']'), text.size() - 1) + 1;
    host = text[end - 1] == ']' && only_of(text.substr(1, end - 2), of_an_address);
  }
  if (!host || end == text.size()) return host;
  const std::string_view port = text.substr(end + 1);
  return text[end] == ':' && only_of(port, digit) && port.size() <= 5 && port.front() != '0' &&
         (port.size() < 5 || port <= "65535") && port != usual;
}

}  // namespace

Status check_host_rule(std::string_view rule) {
  if (rule == "*" || is_ip_address(rule)) return {};
  if (is_host(rule.starts_with('.') ? rule.substr(1) : rule)) return {};
  return fail(ErrorCode::invalid_argument,
              "'{}' is no name of a host; write it without scheme and port: x.org, .x.org for it "
              "and all below it, or * for any",
              rule);
}

Status check_origin_rule(std::string_view rule) {
  if (rule == "null" || rule == "file://") return {};  // of pages that are files
  const std::size_t mark = std::min(rule.find("://"), rule.size());
  const std::string scheme = lower(rule.substr(0, mark));
  const bool known = only_of(
      scheme, [](char c) { return letter_or_digit(c) || c == '+' || c == '-' || c == '.'; });
  const std::string_view usual = scheme == "https" ? "443" : scheme == "http" ? "80" : "";
  if (known && mark < rule.size() && is_authority(rule.substr(mark + 3), usual)) return {};
  return fail(ErrorCode::invalid_argument,
              "'{}' is no origin; write it as browsers send it, with its scheme and without a path "
              "and a usual port: https://x.org, http://x.org:8080",
              rule);
}

Access::Access(AccessRules rules) : rules_(std::move(rules)) {
  for (const std::string& key : rules_.keys) {
    forms_.push_back(key);
    if (auto other = latin1(key)) forms_.push_back(std::move(*other));
    owners_.resize(forms_.size(), hash_of_key(key));
  }
  for (auto* rule : {&rules_.allowed_hosts, &rules_.trusted_origins, &rules_.cors_origins})
    for (std::string& one : *rule) one = lower(one);
}

// All keys are looked at, whichever fits.
bool Access::key_known(std::string_view given) const {
  bool known = false;
  for (const std::string& key : forms_) known |= equal_in_constant_time(key, given);
  return known;
}

std::string Access::owner(const HttpRequest& request) const {
  std::string owner;
  const std::string_view given = key_of(request);
  for (std::size_t i = 0; i < forms_.size(); ++i) {
    if (equal_in_constant_time(forms_[i], given)) owner = owners_[i];
  }
  return owner;
}

bool Access::host_allowed(std::string_view name) const {
  if (local_name(name) || is_ip_address(name) || name == lower(rules_.bound_host)) return true;
  return std::any_of(rules_.allowed_hosts.begin(), rules_.allowed_hosts.end(),
                     [&](std::string_view allowed) {
                       if (allowed == "*") return true;
                       if (allowed.starts_with('.')) {
                         return name.ends_with(allowed) || name == allowed.substr(1);
                       }
                       return name == allowed;
                     });
}

// Pages of this machine, configured ones, and programs with a scheme of their own (extensions,
// desktop applications).
bool Access::origin_allowed(std::string_view origin) const {
  if (contains(rules_.trusted_origins, origin) || contains(rules_.cors_origins, origin)) {
    return true;
  }
  const std::size_t mark = origin.find("://");
  if (mark == origin.npos) return false;  // "null" too
  const std::string_view scheme = origin.substr(0, mark);
  if (scheme != "http" && scheme != "https") return true;
  const std::string host = host_name(origin.substr(mark + 3));
  if (local_name(host) || host == lower(rules_.bound_host)) return true;
  return std::any_of(rules_.allowed_hosts.begin(), rules_.allowed_hosts.end(),
                     [&](std::string_view allowed) {
                       if (allowed.starts_with('.')) return host.ends_with(allowed);
                       return host == allowed;  // "*" is about names of this server, not of pages
                     });
}

Answer<void> Access::check(const HttpRequest& request, bool open_to_all, bool state) const {
  const bool asks = needs_key();
  if (asks && !open_to_all && !key_known(key_of(request))) {
    return refuse(401, "",
                  "this server asks for a key; send it as 'Authorization: Bearer KEY' or "
                  "'x-api-key: KEY'");
  }
  if (const std::string* host = request.header("Host");
      !asks && host != nullptr && !host->empty()) {
    const std::string name = host_name(*host);
    if (!host_allowed(name)) {
      return refuse(403, "",
                    "this server does not answer for the host '{}'; use localhost or an IP "
                    "address, or list the name in 'allowed_hosts'",
                    name);
    }
  }
  if (request.method == "GET" || request.method == "HEAD" || request.method == "OPTIONS") return {};
  if (asks && !state) return {};
  const std::string* origin = request.header("Origin");
  if (origin == nullptr) return {};
  if (!origin_allowed(*origin)) {
    return refuse(403, "", "pages of '{}' may not use this server", *origin);
  }
  if (!request.body.empty() && !json_content(request)) {
    return refuse(415, "", "send the body with Content-Type: application/json");
  }
  return {};
}

std::vector<std::pair<std::string, std::string>> Access::cors_headers(const HttpRequest& request,
                                                                      bool preflight) const {
  const std::string* origin = request.header("Origin");
  if (rules_.cors_origins.empty() || !request.path.starts_with("/v1/")) return {};
  std::vector<std::pair<std::string, std::string>> headers = {{"Vary", "Origin"}};
  if (origin == nullptr || !contains(rules_.cors_origins, *origin)) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", *origin);
  if (!preflight) return headers;
  headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE, OPTIONS");
  if (const std::string* asked = request.header("Access-Control-Request-Headers")) {
    headers.emplace_back("Access-Control-Allow-Headers", *asked);
  }
  headers.emplace_back("Access-Control-Max-Age", "600");
  return headers;
}

}  // namespace strata::server
