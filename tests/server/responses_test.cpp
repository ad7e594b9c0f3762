// OpenAI's Responses over real sockets, and the store under them.
#include "server/openai_responses.h"

#include <sqlite3.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "tests/server/api_fixture.h"

namespace strata::server::testing {
namespace {

constexpr std::string_view kResponses = "/v1/responses";

// The data of a stream's events; each must name its own type and be one further than the last.
std::vector<json::value> events_of(const std::string& body) {
  std::vector<json::value> events;
  std::size_t at = 0;
  while (at < body.size()) {
    std::size_t end = body.find("\n\n", at);
    if (end == std::string::npos) end = body.size();
    const std::string block = body.substr(at, end - at);
    at = end + 2;
    const std::size_t line = block.find("\ndata: ");
    if (!block.starts_with("event: ") || line == std::string::npos) {
      ADD_FAILURE() << block;
      continue;
    }
    events.push_back(json::parse(block.substr(line + 7)));
    EXPECT_EQ(text_of(events.back().at("type")), block.substr(7, line - 7));
    EXPECT_EQ(events.back().at("sequence_number").as_int64(),
              static_cast<std::int64_t>(events.size()) - 1);
  }
  return events;
}

class ResponsesTest : public ApiTest {
 protected:
  RawResponse ask(const std::string& members, const std::string& input = R"("hi")") {
    return client().post(kResponses, R"({"model":"any","input":)" + input +
                                         (members.empty() ? "" : ",") + members + "}");
  }
  json::value wait_for(const std::string& id) {
    for (int i = 0; i < 1000; ++i) {
      const json::value body = client().get(fmt::format("{}/{}", kResponses, id)).json();
      const std::string status = text_of(body.at("status"));
      if (status != "queued" && status != "in_progress") return body;
      std::this_thread::sleep_for(2ms);
    }
    ADD_FAILURE() << id << " does not end";
    return {};
  }
  static inline const std::string kFunction =
      R"("tools":[{"type":"function","name":"get_weather","parameters":{"type":"object",
         "properties":{"city":{"type":"string"},"days":{"type":"integer"}}}}])";
};

TEST_F(ResponsesTest, WholeAnswer) {
  engine_->script({{.text = "Because.\n</think>\n\nHello", .cached = 2}});
  const RawResponse response = ask(R"("instructions":"Be kind.","metadata":{"a":"b"})");
  ASSERT_EQ(response.status, 200u) << response.body;
  const json::value body = response.json();
  EXPECT_THAT(text_of(body.at("id")), ::testing::StartsWith("resp_"));
  EXPECT_EQ(text_of(body.at("object")), "response");
  EXPECT_EQ(text_of(body.at("status")), "completed");
  ASSERT_EQ(body.at("output").as_array().size(), 2u);
  EXPECT_EQ(text_of(body.at("output").at(0).at("type")), "reasoning");
  EXPECT_EQ(text_of(body.at("output").at(0).at("content").at(0).at("text")), "Because.");
  EXPECT_EQ(text_of(body.at("output").at(1).at("content").at(0).at("text")), "Hello");
  EXPECT_EQ(text_of(body.at("output").at(1).at("role")), "assistant");
  EXPECT_EQ(body.at("metadata"), json::value({{"a", "b"}}));
  EXPECT_EQ(text_of(body.at("instructions")), "Be kind.");
  const json::value& usage = body.at("usage");
  EXPECT_EQ(usage.at("input_tokens").as_int64(),
            static_cast<std::int64_t>(engine_->request(0).prompt.size()));
  EXPECT_EQ(usage.at("input_tokens_details").at("cached_tokens").as_int64(), 2);
  EXPECT_GT(usage.at("output_tokens_details").at("reasoning_tokens").as_int64(), 0);
  EXPECT_THAT(engine_->prompt(0),
              HasSubstr("\nBe kind.<|im_end|>\n<|im_start|>user\nhi<|im_end|>"));
}

