#include "constrain/gbnf.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/json_number.h"
#include "constrain/json_schema.h"
#include "tokenizer/utf8.h"

namespace strata::constrain {
namespace {

using Expr = Grammar::Expr;

constexpr std::size_t kMaxGroups = 200;  // inside each other
constexpr std::size_t kMaxNested = 8;
constexpr std::size_t kMaxSchemaDepth = 256;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_name(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
}

class Parser {
 public:
  Parser(std::string_view text, const TokenNames& names, Grammar& grammar, std::size_t depth = 0)
      : text_(text), names_(names), grammar_(grammar), depth_(depth) {}

  // The rule 'root'.
  Result<Expr> parse() {
    skip(true);
    while (!at_end()) {
      STRATA_TRY(rule());
      skip(true);
    }
    const auto root = rules_.find("root");
    if (root == rules_.end() || !root->second.defined) {
      return fail(ErrorCode::invalid_argument,
                  "the grammar has no rule 'root'; name the rule of the whole answer so");
    }
    for (const auto& [name, it] : rules_) {
      if (it.defined) continue;
      at_ = it.used_at;
      return error("the rule '{}' is used but not defined; add a line '{} ::= ...'", name, name);
    }
    return grammar_.call(root->second.rule);
  }

 private:
  struct Known {
    Grammar::Rule rule{};
    std::size_t used_at = 0;
    bool defined = false;
  };

  template <class... Args>
  tl::unexpected<Error> error(fmt::format_string<Args...> text, Args&&... args) const {
    const std::string_view before = text_.substr(0, std::min(at_, text_.size()));
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::size_t begin = before.rfind('\n') + 1;  // 0 if there is none
    const auto continued =
        std::count_if(before.begin() + static_cast<std::ptrdiff_t>(begin), before.end(),
                      [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; });
    const auto column = static_cast<std::ptrdiff_t>(before.size() - begin) - continued + 1;
    return fail(ErrorCode::invalid_argument, "grammar, line {}, column {}: {}", line, column,
                fmt::format(text, std::forward<Args>(args)...));
  }

  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool starts(std::string_view word) const { return text_.substr(at_).starts_with(word); }
  bool take(std::string_view word) {
    if (!starts(word)) return false;
    at_ += word.size();
    return true;
  }

  // White space and comments; line ends too if they mean nothing here.
  void skip(bool lines) {
    for (; !at_end(); ++at_) {
      if (peek() == '#') {
        at_ = std::min(text_.find_first_of("\r\n", at_), text_.size());
        if (at_end()) return;
      }
      const char c = peek();
      if (c != ' ' && c != '\t' && !(lines && (c == '\n' || c == '\r'))) return;
    }
  }

