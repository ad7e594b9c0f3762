// OpenAI's dialects beyond a plain chat: choices, probabilities, one call, progress, completions.
#include "server/openai_completions.h"
#include "tests/server/api_fixture.h"

namespace strata::server::testing {
namespace {

constexpr std::string_view kCompletions = "/v1/completions";

using OpenAiTest = ApiTest;

TEST_F(OpenAiTest, SeveralChoicesAreDrawnWithSeedsOfTheirOwn) {
  engine_->script({{.text = "</think>\n\none"}, {.text = "</think>\n\ntwo"}});
  const RawResponse response = chat(R"("n":2,"temperature":1,"seed":7)");
  ASSERT_EQ(response.status, 200u) << response.body;
  const json::value whole = response.json();
  ASSERT_EQ(whole.at("choices").as_array().size(), 2u);
  EXPECT_EQ(text_of(whole.at("choices").at(0).at("message").at("content")), "one");
  EXPECT_EQ(text_of(whole.at("choices").at(1).at("message").at("content")), "two");
  EXPECT_EQ(whole.at("choices").at(1).at("index").as_int64(), 1);
  EXPECT_EQ(engine_->request(0).sampling.seed, 7u);
  EXPECT_EQ(engine_->request(1).sampling.seed, 8u);
  EXPECT_EQ(engine_->request(0).prompt, engine_->request(1).prompt);
  const json::value& usage = whole.at("usage");
  EXPECT_EQ(usage.at("prompt_tokens").as_int64(),
            static_cast<std::int64_t>(engine_->request(0).prompt.size()));
  std::size_t written = 0;
  for (const char* text : {"</think>\n\none", "</think>\n\ntwo"})
    written += engine_->tokenizer().encode(text, Specials::all).size();
  EXPECT_EQ(usage.at("completion_tokens").as_int64(), static_cast<std::int64_t>(written));
}

TEST_F(OpenAiTest, StreamedChoicesKeepApart) {
  engine_->script({{.text = "</think>\n\nred red red", .pace = 1ms},
                   {.text = "</think>\n\nblue blue", .pace = 1ms}});
  const RawResponse response = chat(R"("n":2,"stream":true)");
  std::map<std::int64_t, std::string> texts, ends;
  for (const std::string& data : sse_data(response.body)) {
    if (data == "[DONE]") continue;
    const json::value chunk = json::parse(data);
    const json::value& choice = chunk.at("choices").at(0);
    const auto index = choice.at("index").as_int64();
    if (const auto* text = choice.at("delta").as_object().if_contains("content"))
      texts[index] += text_of(*text);
    if (!choice.at("finish_reason").is_null()) ends[index] += text_of(choice.at("finish_reason"));
  }
  EXPECT_EQ(texts[0], "red red red");
  EXPECT_EQ(texts[1], "blue blue");
  EXPECT_EQ(ends[0], "stop");
  EXPECT_EQ(ends[1], "stop");
  EXPECT_THAT(response.body, ::testing::EndsWith("data: [DONE]\n\n"));
}

TEST_F(OpenAiTest, ARefusedChoiceTakesTheOthersBack) {
  engine_->script({{.text = "word ", .pace = 1ms, .endless = true}});
  engine_->accept_at_most = 2;
  EXPECT_EQ(chat(R"("n":3)").status, 503u);
  EXPECT_TRUE(idle_within(1s));
}

TEST_F(OpenAiTest, AFailedChoiceEndsAllInOneError) {
  const Error broken{ErrorCode::io, "it broke"};
  for (const char* stream : {"", R"(,"stream":true)"}) {
    engine_->forget();
    engine_->script({{.text = "word ", .pace = 1ms, .endless = true},
                     {.text = "x", .reason = FinishReason::error, .error = broken}});
    const RawResponse response = chat(std::string(R"("n":2)") + stream);
    EXPECT_TRUE(response.complete);
    EXPECT_THAT(response.body, HasSubstr("it broke"));
    EXPECT_TRUE(idle_within(1s));
  }
}

TEST_F(OpenAiTest, LogprobsOfEveryTokenWithAlternatives) {
  engine_->script({{.text = "Hm.\n</think>\n\nH\xC3\xA9llo", .bytes = true}});
  const RawResponse response = chat(R"("logprobs":true,"top_logprobs":2)");
  const json::object answer = choice(response);
  const json::array& items = answer.at("logprobs").at("content").as_array();
  ASSERT_EQ(items.size(), static_cast<std::size_t>(
                              response.json().at("usage").at("completion_tokens").as_int64()));
  std::string bytes;
  for (const json::value& item : items) {
    EXPECT_DOUBLE_EQ(item.at("logprob").to_number<double>(), -0.5);
    ASSERT_EQ(item.at("top_logprobs").as_array().size(), 2u);
    EXPECT_EQ(item.at("top_logprobs").at(0).at("token"), item.at("token"));
    for (const json::value& byte : item.at("bytes").as_array())
      bytes += static_cast<char>(byte.to_number<int>());
  }
  EXPECT_EQ(bytes, "Hm.\n</think>\n\nH\xC3\xA9llo");
  EXPECT_THAT(response.body, HasSubstr(R"("token":"bytes:\\xc3")"));

  // Streamed: the same entries, over all chunks.
  std::size_t streamed = 0;
  bool with_thinking = false;
  for (const json::value& chunk :
       joined(chat(R"("stream":true,"logprobs":true,"top_logprobs":2)").body).chunks) {
    const json::value& part = chunk.at("choices").at(0);
    if (part.at("logprobs").is_null()) continue;
    streamed += part.at("logprobs").at("content").as_array().size();
    with_thinking |= part.at("delta").as_object().contains("reasoning_content");
  }
  EXPECT_EQ(streamed, items.size());
  EXPECT_TRUE(with_thinking);
  EXPECT_TRUE(choice(chat("")).at("logprobs").is_null());
}

TEST_F(OpenAiTest, SteersTheSampling) {
  chat(R"("presence_penalty":0.5,"frequency_penalty":-0.25,"repeat_penalty":1.1,
          "repeat_last_n":32,"logit_bias":{"7":-100,"5":2}})");
  chat(R"("presence_penalty":0.5,"frequency_penalty":-0.25,"repetition_penalty":1.1,
          "penalty_last_n":-1,"logit_bias":[[9,false]])");
  const Request first = engine_->request(0);
  EXPECT_FLOAT_EQ(first.sampling.presence_penalty, 0.5f);
  EXPECT_FLOAT_EQ(first.sampling.frequency_penalty, -0.25f);
  EXPECT_FLOAT_EQ(first.sampling.repetition_penalty, 1.1f);
  EXPECT_EQ(first.sampling.penalty_last_n, -1);
  ASSERT_EQ(first.logit_bias.size(), 1u);
  EXPECT_EQ(first.logit_bias[0].id, 9);
  EXPECT_FLOAT_EQ(first.logit_bias[0].bias, kBan);
}

TEST_F(OpenAiTest, WithoutParallelCallsTheFirstEndsTheAnswer) {
  const std::string second = kCall.substr(kCall.find("<tool_call>"));
  engine_->script({{.text = kCall + "\n" + second, .endless = true}});
  const json::object answer = choice(chat(kTools + R"(,"parallel_tool_calls":false)"));
  EXPECT_EQ(text_of(answer.at("finish_reason")), "tool_calls");
  EXPECT_EQ(answer.at("message").at("tool_calls").as_array().size(), 1u);
  EXPECT_TRUE(idle_within(1s));
}

TEST_F(OpenAiTest, TellsHowMuchOfThePromptIsRead) {
  const std::string body = chat(R"("stream":true,"return_progress":true)").body;
  bool told = false;
  for (const json::value& chunk : joined(body).chunks) {
    const auto* progress = chunk.as_object().if_contains("prompt_progress");
    if (progress == nullptr) continue;
    told = true;
    EXPECT_EQ(progress->at("total"), progress->at("processed"));
    EXPECT_EQ(progress->at("cache").as_int64(), 0);
    EXPECT_EQ(progress->at("total").as_int64(),
              static_cast<std::int64_t>(engine_->request(0).prompt.size()));
  }
  EXPECT_TRUE(told);
  EXPECT_THAT(chat(R"("stream":true)").body, ::testing::Not(HasSubstr("prompt_progress")));
}

TEST_F(OpenAiTest, TellsThePlaceInTheQueueAndWhatWasCached) {
  Script waits{.text = "</think>\n\nHello", .wait = 120ms, .cached = 4};
  waits.ahead = {3, 1};
  engine_->script({waits});
  const std::string body = chat(R"("stream":true,"return_progress":true)").body;
  std::vector<std::int64_t> queued, cached, processed;
  for (const json::value& chunk : joined(body).chunks) {
    const auto* progress = chunk.as_object().if_contains("prompt_progress");
    if (progress == nullptr) continue;
    const auto* place = progress->as_object().if_contains("queued");
    if (place != nullptr) queued.push_back(place->as_int64());
    cached.push_back(progress->at("cache").as_int64());
    processed.push_back(progress->at("processed").as_int64());
    EXPECT_EQ(progress->at("total").as_int64(),
              static_cast<std::int64_t>(engine_->request(0).prompt.size()));
  }
  const auto total = static_cast<std::int64_t>(engine_->request(0).prompt.size());
  EXPECT_THAT(queued, ::testing::ElementsAre(3, 1));
  EXPECT_THAT(cached, ::testing::ElementsAre(0, 0, 4));
  EXPECT_THAT(processed, ::testing::ElementsAre(0, 0, total));
  EXPECT_THAT(body,
              AllOf(HasSubstr("\n: queued, 3 ahead\n\n"), HasSubstr("\n: queued, 1 ahead\n\n")));
}

TEST_F(OpenAiTest, EveryDialectsSilentStreamTellsThePlaceInTheQueue) {
  Script waits{.text = "</think>\n\nHello", .wait = 120ms};
  waits.ahead = {2, 0};
  engine_->script({waits});
  const std::string messages = R"("stream":true,"messages":)" + kHello;
  for (const auto& [path, members] :
       {std::pair{std::string(kChat), messages},
        std::pair{std::string("/v1/messages"), R"("max_tokens":9,)" + messages},
        std::pair{std::string("/v1/completions"), std::string(R"("stream":true,"prompt":"a")")},
        std::pair{std::string("/v1/responses"), std::string(R"("stream":true,"input":"a")")}}) {
    const std::string body = client().post(path, "{" + members + "}").body;
    EXPECT_THAT(body, HasSubstr(": queued, 2 ahead\n\n")) << path;
    EXPECT_THAT(body, HasSubstr(": queued, 0 ahead\n\n")) << path;
    EXPECT_LT(body.find(": queued, 2"), body.find(": queued, 0")) << path;
  }
}

// What the engine finds out about a constraint comes before the head of a stream: no client has to
// look for its fault in a stream that began with 200.
TEST_F(OpenAiTest, EveryDialectsStreamIsRefusedBeforeItsHead) {
  const Error error{ErrorCode::invalid_argument,
                    "the constraint of the answer cannot be kept: why"};
  const std::string messages = R"("messages":)" + kHello;
  const std::string grammar = R"(,"stream":true,"grammar":"root ::= \"a\"")";
  const std::string schema = R"({"type":"json_schema","name":"a","schema":{"type":"integer"}})";
  const std::vector<std::pair<std::string, std::string>> dialects = {
      {std::string(kChat), messages + R"(,"n":2)" + grammar},
      {"/v1/messages",
       messages + R"(,"max_tokens":9,"stream":true,"output_config":{"format":)" + schema + "}"},
      {"/v1/completions", R"("n":2,"prompt":["a","b"],"echo":true)" + grammar},
      {"/v1/responses", R"("input":"a","stream":true,"text":{"format":)" + schema + "}"}};
  for (const auto& [path, members] : dialects) {
    SCOPED_TRACE(path);
    engine_->script({{.reason = FinishReason::error, .error = error, .refused = true}});
    engine_->forget();
    RawClient one = client();
    const RawResponse refused = one.post(path, "{" + members + "}");
    EXPECT_EQ(refused.status, 400u) << refused.body;
    EXPECT_THAT(error_of(refused), HasSubstr("cannot be kept: why"));
    // The connection goes on.
    EXPECT_EQ(one.get("/health").status, 200u);

    // Later than keep_alive_time the head is out, and the error an event.
    engine_->script(
        {{.reason = FinishReason::error, .error = error, .wait = 400ms, .refused = true}});
    engine_->forget();
    const RawResponse late = client().post(path, "{" + members + "}");
    EXPECT_EQ(late.status, 200u);
    EXPECT_THAT(late.body, HasSubstr("cannot be kept: why"));

    // Without an error the stream is what it is without a constraint.
    engine_->script({{.text = "</think>\n\n7", .wait = 10ms}});
    engine_->forget();
    const RawResponse right = client().post(path, "{" + members + "}");
    EXPECT_EQ(right.status, 200u);
    EXPECT_THAT(right.body, HasSubstr("7"));
    if (path == "/v1/responses") {
      EXPECT_LT(right.body.find("response.created"), right.body.find("response.in_progress"));
      EXPECT_THAT(right.body, HasSubstr("response.completed"));
    }
  }
}

