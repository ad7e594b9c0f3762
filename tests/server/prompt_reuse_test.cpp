// A conversation's next prompt begins with what the engine has read and written, token by token.
#include <thread>

#include "tests/server/api_fixture.h"

namespace strata::server::testing {
namespace {

using Ids = std::vector<TokenId>;

class PromptReuseTest : public ApiTest {
 protected:
  static constexpr std::string_view kAnswer = "I think.\n</think>\n\nThe answer, \u00FCber all.";

  // What the engine read and wrote for request `index`, up to `tokens` of the answer.
  Ids read_and_written(std::size_t index, const Script& script, std::size_t tokens = SIZE_MAX) {
    Ids ids = engine_->request(index).prompt;
    Ids answer = engine_->tokens_of(script);
    answer.resize(std::min(answer.size(), tokens));
    ids.insert(ids.end(), answer.begin(), answer.end());
    return ids;
  }
  ::testing::AssertionResult begins_with(std::size_t index, const Ids& ids) {
    const Ids prompt = engine_->request(index).prompt;
    const auto [differs, wanted] = std::ranges::mismatch(prompt, ids);
    if (wanted == ids.end()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure()
           << "token " << differs - prompt.begin() << " of " << ids.size() << " differs; prompt '"
           << engine_->prompt(index) << "'";
  }
  PromptEncoder::Counters counters() { return service_->encoder_counters(); }

  // The conversation after `response` answered `messages`, with a next question.
  static std::string continued(const std::string& messages, const RawResponse& response) {
    json::array all = json::parse(messages).as_array();
    all.push_back(response.json().at("choices").at(0).at("message"));
    all.push_back({{"role", "user"}, {"content", "And then?"}});
    return json::serialize(all);
  }
};

TEST_F(PromptReuseTest, ChatTurnsGoOnWhereTheEngineIs) {
  const Script bytes{.text = std::string(kAnswer), .bytes = true};
  engine_->script({bytes});
  std::string messages = kHello;
  for (std::size_t turn = 0; turn < 4; ++turn) {
    const RawResponse response = chat("", messages);
    ASSERT_EQ(response.status, 200u) << response.body;
    messages = continued(messages, response);
    if (turn == 0) continue;
    EXPECT_TRUE(begins_with(turn, read_and_written(turn - 1, bytes))) << turn;
  }
  EXPECT_NE(engine_->request(1).prompt, engine_->tokenizer().encode(engine_->prompt(1)));
  EXPECT_EQ(counters().reply_tokens, 3 * engine_->tokens_of(bytes).size());
  EXPECT_LT(counters().encoded_bytes, counters().bytes / 2);
}

TEST_F(PromptReuseTest, ToolCallsToo) {
  const Script call{.text = kCall, .bytes = true};
  engine_->script({call});
  const RawResponse first = chat(kTools);
  json::array messages = json::parse(kHello).as_array();
  messages.push_back(first.json().at("choices").at(0).at("message"));
  const json::value id = messages.back().at("tool_calls").at(0).at("id");
  messages.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", "rain </think>"}});
  ASSERT_EQ(chat(kTools, json::serialize(messages)).status, 200u);
  EXPECT_TRUE(begins_with(1, read_and_written(0, call)));
  const auto count = [&](std::string_view literal) {
    return std::ranges::count(engine_->request(1).prompt, *engine_->tokenizer().special(literal));
  };
  EXPECT_EQ(count("</think>"), 1);
}

TEST_F(PromptReuseTest, StreamedAndCutAnswersToo) {
  const Script bytes{.text = std::string(kAnswer), .pace = 1ms, .bytes = true};
  engine_->script({bytes});
  // At its limit.
  const RawResponse first = chat(R"("max_tokens":23)");
  ASSERT_EQ(text_of(choice(first).at("finish_reason")), "length");
  std::string messages = continued(kHello, first);
  ASSERT_EQ(chat(R"("max_tokens":1)", messages).status, 200u);
  EXPECT_TRUE(begins_with(1, read_and_written(0, bytes, 23)));
  // Cancelled by a client that goes away.
  RawClient one = client();
  const std::string text = body(R"("stream":true)", R"([{"role":"user","content":"Other"}])");
  one.send("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: " + std::to_string(text.size()) +
           "\r\n\r\n" + text);
  while (service_->answers().empty() || service_->answers()[0].generated < 22)
    std::this_thread::sleep_for(1ms);
  one.close();
  ASSERT_TRUE(idle_within(2s));
  for (int i = 0; i < 500 && service_->counters().finished[3] == 0; ++i)
    std::this_thread::sleep_for(2ms);
  ASSERT_EQ(service_->counters().finished[3], 1u);
  const auto before = counters().reply_tokens;
  chat("", R"([{"role":"user","content":"Other"},
               {"role":"assistant","reasoning_content":"I think.","content":"The"},
               {"role":"user","content":"go on"}])");
  EXPECT_EQ(counters().reply_tokens - before, 15u);
}

TEST_F(PromptReuseTest, StreamedChat) {
  const Script bytes{.text = std::string(kAnswer), .bytes = true};
  engine_->script({bytes});
  const Streamed first = joined(chat(R"("stream":true)").body);
  json::array messages = json::parse(kHello).as_array();
  messages.push_back(
      {{"role", "assistant"}, {"content", first.content}, {"reasoning_content", first.reasoning}});
  messages.push_back({{"role", "user"}, {"content", "And?"}});
  chat("", json::serialize(messages));
  EXPECT_TRUE(begins_with(1, read_and_written(0, bytes)));
}

TEST_F(PromptReuseTest, AnthropicsMessages) {
  const Script call{.text = kCall, .bytes = true};
  engine_->script({call});
  const std::string tools =
      R"("max_tokens":1000,"tools":[{"name":"get_weather","input_schema":{"type":"object",
         "properties":{"city":{"type":"string"},"days":{"type":"integer"}}}}],"messages":)";
  const RawResponse first = client().post("/v1/messages", "{" + tools + kHello + "}");
  ASSERT_EQ(first.status, 200u) << first.body;
  json::array messages = json::parse(kHello).as_array();
  const json::value content = first.json().at("content");
  messages.push_back({{"role", "assistant"}, {"content", content}});
  const json::value id = content.as_array().back().at("id");
  messages.push_back(
      {{"role", "user"},
       {"content",
        json::array{{{"type", "tool_result"}, {"tool_use_id", id}, {"content", "rain"}}}}});
  const std::string next = "{" + tools + json::serialize(messages) + "}";
  const auto kept = counters().entries;
  const RawResponse counted = client().post("/v1/messages/count_tokens", next);
  EXPECT_EQ(counters().entries, kept);
  ASSERT_EQ(client().post("/v1/messages", next).status, 200u);
  EXPECT_TRUE(begins_with(1, read_and_written(0, call)));
  EXPECT_EQ(counted.json().at("input_tokens").to_number<std::size_t>(),
            engine_->request(1).prompt.size());
}

