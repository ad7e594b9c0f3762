// Small files of /proc and /sys that are read again and again through one descriptor, and the
// numbers in them. Their content is not trusted: it may be cut, huge or no text at all.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"

namespace strata::telemetry {

// Where readers of one thread put what they read: valid until the next reading.
using ReadBuffer = std::array<char, 16384>;

class KeptFile {
 public:
  KeptFile() = default;
  explicit KeptFile(const std::string& path);
  bool there() const { return descriptor_ != nullptr; }
  // Its beginning as it is now, as much as the buffer holds. Empty where it cannot be read; if what
  // it speaks of is gone, it is closed, and empty from now on.
  std::string_view read(ReadBuffer& buffer);
  std::optional<std::uint64_t> number(ReadBuffer& buffer);  // all that it holds

 private:
  std::unique_ptr<Descriptor> descriptor_;  // null: it cannot be read
};

// The beginning of a file that is read once, at most `most` bytes; without white space at its ends,
// and with '?' for bytes that are no printable ASCII.
std::string line_of(const std::string& path, std::size_t most = 256);
std::optional<std::uint64_t> number_of(const std::string& path);

// The number a text begins with, behind spaces; nothing if there is none or it is too large.
std::optional<std::uint64_t> leading_number(std::string_view text);
// The number behind `key` at the beginning of a line, or anywhere in a line for a key with '='.
std::optional<std::uint64_t> number_behind(std::string_view text, std::string_view key);
// What stands between spaces, at most `most` words of the first line.
std::vector<std::string_view> words_of(std::string_view text, std::size_t most);

// Names in a folder that begin with `prefix`, sorted, numbers by value; at most `most`.
std::vector<std::string> names_in(const std::string& folder, std::string_view prefix,
                                  std::size_t most);

}  // namespace strata::telemetry
