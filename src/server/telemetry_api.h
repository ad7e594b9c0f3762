// GET /v1/telemetry: the last hour of this machine and of what the engine did, a sample a second.
// docs/api.md has the form and the rule by which samples are taken (telemetry/sampler.h).
#pragma once

#include <functional>
#include <memory>

#include "server/answer_json.h"
#include "telemetry/machine.h"
#include "telemetry/sampler.h"

namespace strata::server {

struct TelemetryOptions {
  telemetry::Roots roots = {};
  bool engine_apart = true;  // the engine is a process of its own
};

// `service` gives nullptr while there is none; it is asked on the sampler's thread.
std::unique_ptr<telemetry::Sampler> make_sampler(TelemetryOptions options,
                                                 std::function<ServicePtr()> service);

// Answers with the samples after ?since=SEQ. Without a sampler: 501, telemetry is switched off.
void serve_telemetry(telemetry::Sampler* sampler, const HttpRequest& request, const Writer& writer);

}  // namespace strata::server