TEST_F(PromptReuseTest, Responses) {
  const Script bytes{.text = std::string(kAnswer), .bytes = true};
  engine_->script({bytes});
  const RawResponse first = client().post("/v1/responses", R"({"input":"Hello"})");
  ASSERT_EQ(first.status, 200u) << first.body;
  const std::string next =
      R"({"input":"And?","previous_response_id":")" + text_of(first.json().at("id")) + "\"}";
  ASSERT_EQ(client().post("/v1/responses", next).status, 200u);
  EXPECT_TRUE(begins_with(1, read_and_written(0, bytes)));
}

TEST_F(PromptReuseTest, TextCompletions) {
  const Script bytes{.text = "there was a castle", .bytes = true};
  engine_->script({bytes});
  const auto complete = [&](const std::string& prompt, const std::string& members = "") {
    const json::object request{{"prompt", prompt}, {"max_tokens", 100}};
    std::string text = json::serialize(request);
    text.insert(text.size() - 1, members);
    return client().post("/v1/completions", text);
  };
  const RawResponse first = complete("<|im_start|>Once ");
  ASSERT_EQ(first.status, 200u) << first.body;
  const std::string text = text_of(choice(first).at("text"));
  complete("<|im_start|>Once " + text + " on a hill");
  EXPECT_TRUE(begins_with(1, read_and_written(0, bytes)));
  // A one-shot request uses what is there and leaves nothing.
  const auto before = counters();
  complete("<|im_start|>Once " + text + " by the sea", R"(,"cache_prompt":false)");
  EXPECT_TRUE(begins_with(2, read_and_written(0, bytes)));
  complete("<|im_start|>Twice ", R"(,"cache_prompt":false)");
  EXPECT_EQ(counters().held_bytes, before.held_bytes);
  EXPECT_TRUE(engine_->request(1).keep);
  EXPECT_FALSE(engine_->request(2).keep);  // in the engine, too
  complete("<|im_start|>Twice " + text);
  EXPECT_EQ(engine_->request(4).prompt, engine_->tokenizer().encode("<|im_start|>Twice " + text));
}

