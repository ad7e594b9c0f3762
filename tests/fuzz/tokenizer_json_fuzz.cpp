// Any bytes as HF's tokenizer.json: refused with a sentence, or a tokenizer that gives every text
// back (but for those that normalise).
#include <cstdint>
#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace {

void check(const strata::Tokenizer& tokenizer, std::string_view text) {
  for (const auto specials : {strata::Specials::none, strata::Specials::all}) {
    const auto ids = tokenizer.encode(text, specials);
    for (const strata::TokenId id : ids) {
      if (id < 0 || static_cast<std::size_t>(id) >= tokenizer.size()) __builtin_trap();
      const strata::TokenKind kind = tokenizer.kind(id);
      if (specials == strata::Specials::none && kind != strata::TokenKind::normal) {
        __builtin_trap();
      }
    }
    if (!tokenizer.vocabulary().rules.nfc && tokenizer.decode(ids) != text) __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = strata::Tokenizer::from_tokenizer_json(json);
  if (!tokenizer && tokenizer.error().message.empty()) __builtin_trap();
  if (!tokenizer) return 0;
  check(*tokenizer,
        "Hello world, 123 \t\n\n it's  Gr\xc3\xbc\xc3\x9f"
        "e <|im_start|>\xff\xf0\x9f\x98");
  check(*tokenizer, json.substr(0, 2000));
  for (strata::TokenId id = -1; id <= static_cast<strata::TokenId>(tokenizer->size()); ++id) {
    (void)tokenizer->bytes(id);
    (void)tokenizer->kind(id);
  }
  // What the model file stores makes the same tokenizer.
  strata::Metadata metadata;
  strata::write_tokenizer(*tokenizer, metadata);
  const auto again = strata::Tokenizer::from_gguf(metadata);
  if (!again || again->size() != tokenizer->size()) __builtin_trap();
  if (!(again->vocabulary().rules == tokenizer->vocabulary().rules)) __builtin_trap();
  if (again->encode(json.substr(0, 200)) != tokenizer->encode(json.substr(0, 200))) {
    __builtin_trap();
  }
  return 0;
}
