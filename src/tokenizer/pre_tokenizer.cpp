#include "tokenizer/pre_tokenizer.h"

#include <cstdint>

#include "tokenizer/unicode_generated.h"
#include "tokenizer/utf8.h"

namespace strata {

namespace {

// Letters and marks are one class: the pattern tells them apart only in the optional first
// character of a word, and a mark there may as well be the word's own first character.
//
// The classes come from our own table and not from the system's Unicode library, because the same
// text must give the same tokens on every machine, whatever version of Unicode is installed there.
enum class CharClass : std::uint8_t { other = 0, letter = 1, number = 2, space = 3 };

CharClass class_of(char32_t code) {
  const std::uint8_t* block = unicode::kBlocks[unicode::kBlockOf[code / unicode::kBlockSize]];
  const unsigned offset = code % unicode::kBlockSize;
  return static_cast<CharClass>((block[offset / 4] >> (2 * (offset % 4))) & 3);
}

// A character of the text, or its end: then length is 0 and the class is none of the four.
struct Char {
  std::uint8_t length = 0;
  std::uint8_t cls = 0xFF;
  bool is(CharClass c) const { return cls == static_cast<std::uint8_t>(c); }
};

Char char_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return {};
  const Utf8Char c = decode_utf8(text, at);
  if (c.status != Utf8Status::valid) return {1, static_cast<std::uint8_t>(CharClass::other)};
  return {c.length, static_cast<std::uint8_t>(class_of(c.code))};
}

bool is_newline(std::string_view text, std::size_t at) {
  return at < text.size() && (text[at] == '\r' || text[at] == '\n');
}

std::size_t skip(std::string_view text, std::size_t at, CharClass cls) {
  for (Char c = char_at(text, at); c.is(cls); c = char_at(text, at)) at += c.length;
  return at;
}

// Bytes of '(s|t|re|ve|m|ll|d) at an apostrophe, in any case of ASCII; 0 if there is none.
std::size_t contraction_length(std::string_view text, std::size_t at) {
  const auto letter = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<char>(text[at + i] | 0x20) : '\0';
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return letter(2) == 'e' ? 3 : 0;
    case 'l':
      return letter(2) == 'l' ? 3 : 0;
    default:
      return 0;
  }
}

// The last three alternatives; the character at `begin` is a space and begins no word or symbols.
std::size_t space_end(std::string_view text, std::size_t begin) {
  std::size_t after_newline = begin;  // end of the run's last \r or \n
  std::size_t last = begin;           // where the run's last character begins
  std::size_t end = begin;
  for (Char c = char_at(text, end); c.is(CharClass::space); c = char_at(text, end)) {
    if (is_newline(text, end)) after_newline = end + 1;
    last = end;
    end += c.length;
  }
  if (after_newline > begin) return after_newline;
  // A run before a word leaves its last space to that word.
  return end == text.size() || last == begin ? end : last;
}

}  // namespace

std::size_t piece_end(std::string_view text, std::size_t begin) {
  if (text[begin] == '\'') {
    if (const std::size_t length = contraction_length(text, begin)) return begin + length;
  }
  const Char first = char_at(text, begin);
  const std::size_t second = begin + first.length;
  if (first.is(CharClass::letter)) return skip(text, second, CharClass::letter);
  if (first.is(CharClass::number)) return second;
  const Char next = char_at(text, second);
  if (next.is(CharClass::letter) && !is_newline(text, begin)) {
    return skip(text, second + next.length, CharClass::letter);
  }
  if (first.is(CharClass::other) || (text[begin] == ' ' && next.is(CharClass::other))) {
    std::size_t end = skip(text, second, CharClass::other);
    while (is_newline(text, end)) ++end;
    return end;
  }
  return space_end(text, begin);
}

}  // namespace strata
