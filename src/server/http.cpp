#include "server/http.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <condition_variable>
#include <cstring>
#include <list>
#include <mutex>
#include <thread>

#include "base/errno_text.h"
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

// Of IPv6 the first half: whoever has one such address has all that begin alike.
std::string client_of(const Transport::Socket& socket) {
  boost::system::error_code ignored;
  const Transport::Socket::endpoint_type from = socket.remote_endpoint(ignored);
  if (ignored || (from.protocol().family() != AF_INET && from.protocol().family() != AF_INET6))
    return {};
  tcp::endpoint address;
  if (from.size() > address.capacity()) return {};
  std::memcpy(address.data(), from.data(), from.size());
  address.resize(from.size());
  if (address.address().is_v4()) return address.address().to_string();
  auto six = address.address().to_v6();
  if (six.is_v4_mapped()) return asio::ip::make_address_v4(asio::ip::v4_mapped, six).to_string();
  auto bytes = six.to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), 0);
  return asio::ip::make_address_v6(bytes).to_string();
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
              errno_text(error.value()));
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
  // Of any kind of stream: TCP or unix.
  asio::basic_socket_acceptor<asio::generic::stream_protocol> acceptor{accept_strand};
  std::shared_ptr<TlsContext> tls;
  asio::steady_timer accept_pause{accept_strand};
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work;
  std::vector<std::thread> threads;
  std::uint16_t port = 0;

  std::mutex mutex;
  std::list<std::weak_ptr<Connection>> connections;
  bool stopped = false;

  Status listen_on_port();
  Status listen_on_path();
  void wait_for_none(std::chrono::milliseconds time);
  void run();
  void accept();
  void accepted(Transport::Socket socket);
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
  acceptor.async_accept(asio::make_strand(io), [this](const boost::system::error_code& error,
                                                      Transport::Socket socket) {
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

void HttpServer::State::accepted(Transport::Socket socket) {
  const std::size_t open = context->open;
  if (open >= options.limits.connections + kCrowd) return;  // the socket's destructor closes it
  if (options.socket_path.empty()) {
    boost::system::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
  }
  std::string client = client_of(socket);
  auto connection = std::make_shared<Connection>(
      tls ? tls->transport(std::move(socket)) : plain_transport(std::move(socket)),
      std::move(client), context);
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
  if (!state_->options.socket_path.empty()) unlink(state_->options.socket_path.c_str());
}

Status HttpServer::State::listen_on_port() {
  STRATA_ASSIGN(const auto address, parse_host(options.host));
  boost::system::error_code error;
  const tcp::endpoint endpoint(address, options.port);
  acceptor.open(endpoint.protocol(), error);
  // Without it, a restart waits for the old connections' time-out. It does not allow two listeners.
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(kBacklog, error);
  if (error) return bind_failure(error, options);
  tcp::endpoint bound;
  bound.resize(bound.capacity());
  const auto local = acceptor.local_endpoint(error);
  if (error || local.size() > bound.capacity()) {
    return fail(ErrorCode::io, "cannot tell the port: {}", error.message());
  }
  std::memcpy(bound.data(), local.data(), local.size());
  port = bound.port();
  return {};
}

Status HttpServer::State::listen_on_path() {
  const std::string& path = options.socket_path;
  using Local = asio::local::stream_protocol;
  // sun_path of the address.
  constexpr std::size_t kLongest = 107;
  if (path.size() > kLongest) {
    return fail(ErrorCode::invalid_argument, "the socket's path '{}' is longer than {} bytes", path,
                kLongest);
  }
  boost::system::error_code error;
  struct stat entry = {};
  if (lstat(path.c_str(), &entry) == 0) {
    if (!S_ISSOCK(entry.st_mode)) {
      return fail(ErrorCode::invalid_argument,
                  "'{}' exists and is no socket; it is left alone, name another path", path);
    }
    Local::socket probe(io);
    probe.connect(Local::endpoint(path), error);
    if (!error) {
      return fail(ErrorCode::unavailable, "the socket '{}' is in use by another program", path);
    }
    unlink(path.c_str());  // its server is gone
  }
  acceptor.open(Local(), error);
  const mode_t before = umask(0177);  // for its owner only
  if (!error) acceptor.bind(Local::endpoint(path), error);
  umask(before);
  if (!error) acceptor.listen(kBacklog, error);
  if (error)
    return fail(ErrorCode::io, "cannot listen on '{}': {}", path, errno_text(error.value()));
  return {};
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(HttpOptions options) {
  auto state = std::make_unique<State>();
  state->options = options;
  if (!options.tls_certificate.empty() || !options.tls_key.empty()) {
    if (options.tls_certificate.empty() || options.tls_key.empty()) {
      return fail(ErrorCode::invalid_argument,
                  "TLS needs both a certificate and its key (--tls-cert, --tls-key)");
    }
    STRATA_ASSIGN(state->tls, TlsContext::load(options.tls_certificate, options.tls_key));
  }
  STRATA_TRY(options.socket_path.empty() ? state->listen_on_port() : state->listen_on_path());
  state->context->limits = options.limits;
  state->context->error_body = options.error_body;
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
    case 304:
      return "Not Modified";
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
    case 507:
      return "Insufficient Storage";
    default:
      return "Status";
  }
}

}  // namespace strata::server
