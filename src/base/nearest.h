// The name that was probably meant by one that is not known, for messages ("did you mean ...?").
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace strata {

// The one with the fewest edits (Levenshtein), if at most a third of the letters differ (two, for
// short ones). Of equals the first.
std::optional<std::string_view> nearest(std::string_view given,
                                        std::span<const std::string_view> names);

}  // namespace strata
