#include "server/http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "tests/server/raw_client.h"

namespace strata::server {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::RawClient;
using testing::RawResponse;

// Answers with what it understood.
void echo(const HttpRequest& request, ResponseWriter& writer) {
  HttpResponse response;
  response.content_type = "text/plain";
  response.body = request.method + " " + request.path + " " + request.query + " " + request.body;
  writer.send(std::move(response));
}

class Http : public ::testing::Test {
 protected:
  void serve(HttpHandler handler) {
    options_.port = 0;
    options_.error_body = [](unsigned, std::string_view message, std::string_view) {
      return std::string(message);
    };
    auto server = HttpServer::listen(options_);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    ASSERT_TRUE(server_->start(std::move(handler)));
  }
  void serve_echo() {
    serve([](HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
      echo(request, *writer);
    });
  }
  RawClient client() { return RawClient(server_->port()); }
  RawResponse answer_to(const std::string& bytes) {
    RawClient one = client();
    one.send(bytes);
    return one.read_response();
  }

  HttpOptions options_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(Http, AClientIsItsAddress) {
  serve([](HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
    HttpResponse response;
    response.body = "from " + request.client;
    writer->send(std::move(response));
  });
  EXPECT_EQ(answer_to("GET / HTTP/1.1\r\nHost: h\r\n\r\n").body, "from 127.0.0.1");
}

TEST_F(Http, AnswersAndKeepsTheConnection) {
  serve_echo();
  RawClient one = client();
  one.send("GET /a/b/?x=1&y HTTP/1.1\r\nHost: h\r\n\r\n");
  const RawResponse first = one.read_response();
  EXPECT_EQ(first.status, 200u);
  EXPECT_EQ(first.body, "GET /a/b x=1&y ");
  EXPECT_EQ(first.headers.at("Connection"), "keep-alive");
  EXPECT_EQ(one.post("/p", "body").body, "POST /p  body");
  EXPECT_EQ(server_->connections(), 1u);
}

TEST_F(Http, AnswersPipelinedRequestsInOrder) {
  serve_echo();
  RawClient one = client();
  std::string bytes;
  for (int i = 0; i < 200; ++i) bytes += fmt::format("GET /{} HTTP/1.1\r\n\r\n", i);
  one.send(bytes);
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(one.read_response().body, fmt::format("GET /{}  ", i));
  }
}

TEST_F(Http, ReadsBodiesSentInPiecesOfOneByte) {
  serve_echo();
  RawClient one = client();
  for (const char c : std::string("POST /x HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")) {
    one.send(std::string(1, c));
  }
  EXPECT_EQ(one.read_response().body, "POST /x  abc");
}

TEST_F(Http, ReadsChunkedBodies) {
  serve_echo();
  RawClient one = client();
  one.send("POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n");
  std::this_thread::sleep_for(20ms);
  one.send("0\r\n\r\nGET /next HTTP/1.1\r\n\r\n");
  EXPECT_EQ(one.read_response().body, "POST /x  abc0123456789");
  EXPECT_EQ(one.read_response().body, "GET /next  ");
}

TEST_F(Http, ClosesWhenAskedAndForHttp10) {
  serve_echo();
  RawClient one = client();
  one.send("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(one.read_response().headers.at("Connection"), "close");
  EXPECT_TRUE(one.at_end());
  RawClient two = client();
  two.send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_EQ(two.read_response().body, "GET /  ");
  EXPECT_TRUE(two.at_end());
}

TEST_F(Http, HeadHasTheLengthButNoBody) {
  serve_echo();
  RawClient one = client();
  one.send("HEAD /x HTTP/1.1\r\n\r\n");
  EXPECT_EQ(one.read_response(true).headers.at("Content-Length"), "9");
  EXPECT_EQ(one.get("/y").body, "GET /y  ");
}

TEST_F(Http, ContinuesWhenAskedTo) {
  serve_echo();
  RawClient one = client();
  one.send("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(one.read_response().status, 100u);
  one.send("ok");
  EXPECT_EQ(one.read_response().body, "POST /  ok");
  EXPECT_EQ(answer_to("POST / HTTP/1.1\r\nExpect: a-miracle\r\nContent-Length: 2\r\n\r\n").status,
            417u);
}

TEST_F(Http, RefusesWhatIsNoRequest) {
  serve_echo();
  for (const std::string bytes : {
           "nonsense\r\n\r\n",
           "GET\r\n\r\n",
           "GET / HTTP/9.9\r\n\r\n",
           "GET /a b HTTP/1.1\r\n\r\n",
           "GET / HTTP/1.1\r\nBad Header: x\r\n\r\n",
           "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
           "GET / HTTP/1.1\r\nContent-Length: 3x\r\n\r\n",
           "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
           "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
           "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nab\r\n0\r\n\r\n",
           "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n+2\r\nab\r\n0\r\n\r\n",
           "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nab\r\n0\r\n\r\n",
           "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;ext=1\r\nab\r\n0\r\n\r\n",
           "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n",
       }) {
    RawClient one = client();
    one.send(bytes);
    RawResponse response = one.read_response();
    EXPECT_EQ(response.status, 400u) << bytes;
    EXPECT_EQ(response.headers["Connection"], "close") << bytes;
    EXPECT_TRUE(one.at_end()) << bytes;
  }
  EXPECT_EQ(answer_to("POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n").status, 501u);
  EXPECT_EQ(client().get("/still").status, 200u);
}

TEST_F(Http, RefusesLargeBodiesBeforeReadingThem) {
  options_.limits.body_bytes = 1000;
  serve_echo();
  const RawResponse declared =
      answer_to("POST / HTTP/1.1\r\nContent-Length: 10995116277760\r\n\r\n");
  EXPECT_EQ(declared.status, 413u);
  EXPECT_EQ(declared.body, "the request's body exceeds the limit of 1000 bytes");

  RawClient endless = client();
  endless.send("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = fmt::format("100\r\n{}\r\n", std::string(256, 'x'));
  for (int i = 0; i < 1000; ++i) endless.send(chunk);  // the answer survives unread bytes
  EXPECT_EQ(endless.read_response().status, 413u);
  EXPECT_EQ(client().post("/", std::string(1000, 'y')).status, 200u);
}

TEST_F(Http, RefusesLargeHeaders) {
  options_.limits.header_bytes = 4096;
  serve_echo();
  EXPECT_EQ(answer_to("GET /" + std::string(10'000, 'a') + " HTTP/1.1\r\n\r\n").status, 431u);
  std::string many = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 1000; ++i) many += fmt::format("A{}: b\r\n", i);
  EXPECT_EQ(answer_to(many + "\r\n").status, 431u);
  EXPECT_EQ(answer_to("GET / HTTP/1.1\r\nA: " + std::string(3000, 'b') + "\r\n\r\n").status, 200u);
}

TEST_F(Http, EndsConnectionsThatDripOrIdle) {
  options_.limits.header_time = 150ms;
  options_.limits.body_time = 150ms;
  options_.limits.idle_time = 100ms;
  options_.limits.drain_time = 100ms;
  serve_echo();
  EXPECT_EQ(answer_to("GET / HTTP/1.1\r\nA: ").status, 408u);
  EXPECT_EQ(answer_to("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab").status, 408u);
  RawClient silent = client();
  EXPECT_TRUE(silent.at_end());
  RawClient used = client();
  EXPECT_EQ(used.get("/").status, 200u);
  EXPECT_TRUE(used.at_end());
}

TEST_F(Http, TellsTheCrowdToComeLater) {
  options_.limits.connections = 2;
  serve_echo();
  RawClient a = client();
  RawClient b = client();
  EXPECT_EQ(a.get("/").status, 200u);
  EXPECT_EQ(b.get("/").status, 200u);
  RawClient c = client();
  const RawResponse refused = c.read_response();
  EXPECT_EQ(refused.status, 503u);
  EXPECT_EQ(refused.body, "the server has 2 open connections, its limit; try again later");
  a.close();
  c.close();
  for (int i = 0; i < 100 && server_->connections() > 1; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(client().get("/").status, 200u);
}

TEST_F(Http, StreamsInChunksAndSendsKeepAlives) {
  options_.limits.keep_alive_time = 50ms;
  std::shared_ptr<ResponseWriter> held;
  serve([&](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
    HttpResponse head;
    head.content_type = "text/event-stream";
    head.body = "first;";
    writer->begin_stream(std::move(head), [] { return std::string(": keep-alive\n\n"); });
    held = writer;
  });
  RawClient one = client();
  one.send("GET / HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(one.wait_for(": keep-alive\n\n"));
  held->write("second;");
  held->write("");
  held->end_stream();
  held->write("late");
  const RawResponse response = one.read_response();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.headers.at("Transfer-Encoding"), "chunked");
  EXPECT_THAT(response.body, ::testing::StartsWith("first;: keep-alive\n\n"));
  EXPECT_THAT(response.body, ::testing::EndsWith("second;"));
  held.reset();
  one.send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(one.wait_for("first;"));  // the connection is still good
  server_->stop(0ms);
}

TEST_F(Http, NoticesAClientThatLeaves) {
  std::promise<void> left;
  std::shared_ptr<ResponseWriter> held;
  serve([&](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
    writer->on_close([&] { left.set_value(); });
    held = writer;
  });
  RawClient one = client();
  one.send("GET / HTTP/1.1\r\n\r\n");
  std::this_thread::sleep_for(20ms);
  one.close();
  EXPECT_EQ(left.get_future().wait_for(2s), std::future_status::ready);
  held->send({});  // without effect
  server_->stop(0ms);
}

TEST_F(Http, CutsAReaderThatIsTooSlow) {
  options_.limits.outgoing_bytes = 100'000;
  std::promise<void> cut;
  std::shared_ptr<ResponseWriter> held;
  std::promise<void> started;
  serve([&](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
    writer->on_close([&] { cut.set_value(); });
    writer->begin_stream({}, nullptr);
    held = writer;
    started.set_value();
  });
  RawClient one = client();
  one.receive_buffer(4096);
  one.send("GET / HTTP/1.1\r\n\r\n");
  started.get_future().wait();
  auto was_cut = cut.get_future();
  // More than the system's buffers hold; nothing is read.
  for (int i = 0; i < 4000 && was_cut.wait_for(0s) != std::future_status::ready; ++i) {
    held->write(std::string(10'000, 'x'));
    if (i % 50 == 0) std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(was_cut.wait_for(2s), std::future_status::ready);
  server_->stop(0ms);
}

TEST_F(Http, AnswersForHandlersThatDoNot) {
  serve([](HttpRequest request, std::shared_ptr<ResponseWriter>) {
    if (request.path == "/throw") throw std::runtime_error("handler");
  });
  RawClient one = client();
  EXPECT_EQ(one.get("/drop").status, 500u);
  EXPECT_EQ(one.get("/throw").body, "the request was given up by the server");
}

TEST_F(Http, LargeAnswersArriveWhole) {
  serve([](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
    HttpResponse response;
    response.body = std::string(20'000'000, 'z');
    writer->send(std::move(response));
  });
  const RawResponse response = client().get("/");
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.body.size(), 20'000'000u);
}

TEST_F(Http, StopsGracefully) {
  std::shared_ptr<ResponseWriter> held;
  std::promise<void> arrived;
  serve([&](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
    held = writer;
    arrived.set_value();
  });
  RawClient idle = client();
  RawClient busy = client();
  busy.send("GET / HTTP/1.1\r\n\r\n");
  arrived.get_future().wait();
  std::thread answer([&] {
    std::this_thread::sleep_for(100ms);
    HttpResponse response;
    response.body = "done";
    held->send(std::move(response));
    held.reset();
  });
  server_->stop(5s);
  answer.join();
  EXPECT_TRUE(idle.at_end());
  const RawResponse response = busy.read_response();
  EXPECT_EQ(response.body, "done");
  RawClient late = client();
  EXPECT_FALSE(late.connected() && late.get("/").complete);
}

TEST_F(Http, ABusyPortIsOneSentence) {
  serve_echo();
  HttpOptions second;
  second.port = server_->port();
  const auto refused = HttpServer::listen(second);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  EXPECT_EQ(
      refused.error().message,
      fmt::format("port {} on 127.0.0.1 is in use by another program; choose another with --port",
                  second.port));
  HttpOptions nowhere;
  nowhere.host = "my.example";
  EXPECT_THAT(HttpServer::listen(nowhere).error().message, HasSubstr("is no IP address"));
}

TEST_F(Http, ServesAHundredConnections) {
  serve_echo();
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 20; ++t) {
    threads.emplace_back([&] {
      std::vector<RawClient> clients;
      for (int i = 0; i < 5; ++i) clients.push_back(client());
      for (auto& one : clients) one.send("GET /x HTTP/1.1\r\n\r\n");
      for (auto& one : clients) good += one.read_response().body == "GET /x  ";
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, 100);
}

}  // namespace
}  // namespace strata::server
