#include "server/http.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "server/http_connection.h"

namespace strata::server {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr int kBacklog = 256;
constexpr std::chrono::milliseconds kAcceptPause{100};  // when the system has no descriptor left
constexpr std::size_t kCrowd = 64;  // connections above the limit that are still told so

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
    return lower(x) == lower(y);
  });
}

Result<asio::ip::address> parse_host(const std::string& host) {
  if (host == "localhost") return asio::ip::address(asio::ip::address_v4::loopback());
  boost::system::error_code error;
  const auto address = asio::ip::make_address(host, error);
  if (error) {
    return fail(ErrorCode::invalid_argument,
                "--host '{}' is no IP address; use 127.0.0.1, another address of this machine, or "
                "localhost",
                host);
  }
  return address;
}

tl::unexpected<Error> bind_failure(const boost::system::error_code& error,
                                   const HttpOptions& options) {
  if (error == asio::error::address_in_use) {
    return fail(ErrorCode::unavailable,
                "port {} on {} is in use by another program; choose another with --port",
                options.port, options.host);
  }
  if (error == asio::error::access_denied) {
    return fail(ErrorCode::unavailable,
                "port {} on {} needs more rights than this program has; choose one from 1024 on "
                "with --port",
                options.port, options.host);
  }
  return fail(ErrorCode::io, "cannot listen on port {} of {}: {}", options.port, options.host,
              error.message());
}

}  // namespace

const std::string* HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (same_name(key, name)) return &value;
  }
  return nullptr;
}

struct HttpServer::State {
  HttpOptions options;
  std::shared_ptr<ConnectionContext> context = std::make_shared<ConnectionContext>();
  asio::io_context io;
  asio::strand<asio::io_context::executor_type> accept_strand = asio::make_strand(io);
  tcp::acceptor acceptor{accept_strand};
  asio::steady_timer accept_pause{accept_strand};
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work;
  std::vector<std::thread> threads;
  std::uint16_t port = 0;

  std::mutex mutex;
  std::list<std::weak_ptr<Connection>> connections;
  bool stopped = false;

  void wait_for_none(std::chrono::milliseconds time);
  void run();
  void accept();
  void accepted(tcp::socket socket);
  std::vector<std::shared_ptr<Connection>> alive();
};

void HttpServer::State::run() {
  for (;;) {
    try {
      io.run();
      return;
    } catch (const std::exception& caught) {
      // Out of memory in one connection's work is no reason to end the others.
      log_error("a connection's work failed: {}", caught.what());
    }
  }
}

void HttpServer::State::accept() {
  acceptor.async_accept(
      asio::make_strand(io), [this](const boost::system::error_code& error, tcp::socket socket) {
        if (error == asio::error::operation_aborted || context->stopping) return;
        if (!error) {
          accepted(std::move(socket));
          return accept();
        }
        log_warning("a connection could not be accepted: {}", error.message());
        accept_pause.expires_after(kAcceptPause);
        accept_pause.async_wait([this](const boost::system::error_code& cancelled) {
          if (!cancelled && !context->stopping) accept();
        });
      });
}

void HttpServer::State::accepted(tcp::socket socket) {
  const std::size_t open = context->open;
  if (open >= options.limits.connections + kCrowd) return;  // the socket's destructor closes it
  auto connection = std::make_shared<Connection>(std::move(socket), context);
  {
    const std::lock_guard lock(mutex);
    connections.remove_if([](const auto& known) { return known.expired(); });
    connections.push_back(connection);
  }
  if (open >= options.limits.connections) {
    connection->refuse_crowded();
  } else {
    connection->start();
  }
}

std::vector<std::shared_ptr<Connection>> HttpServer::State::alive() {
  const std::lock_guard lock(mutex);
  std::vector<std::shared_ptr<Connection>> found;
  for (const auto& known : connections) {
    if (auto connection = known.lock()) found.push_back(std::move(connection));
  }
  return found;
}

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() {
  stop(std::chrono::milliseconds(0));
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(HttpOptions options) {
  STRATA_ASSIGN(const auto address, parse_host(options.host));
  auto state = std::make_unique<State>();
  boost::system::error_code error;
  const tcp::endpoint endpoint(address, options.port);
  tcp::acceptor& acceptor = state->acceptor;
  acceptor.open(endpoint.protocol(), error);
  // Without it, a restart waits for the old connections' time-out. It does not allow two listeners.
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(kBacklog, error);
  if (error) return bind_failure(error, options);
  state->port = acceptor.local_endpoint(error).port();
  state->context->limits = options.limits;
  state->context->error_body = options.error_body;
  state->options = std::move(options);
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

std::uint16_t HttpServer::port() const {
  return state_->port;
}

std::size_t HttpServer::connections() const {
  return state_->context->open;
}

Status HttpServer::start(HttpHandler handler) {
  State& state = *state_;
  if (!state.threads.empty()) return fail(ErrorCode::internal, "the HTTP server is started twice");
  state.context->handler = std::move(handler);
  state.work.emplace(state.io.get_executor());
  asio::post(state.accept_strand, [&state] { state.accept(); });
  try {
    for (std::uint32_t i = 0; i < std::max(1u, state.options.threads); ++i) {
      state.threads.emplace_back([&state] { state.run(); });
    }
  } catch (const std::system_error& caught) {
    if (state.threads.empty()) {
      return fail(ErrorCode::exhausted, "no thread for the HTTP server: {}", caught.what());
    }
    log_warning("the HTTP server runs with {} threads: {}", state.threads.size(), caught.what());
  }
  return {};
}

void HttpServer::State::wait_for_none(std::chrono::milliseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (context->open > 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void HttpServer::drain(std::chrono::milliseconds grace) {
  State& state = *state_;
  state.context->stopping = true;
  if (state.threads.empty()) return;
  asio::post(state.accept_strand, [&state] {
    boost::system::error_code ignored;
    state.acceptor.close(ignored);
    state.accept_pause.cancel();
  });
  for (const auto& connection : state.alive()) connection->close_when_idle();
  state.wait_for_none(grace);
}

void HttpServer::stop(std::chrono::milliseconds grace) {
  State& state = *state_;
  if (state.stopped) return;
  state.stopped = true;
  drain(grace);
  if (state.threads.empty()) return;
  for (const auto& connection : state.alive()) connection->abort();
  // Aborted connections live on in their handlers' writers; what matters is that none runs.
  state.wait_for_none(std::chrono::milliseconds(200));
  state.work.reset();
  state.io.stop();
  for (auto& thread : state.threads) thread.join();
}

bool is_loopback(std::string_view host) {
  if (same_name(host, "localhost")) return true;
  boost::system::error_code error;
  const auto address = asio::ip::make_address(std::string(host), error);
  return !error && address.is_loopback();
}

bool is_ip_address(std::string_view host) {
  boost::system::error_code error;
  asio::ip::make_address(std::string(host), error);
  return !error;
}

std::string_view reason_phrase(unsigned status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Payload Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Status";
  }
}

}  // namespace strata::server
