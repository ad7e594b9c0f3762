// Python's string operations on marked text, shared by filters and methods.
#include <utf8proc.h>

#include <algorithm>
#include <span>

#include "chat/jinja/evaluator.h"
#include "chat/jinja/special_casing.h"

namespace strata::chat::jinja {

const Text& require_text(const Value& value, std::string_view what) {
  if (value.is_undefined()) raise("{}", value.undefined_reason());
  if (!value.is_string()) {
    raise("needs {}, not a '{}'", what, value.type_name());
  }
  return value.text();
}

Text strip(Budget& budget, const Text& text, Side side, const Value* characters) {
  const std::string& bytes = text.bytes();
  const bool by_set = characters && !characters->is_none();
  const std::string_view set =
      by_set ? std::string_view(
                   require_text(*characters, "the characters to strip as a string").bytes())
             : std::string_view();
  const auto goes = [&](std::size_t begin, std::size_t end, std::uint32_t code_point) {
    if (!by_set) return is_space(code_point);
    return set.find(std::string_view(bytes).substr(begin, end - begin)) != std::string_view::npos;
  };
  budget.text(bytes.size());
  budget.step(bytes.size() / 256 * (set.size() / 64));
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  std::uint32_t code_point = 0;
  while (side != Side::right && begin < end) {
    const std::size_t next = begin + decode_utf8(bytes, begin, code_point);
    if (!goes(begin, next, code_point)) break;
    begin = next;
  }
  while (side != Side::left && end > begin) {
    std::size_t start = end - 1;
    while (start > begin && end - start < 4 &&
           (static_cast<unsigned char>(bytes[start]) & 0xC0) == 0x80) {
      --start;
    }
    if (start + decode_utf8(bytes, start, code_point) != end) {
      start = end - 1;  // stray continuation bytes are characters of their own
      decode_utf8(bytes, start, code_point);
    }
    if (!goes(start, end, code_point)) break;
    end = start;
  }
  return text.slice(begin, end);
}

Text replace(Budget& budget, const Text& text, const Text& from, const Text& to,
             std::int64_t count) {
  Text out;
  const std::string& bytes = text.bytes();
  budget.text(bytes.size());
  budget.step(bytes.size() / 256 * (from.size() / 64));
  const auto put = [&](const Text& piece) {
    if (out.size() + piece.size() > budget.limits().output_bytes) {
      budget.text(out.size() + piece.size());
    }
    out.append(piece);
  };
  std::size_t at = 0;
  if (from.empty()) {
    std::uint32_t code_point = 0;
    for (; count != 0; --count) {
      put(to);
      if (at >= bytes.size()) break;
      const std::size_t next = at + decode_utf8(bytes, at, code_point);
      out.append(text, at, next);
      at = next;
    }
  } else {
    for (; count != 0; --count) {
      const std::size_t found = bytes.find(from.bytes(), at);
      if (found == std::string::npos) break;
      out.append(text, at, found);
      put(to);
      at = found + from.size();
    }
  }
  if (at < bytes.size()) out.append(text, at, bytes.size());
  budget.text(out.size());
  return out;
}

namespace {

enum class Case { upper, lower, title };

// The code points that `code_point` becomes.
void append_mapped(std::string& out, std::uint32_t code_point, Case wanted) {
  const auto special = wanted == Case::upper   ? std::span<const SpecialCasing>(kSpecialUpper)
                       : wanted == Case::title ? std::span<const SpecialCasing>(kSpecialTitle)
                                               : std::span<const SpecialCasing>(kSpecialLower);
  const auto found = std::ranges::lower_bound(special, code_point, {}, &SpecialCasing::character);
  if (found != special.end() && found->character == code_point) {
    for (const std::uint16_t mapped : found->mapped) {
      if (mapped != 0) append_utf8(out, mapped);
    }
    return;
  }
  const auto c = static_cast<utf8proc_int32_t>(code_point);
  append_utf8(out, static_cast<std::uint32_t>(wanted == Case::upper   ? utf8proc_toupper(c)
                                              : wanted == Case::title ? utf8proc_totitle(c)
                                                                      : utf8proc_tolower(c)));
}

enum class Casing { cased, ignorable, other };

Casing casing_of(std::uint32_t code_point) {
  static constexpr std::uint32_t kIgnorable[] = {'\'',   '.',    ':',    0xB7,
                                                 0x2018, 0x2019, 0x2024, 0x2027};
  if (std::ranges::find(kIgnorable, code_point) != std::end(kIgnorable)) return Casing::ignorable;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
      return Casing::cased;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return Casing::ignorable;
    default:
      return Casing::other;
  }
}

// Whether a capital sigma that ends at `position`, inside a word, is the word's last letter.
bool ends_word(std::string_view text, std::size_t position) {
  std::uint32_t code_point = 0;
  while (position < text.size()) {
    position += decode_utf8(text, position, code_point);
    const Casing casing = casing_of(code_point);
    if (casing != Casing::ignorable) return casing != Casing::cased;
  }
  return true;
}

// Maps the characters of text[begin, end) one by one; each keeps its mark.
void map_characters(Text& out, const Text& text, std::size_t begin, std::size_t end, Case wanted) {
  constexpr std::uint32_t kCapitalSigma = 0x3A3;
  constexpr std::uint32_t kFinalSigma = 0x3C2;
  std::uint32_t code_point = 0;
  std::string run;
  bool run_trusted = true;
  bool in_word = begin > 0;  // the last character but ignorable ones is cased
  while (begin < end) {
    const std::size_t next = begin + decode_utf8(text.bytes(), begin, code_point);
    const bool trusted = text.trusted(begin, next);
    if (trusted != run_trusted) {
      out.append(run, run_trusted);
      run.clear();
      run_trusted = trusted;
    }
    const bool final_sigma = code_point == kCapitalSigma && wanted == Case::lower && in_word &&
                             ends_word(text.bytes(), next);
    if (final_sigma) {
      append_utf8(run, kFinalSigma);
    } else if (code_point >= 0xDC80 && code_point <= 0xDCFF) {
      append_utf8(run, code_point);
    } else {
      append_mapped(run, code_point, wanted);
    }
    const Casing casing = casing_of(code_point);
    if (casing != Casing::ignorable) in_word = casing == Casing::cased;
    begin = next;
  }
  out.append(run, run_trusted);
}

Text mapped(Budget& budget, const Text& text, std::size_t first, Case first_case, Case rest) {
  budget.text(text.size());
  Text out;
  map_characters(out, text, 0, first, first_case);
  map_characters(out, text, first, text.size(), rest);
  return out;
}

}  // namespace

Text upper(Budget& budget, const Text& text) {
  return mapped(budget, text, 0, Case::upper, Case::upper);
}

Text lower(Budget& budget, const Text& text) {
  return mapped(budget, text, 0, Case::lower, Case::lower);
}

Text capitalize(Budget& budget, const Text& text) {
  return mapped(budget, text, offset_of_character(text.bytes(), 1), Case::title, Case::lower);
}

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
  std::vector<Text> lines;
  const std::string& bytes = text.bytes();
  std::size_t start = 0;
  std::uint32_t c = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    std::size_t next = at + decode_utf8(bytes, at, c);
    const bool breaks = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                        c == 0x2028 || c == 0x2029;
    if (breaks) {
      if (c == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
      lines.push_back(text.slice(start, keep_ends ? next : at));
      start = next;
    }
    at = next;
  }
  if (start < bytes.size()) lines.push_back(text.slice(start, bytes.size()));
  return lines;
}

Text join(Budget& budget, const Text& separator, std::span<const Text> parts) {
  Text out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out.append(separator);
    out.append(parts[i]);
    if (out.size() > budget.limits().output_bytes) budget.text(out.size());
  }
  budget.text(out.size());
  return out;
}

}  // namespace strata::chat::jinja
