#include "server/http_transport.h"

#include <sys/socket.h>

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>

namespace strata::server {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;

namespace {

class PlainTransport final : public Transport {
 public:
  explicit PlainTransport(Socket socket) : socket_(std::move(socket)) {}
  asio::any_io_executor executor() override { return socket_.get_executor(); }
  void handshake(Done done) override { done({}, 0); }
  void read(asio::mutable_buffer into, Done done) override {
    socket_.async_read_some(into, std::move(done));
  }
  void write(asio::const_buffer bytes, Done done) override {
    socket_.async_write_some(bytes, std::move(done));
  }
  std::size_t write_now(asio::const_buffer bytes) override {
    const ssize_t sent =
        ::send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent > 0 ? static_cast<std::size_t>(sent) : 0;
  }
  bool end(Done) override {
    boost::system::error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
    return true;
  }
  void close() override {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }

 private:
  Socket socket_;
};

class TlsTransport final : public Transport {
 public:
  TlsTransport(Socket socket, std::shared_ptr<ssl::context> context)
      : context_(std::move(context)), stream_(std::move(socket), *context_) {}
  asio::any_io_executor executor() override { return stream_.get_executor(); }
  void handshake(Done done) override {
    stream_.async_handshake(
        ssl::stream_base::server,
        [done = std::move(done)](const boost::system::error_code& error) { done(error, 0); });
  }
  void read(asio::mutable_buffer into, Done done) override {
    stream_.async_read_some(into, std::move(done));
  }
  void write(asio::const_buffer bytes, Done done) override {
    stream_.async_write_some(bytes, std::move(done));
  }
  std::size_t write_now(asio::const_buffer) override { return 0; }
  bool end(Done done) override {
    stream_.async_shutdown(
        [done = std::move(done)](const boost::system::error_code& error) { done(error, 0); });
    return false;
  }
  void close() override {
    boost::system::error_code ignored;
    stream_.lowest_layer().close(ignored);
  }

 private:
  std::shared_ptr<ssl::context> context_;
  ssl::stream<Socket> stream_;
};

class Context final : public TlsContext {
 public:
  explicit Context(std::shared_ptr<ssl::context> context) : context_(std::move(context)) {}
  std::unique_ptr<Transport> transport(Transport::Socket socket) override {
    return std::make_unique<TlsTransport>(std::move(socket), context_);
  }

 private:
  std::shared_ptr<ssl::context> context_;
};

}  // namespace

std::unique_ptr<Transport> plain_transport(Transport::Socket socket) {
  return std::make_unique<PlainTransport>(std::move(socket));
}

Result<std::shared_ptr<TlsContext>> TlsContext::load(const std::string& certificate,
                                                     const std::string& key) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  boost::system::error_code error;
  context->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 |
                           ssl::context::no_tlsv1_1 | ssl::context::no_sslv2 |
                           ssl::context::no_sslv3 | ssl::context::no_compression,
                       error);
  if (error) return fail(ErrorCode::internal, "TLS cannot be set up: {}", error.message());
  context->use_certificate_chain_file(certificate, error);
  if (error) {
    return fail(ErrorCode::invalid_argument, "'{}' is no certificate in PEM: {}", certificate,
                error.message());
  }
  context->use_private_key_file(key, ssl::context::pem, error);
  if (error) {
    return fail(ErrorCode::invalid_argument, "'{}' is no private key in PEM for '{}': {}", key,
                certificate, error.message());
  }
  return std::shared_ptr<TlsContext>(std::make_shared<Context>(std::move(context)));
}

}  // namespace strata::server