  std::string_view name() {
    const std::size_t begin = at_;
    while (!at_end() && is_name(peek())) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  // Behind the end of a line: whether another rule, or nothing, follows.
  bool rule_follows() {
    const std::size_t begin = at_;
    skip(true);
    bool follows = at_end();
    if (!name().empty()) {
      skip(true);
      follows = starts("::=");
    }
    at_ = begin;
    return follows;
  }

  Known& known(std::string_view name, std::size_t used_at) {
    const auto [it, fresh] = rules_.try_emplace(std::string(name));
    if (fresh) it->second = {grammar_.declare(std::string(name)), used_at, false};
    return it->second;
  }

  Status rule() {
    const std::size_t begin = at_;
    const std::string_view rule_name = name();
    if (rule_name.empty()) return error("a rule is expected, such as: root ::= \"yes\" | \"no\"");
    Known& it = known(rule_name, begin);
    if (it.defined) {
      at_ = begin;
      return error("the rule '{}' is defined twice; join the two with '|'", rule_name);
    }
    it.defined = true;
    skip(true);
    if (!take("::=")) return error("'::=' is expected behind the name '{}'", rule_name);
    skip(true);
    STRATA_ASSIGN(const Expr body, alternatives(false));
    grammar_.define(it.rule, body);
    if (at_end() || peek() == '\n' || peek() == '\r') return {};
    return error("'{}' is not expected here; a rule ends with its line", shown());
  }

  std::string_view shown() const {
    const std::size_t length = utf8_length();
    return text_.substr(at_, length);
  }
  std::size_t utf8_length() const {
    std::size_t end = at_ + 1;
    while (end < text_.size() && (static_cast<unsigned char>(text_[end]) & 0xC0U) == 0x80U) ++end;
    return end - at_;
  }

  Result<Expr> alternatives(bool inside) {
    std::vector<Expr> parts;
    for (;;) {
      STRATA_ASSIGN(const Expr part, sequence(inside));
      parts.push_back(part);
      if (!take("|")) return grammar_.choice(parts);
      skip(true);
    }
  }

  Result<Expr> sequence(bool inside) {
    std::vector<Expr> parts;
    for (;;) {
      skip(inside);
      if (!inside && (peek() == '\n' || peek() == '\r') && !rule_follows()) skip(true);
      const char c = peek();
      if (at_end() || c == '|' || c == ')' || c == '\n' || c == '\r')
        return grammar_.sequence(parts);
      STRATA_ASSIGN(Expr part, element());
      for (bool more = true; more;) {
        skip(inside);
        STRATA_ASSIGN(more, repetition(part));
      }
      parts.push_back(part);
    }
  }

  Result<bool> repetition(Expr& part) {
    if (take("*")) {
      part = grammar_.repeat(part, 0, std::nullopt);
    } else if (take("+")) {
      part = grammar_.repeat(part, 1, std::nullopt);
    } else if (take("?")) {
      part = grammar_.repeat(part, 0, 1);
    } else if (take("{")) {
      skip(true);
      if (peek() == ',') return error("a number is expected before ','; write {{0,n}}");
      STRATA_ASSIGN(const std::uint32_t least, number());
      std::optional<std::uint32_t> most = least;
      skip(true);
      if (take(",")) {
        skip(true);
        most = std::nullopt;
        if (peek() != '}') {
          STRATA_ASSIGN(most, number());
        }
        skip(true);
      }
      if (most && *most < least)
        return error("a repetition of at least {} and at most {}", least, *most);
      if (!take("}")) return error("'}}' is expected");
      part = grammar_.repeat(part, least, most);
    } else {
      return false;
    }
    return true;
  }

  Result<std::uint32_t> number() {
    std::uint32_t value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, status] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (status == std::errc::result_out_of_range)
      return error("a number of at most {} is expected", UINT32_MAX);
    if (status != std::errc()) return error("a number is expected");
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }

  Result<Expr> element() {
    const char c = peek();
    if (c == '"') return literal();
    if (c == '[') return character_class();
    if (c == '.') {
      ++at_;
      return grammar_.regular(Regular::any_character());
    }
    if (c == '(') return group();
    if (c == '<' || starts("!<")) return token();
    if (c == '%') return directive();
    const std::size_t begin = at_;
    const std::string_view called = name();
    if (called.empty()) return error("'{}' is not expected here", shown());
    return grammar_.call(known(called, begin).rule);
  }

  Result<Expr> group() {
    if (++groups_ > kMaxGroups)
      return error("more than {} groups inside each other; use rules instead", kMaxGroups);
    const std::size_t begin = at_++;
    STRATA_ASSIGN(const Expr inner, alternatives(true));
    if (!take(")")) {
      at_ = begin;
      return error("this '(' is not closed");
    }
    --groups_;
    return inner;
  }

  Result<Expr> literal() {
    const std::size_t begin = at_++;
    std::string bytes;
    while (!take("\"")) {
      if (at_end() || peek() == '\n') {
        at_ = begin;
        return error("this literal is not closed by '\"' in its line");
      }
      STRATA_ASSIGN(const char32_t c, character());
      append_utf8(bytes, c);
    }
    return grammar_.literal(bytes);
  }