TEST_F(ResponsesTest, StreamInTheOrderOfTheProtocol) {
  for (const bool bytes : {false, true}) {
    engine_->script({{.text = kCall, .bytes = bytes}});
    const auto events = events_of(ask(kFunction + R"(,"stream":true)").body);
    ASSERT_GT(events.size(), 8u);
    EXPECT_EQ(text_of(events[0].at("type")), "response.created");
    EXPECT_EQ(text_of(events[1].at("type")), "response.in_progress");
    std::string thinking, arguments;
    std::set<std::string> terminals;
    std::map<std::int64_t, std::string> ids;
    for (const json::value& event : events) {
      const std::string type = text_of(event.at("type"));
      if (const auto* id = event.as_object().if_contains("item_id")) {
        EXPECT_EQ(text_of(*id), ids[event.at("output_index").as_int64()]);
      }
      if (type == "response.output_item.added")
        ids[event.at("output_index").as_int64()] = text_of(event.at("item").at("id"));
      if (type == "response.reasoning_text.delta") thinking += text_of(event.at("delta"));
      if (type == "response.reasoning_text.done") {
        EXPECT_EQ(text_of(event.at("text")), thinking);
      }
      if (type == "response.function_call_arguments.delta") arguments += text_of(event.at("delta"));
      if (type == "response.function_call_arguments.done") {
        EXPECT_EQ(text_of(event.at("arguments")), arguments);
      }
      if (type == "response.completed" || type == "response.incomplete" ||
          type == "response.failed") {
        EXPECT_TRUE(terminals.insert(type).second);
      }
    }
    EXPECT_EQ(thinking, "I look.");
    EXPECT_EQ(json::parse(arguments), json::value({{"city", "Oslo"}, {"days", 3}}));
    EXPECT_EQ(terminals.size(), 1u);
    const json::value& last = events.back();
    EXPECT_EQ(text_of(last.at("type")), "response.completed");
    const json::value& call = last.at("response").at("output").at(1);
    EXPECT_EQ(text_of(call.at("type")), "function_call");
    EXPECT_EQ(text_of(call.at("status")), "completed");
    EXPECT_EQ(text_of(call.at("arguments")), arguments);
    EXPECT_THAT(text_of(call.at("call_id")), ::testing::StartsWith("call_"));
  }
}

TEST_F(ResponsesTest, TheLimitMakesItIncompleteAndACutCallIsGone) {
  engine_->script(
      {{.text = kCall.substr(0, kCall.find("Oslo") + 3), .reason = FinishReason::length}});
  const auto events = events_of(ask(kFunction + R"(,"stream":true)").body);
  EXPECT_EQ(text_of(events.back().at("type")), "response.incomplete");
  const json::value& body = events.back().at("response");
  EXPECT_EQ(text_of(body.at("incomplete_details").at("reason")), "max_output_tokens");
  EXPECT_EQ(body.at("output").as_array().size(), 1u);
  std::size_t done = 0;
  for (const json::value& event : events)
    done += text_of(event.at("type")) == "response.function_call_arguments.done";
  EXPECT_EQ(done, 0u);
}

TEST_F(ResponsesTest, FailuresAreOneTerminalEventOrAnHttpError) {
  const Error broken{ErrorCode::io, "row 7 is lost"};
  engine_->script({{.text = "abc", .reason = FinishReason::error, .error = broken}});
  const auto events = events_of(ask(R"("stream":true)").body);
  EXPECT_EQ(text_of(events.back().at("type")), "response.failed");
  EXPECT_EQ(text_of(events.back().at("response").at("error").at("message")), "row 7 is lost");
  EXPECT_EQ(ask("").status, 500u);
}

TEST_F(ResponsesTest, TellsThatItIsStillHereWhileItWaits) {
  engine_->script({{.text = "</think>x", .wait = 300ms}});
  std::size_t progress = 0;
  for (const json::value& event : events_of(ask(R"("stream":true)").body))
    progress += text_of(event.at("type")) == "response.in_progress";
  EXPECT_GE(progress, 3u);
}

TEST_F(ResponsesTest, HistoryOfItemsAsCodexSendsIt) {
  const RawResponse response =
      ask(kFunction,
          R"([{"role":"developer","content":[{"type":"input_text","text":"Rules."}]},
          {"type":"message","role":"user","content":[{"type":"input_text","text":"look"}]},
          {"type":"reasoning","summary":[],"content":null,"encrypted_content":"SG1tLg=="},
          {"type":"function_call","call_id":"c1","name":"get_weather","arguments":"{\"city\":\"O\"}"},
          {"type":"function_call","call_id":"c2","name":"get_weather","arguments":"{\"city\":"},
          {"type":"function_call_output","call_id":"c1","output":"13 degrees"},
          {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"14"},
             {"type":"input_image","image_url":"x"}]},
          {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Warm."}]},
          {"role":"user","content":"thanks"}])");
  ASSERT_EQ(response.status, 200u) << response.body;
  const std::string prompt = engine_->prompt(0);
  std::size_t at = 0;
  for (const char* part : {"Rules.", "look", "<function=get_weather>", "\nO\n", "13 degrees",
                           "14[A picture", "Warm.", "thanks"}) {
    const std::size_t found = prompt.find(part, at);
    ASSERT_NE(found, std::string::npos) << part << " in " << prompt;
    at = found;
  }
}

