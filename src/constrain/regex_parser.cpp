#include "constrain/regex_parser.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "tokenizer/utf8.h"

namespace strata::constrain {
namespace {

using Kind = Pattern::Kind;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Pattern> run() {
    STRATA_ASSIGN(pattern_.root, alternatives());
    if (!done()) return bad("a ')' without its '('");
    return std::move(pattern_);
  }

 private:
  using Index = std::uint32_t;

  bool done() const { return at_ == text_.size(); }
  bool sees(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool take(std::string_view what) {
    if (!sees(what)) return false;
    at_ += what.size();
    return true;
  }
  template <class... Args>
  tl::unexpected<Error> error(ErrorCode code, fmt::format_string<Args...> text,
                              Args&&... args) const {
    return fail(code, "the pattern at byte {}: {}", at_,
                fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  tl::unexpected<Error> bad(fmt::format_string<Args...> text, Args&&... args) const {
    return error(ErrorCode::invalid_argument, text, std::forward<Args>(args)...);
  }
  template <class... Args>
  tl::unexpected<Error> unsupported(fmt::format_string<Args...> text, Args&&... args) const {
    return error(ErrorCode::unsupported, text, std::forward<Args>(args)...);
  }

  Index add(Pattern::Node node) {
    pattern_.nodes.push_back(std::move(node));
    return static_cast<Index>(pattern_.nodes.size() - 1);
  }
  Index add(Kind kind) {
    return add(Pattern::Node{.kind = kind, .characters = {}, .children = {}, .most = {}});
  }
  Index add(CharacterSet set) {
    return add(Pattern::Node{
        .kind = Kind::characters, .characters = std::move(set), .children = {}, .most = {}});
  }
  Index add(Kind kind, std::vector<Index> children) {
    return add(
        Pattern::Node{.kind = kind, .characters = {}, .children = std::move(children), .most = {}});
  }

  Result<Index> alternatives() {
    if (++depth_ > kMaxPatternDepth)
      return error(ErrorCode::exhausted, "groups are nested more than {} deep", kMaxPatternDepth);
    std::vector<Index> list;
    do {
      std::vector<Index> terms;
      while (!done() && !sees("|") && !sees(")")) {
        STRATA_ASSIGN(const Index term, this->term());
        terms.push_back(term);
      }
      list.push_back(terms.size() == 1 ? terms[0] : add(Kind::concat, std::move(terms)));
    } while (take("|"));
    --depth_;
    return list.size() == 1 ? list[0] : add(Kind::either, std::move(list));
  }

  Result<Index> term() {
    if (take("^")) return assertion(Kind::start);
    if (take("$")) return assertion(Kind::end);
    if (take("\\b")) return assertion(Kind::boundary);
    if (take("\\B")) return assertion(Kind::no_boundary);
    if (take("(?=")) return look(Kind::look_ahead, false);
    if (take("(?!")) return look(Kind::look_ahead, true);
    if (take("(?<=")) return look(Kind::look_behind, false);
    if (take("(?<!")) return look(Kind::look_behind, true);
    if (sees("*") || sees("+") || sees("?")) return bad("'{}' has nothing to repeat", text_[at_]);
    STRATA_ASSIGN(const Index atom, this->atom());
    return quantified(atom);
  }

  Result<Index> assertion(Kind kind) {
    if (sees("*") || sees("+") || sees("?")) return bad("an assertion cannot be repeated");
    return add(kind);
  }

  Result<Index> look(Kind kind, bool negative) {
    STRATA_ASSIGN(const Index inner, alternatives());
    if (!take(")")) return bad("a '(' is not closed");
    STRATA_ASSIGN(const Index result, assertion(kind));
    pattern_.nodes[result].children = {inner};
    pattern_.nodes[result].negative = negative;
    return result;
  }

  Result<Index> atom() {
    if (sees("{") && count()) return bad("a repetition in braces has nothing to repeat");
    if (take("(")) return group();
    if (take("[")) return char_class();
    if (take(".")) return add(complement(line_ends()));
    if (take("\\")) {
      STRATA_ASSIGN(std::optional<CharacterSet> set, class_escape());
      if (set) return add(*std::move(set));
      STRATA_ASSIGN(const std::optional<char32_t> c, character_escape(false));
      return add(c ? CharacterSet{{*c, *c}} : CharacterSet());
    }
    STRATA_ASSIGN(const char32_t c, character());
    return add(CharacterSet{{c, c}});
  }

  Result<Index> group() {
    if (take("?<")) {
      const std::size_t end = text_.find('>', at_);
      const std::string_view name = text_.substr(at_, end == text_.npos ? 0 : end - at_);
      const auto part_of_name = [](char c) {
        return static_cast<unsigned char>(c) >= 0x80 || c == '_' || c == '$' ||
               (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      };
      if (name.empty() || (name[0] >= '0' && name[0] <= '9') ||
          !std::ranges::all_of(name, part_of_name))
        return bad("'(?<' begins neither a named group nor an assertion");
      if (std::ranges::find(names_, name) != names_.end())
        return bad("the group '{}' is there twice", name);
      names_.emplace_back(name);
      at_ = end + 1;
    } else if (!take("?:") && sees("?")) {
      return unsupported("'({}' begins no group of ECMA-262 that is known here",
                         ascii(text_.substr(at_, 2)));
    }
    STRATA_ASSIGN(const Index inner, alternatives());
    if (!take(")")) return bad("a '(' is not closed");
    return inner;
  }

  static std::string ascii(std::string_view text) {
    std::string result;
    for (const char c : text) result += c >= ' ' && c <= '~' ? c : '.';
    return result;
  }

  Result<Index> quantified(Index atom) {
    std::uint32_t least = 0;
    std::optional<std::uint32_t> most;
    if (take("*")) {
    } else if (take("+")) {
      least = 1;
    } else if (take("?")) {
      most = 1;
    } else if (const auto in_braces = count()) {
      std::tie(least, most) = *in_braces;
      if (most && *most < least)
        return bad("a repetition of at least {} and at most {}", least, *most);
    } else {
      return atom;
    }
    take("?");  // lazy: the same texts
    if (sees("*") || sees("+") || sees("?")) return bad("'{}' has nothing to repeat", text_[at_]);
    const Index result = add(Kind::repeat, {atom});
    pattern_.nodes[result].least = least;
    pattern_.nodes[result].most = most;
    return result;
  }

  // {n}, {n,} or {n,m}; a brace that begins none of them stands for itself.
  std::optional<std::pair<std::uint32_t, std::optional<std::uint32_t>>> count() {
    const std::size_t before = at_;
    if (take("{")) {
      const std::optional<std::uint32_t> least = number();
      std::optional<std::uint32_t> most = least;
      if (least && take(",")) most = number();
      if (least && take("}")) return std::pair(*least, most);
    }
    at_ = before;
    return std::nullopt;
  }

  // Digits, of which there is at least one; what is too large is as large as can be.
  std::optional<std::uint32_t> number() {
    const std::size_t before = at_;
    std::uint64_t value = 0;
    while (!done() && text_[at_] >= '0' && text_[at_] <= '9') {
      value = std::min<std::uint64_t>(value * 10 + (text_[at_] - '0'), UINT32_MAX);
      ++at_;
    }
    if (at_ == before) return std::nullopt;
    return static_cast<std::uint32_t>(value);
  }

  Result<char32_t> character() {
    const Utf8Char c = decode_utf8(text_, at_);
    if (c.status != Utf8Status::valid) return bad("not UTF-8");
    at_ += c.length;
    return c.code;
  }

  // After a backslash: \d and the like, \p{...}. None if it is another escape.
  Result<std::optional<CharacterSet>> class_escape() {
    if (take("d")) return digit_characters();
    if (take("D")) return complement(digit_characters());
    if (take("w")) return word_characters();
    if (take("W")) return complement(word_characters());
    if (take("s")) return space_characters();
    if (take("S")) return complement(space_characters());
    const bool negative = sees("P");
    if (!negative && !sees("p")) return std::nullopt;
    const std::size_t end = text_.find('}', at_);
    if (text_.substr(at_ + 1, 1) != "{" || end == text_.npos)
      return bad("\\{} needs a property in braces", text_[at_]);
    const std::string_view name = text_.substr(at_ + 2, end - at_ - 2);
    std::optional<CharacterSet> set = property_characters(name);
    if (!set) return unsupported("the property '{}' of characters is not known here", ascii(name));
    at_ = end + 1;
    return negative ? complement(*set) : *std::move(set);
  }

  // `digits` of base 16, exactly.
  std::optional<char32_t> hex(unsigned digits) {
    char32_t value = 0;
    if (text_.size() - at_ < digits) return std::nullopt;
    for (unsigned i = 0; i < digits; ++i) {
      const char c = text_[at_ + i];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return std::nullopt;
      value = value << 4 | static_cast<char32_t>(digit);
    }
    at_ += digits;
    return value;
  }

  static bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

  // After a backslash: the character; none for a surrogate, which is in no text.
  Result<std::optional<char32_t>> character_escape(bool in_class) {
    if (done()) return bad("the backslash at the end escapes nothing");
    constexpr std::string_view kNames = "tnvfr", kValues = "\t\n\v\f\r";
    const char c = text_[at_];
    if (const std::size_t which = kNames.find(c); which != kNames.npos) {
      ++at_;
      return static_cast<char32_t>(kValues[which]);
    }
    if (in_class && take("b")) return U'\b';
    if (c == 'c') {
      if (text_.size() - at_ < 2 || !letter(text_[at_ + 1])) return bad("\\c needs a letter");
      at_ += 2;
      return static_cast<char32_t>(text_[at_ - 1] & 31);
    }
    if (c == '0') {
      ++at_;
      if (!done() && text_[at_] >= '0' && text_[at_] <= '9') return bad("an octal escape");
      return U'\0';
    }
    if (c >= '1' && c <= '9') {
      if (in_class) return bad("an octal escape");
      return unsupported("back references cannot be matched by an automaton");
    }
    if (take("x")) {
      const std::optional<char32_t> value = hex(2);
      if (!value) return bad("\\x needs two hexadecimal digits");
      return *value;
    }
    if (take("u")) return unicode_escape();
    if (c == 'k') return unsupported("back references cannot be matched by an automaton");
    if (letter(c)) return bad("ECMA-262 has no escape \\{}", c);
    STRATA_ASSIGN(const char32_t itself, character());
    return itself;
  }

  Result<std::optional<char32_t>> unicode_escape() {
    if (take("{")) {
      const std::size_t end = text_.find('}', at_);
      const std::size_t zeros = std::min(text_.find_first_not_of('0', at_), end);
      std::optional<char32_t> value;
      if (end != text_.npos && end > at_ && end - zeros <= 6) {
        at_ = zeros;
        value = hex(static_cast<unsigned>(end - zeros));
      }
      if (!value || *value > kLastCodePoint || !take("}"))
        return bad("\\u{{ needs the hexadecimal number of a character and a '}}'");
      return surrogate(*value) ? std::nullopt : value;
    }
    const std::optional<char32_t> unit = hex(4);
    if (!unit) return bad("\\u needs four hexadecimal digits or braces");
    if (!surrogate(*unit)) return unit;
    const std::size_t before = at_;
    if (*unit < 0xDC00 && take("\\u")) {
      const std::optional<char32_t> second = hex(4);
      if (second && *second >= 0xDC00 && *second <= 0xDFFF)
        return 0x10000 + ((*unit & 0x3FF) << 10 | (*second & 0x3FF));
      at_ = before;
    }
    return std::nullopt;
  }
  static bool surrogate(char32_t c) { return c >= 0xD800 && c <= 0xDFFF; }

  // A member of a class: a set, or one character, which may begin a range.
  struct Member {
    CharacterSet set;
    std::optional<char32_t> one;
  };
  Result<Member> member() {
    if (!take("\\")) {
      STRATA_ASSIGN(const char32_t c, character());
      return Member{{{c, c}}, c};
    }
    STRATA_ASSIGN(std::optional<CharacterSet> set, class_escape());
    if (set) return Member{*std::move(set), std::nullopt};
    STRATA_ASSIGN(const std::optional<char32_t> c, character_escape(true));
    return c ? Member{{{*c, *c}}, c} : Member();
  }

  Result<Index> char_class() {
    const bool negative = take("^");
    CharacterSet all;
    const auto join = [&all](const Member& one) {
      all.insert(all.end(), one.set.begin(), one.set.end());
    };
    while (!take("]")) {
      if (done()) return bad("a '[' is not closed");
      STRATA_ASSIGN(const Member first, member());
      if (!sees("-") || text_.substr(at_ + 1).starts_with("]")) {
        join(first);
        continue;
      }
      take("-");
      if (done()) return bad("a '[' is not closed");
      STRATA_ASSIGN(const Member last, member());
      if (!first.one || !last.one) {  // the '-' stands for itself
        join(first);
        join(last);
        all.push_back({U'-', U'-'});
        continue;
      }
      if (*first.one > *last.one) return bad("a range whose end comes before its beginning");
      all.push_back({*first.one, *last.one});
    }
    all = sorted(std::move(all));
    return add(negative ? complement(all) : all);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::uint32_t depth_ = 0;
  std::vector<std::string> names_;  // of groups
  Pattern pattern_;
};

}  // namespace

Result<Pattern> parse_pattern(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes)
    return fail(ErrorCode::exhausted, "a pattern of {} bytes; the limit is {}", pattern.size(),
                kMaxPatternBytes);
  return Parser(pattern).run();
}

}  // namespace strata::constrain
