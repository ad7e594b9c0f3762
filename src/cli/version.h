// Which build this is and what it runs on.
#pragma once

#include <string>

namespace strata {

// "0.1.0"
std::string version_number();

// Several lines: version and commit, compiler, flags, instruction sets the program was built for
// and those the CPU has.
std::string version_text();

}  // namespace strata
