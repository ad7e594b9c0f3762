#include "tokenizer/byte_alphabet.h"

#include <array>

#include "tokenizer/utf8.h"

namespace strata {

namespace {

constexpr char32_t kFirstShifted = 0x100;
constexpr char32_t kShiftedCount = 68;

struct Alphabet {
  std::array<std::string, 256> text;
  std::array<std::uint8_t, kFirstShifted + kShiftedCount> byte{};
  std::array<bool, kFirstShifted + kShiftedCount> known{};

  Alphabet() {
    char32_t shifted = kFirstShifted;
    for (unsigned b = 0; b < 256; ++b) {
      const bool itself =
          (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
      const char32_t code = itself ? b : shifted++;
      append_utf8(text[b], code);
      byte[code] = static_cast<std::uint8_t>(b);
      known[code] = true;
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet table;
  return table;
}

}  // namespace

std::string_view printable(std::uint8_t byte) {
  return alphabet().text[byte];
}

Result<std::string> bytes_of_printable(std::string_view text) {
  const Alphabet& table = alphabet();
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.status != Utf8Status::valid) {
      return fail(ErrorCode::corrupt, "byte {:#04x} at offset {} is not UTF-8",
                  static_cast<unsigned char>(text[at]), at);
    }
    if (c.code >= table.byte.size() || !table.known[c.code]) {
      return fail(ErrorCode::corrupt, "the character U+{:04X} at offset {} stands for no byte",
                  static_cast<std::uint32_t>(c.code), at);
    }
    bytes.push_back(static_cast<char>(table.byte[c.code]));
    at += c.length;
  }
  return bytes;
}

}  // namespace strata
