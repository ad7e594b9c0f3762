// What stands at the other end of a descriptor.
#pragma once

#include <functional>

namespace strata::terminal {

struct Screen {
  bool terminal = false;  // else a file or a pipe: nothing but text goes there
  bool colour = false;    // a terminal that may be coloured: no NO_COLOR, no TERM=dumb
  bool moves = false;     // a terminal whose lines may be written over
};
Screen screen_of(int descriptor);

// Columns of the terminal at this moment (people resize them); 80 where it does not say.
int columns_of(int descriptor);
using Columns = std::function<int()>;

}  // namespace strata::terminal