TEST_F(ResponsesTest, CustomToolsAreFreeTextAndNamespacesAreSplit) {
  const std::string call =
      "x\n</think>\n\n<tool_call>\n<function=apply>\n<parameter=input>\n*** Patch\nline\n"
      "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=box.open>\n"
      "<parameter=lid>\n1\n</parameter>\n</function>\n</tool_call>";
  engine_->script({{.text = call}});
  const std::string tools =
      R"("tools":[{"type":"custom","name":"apply","description":"d"},{"type":"web_search"},
         {"type":"namespace","name":"box","tools":[{"type":"function","name":"open",
           "parameters":{"type":"object","properties":{"lid":{"type":"integer"}}}}]}])";
  const json::value body = ask(tools).json();
  const json::array& output = body.at("output").as_array();
  ASSERT_EQ(output.size(), 3u);
  EXPECT_EQ(text_of(output[1].at("type")), "custom_tool_call");
  EXPECT_EQ(text_of(output[1].at("input")), "*** Patch\nline");
  EXPECT_EQ(text_of(output[2].at("name")), "open");
  EXPECT_EQ(text_of(output[2].at("namespace")), "box");
  EXPECT_EQ(text_of(output[2].at("arguments")), R"({"lid":1})");
  EXPECT_THAT(engine_->prompt(0), HasSubstr("box.open"));
  EXPECT_THAT(engine_->prompt(0), ::testing::Not(HasSubstr("web_search")));
}

TEST_F(ResponsesTest, ContinuesAStoredResponse) {
  engine_->script({{.text = "</think>\n\nOne."}, {.text = "</think>\n\nTwo."}});
  const std::string first =
      text_of(ask(R"("instructions":"Old rules.")", R"("a")").json().at("id"));
  const json::value second =
      ask(R"("previous_response_id":")" + first + R"(","instructions":"New rules.")", R"("b")")
          .json();
  EXPECT_EQ(text_of(second.at("previous_response_id")), first);
  const std::string prompt = engine_->prompt(1);
  EXPECT_THAT(prompt, HasSubstr("New rules."));
  EXPECT_THAT(prompt, ::testing::Not(HasSubstr("Old rules.")));
  EXPECT_LT(prompt.find("\na<"), prompt.find("One."));
  EXPECT_LT(prompt.find("One."), prompt.find("\nb<"));
  const RawResponse missing = ask(R"("previous_response_id":"resp_none")");
  EXPECT_EQ(missing.status, 404u);
  EXPECT_EQ(error_of(missing, "param"), "previous_response_id");
  // Not stored, not there.
  const std::string hidden = text_of(ask(R"("store":false)").json().at("id"));
  EXPECT_EQ(client().get("/v1/responses/" + hidden).status, 404u);
}

TEST_F(ResponsesTest, GetInputItemsAndDelete) {
  engine_->script({{.text = "</think>\n\nOne."}});
  const json::value body =
      ask("", R"([{"role":"user","content":"a"},{"id":"mine","role":"user","content":"b"},
                  {"role":"user","content":"c"}])")
          .json();
  const std::string path = "/v1/responses/" + text_of(body.at("id"));
  EXPECT_EQ(client().get(path).json(), body);
  const auto list = [&](const std::string& query) {
    return client().get(path + "/input_items" + query).json();
  };
  EXPECT_EQ(text_of(list("").at("data").at(0).at("content")), "c");
  const json::value page = list("?order=asc&limit=2");
  EXPECT_EQ(text_of(page.at("data").at(1).at("id")), "mine");
  EXPECT_TRUE(page.at("has_more").as_bool());
  EXPECT_EQ(text_of(list("?order=asc&after=mine").at("data").at(0).at("content")), "c");
  for (const char* query : {"?limit=0", "?limit=101", "?limit=x", "?order=up", "?after=none"})
    EXPECT_EQ(client().get(path + "/input_items" + query).status, 400u) << query;
  for (const char* query : {"?stream=true", "?stream=perhaps"})
    EXPECT_EQ(error_of(client().get(path + query), "param"), "stream") << query;
  for (const char* query : {"?starting_after=3", "?stream=true&starting_after=-1",
                            "?stream=true&starting_after=99999999999999999999"})
    EXPECT_EQ(error_of(client().get(path + query), "param"), "starting_after") << query;
  EXPECT_EQ(send("DELETE " + path).json().at("deleted").as_bool(), true);
  EXPECT_EQ(client().get(path).status, 404u);
  EXPECT_EQ(send("DELETE " + path).status, 404u);
  EXPECT_EQ(client().get("/v1/responses/..%2F..%2Fetc%2Fpasswd").status, 404u);
  EXPECT_EQ(client().get("/v1/responses/x'%20OR%20'1'='1").status, 404u);
}

