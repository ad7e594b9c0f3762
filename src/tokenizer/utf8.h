// Decoding of one UTF-8 character from bytes that may be anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace strata {

enum class Utf8Status : std::uint8_t {
  valid,
  invalid,    // no character begins here, whatever follows
  truncated,  // the text ends inside a character that may still become valid
};

struct Utf8Char {
  Utf8Status status = Utf8Status::invalid;
  // Bytes of the character; if it is not valid, of its longest valid beginning, at least 1: what
  // Unicode (chapter 3, "U+FFFD Substitution of Maximal Subparts") replaces by one U+FFFD.
  std::uint8_t length = 1;
  char32_t code = 0xFFFD;
};

// The character at text[at]; `at` must be less than text.size().
inline Utf8Char decode_utf8(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {Utf8Status::valid, 1, lead};
  if (lead < 0xC2 || lead > 0xF4) return {};
  const std::uint8_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t code = lead & (0x7Fu >> length);
  // The second byte's range excludes overlong forms, surrogates and values above U+10FFFF.
  unsigned low = lead == 0xE0 ? 0xA0u : lead == 0xF0 ? 0x90u : 0x80u;
  unsigned high = lead == 0xED ? 0x9Fu : lead == 0xF4 ? 0x8Fu : 0xBFu;
  for (std::uint8_t i = 1; i < length; ++i) {
    if (at + i >= text.size()) return {Utf8Status::truncated, i};
    const auto byte = static_cast<unsigned char>(text[at + i]);
    if (byte < low || byte > high) return {Utf8Status::invalid, i};
    code = (code << 6) | (byte & 0x3Fu);
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Status::valid, length, code};
}

inline void append_utf8(std::string& out, char32_t code) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

}  // namespace strata
