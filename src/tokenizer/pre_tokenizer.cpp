#include "tokenizer/pre_tokenizer.h"

#include <array>
#include <string>
#include <utility>

#include "tokenizer/unicode.h"

namespace strata {

namespace {

using Kind = PreTokenizerKind;

constexpr std::array<std::pair<Kind, std::string_view>, 5> kNames = {{
    {Kind::qwen35, "qwen35"},
    {Kind::qwen2, "qwen2"},
    {Kind::llama_bpe, "llama-bpe"},
    {Kind::gpt2, "gpt-2"},
    {Kind::gpt4o, "gpt-4o"},
}};

// The patterns as tokenizer.json files spell them; @ stands for the contractions.
constexpr std::array<std::pair<Kind, std::string_view>, 5> kPatterns = {{
    {Kind::qwen35, R"(@|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)"
                   R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {Kind::qwen2, R"(@|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                  R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {Kind::llama_bpe, R"(@|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                      R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {Kind::gpt2, R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+)"
                 R"(|\s+(?!\S)|\s+)"},
    {Kind::gpt4o,
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+@?)"
     R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*@?)"
     R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
}};
constexpr std::string_view kSpelledOut =
    R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))";
constexpr std::string_view kAnyCase = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))";

bool is_newline(std::string_view text, std::size_t at) {
  return at < text.size() && (text[at] == '\r' || text[at] == '\n');
}

std::size_t skip(std::string_view text, std::size_t at, ClassSet set) {
  for (TextChar c = char_at(text, at); c.in(set); c = char_at(text, at)) at += c.length;
  return at;
}

// Bytes of '(s|t|re|ve|m|ll|d) at `at`, in any case of ASCII; 0 if there is none.
std::size_t contraction_length(std::string_view text, std::size_t at, bool long_s) {
  if (at >= text.size() || text[at] != '\'') return 0;
  const auto letter = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<char>(text[at + i] | 0x20) : '\0';
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return letter(2) == 'e' ? 3 : 0;
    case 'l':
      return letter(2) == 'l' ? 3 : 0;
    default:
      return long_s && text.substr(at + 1).starts_with("\u017F") ? 3 : 0;
  }
}

// The last alternatives; the character at `begin` is a space and begins no word or symbols.
std::size_t space_end(std::string_view text, std::size_t begin, bool cut_after_newlines) {
  std::size_t after_newline = begin;  // end of the run's last \r or \n
  std::size_t last = begin;           // where the run's last character begins
  std::size_t end = begin;
  for (TextChar c = char_at(text, end); c.in(kSpace); c = char_at(text, end)) {
    if (is_newline(text, end)) after_newline = end + 1;
    last = end;
    end += c.length;
  }
  if (cut_after_newlines && after_newline > begin) return after_newline;
  // A run before a word leaves its last space to that word.
  return end == text.size() || last == begin ? end : last;
}

std::size_t numbers_end(std::string_view text, std::size_t begin, int most) {
  std::size_t end = begin;
  for (TextChar c = char_at(text, end); most > 0 && c.in(kNumber); c = char_at(text, end)) {
    end += c.length;
    --most;
  }
  return end;
}

// What qwen35, qwen2 and llama-bpe have in common.
template <ClassSet word, ClassSet symbol, int digits>
std::size_t word_piece_end(std::string_view text, std::size_t begin, bool long_s) {
  if (const std::size_t length = contraction_length(text, begin, long_s)) return begin + length;
  const TextChar first = char_at(text, begin);
  const std::size_t second = begin + first.length;
  if (first.in(word)) return skip(text, second, word);
  if (first.in(kNumber)) return digits == 1 ? second : numbers_end(text, begin, digits);
  const TextChar next = char_at(text, second);
  if (next.in(word) && !is_newline(text, begin)) return skip(text, second + next.length, word);
  if (first.in(symbol) || (text[begin] == ' ' && next.in(symbol))) {
    std::size_t end = skip(text, second, symbol);
    while (is_newline(text, end)) ++end;
    return end;
  }
  return space_end(text, begin, true);
}

std::size_t gpt2_piece_end(std::string_view text, std::size_t begin) {
  if (text[begin] == '\'' && begin + 1 < text.size() && text[begin + 1] >= 'a') {
    const std::size_t length = contraction_length(text, begin, false);
    // The first letter is lower case; is the second?
    if (length == 2 || (length == 3 && text[begin + 2] >= 'a')) return begin + length;
  }
  const TextChar first = char_at(text, begin);
  const std::size_t second = begin + first.length;
  const TextChar next = text[begin] == ' ' ? char_at(text, second) : first;
  for (const ClassSet set : {kLetter, kNumber, static_cast<ClassSet>(kOther | kMark)}) {
    if (next.in(set)) return skip(text, second, set);
  }
  return space_end(text, begin, false);
}

