// A string that remembers which of its bytes came in through the conversation.
//
// Literals of a template are trusted; everything a user, a tool or a model wrote is not. All string
// operations of the interpreter are built from append and slice, which keep the marks, so no
// operation can turn foreign bytes into trusted ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::chat::jinja {

class Text {
 public:
  // Bytes [begin, end).
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool operator==(const Range&) const = default;
  };

  Text() = default;
  Text(std::string bytes, bool trusted);

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // No byte came in through the conversation.
  bool trusted() const { return untrusted_.empty(); }
  // The other bytes: ascending, disjoint, never touching.
  std::span<const Range> untrusted() const { return untrusted_; }
  bool trusted(std::size_t begin, std::size_t end) const;

  void append(std::string_view bytes, bool trusted);
  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, std::size_t begin, std::size_t end);
  Text slice(std::size_t begin, std::size_t end) const;
  // Marks every byte as untrusted.
  void distrust();

 private:
  void mark(std::size_t begin, std::size_t end);
  // The first untrusted range that ends behind `position`.
  std::vector<Range>::const_iterator range_behind(std::size_t position) const;

  std::string bytes_;
  std::vector<Range> untrusted_;
};

// --- UTF-8, as Python sees a str: indices count code points. ---

// Bytes of the character at `position` (at least 1) and its code point. A byte that does not start
// a well-formed sequence counts as one character, with code point 0xDC00 + byte.
std::size_t decode_utf8(std::string_view text, std::size_t position, std::uint32_t& code_point);
std::size_t count_characters(std::string_view text);
// Byte offset of the character with that index; text.size() at or behind the end.
std::size_t offset_of_character(std::string_view text, std::size_t index);
void append_utf8(std::string& out, std::uint32_t code_point);

// Python's str.isspace, isalpha, isnumeric (without ideographs), isdecimal and isdigit for one code
// point.
bool is_space(std::uint32_t code_point);
bool is_letter(std::uint32_t code_point);
bool is_number(std::uint32_t code_point);
bool is_decimal(std::uint32_t code_point);
bool is_digit(std::uint32_t code_point);

}  // namespace strata::chat::jinja