// In every dialect two tools of one name are refused by it.
TEST_F(OpenAiTest, NoTwoToolsHaveOneName) {
  const auto twice = [](const std::string& tool) { return "[" + tool + "," + tool + "]"; };
  const std::string function = R"({"name":"look_up","parameters":{"type":"object"}})";
  const std::string messages = R"("messages":)" + kHello;
  for (const auto& [path, members] :
       {std::pair{std::string(kChat),
                  messages + R"(,"tools":)" +
                      twice(R"({"type":"function","function":)" + function + "}")},
        std::pair{std::string("/v1/messages"),
                  messages + R"(,"max_tokens":9,"tools":)" +
                      twice(R"({"name":"look_up","input_schema":{"type":"object"}})")},
        std::pair{
            std::string("/v1/responses"),
            R"("input":"a","tools":)" +
                twice(R"({"type":"function","name":"look_up","parameters":{"type":"object"}})")}}) {
    const RawResponse response = client().post(path, "{" + members + "}");
    EXPECT_EQ(response.status, 400u) << path;
    EXPECT_THAT(error_of(response), HasSubstr("two tools of the name 'look_up'")) << path;
  }
}

// Schemas and grammars that would take minutes to look at, on every path they come in, hold no
// thread: other requests are answered meanwhile, and each of them soon.
TEST_F(OpenAiTest, HostileConstraintsHoldNoThread) {
  std::string schema = R"({"type":"object","properties":{)";
  for (int k = 0; k < 4'000; ++k) {
    schema += fmt::format(R"({}"p{}":{{"type":"string","pattern":"^{}(a|b)*a(a|b){{12}}$"}})",
                          k == 0 ? "" : ",", k, k);
  }
  schema += "}}";
  engine_->facts_.context = 1'000'000;  // tools are part of the prompt
  engine_->script({{.text = "</think>\n\nno", .wait = 1ms}});
  const auto quoted = [](const std::string& text) { return json::serialize(json::string(text)); };
  const std::string messages = R"("messages":)" + kHello;
  const auto tool = [&](const char* more) {
    return R"(,"tools":[{"type":"function","function":{"name":"f",)" + std::string(more) +
           R"("parameters":)" + schema + "}}]";
  };
  const std::vector<std::pair<std::string, std::string>> requests = {
      {std::string(kChat), messages + R"(,"json_schema":)" + schema},
      {std::string(kChat),
       messages + R"(,"response_format":{"type":"json_object","schema":)" + schema + "}"},
      {std::string(kChat), messages + R"(,"grammar":)" + quoted("root ::= %json " + schema)},
      {std::string(kChat), messages + tool(R"("strict":true,)")},
      {std::string(kChat), messages + tool("") + R"(,"tool_choice":"required")"},
      {"/v1/completions", R"("prompt":"a","guided_json":)" + schema},
      {"/v1/messages", messages + R"(,"max_tokens":9,"tools":[{"name":"f","strict":true,
                                     "input_schema":)" +
                           schema + "}]"},
      {"/v1/responses", R"("input":"a","text":{"format":{"type":"json_schema","name":"s",
                                     "schema":)" +
                            schema + "}}"}};
  std::vector<std::thread> clients;
  std::atomic<int> answered{0};
  for (const auto& [path, members] : requests) {
    clients.emplace_back([&, path = path, members = members] {
      const RawResponse response = client().post(path, "{" + members + "}");
      EXPECT_EQ(response.status, 200u) << path << response.body.substr(0, 300);
      ++answered;
    });
  }
  do {
    EXPECT_EQ(client().get("/health").status, 200u);
    std::this_thread::sleep_for(5ms);
  } while (answered < static_cast<int>(requests.size()));
  for (std::thread& one : clients) one.join();
  EXPECT_EQ(engine_->requests(), requests.size());
}

