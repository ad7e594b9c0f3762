// What an engine's lives have counted together.
#pragma once

#include "engine/engine.h"

namespace strata::server {

// What tables, drafts and cache counted in lives before and in this one; what is a state, not a
// count, is this one's. Requests are counted by the server, not by the engines.
EngineCounters sum_of(EngineCounters before, const EngineCounters& now);

}  // namespace strata::server
