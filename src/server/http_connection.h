// One connection: a continuous reader that feeds the request parser, one exchange at a time, and a
// bounded queue of outgoing bytes. Internal to the HTTP layer; everything here runs on the
// connection's strand unless it says otherwise.
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "server/http.h"
#include "server/http_transport.h"

namespace strata::server {

// What connections share with their server.
struct ConnectionContext {
  HttpLimits limits;
  HttpHandler handler;
  std::function<std::string(unsigned, std::string_view, std::string_view)> error_body;
  std::atomic<bool> stopping{false};
  std::atomic<std::size_t> open{0};
};

// A timer that can be set anew: only the last setting fires. Setting it later and clearing it are
// cheap, since a stream does both for every token: the wait that is under way goes on and looks at
// its end whether it is still meant. The function must not own the connection.
class Deadline {
 public:
  explicit Deadline(const boost::asio::any_io_executor& executor)
      : state_(std::make_shared<State>(executor)) {}
  void set(std::chrono::milliseconds time, std::function<void()> function);
  void clear() { state_->function = nullptr; }
  void end();  // for good

 private:
  using Clock = std::chrono::steady_clock;
  struct State {
    explicit State(const boost::asio::any_io_executor& executor) : timer(executor) {}
    boost::asio::steady_timer timer;
    std::function<void()> function;  // empty: not set
    Clock::time_point due;
    Clock::time_point wakes;  // of the wait under way
    std::uint64_t waits = 0;  // begun; only the last one counts
    bool waiting = false;
  };
  static void wait(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
};

// Chunk extensions have no use and a history of request smuggling.
struct RefuseChunkExtensions {
  void operator()(std::uint64_t, boost::beast::string_view extensions,
                  boost::system::error_code& error);
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `client` as HttpRequest::client.
  Connection(std::unique_ptr<Transport> transport, std::string client,
             std::shared_ptr<ConnectionContext> context);
  ~Connection();

  void start();
  void refuse_crowded();  // 503 instead of start()
  // From any thread.
  void close_when_idle();
  void abort();

 private:
  friend class Exchange;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  enum class Phase { idle, header, body, busy, draining, closed };
  enum class Answer { none, held, streaming, complete };

  // Reading.
  void read();
  void on_read(const boost::system::error_code& error, std::size_t bytes);
  void parse();
  void begin_request();
  bool check_header();  // false: refused
  void refuse(unsigned status, std::string_view message);
  std::string error_body(unsigned status, std::string_view message) const;
  void remember_path();
  void refuse_parse(const boost::system::error_code& error);
  void dispatch();

  // The exchange; `exchange` is its number, calls of earlier ones are ignored.
  bool current(std::uint64_t exchange) const;
  void send(std::uint64_t exchange, HttpResponse response);
  void begin_stream(std::uint64_t exchange, HttpResponse head, KeepAlive keep_alive);
  void hold_stream(std::uint64_t exchange, HttpResponse head, KeepAlive keep_alive);
  bool streams(std::uint64_t exchange) const;
  void release_head();
  void write(std::uint64_t exchange, std::string piece);
  void end_stream(std::uint64_t exchange);
  void set_on_close(std::uint64_t exchange, std::function<void()> function);
  void set_when_sent(std::uint64_t exchange, std::function<void()> function);
  void abandoned(std::uint64_t exchange);

  // Writing.
  std::string head_text(const HttpResponse& response, std::optional<std::size_t> length) const;
  void queue(std::string bytes);
  void queue_piece(std::string piece);
  void set(Deadline& deadline, std::chrono::milliseconds time, void (*function)(Connection&));
  void arm_keep_alive();
  void flush();
  bool next_bytes();
  void sent(std::size_t bytes);
  void tell_sent();
  void on_written(const boost::system::error_code& error, std::size_t bytes);
  void finish_exchange();
  void drain();
  void close();

  std::unique_ptr<Transport> transport_;
  const std::string client_;
  std::shared_ptr<ConnectionContext> context_;
  Phase phase_ = Phase::idle;

  std::array<char, 16 * 1024> read_buffer_;  // of the read in progress; input_ moves meanwhile
  boost::beast::flat_buffer input_;
  RefuseChunkExtensions refuse_chunk_extensions_;  // before parser_, which refers to it
  std::optional<Parser> parser_;
  bool reading_ = false;
  std::size_t drained_ = 0;
  Deadline read_deadline_;

  std::uint64_t exchange_ = 0;
  Answer answer_ = Answer::none;
  bool keep_connection_ = false;
  bool chunked_ = false;    // of the stream; else its end is the connection's
  bool head_only_ = false;  // the method was HEAD
  std::string path_;        // of the request, once its headers are there
  HttpResponse held_head_;  // while answer_ is held
  KeepAlive keep_alive_;
  std::function<void()> on_close_;
  std::function<void()> when_sent_;

  std::deque<std::string> outgoing_;
  std::size_t outgoing_bytes_ = 0;  // queued and in flight
  std::string in_flight_;
  std::size_t in_flight_at_ = 0;
  bool writing_ = false;
  Deadline write_deadline_;
  Deadline keep_alive_deadline_;
};

}  // namespace strata::server
