// Lines of words on a terminal: breaks between words instead of in them, looks (bold, dim, ...) as
// escape sequences. Takes characters one by one as they come; a word is held back until it is
// whole, so that where the input was cut changes nothing. Give it safe text (text.h) only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "terminal/screen.h"

namespace strata::terminal {

enum Look : std::uint8_t {
  kPlain = 0,
  kBold = 1,
  kItalic = 2,
  kUnderline = 4,
  kDim = 8,
  kCode = 16,  // a colour
};
using Looks = std::uint8_t;
// The escape sequence that begins looks; the one that ends all is kPlainAgain.
std::string begin(Looks looks);
inline constexpr const char* kPlainAgain = "\x1b[0m";

class Typesetter {
 public:
  // Without colour there are no looks. The columns are asked at every line, as terminals are
  // resized; where there are fewer than kFewestColumns lines are left to the terminal.
  Typesetter(bool colour, Columns columns);
  static constexpr int kFewestColumns = 4;

  // A character of a line that may be broken at spaces and between wide characters.
  void put(char32_t c, Looks looks);
  // Of one that may not: code, tables.
  void put_unbroken(char32_t c, Looks looks);
  // What broken lines of this line begin with, from the next break on.
  void indent(int columns) { indent_ = columns; }
  void line_break();

  // What can be written now.
  std::string take();
  // All of it; the looks are plain then and the line stays open.
  std::string finish();
  bool at_line_start() const { return column_ == 0 && word_.empty(); }
  bool colour() const { return colour_; }
  int room() const { return room_; }  // columns of a line

 private:
  struct Glyph {
    char32_t c;
    int width;
    Looks looks;
  };
  void measure();
  void wrap();
  void end_word();
  void write(const Glyph& glyph);
  void look(Looks looks);

  bool colour_;
  Columns columns_;
  int room_ = 0;    // of this line; 0: unlimited
  int column_ = 0;  // written in this line
  int indent_ = 0;
  Looks looks_ = kPlain;  // in force at the end of out_
  std::vector<Glyph> word_, spaces_;
  int word_width_ = 0;
  std::string out_;
};

}  // namespace strata::terminal
