#include "terminal/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace strata::terminal {

Screen screen_of(int descriptor) {
  Screen screen;
  screen.terminal = isatty(descriptor) == 1;
  const char* kind = std::getenv("TERM");
  screen.moves = screen.terminal && kind != nullptr && std::string_view(kind) != "dumb";
  // https://no-color.org: present and not empty.
  const char* plain = std::getenv("NO_COLOR");
  screen.colour = screen.moves && (plain == nullptr || *plain == '\0');
  return screen;
}

int columns_of(int descriptor) {
  constexpr int kUsual = 80;
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return size.ws_col;
}

}  // namespace strata::terminal
