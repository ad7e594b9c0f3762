// What the parts of a grammar can derive, and which rules call which.
#pragma once

#include <cstdint>
#include <vector>

#include "constrain/grammar.h"

namespace strata::constrain {

// By node and by rule: whether some text that ends comes of it, whether the empty text does, and
// whether any other does.
struct Derives {
  std::vector<std::uint8_t> node, rule;
};
struct Analysis {
  Derives finite, empty, nonempty;
  std::vector<std::uint8_t> reachable;  // rules, from the root
  std::vector<std::uint8_t> recursive;  // rules that can call themselves
  std::vector<std::uint32_t> order;     // the reachable rules, callees before their callers
};

// Time and memory are linear in the grammar. `invalid_argument` names a rule that is called but not
// defined, or that can never end.
Result<Analysis> analyse(const Grammar& grammar);

}  // namespace strata::constrain
