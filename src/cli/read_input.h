// Text from a file or from standard input.
#pragma once

#include <cstdio>
#include <string>

#include "base/file.h"

namespace strata {

inline constexpr std::size_t kMostInput = std::size_t{1} << 30;  // bytes

// The whole of it; "-" is standard input.
inline Result<std::string> read_input(const std::string& path) {
  if (path != "-") return real_files().read_text(path, kMostInput);
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, stdin)) {
    if (text.size() + count > kMostInput)
      return fail(ErrorCode::exhausted, "standard input holds more than {} bytes", kMostInput);
    text.append(buffer, count);
  }
  if (std::ferror(stdin) != 0) return fail(ErrorCode::io, "cannot read standard input");
  return text;
}

}  // namespace strata
