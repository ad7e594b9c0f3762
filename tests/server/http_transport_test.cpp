// HTTP over unix sockets and TLS.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <filesystem>
#include <fstream>

#include "server/http.h"
#include "tests/server/raw_client.h"

namespace strata::server {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::RawClient;

class Transports : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("strata-http-{}", getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  Status serve(HttpOptions options) {
    options.port = 0;
    auto server = HttpServer::listen(std::move(options));
    if (!server) return tl::unexpected(server.error());
    server_ = std::move(*server);
    return server_->start([](HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
      HttpResponse response;
      response.body = request.path + request.body;
      if (request.path == "/large") response.body = std::string(3'000'000, 'x');
      writer->send(std::move(response));
    });
  }
  // Writes a key and a certificate for it, signed by itself.
  void make_certificate() {
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* certificate = X509_new();
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_NAME* name = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
    X509_set_issuer_name(certificate, name);
    X509_sign(certificate, key, EVP_sha256());
    std::FILE* file = std::fopen(path("key.pem").c_str(), "w");
    PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
    file = std::fopen(path("cert.pem").c_str(), "w");
    PEM_write_X509(file, certificate);
    std::fclose(file);
    X509_free(certificate);
    EVP_PKEY_free(key);
  }

  std::filesystem::path folder_;
  std::unique_ptr<HttpServer> server_;
};

int connect_to(const std::string& path) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return socket;
  ::close(socket);
  return -1;
}

std::string exchange(int socket, const std::string& request) {
  EXPECT_EQ(::send(socket, request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t got; (got = ::read(socket, buffer, sizeof buffer)) > 0;)
    answer.append(buffer, static_cast<std::size_t>(got));
  ::close(socket);
  return answer;
}

TEST_F(Transports, UnixSocketForItsOwnerAndGoneAtTheEnd) {
  HttpOptions options;
  options.socket_path = path("s");
  ASSERT_TRUE(serve(options));
  struct stat entry = {};
  ASSERT_EQ(::stat(path("s").c_str(), &entry), 0);
  EXPECT_EQ(entry.st_mode & 0777, 0600u);
  const std::string answer =
      exchange(connect_to(path("s")),
               "POST /x HTTP/1.1\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_THAT(answer, HasSubstr("200 OK"));
  EXPECT_THAT(answer, ::testing::EndsWith("/xhi"));
  EXPECT_EQ(server_->port(), 0);
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(path("s")));
}

TEST_F(Transports, UnixSocketsOfOthersAreLeftAlone) {
  HttpOptions options;
  options.socket_path = path("s");
  ASSERT_TRUE(serve(options));
  auto first = std::move(server_);
  const Status second = serve(options);
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("in use by another program"));
  EXPECT_THAT(exchange(connect_to(path("s")), "GET /y HTTP/1.1\r\nConnection: close\r\n\r\n"),
              HasSubstr("/y"));
  first.reset();
  // One that a killed server left behind is replaced.
  const int dead = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path("s").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(dead, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(dead);
  EXPECT_TRUE(serve(options));
  server_.reset();
  std::ofstream(path("file")) << "precious";
  options.socket_path = path("file");
  EXPECT_THAT(serve(options).error().message, HasSubstr("is no socket"));
  EXPECT_EQ(std::filesystem::file_size(path("file")), 8u);
  options.socket_path = std::string(200, 'a');
  EXPECT_THAT(serve(options).error().message, HasSubstr("longer than 107 bytes"));
}

TEST_F(Transports, Tls) {
  make_certificate();
  HttpOptions options;
  options.tls_certificate = path("cert.pem");
  options.tls_key = path("key.pem");
  options.limits.header_time = 300ms;
  ASSERT_TRUE(serve(options));
  const auto ask = [&](const std::string& request) {
    SSL_CTX* context = SSL_CTX_new(TLS_client_method());
    SSL* tls = SSL_new(context);
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    SSL_set_fd(tls, socket);
    EXPECT_EQ(SSL_connect(tls), 1);
    EXPECT_GE(SSL_version(tls), TLS1_2_VERSION);
    SSL_write(tls, request.data(), static_cast<int>(request.size()));
    std::string answer;
    char buffer[4096];
    int got = 0;
    while ((got = SSL_read(tls, buffer, sizeof buffer)) > 0)
      answer.append(buffer, static_cast<std::size_t>(got));
    // Ended by the protocol, not cut off.
    EXPECT_EQ(SSL_get_error(tls, got), SSL_ERROR_ZERO_RETURN);
    SSL_shutdown(tls);
    SSL_free(tls);
    SSL_CTX_free(context);
    ::close(socket);
    return answer;
  };
  EXPECT_THAT(ask("POST /x HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi"
                  "GET /y HTTP/1.1\r\nConnection: close\r\n\r\n"),
              ::testing::AllOf(HasSubstr("/xhi"), ::testing::EndsWith("/y")));
  EXPECT_GT(ask("GET /large HTTP/1.1\r\nConnection: close\r\n\r\n").size(), 3'000'000u);
  // Plain HTTP and silence end the connection without hurting others.
  RawClient plain(server_->port());
  plain.send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(plain.read_response().status, 0u);
  RawClient silent(server_->port());
  EXPECT_EQ(silent.read_response().status, 0u);
  EXPECT_THAT(ask("GET /z HTTP/1.1\r\nConnection: close\r\n\r\n"), HasSubstr("/z"));
}

TEST_F(Transports, TlsFilesAreChecked) {
  make_certificate();
  HttpOptions options;
  options.tls_certificate = path("cert.pem");
  EXPECT_THAT(serve(options).error().message, HasSubstr("both a certificate and its key"));
  options.tls_key = path("none.pem");
  EXPECT_THAT(serve(options).error().message, HasSubstr("none.pem"));
  options.tls_key = path("key.pem");
  options.tls_certificate = path("key.pem");
  EXPECT_THAT(serve(options).error().message, HasSubstr("is no certificate in PEM"));
}

}  // namespace
}  // namespace strata::server
