// Parts of a request's target.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace strata::server {

// "%2F" to "/"; a broken escape stays as it is.
std::string percent_decoded(std::string_view text);

// The value of a query's member, decoded; none if it is not there.
std::optional<std::string> query_value(std::string_view query, std::string_view name);

}  // namespace strata::server
