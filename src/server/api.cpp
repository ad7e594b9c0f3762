#include "server/api.h"

#include <array>
#include <boost/json.hpp>
#include <optional>

#include "server/anthropic.h"
#include "server/chats.h"
#include "server/control_api.h"
#include "server/metrics.h"
#include "server/openai_chat.h"
#include "server/openai_completions.h"
#include "server/openai_responses.h"
#include "server/query.h"
#include "server/status_api.h"
#include "server/token_api.h"

namespace strata::server {

namespace json = boost::json;

namespace {

// A request on its way to its path's function.
struct Call {
  StatusContext context;
  const HttpRequest& request;
  const Writer& writer;
  const std::string owner;  // as Access::owner
  const std::shared_ptr<Responses>& responses;
  const std::shared_ptr<Chats>& chats;
  telemetry::Sampler* const sampler;  // nullptr: there is none

  const ServicePtr& service() const { return context.service; }
};

bool anthropic_path(std::string_view path) {
  return path.starts_with("/v1/messages");
}

void send_error(ResponseWriter& writer, const ApiError& error, std::string_view path,
                std::vector<std::pair<std::string, std::string>> headers = {}) {
  HttpResponse response;
  response.status = error.status;
  response.headers = std::move(headers);
  response.body = anthropic_path(path) ? anthropic_error_body(error) : openai_error_body(error);
  writer.send(std::move(response));
}

constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr std::string_view kResponsePrefix = "/v1/responses/";
constexpr std::string_view kChatPrefix = "/v1/chats/";
constexpr std::string_view kSlotPrefix = "/slots/";

ApiError no_such_model() {
  // The name comes from outside and may be no text at all.
  return {404, "there is no such model; GET /v1/models lists what is served", "model",
          "model_not_found"};
}

void health(const Call& call) {
  const json::object body = health_json(call.context);
  send_json(*call.writer, body, body.at("status") == "ok" ? 200 : 503);
}
void models(const Call& call) {
  send_json(*call.writer, models_json(call.context));
}
void one_model(const Call& call) {
  const std::string id =
      percent_decoded(std::string_view(call.request.path).substr(kModelPrefix.size()));
  if (!call.service()->serves(id)) return send_openai_error(*call.writer, no_such_model());
  send_json(*call.writer, model_json(*call.service(), id));
}
void props(const Call& call) {
  const auto model = query_value(call.request.query, "model");
  if (model && !call.service()->serves(*model)) {
    return send_openai_error(*call.writer, no_such_model());
  }
  send_json(*call.writer, props_json(call.context));
}
void slots(const Call& call) {
  send_json(*call.writer, slots_json(call.context));
}
void slot_action(const Call& call) {
  serve_slot_action(call.context, call.request, call.writer);
}
void load(const Call& call) {
  serve_load(call.context, call.request, call.writer);
}
void unload(const Call& call) {
  serve_unload(call.context, call.request, call.writer);
}
void settings(const Call& call) {
  serve_settings(call.context, call.request, call.writer);
}
void status(const Call& call) {
  send_json(*call.writer, activity_json(call.context));
}
void full_status(const Call& call) {
  send_json(*call.writer, status_json(call.context));
}
void metrics(const Call& call) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = metrics_text(call.context, call.sampler);
  call.writer->send(std::move(response));
}

void samples(const Call& call) {
  serve_telemetry(call.sampler, call.request, call.writer);
}

void chat_completions(const Call& call) {
  serve_openai_chat(call.service(), call.request, call.writer);
}
void completions(const Call& call) {
  serve_openai_completions(call.service(), call.request, call.writer);
}
void responses(const Call& call) {
  call.responses->create(call.service(), call.request, call.owner, call.writer);
}
// "/v1/responses/ID" and "/v1/responses/ID/WHAT".
std::pair<std::string, std::string_view> stored_name(std::string_view path) {
  path.remove_prefix(kResponsePrefix.size());
  const std::size_t slash = path.find('/');
  return {percent_decoded(path.substr(0, slash)),
          slash == path.npos ? std::string_view() : path.substr(slash + 1)};
}
void get_response(const Call& call) {
  const auto [id, what] = stored_name(call.request.path);
  if (what == "input_items") {
    return call.responses->input_items(id, call.owner, call.request.query, call.writer);
  }
  call.responses->get(id, call.owner, call.request.query, call.writer);
}
void delete_response(const Call& call) {
  call.responses->remove(stored_name(call.request.path).first, call.owner, call.writer);
}
void cancel_response(const Call& call) {
  call.responses->cancel(stored_name(call.request.path).first, call.owner, call.writer);
}
void list_chats(const Call& call) {
  call.chats->list(call.owner, call.request.query, call.writer);
}
void add_chat(const Call& call) {
  call.chats->add(call.owner, call.request.body, call.writer);
}
std::string chat_id(const Call& call) {
  return percent_decoded(std::string_view(call.request.path).substr(kChatPrefix.size()));
}
void get_chat(const Call& call) {
  call.chats->get(call.owner, chat_id(call), call.writer);
}
void change_chat(const Call& call) {
  call.chats->change(call.owner, chat_id(call), call.request.body, call.writer);
}
void remove_chat(const Call& call) {
  call.chats->remove(call.owner, chat_id(call), call.writer);
}
void messages(const Call& call) {
  serve_anthropic_messages(call.service(), call.request, call.writer);
}
void count_tokens(const Call& call) {
  serve_anthropic_count(call.service(), call.request, call.writer);
}
void tokenize(const Call& call) {
  serve_tokenize(call.service(), call.request, call.writer);
}
void detokenize(const Call& call) {
  serve_detokenize(call.service(), call.request, call.writer);
}
void apply_template(const Call& call) {
  serve_apply_template(call.service(), call.request, call.writer);
}
void not_built(const Call& call) {
  send_openai_error(*call.writer, {501,
                                   fmt::format("{} is not supported: this server writes text and "
                                               "does nothing else",
                                               call.request.path),
                                   {},
                                   "not_supported"});
}

struct Route {
  std::string_view method;
  std::string_view path;
  void (*serve)(const Call&);
  bool open_to_all = false;  // without a key
  bool state = false;        // changes the server itself
  bool needs_model = true;
};

constexpr std::array kRoutes = {
    Route{"GET", "/health", health, true},
    Route{"GET", "/api/health", health, true},
    Route{"GET", "/v1/health", health, true},
    Route{"GET", "/v1/models", models},
    Route{"GET", "/models", models},
    Route{"GET", "/props", props},
    Route{"GET", "/slots", slots},
    Route{"GET", "/status", status},
    Route{"GET", "/v1/status", full_status},
    Route{"GET", "/metrics", metrics},
    Route{"GET", "/v1/telemetry", samples, false, false, false},
    Route{"POST", "/v1/chat/completions", chat_completions},
    Route{"POST", "/chat/completions", chat_completions},
    Route{"POST", "/v1/completions", completions},
    Route{"POST", "/completions", completions},
    Route{"POST", "/v1/responses", responses},
    Route{"POST", "/responses", responses},
    Route{"GET", "/v1/chats", list_chats, false, false, false},
    Route{"POST", "/v1/chats", add_chat, false, false, false},
    Route{"POST", "/v1/messages", messages},
    Route{"POST", "/v1/messages/count_tokens", count_tokens},
    Route{"POST", "/tokenize", tokenize},
    Route{"POST", "/v1/tokenize", tokenize},
    Route{"POST", "/detokenize", detokenize},
    Route{"POST", "/v1/detokenize", detokenize},
    Route{"POST", "/apply-template", apply_template},
    Route{"GET", "/settings", settings, false, true},
    Route{"POST", "/settings", settings, false, true},
    Route{"POST", "/load", load, false, true},
    Route{"POST", "/v1/load", load, false, true},
    Route{"POST", "/unload", unload, false, true},
    Route{"POST", "/v1/unload", unload, false, true},
    Route{"POST", "/v1/embeddings", not_built},
    Route{"POST", "/embeddings", not_built},
    Route{"POST", "/embedding", not_built},
    Route{"POST", "/v1/rerank", not_built},
    Route{"POST", "/rerank", not_built},
    Route{"POST", "/v1/images/generations", not_built},
    Route{"POST", "/v1/audio/speech", not_built},
    Route{"POST", "/v1/audio/transcriptions", not_built},
    Route{"POST", "/v1/moderations", not_built},
};

// The path's route for the method; if only other methods are known there, one of those.
std::optional<Route> find_route(std::string_view path, std::string_view method) {
  std::optional<Route> other;
  for (const Route& route : kRoutes) {
    if (route.path != path) continue;
    if (route.method == method) return route;
    other = route;
  }
  if (path.starts_with(kModelPrefix)) return Route{"GET", path, one_model};
  if (path.starts_with(kResponsePrefix)) {
    const std::string_view what = stored_name(path).second;
    if (what == "cancel") return Route{"POST", path, cancel_response};
    if (what == "input_items") return Route{"GET", path, get_response};
    if (!what.empty()) return std::nullopt;
    if (method == "DELETE") return Route{"DELETE", path, delete_response};
    return Route{"GET", path, get_response};
  }
  if (path.starts_with(kChatPrefix)) {
    if (method == "PUT") return Route{"PUT", path, change_chat, false, false, false};
    if (method == "DELETE") return Route{"DELETE", path, remove_chat, false, false, false};
    return Route{"GET", path, get_chat, false, false, false};
  }
  if (path.starts_with(kSlotPrefix)) return Route{"POST", path, slot_action, false, true};
  return other;
}

// "GET, PUT": what a path takes, as Allow says it.
std::string methods_of(std::string_view path) {
  std::string methods;
  for (const std::string_view method : {"GET", "POST", "PUT", "DELETE"}) {
    const auto route = find_route(path, method);
    if (!route || route->method != method) continue;
    if (!methods.empty()) methods += ", ";
    methods += method;
  }
  return methods;
}

bool is_health(std::string_view path) {
  return path == "/health" || path == "/api/health" || path == "/v1/health";
}

// Adds headers to whatever is answered.
class HeadedWriter final : public ResponseWriter {
 public:
  HeadedWriter(Writer inner, std::vector<std::pair<std::string, std::string>> headers)
      : inner_(std::move(inner)), headers_(std::move(headers)) {}
  void send(HttpResponse response) override { inner_->send(with_headers(std::move(response))); }
  void begin_stream(HttpResponse head, KeepAlive keep_alive) override {
    inner_->begin_stream(with_headers(std::move(head)), std::move(keep_alive));
  }
  void hold_stream(HttpResponse head, KeepAlive keep_alive) override {
    inner_->hold_stream(with_headers(std::move(head)), std::move(keep_alive));
  }
  void write(std::string piece) override { inner_->write(std::move(piece)); }
  void end_stream() override { inner_->end_stream(); }
  void when_sent(std::function<void()> function) override {
    inner_->when_sent(std::move(function));
  }
  void on_close(std::function<void()> function) override { inner_->on_close(std::move(function)); }
  void post(std::function<void()> function) override { inner_->post(std::move(function)); }

