// OpenAI's Responses over real sockets, and the store under them.
#include "server/openai_responses.h"

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
  EXPECT_EQ(client().get(path + "?stream=true").status, 400u);
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
      {R"({"input":"x","text":{"format":{"type":"json_schema"}}})", "text.format"},
      {R"({"input":"x","tools":[{"type":"unheard"}]})", "tools[0]"},
      {R"({"input":"x","tools":[{"type":"function"}]})", "tools[0]"},
      {R"({"input":"x","tool_choice":"required"})", "tool_choice"},
      {R"({"input":"x","metadata":{"a":5}})", "metadata"},
      {R"({"input":"x","include":["file_search_call.results"]})", "include"},
      {R"({"input":"x","background":true,"stream":true})", "background"},
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
  return {id, previous, R"({"id":")" + id + R"(","status":")" + status + "\"}", "[]"};
}

TEST(ResponseStore, ForgetsWhatExpires) {
  auto store = ResponseStore::open("", {.lifetime = 100}).value();
  ASSERT_TRUE(store->put(stored("a"), 1000));
  EXPECT_TRUE(store->get("a", 1099));
  EXPECT_EQ(store->get("a", 1100).error().code, ErrorCode::not_found);
  ASSERT_TRUE(store->put(stored("b"), 1200));
  EXPECT_EQ(store->count().value(), 1u);
}

TEST(ResponseStore, HasBounds) {
  auto store = ResponseStore::open("", {.responses = 10}).value();
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(store->put(stored(fmt::format("r{}", i)), i));
  EXPECT_LE(store->count().value(), 10u);
  EXPECT_TRUE(store->get("r49", 50));
  EXPECT_FALSE(store->get("r0", 50));
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
  const auto chain = store->chain("c", 2).value();
  ASSERT_EQ(chain.size(), 3u);
  EXPECT_EQ(chain[0].id, "a");
  ASSERT_TRUE(store->remove("b"));
  EXPECT_THAT(store->chain("c", 2).error().message, HasSubstr("no response 'b'"));
  ASSERT_TRUE(store->put(stored("x", "y"), 1));
  ASSERT_TRUE(store->put(stored("y", "x"), 1));
  EXPECT_EQ(store->chain("x", 2).error().code, ErrorCode::exhausted);
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
  EXPECT_THAT(store->get("a", 2).value().body, HasSubstr("completed"));
  const json::value failed = json::parse(store->get("b", 2).value().body);
  EXPECT_EQ(text_of(failed.at("status")), "failed");
  EXPECT_EQ(text_of(failed.at("error").at("code")), "server_error");
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
