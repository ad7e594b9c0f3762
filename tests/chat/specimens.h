// All specimens (specimen.h).
#pragma once

#include "tests/chat/specimens_calls.h"
#include "tests/chat/specimens_other.h"

namespace strata::chat {

inline const std::vector<Specimen>& specimens() {
  static const std::vector<Specimen> all = [] {
    std::vector<Specimen> both = call_specimens();
    for (Specimen& specimen : other_specimens()) both.push_back(std::move(specimen));
    return both;
  }();
  return all;
}

}  // namespace strata::chat

#undef STRATA_OSLO
#undef STRATA_OSLO_CALL
#undef STRATA_SEARCH
