// The whole server on a socket over a FakeEngine with the demo model's tokenizer and template.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/json.h"
#include "base/log.h"
#include "server/api.h"
#include "tests/server/fake_engine.h"
#include "tests/server/raw_client.h"

namespace strata::server::testing {

namespace json = boost::json;
using namespace std::chrono_literals;
using ::testing::HasSubstr;

inline constexpr std::string_view kChat = "/v1/chat/completions";

inline std::string file_text(const std::string& name) {
  std::ifstream in(std::string(STRATA_GOLDEN_DIR) + "/demo-tokenizer/" + name);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

inline std::string text_of(const json::value& value) {
  return std::string(value.as_string());
}

// What a stream carried, joined.
struct Streamed {
  std::vector<json::value> chunks;
  std::string role, reasoning, content, finish;
  std::vector<json::object> calls;
  bool done = false;  // [DONE], at the end
};

inline Streamed joined(const std::string& body) {
  Streamed all;
  for (const std::string& data : sse_data(body)) {
    EXPECT_FALSE(all.done) << "data after [DONE]";
    if (data == "[DONE]") {
      all.done = true;
      continue;
    }
    all.chunks.push_back(json::parse(data));
    const json::object& chunk = all.chunks.back().as_object();
    if (!chunk.contains("choices") || chunk.at("choices").as_array().empty()) continue;
    const json::object& choice = chunk.at("choices").as_array()[0].as_object();
    const json::object& delta = choice.at("delta").as_object();
    if (const auto* v = delta.if_contains("role")) all.role += text_of(*v);
    if (const auto* v = delta.if_contains("content")) all.content += text_of(*v);
    if (const auto* v = delta.if_contains("reasoning_content")) all.reasoning += text_of(*v);
    if (const auto* v = delta.if_contains("tool_calls")) {
      for (const auto& piece : v->as_array()) {
        const auto index = static_cast<std::size_t>(piece.at("index").as_int64());
        if (index == all.calls.size()) {
          all.calls.push_back(piece.as_object());
        } else {
          auto& arguments = all.calls.at(index).at("function").at("arguments").as_string();
          arguments += piece.at("function").at("arguments").as_string();
        }
      }
    }
    if (!choice.at("finish_reason").is_null()) all.finish += text_of(choice.at("finish_reason"));
  }
  return all;
}

class ApiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::error);
    auto tokenizer = Tokenizer::from_tokenizer_json(file_text("tokenizer.json"));
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    const auto config = json::parse(file_text("tokenizer_config.json"));
    engine_ =
        std::make_unique<FakeEngine>(std::move(*tokenizer), text_of(config.at("chat_template")));
    HttpOptions options;
    options.port = 0;
    options.threads = 3;
    options.error_body = http_error_body;
    options.limits.keep_alive_time = 50ms;
    auto server = HttpServer::listen(options);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    ASSERT_TRUE(server_->start([this](HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
      api_->handle(std::move(request), writer);
    }));
    serve_again();
  }
  // Another Api over the same service.
  void rebuild(ApiOptions options) {
    api_->stop();
    api_ = std::make_shared<Api>(std::move(options));
    api_->set_service(service_);
  }
  void serve_again(ServiceOptions options = {}) {
    auto service = Service::create(*engine_, std::move(options));
    ASSERT_TRUE(service) << service.error().message;
    service_ = std::move(*service);
    api_->set_service(service_);
  }
  void TearDown() override {
    if (server_ == nullptr) return;
    server_->stop(0ms);
    api_->stop();
    api_->set_service(nullptr);
    service_.reset();
    engine_.reset();  // before the server, as serve does
  }

  RawClient client() { return RawClient(server_->port()); }
  RawResponse send(const std::string& start, const std::string& headers = "",
                   const std::string& text = "") {
    RawClient one = client();
    one.send(start + " HTTP/1.1\r\n" + headers +
             (text.empty() ? "" : "Content-Length: " + std::to_string(text.size()) + "\r\n") +
             "\r\n" + text);
    return one.read_response();
  }
  RawResponse chat(const std::string& members, const std::string& messages = kHello) {
    return client().post(kChat, body(members, messages));
  }
  static std::string body(const std::string& members, const std::string& messages = kHello) {
    return R"({"model":"any","messages":)" + messages + (members.empty() ? "" : ",") + members +
           "}";
  }
  json::object choice(const RawResponse& response) {
    EXPECT_EQ(response.status, 200u) << response.body;
    return response.json().at("choices").at(0).as_object();
  }
  std::string error_of(const RawResponse& response, std::string_view member = "message") {
    const json::value value = response.json();
    const auto& found = value.at("error").at(json::string_view(member.data(), member.size()));
    return found.is_null() ? "null" : text_of(found);
  }
  bool idle_within(std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (engine_->running() > 0 && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(1ms);
    }
    return engine_->running() == 0;
  }

  static inline const std::string kHello = R"([{"role":"user","content":"hi"}])";
  static inline const std::string kTools =
      R"("tools":[{"type":"function","function":{"name":"get_weather","parameters":
         {"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}}}}}])";
  static inline const std::string kCall =
      "I look.\n</think>\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n"
      "</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>";

  std::unique_ptr<FakeEngine> engine_;
  std::shared_ptr<Api> api_ = std::make_shared<Api>();
  std::shared_ptr<Service> service_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace strata::server::testing
