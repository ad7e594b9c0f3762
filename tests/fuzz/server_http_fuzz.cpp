// Any bytes as what a client sends: whatever comes back is HTTP, and the server goes on.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>

#include "server/http.h"

namespace {

using namespace strata::server;

std::string path() {
  return (std::filesystem::temp_directory_path() / ("strata-fuzz-" + std::to_string(getpid())))
      .string();
}

HttpServer& server() {
  static const std::unique_ptr<HttpServer> instance = [] {
    HttpOptions options;
    options.socket_path = path();
    options.threads = 1;
    options.limits.body_bytes = 4096;
    options.limits.header_bytes = 4096;
    options.limits.drain_time = std::chrono::milliseconds(20);
    auto made = HttpServer::listen(options);
    if (!made) __builtin_trap();
    const auto handler = [](HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
      if (request.path.find('?') != std::string::npos) __builtin_trap();
      if (request.body.size() > 4096) __builtin_trap();
      HttpResponse response;
      response.body = request.path;
      writer->send(std::move(response));
    };
    if (!(*made)->start(handler)) __builtin_trap();
    return std::move(*made);
  }();
  return *instance;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  server();
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path().copy(address.sun_path, sizeof address.sun_path - 1);
  if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    __builtin_trap();
  const auto* bytes = reinterpret_cast<const char*>(data);
  std::size_t sent = 0;
  while (sent < size) {
    const ssize_t now = ::send(socket, bytes + sent, size - sent, MSG_NOSIGNAL);
    if (now <= 0) break;
    sent += static_cast<std::size_t>(now);
  }
  ::shutdown(socket, SHUT_WR);
  std::string answer;
  char buffer[4096];
  for (ssize_t got; (got = ::read(socket, buffer, sizeof buffer)) > 0;)
    answer.append(buffer, static_cast<std::size_t>(got));
  ::close(socket);
  if (!answer.empty() && !answer.starts_with("HTTP/1.1 ")) __builtin_trap();
  return 0;
}