TEST_F(ResponsesTest, RunsInTheBackgroundAndIsCancelled) {
  engine_->script({{.text = "</think>\n\nDone.", .wait = 50ms}});
  const json::value queued = ask(R"("background":true)").json();
  EXPECT_EQ(text_of(queued.at("status")), "queued");
  const json::value done = wait_for(text_of(queued.at("id")));
  EXPECT_EQ(text_of(done.at("status")), "completed");
  EXPECT_EQ(text_of(done.at("output").at(0).at("content").at(0).at("text")), "Done.");

  engine_->forget();
  engine_->script({{.text = "word ", .pace = 1ms, .endless = true}});
  const std::string id = text_of(ask(R"("background":true)").json().at("id"));
  EXPECT_EQ(text_of(client().post("/v1/responses/" + id + "/cancel", "").json().at("status")),
            "cancelled");
  EXPECT_EQ(text_of(wait_for(id).at("status")), "cancelled");
  EXPECT_TRUE(idle_within(1s));
  // Again: as it is.
  EXPECT_EQ(text_of(client().post("/v1/responses/" + id + "/cancel", "").json().at("status")),
            "cancelled");

  // It is one from then on, however long the engine's last step still takes.
  engine_->forget();
  engine_->script({{.text = "word ", .pace = 500ms, .endless = true}});
  const std::string slow = text_of(ask(R"("background":true)").json().at("id"));
  client().post("/v1/responses/" + slow + "/cancel", "");
  EXPECT_EQ(text_of(client().get("/v1/responses/" + slow).json().at("status")), "cancelled");
  EXPECT_TRUE(idle_within(2s));

  engine_->forget();
  engine_->script({{.text = "word ", .pace = 1ms, .endless = true}});
  const std::string gone = text_of(ask(R"("background":true)").json().at("id"));
  EXPECT_EQ(send("DELETE /v1/responses/" + gone).status, 200u);
  EXPECT_TRUE(idle_within(1s));
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(client().get("/v1/responses/" + gone).status, 404u);
}

TEST_F(ResponsesTest, BackgroundOutlivesItsConnection) {
  engine_->script({{.text = "</think>\n\nDone.", .wait = 100ms}});
  std::string id;
  {
    RawClient one = client();
    id = text_of(one.post(kResponses, R"({"input":"x","background":true})").json().at("id"));
    one.close();
  }
  EXPECT_EQ(text_of(wait_for(id).at("status")), "completed");
}

// Events of the background ------------------------------------------------------------------

// The events of a stream from the one numbered `from` on; numbers must have no gaps.
std::vector<std::string> blocks_of(const std::string& body, std::int64_t from) {
  std::vector<std::string> blocks;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = std::min(body.find("\n\n", at), body.size());
    const std::string block = body.substr(at, end - at);
    at = end + 2;
    if (block.starts_with(":")) continue;  // a sign of life
    blocks.push_back(block);
    const json::value data = json::parse(block.substr(block.find("\ndata: ") + 7));
    EXPECT_EQ(data.at("sequence_number").as_int64(), from++) << block;
  }
  return blocks;
}

std::string id_in(const std::string& body) {
  const std::size_t at = body.find("\"resp_") + 1;
  return body.substr(at, body.find('"', at) - at);
}

TEST_F(ResponsesTest, ABackgroundStreamHasEveryStepAndIsTheSameWheneverItIsRead) {
  engine_->script({{.text = kCall, .wait = 30ms}});
  const RawResponse live = ask(kFunction + R"(,"background":true,"stream":true)");
  ASSERT_EQ(live.status, 200u) << live.body;
  const auto events = blocks_of(live.body, 0);
  ASSERT_GT(events.size(), 8u);
  EXPECT_THAT(events[0], ::testing::StartsWith("event: response.created\n"));
  EXPECT_THAT(events[1], ::testing::StartsWith("event: response.queued\n"));
  EXPECT_THAT(events[2], ::testing::StartsWith("event: response.in_progress\n"));
  EXPECT_THAT(events[2], HasSubstr(R"("status":"in_progress")"));
  EXPECT_THAT(events.back(), ::testing::StartsWith("event: response.completed\n"));
  std::string arguments;
  for (const std::string& event : events) {
    if (!event.starts_with("event: response.function_call_arguments.delta")) continue;
    arguments += text_of(json::parse(event.substr(event.find("data: ") + 6)).at("delta"));
  }
  EXPECT_EQ(json::parse(arguments), json::value({{"city", "Oslo"}, {"days", 3}}));
  const std::string path = "/v1/responses/" + id_in(live.body);
  EXPECT_EQ(client().get(path).json(),
            json::parse(events.back().substr(events.back().find("data: ") + 6)).at("response"));
  EXPECT_EQ(client().get(path + "?stream=true").body, live.body);
  for (std::size_t after = 0; after < events.size(); ++after) {
    const auto rest =
        blocks_of(client().get(fmt::format("{}?stream=true&starting_after={}", path, after)).body,
                  static_cast<std::int64_t>(after) + 1);
    EXPECT_EQ(rest,
              std::vector(events.begin() + static_cast<std::ptrdiff_t>(after) + 1, events.end()));
  }
  EXPECT_EQ(client().get(path + "?stream=true&starting_after=100000").body, "");
}