 private:
  HttpResponse with_headers(HttpResponse response) const {
    response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
    return response;
  }
  Writer inner_;
  std::vector<std::pair<std::string, std::string>> headers_;
};

}  // namespace

Api::Api(ApiOptions options)
    : access_(std::move(options.access)),
      version_(std::move(options.version)),
      responses_(std::move(options.responses)),
      chats_(std::move(options.chats)),
      web_app_(options.web_app) {
  if (responses_ == nullptr) {
    // A database in memory needs nothing that can fail but memory.
    auto store = ResponseStore::open("");
    if (store) responses_ = std::make_shared<Responses>(std::move(*store));
  }
  if (chats_ == nullptr) {
    auto store = ChatStore::open("");
    chats_ = std::make_shared<Chats>(store ? std::move(*store) : nullptr);
  }
  if (options.telemetry)
    sampler_ = make_sampler(std::move(*options.telemetry), [this] { return service(); });
}

void Api::set_service(std::shared_ptr<Service> service) {
  const std::lock_guard lock(mutex_);
  service_ = std::move(service);
}

void Api::set_reason(std::string reason) {
  const std::lock_guard lock(mutex_);
  reason_ = std::move(reason);
}

void Api::stop() {
  if (sampler_ != nullptr) sampler_->stop();
  if (responses_ != nullptr) responses_->stop();
  chats_->stop();
}

