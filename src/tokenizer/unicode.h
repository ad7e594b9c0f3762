// What the tokenizer knows about characters, from the tables of one Unicode version
// (unicode::kVersion). The tables are our own and not the system's Unicode library, because the
// same text must give the same tokens on every machine, whatever is installed there. Characters
// that a later version assigns count as symbols.
#pragma once

#include <cstdint>
#include <string_view>

#include "tokenizer/unicode_generated.h"
#include "tokenizer/utf8.h"

namespace strata {

enum class CharClass : std::uint8_t {
  other = 0,
  upper = 1,     // \p{Lu}, \p{Lt}
  lower = 2,     // \p{Ll}
  caseless = 3,  // \p{Lm}, \p{Lo}
  mark = 4,      // \p{M}
  number = 5,    // \p{N}
  space = 6,     // \s: White_Space
};

// A set of classes.
using ClassSet = std::uint8_t;
constexpr ClassSet set_of(CharClass c) {
  return static_cast<ClassSet>(1u << static_cast<unsigned>(c));
}
inline constexpr ClassSet kOther = set_of(CharClass::other);
inline constexpr ClassSet kUpper = set_of(CharClass::upper);
inline constexpr ClassSet kLower = set_of(CharClass::lower);
inline constexpr ClassSet kCaseless = set_of(CharClass::caseless);
inline constexpr ClassSet kMark = set_of(CharClass::mark);
inline constexpr ClassSet kNumber = set_of(CharClass::number);
inline constexpr ClassSet kSpace = set_of(CharClass::space);
inline constexpr ClassSet kLetter = kUpper | kLower | kCaseless;

namespace unicode {
// `code` < 0x110000.
inline std::uint8_t entry(char32_t code) {
  const std::uint8_t* block = kBlocks[kBlockOf[code / kBlockSize]];
  const unsigned offset = code % kBlockSize;
  return static_cast<std::uint8_t>((block[offset / 2] >> (4 * (offset % 2))) & 15);
}
inline CharClass class_of(char32_t code) {
  return static_cast<CharClass>(entry(code) & 7);
}
// True for characters that are not in NFC, may compose with the one before, or may change places
// with a neighbour. All others are a border: what is before them and what begins with them are
// normalised apart.
inline bool nfc_may_change(char32_t code) {
  return (entry(code) & 8) != 0;
}
}  // namespace unicode

// A character of a text, or its end: then the length is 0 and it is in no set. A byte that belongs
// to no character is one of class `other`.
struct TextChar {
  std::uint8_t length = 0;
  ClassSet classes = 0;  // one bit
  bool in(ClassSet set) const { return (classes & set) != 0; }
};

inline TextChar char_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return {};
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {1, set_of(unicode::class_of(byte))};
  const Utf8Char c = decode_utf8(text, at);
  if (c.status != Utf8Status::valid) return {1, kOther};
  return {c.length, set_of(unicode::class_of(c.code))};
}

}  // namespace strata