  // One character of a literal or class, escapes as llama.cpp has them.
  Result<char32_t> character() {
    if (!take("\\")) {
      const Utf8Char c = decode_utf8(text_, at_);
      if (c.status != Utf8Status::valid) return error("the text is not valid UTF-8 here");
      at_ += c.length;
      return c.code;
    }
    const char c = peek();
    if (!at_end()) ++at_;
    switch (c) {
      case 'n':
        return U'\n';
      case 'r':
        return U'\r';
      case 't':
        return U'\t';
      case '\\':
      case '"':
      case '[':
      case ']':
        return static_cast<char32_t>(c);
      case 'x':
        return hexadecimal(2);
      case 'u':
        return hexadecimal(4);
      case 'U':
        return hexadecimal(8);
      default:
        at_ -= at_end() && c == '\0' ? 1 : 2;
        return error(
            "an escape is one of \\n \\r \\t \\\\ \\\" \\[ \\] \\xHH \\uHHHH \\UHHHHHHHH; write "
            "other characters as they are, and a backslash as \\\\");
    }
  }

  Result<char32_t> hexadecimal(std::size_t digits) {
    const std::string_view part = text_.substr(at_, digits);
    std::uint32_t value = 0;
    const auto [end, status] = std::from_chars(part.data(), part.data() + part.size(), value, 16);
    if (status != std::errc() || part.size() != digits || end != part.data() + digits)
      return error("{} hexadecimal digits are expected", digits);
    if (value > kLastCodePoint || (value >= 0xD800 && value <= 0xDFFF))
      return error("U+{:04X} is not a character", value);
    at_ += digits;
    return value;
  }

  Result<Expr> character_class() {
    const std::size_t begin = at_++;
    const bool negated = take("^");
    std::vector<CodePoints> set;
    while (!take("]")) {
      if (at_end() || peek() == '\n') {
        at_ = begin;
        return error("this '[' is not closed by ']' in its line");
      }
      STRATA_ASSIGN(const char32_t first, character());
      CodePoints range{first, first};
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        const std::size_t place = at_;
        STRATA_ASSIGN(range.last, character());
        if (range.last < range.first) {
          at_ = place;
          return error("the range ends before it begins");
        }
      }
      set.push_back(range);
    }
    if (set.empty() && !negated) {
      at_ = begin;
      return error("a class without characters matches nothing; write \"\" for the empty text");
    }
    return grammar_.regular(Regular::characters(negated ? all_but(std::move(set)) : set));
  }

  static std::vector<CodePoints> all_but(std::vector<CodePoints> set) {
    std::sort(set.begin(), set.end(),
              [](const CodePoints& a, const CodePoints& b) { return a.first < b.first; });
    std::vector<CodePoints> rest;
    char32_t next = 0;
    for (const CodePoints& range : set) {
      if (range.first > next) rest.push_back({next, range.first - 1});
      next = std::max<char32_t>(next, range.last + 1);
    }
    if (next <= kLastCodePoint) rest.push_back({next, kLastCodePoint});
    return rest;
  }

  Result<Expr> token() {
    const bool except = take("!");
    const std::size_t begin = at_;
    std::vector<TokenId> ids;
    if (take("<[")) {
      do {
        skip(false);
        STRATA_ASSIGN(const std::uint32_t id, number());
        if (id > static_cast<std::uint32_t>(INT32_MAX)) return error("a token's id is expected");
        ids.push_back(static_cast<TokenId>(id));
        skip(false);
      } while (take(","));
      if (!take("]>")) return error("']>' is expected behind the ids of tokens");
    } else {
      const std::size_t end = text_.find_first_of(">\n", at_);
      if (end == std::string_view::npos || text_[end] != '>')
        return error("this token is not closed by '>' in its line");
      const std::string_view literal = text_.substr(begin, end + 1 - begin);
      const std::optional<TokenId> id = names_ ? names_(literal) : std::nullopt;
      if (!id) return error("'{}' is not a special token of this model", literal);
      ids.push_back(*id);
      at_ = end + 1;
    }
    return except ? grammar_.token_except(std::move(ids)) : grammar_.token(std::move(ids));
  }