TEST_F(OpenAiTest, TimingsCountDraftsWhereThereWereSome) {
  engine_->script(
      {{.text = "</think>\n\nHello", .cached = 6, .drafted = 9, .accepted = 5, .disk = 2},
       {.text = "</think>\n\nHello"}});
  const json::value timings = chat("").json().at("timings");
  EXPECT_EQ(timings.at("draft_n").as_int64(), 9);
  EXPECT_EQ(timings.at("draft_n_accepted").as_int64(), 5);
  EXPECT_EQ(timings.at("cache_n").as_int64(), 6);
  EXPECT_EQ(timings.at("cache_disk_n").as_int64(), 2);
  const json::value none = chat("").json();
  for (const char* name : {"draft_n", "draft_n_accepted", "cache_disk_n"})
    EXPECT_FALSE(none.at("timings").as_object().contains(name)) << name;
  EXPECT_FALSE(none.at("usage")
                   .at("completion_tokens_details")
                   .as_object()
                   .contains("accepted_prediction_tokens"));
}

// What changes the speed only, in all dialects.
TEST_F(OpenAiTest, EveryDialectTakesDraftsAndOneShots) {
  const std::string messages = R"("max_tokens":9,"messages":)" + kHello;
  const std::vector<std::pair<std::string, std::string>> dialects = {
      {std::string(kChat), messages},
      {"/v1/messages", messages},
      {"/v1/completions", R"("prompt":"a")"},
      {"/v1/responses", R"("input":"a")"}};
  using Drafts = std::optional<std::uint32_t>;
  for (const auto& [path, members] : dialects) {
    const auto post = [&](const std::string& more) {
      return client().post(path, "{" + members + more + "}");
    };
    const auto asked = [&](const std::string& more) {
      engine_->forget();
      const RawResponse response = post(more);
      EXPECT_EQ(response.status, 200u) << path << more << response.body;
      return engine_->request(0);
    };
    EXPECT_EQ(asked("").drafts, Drafts()) << path;
    EXPECT_TRUE(asked("").keep) << path;
    EXPECT_EQ(asked(R"(,"drafts":"auto")").drafts, Drafts()) << path;
    EXPECT_EQ(asked(R"(,"drafts":null)").drafts, Drafts()) << path;
    EXPECT_EQ(asked(R"(,"drafts":"off")").drafts, Drafts(0)) << path;
    EXPECT_EQ(asked(R"(,"drafts":0)").drafts, Drafts(0)) << path;
    EXPECT_EQ(asked(R"(,"drafts":15)").drafts, Drafts(15)) << path;
    EXPECT_FALSE(asked(R"(,"cache_prompt":false)").keep) << path;
    EXPECT_FALSE(asked(R"(,"strata_checkpoint":false)").keep) << path;
    EXPECT_TRUE(asked(R"(,"strata_checkpoint":true,"cache_prompt":true)").keep) << path;
    for (const char* bad : {"16", "-1", "1.5", "\"on\"", "true", "[]", "1e300", "\"\""}) {
      const RawResponse refused = post(std::string(R"(,"drafts":)") + bad);
      EXPECT_EQ(refused.status, 400u) << path << bad;
      EXPECT_THAT(error_of(refused), HasSubstr("\"auto\", \"off\" or a whole number from 0 to 15"))
          << path << bad;
    }
    EXPECT_EQ(post(R"(,"strata_checkpoint":0)").status, 400u) << path;
  }
}

