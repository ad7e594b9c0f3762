// What the server says of itself: models, health, llama.cpp's props and slots, and v1/status.
#pragma once

#include <array>

#include "server/answer_json.h"

namespace strata::server {

// What all of them need beside the service.
struct StatusContext {
  ServicePtr service;
  std::string version;  // of the program
  bool needs_key = false;
};

// `status` is "ok" if a request would be answered now or after a wait; else why not.
boost::json::object health_json(const StatusContext& context);
boost::json::object models_json(const StatusContext& context);
boost::json::object model_json(const Service& service, std::string_view name);
boost::json::object props_json(const StatusContext& context);
boost::json::array slots_json(const StatusContext& context);
boost::json::object activity_json(const StatusContext& context);  // GET /status
boost::json::object status_json(const StatusContext& context);    // GET /v1/status
boost::json::array settings_json(const std::vector<Setting>& settings);

// What of it the metrics say, too.
inline constexpr std::array<std::string_view, 5> kFinishNames = {"stop", "length", "tool_calls",
                                                                 "cancelled", "error"};
struct Load {
  std::uint64_t running = 0, waiting = 0;
};
Load load_of(const std::vector<AnswerRun::Sight>& answers);
// An engine inside the server is always there.
EngineProcess::Health engine_health(const Service& service);

}  // namespace strata::server
