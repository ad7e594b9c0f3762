// The special tokens of a text of mixed origin, in order: those that the tokenizer takes.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

#include "tokenizer/special_matcher.h"
#include "tokenizer/tokenizer.h"

namespace strata {

// A match lies wholly inside one of the trusted ranges, and none overlaps the one before. `from` is
// the beginning of the text or a place behind which no match reaches that begins before it.
class SpecialScan {
 public:
  using Match = SpecialMatcher::Match;

  SpecialScan(const SpecialMatcher& specials, std::string_view text,
              std::span<const Tokenizer::Range> trusted, std::size_t from)
      : specials_(specials), text_(text), at_(from) {
    const auto first = std::ranges::partition_point(
        trusted, [from](const Tokenizer::Range& range) { return range.end <= from; });
    left_ = trusted.subspan(static_cast<std::size_t>(first - trusted.begin()));
  }

  std::optional<Match> next() {
    for (; !left_.empty(); left_ = left_.subspan(1)) {
      const Tokenizer::Range range = left_.front();
      const auto match =
          specials_.next(text_.substr(0, range.end), std::max(range.begin, at_), true);
      if (!match) continue;
      at_ = match->begin + match->length;
      return match;
    }
    return std::nullopt;
  }

 private:
  const SpecialMatcher& specials_;
  std::string_view text_;
  std::span<const Tokenizer::Range> left_;
  std::size_t at_;
};

}  // namespace strata