TEST_F(OpenAiTest, APictureOfAToolIsANote) {
  const RawResponse response = chat("", R"([{"role":"user","content":"look"},
                   {"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f"}}]},
                   {"role":"tool","tool_call_id":"1","content":[{"type":"text","text":"see "},
                     {"type":"image_url","image_url":{"url":"data:image/png;base64,"}}]}])");
  EXPECT_EQ(response.status, 200u) << response.body;
  EXPECT_THAT(engine_->prompt(0), HasSubstr("see [A picture was here."));
  EXPECT_EQ(chat("", R"([{"role":"user","content":[{"type":"image_url"}]}])").status, 400u);
}

// The limit of a request -------------------------------------------------------------------

TEST_F(OpenAiTest, TheLimitMustLeaveTheSlackFree) {
  chat("");
  const auto prompt = engine_->request(0).prompt.size();
  EXPECT_EQ(engine_->request(0).max_tokens, 2048 - kContextSlack - prompt);
  const std::uint64_t room = 2048 - kContextSlack - prompt;
  EXPECT_EQ(chat(fmt::format(R"("max_tokens":{})", room)).status, 200u);
  const RawResponse refused = chat(fmt::format(R"("max_tokens":{})", room + 1));
  EXPECT_EQ(refused.status, 400u);
  EXPECT_THAT(error_of(refused), HasSubstr(fmt::format("ask for at most {}", room)));
  EXPECT_EQ(refused.json().at("error").at("n_ctx").as_int64(), 2048);
  EXPECT_EQ(refused.json().at("error").at("n_prompt_tokens").as_int64(),
            static_cast<std::int64_t>(prompt));
  ServiceOptions shortened;
  shortened.fit_max_tokens = true;
  serve_again(shortened);
  EXPECT_EQ(chat(R"("max_tokens":100000)").status, 200u);
  EXPECT_EQ(engine_->request(2).max_tokens, room);
}