  // --- additions of ours ---
  Result<Expr> directive() {
    const std::size_t begin = at_++;
    const std::string_view word = name();
    const auto placed = [&](Result<Expr> result) -> Result<Expr> {
      if (result) return result;
      at_ = begin;
      Error inner = std::move(result).error();
      tl::unexpected<Error> outer = error("%{}: {}", word, inner.message);
      outer.value().code = inner.code;
      return outer;
    };
    if (word == "value") return placed(json_value(grammar_));
    if (word == "object") return placed(json_object(grammar_));
    if (word == "json") {
      STRATA_ASSIGN(const boost::json::value schema, json());
      return placed(json_schema(grammar_, schema));
    }
    if (word == "regex") {
      STRATA_ASSIGN(const std::string pattern, json_text());
      return placed(language(regex(pattern, Match::whole)));
    }
    if (word == "until") {
      STRATA_ASSIGN(const std::string stop, json_text());
      if (stop.empty()) return error("the text behind %until is empty");
      return placed(language(text_without(stop)));
    }
    if (word == "fields" || word == "fields-if-able") {
      STRATA_ASSIGN(const std::string open, json_text());
      STRATA_ASSIGN(const std::string middle, json_text());
      STRATA_ASSIGN(const std::string close, json_text());
      STRATA_ASSIGN(const boost::json::value schema, json());
      STRATA_ASSIGN(const boost::json::value description, json());
      const Result<FieldReader> reader = FieldReader::of(description);
      if (!reader) return placed(tl::unexpected(reader.error()));
      const FieldMarks marks{open, middle, close};
      return placed(word == "fields" ? json_fields(grammar_, schema, marks, *reader)
                                     : json_fields_if_able(grammar_, schema, marks, *reader));
    }
    if (word == "grammar") {
      STRATA_ASSIGN(const std::string inner, json_text());
      if (depth_ >= kMaxNested) return error("more than {} grammars inside each other", kMaxNested);
      return placed(Parser(inner, names_, grammar_, depth_ + 1).parse());
    }
    at_ = begin;
    return error(
        "'%{}' is not one of %json %object %value %fields %fields-if-able %regex %until %grammar",
        word);
  }

  Result<Expr> language(Result<Regular> regular) {
    if (!regular) return tl::unexpected<Error>(std::move(regular).error());
    return grammar_.regular(std::move(*regular));
  }

  // A JSON value: up to where its brackets and quotes are closed.
  Result<boost::json::value> json() {
    skip(true);
    const std::size_t begin = at_;
    std::size_t depth = 0;
    bool quoted = false;
    for (bool done = false; !done && !at_end(); ++at_) {
      const char c = peek();
      if (quoted) {
        if (c == '\\') ++at_;
        quoted = c != '"';
        done = !quoted && depth == 0;
      } else if (c == '"') {
        quoted = true;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (c == '}' || c == ']') {
        if (depth == 0) break;
        done = --depth == 0;
      } else if (depth == 0 && !is_name(c)) {
        break;
      }
    }
    at_ = std::min(at_, text_.size());
    Result<boost::json::value> value = parse_written_json_exact(
        text_.substr(begin, at_ - begin), "the JSON behind it", kMaxSchemaDepth);
    if (value) return value;
    at_ = begin;
    return error("{}", value.error().message);
  }

  Result<std::string> json_text() {
    STRATA_ASSIGN(const boost::json::value value, json());
    if (!value.is_string()) return error("a JSON string in quotes is expected before this");
    return std::string(value.get_string());
  }

  std::string_view text_;
  const TokenNames& names_;
  std::size_t at_ = 0;
  std::size_t groups_ = 0;
  Grammar& grammar_;
  std::size_t depth_;
  std::map<std::string, Known, std::less<>> rules_;
};

}  // namespace

Result<Grammar> parse_gbnf(std::string_view text, const TokenNames& names) {
  if (text.size() > kMaxGrammarBytes) {
    return fail(ErrorCode::exhausted, "a grammar of {} bytes; at most {} are taken", text.size(),
                kMaxGrammarBytes);
  }
  Grammar grammar;
  STRATA_ASSIGN(const Grammar::Expr root, Parser(text, names, grammar).parse());
  grammar.set_root(root);
  return grammar;
}

}  // namespace strata::constrain
