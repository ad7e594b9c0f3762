#include "server/web_app.h"

#include <fmt/format.h>

#include <algorithm>

namespace strata::server {

namespace {

// MathML and plots set styles from scripts, which 'self' allows; style attributes it does not.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

// Whether a list of ETags, as If-None-Match has it, names this one. Weak ones count: what is the
// same content for a cache is the same.
bool names(std::string_view list, std::string_view tag) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    std::string_view one = list.substr(0, comma);
    list.remove_prefix(comma == list.npos ? list.size() : comma + 1);
    while (one.starts_with(' ')) one.remove_prefix(1);
    while (one.ends_with(' ')) one.remove_suffix(1);
    if (one == "*") return true;
    if (one.starts_with("W/")) one.remove_prefix(2);
    if (one == tag) return true;
  }
  return false;
}

}  // namespace

const WebFile* WebApp::find(std::string_view path) const {
  const auto file =
      std::find_if(files_.begin(), files_.end(), [&](const WebFile& f) { return f.path == path; });
  return file == files_.end() ? nullptr : &*file;
}

void WebApp::serve(const WebFile& file, const HttpRequest& request, ResponseWriter& writer) {
  const std::string tag = fmt::format("\"{}\"", file.tag);
  const bool page = file.path == "/";
  HttpResponse response;
  response.content_type = std::string(file.content_type);
  response.headers = {
      {"ETag", tag},
      {"Cache-Control", page ? "no-cache" : "public, max-age=31536000, immutable"},
      {"Vary", "Accept-Encoding"},
      {"X-Content-Type-Options", "nosniff"},
      {"Referrer-Policy", "no-referrer"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Content-Security-Policy", std::string(kPolicy)},
  };
  if (page) response.headers.emplace_back("Cross-Origin-Opener-Policy", "same-origin");
  const std::string* known = request.header("If-None-Match");
  if (known != nullptr && names(*known, tag)) {
    response.status = 304;
    return writer.send(std::move(response));
  }
  response.headers.emplace_back("Content-Encoding", "gzip");
  response.body = std::string(file.packed);
  writer.send(std::move(response));
}

}  // namespace strata::server
