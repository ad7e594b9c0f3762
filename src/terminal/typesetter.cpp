#include "terminal/typesetter.h"

#include <algorithm>
#include <utility>

#include "terminal/text.h"

namespace strata::terminal {

std::string begin(Looks looks) {
  if (looks == kPlain) return {};
  std::string codes;
  const auto add = [&](Look look, const char* code) {
    if ((looks & look) == 0) return;
    if (!codes.empty()) codes += ';';
    codes += code;
  };
  add(kBold, "1");
  add(kDim, "2");
  add(kItalic, "3");
  add(kUnderline, "4");
  add(kCode, "36");
  return "\x1b[" + codes + "m";
}

Typesetter::Typesetter(bool colour, Columns columns)
    : colour_(colour), columns_(std::move(columns)) {
  measure();
}

// The last column stays free: what terminals do behind it differs.
void Typesetter::measure() {
  const int columns = columns_ ? columns_() : 0;
  room_ = columns < kFewestColumns ? 0 : columns - 1;
}

void Typesetter::look(Looks looks) {
  if (!colour_ || looks == looks_) return;
  if (looks_ != kPlain) out_ += kPlainAgain;
  out_ += begin(looks);
  looks_ = looks;
}

void Typesetter::write(const Glyph& glyph) {
  look(glyph.looks);
  append_utf8(out_, glyph.c);
  column_ += glyph.width;
}

void Typesetter::wrap() {
  look(kPlain);
  out_ += '\n';
  measure();
  // A narrow terminal has no room to waste.
  const int indent = std::min(indent_, room_ / 3);
  out_.append(static_cast<std::size_t>(indent), ' ');
  column_ = indent;
  spaces_.clear();
}

void Typesetter::end_word() {
  if (word_.empty()) return;
  const int gap = static_cast<int>(spaces_.size());
  if (room_ > 0 && column_ > 0 && column_ + gap + word_width_ > room_) wrap();
  for (const Glyph& space : spaces_)
    if (room_ == 0 || column_ < room_) write(space);
  spaces_.clear();
  for (const Glyph& glyph : word_) {
    if (room_ > 0 && column_ > 0 && column_ + glyph.width > room_) wrap();
    write(glyph);
  }
  word_.clear();
  word_width_ = 0;
}

void Typesetter::put(char32_t c, Looks looks) {
  constexpr int kTab = 4;
  constexpr std::size_t kMostSpaces = 1024;
  if (c == ' ' || c == '\t') {
    end_word();
    for (int i = c == ' ' ? kTab - 1 : 0; i < kTab && spaces_.size() < kMostSpaces; ++i)
      spaces_.push_back({' ', 1, looks});
    return;
  }
  const int width = width_of(c);
  if (width == 2) end_word();  // such scripts are broken anywhere
  word_.push_back({c, width, looks});
  word_width_ += width;
  constexpr std::size_t kLongest = 4096;  // of a word that is held back, marks without width too
  if (width == 2 || (room_ > 0 && word_width_ > room_) || word_.size() > kLongest) end_word();
}

void Typesetter::put_unbroken(char32_t c, Looks looks) {
  end_word();
  for (const Glyph& space : spaces_) write(space);
  spaces_.clear();
  write({c, width_of(c), looks});
}

void Typesetter::line_break() {
  end_word();
  spaces_.clear();
  look(kPlain);
  out_ += '\n';
  measure();
  column_ = indent_ = 0;
}

std::string Typesetter::take() {
  return std::exchange(out_, {});
}

std::string Typesetter::finish() {
  end_word();
  spaces_.clear();
  look(kPlain);
  return take();
}

}  // namespace strata::terminal
