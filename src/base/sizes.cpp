#include "base/sizes.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>

namespace strata {

Result<std::uint64_t> parse_size(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (unit.ends_with("IB"))
    unit.resize(unit.size() - 2);
  else if (unit.ends_with("B"))
    unit.pop_back();
  constexpr std::string_view units = "KMGT";
  if (error == std::errc::result_out_of_range)
    return fail(ErrorCode::invalid_argument, "the size '{}' is too large", text);
  const std::size_t place = unit.empty() ? 1 : unit.size() == 1 ? units.find(unit[0]) : units.npos;
  if (error != std::errc() || place == units.npos) {
    return fail(ErrorCode::invalid_argument,
                "'{}' is no size; write a whole number and K, M, G or T, as in 512M", text);
  }
  const auto shift = static_cast<unsigned>(10 * (place + 1));
  if (number >> (64 - shift) != 0)
    return fail(ErrorCode::invalid_argument, "the size '{}' is too large", text);
  return number << shift;
}

}  // namespace strata
