#include "server/http_connection.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/field.hpp>
#include <exception>

#include "base/log.h"

namespace strata::server {

namespace asio = boost::asio;
namespace http = boost::beast::http;

namespace {

constexpr std::size_t kWriteBytes = 64 * 1024;                      // joined into one system call
constexpr std::size_t kDrainBytes = std::size_t{64} * 1024 * 1024;  // then a client is cut off

std::string text_of(boost::beast::string_view view) {
  return {view.data(), view.size()};
}

// "http://host/path?x" and "/path/?x" to "/path" and "x".
void split_target(std::string_view target, HttpRequest& request) {
  if (target.starts_with("http://") || target.starts_with("https://")) {
    const std::size_t slash = target.find('/', target.find("//") + 2);
    target = slash == target.npos ? "/" : target.substr(slash);
  }
  const std::size_t mark = target.find('?');
  if (mark != target.npos) request.query = target.substr(mark + 1);
  std::string_view path = target.substr(0, mark);
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  request.path = path;
}

}  // namespace

void Deadline::set(std::chrono::milliseconds time, std::function<void()> function) {
  state_->function = std::move(function);
  state_->due = Clock::now() + time;
  if (!state_->waiting || state_->due < state_->wakes) wait(state_);
}

void Deadline::end() {
  state_->function = nullptr;
  state_->timer.cancel();
}

void Deadline::wait(const std::shared_ptr<State>& state) {
  state->waiting = true;
  state->wakes = state->due;
  state->timer.expires_at(state->due);  // ends the wait before
  state->timer.async_wait([state, mine = ++state->waits](const boost::system::error_code& error) {
    if (state->waits != mine) return;
    state->waiting = false;
    if (error || !state->function) return;
    if (Clock::now() < state->due) return wait(state);
    std::exchange(state->function, nullptr)();
  });
}

void RefuseChunkExtensions::operator()(std::uint64_t, boost::beast::string_view extensions,
                                       boost::system::error_code& error) {
  if (!extensions.empty()) error = http::error::bad_chunk_extension;
}

// The handler's side of one exchange.
class Exchange final : public ResponseWriter {
 public:
  Exchange(std::shared_ptr<Connection> connection, std::uint64_t number)
      : connection_(std::move(connection)), number_(number) {}
  ~Exchange() override {
    // The connection's last owner must be on its strand.
    const auto executor = connection_->transport_->executor();
    asio::post(executor, [connection = std::move(connection_), number = number_] {
      connection->abandoned(number);
    });
  }
  void send(HttpResponse response) override {
    run([response = std::move(response)](Connection& connection, std::uint64_t number) mutable {
      connection.send(number, std::move(response));
    });
  }
  void begin_stream(HttpResponse head, KeepAlive keep_alive) override {
    run([head = std::move(head), keep_alive = std::move(keep_alive)](Connection& connection,
                                                                     std::uint64_t number) mutable {
      connection.begin_stream(number, std::move(head), std::move(keep_alive));
    });
  }
  void hold_stream(HttpResponse head, KeepAlive keep_alive) override {
    run([head = std::move(head), keep_alive = std::move(keep_alive)](Connection& connection,
                                                                     std::uint64_t number) mutable {
      connection.hold_stream(number, std::move(head), std::move(keep_alive));
    });
  }
  void write(std::string piece) override {
    run([piece = std::move(piece)](Connection& connection, std::uint64_t number) mutable {
      connection.write(number, std::move(piece));
    });
  }
  void end_stream() override {
    run([](Connection& connection, std::uint64_t number) { connection.end_stream(number); });
  }
  void when_sent(std::function<void()> function) override {
    run([function = std::move(function)](Connection& connection, std::uint64_t number) mutable {
      connection.set_when_sent(number, std::move(function));
    });
  }
  void on_close(std::function<void()> function) override {
    run([function = std::move(function)](Connection& connection, std::uint64_t number) mutable {
      connection.set_on_close(number, std::move(function));
    });
  }
  void post(std::function<void()> function) override {
    asio::post(connection_->transport_->executor(),
               [connection = connection_, function = std::move(function)] { function(); });
  }

