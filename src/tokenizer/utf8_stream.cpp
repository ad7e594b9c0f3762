#include "tokenizer/utf8_stream.h"

#include "tokenizer/utf8.h"

namespace strata {

namespace {
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
}  // namespace

std::string Utf8Stream::feed(std::string_view bytes) {
  std::string joined;
  if (!held_.empty()) {
    joined = std::move(held_);
    joined += bytes;
    bytes = joined;
    held_.clear();
  }
  std::string text;
  text.reserve(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Char c = decode_utf8(bytes, at);
    if (c.status == Utf8Status::truncated) {
      held_ = bytes.substr(at);
      break;
    }
    text += c.status == Utf8Status::valid ? bytes.substr(at, c.length) : kReplacement;
    at += c.length;
  }
  return text;
}

std::string Utf8Stream::flush() {
  // What is held is the valid beginning of one character: one replacement.
  std::string text(held_.empty() ? std::string_view{} : kReplacement);
  held_.clear();
  return text;
}

}  // namespace strata