// Completions ------------------------------------------------------------------------------

TEST_F(OpenAiTest, ContinuesAText) {
  engine_->script({{.text = "</think> world"}});
  const RawResponse response =
      client().post(kCompletions, R"({"prompt":"Hello <|im_end|>","model":"x"})");
  ASSERT_EQ(response.status, 200u) << response.body;
  const json::value whole = response.json();
  EXPECT_EQ(text_of(whole.at("object")), "text_completion");
  EXPECT_THAT(text_of(whole.at("id")), ::testing::StartsWith("cmpl-"));
  // No template, no parser of the family's marks: what is written is the text.
  EXPECT_EQ(text_of(whole.at("choices").at(0).at("text")), "</think> world");
  EXPECT_EQ(text_of(whole.at("choices").at(0).at("finish_reason")), "stop");
  EXPECT_EQ(engine_->prompt(0), "Hello <|im_end|>");
  EXPECT_EQ(engine_->request(0).prompt.back(), *engine_->tokenizer().special("<|im_end|>"));
  EXPECT_EQ(engine_->request(0).max_tokens, kCompletionTokens);
}

TEST_F(OpenAiTest, PromptsAsTokensAndManyAtOnce) {
  engine_->script({{.text = "a"}, {.text = "b"}, {.text = "c"}, {.text = "d"}});
  const RawResponse response =
      client().post(kCompletions, R"({"prompt":["x","y"],"n":2,"seed":1,"temperature":1})");
  ASSERT_EQ(response.status, 200u) << response.body;
  const json::array choices = response.json().at("choices").as_array();
  ASSERT_EQ(choices.size(), 4u);
  EXPECT_EQ(text_of(choices[3].at("text")), "d");
  EXPECT_EQ(choices[3].at("index").as_int64(), 3);
  EXPECT_EQ(engine_->prompt(1), "x");
  EXPECT_EQ(engine_->prompt(2), "y");
  EXPECT_EQ(response.json().at("usage").at("prompt_tokens").as_int64(), 2);

  EXPECT_EQ(client().post(kCompletions, R"({"prompt":[5,6,7]})").status, 200u);
  EXPECT_EQ(engine_->request(4).prompt, (std::vector<TokenId>{5, 6, 7}));
  EXPECT_EQ(client().post(kCompletions, R"({"prompt":[[5],[6,7]]})").status, 200u);
  EXPECT_EQ(engine_->request(6).prompt, (std::vector<TokenId>{6, 7}));
}

