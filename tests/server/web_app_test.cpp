// The web app's files over a socket: who gets them, and what may be done with them.
#include "server/web_app.h"

#include "tests/server/api_fixture.h"

namespace strata::server::testing {
namespace {

constexpr WebFile kFiles[] = {
    {"/", "text/html; charset=utf-8", "aa11", "packed page"},
    {"/web/main-1A2B3C4D.js", "text/javascript; charset=utf-8", "bb22", "packed script"},
};

class WebAppTest : public ApiTest {
 protected:
  void SetUp() override {
    ApiTest::SetUp();
    rebuild({.access = {.keys = {"alpha"}}, .web_app = WebApp(kFiles)});
  }
};

TEST_F(WebAppTest, ThePageNeedsNoKeyAndIsAskedForAgain) {
  const RawResponse page = send("GET /?q=hello");
  EXPECT_EQ(page.status, 200u);
  EXPECT_EQ(page.body, "packed page");
  EXPECT_EQ(page.headers.at("Content-Type"), "text/html; charset=utf-8");
  EXPECT_EQ(page.headers.at("Content-Encoding"), "gzip");
  EXPECT_EQ(page.headers.at("Cache-Control"), "no-cache");
  EXPECT_EQ(page.headers.at("ETag"), "\"aa11\"");
  EXPECT_EQ(page.headers.at("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(send("GET /v1/models").status, 401u);
}

TEST_F(WebAppTest, NamesWithAHashAreKept) {
  const RawResponse script = send("GET /web/main-1A2B3C4D.js");
  EXPECT_EQ(script.body, "packed script");
  EXPECT_EQ(script.headers.at("Cache-Control"), "public, max-age=31536000, immutable");
  EXPECT_EQ(script.headers.at("Content-Type"), "text/javascript; charset=utf-8");
}

TEST_F(WebAppTest, WhatTheBrowserHasIsNotSentAgain) {
  for (const char* known : {"\"aa11\"", "\"zz\", W/\"aa11\"", "*"}) {
    const RawResponse same = send("GET /", fmt::format("If-None-Match: {}\r\n", known));
    EXPECT_EQ(same.status, 304u) << known;
    EXPECT_EQ(same.body, "");
    EXPECT_EQ(same.headers.at("ETag"), "\"aa11\"");
    EXPECT_EQ(same.headers.count("Content-Length"), 0u);
    EXPECT_EQ(same.headers.count("Content-Encoding"), 0u);
  }
  for (const char* other : {"\"aa1\"", "aa11", "\"bb22\"", ","}) {
    EXPECT_EQ(send("GET /", fmt::format("If-None-Match: {}\r\n", other)).status, 200u) << other;
  }
}

TEST_F(WebAppTest, ItsPolicyAllowsThisServerOnly) {
  const std::string policy = send("GET /").headers.at("Content-Security-Policy");
  for (const char* part : {"default-src 'none'", "script-src 'self'", "connect-src 'self'",
                           "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"}) {
    EXPECT_THAT(policy, HasSubstr(part));
  }
  EXPECT_THAT(policy, ::testing::Not(HasSubstr("unsafe")));
  EXPECT_THAT(policy, ::testing::Not(HasSubstr("http")));
}

TEST_F(WebAppTest, OtherNamesAndMethodsAreRefused) {
  EXPECT_EQ(send("GET /web/main-00000000.js", "x-api-key: alpha\r\n").status, 404u);
  EXPECT_EQ(send("GET /web/../web/main-1A2B3C4D.js", "x-api-key: alpha\r\n").status, 404u);
  const RawResponse post = send("POST /", "", "{}");
  EXPECT_EQ(post.status, 405u);
  EXPECT_EQ(post.headers.at("Allow"), "GET");
}

TEST_F(WebAppTest, ForeignHostsGetNothing) {
  rebuild({.access = {}, .web_app = WebApp(kFiles)});
  EXPECT_EQ(send("GET /", "Host: evil.example\r\n").status, 403u);
  EXPECT_EQ(send("GET /", "Host: localhost\r\n").status, 200u);
}

TEST_F(WebAppTest, ItIsThereBeforeTheModelAndGoneWhenSwitchedOff) {
  api_->set_service(nullptr);
  EXPECT_EQ(send("GET /").status, 200u);
  rebuild({});
  EXPECT_EQ(send("GET /").status, 404u);
}

}  // namespace
}  // namespace strata::server::testing
