// Stop strings in text that arrives in pieces.
//
// The result does not depend on how the text was cut: the stop string whose end comes first wins
// (of those, the one that begins first). Only what may still become a stop string is held back.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata::server {

class StopFilter {
 public:
  explicit StopFilter(std::vector<std::string> stops);  // none of them empty

  // The text that is certain to stand before any stop string. After a match it is always empty.
  std::string feed(std::string_view text);
  // What was held back; it will not be continued.
  std::string flush();
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  std::size_t possible_beginning() const;  // bytes at the end of held_

  std::vector<std::string> stops_;
  std::string held_;
  std::optional<std::string> matched_;
};

}  // namespace strata::server