std::shared_ptr<Service> Api::service() {
  const std::lock_guard lock(mutex_);
  return service_;
}

std::string Api::reason() {
  const std::lock_guard lock(mutex_);
  return reason_;
}

void Api::handle(HttpRequest request, const Writer& bare_writer) {
  const bool options = request.method == "OPTIONS";
  Writer writer = bare_writer;
  if (auto headers = access_.cors_headers(request, options); !headers.empty()) {
    writer = std::make_shared<HeadedWriter>(bare_writer, std::move(headers));
  }
  const std::string_view path = request.path;
  const WebFile* page = web_app_.find(path);
  const auto route = page != nullptr
                         ? Route{"GET", path, nullptr, true}
                         : find_route(path, request.method == "HEAD" ? "GET" : request.method);
  const bool open_to_all = options || (route && route->open_to_all);
  if (auto allowed = access_.check(request, open_to_all, route && route->state); !allowed) {
    std::vector<std::pair<std::string, std::string>> headers;
    if (allowed.error().status == 401) headers.emplace_back("WWW-Authenticate", "Bearer");
    return send_error(*writer, allowed.error(), path, std::move(headers));
  }
  if (options) {
    HttpResponse response;
    response.status = 204;
    return writer->send(std::move(response));
  }
  if (!route) {
    return send_error(
        *writer, {404, "there is nothing at this path; docs/api.md lists what is", {}, "not_found"},
        path);
  }
  const bool head = request.method == "HEAD" && route->method == "GET";
  if (request.method != route->method && !head) {
    const std::string methods = page != nullptr ? "GET" : methods_of(path);
    return send_error(*writer, {405, fmt::format("this path takes {} only", methods), {}, {}}, path,
                      {{"Allow", methods}});
  }
  if (page != nullptr) return WebApp::serve(*page, request, *writer);
  if (const std::string* encoding = request.header("Content-Encoding");
      encoding != nullptr && *encoding != "identity" && !encoding->empty()) {
    return send_error(*writer,
                      {415, "compressed bodies are not supported; send plain JSON", {}, {}}, path);
  }
  const std::string owner = access_.owner(request);
  if (!owner.empty()) request.client = owner;
  const Call call{{service(), version_, access_.needs_key()},
                  request,
                  writer,
                  owner,
                  responses_,
                  chats_,
                  sampler_.get()};
  if (request.method == "POST" && sampler_ != nullptr) sampler_->stir();
  if (call.service() == nullptr && route->needs_model) {
    if (is_health(path)) {
      return send_json(
          *writer,
          {{"status", "loading"}, {"service", "strata"}, {"loaded", false}, {"reason", reason()}},
          503);
    }
    return send_error(*writer, {503, reason(), {}, {}}, path, {{"Retry-After", "1"}});
  }
  if (responses_ == nullptr && path.find("/responses") != path.npos) {
    return send_error(*writer, {503, "there is no memory for stored responses", {}, {}}, path);
  }
  route->serve(call);
}

std::string http_error_body(unsigned status, std::string_view message, std::string_view path) {
  const ApiError error{status, std::string(message), {}, {}};
  return anthropic_path(path) ? anthropic_error_body(error) : openai_error_body(error);
}

}  // namespace strata::server
