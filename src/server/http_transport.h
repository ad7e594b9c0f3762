// What a connection's bytes travel over: TCP, a unix socket, or TLS over one of them. Internal to
// the HTTP layer; belongs to the connection's strand.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"

namespace strata::server {

class Transport {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using Done = std::function<void(const boost::system::error_code& error, std::size_t bytes)>;

  virtual ~Transport() = default;
  virtual boost::asio::any_io_executor executor() = 0;
  // Before anything else; `done` may be called at once.
  virtual void handshake(Done done) = 0;
  virtual void read(boost::asio::mutable_buffer into, Done done) = 0;
  virtual void write(boost::asio::const_buffer bytes, Done done) = 0;
  // As much as the system takes at once, without waiting; what is left, errors too, is write()'s.
  virtual std::size_t write_now(boost::asio::const_buffer bytes) = 0;
  // Nothing more will be written. False if nothing can be read after that either: then `done`
  // follows when the connection may be closed.
  virtual bool end(Done done) = 0;
  virtual void close() = 0;
};

std::unique_ptr<Transport> plain_transport(Transport::Socket socket);

// A certificate chain and its key, once for all connections.
class TlsContext {
 public:
  // Files in PEM. TLS 1.2 or newer.
  static Result<std::shared_ptr<TlsContext>> load(const std::string& certificate,
                                                  const std::string& key);
  virtual ~TlsContext() = default;
  virtual std::unique_ptr<Transport> transport(Transport::Socket socket) = 0;
};

}  // namespace strata::server