 private:
  template <class Function>
  void run(Function function) {
    asio::dispatch(connection_->transport_->executor(),
                   [connection = connection_, number = number_,
                    function = std::move(function)]() mutable { function(*connection, number); });
  }
  std::shared_ptr<Connection> connection_;
  std::uint64_t number_;
};

Connection::Connection(std::unique_ptr<Transport> transport, std::string client,
                       std::shared_ptr<ConnectionContext> context)
    : transport_(std::move(transport)),
      client_(std::move(client)),
      context_(std::move(context)),
      input_(context_->limits.header_bytes + context_->limits.pipelined_bytes +
             read_buffer_.size()),
      read_deadline_(transport_->executor()),
      write_deadline_(transport_->executor()),
      keep_alive_deadline_(transport_->executor()) {
  ++context_->open;
}

Connection::~Connection() {
  --context_->open;
}

void Connection::start() {
  asio::dispatch(transport_->executor(), [self = shared_from_this()] {
    self->set(self->read_deadline_, self->context_->limits.header_time,
              [](Connection& own) { own.close(); });
    self->transport_->handshake([self](const boost::system::error_code& error, std::size_t) {
      if (self->phase_ == Phase::closed) return;
      if (error) return self->close();
      self->set(self->read_deadline_, self->context_->limits.idle_time,
                [](Connection& own) { own.close(); });
      self->read();
    });
  });
}

void Connection::refuse_crowded() {
  asio::dispatch(transport_->executor(), [self = shared_from_this()] {
    self->set(self->read_deadline_, self->context_->limits.header_time,
              [](Connection& own) { own.close(); });
    self->transport_->handshake([self](const boost::system::error_code& error, std::size_t) {
      if (self->phase_ == Phase::closed) return;
      if (error) return self->close();
      self->refuse(503,
                   fmt::format("the server has {} open connections, its limit; try again later",
                               self->context_->limits.connections));
    });
  });
}

void Connection::close_when_idle() {
  asio::post(transport_->executor(), [self = shared_from_this()] {
    self->keep_connection_ = false;
    if (self->phase_ != Phase::busy && self->phase_ != Phase::draining) self->close();
  });
}

void Connection::abort() {
  asio::post(transport_->executor(), [self = shared_from_this()] { self->close(); });
}

// Reading ------------------------------------------------------------------------------------

void Connection::read() {
  if (reading_ || phase_ == Phase::closed) return;
  if (phase_ == Phase::busy && input_.size() >= context_->limits.pipelined_bytes) return;
  reading_ = true;
  transport_->read(asio::buffer(read_buffer_),
                   [self = shared_from_this()](const boost::system::error_code& error,
                                               std::size_t bytes) { self->on_read(error, bytes); });
}

void Connection::on_read(const boost::system::error_code& error, std::size_t bytes) {
  reading_ = false;
  if (phase_ == Phase::closed) return;
  if (error) return close();
  if (phase_ == Phase::draining) {
    drained_ += bytes;
    if (drained_ > kDrainBytes) return close();
  } else {
    input_.commit(asio::buffer_copy(input_.prepare(bytes), asio::buffer(read_buffer_, bytes)));
    if (phase_ != Phase::busy) parse();
  }
  read();
}

void Connection::parse() {
  while (input_.size() > 0 &&
         (phase_ == Phase::idle || phase_ == Phase::header || phase_ == Phase::body)) {
    if (phase_ == Phase::idle) begin_request();
    boost::system::error_code error;
    const std::size_t used = parser_->put(input_.data(), error);
    input_.consume(used);
    const bool starved = error == http::error::need_more;
    if (error && !starved) return refuse_parse(error);
    if (phase_ == Phase::header && parser_->is_header_done() && !check_header()) return;
    if (parser_->is_done()) return dispatch();
    if (starved) return;
  }
}

void Connection::begin_request() {
  const HttpLimits& limits = context_->limits;
  phase_ = Phase::header;
  path_.clear();
  parser_.emplace();
  parser_->eager(true);
  parser_->header_limit(limits.header_bytes);
  parser_->body_limit(limits.body_bytes);
  parser_->on_chunk_header(refuse_chunk_extensions_);
  set(read_deadline_, limits.header_time,
      [](Connection& self) { self.refuse(408, "the request's headers did not arrive in time"); });
}

bool Connection::check_header() {
  phase_ = Phase::body;
  const auto& message = parser_->get();
  head_only_ = message.method() == http::verb::head;
  remember_path();
  set(read_deadline_, context_->limits.body_time,
      [](Connection& self) { self.refuse(408, "the request's body did not arrive in time"); });
  if (message.count(http::field::transfer_encoding) > 0 && !parser_->chunked()) {
    refuse(501, "this transfer encoding is not supported; send the body chunked or with a length");
    return false;
  }
  const auto expect = message.find(http::field::expect);
  if (expect != message.end() && !parser_->is_done()) {
    if (!boost::beast::iequals(expect->value(), "100-continue")) {
      refuse(417, "the only expectation this server meets is 100-continue");
      return false;
    }
    queue("HTTP/1.1 100 Continue\r\n\r\n");
    flush();
  }
  return true;
}

// For errors, which have the form of the path's dialect.
void Connection::remember_path() {
  HttpRequest target;
  split_target(text_of(parser_->get().target()), target);
  path_ = std::move(target.path);
}

void Connection::refuse_parse(const boost::system::error_code& error) {
  const HttpLimits& limits = context_->limits;
  remember_path();
  if (error == http::error::header_limit) {
    return refuse(431, fmt::format("the request's headers exceed the limit of {} bytes",
                                   limits.header_bytes));
  }
  if (error == http::error::body_limit) {
    return refuse(
        413, fmt::format("the request's body exceeds the limit of {} bytes", limits.body_bytes));
  }
  refuse(400, fmt::format("this is no valid HTTP request: {}", error.message()));
}

std::string Connection::error_body(unsigned status, std::string_view message) const {
  return context_->error_body ? context_->error_body(status, message, path_) : std::string();
}

// Answers a request that does not reach the handler, and closes.
void Connection::refuse(unsigned status, std::string_view message) {
  if (phase_ == Phase::busy || phase_ == Phase::draining || phase_ == Phase::closed) return;
  phase_ = Phase::busy;
  answer_ = Answer::none;
  keep_connection_ = false;
  read_deadline_.clear();
  HttpResponse response;
  response.status = status;
  response.body = error_body(status, message);
  send(++exchange_, std::move(response));
  read();
}

void Connection::dispatch() {
  phase_ = Phase::busy;
  answer_ = Answer::none;
  read_deadline_.clear();
  keep_connection_ = parser_->keep_alive() && !context_->stopping;
  chunked_ = parser_->get().version() >= 11;
  auto message = parser_->release();
  parser_.reset();

  HttpRequest request;
  request.method = text_of(message.method_string());
  split_target(text_of(message.target()), request);
  for (const auto& field : message) {
    request.headers.emplace_back(text_of(field.name_string()), text_of(field.value()));
  }
  request.body = std::move(message.body());
  request.client = client_;
  auto exchange = std::make_shared<Exchange>(shared_from_this(), ++exchange_);
  try {
    context_->handler(std::move(request), exchange);
  } catch (const std::exception& caught) {
    // The writer's destructor answers 500.
    log_error("the request's handler failed: {}", caught.what());
  }
}

// The exchange -------------------------------------------------------------------------------

bool Connection::current(std::uint64_t exchange) const {
  return exchange == exchange_ && phase_ == Phase::busy && answer_ != Answer::complete;
}

void Connection::send(std::uint64_t exchange, HttpResponse response) {
  if (!current(exchange) || answer_ == Answer::streaming) return;
  queue(head_text(response, response.body.size()));
  if (!head_only_) queue(std::move(response.body));
  answer_ = Answer::complete;
  flush();
}

void Connection::begin_stream(std::uint64_t exchange, HttpResponse head, KeepAlive keep_alive) {
  hold_stream(exchange, std::move(head), std::move(keep_alive));
  write(exchange, {});
}

void Connection::hold_stream(std::uint64_t exchange, HttpResponse head, KeepAlive keep_alive) {
  if (!current(exchange) || answer_ != Answer::none) return;
  answer_ = Answer::held;
  held_head_ = std::move(head);
  keep_alive_ = std::move(keep_alive);
  arm_keep_alive();
}

void Connection::release_head() {
  if (answer_ != Answer::held) return;
  answer_ = Answer::streaming;
  if (!chunked_) keep_connection_ = false;
  queue(head_text(held_head_, std::nullopt));
  queue_piece(std::move(held_head_.body));
}

bool Connection::streams(std::uint64_t exchange) const {
  return current(exchange) && (answer_ == Answer::streaming || answer_ == Answer::held);
}

void Connection::write(std::uint64_t exchange, std::string piece) {
  if (!streams(exchange)) return;
  // One piece may be larger than the limit: what waits is what counts against the reader.
  if (outgoing_bytes_ > 0 && outgoing_bytes_ + piece.size() > context_->limits.outgoing_bytes) {
    log_warning("a client read its stream too slowly; its request is cancelled");
    return close();
  }
  release_head();
  queue_piece(std::move(piece));
  arm_keep_alive();
  flush();
}

void Connection::end_stream(std::uint64_t exchange) {
  if (!streams(exchange)) return;
  release_head();
  if (chunked_ && !head_only_) queue("0\r\n\r\n");
  answer_ = Answer::complete;
  flush();
}

void Connection::set_on_close(std::uint64_t exchange, std::function<void()> function) {
  if (exchange != exchange_ || answer_ == Answer::complete) return;
  if (phase_ == Phase::closed) return function();
  on_close_ = std::move(function);
}

void Connection::set_when_sent(std::uint64_t exchange, std::function<void()> function) {
  if (!current(exchange)) return;
  when_sent_ = std::move(function);
  if (outgoing_bytes_ == 0) tell_sent();
}

void Connection::abandoned(std::uint64_t exchange) {
  if (!current(exchange)) return;
  if (answer_ == Answer::streaming) return close();
  HttpResponse response;
  response.status = 500;
  const std::string_view message = "the request was given up by the server";
  response.body = error_body(500, message);
  send(exchange, std::move(response));
}

// Writing ------------------------------------------------------------------------------------

std::string Connection::head_text(const HttpResponse& response,
                                  std::optional<std::size_t> length) const {
  std::string text =
      fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
  if (!response.content_type.empty() && (!length || *length > 0)) {
    text += fmt::format("Content-Type: {}\r\n", response.content_type);
  }
  for (const auto& [name, value] : response.headers) text += fmt::format("{}: {}\r\n", name, value);
  if (length && response.status != 204 && response.status != 304) {
    text += fmt::format("Content-Length: {}\r\n", *length);
  }
  if (!length && chunked_) text += "Transfer-Encoding: chunked\r\n";
  text += keep_connection_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return text;
}

void Connection::queue(std::string bytes) {
  if (bytes.empty()) return;
  outgoing_bytes_ += bytes.size();
  outgoing_.push_back(std::move(bytes));
}

void Connection::queue_piece(std::string piece) {
  if (piece.empty() || head_only_) return;  // an empty chunk would end the stream
  if (!chunked_) return queue(std::move(piece));
  queue(fmt::format("{:x}\r\n{}\r\n", piece.size(), piece));
}

void Connection::set(Deadline& deadline, std::chrono::milliseconds time,
                     void (*function)(Connection&)) {
  deadline.set(time, [weak = weak_from_this(), function] {
    if (const auto self = weak.lock()) function(*self);
  });
}

void Connection::arm_keep_alive() {
  if (!keep_alive_) return;
  set(keep_alive_deadline_, context_->limits.keep_alive_time, [](Connection& self) {
    if (self.answer_ == Answer::streaming || self.answer_ == Answer::held)
      self.write(self.exchange_, self.keep_alive_());
  });
}

// The next bytes to write; false: there are none.
bool Connection::next_bytes() {
  if (in_flight_at_ < in_flight_.size()) return true;
  if (outgoing_.empty()) return false;
  in_flight_ = std::move(outgoing_.front());
  in_flight_at_ = 0;
  outgoing_.pop_front();
  while (!outgoing_.empty() && in_flight_.size() + outgoing_.front().size() <= kWriteBytes) {
    in_flight_ += outgoing_.front();
    outgoing_.pop_front();
  }
  return true;
}

void Connection::flush() {
  if (writing_ || phase_ == Phase::closed) return;
  // Nearly always the system takes all of it at once, and no wait is needed.
  while (next_bytes()) {
    const std::size_t left = in_flight_.size() - in_flight_at_;
    const std::size_t now =
        transport_->write_now(asio::buffer(in_flight_.data() + in_flight_at_, left));
    sent(now);
    if (now < left) break;
  }
  if (in_flight_at_ == in_flight_.size()) {
    tell_sent();
    if (answer_ == Answer::complete && phase_ == Phase::busy) finish_exchange();
    return;
  }
  writing_ = true;
  set(write_deadline_, context_->limits.write_time, [](Connection& self) { self.close(); });
  transport_->write(
      asio::buffer(in_flight_.data() + in_flight_at_, in_flight_.size() - in_flight_at_),
      [self = shared_from_this()](const boost::system::error_code& error, std::size_t bytes) {
        self->on_written(error, bytes);
      });
}

void Connection::on_written(const boost::system::error_code& error, std::size_t bytes) {
  writing_ = false;
  write_deadline_.clear();
  if (phase_ == Phase::closed) return;
  if (error) return close();
  sent(bytes);
  flush();
}

void Connection::sent(std::size_t bytes) {
  in_flight_at_ += bytes;
  outgoing_bytes_ -= bytes;
}

void Connection::tell_sent() {
  if (!when_sent_) return;
  asio::post(transport_->executor(),
             [self = shared_from_this(), function = std::exchange(when_sent_, nullptr)] {
               if (self->phase_ != Phase::closed) function();
             });
}

// The last byte of the answer is with the operating system.
void Connection::finish_exchange() {
  keep_alive_deadline_.clear();
  keep_alive_ = nullptr;
  on_close_ = nullptr;
  when_sent_ = nullptr;
  head_only_ = false;
  if (!keep_connection_) return drain();
  phase_ = Phase::idle;
  set(read_deadline_, context_->limits.idle_time, [](Connection& self) { self.close(); });
  // Not here: a pipeline of short requests would nest as deep as it is long.
  asio::post(transport_->executor(), [self = shared_from_this()] {
    if (self->phase_ == Phase::idle) self->parse();
    self->read();
  });
}

// Closing with unread bytes resets the connection and may destroy the answer on its way, so the
// client gets time to send what it is sending.
void Connection::drain() {
  phase_ = Phase::draining;
  input_.clear();
  parser_.reset();
  set(read_deadline_, context_->limits.drain_time, [](Connection& self) { self.close(); });
  const bool readable =
      transport_->end([self = shared_from_this()](const boost::system::error_code&, std::size_t) {
        self->close();
      });
  if (readable) read();
}

void Connection::close() {
  if (phase_ == Phase::closed) return;
  const bool unanswered = phase_ == Phase::busy;
  phase_ = Phase::closed;
  transport_->close();
  read_deadline_.end();
  write_deadline_.end();
  keep_alive_deadline_.end();
  outgoing_.clear();
  // They may own this connection.
  keep_alive_ = nullptr;
  when_sent_ = nullptr;
  auto function = std::move(on_close_);
  on_close_ = nullptr;
  if (unanswered && function) function();
}

}  // namespace strata::server
