// Anthropic's messages over real sockets.
#include "server/anthropic.h"

#include "tests/server/api_fixture.h"

namespace strata::server::testing {
namespace {

constexpr std::string_view kMessages = "/v1/messages";

// "event: NAME" and its data, in order.
std::vector<std::pair<std::string, json::value>> events_of(const std::string& body) {
  std::vector<std::pair<std::string, json::value>> events;
  std::size_t at = 0;
  while (at < body.size()) {
    std::size_t end = body.find("\n\n", at);
    if (end == std::string::npos) end = body.size();
    const std::string block = body.substr(at, end - at);
    const std::size_t line = block.find("\ndata: ");
    EXPECT_TRUE(block.starts_with("event: ")) << block;
    if (line != std::string::npos)
      events.emplace_back(block.substr(7, line - 7), json::parse(block.substr(line + 7)));
    at = end + 2;
  }
  return events;
}

class AnthropicTest : public ApiTest {
 protected:
  static std::string request(const std::string& members, const std::string& messages = kHello) {
    return R"({"model":"claude","max_tokens":400,"messages":)" + messages +
           (members.empty() ? "" : ",") + members + "}";
  }
  RawResponse ask(const std::string& members, const std::string& messages = kHello) {
    return client().post("/v1/messages?beta=true", request(members, messages));
  }
  static inline const std::string kTool =
      R"("tools":[{"name":"get_weather","description":"d","input_schema":{"type":"object",
         "properties":{"city":{"type":"string"},"days":{"type":"integer"}}}}])";
};

TEST_F(AnthropicTest, WholeAnswer) {
  engine_->script({{.text = "Because.\n</think>\n\nHello", .cached = 3}});
  const RawResponse response = ask("");
  ASSERT_EQ(response.status, 200u) << response.body;
  const json::value whole = response.json();
  EXPECT_EQ(text_of(whole.at("type")), "message");
  EXPECT_EQ(text_of(whole.at("role")), "assistant");
  EXPECT_THAT(text_of(whole.at("id")), ::testing::StartsWith("msg_"));
  ASSERT_EQ(whole.at("content").as_array().size(), 2u);
  EXPECT_EQ(text_of(whole.at("content").at(0).at("type")), "thinking");
  EXPECT_EQ(text_of(whole.at("content").at(0).at("thinking")), "Because.");
  EXPECT_TRUE(whole.at("content").at(0).at("signature").is_string());
  EXPECT_EQ(text_of(whole.at("content").at(1).at("text")), "Hello");
  EXPECT_EQ(text_of(whole.at("stop_reason")), "end_turn");
  EXPECT_TRUE(whole.at("stop_sequence").is_null());
  const json::value& usage = whole.at("usage");
  EXPECT_EQ(usage.at("cache_read_input_tokens").as_int64(), 3);
  EXPECT_EQ(usage.at("input_tokens").as_int64() + 3,
            static_cast<std::int64_t>(engine_->request(0).prompt.size()));
  EXPECT_EQ(engine_->request(0).max_tokens, 400u);
}

TEST_F(AnthropicTest, AFullyCachedPromptStillHasInput) {
  engine_->script({{.text = "</think>x", .cached = 100000}});
  const json::value usage = ask("").json().at("usage");
  EXPECT_EQ(usage.at("input_tokens").as_int64(), 1);
}

