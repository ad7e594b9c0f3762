// Text out of token bytes as they arrive. Tokens of a byte-level vocabulary end anywhere inside a
// character; what feed() returns is always whole characters of valid UTF-8.
//
// The pieces returned by feed() and flush(), joined, do not depend on how the bytes were cut.
#pragma once

#include <string>
#include <string_view>

namespace strata {

class Utf8Stream {
 public:
  // The text that is certain after these bytes. An unfinished character at the end is held back;
  // bytes that belong to no character become U+FFFD, one for each maximal ill-formed part (as
  // browsers and Python's errors="replace" do).
  std::string feed(std::string_view bytes);
  // The end: a character that was held back will never be finished and becomes U+FFFD. The stream
  // is then as new.
  std::string flush();
  // Bytes of the unfinished character, 0 to 3.
  std::size_t held() const { return held_.size(); }

 private:
  std::string held_;
};

}  // namespace strata
