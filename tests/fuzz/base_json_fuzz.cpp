// Any bytes as JSON: a value no deeper than the limit, or an error that names its place.
#include <cstdint>
#include <string_view>

#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = strata::parse_json(text, "the text");
  if (!value && !value.error().message.starts_with("the text")) __builtin_trap();
  return 0;
}
