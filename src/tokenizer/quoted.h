// Text of unknown content in the sentence of an error: in quotes, cut after some 40 bytes, with
// control characters and bytes that are not UTF-8 written as \xNN.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "tokenizer/utf8.h"

namespace strata {

inline std::string quoted(std::string_view text) {
  constexpr std::size_t kLongest = 40;
  std::string out = "'";
  std::size_t at = 0;
  while (at < text.size() && at < kLongest) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.status == Utf8Status::valid && c.code >= 0x20 && c.code != 0x7F) {
      out += text.substr(at, c.length);
      at += c.length;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at++]));
    }
  }
  out += at < text.size() ? "...'" : "'";
  return out;
}

}  // namespace strata
