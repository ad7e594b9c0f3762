#include "base/base64.h"

#include <array>
#include <cstdint>

namespace strata {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string base64_encoded(std::string_view bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    const std::size_t taken = bytes.size() - i < 3 ? bytes.size() - i : 3;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8 | (k < taken ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      out += k <= taken ? kAlphabet[group >> (18 - 6 * k) & 63u] : '=';
    }
  }
  return out;
}

std::optional<std::string> base64_decoded(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::uint32_t group = 0;
    std::size_t digits = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      const std::size_t digit = kAlphabet.find(text[i + k]);
      if (digit != kAlphabet.npos && digits == k) ++digits;
      group = group << 6 | static_cast<std::uint32_t>(digit == kAlphabet.npos ? 0 : digit);
    }
    for (std::size_t k = 1; k < digits; ++k) {
      out += static_cast<char>(group >> (24 - 8 * k) & 255u);
    }
  }
  // Padding in the middle, other letters and bits too many do not survive the way back.
  if (base64_encoded(out) != text) return std::nullopt;
  return out;
}

}  // namespace strata
