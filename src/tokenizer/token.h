// The number of a token in its vocabulary: 0 .. size-1.
#pragma once

#include <cstdint>

namespace strata {

using TokenId = std::int32_t;

}  // namespace strata
