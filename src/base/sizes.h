// Sizes of memory and files as people write them.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace strata {

// "1536M", "2G", "0": a whole number and a unit, K, M, G or T of 1024 each (with or without "iB" or
// "B", in either case); without a unit it is MiB.
Result<std::uint64_t> parse_size(std::string_view text);

}  // namespace strata
