// Text from models and files, made fit for a terminal: what comes out of here can neither move the
// cursor nor change colours, titles or the clipboard, nor show letters in another order than they
// are in. Widths are those of the terminal's cells.
#pragma once

#include <string>
#include <string_view>

namespace strata::terminal {

// Line breaks and tabs stay. Other control characters become the pictures that Unicode has for them
// (ESC is U+241B), CR LF one line break; C1 controls, marks that reorder text, invisible tags and
// what is no UTF-8 become U+FFFD.
class SafeText {
 public:
  // The text may be cut anywhere, in the middle of a character too.
  std::string feed(std::string_view bytes);
  std::string flush();  // what was cut off at the end

 private:
  std::string rest_;  // the beginning of a character, or a CR
};
std::string safe_text(std::string_view bytes);
// As safe_text, in one line: breaks and tabs become pictures, too.
std::string safe_line(std::string_view bytes);

void append_utf8(std::string& out, char32_t c);
std::u32string from_utf8(std::string_view text);  // U+FFFD for what is none
std::string to_utf8(std::u32string_view text);

int width_of(char32_t c);  // 0 (combining marks), 1 or 2 cells
int width_of(std::string_view utf8);
// The longest beginning that has room.
std::string fitting(std::string_view utf8, int columns);

}  // namespace strata::terminal
