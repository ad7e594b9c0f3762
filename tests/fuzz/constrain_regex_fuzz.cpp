// A pattern and a text: what is compiled holds its limits, the two ways to match agree, and the
// language as JSON string literals has the text's literal if and only if it has the text.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "constrain/regular.h"

namespace {

using namespace strata::constrain;

void require(bool holds) {
  if (!holds) __builtin_trap();
}

std::string literal(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20) {
      result += "\\u00";
      result += kHex[byte >> 4];
      result += kHex[byte & 15];
    } else {
      if (c == '"' || c == '\\') result += '\\';
      result += c;
    }
  }
  return result + '"';
}

// A text of the language: from each state the lowest byte that leads on, for a while.
void walk(const Regular& language) {
  std::string text;
  Regular::State state = language.start();
  for (int i = 0; i < 64 && state != Regular::kDead; ++i) {
    require(state < language.states());
    require(language.accepting(state) == language.accepts(text));
    unsigned byte = 0;
    while (byte < 256 && language.next(state, static_cast<std::uint8_t>(byte)) == Regular::kDead)
      ++byte;
    if (byte == 256) {
      require(language.accepting(state));
      return;
    }
    state = language.next(state, static_cast<std::uint8_t>(byte));
    text += static_cast<char>(byte);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t line = std::min(input.find('\n'), input.size());
  const std::string_view pattern = input.substr(0, line);
  const std::string_view text = line < input.size() ? input.substr(line + 1) : std::string_view();
  RegularLimits limits;
  limits.states = 5'000;
  limits.steps = 200'000;
  const auto whole = regex(pattern, Match::whole, limits);
  const auto anywhere = regex(pattern, Match::anywhere, limits);
  for (const auto* language : {&whole, &anywhere}) {
    if (!*language) {
      require(!language->error().message.empty());
      continue;
    }
    require((*language)->states() <= limits.states);
    walk(**language);
    const bool member = (*language)->accepts(text);
    require(!member || Regular::text().accepts(text));
    const auto spelled = json_string(**language, limits);
    if (spelled) require(spelled->accepts(literal(text)) == member);
  }
  if (whole && anywhere) require(!whole->accepts(text) || anywhere->accepts(text));
  return 0;
}
