#include "server/api.h"

#include <array>
#include <boost/json.hpp>
#include <optional>

#include "server/access.h"
#include "server/openai_chat.h"

namespace strata::server {

namespace json = boost::json;

namespace {

using Writer = std::shared_ptr<ResponseWriter>;

void send_json(ResponseWriter& writer, const json::object& body, unsigned status = 200) {
  HttpResponse response;
  response.status = status;
  response.body = json::serialize(body);
  writer.send(std::move(response));
}

void send_error(ResponseWriter& writer, const ApiError& error,
                std::vector<std::pair<std::string, std::string>> headers = {}) {
  HttpResponse response;
  response.status = error.status;
  response.headers = std::move(headers);
  response.body = openai_error_body(error);
  writer.send(std::move(response));
}

json::object model_entry(const Service& service) {
  const EngineFacts& facts = service.facts();
  return {
      {"id", facts.model_name},
      {"object", "model"},
      {"created", service.started()},
      {"owned_by", "strata"},
      {"status", {{"value", "loaded"}}},
      {"meta",
       {{"n_ctx", facts.context},
        {"n_vocab", facts.vocabulary},
        {"n_params", facts.parameters},
        {"size", facts.weight_bytes},
        {"architecture", facts.architecture}}},
      {"architecture",
       {{"input_modalities", json::array{"text"}}, {"output_modalities", json::array{"text"}}}}};
}

void health(Service& service, const HttpRequest&, const Writer& writer) {
  send_json(*writer, {{"status", "ok"},
                      {"service", "strata"},
                      {"model", service.facts().model_name},
                      {"max_context", service.facts().context},
                      {"images", false},
                      {"api_key", false},
                      {"loaded", true}});
}

void models(Service& service, const HttpRequest&, const Writer& writer) {
  send_json(*writer, {{"object", "list"}, {"data", json::array{model_entry(service)}}});
}

// "%2F" to "/"; a broken escape stays as it is.
std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      const int high = digit(text[i + 1]);
      const int low = digit(text[i + 2]);
      if (high >= 0 && low >= 0) {
        out.push_back(static_cast<char>(high * 16 + low));
        i += 2;
        continue;
      }
    }
    out.push_back(text[i]);
  }
  return out;
}

constexpr std::string_view kModelPrefix = "/v1/models/";

void one_model(Service& service, const HttpRequest& request, const Writer& writer) {
  const std::string id =
      percent_decoded(std::string_view(request.path).substr(kModelPrefix.size()));
  if (id == service.facts().model_name) return send_json(*writer, model_entry(service));
  // The name comes from outside and may be no text at all.
  ApiError error{404, "there is no such model; GET /v1/models lists what is served", "model",
                 "model_not_found"};
  send_error(*writer, error);
}

void chat_completions(Service& service, const HttpRequest& request, const Writer& writer) {
  serve_openai_chat(service, request, writer);
}

struct Route {
  std::string_view method;
  std::string_view path;
  void (*serve)(Service&, const HttpRequest&, const Writer&);
};

constexpr std::array kRoutes = {
    Route{"GET", "/health", health},
    Route{"GET", "/api/health", health},
    Route{"GET", "/v1/models", models},
    Route{"GET", "/models", models},
    Route{"POST", "/v1/chat/completions", chat_completions},
    Route{"POST", "/chat/completions", chat_completions},
};

std::optional<Route> find_route(std::string_view path) {
  for (const Route& route : kRoutes) {
    if (route.path == path) return route;
  }
  if (path.starts_with(kModelPrefix)) return Route{"GET", path, one_model};
  return std::nullopt;
}

bool is_health(std::string_view path) {
  return path == "/health" || path == "/api/health";
}

}  // namespace

void Api::set_service(std::shared_ptr<Service> service) {
  const std::lock_guard lock(mutex_);
  service_ = std::move(service);
}

std::shared_ptr<Service> Api::service() {
  const std::lock_guard lock(mutex_);
  return service_;
}

void Api::handle(const HttpRequest& request, const Writer& writer) {
  if (auto allowed = check_access(request, bound_host_); !allowed) {
    return send_error(*writer, allowed.error());
  }
  if (request.method == "OPTIONS") {
    HttpResponse response;
    response.status = 204;
    return writer->send(std::move(response));
  }
  const auto route = find_route(request.path);
  if (!route) {
    return send_error(
        *writer,
        {404, "there is nothing at this path; docs/api.md lists what is", {}, "not_found"});
  }
  const bool head = request.method == "HEAD" && route->method == "GET";
  if (request.method != route->method && !head) {
    return send_error(*writer, {405, fmt::format("this path takes {} only", route->method), {}, {}},
                      {{"Allow", std::string(route->method)}});
  }
  if (const std::string* encoding = request.header("Content-Encoding");
      encoding != nullptr && *encoding != "identity" && !encoding->empty()) {
    return send_error(*writer,
                      {415, "compressed bodies are not supported; send plain JSON", {}, {}});
  }
  const auto current = service();
  if (current == nullptr) {
    if (is_health(request.path)) {
      return send_json(*writer, {{"status", "loading"}, {"service", "strata"}, {"loaded", false}},
                       503);
    }
    return send_error(*writer, {503, "the model is being loaded; try again shortly", {}, {}},
                      {{"Retry-After", "1"}});
  }
  route->serve(*current, request, writer);
}

std::string http_error_body(unsigned status, std::string_view message) {
  return openai_error_body({status, std::string(message), {}, {}});
}

}  // namespace strata::server
