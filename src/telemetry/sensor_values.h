// What sensors of Linux write.
#pragma once

#include <string_view>

namespace strata::telemetry {

// Thousandths of a degree as degrees; unknown where that is no temperature.
double celsius(std::string_view text);

}  // namespace strata::telemetry
