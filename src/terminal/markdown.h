// Markdown while it is written: headings, emphasis, code, lists, quotations and rules, as models
// use them, shown on a terminal as the text comes. Not the whole language: tables, links and HTML
// stay as they are written.
//
// - Where the text was cut into pieces changes nothing.
// - Nothing waits longer than for the line's first word and a mark's next character (an opening
//   fence: its line), and nothing that was shown is taken back. Emphasis that is not closed ends
//   with its line.
// - Without colour the marks stay: the text is the model's, broken into lines.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "terminal/typesetter.h"

namespace strata::terminal {

class Markdown {
 public:
  explicit Markdown(Typesetter& out) : out_(out) {}
  // Safe text (text.h), in whole characters.
  void feed(std::string_view text);
  void finish();  // no more comes; the line stays open

 private:
  // What a line is, from its beginning.
  struct Line {
    enum class Kind { text, blank, heading, item, quote, rule, fence, table };
    Kind kind = Kind::text;
    std::size_t mark = 0;  // characters of the beginning that say so, indentation not counted
    int level = 0;         // of a heading
    bool numbered = false;
  };
  struct Fence {
    char32_t mark = '`';
    std::size_t count = 3;
  };
  // Marks of one kind that stand together.
  struct Run {
    char32_t mark = 0;
    std::size_t count = 0;
    char32_t before = '\n';
  };

  // Of a line that begins so; absent: more of it is needed. `whole`: there is no more.
  static std::optional<Line> kind_of(std::u32string_view text, bool whole);
  static std::optional<Line> kind_of_marks(std::u32string_view text, bool whole);
  static std::optional<Line> kind_of_number(std::u32string_view text, bool whole);
  static std::optional<Line> kind_of_fence(std::u32string_view text, bool whole);

  void character(char32_t c);
  void begin_line(bool whole);
  void show_beginning(const Line& line, std::u32string_view mark, std::size_t indentation);
  void code_line(bool whole);
  bool closes_fence(bool whole) const;
  void inline_character(char32_t c);
  void resolve(char32_t next);
  bool resolve_emphasis(char32_t next);
  void literally(const Run& run);
  void end_line();
  void put(char32_t c);
  void put_all(std::u32string_view text, Looks looks);
  Looks looks() const;

  Typesetter& out_;
  bool at_start_ = true;  // of a line: what it is is not known yet, and it is in head_
  std::u32string head_;
  std::optional<Fence> fence_;  // inside code
  Looks block_ = kPlain;
  bool unbroken_ = false;
  char32_t bold_ = 0, italic_ = 0;  // the mark that opened it
  std::size_t ticks_ = 0;           // that opened code in the line
  Run run_;
  bool escape_ = false;
  char32_t before_ = '\n';
};

}  // namespace strata::terminal
