#include "chat/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

namespace strata::chat::jinja {

namespace {

bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_name(char c) {
  return is_name_start(c) || is_digit(c);
}

// Line breaks become "\n"; one at the very end is dropped.
std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) text_and_tag();
    add(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void error(std::string_view reason) const { raise("line {}: {}", line_, reason); }

  bool starts(std::string_view text) const {
    return std::string_view(source_).substr(at_).starts_with(text);
  }
  void advance(std::size_t count) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + count),
                                         '\n'));
    at_ += count;
  }
  void skip_blanks() {
    std::size_t end = at_;
    while (end < source_.size() && is_blank(source_[end])) ++end;
    advance(end - at_);
  }
  Token& add(Token::Kind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), {}, line_});
    return tokens_.back();
  }

  // Plain text up to the next tag, then the tag.
  void text_and_tag() {
    std::size_t tag = at_;
    while (tag < source_.size()) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos) tag = source_.size();
      if (tag + 1 < source_.size() &&
          std::string_view("{%#").find(source_[tag + 1]) != std::string_view::npos) {
        break;
      }
      if (tag < source_.size()) ++tag;
    }
    if (tag >= source_.size()) {
      add(Token::Kind::data, source_.substr(at_));
      advance(source_.size() - at_);
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    emit_text(tag, sign, kind != '{');
    advance(tag - at_ + 2 + (sign == '-' || sign == '+' ? 1 : 0));
    if (kind == '#') {
      comment();
    } else if (kind == '{') {
      add(Token::Kind::variable_begin, "{{");
      inside("}}");
      add(Token::Kind::variable_end, "}}");
    } else if (!raw()) {
      add(Token::Kind::block_begin, "{%");
      inside("%}");
      add(Token::Kind::block_end, "%}");
    }
  }

  // The text in front of a tag, without the white space that the tag takes away.
  void emit_text(std::size_t tag, char sign, bool may_strip_line) {
    std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    if (sign == '-') {
      while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
    } else if (sign != '+' && may_strip_line) {
      const std::size_t line_start = text.rfind('\n') + 1;  // 0 when there is none
      const std::string_view indent = text.substr(line_start);
      if ((line_start > 0 || line_starting_) &&
          std::all_of(indent.begin(), indent.end(), is_blank)) {
        text.remove_suffix(indent.size());
      }
    }
    if (!text.empty()) add(Token::Kind::data, std::string(text));
  }

  // Behind the end of a tag: "-" takes all white space, a block or comment one line break.
  void after_tag(char sign, bool trims_line) {
    const std::size_t begin = at_;
    if (sign == '-') {
      skip_blanks();
    } else if (sign != '+' && trims_line && starts("\n")) {
      advance(1);
    }
    line_starting_ = at_ > begin && source_[at_ - 1] == '\n';
  }

  void comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string::npos) error("a comment is not closed with '#}'");
    const char sign = end > at_ ? source_[end - 1] : ' ';
    advance(end - at_ + 2);
    after_tag(sign, true);
  }

  // {% raw %} ... {% endraw %}, if that is what stands here behind "{%".
  bool raw() {
    const std::string_view rest = std::string_view(source_).substr(at_);
    std::size_t i = 0;
    const auto blanks = [&] {
      while (i < rest.size() && is_blank(rest[i])) ++i;
    };
    blanks();
    if (!rest.substr(i).starts_with("raw")) return false;
    i += 3;
    blanks();
    const bool strip = rest.substr(i).starts_with("-%}");
    if (!strip && !rest.substr(i).starts_with("%}")) return false;
    advance(i + (strip ? 3 : 2));
    if (strip) skip_blanks();
    line_starting_ = source_[at_ - 1] == '\n';
    raw_body();
    return true;
  }

  void raw_body() {
    for (std::size_t tag = at_; (tag = source_.find("{%", tag)) != std::string::npos; tag += 2) {
      std::size_t i = tag + 2;
      const auto blanks = [&] {
        while (i < source_.size() && is_blank(source_[i])) ++i;
      };
      const char sign = i < source_.size() ? source_[i] : ' ';
      if (sign == '-' || sign == '+') ++i;
      blanks();
      if (source_.compare(i, 6, "endraw") != 0) continue;
      i += 6;
      blanks();
      const char end_sign = i < source_.size() ? source_[i] : ' ';
      if (end_sign == '-' || end_sign == '+') ++i;
      if (source_.compare(i, 2, "%}") != 0) continue;
      emit_text(tag, sign, true);
      advance(i + 2 - at_);
      after_tag(end_sign, true);
      return;
    }
    error("a raw block is not closed with endraw");
  }

  // The inside of a {{ }} or {% %} up to and with its end.
  void inside(std::string_view close) {
    std::string brackets;
    while (true) {
      skip_blanks();
      if (at_ >= source_.size()) error(fmt::format("a tag is not closed with '{}'", close));
      if (brackets.empty()) {
        const bool block = close == "%}";
        const char sign = source_[at_];
        const bool has_sign = sign == '-' || (block && sign == '+');
        if (std::string_view(source_).substr(at_ + (has_sign ? 1 : 0)).starts_with(close)) {
          advance(has_sign ? 3 : 2);
          after_tag(has_sign ? sign : ' ', block);
          return;
        }
      }
      token(brackets);
    }
  }

  void token(std::string& brackets) {
    const char c = source_[at_];
    if (is_name_start(c)) {
      std::size_t end = at_;
      while (end < source_.size() && is_name(source_[end])) ++end;
      add(Token::Kind::name, source_.substr(at_, end - at_));
      advance(end - at_);
    } else if (is_digit(c)) {
      number();
    } else if (c == '"' || c == '\'') {
      string();
    } else {
      symbol(brackets);
    }
  }

  void symbol(std::string& brackets) {
    static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", "<=", ">="};
    static constexpr std::string_view kOne = "+-/*%~[](){}<>=.:|,;";
    std::size_t length = 0;
    for (const std::string_view two : kTwo) {
      if (starts(two)) length = 2;
    }
    const char c = source_[at_];
    if (length == 0 && kOne.find(c) != std::string_view::npos) length = 1;
    if (length == 0) error(fmt::format("unexpected character '{}'", c));
    if (c == '(' || c == '[' || c == '{') {
      brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty() || brackets.back() != c) error(fmt::format("unexpected '{}'", c));
      brackets.pop_back();
    }
    add(Token::Kind::symbol, source_.substr(at_, length));
    advance(length);
  }

  void number() {
    const std::size_t begin = at_;
    std::string digits;
    int base = 10;
    if (source_[at_] == '0' && at_ + 1 < source_.size()) {
      const char letter = static_cast<char>(source_[at_ + 1] | 0x20);
      base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    }
    std::size_t end = begin + (base == 10 ? 0 : 2);
    const auto take_digits = [&] {
      while (end < source_.size() &&
             (is_digit(source_[end]) || source_[end] == '_' ||
              (base == 16 && std::isxdigit(static_cast<unsigned char>(source_[end]))))) {
        if (source_[end] != '_') digits += source_[end];
        ++end;
      }
    };
    take_digits();
    const bool floating = base == 10 && take_fraction(end, digits, take_digits);
    Token& token = add(floating ? Token::Kind::floating : Token::Kind::integer, digits);
    if (floating) {
      token.number = Value(std::strtod(digits.c_str(), nullptr));
    } else {
      std::int64_t value = 0;
      const auto [last, status] =
          std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
      if (status != std::errc() || last != digits.data() + digits.size()) {
        error(fmt::format("'{}' is not an integer of 64 bits", digits));
      }
      token.number = Value(value);
    }
    advance(end - begin);
  }

  template <class TakeDigits>
  bool take_fraction(std::size_t& end, std::string& digits, const TakeDigits& take_digits) {
    bool floating = false;
    const auto digit_at = [&](std::size_t i) { return i < source_.size() && is_digit(source_[i]); };
    if (end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
      floating = true;
      digits += source_[end++];
      take_digits();
    }
    if (end < source_.size() && (source_[end] | 0x20) == 'e') {
      const std::size_t sign =
          end + 1 < source_.size() && (source_[end + 1] == '-' || source_[end + 1] == '+') ? 1 : 0;
      if (digit_at(end + 1 + sign)) {
        floating = true;
        digits += source_.substr(end, 1 + sign);
        end += 1 + sign;
        take_digits();
      }
    }
    return floating;
  }

  void string() {
    const char quote = source_[at_];
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) error("a string is not closed");
    add(Token::Kind::string, unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    advance(end - at_ + 1);
  }

  std::string unescape(std::string_view text) const {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 >= text.size()) {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      static constexpr std::string_view kFrom = "ntrbfav\\'\"";
      static constexpr std::string_view kTo = "\n\t\r\b\f\a\v\\'\"";
      if (const std::size_t simple = kFrom.find(c); simple != std::string_view::npos) {
        out += kTo[simple];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        append_utf8(out, hex(text, i + 1, c == 'x' ? 2 : c == 'u' ? 4 : 8));
        i += c == 'x' ? 2 : c == 'u' ? 4 : 8;
      } else if (c >= '0' && c <= '7') {
        std::uint32_t value = 0;
        std::size_t count = 0;
        for (; count < 3 && i < text.size() && text[i] >= '0' && text[i] <= '7'; ++count, ++i) {
          value = value * 8 + static_cast<std::uint32_t>(text[i] - '0');
        }
        --i;
        append_utf8(out, value);
      } else if (c != '\n') {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  std::uint32_t hex(std::string_view text, std::size_t at, std::size_t count) const {
    std::uint32_t value = 0;
    const std::string_view digits = text.substr(std::min(at, text.size()), count);
    const auto [last, status] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != count || status != std::errc() || last != digits.data() + count ||
        value > 0x10FFFF) {
      error("a string has a malformed escape");
    }
    return value;
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(normalize(source)).run();
}

}  // namespace strata::chat::jinja
