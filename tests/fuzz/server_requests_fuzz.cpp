// Any bytes as the body of each dialect's request; the first byte picks the dialect. A refusal is
// 400 with a sentence.
#include <cstdint>
#include <string_view>

#include "server/anthropic.h"
#include "server/openai_chat.h"
#include "server/openai_completions.h"
#include "server/openai_responses.h"

namespace {

using namespace strata;
using namespace strata::server;

const Tokenizer& tokenizer() {
  // 256 bytes, each its own token.
  static const Tokenizer instance = [] {
    Tokenizer::Vocabulary vocabulary;
    // The printable alphabet of byte-level vocabularies.
    std::uint32_t next = 256;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
      const std::uint32_t code = printable ? byte : next++;
      std::string text;
      if (code < 0x80) {
        text += static_cast<char>(code);
      } else {
        text += static_cast<char>(0xC0 | code >> 6);
        text += static_cast<char>(0x80 | (code & 63));
      }
      vocabulary.tokens.push_back(text);
      vocabulary.kinds.push_back(TokenKind::normal);
    }
    auto made = Tokenizer::from_vocabulary(std::move(vocabulary), {});
    if (!made) __builtin_trap();
    return std::move(*made);
  }();
  return instance;
}

template <class T>
void check(const Answer<T>& answer) {
  if (answer) return;
  if (answer.error().status != 400 || answer.error().message.empty()) __builtin_trap();
  if (openai_error_body(answer.error()).empty()) __builtin_trap();
  if (anthropic_error_body(answer.error()).empty()) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      check(parse_openai_chat(body, {}));
      break;
    case 1:
      check(parse_openai_completion(body, {}, tokenizer()));
      break;
    case 2:
      check(parse_anthropic(body, {}));
      break;
    default:
      check(parse_openai_responses(body, {}));
      break;
  }
  return 0;
}
