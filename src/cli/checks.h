// Checks of what the command line says that several subcommands share. The first three make
// functions for the parser: an empty text accepts the value, any other says what is wrong with it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace strata {

using Check = std::function<std::string(const std::string&)>;

// A finite number from `least` to `most`.
Check number_between(double least, double most);

// A whole number from `least` to `most`, in decimal digits.
Check whole_number_between(std::int64_t least, std::int64_t most);
inline Check whole_number_up_to(std::int64_t most) {
  return whole_number_between(0, most);
}

inline constexpr std::int64_t kMostThreads = 4096;
inline constexpr std::int64_t kMostParallel = 64;  // answers made at the same time by a model
// Less context than this holds no conversation: the template alone takes some of it.
inline constexpr std::int64_t kLeastContext = 64;
// A size of the context: 0 for the model's own, else at least kLeastContext.
Check context_size();

// Any text but the empty one; `what` names it: "the model path".
Check not_empty(const std::string& what);

// An error if `output`, or the file it is written to before it gets that name, is one of `inputs`
// under whatever name: through links, too.
Status check_not_an_input(const std::string& output, const std::vector<std::string>& inputs);

// An error if the disk that takes `output` has not the room for so many bytes. What a file of that
// name holds now does not count: it stays until the new one is whole.
Status check_room(const std::string& output, std::uint64_t bytes);

}  // namespace strata