TEST_F(ResponsesTest, ABackgroundStreamGoesOnWithoutItsClientAndIsReadOnLive) {
  engine_->script({{.text = "</think>\n\nword word ", .pace = 1ms, .endless = true}});
  std::string begun;
  {
    RawClient one = client();
    const std::string text = R"({"input":"x","background":true,"stream":true})";
    one.send("POST /v1/responses HTTP/1.1\r\nContent-Length: " + std::to_string(text.size()) +
             "\r\n\r\n" + text);
    ASSERT_TRUE(one.wait_for("output_text.delta"));
    begun = one.input();
    one.close();
  }
  const std::string path = "/v1/responses/" + id_in(begun);
  // It goes on, and shows what it has written.
  const auto text = [&] {
    const json::value body = client().get(path).json();
    EXPECT_EQ(text_of(body.at("status")), "in_progress");
    return text_of(body.at("output").at(0).at("content").at(0).at("text"));
  };
  const std::string early = text();
  EXPECT_THAT(early, ::testing::StartsWith("word"));
  for (int i = 0; i < 1000 && text().size() == early.size(); ++i) std::this_thread::sleep_for(1ms);
  EXPECT_GT(text().size(), early.size());
  // Two clients, one from the middle; both see the end.
  RawClient all = client(), some = client();
  all.send("GET " + path + "?stream=true HTTP/1.1\r\n\r\n");
  some.send("GET " + path + "?stream=true&starting_after=4 HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(some.wait_for("output_text.delta"));
  EXPECT_EQ(client().post(path + "/cancel", "").status, 200u);
  const auto whole = blocks_of(all.read_response().body, 0);
  EXPECT_EQ(blocks_of(some.read_response().body, 5), std::vector(whole.begin() + 5, whole.end()));
  EXPECT_THAT(whole.back(), HasSubstr(R"("status":"cancelled")"));
  EXPECT_EQ(text_of(wait_for(id_in(begun)).at("status")), "cancelled");
  const auto stored = blocks_of(client().get(path + "?stream=true").body, 0);
  EXPECT_EQ(whole, stored);
  const json::value body = client().get(path).json();
  std::string joined;
  for (const std::string& event : stored) {
    if (!event.starts_with("event: response.output_text.delta")) continue;
    joined += text_of(json::parse(event.substr(event.find("data: ") + 6)).at("delta"));
  }
  EXPECT_EQ(text_of(body.at("output").at(0).at("content").at(0).at("text")), joined);
}

TEST_F(ResponsesTest, AServerThatStopsEndsBackgroundStreamsWithAFailure) {
  engine_->script({{.text = "</think>\n\nword ", .pace = 1ms, .endless = true}});
  RawClient one = client();
  const std::string text = R"({"input":"x","background":true,"stream":true})";
  one.send("POST /v1/responses HTTP/1.1\r\nContent-Length: " + std::to_string(text.size()) +
           "\r\n\r\n" + text);
  ASSERT_TRUE(one.wait_for("output_text.delta"));
  service_->cut();
  const auto events = blocks_of(one.read_response().body, 0);
  EXPECT_THAT(events.back(), ::testing::StartsWith("event: response.failed\n"));
  EXPECT_THAT(events.back(), HasSubstr("the server is stopping"));
}

TEST_F(ResponsesTest, AClientThatReadsNothingHoldsUpNobody) {
  engine_->script({{.text = "</think>\n\n" + std::string(4000, 'x'), .bytes = true}});
  RawClient lazy = client();
  lazy.receive_buffer(32 * 1024);
  const std::string text =
      R"({"input":"x","background":true,"stream":true,"max_output_tokens":1900})";
  lazy.send("POST /v1/responses HTTP/1.1\r\nContent-Length: " + std::to_string(text.size()) +
            "\r\n\r\n" + text);
  ASSERT_TRUE(lazy.wait_for("\"resp_"));
  const json::value done = wait_for(id_in(lazy.input().substr(lazy.input().find("\"resp_"))));
  EXPECT_EQ(text_of(done.at("status")), "incomplete");
  EXPECT_THAT(blocks_of(lazy.read_response().body, 0).back(),
              ::testing::StartsWith("event: response.incomplete\n"));
}

TEST_F(ResponsesTest, OtherKeysFindNothing) {
  ApiOptions options;
  options.access.keys = {"one", "two"};
  rebuild(std::move(options));
  engine_->script({{.text = "</think>\n\nDone."}});
  const auto as = [](const std::string& key) {
    return "Content-Type: application/json\r\nAuthorization: Bearer " + key + "\r\n";
  };
  const std::string id = text_of(
      send("POST /v1/responses", as("one"), R"({"input":"x","background":true})").json().at("id"));
  const std::string path = "/v1/responses/" + id;
  for (int i = 0; i < 1000; ++i) {
    if (text_of(send("GET " + path, as("one")).json().at("status")) == "completed") break;
    std::this_thread::sleep_for(2ms);
  }
  EXPECT_EQ(send("GET " + path, as("two")).status, 404u);
  EXPECT_EQ(send("GET " + path + "?stream=true", as("two")).status, 404u);
  EXPECT_EQ(send("GET " + path + "/input_items", as("two")).status, 404u);
  EXPECT_EQ(send("POST " + path + "/cancel", as("two")).status, 404u);
  EXPECT_EQ(send("DELETE " + path, as("two")).status, 404u);
  const std::string more = R"({"input":"y","previous_response_id":")" + id + "\"}";
  EXPECT_EQ(send("POST /v1/responses", as("two"), more).status, 404u);
  EXPECT_EQ(send("POST /v1/responses", as("one"), more).status, 200u);
  EXPECT_EQ(send("GET " + path + "?stream=true", as("one")).status, 200u);
  EXPECT_EQ(send("DELETE " + path, as("one")).status, 200u);
}

