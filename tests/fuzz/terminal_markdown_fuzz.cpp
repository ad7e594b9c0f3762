// Anything that a model may write, in pieces, on terminals of any width: no control character comes
// out but line breaks, tabs and our own looks.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "terminal/markdown.h"
#include "terminal/text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace strata::terminal;
  if (size < 2) return 0;
  const int columns = data[0] % 100;
  const std::size_t piece = 1 + data[1] % 16;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  Typesetter out(columns % 2 == 0, [columns] { return columns; });
  Markdown markdown(out);
  SafeText safe;
  std::string shown;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    markdown.feed(safe.feed(text.substr(at, piece)));
    shown += out.take();
  }
  markdown.feed(safe.flush());
  markdown.finish();
  shown += out.finish();
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const auto byte = static_cast<unsigned char>(shown[i]);
    if (byte >= 0x20 && byte != 0x7F) continue;
    if (byte == '\n' || byte == '\t') continue;
    // ESC [ digits and ; m
    if (byte != 0x1b || i + 1 >= shown.size() || shown[++i] != '[') std::abort();
    while (i + 1 < shown.size() &&
           (shown[i + 1] == ';' || (shown[i + 1] >= '0' && shown[i + 1] <= '9')))
      ++i;
    if (i + 1 >= shown.size() || shown[++i] != 'm') std::abort();
  }
  return 0;
}