TEST_F(AnthropicTest, StreamInTheOrderOfTheProtocol) {
  for (const bool bytes : {false, true}) {
    engine_->script({{.text = kCall, .bytes = bytes}});
    const RawResponse response = ask(kTool + R"(,"stream":true)");
    EXPECT_EQ(response.headers.at("Content-Type"), "text/event-stream");
    std::vector<std::string> order;
    std::string thinking, arguments;
    std::int64_t open = -1, next = 0;
    json::value last_delta, start;
    for (const auto& [name, data] : events_of(response.body)) {
      EXPECT_EQ(text_of(data.at("type")), name);
      if (order.empty() || order.back() != name) order.push_back(name);
      if (name == "message_start") start = data.at("message");
      if (name == "content_block_start") {
        EXPECT_EQ(open, -1) << "a block begins inside another";
        open = data.at("index").as_int64();
        EXPECT_EQ(open, next++);
        const json::value& block = data.at("content_block");
        if (text_of(block.at("type")) == "tool_use") {
          EXPECT_EQ(text_of(block.at("name")), "get_weather");
          EXPECT_TRUE(block.at("input").as_object().empty());
        }
      }
      if (name == "content_block_delta") {
        EXPECT_EQ(data.at("index").as_int64(), open);
        const json::object& delta = data.at("delta").as_object();
        if (const auto* piece = delta.if_contains("thinking")) thinking += text_of(*piece);
        if (const auto* piece = delta.if_contains("partial_json")) arguments += text_of(*piece);
        for (const auto& [key, value] : delta) EXPECT_FALSE(text_of(value).empty()) << key;
      }
      if (name == "content_block_stop") {
        EXPECT_EQ(data.at("index").as_int64(), open);
        open = -1;
      }
      if (name == "message_delta") last_delta = data;
    }
    EXPECT_EQ(order.front(), "message_start");
    EXPECT_EQ(order[1], "ping");
    EXPECT_EQ(order.back(), "message_stop");
    EXPECT_EQ(thinking, "I look.");
    EXPECT_EQ(arguments, R"({"city":"Oslo","days":3})") << response.body;
    EXPECT_EQ(text_of(last_delta.at("delta").at("stop_reason")), "tool_use");
    EXPECT_GT(last_delta.at("usage").at("output_tokens").as_int64(), 5);
    EXPECT_EQ(start.at("usage").at("output_tokens").as_int64(), 0);
    EXPECT_EQ(start.at("usage").at("input_tokens"), last_delta.at("usage").at("input_tokens"));
  }
}

TEST_F(AnthropicTest, WholeToolUseHasItsInput) {
  engine_->script({{.text = kCall}});
  const json::value whole = ask(kTool).json();
  const json::value& call = whole.at("content").as_array().back();
  EXPECT_EQ(text_of(call.at("type")), "tool_use");
  EXPECT_EQ(call.at("input"), json::value({{"city", "Oslo"}, {"days", 3}}));
  EXPECT_EQ(text_of(whole.at("stop_reason")), "tool_use");
}

TEST_F(AnthropicTest, ACutCallIsNotDelivered) {
  engine_->script(
      {{.text = kCall.substr(0, kCall.find("Oslo") + 3), .reason = FinishReason::length}});
  const json::value whole = ask(kTool).json();
  EXPECT_EQ(text_of(whole.at("stop_reason")), "max_tokens");
  EXPECT_EQ(whole.at("content").as_array().size(), 1u);  // the thinking
}

TEST_F(AnthropicTest, ReportsTheStopSequence) {
  engine_->script({{.text = "</think>\n\nthe END is near", .bytes = true}});
  const json::value whole = ask(R"("stop_sequences":["zzz","END"])").json();
  EXPECT_EQ(text_of(whole.at("content").at(0).at("text")), "the ");
  EXPECT_EQ(text_of(whole.at("stop_reason")), "stop_sequence");
  EXPECT_EQ(text_of(whole.at("stop_sequence")), "END");
}

TEST_F(AnthropicTest, HistoryWithThinkingCallsResultsAndLateSystem) {
  const RawResponse response = ask(
      R"("system":[{"type":"text","text":"Be kind.","cache_control":{"type":"ephemeral"}},
                   {"type":"text","text":"Be brief."}])",
      R"([{"role":"user","content":[{"type":"text","text":"look"},{"type":"text","text":"now"}]},
          {"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":""},
             {"type":"text","text":"Yes."},
             {"type":"tool_use","id":"t1","name":"f","input":{"a":1}}]},
          {"role":"user","content":[
             {"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"13"},
                {"type":"image","source":{}}]},
             {"type":"text","text":"and then?"}]},
          {"role":"system","content":"late"},
          {"role":"user","content":"go"}])");
  ASSERT_EQ(response.status, 200u) << response.body;
  const std::string prompt = engine_->prompt(0);
  EXPECT_THAT(prompt, ::testing::StartsWith("<|im_start|>system\n"));
  EXPECT_THAT(prompt, HasSubstr("Be kind.\nBe brief."));
  EXPECT_THAT(prompt, HasSubstr("look\nnow"));
  EXPECT_THAT(prompt, HasSubstr("<function=f>"));
  EXPECT_THAT(prompt, HasSubstr("13\n[A picture was here."));
  const std::size_t result = prompt.find("13\n["), text = prompt.find("and then?"),
                    late = prompt.find("<|im_start|>user\nlate"),
                    go = prompt.find("\ngo<|im_end|>");
  EXPECT_LT(result, text);
  EXPECT_LT(text, late);
  EXPECT_LT(late, go);
}

