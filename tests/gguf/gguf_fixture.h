// Builds small GGUF files for tests: through the writer, and byte by byte for what the writer
// would refuse to write.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf.h"
#include "tests/gguf/refusal_cost.h"

namespace strata::test {

// Bytes of a GGUF file by hand; every number is what the caller says.
class RawGguf {
 public:
  template <class Number>
  RawGguf& number(Number value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  RawGguf& bytes(std::string_view raw) {
    text_ += raw;
    return *this;
  }
  RawGguf& string(std::string_view text) {
    number(std::uint64_t{text.size()});
    return bytes(text);
  }
  RawGguf& start(std::uint64_t tensors, std::uint64_t keys, std::uint32_t version = 3) {
    return bytes("GGUF").number(version).number(tensors).number(keys);
  }
  RawGguf& key(std::string_view name, MetaType type) {
    return string(name).number(static_cast<std::uint32_t>(type));
  }
  RawGguf& tensor(std::string_view name, const std::vector<std::uint64_t>& ne, std::uint32_t type,
                  std::uint64_t offset) {
    string(name).number(static_cast<std::uint32_t>(ne.size()));
    for (const std::uint64_t width : ne) number(width);
    return number(type).number(offset);
  }
  // The data section: padding to 32, then `size` bytes.
  RawGguf& data(std::size_t size) {
    while (text_.size() % 32 != 0) text_ += '\0';
    text_.append(size, 'd');
    return *this;
  }
  Bytes take() const {
    const auto raw = std::as_bytes(std::span(text_));
    return Bytes(raw.begin(), raw.end());
  }

 private:
  std::string text_;
};

inline Result<GgufModel> open_bytes(Bytes content) {
  MemoryFileSystem files;
  files.put("m.gguf", std::move(content));
  return open_gguf(files, "m.gguf");  // the mapping keeps the bytes alive
}

// Expects a refusal of this class that holds this text, made at once and without much memory.
inline void expect_refused(const RawGguf& raw, ErrorCode code, const std::string& text) {
  const Bytes bytes = raw.take();
  const auto model = open_bytes(bytes);
  ASSERT_FALSE(model) << "accepted; should say: " << text;
  expect_cheap(bytes.size(), [&] { return !open_bytes(bytes); });
  EXPECT_EQ(model.error().code, code) << model.error().message;
  EXPECT_NE(model.error().message.find(text), std::string::npos) << model.error().message;
  EXPECT_EQ(model.error().message.rfind("'m.gguf': ", 0), 0u) << model.error().message;
}

inline Bytes pattern(std::size_t size, unsigned seed) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + seed);
  return bytes;
}

}  // namespace strata::test
