// A client of plain sockets: what it sends is what stands in the test, byte for byte.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::server::testing {

struct RawResponse {
  unsigned status = 0;
  std::map<std::string, std::string> headers;  // names as sent
  std::string body;                            // without chunk framing
  bool complete = false;
  boost::json::value json() const { return boost::json::parse(body); }
};

class RawClient {
 public:
  explicit RawClient(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    timeval limit = {1, 0};  // a test that hangs fails instead, see receive()
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }
  RawClient(RawClient&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)),
        connected_(other.connected_),
        input_(std::move(other.input_)) {}
  RawClient& operator=(RawClient&&) = delete;
  ~RawClient() { close(); }

  bool connected() const { return connected_; }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  void receive_buffer(int bytes) {
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  }

  bool send(std::string_view bytes) {
    for (int silent = 0; !bytes.empty();) {
      const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n < 0 && again(silent)) continue;
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  // False at the end of the connection (or after the time limit).
  bool receive() {
    char buffer[16384];
    ssize_t n = 0;
    int silent = 0;
    do n = ::recv(socket_, buffer, sizeof buffer, 0);
    while (n < 0 && again(silent));
    if (n <= 0) return false;
    input_.append(buffer, static_cast<std::size_t>(n));
    return true;
  }
  // Waits until the text stands in what came (nothing is taken away).
  bool wait_for(std::string_view text) {
    while (input_.find(text) == std::string::npos) {
      if (!receive()) return false;
    }
    return true;
  }
  // True if the server closed without another byte.
  bool at_end() { return input_.empty() && !receive(); }
  const std::string& input() const { return input_; }

  RawResponse read_response(bool head_only = false) {
    RawResponse response;
    if (!wait_for("\r\n\r\n")) return response;
    const std::size_t end = input_.find("\r\n\r\n");
    parse_head(input_.substr(0, end), response);
    input_.erase(0, end + 4);
    const auto length = response.headers.find("Content-Length");
    if (head_only || response.status == 204 || response.status == 304 || response.status == 100) {
      response.complete = true;
    } else if (length != response.headers.end()) {
      const std::size_t bytes = std::strtoull(length->second.c_str(), nullptr, 10);
      response.complete = need(bytes);
      response.body = take(bytes);
    } else if (response.headers.contains("Transfer-Encoding")) {
      response.complete = read_chunks(response.body);
    } else {
      while (receive()) continue;
      response.body = std::exchange(input_, {});
      response.complete = true;
    }
    return response;
  }

  RawResponse post(std::string_view path, std::string_view body, std::string_view headers = "") {
    send(
        fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\n{}Content-Type: application/json\r\n"
                    "Content-Length: {}\r\n\r\n{}",
                    path, headers, body.size(), body));
    return read_response();
  }
  RawResponse get(std::string_view path) {
    send(fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", path));
    return read_response();
  }

 private:
  // Twenty silent seconds, counted one by one: a process that was stopped for a while (SIGSTOP)
  // gets EINTR, and its clock went on without it.
  static bool again(int& silent) {
    if (errno == EINTR) return true;
    return (errno == EAGAIN || errno == EWOULDBLOCK) && ++silent < 20;
  }
  static void parse_head(const std::string& head, RawResponse& response) {
    response.status =
        static_cast<unsigned>(std::strtoul(head.substr(head.find(' ')).c_str(), nullptr, 10));
    std::size_t at = head.find("\r\n");
    while (at != std::string::npos) {
      const std::size_t next = head.find("\r\n", at + 2);
      const std::string line =
          head.substr(at + 2, next == std::string::npos ? next : next - at - 2);
      const std::size_t colon = line.find(": ");
      if (colon != std::string::npos)
        response.headers[line.substr(0, colon)] = line.substr(colon + 2);
      at = next;
    }
  }
  bool need(std::size_t bytes) {
    while (input_.size() < bytes) {
      if (!receive()) return false;
    }
    return true;
  }
  std::string take(std::size_t bytes) {
    std::string taken = input_.substr(0, bytes);
    input_.erase(0, bytes);
    return taken;
  }
  bool read_chunks(std::string& body) {
    for (;;) {
      if (!wait_for("\r\n")) return false;
      const std::size_t size = std::strtoull(input_.c_str(), nullptr, 16);
      take(input_.find("\r\n") + 2);
      if (!need(size + 2)) return false;
      body += take(size);
      take(2);
      if (size == 0) return true;
    }
  }

  int socket_;
  bool connected_ = false;
  std::string input_;
};

// The data lines of a server-sent event stream.
inline std::vector<std::string> sse_data(const std::string& body) {
  std::vector<std::string> found;
  std::size_t at = 0;
  while (at < body.size()) {
    std::size_t end = body.find("\n\n", at);
    if (end == std::string::npos) end = body.size();
    const std::string event = body.substr(at, end - at);
    if (event.starts_with("data: ")) found.push_back(event.substr(6));
    at = end + 2;
  }
  return found;
}

}  // namespace strata::server::testing
