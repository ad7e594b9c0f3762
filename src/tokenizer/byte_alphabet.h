// The printable alphabet in which byte-level vocabularies write their tokens: every byte has one
// character. 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF stand for themselves (as code points); the other 68
// bytes, in order, are U+0100, U+0101, ... So a space is U+0120 and a newline U+010A.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace strata {

// The character of one byte, as UTF-8.
std::string_view printable(std::uint8_t byte);
// The bytes a printable text stands for. The error says which character stands for no byte.
Result<std::string> bytes_of_printable(std::string_view text);

}  // namespace strata
