// Places in JSON text and names that stand twice, for parse_json() and its like alone.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/json.h"

namespace strata {

std::string json_place(std::string_view text, std::size_t at);  // "line 2, column 8"

// A name that an object of `text` has twice, as an error with both places. `text` is valid JSON.
Status check_names(std::string_view text, const JsonSource& source);

}  // namespace strata
