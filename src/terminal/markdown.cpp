#include "terminal/markdown.h"

#include <algorithm>
#include <utility>

#include "terminal/text.h"

namespace strata::terminal {
namespace {

// What is held back while it may still be a mark; longer ones are text.
constexpr std::size_t kLongestMark = 200;
constexpr std::size_t kDeepest = 64;  // of it, indentation

bool is_space(char32_t c) {
  return c == ' ' || c == '\t' || c == '\n';
}
bool is_word(char32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_punctuation(char32_t c) {
  return c > ' ' && c < 0x7F && !is_word(c);
}
std::size_t run_of(std::u32string_view text, char32_t c) {
  const std::size_t end = text.find_first_not_of(c);
  return end == text.npos ? text.size() : end;
}

}  // namespace

// Of a line that begins with -, *, + or _: an item, a rule or text.
std::optional<Markdown::Line> Markdown::kind_of_marks(std::u32string_view text, bool whole) {
  const char32_t mark = text.front();
  if (text.size() > kLongestMark) return Line{};
  const bool bare = std::all_of(text.begin(), text.end(),
                                [mark](char32_t c) { return c == mark || is_space(c); });
  if (bare && !whole && mark != '+') return std::nullopt;
  const auto count = std::count(text.begin(), text.end(), mark);
  if (bare && count >= 3 && mark != '+') return Line{.kind = Line::Kind::rule, .mark = text.size()};
  if (text.size() == 1 && !whole) return std::nullopt;
  const bool item = mark != '_' && (text.size() == 1 || is_space(text[1]));
  if (!item) return Line{};
  return Line{.kind = Line::Kind::item, .mark = std::min<std::size_t>(text.size(), 2)};
}

std::optional<Markdown::Line> Markdown::kind_of_number(std::u32string_view text, bool whole) {
  constexpr std::size_t kDigits = 9;
  const auto end =
      std::find_if_not(text.begin(), text.end(), [](char32_t c) { return c >= '0' && c <= '9'; });
  const auto digits = static_cast<std::size_t>(end - text.begin());
  if (digits > kDigits) return Line{};
  if (digits + 1 >= text.size() && !whole) {
    const bool open = end == text.end() || *end == '.' || *end == ')';
    return open ? std::nullopt : std::optional(Line{});
  }
  const bool item = digits + 1 < text.size() && (*end == '.' || *end == ')') && end[1] == ' ';
  if (!item) return Line{};
  return Line{.kind = Line::Kind::item, .mark = digits + 2, .numbered = true};
}

std::optional<Markdown::Line> Markdown::kind_of_fence(std::u32string_view text, bool whole) {
  const char32_t mark = text.front();
  const std::size_t count = run_of(text, mark);
  if (count < 3) {
    if (count < text.size() || whole) return Line{};
    return std::nullopt;
  }
  // Ticks further on: code in the line.
  if (mark == '`' && text.substr(count).find(mark) != text.npos) return Line{};
  if (text.size() > kLongestMark) return Line{};
  if (!whole) return std::nullopt;
  return Line{.kind = Line::Kind::fence, .mark = text.size()};
}

std::optional<Markdown::Line> Markdown::kind_of(std::u32string_view text, bool whole) {
  if (text.empty()) return whole ? std::optional(Line{.kind = Line::Kind::blank}) : std::nullopt;
  switch (text.front()) {
    case '#': {
      const std::size_t level = run_of(text, '#');
      if (level == text.size() && level <= 6 && !whole) return std::nullopt;
      if (level > 6 || level == text.size() || text[level] != ' ') return Line{};
      return Line{.kind = Line::Kind::heading, .mark = level + 1, .level = static_cast<int>(level)};
    }
    case '-':
    case '*':
    case '+':
    case '_':
      return kind_of_marks(text, whole);
    case '>':
      if (text.size() == 1 && !whole) return std::nullopt;
      return Line{.kind = Line::Kind::quote,
                  .mark = std::size_t{1} + (text.size() > 1 && text[1] == ' ' ? 1 : 0)};
    case '`':
    case '~':
      return kind_of_fence(text, whole);
    case '|':
      return Line{.kind = Line::Kind::table};
    default:
      if (text.front() >= '0' && text.front() <= '9') return kind_of_number(text, whole);
      return Line{};
  }
}

void Markdown::feed(std::string_view text) {
  for (const char32_t c : from_utf8(text)) character(c);
}

void Markdown::character(char32_t c) {
  if (!at_start_) {
    inline_character(c);
    return;
  }
  if (c != '\n') head_ += c;
  if (fence_) {
    code_line(c == '\n');
  } else {
    begin_line(c == '\n');
  }
  if (c == '\n') {
    if (at_start_) {
      end_line();
    } else {
      inline_character(c);
    }
  }
}

// Finds out what the line in head_ is, if that can be said, and shows it.
void Markdown::begin_line(bool whole) {
  std::size_t indentation = std::min(head_.find_first_not_of(U" \t"), head_.size());
  if (indentation > kDeepest) whole = true;
  const auto line = kind_of(std::u32string_view(head_).substr(indentation), whole);
  if (!line) return;
  const std::u32string head = std::exchange(head_, {});
  at_start_ = false;
  const auto text = std::u32string_view(head).substr(indentation);
  if (line->kind == Line::Kind::fence) {
    fence_ = Fence{.mark = text.front(), .count = run_of(text, text.front())};
    for (const char32_t c : head) out_.put_unbroken(c, kDim);
    return;
  }
  // Indentation of text says little and takes room.
  if (out_.room() > 0)
    indentation = std::min<std::size_t>(indentation, static_cast<std::size_t>(out_.room()) / 2);
  put_all(std::u32string(indentation, ' '), kPlain);
  if (out_.colour()) {
    show_beginning(*line, text.substr(0, line->mark), indentation);
  } else {
    put_all(text.substr(0, line->mark), kPlain);
    unbroken_ = line->kind == Line::Kind::table;
  }
  if (line->kind == Line::Kind::item) out_.indent(static_cast<int>(indentation + line->mark));
  for (const char32_t c : text.substr(line->mark)) inline_character(c);
}

void Markdown::show_beginning(const Line& line, std::u32string_view mark, std::size_t indentation) {
  switch (line.kind) {
    case Line::Kind::heading:
      block_ = line.level <= 2 ? kBold | kUnderline : kBold;
      break;
    case Line::Kind::item:
      put_all(line.numbered ? mark : std::u32string_view(U"• "), kPlain);
      break;
    case Line::Kind::quote:
      put_all(U"│ ", kDim);
      out_.indent(static_cast<int>(indentation) + 2);
      block_ = kItalic;
      break;
    case Line::Kind::rule: {
      constexpr int kLongest = 40;
      const int length = out_.room() > 0 ? std::min(out_.room(), kLongest) : kLongest;
      put_all(std::u32string(static_cast<std::size_t>(length), U'─'), kDim);
      break;
    }
    case Line::Kind::table:
      unbroken_ = true;
      break;
    case Line::Kind::text:
    case Line::Kind::blank:
    case Line::Kind::fence:
      break;
  }
}

bool Markdown::closes_fence(bool whole) const {
  const std::size_t indentation = std::min(head_.find_first_not_of(U' '), head_.size());
  const std::u32string_view text = std::u32string_view(head_).substr(indentation);
  const std::size_t count = run_of(text, fence_->mark);
  const bool spaces_behind = text.find_first_not_of(U" \t", count) == text.npos;
  return head_.size() <= kLongestMark && indentation <= kDeepest && spaces_behind &&
         (!whole || count >= fence_->count) && (count >= fence_->count || count == text.size());
}

// A line of code is held back as long as it may be the fence that closes it.
void Markdown::code_line(bool whole) {
  if (closes_fence(whole)) {
    if (!whole) return;
    for (const char32_t c : head_) out_.put_unbroken(c, kDim);
    fence_.reset();
  } else {
    for (const char32_t c : head_) out_.put_unbroken(c, kCode);
  }
  head_.clear();
  at_start_ = false;
}

Looks Markdown::looks() const {
  if (ticks_ > 0) return kCode;
  const int looks = block_ | (bold_ != 0 ? kBold : kPlain) | (italic_ != 0 ? kItalic : kPlain);
  return static_cast<Looks>(looks);
}

void Markdown::put_all(std::u32string_view text, Looks looks) {
  for (const char32_t c : text) {
    if (unbroken_) {
      out_.put_unbroken(c, looks);
    } else {
      out_.put(c, looks);
    }
  }
}

void Markdown::put(char32_t c) {
  put_all({&c, 1}, looks());
  before_ = c;
}

void Markdown::literally(const Run& run) {
  for (std::size_t i = 0; i < run.count; ++i) put(run.mark);
}

void Markdown::inline_character(char32_t c) {
  if (fence_) {  // behind the beginning of a line of code, or of its opening
    if (c == '\n') return end_line();
    return out_.put_unbroken(c, kCode);
  }
  if (run_.count > 0) {
    if (c == run_.mark) {
      ++run_.count;
      return;
    }
    resolve(c);
  }
  if (escape_) {
    escape_ = false;
    if (is_punctuation(c)) return put(c);
    put('\\');
  }
  if (c == '\n') return end_line();
  const bool mark = c == '`' || (ticks_ == 0 && (c == '*' || c == '_'));
  if (out_.colour() && mark) {
    run_ = {.mark = c, .count = 1, .before = before_};
  } else if (out_.colour() && c == '\\' && ticks_ == 0) {
    escape_ = true;
  } else {
    put(c);
  }
}

// The marks in run_ are all; `next` stands behind them.
void Markdown::resolve(char32_t next) {
  const Run run = run_;
  bool taken = false;
  if (run.mark == '`') {
    if (ticks_ == 0 && next != '\n') {
      ticks_ = run.count;
      taken = true;
    } else if (ticks_ == run.count) {
      ticks_ = 0;
      taken = true;
    }
  } else {
    taken = resolve_emphasis(next);
  }
  run_ = {};
  if (taken) {
    before_ = run.mark;
  } else {
    literally(run);
  }
}

bool Markdown::resolve_emphasis(char32_t next) {
  if (run_.count > 3) return false;
  const bool strong = run_.count >= 2, light = run_.count != 2;
  const bool closes = !is_space(run_.before) && (!strong || bold_ == run_.mark) &&
                      (!light || italic_ == run_.mark) &&
                      (!is_word(next) || (strong && run_.mark == '*'));
  if (closes) {
    if (strong) bold_ = 0;
    if (light) italic_ = 0;
    return true;
  }
  const bool opens = !is_space(next) && !is_word(run_.before) && (!strong || bold_ == 0) &&
                     (!light || italic_ == 0);
  if (!opens) return false;
  if (strong) bold_ = run_.mark;
  if (light) italic_ = run_.mark;
  return true;
}

void Markdown::end_line() {
  out_.line_break();
  at_start_ = true;
  unbroken_ = escape_ = false;
  bold_ = italic_ = 0;
  ticks_ = 0;
  run_ = {};
  block_ = kPlain;
  before_ = '\n';
}

void Markdown::finish() {
  if (at_start_ && !head_.empty()) {
    if (fence_) {
      code_line(true);
    } else {
      begin_line(true);
    }
  }
  if (run_.count > 0) resolve('\n');
  if (escape_) put('\\');
  escape_ = false;
}

}  // namespace strata::terminal
