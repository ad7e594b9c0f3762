#include "engine/thinking.h"

#include <algorithm>

namespace strata {
namespace {

// Bytes that a character whose first byte this is still needs; 0 for what begins none.
std::uint32_t needed_after(unsigned char byte) {
  if (byte >= 0xF0) return 3;
  if (byte >= 0xE0) return 2;
  return byte >= 0xC0 ? 1 : 0;
}

}  // namespace

ThinkingWatch::ThinkingWatch(const ThinkingLimit& limit, const Tokenizer& tokenizer)
    : limit_(limit), tokenizer_(&tokenizer), inside_(limit.begun) {}

std::span<const TokenId> ThinkingWatch::forced() const {
  if (!cut_) return {};
  return std::span(limit_.wrap_up).subspan(written_);
}

void ThinkingWatch::wrote(TokenId id) {
  if (!tokenizer_) return;
  if (cut_) {
    if (written_ < limit_.wrap_up.size()) ++written_;
    return;
  }
  if (id == limit_.open) {
    inside_ = true;
  } else if (id == limit_.close) {
    inside_ = false;
  }
  if (!inside_) return;
  ++tokens_;
  if (id == limit_.call_open) in_call_ = true;
  if (id == limit_.call_close) in_call_ = false;
  for (const char c : tokenizer_->bytes(id)) {
    const auto byte = static_cast<unsigned char>(c);
    const bool continues = (byte & 0xC0) == 0x80;
    missing_ = continues ? missing_ - std::min(missing_, 1u) : needed_after(byte);
  }
  cut_ = tokens_ >= limit_.budget && !in_call_ && missing_ == 0;
}

}  // namespace strata
