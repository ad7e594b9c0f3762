// What an errno means, in words, and what to do where that is known.
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

namespace strata {

inline std::string errno_text(int number) {
  std::string text = std::generic_category().message(number);
  if (number == EMFILE) text += "; allow this program more open files (ulimit -n)";
  if (number == EFBIG) text += "; allow this program larger files (ulimit -f)";
  return text;
}

}  // namespace strata