TEST_F(ResponsesTest, OfOneThatAKilledServerRanTheEndIsToldAfterwards) {
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("strata-killed-{}.sqlite", ::getpid()))
          .string();
  std::filesystem::remove(path);
  ASSERT_TRUE(ResponseStore::open(path).value()->put(
      {"resp_1", "", "", R"({"id":"resp_1","status":"in_progress","background":true,"output":[]})",
       "[]", ""},
      std::time(nullptr)));
  ApiOptions options;
  options.responses = std::make_shared<Responses>(ResponseStore::open(path).value());
  rebuild(std::move(options));
  EXPECT_EQ(text_of(client().get("/v1/responses/resp_1").json().at("status")), "failed");
  const auto events =
      blocks_of(client().get("/v1/responses/resp_1?stream=true&starting_after=41").body, 42);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_THAT(events[0], ::testing::StartsWith("event: response.failed\n"));
  EXPECT_THAT(events[0], HasSubstr("the server stopped before the response was complete"));
  rebuild({});
  std::filesystem::remove(path);
}

// A connection whose system takes bytes when the test says so.
class ManualWriter final : public ResponseWriter {
 public:
  void send(HttpResponse) override {}
  void begin_stream(HttpResponse, KeepAlive) override {}
  void hold_stream(HttpResponse, KeepAlive) override {}
  void write(std::string piece) override { written += piece; }
  void end_stream() override { ended = true; }
  void when_sent(std::function<void()> function) override { sent_ = std::move(function); }
  void on_close(std::function<void()> function) override { close_ = std::move(function); }
  void post(std::function<void()> function) override { posted_.push_back(std::move(function)); }
  void run() {
    while (!posted_.empty()) {
      const auto function = std::move(posted_.front());
      posted_.erase(posted_.begin());
      function();
    }
  }
  void take() {
    if (const auto function = std::exchange(sent_, nullptr)) function();
    run();
  }
  void leave() {
    close_ = nullptr;
    sent_ = nullptr;
  }
  std::string written;
  bool ended = false;

 private:
  std::function<void()> sent_, close_;
  std::vector<std::function<void()>> posted_;
};

void add_word(ResponseEvents& events, int number) {
  events.add(
      "response.output_text.delta",
      {{"item_id", "msg_1"}, {"logprobs", json::array()}, {"delta", fmt::format("{} ", number)}});
}

