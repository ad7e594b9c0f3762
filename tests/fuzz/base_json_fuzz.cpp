// Any bytes as JSON: a value no deeper than the limit, or an error that names its place. What is
// read exactly is written again as the same value. Counting members and looking at names agree on
// whether one stands twice.
#include <cstdint>
#include <string_view>

#include "base/json_names.h"
#include "base/json_number.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = strata::parse_json(text, "the text");
  if (!value && !value.error().message.starts_with("the text")) __builtin_trap();
  const auto exact = strata::parse_json_exact(text, "the text");
  if (exact.has_value() != value.has_value()) __builtin_trap();
  if (!exact) return 0;
  const auto written = strata::parse_written_json_exact(text, "the text");
  if (written.has_value() != strata::check_names(text, "the text").has_value()) __builtin_trap();
  if (written && *written != *exact) __builtin_trap();
  const auto again = strata::parse_json_exact(strata::write_json(*exact), "what was written");
  if (!again || *again != *exact) __builtin_trap();
  return 0;
}
