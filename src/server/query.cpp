#include "server/query.h"

namespace strata::server {

std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      const int high = digit(text[i + 1]);
      const int low = digit(text[i + 2]);
      if (high >= 0 && low >= 0) {
        out.push_back(static_cast<char>(high * 16 + low));
        i += 2;
        continue;
      }
    }
    out.push_back(text[i]);
  }
  return out;
}

std::optional<std::string> query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::size_t end = query.find('&');
    const std::string_view pair = query.substr(0, end);
    const std::size_t equal = pair.find('=');
    if (pair.substr(0, equal) == name) {
      return equal == pair.npos ? std::string() : percent_decoded(pair.substr(equal + 1));
    }
    if (end == query.npos) break;
    query.remove_prefix(end + 1);
  }
  return std::nullopt;
}

}  // namespace strata::server
