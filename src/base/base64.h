// Base64 (RFC 4648, with padding).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace strata {

std::string base64_encoded(std::string_view bytes);
// Nothing if the text is not exactly what base64_encoded gives.
std::optional<std::string> base64_decoded(std::string_view text);

}  // namespace strata