TEST(ResponseEvents, ASlowReaderIsBehindAndGoesOn) {
  const auto events = std::make_shared<ResponseEvents>();
  const auto writer = std::make_shared<ManualWriter>();
  add_word(*events, 0);
  events->stream(writer, 0);
  writer->run();
  const std::size_t one = writer->written.size();
  EXPECT_GT(one, 0u);
  for (int i = 1; i < 2000; ++i) add_word(*events, i);
  writer->run();
  EXPECT_EQ(writer->written.size(), one) << "nothing is written before the last was taken";
  writer->take();
  EXPECT_GT(writer->written.size(), one);
  EXPECT_LT(writer->written.size(), one + 100'000) << "a bounded piece at a time";
  events->end();
  for (int i = 0; i < 20 && !writer->ended; ++i) writer->take();
  EXPECT_TRUE(writer->ended);
  EXPECT_EQ(events_of(writer->written).size(), 2000u);
  writer->leave();
}

TEST(ResponseEvents, AReaderThatFallsTooFarBehindIsToldSo) {
  const auto events = std::make_shared<ResponseEvents>(10'000);
  const auto writer = std::make_shared<ManualWriter>();
  add_word(*events, 0);
  events->stream(writer, 0);
  writer->run();
  for (int i = 1; i < 2000; ++i) add_word(*events, i);
  writer->take();
  EXPECT_TRUE(writer->ended);
  const auto told = events_of(writer->written);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(text_of(told[1].at("type")), "error");
  EXPECT_EQ(text_of(told[1].at("code")), "events_lost");
  writer->leave();
}

TEST(ResponseEvents, AreBoundedAndTellWhatIsGone) {
  ResponseEvents events(10'000);
  for (int i = 0; i < 1000; ++i) {
    events.add("response.output_text.delta", {{"item_id", i < 990 ? "msg_1" : "msg_2"},
                                              {"logprobs", json::array()},
                                              {"delta", fmt::format("{} ", i)}});
  }
  EXPECT_EQ(events.next(), 1000u);
  EXPECT_GT(events.first(), 500u);
  EXPECT_LT(events.first(), 999u);
  const auto again = ResponseEvents::from(events.stored()).value();
  EXPECT_EQ(again->first(), events.first());
  EXPECT_EQ(again->next(), 1000u);
  EXPECT_EQ(again->stored(), events.stored());
  const std::string text = events.stored();
  for (std::size_t cut = 0; cut < text.size(); cut += 7)
    EXPECT_FALSE(ResponseEvents::from(text.substr(0, cut)));
  for (const char* bad : {"[]", "{}", R"({"first":-1,"frames":[],"events":[]})",
                          R"({"first":0,"frames":[["a"]],"events":[]})",
                          R"({"first":0,"frames":[["a","{}"]],"events":[1]})",
                          R"({"first":0,"frames":[["a","{}"]],"events":["x"]})"})
    EXPECT_FALSE(ResponseEvents::from(bad)) << bad;
}

TEST_F(ResponsesTest, RefusesByName) {
  const std::pair<const char*, const char*> table[] = {
      {R"({})", "input"},
      {R"({"input":5})", "input"},
      {R"({"input":[]})", "input"},
      {R"({"input":[5]})", "input[0]"},
      {R"({"input":[{"type":"item_reference","id":"x"}]})", "input[0]"},
      {R"({"input":[{"type":"message","role":"tool","content":"x"}]})", "input[0].role"},
      {R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})", "input[0].content[0]"},
      {R"({"input":[{"type":"function_call","arguments":"{}"}]})", "input[0].name"},
      {R"({"input":"x","conversation":"c"})", "conversation"},
      {R"({"input":"x","prompt":{"id":"p"}})", "prompt"},
      {R"({"input":"x","truncation":"auto"})", "truncation"},
      {R"({"input":"x","text":{"format":{"type":"json_schema"}}})", "text.format.schema"},
      {R"({"input":"x","tools":[{"type":"unheard"}]})", "tools[0]"},
      {R"({"input":"x","tools":[{"type":"function"}]})", "tools[0]"},
      {R"({"input":"x","tools":[{"type":"function","name":"f>"}]})", "tools[0]"},
      {R"({"input":"x","tool_choice":"required"})", "tool_choice"},
      {R"({"input":"x","metadata":{"a":5}})", "metadata"},
      {R"({"input":"x","include":["file_search_call.results"]})", "include"},
      {R"({"input":"x","background":true,"store":false})", "store"},
      {R"({"input":"x","reasoning":{"effort":"huge"}})", "reasoning.effort"},
      {R"({"input":"x","max_output_tokens":-5})", "max_output_tokens"},
      {R"({"input":"x","max_output_tokens":5000})", "input"},
      {R"({"input":"x","temprature":1})", "temprature"},
  };
  for (const auto& [text, param] : table) {
    const RawResponse refused = client().post(kResponses, text);
    EXPECT_EQ(refused.status, 400u) << text << "\n" << refused.body;
    EXPECT_EQ(error_of(refused, "param"), param) << text;
  }
  EXPECT_THAT(error_of(client().post(kResponses, R"({"input":"x","temprature":1})")),
              HasSubstr("did you mean 'temperature'?"));
  EXPECT_EQ(client().post("/v1/responses/resp_none/cancel", "").status, 404u);
  const std::string id = text_of(ask("").json().at("id"));
  EXPECT_EQ(client().post("/v1/responses/" + id + "/cancel", "").status, 400u);
}

TEST_F(ResponsesTest, LogprobsAndEncryptedReasoningWhenIncluded) {
  engine_->script({{.text = "Hm.\n</think>\n\nHi"}});
  const json::value body = ask(R"("include":["reasoning.encrypted_content",
      "message.output_text.logprobs"],"top_logprobs":2)")
                               .json();
  EXPECT_EQ(text_of(body.at("output").at(0).at("encrypted_content")), "SG0u");
  const json::array& items = body.at("output").at(1).at("content").at(0).at("logprobs").as_array();
  ASSERT_FALSE(items.empty());
  EXPECT_EQ(text_of(items.back().at("token")), "Hi");
  EXPECT_EQ(items.back().at("top_logprobs").as_array().size(), 2u);
}

// The store --------------------------------------------------------------------------------

StoredResponse stored(const std::string& id, const std::string& previous = "",
                      const std::string& status = "completed") {
  return {id, "", previous, R"({"id":")" + id + R"(","status":")" + status + "\"}", "[]", ""};
}

