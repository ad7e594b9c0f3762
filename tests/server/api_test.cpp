// The whole server over real sockets, with scripts in the engine's place.
#include <set>

#include "tests/server/api_fixture.h"

namespace strata::server::testing {
namespace {

TEST_F(ApiTest, HealthAndModels) {
  RawClient one = client();
  const json::value health = one.get("/health").json();
  EXPECT_EQ(text_of(health.at("status")), "ok");
  EXPECT_EQ(text_of(health.at("service")), "strata");
  EXPECT_EQ(text_of(health.at("model")), "fake-model");
  EXPECT_EQ(health.at("max_context").as_int64(), 2048);
  const json::value list = one.get("/v1/models/").json();
  ASSERT_EQ(list.at("data").as_array().size(), 1u);
  EXPECT_EQ(text_of(list.at("data").at(0).at("id")), "fake-model");
  EXPECT_EQ(list.at("data").at(0).at("meta").at("n_ctx").as_int64(), 2048);
  EXPECT_EQ(text_of(one.get("/v1/models/fake%2Dmodel").json().at("id")), "fake-model");
  const RawResponse missing = one.get("/v1/models/other");
  EXPECT_EQ(missing.status, 404u);
  EXPECT_EQ(error_of(missing, "code"), "model_not_found");
}

TEST_F(ApiTest, AnswersWhileTheModelIsLoading) {
  api_->set_service(nullptr);
  EXPECT_EQ(client().get("/health").status, 503u);
  const RawResponse refused = chat("");
  EXPECT_EQ(refused.status, 503u);
  EXPECT_EQ(refused.headers.at("Retry-After"), "1");
}

TEST_F(ApiTest, PlainAnswer) {
  engine_->script({{.text = "Because.\n</think>\n\nHello there", .cached = 4}});
  const RawResponse response = chat("");
  const json::object answer = choice(response);
  const json::value whole = response.json();
  EXPECT_THAT(text_of(whole.at("id")), ::testing::MatchesRegex("chatcmpl-[0-9a-f]{24}"));
  EXPECT_EQ(text_of(whole.at("object")), "chat.completion");
  EXPECT_EQ(text_of(whole.at("model")), "fake-model");
  EXPECT_EQ(text_of(answer.at("message").at("content")), "Hello there");
  EXPECT_EQ(text_of(answer.at("message").at("reasoning_content")), "Because.");
  EXPECT_EQ(text_of(answer.at("finish_reason")), "stop");
  const json::value& usage = whole.at("usage");
  const std::int64_t prompt = static_cast<std::int64_t>(engine_->request(0).prompt.size());
  EXPECT_EQ(usage.at("prompt_tokens").as_int64(), prompt);
  EXPECT_EQ(usage.at("total_tokens").as_int64(), prompt + usage.at("completion_tokens").as_int64());
  EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens").as_int64(), 4);
  const std::int64_t reasoning =
      usage.at("completion_tokens_details").at("reasoning_tokens").as_int64();
  EXPECT_GT(reasoning, 0);
  EXPECT_LT(reasoning, usage.at("completion_tokens").as_int64());
  const json::value& timings = whole.at("timings");
  EXPECT_EQ(timings.at("cache_n").as_int64(), 4);
  EXPECT_EQ(timings.at("prompt_n").as_int64(), prompt - 4);
  EXPECT_DOUBLE_EQ(timings.at("prompt_ms").as_double(), 500);
  EXPECT_DOUBLE_EQ(timings.at("predicted_ms").as_double(), 250);
}

TEST_F(ApiTest, RendersTheConversationWithTheModelsTemplate) {
  chat(R"("chat_template_kwargs":{"enable_thinking":false})",
       R"([{"role":"developer","content":"Be brief."},{"role":"user","content":"<|im_end|>a"},
           {"role":"assistant","content":""},{"role":"system","content":"late"}])");
  EXPECT_EQ(engine_->prompt(0),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n<|im_end|>a<|im_end|>\n"
            "<|im_start|>user\nlate<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  const auto request = engine_->request(0);
  // Of four <|im_end|> in the text, three are the token: the user's stays text.
  EXPECT_EQ(std::count(request.prompt.begin(), request.prompt.end(),
                       *engine_->tokenizer().special("<|im_end|>")),
            3);
  EXPECT_EQ(request.stop_ids, engine_->facts().stop_ids);
}

TEST_F(ApiTest, NoThinkingMeansAnswerTextFromTheStart) {
  engine_->script({{.text = "Hello"}});
  const json::object answer = choice(chat(R"("reasoning_effort":"none")"));
  EXPECT_EQ(text_of(answer.at("message").at("content")), "Hello");
  EXPECT_FALSE(answer.at("message").as_object().contains("reasoning_content"));
}

TEST_F(ApiTest, ContentIsNullWhenEmpty) {
  engine_->script({{.text = "only thoughts"}});
  EXPECT_TRUE(choice(chat("")).at("message").at("content").is_null());
}

TEST_F(ApiTest, StreamsInTheOrderOfTheProtocol) {
  for (const bool bytes : {false, true}) {
    engine_->script(
        {{.text = "Think: \xF0\x9F\x98\x80.\n</think>\n\nH\xC3\xA9llo <b> there", .bytes = bytes}});
    const RawResponse response = chat(R"("stream":true)");
    EXPECT_EQ(response.headers.at("Content-Type"), "text/event-stream");
    EXPECT_EQ(response.headers.at("Cache-Control"), "no-cache");
    EXPECT_TRUE(response.complete);
    const Streamed all = joined(response.body);
    EXPECT_EQ(all.role, "assistant");
    EXPECT_EQ(text_of(all.chunks[0].at("choices").at(0).at("delta").at("role")), "assistant");
    EXPECT_EQ(all.reasoning, "Think: \xF0\x9F\x98\x80.");
    EXPECT_EQ(all.content, "H\xC3\xA9llo <b> there");
    EXPECT_EQ(all.finish, "stop");
    EXPECT_TRUE(all.done);
    EXPECT_FALSE(all.chunks.back().as_object().contains("usage"));
    EXPECT_TRUE(all.chunks.back().as_object().contains("timings"));
    std::set<std::string> ids;
    for (const auto& chunk : all.chunks) ids.insert(text_of(chunk.at("id")));
    EXPECT_EQ(ids.size(), 1u);
    EXPECT_EQ(response.body.find("\xEF\xBF\xBD"), std::string::npos);
  }
}

TEST_F(ApiTest, SendsAUsageChunkWhenAsked) {
  engine_->script({{.text = "</think>\n\nHello"}});
  const Streamed all =
      joined(chat(R"("stream":true,"stream_options":{"include_usage":true})").body);
  const json::object& last = all.chunks.back().as_object();
  EXPECT_TRUE(last.at("choices").as_array().empty());
  EXPECT_GT(last.at("usage").at("completion_tokens").as_int64(), 0);
  for (std::size_t i = 0; i + 1 < all.chunks.size(); ++i) {
    EXPECT_TRUE(all.chunks[i].at("usage").is_null());
  }
}

TEST_F(ApiTest, ToolCallsWholeAndStreamed) {
  engine_->script({{.text = kCall}});
  const json::object answer = choice(chat(kTools));
  EXPECT_EQ(text_of(answer.at("finish_reason")), "tool_calls");
  const json::value call = answer.at("message").at("tool_calls").at(0);
  EXPECT_THAT(text_of(call.at("id")), ::testing::StartsWith("call_"));
  EXPECT_EQ(text_of(call.at("type")), "function");
  EXPECT_EQ(text_of(call.at("function").at("name")), "get_weather");
  const std::string arguments = text_of(call.at("function").at("arguments"));
  EXPECT_EQ(json::parse(arguments), json::value({{"city", "Oslo"}, {"days", 3}}));
  EXPECT_TRUE(answer.at("message").at("content").is_null());

  const Streamed all = joined(chat(kTools + R"(,"stream":true)").body);
  ASSERT_EQ(all.calls.size(), 1u);
  EXPECT_EQ(text_of(all.calls[0].at("function").at("name")), "get_weather");
  EXPECT_EQ(text_of(all.calls[0].at("function").at("arguments")), arguments);
  EXPECT_EQ(all.finish, "tool_calls");
  EXPECT_EQ(all.reasoning, "I look.");
}

TEST_F(ApiTest, TwoCallsHaveIndexesAndIdsOfTheirOwn) {
  const std::string second = kCall.substr(kCall.find("<tool_call>"));
  engine_->script({{.text = kCall + "\n" + second}});
  const Streamed all = joined(chat(kTools + R"(,"stream":true)").body);
  ASSERT_EQ(all.calls.size(), 2u);
  EXPECT_NE(text_of(all.calls[0].at("id")), text_of(all.calls[1].at("id")));
}

TEST_F(ApiTest, ACallCutByTheLimitIsNoCall) {
  engine_->script(
      {{.text = kCall.substr(0, kCall.find("Oslo") + 3), .reason = FinishReason::length}});
  const json::object answer = choice(chat(kTools));
  EXPECT_EQ(text_of(answer.at("finish_reason")), "length");
  EXPECT_FALSE(answer.at("message").as_object().contains("tool_calls"));
}

TEST_F(ApiTest, HidesToolsWhenToldTo) {
  chat(kTools + R"(,"tool_choice":"none")");
  EXPECT_EQ(engine_->prompt(0).find("get_weather"), std::string::npos);
  chat(kTools);
  EXPECT_THAT(engine_->prompt(1), HasSubstr("get_weather"));
}

TEST_F(ApiTest, WithoutOfferedToolsACallIsText) {
  engine_->script({{.text = kCall}});
  const std::string text = kCall.substr(kCall.find("<tool_call>"));
  for (const std::string& members : {std::string(R"("seed":1)"), std::string(R"("tools":[])"),
                                     kTools + R"(,"tool_choice":"none")"}) {
    const json::object answer = choice(chat(members));
    EXPECT_EQ(answer.at("message").at("content"), json::value(text)) << members;
    EXPECT_FALSE(answer.at("message").as_object().contains("tool_calls")) << members;
    EXPECT_EQ(text_of(answer.at("finish_reason")), "stop");
    const Streamed all = joined(chat(members + R"(,"stream":true)").body);
    EXPECT_EQ(all.content, text) << members;
    EXPECT_TRUE(all.calls.empty());
    EXPECT_EQ(all.finish, "stop");
  }
}

TEST_F(ApiTest, BlamesATemplateArgumentForWhatItBreaks) {
  const std::string source =
      "{% for i in range(messages | length) %}{{ messages[i].content }}{% endfor %}"
      "{% if messages[0].content == 'no' %}{{ raise_exception('not this') }}{% endif %}"
      "{{ namespace(a=1).a }}{{ style | default('') | upper }}{{ 1 + (extra | default(1)) }}";
  engine_->metadata_.set("tokenizer.chat_template", MetaValue::string(source));
  auto service = Service::create(*engine_);
  ASSERT_TRUE(service) << service.error().message;
  api_->set_service(std::move(*service));
  EXPECT_EQ(chat("").status, 200u);
  for (const char* arguments : {R"({"range":1})", R"({"namespace":"x"})", R"({"extra":[]})"}) {
    const RawResponse refused = chat(fmt::format(R"("chat_template_kwargs":{})", arguments));
    EXPECT_EQ(refused.status, 400u) << arguments;
    EXPECT_EQ(error_of(refused, "param"), "chat_template_kwargs") << arguments;
  }
  // What fails with and without them is the conversation's own fault.
  const RawResponse refused =
      chat(R"("chat_template_kwargs":{"style":"x"})", R"([{"role":"user","content":"no"}])");
  EXPECT_EQ(error_of(refused, "param"), "messages");
  EXPECT_EQ(error_of(refused), "not this");
}

TEST_F(ApiTest, StopStringsCutTheAnswerAcrossTokens) {
  // The stop also stands in the thinking, where it must be ignored.
  engine_->script(
      {{.text = "an END here\n</think>\n\nthe END is near", .endless = true, .bytes = true}});
  const json::object answer = choice(chat(R"("stop":["END"])"));
  EXPECT_EQ(text_of(answer.at("message").at("content")), "the ");
  EXPECT_EQ(text_of(answer.at("message").at("reasoning_content")), "an END here");
  EXPECT_EQ(text_of(answer.at("finish_reason")), "stop");
  const Streamed all = joined(chat(R"("stream":true,"stop":"END")").body);
  EXPECT_EQ(all.content, "the ");
  EXPECT_EQ(all.finish, "stop");
  EXPECT_TRUE(idle_within(1s));
}

TEST_F(ApiTest, WhatWasHeldBackForAStopComesOut) {
  engine_->script({{.text = "</think>\n\nthe EN"}});
  EXPECT_EQ(joined(chat(R"("stream":true,"stop":"END")").body).content, "the EN");
}

TEST_F(ApiTest, PassesSamplingAndLimitOn) {
  engine_->facts_.default_sampling.temperature = 0.7f;
  serve_again();
  engine_->script({{.text = "one two three four five six seven"}});
  const RawResponse response = chat(R"("max_tokens":3,"seed":5,"top_k":7)");
  EXPECT_EQ(text_of(choice(response).at("finish_reason")), "length");
  EXPECT_EQ(response.json().at("usage").at("completion_tokens").as_int64(), 3);
  const auto request = engine_->request(0);
  EXPECT_EQ(request.max_tokens, 3u);
  EXPECT_EQ(request.sampling.seed, 5u);
  EXPECT_EQ(request.sampling.top_k, 7);
  EXPECT_FLOAT_EQ(request.sampling.temperature, 0.7f);
}

TEST_F(ApiTest, TooLongForTheContext) {
  std::string words;
  for (int i = 0; i < 3000; ++i) words += "word ";
  const RawResponse refused = chat("", R"([{"role":"user","content":")" + words + "\"}]");
  EXPECT_EQ(refused.status, 400u);
  EXPECT_EQ(error_of(refused, "code"), "context_length_exceeded");
  EXPECT_EQ(error_of(refused, "type"), "invalid_request_error");
  EXPECT_THAT(
      error_of(refused),
      ::testing::ContainsRegex("it is [0-9]+ tokens long, and the maximum context length is 2048"));
  const RawResponse wish = chat(R"("max_tokens":5000)");
  EXPECT_EQ(error_of(wish, "code"), "context_length_exceeded");
  EXPECT_THAT(error_of(wish), ::testing::ContainsRegex("ask for at most [0-9]+"));
}

TEST_F(ApiTest, AFullQueueIs503) {
  engine_->queue_full = true;
  const RawResponse refused = chat("");
  EXPECT_EQ(refused.status, 503u);
  EXPECT_EQ(error_of(refused, "type"), "server_error");
}

TEST_F(ApiTest, EngineErrorsAreAnswers) {
  const Error broken{ErrorCode::io, "row 7 of the table could not be read"};
  engine_->script({{.text = "abc", .reason = FinishReason::error, .error = broken}});
  const RawResponse plain = chat("");
  EXPECT_EQ(plain.status, 500u);
  EXPECT_EQ(error_of(plain), broken.message);
  const Streamed all = joined(chat(R"("stream":true)").body);
  EXPECT_TRUE(all.done);
  EXPECT_EQ(text_of(all.chunks.back().at("error").at("message")), broken.message);
  EXPECT_EQ(text_of(all.chunks.back().at("error").at("type")), "server_error");
}

TEST_F(ApiTest, TemplateRefusalsAre400WithItsMessage) {
  const RawResponse refused = chat(R"("chat_template_kwargs":{"custom":1})", "[]");
  EXPECT_EQ(refused.status, 400u);
  EXPECT_EQ(error_of(refused), "'messages' must hold at least one message");
}

TEST_F(ApiTest, MalformedBodiesAre400AndTheConnectionLives) {
  std::string deep = R"({"messages":)";
  for (int i = 0; i < 100'000; ++i) deep += '[';
  const std::string bodies[] = {
      "",
      " ",
      "null",
      "[]",
      "5",
      "\"text\"",
      "{",
      "}",
      "{]",
      "{\"messages\"}",
      "{\"messages\":}",
      "{\"messages\":[}",
      "{\"messages\":[]",
      "{\"messages\":[],}",
      "{'messages':[]}",
      "{\"messages\":[]} trailing",
      "{\"messages\":[{\"role\":\"user\",\"content\":\"\x01\"}]}",
      "{\"messages\":[{\"role\":\"user\",\"content\":\"\xC3\"}]}",
      "{\"messages\":[{\"role\":\"user\",\"content\":\"\xFF\xFE\"}]}",
      "{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}",
      "{\"messages\":[{\"role\":\"user\",\"content\":\"\\x\"}]}",
      "{\"messages\":[{\"role\":\"user\",\"content\":\"open]}",
      "{\"temperature\":NaN,\"messages\":[]}",
      "{\"temperature\":1e,\"messages\":[]}",
      "{\"temperature\":--1,\"messages\":[]}",
      "{\"temperature\":01,\"messages\":[]}",
      "\xEF\xBB\xBF{}",
      std::string("{\"messages\":[]\0}", 16),
      "<html>",
      deep,
  };
  RawClient one = client();
  for (const std::string& text : bodies) {
    const RawResponse refused = one.post(kChat, text);
    ASSERT_EQ(refused.status, 400u) << text.substr(0, 80);
    EXPECT_EQ(error_of(refused, "type"), "invalid_request_error") << text.substr(0, 80);
  }
  EXPECT_EQ(one.get("/health").status, 200u);
}

TEST_F(ApiTest, NulAndEscapesInTextAreText) {
  engine_->script({{.text = "</think>\n\nok"}});
  EXPECT_EQ(chat("", R"([{"role":"user","content":"a\u0000b\ud83d\ude00"}])").status, 200u);
}

TEST_F(ApiTest, PathsAndMethods) {
  RawClient one = client();
  const RawResponse unknown = one.get("/v1/nothing?x=1");
  EXPECT_EQ(unknown.status, 404u);
  EXPECT_EQ(unknown.headers.at("Content-Type"), "application/json");
  EXPECT_EQ(error_of(unknown, "code"), "not_found");
  const RawResponse method = one.get(kChat);
  EXPECT_EQ(method.status, 405u);
  EXPECT_EQ(method.headers.at("Allow"), "POST");
  EXPECT_EQ(one.post("/health", "{}").status, 405u);
  EXPECT_EQ(one.post("/v1/chat/completions/?beta=true", body("")).status, 200u);
  one.send("OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(one.read_response().status, 204u);
  EXPECT_EQ(one.post(kChat, body(""), "Content-Encoding: gzip\r\n").status, 415u);
}

TEST_F(ApiTest, PagesOfOthersMayNotUseIt) {
  const auto status = [this](const std::string& headers, const std::string& type) {
    RawClient one = client();
    one.send("POST /v1/chat/completions HTTP/1.1\r\n" + headers + "Content-Type: " + type +
             "\r\nContent-Length: " + std::to_string(body("").size()) + "\r\n\r\n" + body(""));
    return one.read_response().status;
  };
  const std::string kJson = "application/json";
  EXPECT_EQ(status("", kJson), 200u);
  EXPECT_EQ(status("Host: LOCALHOST:8080\r\n", kJson), 200u);
  EXPECT_EQ(status("Host: [::1]:8080\r\n", kJson), 200u);
  EXPECT_EQ(status("Host: 192.168.1.5\r\n", kJson), 200u);
  EXPECT_EQ(status("Host: evil.example\r\n", kJson), 403u);
  EXPECT_EQ(status("Host: localhost.evil.example\r\n", kJson), 403u);
  EXPECT_EQ(status("Host: \xFF\r\n", kJson), 403u);
  EXPECT_EQ(status("Origin: http://evil.example\r\n", kJson), 403u);
  EXPECT_EQ(status("Origin: null\r\n", kJson), 403u);
  EXPECT_EQ(status("Origin: http://localhost:3000\r\n", kJson), 200u);
  EXPECT_EQ(status("Origin: vscode-webview://abc\r\n", kJson), 200u);
  EXPECT_EQ(status("Origin: http://localhost:3000\r\n", "text/plain"), 415u);
  EXPECT_EQ(status("", "text/plain"), 200u);
}

TEST_F(ApiTest, AClientThatLeavesCancelsItsRequest) {
  const Script scripts[] = {{.wait = 60s},                                     // queued
                            {.text = "word ", .pace = 2ms, .endless = true}};  // decoding
  for (const Script& script : scripts) {
    for (const char* members : {"", R"("stream":true)"}) {
      engine_->script({script});
      RawClient one = client();
      one.send("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: " +
               std::to_string(body(members).size()) + "\r\n\r\n" + body(members));
      while (engine_->running() == 0) std::this_thread::sleep_for(1ms);
      if (*members != '\0') {
        ASSERT_TRUE(one.wait_for("assistant"));
      } else {
        std::this_thread::sleep_for(30ms);
      }
      one.close();
      EXPECT_TRUE(idle_within(1s)) << members;
    }
  }
  EXPECT_EQ(engine_->cancels(), 4u);
  engine_->script({{.text = "</think>\n\nfine"}});
  EXPECT_EQ(text_of(choice(chat("")).at("message").at("content")), "fine");
}

TEST_F(ApiTest, AFinishedAnswerIsNotCancelled) {
  engine_->script({{.text = "</think>\n\nfine"}});
  RawClient one = client();
  EXPECT_EQ(one.post(kChat, body("")).status, 200u);
  one.close();
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(engine_->cancels(), 0u);
}

TEST_F(ApiTest, SendsCommentsWhileItWaits) {
  engine_->script({{.text = "</think>\n\nfine", .wait = 300ms}});
  const std::string text = chat(R"("stream":true)").body;
  EXPECT_THAT(text, HasSubstr(": keep-alive\n\n"));
  EXPECT_LT(text.find("\"role\""), text.find(": keep-alive"));
  EXPECT_EQ(joined(text).content, "fine");
}

TEST_F(ApiTest, FiftyConnectionsEachGetTheirOwnAnswer) {
  engine_->script({{.text = "</think>\n\nHello there, all of you", .pace = 1ms}});
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int t = 0; t < 50; ++t) {
    threads.emplace_back([&, t] {
      RawClient one = client();
      for (int i = 0; i < 3; ++i) {
        const bool stream = (t + i) % 2 == 0;
        const RawResponse response = one.post(kChat, body(stream ? R"("stream":true)" : ""));
        const std::string content =
            stream ? joined(response.body).content
                   : text_of(response.json().at("choices").at(0).at("message").at("content"));
        good += content == "Hello there, all of you";
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, 150);
}

TEST_F(ApiTest, StopsWhileAnswersRun) {
  engine_->script({{.text = "word ", .pace = 1ms, .endless = true}});
  std::vector<RawClient> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(client());
    const std::string text = body(R"("stream":true)");
    clients.back().send("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: " +
                        std::to_string(text.size()) + "\r\n\r\n" + text);
    ASSERT_TRUE(clients.back().wait_for("word"));
  }
  server_->stop(50ms);
  EXPECT_TRUE(idle_within(1s));
}

class StopTest : public ApiTest {
 protected:
  RawClient start(const std::string& members, std::size_t running) {
    const std::string text = body(members);
    RawClient one = client();
    one.send("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: " +
             std::to_string(text.size()) + "\r\n\r\n" + text);
    while (engine_->running() < running) std::this_thread::sleep_for(1ms);
    return one;
  }
  void expect_stopping(const RawResponse& whole) {
    EXPECT_EQ(whole.status, 503u);
    EXPECT_EQ(whole.headers.at("Retry-After"), "1");
    EXPECT_EQ(error_of(whole), std::string(kStopping));
  }
  void expect_cut(const RawResponse& stream) {
    EXPECT_TRUE(stream.complete);
    const auto data = sse_data(stream.body);
    ASSERT_GE(data.size(), 3u) << stream.body;
    EXPECT_EQ(data.back(), "[DONE]");
    const json::value error = json::parse(data[data.size() - 2]).at("error");
    EXPECT_EQ(text_of(error.at("message")), std::string(kStopping));
    EXPECT_EQ(text_of(error.at("type")), "server_error");
  }
  static constexpr std::string_view kStopping =
      "the server is stopping; send the request again when it is back";
};

TEST_F(StopTest, RefusesWhatWaitsAtOnceAndCutsTheRestWithAnError) {
  const Script running = {.text = "word ", .pace = 1ms, .endless = true};
  const Script waiting = {.text = "</think>never", .wait = 10s};
  const Script short_one = {.text = "</think>\n\none two three four", .pace = 40ms};
  engine_->script({running, running, waiting, waiting, short_one});
  RawClient stream = start(R"("stream":true)", 1);
  ASSERT_TRUE(stream.wait_for("word"));
  RawClient whole = start("", 2);
  RawClient waiting_stream = start(R"("stream":true)", 3);
  RawClient waiting_whole = start("", 4);
  RawClient ends = start(R"("stream":true)", 5);
  ASSERT_TRUE(ends.wait_for("one"));

  ::testing::internal::CaptureStderr();
  set_log_level(LogLevel::info);
  service_->close();
  expect_cut(waiting_stream.read_response());
  expect_stopping(waiting_whole.read_response());
  expect_stopping(chat(""));
  EXPECT_EQ(engine_->cancels(), 2u);  // the others go on
  // Inside the grace time.
  const Streamed finished = joined(ends.read_response().body);
  EXPECT_EQ(finished.content, "one two three four");
  EXPECT_EQ(finished.finish, "stop");
  server_->drain(50ms);
  EXPECT_EQ(engine_->cancels(), 2u);
  service_->cut();
  expect_cut(stream.read_response());
  expect_stopping(whole.read_response());
  server_->stop(500ms);
  set_log_level(LogLevel::error);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(log.find("the client left"), std::string::npos) << log;
  EXPECT_THAT(log, HasSubstr("cut because the server stops"));
  EXPECT_TRUE(idle_within(1s));
}

}  // namespace
}  // namespace strata::server::testing
