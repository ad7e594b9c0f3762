// Sets of characters that patterns name: classes of ECMA-262 and properties of Unicode.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "constrain/regular.h"

namespace strata::constrain {

// Sorted, apart from each other.
using CharacterSet = std::vector<CodePoints>;

CharacterSet sorted(CharacterSet set);
CharacterSet complement(const CharacterSet& sorted_set);

CharacterSet digit_characters();  // \d: of ASCII
CharacterSet word_characters();   // \w: letters and digits of ASCII, and _
CharacterSet space_characters();  // \s: white space and line ends
CharacterSet line_ends();         // what the dot leaves out

// \p{...}: a general category by its short or long name ("Lu", "gc=Letter"), or Any, Assigned,
// ASCII, ASCII_Hex_Digit or White_Space. Absent for another one.
std::optional<CharacterSet> property_characters(std::string_view name);

}  // namespace strata::constrain
