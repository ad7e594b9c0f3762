#include "constrain/character_sets.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <span>

namespace strata::constrain {
namespace {

struct Category {
  std::string_view name, long_name;
  utf8proc_category_t value;
};
constexpr Category kCategories[] = {
    {"Lu", "Uppercase_Letter", UTF8PROC_CATEGORY_LU},
    {"Ll", "Lowercase_Letter", UTF8PROC_CATEGORY_LL},
    {"Lt", "Titlecase_Letter", UTF8PROC_CATEGORY_LT},
    {"Lm", "Modifier_Letter", UTF8PROC_CATEGORY_LM},
    {"Lo", "Other_Letter", UTF8PROC_CATEGORY_LO},
    {"Mn", "Nonspacing_Mark", UTF8PROC_CATEGORY_MN},
    {"Mc", "Spacing_Mark", UTF8PROC_CATEGORY_MC},
    {"Me", "Enclosing_Mark", UTF8PROC_CATEGORY_ME},
    {"Nd", "Decimal_Number", UTF8PROC_CATEGORY_ND},
    {"Nl", "Letter_Number", UTF8PROC_CATEGORY_NL},
    {"No", "Other_Number", UTF8PROC_CATEGORY_NO},
    {"Pc", "Connector_Punctuation", UTF8PROC_CATEGORY_PC},
    {"Pd", "Dash_Punctuation", UTF8PROC_CATEGORY_PD},
    {"Ps", "Open_Punctuation", UTF8PROC_CATEGORY_PS},
    {"Pe", "Close_Punctuation", UTF8PROC_CATEGORY_PE},
    {"Pi", "Initial_Punctuation", UTF8PROC_CATEGORY_PI},
    {"Pf", "Final_Punctuation", UTF8PROC_CATEGORY_PF},
    {"Po", "Other_Punctuation", UTF8PROC_CATEGORY_PO},
    {"Sm", "Math_Symbol", UTF8PROC_CATEGORY_SM},
    {"Sc", "Currency_Symbol", UTF8PROC_CATEGORY_SC},
    {"Sk", "Modifier_Symbol", UTF8PROC_CATEGORY_SK},
    {"So", "Other_Symbol", UTF8PROC_CATEGORY_SO},
    {"Zs", "Space_Separator", UTF8PROC_CATEGORY_ZS},
    {"Zl", "Line_Separator", UTF8PROC_CATEGORY_ZL},
    {"Zp", "Paragraph_Separator", UTF8PROC_CATEGORY_ZP},
    {"Cc", "Control", UTF8PROC_CATEGORY_CC},
    {"Cf", "Format", UTF8PROC_CATEGORY_CF},
    {"Cs", "Surrogate", UTF8PROC_CATEGORY_CS},
    {"Co", "Private_Use", UTF8PROC_CATEGORY_CO},
    {"Cn", "Unassigned", UTF8PROC_CATEGORY_CN},
};
// Groups of categories, by their common letters or one by one.
struct Group {
  std::string_view name, long_name, categories;
};
constexpr Group kGroups[] = {
    {"L", "Letter", "Lu Ll Lt Lm Lo"},
    {"LC", "Cased_Letter", "Lu Ll Lt"},
    {"M", "Mark", "Mn Mc Me"},
    {"", "Combining_Mark", "Mn Mc Me"},
    {"N", "Number", "Nd Nl No"},
    {"", "digit", "Nd"},
    {"P", "Punctuation", "Pc Pd Ps Pe Pi Pf Po"},
    {"", "punct", "Pc Pd Ps Pe Pi Pf Po"},
    {"S", "Symbol", "Sm Sc Sk So"},
    {"Z", "Separator", "Zs Zl Zp"},
    {"C", "Other", "Cc Cf Cs Co Cn"},
    {"", "cntrl", "Cc"},
};

// [category] its characters, as the library knows them.
const std::array<CharacterSet, 32>& categories() {
  static const std::array<CharacterSet, 32> sets = [] {
    std::array<CharacterSet, 32> result;
    for (char32_t c = 0; c <= kLastCodePoint; ++c) {
      CharacterSet& set =
          result[static_cast<unsigned>(utf8proc_category(static_cast<utf8proc_int32_t>(c))) % 32];
      if (!set.empty() && set.back().last + 1 == c)
        set.back().last = c;
      else
        set.push_back({c, c});
    }
    return result;
  }();
  return sets;
}

std::optional<CharacterSet> category_characters(std::string_view name) {
  for (const Category& category : kCategories)
    if (name == category.name || name == category.long_name)
      return categories()[static_cast<unsigned>(category.value)];
  for (const Group& group : kGroups) {
    if (name.empty() || (name != group.name && name != group.long_name)) continue;
    CharacterSet all;
    for (const Category& category : kCategories) {
      if (group.categories.find(category.name) == std::string_view::npos) continue;
      const CharacterSet& set = categories()[static_cast<unsigned>(category.value)];
      all.insert(all.end(), set.begin(), set.end());
    }
    return sorted(std::move(all));
  }
  return std::nullopt;
}

}  // namespace

CharacterSet sorted(CharacterSet set) {
  std::erase_if(set, [](const CodePoints& in) { return in.first > in.last; });
  std::ranges::sort(set, {}, &CodePoints::first);
  CharacterSet joined;
  for (const CodePoints& in : set) {
    if (!joined.empty() && in.first <= joined.back().last + 1)
      joined.back().last = std::max(joined.back().last, in.last);
    else
      joined.push_back(in);
  }
  return joined;
}

CharacterSet complement(const CharacterSet& sorted_set) {
  CharacterSet result;
  char32_t next = 0;
  for (const CodePoints& in : sorted_set) {
    if (in.first > next) result.push_back({next, in.first - 1});
    next = in.last + 1;
  }
  if (next <= kLastCodePoint) result.push_back({next, kLastCodePoint});
  return result;
}

CharacterSet digit_characters() {
  return {{U'0', U'9'}};
}

CharacterSet word_characters() {
  return {{U'0', U'9'}, {U'A', U'Z'}, {U'_', U'_'}, {U'a', U'z'}};
}

CharacterSet space_characters() {
  return {{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}

CharacterSet line_ends() {
  return {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
}

std::optional<CharacterSet> property_characters(std::string_view name) {
  const std::size_t equals = name.find('=');
  if (equals != name.npos) {
    const std::string_view property = name.substr(0, equals);
    const std::string_view value = name.substr(equals + 1);
    if (property == "gc" || property == "General_Category") return category_characters(value);
    return std::nullopt;
  }
  if (name == "Any") return CharacterSet{{0, kLastCodePoint}};
  if (name == "ASCII") return CharacterSet{{0, 0x7F}};
  if (name == "Assigned") return complement(category_characters("Cn").value_or(CharacterSet()));
  if (name == "ASCII_Hex_Digit" || name == "AHex")
    return CharacterSet{{U'0', U'9'}, {U'A', U'F'}, {U'a', U'f'}};
  if (name == "White_Space" || name == "space")
    return CharacterSet{{0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},
                        {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                        {0x205F, 0x205F}, {0x3000, 0x3000}};
  return category_characters(name);
}

}  // namespace strata::constrain
