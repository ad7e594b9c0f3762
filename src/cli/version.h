// Which build this is and what it runs on.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace strata {

// "0.1.0"
std::string version_number();

// Several lines: version and commit, compiler, flags, instruction sets the program was built for
// and those the CPU has.
std::string version_text();
// The same by name.
boost::json::object version_json();

// The day of the commit, "2026-01-31"; empty if the build does not know it.
std::string version_date();

}  // namespace strata