TEST_F(AnthropicTest, TheBillingLineDoesNotChangeThePrompt) {
  const auto ask_with = [&](const std::string& system) {
    ask(R"("system":[{"type":"text","text":")" + system + R"("},{"type":"text","text":"Rules."}])");
    const std::string prompt = engine_->prompt(engine_->requests() - 1);
    return prompt;
  };
  const std::string line =
      "x-anthropic-billing-header: cc_version=2.1.37.{}; cc_entrypoint=cli; "
      "cch={};";
  const std::string one = ask_with(fmt::format(fmt::runtime(line), "f4c", "9a1c7"));
  EXPECT_EQ(one, ask_with(fmt::format(fmt::runtime(line), "0b2", "00fff")));
  EXPECT_THAT(one, HasSubstr("cc_version=2.1.37.000; cc_entrypoint=cli; cch=00000;"));
  EXPECT_NE(one, ask_with(fmt::format(fmt::runtime(line), "f4c", "longer than sixteen letters")));
  // Anywhere else it is text like any other.
  EXPECT_THAT(ask_with("See x-anthropic-billing-header: cch=12345;"), HasSubstr("cch=12345;"));
}

TEST_F(AnthropicTest, ThinkingLevels) {
  const auto prompt = [&](const std::string& members) {
    EXPECT_EQ(ask(members).status, 200u) << members;
    return engine_->prompt(engine_->requests() - 1);
  };
  EXPECT_THAT(prompt(R"("thinking":{"type":"disabled"})"),
              ::testing::EndsWith("<think>\n\n</think>\n\n"));
  EXPECT_THAT(prompt(R"("thinking":{"type":"enabled","budget_tokens":1024})"),
              ::testing::EndsWith("<think>\n"));
  EXPECT_THAT(prompt(R"("thinking":{"type":"adaptive"},"output_config":{"effort":"low"})"),
              ::testing::EndsWith("<think>\n"));
  EXPECT_EQ(ask(R"("thinking":{"type":"maybe"})").status, 400u);
}

TEST_F(AnthropicTest, CountsWithoutRunning) {
  const RawResponse counted =
      client().post("/v1/messages/count_tokens", R"({"model":"x","messages":)" + kHello + "}");
  ASSERT_EQ(counted.status, 200u) << counted.body;
  EXPECT_EQ(engine_->requests(), 0u);
  ask("");
  EXPECT_EQ(counted.json().at("input_tokens").as_int64(),
            static_cast<std::int64_t>(engine_->request(0).prompt.size()));
}

