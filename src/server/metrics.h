// GET /metrics: what has been counted and what the machine does, as Prometheus reads it. Counts go
// on over all lives of the engine; nothing here waits for it.
#pragma once

#include "server/status_api.h"
#include "telemetry/sampler.h"

namespace strata::server {

// `sampler` may be null: then nothing is said of the machine. Otherwise it counts as a look.
std::string metrics_text(const StatusContext& context, telemetry::Sampler* sampler);

}  // namespace strata::server
