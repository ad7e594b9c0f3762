// The server's face: which path and method goes to which dialect.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "server/http.h"
#include "server/service.h"

namespace strata::server {

class Api {
 public:
  explicit Api(std::string bound_host) : bound_host_(std::move(bound_host)) {}

  // Until then, everything that needs the model is answered 503.
  void set_service(std::shared_ptr<Service> service);
  // Thread safe. The writer's on_close function refers to the service, so the Api must outlive the
  // HTTP server's run.
  void handle(const HttpRequest& request, const std::shared_ptr<ResponseWriter>& writer);

 private:
  std::shared_ptr<Service> service();

  std::string bound_host_;
  std::mutex mutex_;
  std::shared_ptr<Service> service_;
};

// An HttpServer's error_body in OpenAI's form.
std::string http_error_body(unsigned status, std::string_view message);

}  // namespace strata::server