TEST(ResponseStore, ForgetsWhatExpires) {
  auto store = ResponseStore::open("", {.lifetime = 100}).value();
  ASSERT_TRUE(store->put(stored("a"), 1000));
  EXPECT_TRUE(store->get("a", "", 1099));
  EXPECT_EQ(store->get("a", "", 1100).error().code, ErrorCode::not_found);
  ASSERT_TRUE(store->put(stored("b"), 1200));
  EXPECT_EQ(store->count().value(), 1u);
}

TEST(ResponseStore, HasBounds) {
  auto store = ResponseStore::open("", {.responses = 10}).value();
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(store->put(stored(fmt::format("r{}", i)), i));
  EXPECT_LE(store->count().value(), 10u);
  EXPECT_TRUE(store->get("r49", "", 50));
  EXPECT_FALSE(store->get("r0", "", 50));
  store = ResponseStore::open("", {.bytes = 1000}).value();
  StoredResponse large = stored("x");
  large.input = std::string(2000, ' ');
  EXPECT_EQ(store->put(large, 1).error().code, ErrorCode::exhausted);
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(store->put(stored(fmt::format("r{}", i)), i));
  EXPECT_LT(store->count().value(), 40u);
}

TEST(ResponseStore, ChainsFromTheOldestAndRefusesGapsAndCircles) {
  auto store = ResponseStore::open("", {.chain = 5}).value();
  ASSERT_TRUE(store->put(stored("a"), 1));
  ASSERT_TRUE(store->put(stored("b", "a"), 1));
  ASSERT_TRUE(store->put(stored("c", "b"), 1));
  const auto chain = store->chain("c", "", 2).value();
  ASSERT_EQ(chain.size(), 3u);
  EXPECT_EQ(chain[0].id, "a");
  ASSERT_TRUE(store->remove("b", ""));
  EXPECT_THAT(store->chain("c", "", 2).error().message, HasSubstr("no response 'b'"));
  ASSERT_TRUE(store->put(stored("x", "y"), 1));
  ASSERT_TRUE(store->put(stored("y", "x"), 1));
  EXPECT_EQ(store->chain("x", "", 2).error().code, ErrorCode::exhausted);
}

class StoreFile : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ =
        (std::filesystem::temp_directory_path() / fmt::format("strata-store-{}.sqlite", ::getpid()))
            .string();
    std::filesystem::remove(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string path_;
};

TEST_F(StoreFile, SurvivesARestartAndFailsWhatWasOnItsWay) {
  {
    auto store = ResponseStore::open(path_).value();
    ASSERT_TRUE(store->put(stored("a"), 1));
    ASSERT_TRUE(store->put(stored("b", "", "in_progress"), 1));
    const auto second = ResponseStore::open(path_);
    ASSERT_FALSE(second) << "two programs on one file";
    EXPECT_EQ(second.error().code, ErrorCode::unavailable);
  }
  auto store = ResponseStore::open(path_).value();
  EXPECT_THAT(store->get("a", "", 2).value().body, HasSubstr("completed"));
  const json::value failed = json::parse(store->get("b", "", 2).value().body);
  EXPECT_EQ(text_of(failed.at("status")), "failed");
  EXPECT_EQ(text_of(failed.at("error").at("code")), "server_error");
}

TEST_F(StoreFile, TakesOverWhatTheFirstVersionWrote) {
  {
    sqlite3* file = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &file), SQLITE_OK);
    EXPECT_EQ(
        sqlite3_exec(file,
                     "PRAGMA application_id=1400140385; PRAGMA user_version=1;"
                     "CREATE TABLE responses (id TEXT PRIMARY KEY, created INTEGER, expires "
                     "INTEGER, previous TEXT, body TEXT, input TEXT, bytes INTEGER);"
                     "INSERT INTO responses VALUES('a',1,1000,'','{\"status\":\"completed\"}',"
                     "'[]',2);",
                     nullptr, nullptr, nullptr),
        SQLITE_OK);
    sqlite3_close(file);
  }
  for (int i = 0; i < 2; ++i) {
    auto store = ResponseStore::open(path_).value();
    EXPECT_TRUE(store->get("a", "", 2));
    EXPECT_FALSE(store->get("a", "someone", 2));
    EXPECT_EQ(store->events("a", "", 2).value(), "");
    ASSERT_TRUE(store->put({"b", "me", "", "{}", "[]", "told"}, 3));
    EXPECT_EQ(store->events("b", "me", 4).value(), "told");
    EXPECT_FALSE(store->events("b", "", 4));
  }
}

TEST_F(StoreFile, TouchesNothingOfOthers) {
  std::ofstream(path_) << "this is no database, but a text of some length that must stay";
  EXPECT_FALSE(ResponseStore::open(path_));
  std::ifstream in(path_);
  std::string word;
  in >> word;
  EXPECT_EQ(word, "this");
  EXPECT_FALSE(ResponseStore::open("/nonexistent/folder/x.sqlite"));
}

}  // namespace
}  // namespace strata::server::testing