TEST_F(PromptReuseTest, RefusedRequestsAreForgotten) {
  const std::string words =
      json::serialize(json::array{{{"role", "user"}, {"content", [] {
                                                        std::string text;
                                                        for (int i = 0; i < 3000; ++i)
                                                          text += "word ";
                                                        return text;
                                                      }()}}});
  EXPECT_EQ(chat("", words).status, 400u);
  EXPECT_EQ(counters().entries, 0u);
  EXPECT_EQ(chat(R"("max_tokens":5000)").status, 400u);
  EXPECT_EQ(counters().entries, 0u);
  engine_->queue_full = true;
  EXPECT_GE(chat("").status, 400u);
  EXPECT_EQ(counters().entries, 0u);
  engine_->queue_full = false;
  EXPECT_EQ(chat("").status, 200u);
  EXPECT_EQ(counters().entries, 1u);
  client().post("/tokenize", R"({"content":"<|im_start|>Hello"})");
  client().post("/apply-template", body(""));
  EXPECT_EQ(counters().entries, 1u);
}

TEST_F(PromptReuseTest, ConversationsAtTheSameTimeDoNotMix) {
  const Script bytes{.text = std::string(kAnswer), .bytes = true};
  engine_->script({bytes});
  constexpr std::size_t kClients = 4, kTurns = 4;
  const auto first = [](std::size_t i) { return fmt::format("I am client {}", i); };
  std::vector<std::thread> clients;
  for (std::size_t i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      std::string messages =
          json::serialize(json::array{{{"role", "user"}, {"content", first(i)}}});
      for (std::size_t turn = 0; turn < kTurns; ++turn) {
        const RawResponse response = chat("", messages);
        ASSERT_EQ(response.status, 200u) << response.body;
        messages = continued(messages, response);
      }
    });
  }
  for (auto& one : clients) one.join();
  for (std::size_t i = 0; i < kClients; ++i) {
    std::optional<std::size_t> before;
    for (std::size_t request = 0; request < kClients * kTurns; ++request) {
      if (engine_->prompt(request).find(first(i) + "<") == std::string::npos) continue;
      EXPECT_TRUE(!before || begins_with(request, read_and_written(*before, bytes)));
      before = request;
    }
    EXPECT_TRUE(before);
  }
}

TEST_F(PromptReuseTest, WithoutRepliesIdsAreThoseOfTheText) {
  const Script bytes{.text = std::string(kAnswer), .bytes = true};
  for (const bool parity : {false, true}) {
    ServiceOptions options;
    options.parity = parity;
    options.encoder.replies = parity ? 4 : 0;
    serve_again(options);
    engine_->forget();
    engine_->script({bytes});
    chat("", continued(kHello, chat("")));
    EXPECT_EQ(engine_->request(1).prompt, engine_->tokenizer().encode(engine_->prompt(1)));
    EXPECT_EQ(counters().reply_tokens, 0u);
    EXPECT_GT(counters().reused_tokens, 0u);
    const json::value status = client().get("/v1/status").json();
    for (const json::value& entry : status.at("defaults").as_array()) {
      EXPECT_TRUE(text_of(entry.at("name")) != "encoder_replies" || entry.at("value") == 0);
    }
  }
}

TEST_F(PromptReuseTest, CountersAreSeen) {
  engine_->script({{.text = std::string(kAnswer), .bytes = true}});
  chat("", continued(kHello, chat("")));
  const json::value encoder = client().get("/v1/status").json().at("prompt_encoder");
  EXPECT_EQ(encoder.at("prompts").to_number<int>(), 2);
  EXPECT_EQ(encoder.at("entries").to_number<int>(), 2);
  EXPECT_EQ(encoder.at("reply_tokens").to_number<std::size_t>(), counters().reply_tokens);
  EXPECT_LT(encoder.at("encoded_bytes").to_number<int>(), encoder.at("bytes").to_number<int>());
  EXPECT_THAT(
      client().get("/metrics").body,
      HasSubstr(fmt::format("\nstrata_prompt_reply_tokens_total {}\n", counters().reply_tokens)));
}

}  // namespace
}  // namespace strata::server::testing