TEST_F(OpenAiTest, EchoAndLogprobsScoreAPrompt) {
  engine_->script({{.text = " there"}});
  const RawResponse response = client().post(
      kCompletions, R"({"prompt":"H\u00e9 you","echo":true,"logprobs":2,"max_tokens":1})");
  ASSERT_EQ(response.status, 200u) << response.body;
  const json::value whole = response.json();
  const json::value& first = whole.at("choices").at(0);
  const auto prompt = engine_->request(0).prompt;
  EXPECT_THAT(text_of(first.at("text")), ::testing::StartsWith("H\xC3\xA9 you"));
  const json::array& tokens = first.at("logprobs").at("tokens").as_array();
  const json::array& scores = first.at("logprobs").at("token_logprobs").as_array();
  const json::array& offsets = first.at("logprobs").at("text_offset").as_array();
  const json::array& top = first.at("logprobs").at("top_logprobs").as_array();
  ASSERT_EQ(tokens.size(), prompt.size() + 1);
  ASSERT_EQ(scores.size(), tokens.size());
  EXPECT_TRUE(scores[0].is_null());
  EXPECT_TRUE(top[0].is_null());
  EXPECT_DOUBLE_EQ(scores[1].to_number<double>(), -1);
  EXPECT_DOUBLE_EQ(scores.back().to_number<double>(), -0.5);
  EXPECT_GE(top[1].as_object().size(), 1u);
  EXPECT_EQ(offsets[0].as_int64(), 0);
  // Characters, not bytes.
  EXPECT_EQ(offsets[prompt.size()].as_int64(), 6);
  EXPECT_TRUE(engine_->request(0).prompt_logprobs);

  const json::value none =
      client()
          .post(kCompletions, R"({"prompt":"a b","echo":true,"logprobs":0,"max_tokens":0})")
          .json();
  EXPECT_EQ(text_of(none.at("choices").at(0).at("text")), "a b");
  EXPECT_EQ(none.at("usage").at("completion_tokens").as_int64(), 0);
  EXPECT_EQ(text_of(none.at("choices").at(0).at("finish_reason")), "length");
  EXPECT_EQ(none.at("choices").at(0).at("logprobs").at("tokens").as_array().size(),
            engine_->request(1).prompt.size());
}

