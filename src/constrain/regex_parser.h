// The syntax of patterns: ECMA-262 with flag u, and what patterns in the wild get wrong about it
// without harm (needless escapes of punctuation, braces and brackets that stand for themselves,
// "\w-" in a class).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "constrain/character_sets.h"

namespace strata::constrain {

struct Pattern {
  enum class Kind : std::uint8_t {
    characters,   // one of `characters`
    concat,       // all of `children`, also none of them: the empty text
    either,       // one of `children`
    repeat,       // the child, `least` to `most` times
    start,        // ^
    end,          // $
    boundary,     // \b
    no_boundary,  // \B
    look_ahead,   // the child follows, or not if `negative`
    look_behind,  // the child is what the text ends with here, or not
  };
  struct Node {
    Kind kind = Kind::concat;
    CharacterSet characters;
    std::vector<std::uint32_t> children;  // in nodes
    std::uint32_t least = 0;
    std::optional<std::uint32_t> most;
    bool negative = false;
  };
  std::vector<Node> nodes;
  std::uint32_t root = 0;
};

inline constexpr std::size_t kMaxPatternBytes = std::size_t{64} << 10;
inline constexpr std::uint32_t kMaxPatternDepth = 128;  // of groups in groups
Result<Pattern> parse_pattern(std::string_view pattern);

}  // namespace strata::constrain
