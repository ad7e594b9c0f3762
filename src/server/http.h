// HTTP/1.1 over TCP or a unix socket, with TLS if wanted, for the dialects: requests come whole,
// answers go out whole or as a stream. Only http.cpp and http_connection.* know the library
// underneath.
//
// What callers may rely on
// - Every connection has a strand: its handler, its on_close function and whatever is given to
//   ResponseWriter::post run there, one at a time and in order. Other connections go on meanwhile.
// - A request reaches the handler only when it is complete and inside the limits; all else is
//   answered here (400, 413, 417, 431, 501, 503) through `error_body`.
// - A client that leaves, or reads so slowly that the outgoing queue overflows, is noticed at once,
//   also while nothing is being written: the exchange's on_close function runs.
// - A writer that is dropped without an answer answers 500: no client waits for ever.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace strata::server {

struct HttpLimits {
  std::uint32_t header_bytes = 64 * 1024;              // request line and headers
  std::uint64_t body_bytes = std::uint64_t{16} << 20;  // decoded
  std::size_t connections = 256;                       // open at once; one more is answered 503
  std::size_t outgoing_bytes = std::size_t{1} << 20;   // of a stream, waiting for a slow reader
  std::size_t pipelined_bytes = 64 * 1024;             // read ahead while a request is answered
  std::chrono::milliseconds idle_time{75'000};         // between two requests
  std::chrono::milliseconds header_time{15'000};       // from a request's first byte
  std::chrono::milliseconds body_time{120'000};        // from the end of the headers
  std::chrono::milliseconds write_time{60'000};        // without a byte taken by the client
  std::chrono::milliseconds drain_time{5'000};         // for unread bytes, before closing
  std::chrono::milliseconds keep_alive_time{10'000};   // a silent stream sends its `keep_alive`
};

struct HttpRequest {
  std::string method;  // upper case
  std::string path;    // without query and trailing slashes, not decoded
  std::string query;   // after '?', may be empty
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  // Who asks: the address of the connection (none of a unix socket), or, once it is known, the
  // owner of the request's key (Access::owner).
  std::string client;

  // The first header of that name (any case), nullptr if absent.
  const std::string* header(std::string_view name) const;
};

struct HttpResponse {
  unsigned status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
};

using KeepAlive = std::function<std::string()>;

// The answer of one request. Thread safe; calls take effect in order on the connection's strand.
// Calls after the answer is complete, or after the client left, do nothing.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;
  virtual void send(HttpResponse response) = 0;  // the whole answer
  // A stream: its head (the body of `head` goes first), pieces, and the end. Whenever nothing was
  // written for keep_alive_time, what `keep_alive` returns is; it is called on the strand, and may
  // be empty: never.
  virtual void begin_stream(HttpResponse head, KeepAlive keep_alive) = 0;
  // The same, but that the head waits for the first piece, which may be empty, for the end, or for
  // keep_alive_time; until then send() still takes its place.
  virtual void hold_stream(HttpResponse head, KeepAlive keep_alive) = 0;
  virtual void write(std::string piece) = 0;
  virtual void end_stream() = 0;
  // Calls `function` once, on the strand and never inside this call, when the operating system has
  // taken all that was written: for whoever has more to write than should wait here. Replaces the
  // function given before; dropped when the answer is complete or can no longer be delivered.
  virtual void when_sent(std::function<void()> function) = 0;
  // Called once, on the strand, if the answer can no longer be delivered. Replaces the function
  // given before; it is dropped when the answer is complete.
  virtual void on_close(std::function<void()> function) = 0;
  // Runs `function` on the strand, never inside this call.
  virtual void post(std::function<void()> function) = 0;
};

using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<ResponseWriter>)>;

struct HttpOptions {
  std::string host = "127.0.0.1";  // an IP address or "localhost"
  std::uint16_t port = 8080;       // 0: any free one
  // Instead of host and port: a unix socket at this path, for its owner only. One that nobody
  // listens on any more is replaced; it is removed at the end.
  std::string socket_path;
  // PEM files; both or none.
  std::string tls_certificate, tls_key;
  std::uint32_t threads = 2;
  HttpLimits limits;
  // The JSON body of an answer that HTTP itself gives; `path` is empty if it is not known yet.
  std::function<std::string(unsigned status, std::string_view message, std::string_view path)>
      error_body;
};

class HttpServer {
 public:
  // Binds and listens; clients wait until start(). A busy port is `unavailable`.
  static Result<std::unique_ptr<HttpServer>> listen(HttpOptions options);
  ~HttpServer();  // stop() without grace

  std::uint16_t port() const;  // 0 on a unix socket
  // Accepts and answers from now on. Once.
  Status start(HttpHandler handler);
  // Stops accepting, closes idle connections and waits until all running answers have ended, at
  // most for `grace`. Not from a handler.
  void drain(std::chrono::milliseconds grace);
  // drain(), then cuts the rest; returns when no handler runs any more. Writers may be used
  // afterwards, without effect, as long as the HttpServer lives. Not from a handler.
  void stop(std::chrono::milliseconds grace);
  std::size_t connections() const;

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

bool is_loopback(std::string_view host);  // "localhost", 127.0.0.0/8, ::1
bool is_ip_address(std::string_view host);
std::string_view reason_phrase(unsigned status);

}  // namespace strata::server
