#include "terminal/text.h"

#include <utf8proc.h>

#include <algorithm>

namespace strata::terminal {
namespace {

constexpr char32_t kReplacement = 0xFFFD;
constexpr char32_t kPictures = 0x2400;  // of the controls below a space, in their order

bool reorders(char32_t c) {
  return (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}
bool invisible_tag(char32_t c) {
  return c >= 0xE0000 && c <= 0xE007F;
}
bool line_separator(char32_t c) {
  return c == 0x2028 || c == 0x2029;
}

char32_t shown(char32_t c) {
  if (c == '\n' || c == '\t') return c;
  if (c < 0x20) return kPictures + c;
  if (c == 0x7F) return 0x2421;
  if (c < 0xA0 && c > 0x7F) return kReplacement;
  if (reorders(c) || invisible_tag(c) || line_separator(c)) return kReplacement;
  return c;
}

// Bytes that a character of this first byte has; 0: none begins so.
std::size_t length_of(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return 2;
  if (first >= 0xE0 && first < 0xF0) return 3;
  if (first >= 0xF0 && first < 0xF5) return 4;
  return 0;
}

// Whether more bytes could make a character of these.
bool unfinished(std::string_view bytes) {
  const std::size_t length = length_of(static_cast<unsigned char>(bytes.front()));
  return length > bytes.size() && std::all_of(bytes.begin() + 1, bytes.end(), [](char c) {
           return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
         });
}

struct Character {
  char32_t code = kReplacement;
  std::size_t bytes = 1;
};
Character first_of(std::string_view bytes) {
  utf8proc_int32_t code = 0;
  const auto count = std::min<std::size_t>(bytes.size(), 4);
  const auto read = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(bytes.data()),
                                     static_cast<utf8proc_ssize_t>(count), &code);
  if (read <= 0 || code < 0) return {};
  return {static_cast<char32_t>(code), static_cast<std::size_t>(read)};
}

}  // namespace

std::string SafeText::feed(std::string_view bytes) {
  std::string all;
  if (!rest_.empty()) {
    all = rest_;
    all += bytes;
    bytes = all;
    rest_.clear();
  }
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    if (bytes.front() == '\r') {
      if (bytes.size() == 1) break;
      if (bytes[1] == '\n') bytes.remove_prefix(1);
    }
    const std::size_t end = std::min<std::size_t>(bytes.size(), 4);
    if (end < 4 && unfinished(bytes)) break;
    const Character c = first_of(bytes);
    append_utf8(out, shown(c.code));
    bytes.remove_prefix(c.bytes);
  }
  rest_ = std::string(bytes);
  return out;
}

std::string SafeText::flush() {
  std::string out;
  for (std::string_view bytes = rest_; !bytes.empty();) {
    const Character c = first_of(bytes);
    append_utf8(out, shown(c.code));
    bytes.remove_prefix(c.bytes);
  }
  rest_.clear();
  return out;
}

std::string safe_text(std::string_view bytes) {
  SafeText safe;
  std::string out = safe.feed(bytes);
  return out + safe.flush();
}

std::string safe_line(std::string_view bytes) {
  std::string out;
  for (const char32_t c : from_utf8(safe_text(bytes)))
    append_utf8(out, c == '\n' || c == '\t' ? kPictures + c : c);
  return out;
}

void append_utf8(std::string& out, char32_t c) {
  utf8proc_uint8_t bytes[4];
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  if (count > 0) out.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(count));
}

std::u32string from_utf8(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character c = first_of(text);
    out.push_back(c.code);
    text.remove_prefix(c.bytes);
  }
  return out;
}

std::string to_utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) append_utf8(out, c);
  return out;
}

int width_of(char32_t c) {
  return std::max(0, utf8proc_charwidth(static_cast<utf8proc_int32_t>(c)));
}

int width_of(std::string_view utf8) {
  int width = 0;
  for (const char32_t c : from_utf8(utf8)) width += width_of(c);
  return width;
}

std::string fitting(std::string_view utf8, int columns) {
  std::string out;
  for (const char32_t c : from_utf8(utf8)) {
    columns -= width_of(c);
    if (columns < 0) break;
    append_utf8(out, c);
  }
  return out;
}

}  // namespace strata::terminal