TEST_F(AnthropicTest, ErrorsHaveItsForm) {
  const auto error = [](const RawResponse& response) {
    EXPECT_EQ(text_of(response.json().at("type")), "error") << response.body;
    return response.json().at("error");
  };
  const RawResponse refused = ask(R"("strange":1)");
  EXPECT_EQ(refused.status, 400u);
  EXPECT_EQ(text_of(error(refused).at("type")), "invalid_request_error");
  EXPECT_THAT(text_of(error(refused).at("message")), HasSubstr("'strange'"));
  EXPECT_EQ(text_of(error(client().get(kMessages)).at("type")), "invalid_request_error");
  EXPECT_EQ(text_of(error(client().post(kMessages, "{")).at("type")), "invalid_request_error");
  std::string words;
  for (int i = 0; i < 3000; ++i) words += "word ";
  EXPECT_THAT(
      text_of(error(ask("", R"([{"role":"user","content":")" + words + "\"}]")).at("message")),
      ::testing::ContainsRegex("^prompt is too long: [0-9]+ tokens > 2048 maximum"));
  const RawResponse wish =
      client().post(kMessages, R"({"max_tokens":5000,"messages":)" + kHello + "}");
  EXPECT_THAT(text_of(error(wish).at("message")),
              ::testing::ContainsRegex(
                  "^input length and `max_tokens` exceed context limit: [0-9]+ \\+ 5000 > 2048"));
  api_->set_service(nullptr);
  const RawResponse loading = ask("");
  EXPECT_EQ(loading.status, 503u);
  EXPECT_EQ(text_of(error(loading).at("type")), "overloaded_error");
  api_->set_service(service_);
  // What HTTP itself refuses.
  RawClient one = client();
  one.send("POST /v1/messages HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n");
  const RawResponse large = one.read_response();
  EXPECT_EQ(large.status, 413u);
  EXPECT_EQ(text_of(error(large).at("type")), "request_too_large");
}

TEST_F(AnthropicTest, AnErrorInTheStreamIsAnEvent) {
  const Error broken{ErrorCode::io, "row 7 is lost"};
  engine_->script({{.text = "abc", .reason = FinishReason::error, .error = broken}});
  const auto events = events_of(ask(R"("stream":true)").body);
  EXPECT_EQ(events.back().first, "error");
  EXPECT_EQ(text_of(events.back().second.at("error").at("type")), "api_error");
  EXPECT_EQ(text_of(events.back().second.at("error").at("message")), "row 7 is lost");
}

TEST_F(AnthropicTest, PingsWhileItWaits) {
  engine_->script({{.text = "</think>x", .wait = 200ms}});
  std::size_t pings = 0;
  for (const auto& [name, data] : events_of(ask(R"("stream":true)").body)) pings += name == "ping";
  EXPECT_GE(pings, 3u);
}

TEST_F(AnthropicTest, RefusesByName) {
  const char* table[] = {
      R"("messages":5)",
      R"("messages":[])",
      R"("messages":[5])",
      R"("messages":[{"role":"tool","content":"x"}])",
      R"("messages":[{"role":"user"}])",
      R"("messages":[{"role":"user","content":5}])",
      R"("messages":[{"role":"user","content":[5]}])",
      R"("messages":[{"role":"user","content":[{"text":"x"}]}])",
      R"("messages":[{"role":"user","content":[{"type":"text"}]}])",
      R"("messages":[{"role":"user","content":[{"type":"image","source":{}}]}])",
      R"("messages":[{"role":"user","content":[{"type":"tool_use","id":"1","name":"f"}]}])",
      R"("messages":[{"role":"assistant","content":[{"type":"tool_use","id":"1"}]}])",
      R"("system":5)",
      R"("system":[{"type":"image"}])",
      R"("tools":"auto")",
      R"("tools":[5])",
      R"("tools":[{"input_schema":{}}])",
      R"("tools":[{"name":"a\nb","input_schema":{}}])",
      R"("tools":[{"name":"f","input_schema":[]}])",
      R"("tools":[{"type":"web_search_20250305","name":"web_search"}])",
      R"("tool_choice":"auto")",
      R"("tool_choice":{"type":"any"})",
      R"("tool_choice":{"type":"tool","name":"f"})",
      R"("thinking":true)",
      R"("thinking":{})",
      R"("output_config":{"effort":"huge"})",
      R"("output_config":{"format":{}})",
      R"("stop_sequences":[5])",
      R"("max_tokens":"5")",
      R"("temperature":"x")",
      R"("stream":"yes")",
      R"("container":"x")",
      R"("mcp_servers":[{}])",
  };
  for (const char* members : table) {
    const std::string text = std::string_view(members).starts_with(R"("messages")")
                                 ? "{" + std::string(members) + "}"
                                 : request(members);
    const RawResponse refused = client().post(kMessages, text);
    EXPECT_EQ(refused.status, 400u) << members << "\n" << refused.body;
    EXPECT_EQ(text_of(refused.json().at("type")), "error");
  }
}

}  // namespace
}  // namespace strata::server::testing
