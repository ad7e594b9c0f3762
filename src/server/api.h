// The server's face: which path and method goes to which dialect, and who may use it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "server/access.h"
#include "server/http.h"
#include "server/service.h"
#include "server/telemetry_api.h"
#include "server/web_app.h"

namespace strata::server {

class Chats;
class Responses;

struct ApiOptions {
  AccessRules access;
  std::string version = "unknown";                 // of the program
  std::shared_ptr<Responses> responses = {};       // nullptr: stored in memory
  std::shared_ptr<Chats> chats = {};               // nullptr: stored in memory
  WebApp web_app = {};                             // served at "/"
  std::optional<TelemetryOptions> telemetry = {};  // absent: no samples are taken
};

class Api {
 public:
  explicit Api(ApiOptions options = {});

  // Until then, everything that needs the model is answered 503, with this reason.
  void set_service(std::shared_ptr<Service> service);
  void set_reason(std::string reason);
  // Work of no connection ends: before the engine goes.
  void stop();
  // Thread safe. The Api must outlive the HTTP server's run.
  void handle(HttpRequest request, const std::shared_ptr<ResponseWriter>& writer);

 private:
  std::shared_ptr<Service> service();
  std::string reason();

  Access access_;
  std::string version_;
  std::shared_ptr<Responses> responses_;
  std::shared_ptr<Chats> chats_;
  WebApp web_app_;
  std::mutex mutex_;
  std::shared_ptr<Service> service_;
  std::string reason_ = "the model is being loaded; try again shortly";
  std::unique_ptr<telemetry::Sampler> sampler_;  // the last member: it asks for the service
};

// An HttpServer's error_body, in the form of the path's dialect.
std::string http_error_body(unsigned status, std::string_view message, std::string_view path);

}  // namespace strata::server
