#include "chat/jinja/text.h"

#include <utf8proc.h>

#include <algorithm>

namespace strata::chat::jinja {

Text::Text(std::string bytes, bool trusted) : bytes_(std::move(bytes)) {
  if (!trusted) mark(0, bytes_.size());
}

void Text::mark(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  if (!untrusted_.empty() && untrusted_.back().end == begin) {
    untrusted_.back().end = end;
  } else {
    untrusted_.push_back({begin, end});
  }
}

std::vector<Text::Range>::const_iterator Text::range_behind(std::size_t position) const {
  return std::upper_bound(untrusted_.begin(), untrusted_.end(), position,
                          [](std::size_t at, const Range& range) { return at < range.end; });
}

bool Text::trusted(std::size_t begin, std::size_t end) const {
  const auto range = range_behind(begin);
  return range == untrusted_.end() || range->begin >= end;
}

void Text::append(std::string_view bytes, bool trusted) {
  const std::size_t begin = bytes_.size();
  bytes_.append(bytes);
  if (!trusted) mark(begin, bytes_.size());
}

void Text::append(const Text& other, std::size_t begin, std::size_t end) {
  const std::size_t base = bytes_.size();
  bytes_.append(other.bytes_, begin, end - begin);
  for (auto range = other.range_behind(begin);
       range != other.untrusted_.end() && range->begin < end; ++range) {
    mark(base + std::max(range->begin, begin) - begin, base + std::min(range->end, end) - begin);
  }
}

Text Text::slice(std::size_t begin, std::size_t end) const {
  Text out;
  out.append(*this, begin, end);
  return out;
}

void Text::distrust() {
  untrusted_.clear();
  mark(0, bytes_.size());
}

std::size_t decode_utf8(std::string_view text, std::size_t position, std::uint32_t& code_point) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const std::uint32_t lead = byte(position);
  code_point = lead;
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  code_point = 0xDC00 + lead;
  if (lead < 0xC2 || lead > 0xF4 || position + length > text.size()) return 1;
  std::uint32_t value = lead & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(position + i) & 0xC0) != 0x80) return 1;
    value = value << 6 | (byte(position + i) & 0x3Fu);
  }
  const bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  if (overlong || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return 1;
  code_point = value;
  return length;
}

std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  std::uint32_t code_point = 0;
  for (std::size_t at = 0; at < text.size(); at += decode_utf8(text, at, code_point)) ++count;
  return count;
}

std::size_t offset_of_character(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  std::uint32_t code_point = 0;
  for (; index > 0 && at < text.size(); --index) at += decode_utf8(text, at, code_point);
  return at;
}

void append_utf8(std::string& out, std::uint32_t code_point) {
  const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point >= 0xDC80 && code_point <= 0xDCFF) {
    put(code_point - 0xDC00);  // a byte that was not UTF-8 (see decode_utf8)
  } else if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

bool is_space(std::uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

namespace {

bool category_between(std::uint32_t c, utf8proc_category_t first, utf8proc_category_t last) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= first && category <= last;
}

}  // namespace

bool is_letter(std::uint32_t c) {
  return category_between(c, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO);
}
bool is_number(std::uint32_t c) {
  return category_between(c, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}
bool is_decimal(std::uint32_t c) {
  return category_between(c, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_ND);
}
bool is_digit(std::uint32_t c) {
  const auto between = [c](std::uint32_t first, std::uint32_t last) {
    return c >= first && c <= last;
  };
  // Superscripts, subscripts and circled digits are digits, too.
  return is_decimal(c) || between(0xB2, 0xB3) || c == 0xB9 || c == 0x2070 ||
         between(0x2074, 0x2079) || between(0x2080, 0x2089) || between(0x2460, 0x2468) ||
         between(0x2474, 0x247C) || between(0x2488, 0x2490);
}

}  // namespace strata::chat::jinja