TEST_F(OpenAiTest, StreamsACompletion) {
  engine_->script({{.text = "one END two", .bytes = true}});
  const RawResponse response =
      client().post(kCompletions,
                    R"({"prompt":"x","stream":true,"stop":"END","echo":true,"max_tokens":-1,
          "stream_options":{"include_usage":true}})");
  std::string text, finish;
  std::int64_t usage = 0;
  for (const std::string& data : sse_data(response.body)) {
    if (data == "[DONE]") continue;
    const json::value chunk = json::parse(data);
    if (chunk.at("choices").as_array().empty()) {
      usage = chunk.at("usage").at("completion_tokens").as_int64();
      continue;
    }
    EXPECT_TRUE(chunk.at("usage").is_null());
    text += text_of(chunk.at("choices").at(0).at("text"));
    const json::value& reason = chunk.at("choices").at(0).at("finish_reason");
    if (!reason.is_null()) finish += text_of(reason);
  }
  EXPECT_EQ(text, "xone ");
  EXPECT_EQ(finish, "stop");
  EXPECT_EQ(usage, 7);
  EXPECT_THAT(response.body, ::testing::EndsWith("data: [DONE]\n\n"));
}

TEST_F(OpenAiTest, RefusesBadCompletions) {
  const std::pair<const char*, const char*> table[] = {
      {R"({})", "prompt"},
      {R"({"prompt":5})", "prompt"},
      {R"({"prompt":""})", "prompt"},
      {R"({"prompt":[]})", "prompt"},
      {R"({"prompt":[-1]})", "prompt"},
      {R"({"prompt":[1e18]})", "prompt"},
      {R"({"prompt":[1,"a"]})", "prompt"},
      {R"({"prompt":["a",5]})", "prompt"},
      {R"({"prompt":"a","suffix":"b"})", "suffix"},
      {R"({"prompt":"a","best_of":2})", "best_of"},
      {R"({"prompt":"a","logprobs":true})", "logprobs"},
      {R"({"prompt":"a","logprobs":21})", "logprobs"},
      {R"({"prompt":"a","echo":true,"logprobs":1,"stream":true})", "echo"},
      {R"({"prompt":"a","max_tokens":-2})", "max_tokens"},
      {R"({"prompt":"a","max_tokens":5000})", "prompt"},
      {R"({"prompt":["a","b","c","d","e"],"n":16})", "n"},
      {R"({"prompt":"a","messages":[]})", "messages"},
  };
  for (const auto& [text, param] : table) {
    const RawResponse refused = client().post(kCompletions, text);
    EXPECT_EQ(refused.status, 400u) << text;
    EXPECT_EQ(error_of(refused, "param"), param) << text;
  }
  EXPECT_EQ(client().post(kCompletions, R"({"prompt":"a","suffix":"","best_of":1})").status, 200u);
}

}  // namespace
}  // namespace strata::server::testing
