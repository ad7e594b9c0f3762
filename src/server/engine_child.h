// The engine's side of the pipe: what `strata engine` does.
#pragma once

#include <functional>
#include <memory>

#include "engine/engine.h"

namespace strata::server {

// Opens the engine, says what it is, and serves requests that come over `socket` until the other
// side closes it, asks to quit, or sends what is no frame. Pings are answered from the beginning,
// also while the engine is opened.
Status run_engine_child(int socket, const std::function<Result<std::unique_ptr<Engine>>()>& open);

}  // namespace strata::server
