// Keys, hosts, origins and CORS, over real sockets.
#include "server/access.h"

#include "tests/server/api_fixture.h"

namespace strata::server::testing {
namespace {

class AccessTest : public ApiTest {
 protected:
  void rules(AccessRules rules) { rebuild({.access = std::move(rules), .version = "test"}); }
};

TEST_F(AccessTest, KeysAreAskedForEverywhereButHealth) {
  rules({.keys = {"alpha", "b\xC3\xA9ta"}});
  const auto status = [&](const std::string& header) {
    return send("GET /v1/models", header).status;
  };
  EXPECT_EQ(send("GET /health", "").status, 200u);
  EXPECT_EQ(status(""), 401u);
  EXPECT_EQ(status("Authorization: Bearer wrong\r\n"), 401u);
  EXPECT_EQ(status("Authorization: Bearer alph\r\n"), 401u);
  EXPECT_EQ(status("Authorization: Bearer alphaalpha\r\n"), 401u);
  EXPECT_EQ(status("Authorization: alpha\r\n"), 401u);
  EXPECT_EQ(status("Authorization: Bearer alpha\r\n"), 200u);
  EXPECT_EQ(status("authorization: bearer  alpha \r\n"), 200u);
  EXPECT_EQ(status("x-api-key: alpha\r\n"), 200u);
  EXPECT_EQ(status("x-api-key: b\xC3\xA9ta\r\n"), 200u);
  EXPECT_EQ(status("x-api-key: b\xE9ta\r\n"), 200u);  // Latin-1
  EXPECT_EQ(status("x-api-key: beta\r\n"), 401u);
  EXPECT_EQ(status("x-api-key: \r\n"), 401u);
  // With a key the name of the host does not matter.
  EXPECT_EQ(status("Host: evil.example\r\nx-api-key: alpha\r\n"), 200u);
  const RawResponse refused = send("GET /v1/models", "");
  EXPECT_EQ(refused.headers.at("WWW-Authenticate"), "Bearer");
  EXPECT_EQ(error_of(refused, "type"), "authentication_error");
  EXPECT_THAT(refused.body, ::testing::Not(HasSubstr("alpha")));
  const RawResponse messages = send("POST /v1/messages", "", "{}");
  EXPECT_EQ(messages.status, 401u);
  EXPECT_THAT(messages.body, HasSubstr("authentication_error"));
}

TEST_F(AccessTest, AWrongKeyIsToldInSpiteOfALargeBody) {
  rules({.keys = {"alpha"}});
  RawClient one = client();
  const std::string large(5 << 20, 'x');
  one.send("POST /v1/chat/completions HTTP/1.1\r\nx-api-key: no\r\nContent-Length: " +
           std::to_string(large.size()) + "\r\n\r\n" + large);
  EXPECT_EQ(one.read_response().status, 401u);
}

TEST_F(AccessTest, HostsByConfiguration) {
  rules({.bound_host = "box", .allowed_hosts = {".Example.com", "other"}});
  const auto status = [&](const std::string& host) {
    return send("GET /v1/models", "Host: " + host + "\r\n").status;
  };
  EXPECT_EQ(status("box:80"), 200u);
  EXPECT_EQ(status("a.example.COM"), 200u);
  EXPECT_EQ(status("example.com"), 200u);
  EXPECT_EQ(status("other"), 200u);
  EXPECT_EQ(status("badexample.com"), 403u);
  EXPECT_EQ(status("other.evil.example"), 403u);
  rules({.allowed_hosts = {"*"}});
  EXPECT_EQ(status("anything.example"), 200u);
  EXPECT_EQ(send("POST /v1/chat/completions",
                 "Origin: http://evil.example\r\nContent-Type: application/json\r\n", body(""))
                .status,
            403u);
}

TEST_F(AccessTest, CorsOnlyForConfiguredOriginsBelowV1) {
  rules({.trusted_origins = {"https://Trusted.example"}, .cors_origins = {"https://app.example"}});
  const std::string origin = "Origin: https://app.example\r\n";
  const RawResponse answer =
      send("POST /v1/chat/completions", origin + "Content-Type: application/json\r\n", body(""));
  EXPECT_EQ(answer.status, 200u);
  EXPECT_EQ(answer.headers.at("Access-Control-Allow-Origin"), "https://app.example");
  EXPECT_EQ(answer.headers.at("Vary"), "Origin");
  EXPECT_FALSE(answer.headers.contains("Access-Control-Allow-Credentials"));
  const RawResponse preflight = send("OPTIONS /v1/chat/completions",
                                     origin +
                                         "Access-Control-Request-Method: POST\r\n"
                                         "Access-Control-Request-Headers: authorization, x-y\r\n");
  EXPECT_EQ(preflight.status, 204u);
  EXPECT_EQ(preflight.headers.at("Access-Control-Allow-Headers"), "authorization, x-y");
  EXPECT_EQ(preflight.headers.at("Access-Control-Max-Age"), "600");
  EXPECT_FALSE(send("GET /props", origin).headers.contains("Access-Control-Allow-Origin"));
  const RawResponse other = send("GET /v1/models", "Origin: https://evil.example\r\n");
  EXPECT_FALSE(other.headers.contains("Access-Control-Allow-Origin"));
  const RawResponse trusted =
      send("POST /v1/chat/completions",
           "Origin: https://trusted.example\r\nContent-Type: application/json\r\n", body(""));
  EXPECT_EQ(trusted.status, 200u);
  EXPECT_FALSE(trusted.headers.contains("Access-Control-Allow-Origin"));
  // Streams and errors carry the headers too.
  EXPECT_TRUE(send("POST /v1/chat/completions", origin + "Content-Type: application/json\r\n",
                   body(R"("stream":true)"))
                  .headers.contains("Access-Control-Allow-Origin"));
  EXPECT_TRUE(send("POST /v1/chat/completions", origin + "Content-Type: application/json\r\n", "{")
                  .headers.contains("Access-Control-Allow-Origin"));
}

TEST_F(AccessTest, WhatChangesTheServerNeedsATrustedPageEvenWithAKey) {
  rules({.keys = {"k"}});
  const auto status = [&](const std::string& origin) {
    return send("POST /slots/0?action=erase",
                origin + "x-api-key: k\r\nContent-Type: application/json\r\n", "{}")
        .status;
  };
  EXPECT_EQ(status(""), 200u);
  EXPECT_EQ(status("Origin: http://localhost\r\n"), 200u);
  EXPECT_EQ(status("Origin: http://evil.example\r\n"), 403u);
}

// Who asks is told to the engine, which is fair to clients: by key, without keys by address.
TEST_F(AccessTest, TheEngineHearsWhoAsks) {
  const auto clients = [&](const std::vector<std::string>& keys) {
    engine_->forget();
    std::vector<std::uint64_t> heard;
    for (const std::string& key : keys) {
      for (const auto& [path, body] :
           {std::pair{"/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}]})"},
            std::pair{"/v1/completions", R"({"prompt":"x"})"},
            std::pair{"/v1/responses", R"({"input":"x"})"},
            std::pair{"/v1/messages",
                      R"({"max_tokens":9,"messages":[{"role":"user","content":"x"}]})"}}) {
        const std::size_t before = engine_->requests();
        EXPECT_EQ(send(fmt::format("POST {}", path),
                       "Content-Type: application/json\r\nx-api-key: " + key + "\r\n", body)
                      .status,
                  200u)
            << path;
        EXPECT_EQ(engine_->requests(), before + 1) << path;
        heard.push_back(engine_->request(before).client);
      }
    }
    return heard;
  };
  rules({});
  const auto open = clients({"one", "two"});
  EXPECT_NE(open[0], 0u);
  EXPECT_THAT(open, ::testing::Each(open[0]));
  rules({.keys = {"one", "two"}});
  const auto keyed = clients({"one", "two"});
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(keyed[i], keyed[0]);
    EXPECT_EQ(keyed[4 + i], keyed[4]);
  }
  EXPECT_NE(keyed[0], keyed[4]);
  EXPECT_NE(keyed[0], open[0]);
}

TEST(Keys, CompareWhole) {
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abcabc"));
  EXPECT_FALSE(equal_in_constant_time("abc", ""));
  EXPECT_FALSE(equal_in_constant_time("", "a"));
}

}  // namespace
}  // namespace strata::server::testing