// The first two alternatives of gpt-4o; `begin` if neither matches.
//
// The first is a run of upper and then one of lower letters, where caseless letters and marks are
// of both. Behind the upper run comes either a lower letter, then all is simple; or the expression
// gives back letters of that run until one of both kinds is the lower run alone, so the piece ends
// behind the last such letter. Only a run without one is left to the second alternative. A mark
// that could be the leading character is as well the first of the run: the same pieces end at the
// same place.
std::size_t cased_word_end(std::string_view text, std::size_t begin, bool long_s) {
  constexpr ClassSet upper_run = kUpper | kCaseless | kMark;
  constexpr ClassSet lower_run = kLower | kCaseless | kMark;
  constexpr ClassSet both = upper_run & lower_run;
  const TextChar first = char_at(text, begin);
  std::size_t start = begin;
  if (!first.in(kLetter | kMark)) {
    if (first.in(kNumber) || is_newline(text, begin)) return begin;
    start = begin + first.length;
  }
  std::size_t end = start;
  std::size_t after_both = start;
  TextChar c = char_at(text, end);
  for (; c.in(upper_run); c = char_at(text, end)) {
    end += c.length;
    if (c.in(both)) after_both = end;
  }
  if (c.in(lower_run)) {
    end = skip(text, end, lower_run);
  } else if (after_both > start) {
    end = after_both;
  } else if (end == start) {
    return begin;
  }
  return end + contraction_length(text, end, long_s);
}

std::size_t gpt4o_piece_end(std::string_view text, std::size_t begin, bool long_s) {
  if (const std::size_t end = cased_word_end(text, begin, long_s); end > begin) return end;
  const TextChar first = char_at(text, begin);
  if (first.in(kNumber)) return numbers_end(text, begin, 3);
  constexpr ClassSet symbol = kOther | kMark;
  const std::size_t second = begin + first.length;
  if (first.in(symbol) || (text[begin] == ' ' && char_at(text, second).in(symbol))) {
    std::size_t end = skip(text, second, symbol);
    while (is_newline(text, end) || (end < text.size() && text[end] == '/')) ++end;
    return end;
  }
  return space_end(text, begin, true);
}

}  // namespace

std::string_view name_of(PreTokenizerKind kind) {
  for (const auto& [known, name] : kNames) {
    if (known == kind) return name;
  }
  return {};
}

std::optional<PreTokenizerKind> pre_tokenizer_by_name(std::string_view name) {
  for (const auto& [kind, known] : kNames) {
    if (known == name) return kind;
  }
  return std::nullopt;
}

std::optional<PreTokenizer> pre_tokenizer_by_pattern(std::string_view pattern) {
  // With one spelling put in for @; a pattern that mixes both equals neither.
  const auto spelled = [](std::string_view form, std::string_view contractions) {
    std::string out;
    for (const char c : form) {
      if (c == '@') {
        out += contractions;
      } else {
        out.push_back(c);
      }
    }
    return out;
  };
  for (const auto& [kind, form] : kPatterns) {
    if (pattern == spelled(form, kSpelledOut)) return PreTokenizer{kind, false};
    if (pattern == spelled(form, kAnyCase)) return PreTokenizer{kind, true};
  }
  return std::nullopt;
}

std::size_t piece_end(PreTokenizer pre, std::string_view text, std::size_t begin) {
  constexpr ClassSet symbol = kOther | kMark;
  switch (pre.kind) {
    case Kind::qwen35:
      return word_piece_end < kLetter | kMark, kOther, 1 > (text, begin, pre.long_s);
    case Kind::qwen2:
      return word_piece_end<kLetter, symbol, 1>(text, begin, pre.long_s);
    case Kind::llama_bpe:
      return word_piece_end<kLetter, symbol, 3>(text, begin, pre.long_s);
    case Kind::gpt2:
      return gpt2_piece_end(text, begin);
    case Kind::gpt4o:
      return gpt4o_piece_end(text, begin, pre.long_s);
  }
  return text.size();
}

// Why these are borders: in no alternative of any pattern
//   - a letter is followed by anything but letters, marks and an apostrophe,
//   - a number is followed by anything but numbers,
//   - a newline is followed by anything but spaces and (gpt-4o) a slash.
// A byte that continues no character begins one in every reading of the text, so the search may
// begin anywhere.
std::size_t certain_border(std::string_view text, std::size_t from, std::size_t to) {
  std::size_t at = from;
  while (at < to && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  for (TextChar c = char_at(text, at); at < to; at += c.length, c = char_at(text, at)) {
    const std::size_t next = at + c.length;
    if (next >= to || next >= text.size()) break;
    const TextChar follower = char_at(text, next);
    const bool border = (c.in(kLetter) && !follower.in(kLetter | kMark) && text[next] != '\'') ||
                        (c.in(kNumber) && !follower.in(kNumber)) ||
                        (is_newline(text, at) && !follower.in(kSpace) && text[next] != '/');
    if (border && next > from) return next;
  }
  return std::string_view::npos;
}

}  // namespace strata
