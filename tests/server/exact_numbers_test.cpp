// Numbers that no double holds, through every dialect: in calls the model makes, in calls a client
// gives back, in schemas.
#include "base/json_number.h"
#include "tests/server/api_fixture.h"

namespace strata::server::testing {
namespace {

using ::testing::HasSubstr;

class ExactNumbers : public ApiTest {
 protected:
  static inline const std::string kDigits = "123456789012345678901234567890";
  static inline const std::string kSchema =
      R"({"type":"object","properties":{"n":{"const":18446744073709551616},
          "x":{"type":"number","minimum":0.1000000000000000000001,"default":1e400}}})";
  static std::string call(const std::string& value) {
    return "I look.\n</think>\n\n<tool_call>\n<function=get_weather>\n<parameter=days>\n" + value +
           "\n</parameter>\n</function>\n</tool_call>";
  }
  static std::string with_tools(const std::string& rest) {
    return kTools + (rest.empty() ? "" : ",") + rest;
  }
  RawResponse post(const std::string& path, const std::string& text) {
    return client().post(path, text);
  }
};

TEST_F(ExactNumbers, CallsOfTheModelInChat) {
  for (const std::string& value : {kDigits, "-" + kDigits, std::string("1e400")}) {
    engine_->script({{.text = call(value)}});
    const bool integer = value != "1e400";
    const std::string days = integer ? value : "1" + std::string(400, '0');
    EXPECT_THAT(chat(with_tools("")).body, HasSubstr(R"("arguments":"{\"days\":)" + days + "}"));
    engine_->script({{.text = call(value), .bytes = true}});
    const Streamed streamed = joined(chat(with_tools(R"("stream":true)")).body);
    ASSERT_EQ(streamed.calls.size(), 1u);
    EXPECT_EQ(text_of(streamed.calls[0].at("function").at("arguments")), "{\"days\":" + days + "}");
  }
}

TEST_F(ExactNumbers, CallsOfTheModelInMessagesAndResponses) {
  engine_->script({{.text = call(kDigits)}});
  const std::string tools =
      R"("tools":[{"name":"get_weather","input_schema":{"type":"object","properties":{"days":{}}}}])";
  const std::string request = R"({"model":"m","max_tokens":99,"messages":)" + kHello + "," + tools;
  EXPECT_THAT(post("/v1/messages", request + "}").body,
              HasSubstr(R"("input":{"days":)" + kDigits + "}"));
  EXPECT_THAT(post("/v1/messages", request + R"(,"stream":true})").body, HasSubstr(kDigits));
  const std::string functions =
      R"("tools":[{"type":"function","name":"get_weather","parameters":)" + kSchema + "}]";
  const std::string asked = R"({"model":"m","input":"hi",)" + functions;
  const RawResponse whole = post("/v1/responses", asked + "}");
  EXPECT_THAT(whole.body, HasSubstr(R"("arguments":"{\"days\":)" + kDigits + "}"));
  EXPECT_THAT(whole.body, HasSubstr("18446744073709551616"));  // its tools are said again
  EXPECT_THAT(whole.body, HasSubstr("0.1000000000000000000001"));
  EXPECT_THAT(post("/v1/responses", asked + R"(,"stream":true})").body, HasSubstr(kDigits));
}

// But Python would read the last two as infinite.
TEST_F(ExactNumbers, HistoryIsRenderedAsPythonDoes) {
  engine_->script({{.text = "</think>x"}});
  const std::string arguments =
      R"({"days":)" + kDigits +
      R"(,"a":[-9223372036854775809,1.00,0.1000000000000000000001,1e23],"b":-1e400,"c":[1E+999]})";
  const std::string shown[] = {kDigits, "[-9223372036854775809, 1.0, 0.1, 1e+23]", "-1e400",
                               "[1E+999]"};
  const std::string text = write_json(json::value(arguments));
  const std::string openai =
      R"([{"role":"user","content":"hi"},{"role":"assistant","content":"","tool_calls":[{"id":"a",
          "type":"function","function":{"name":"get_weather","arguments":)";
  const std::string result = R"(}}]},{"role":"tool","tool_call_id":"a","content":"1"}])";
  for (const std::string& given : {text, arguments}) {
    engine_->forget();
    ASSERT_EQ(chat(with_tools(""), openai + given + result).status, 200u);
    for (const std::string& part : shown) EXPECT_THAT(engine_->prompt(0), HasSubstr(part));
    const RawResponse applied = post("/apply-template", body(kTools, openai + given + result));
    for (const std::string& part : shown) EXPECT_THAT(applied.body, HasSubstr(part));
  }
  engine_->forget();
  const std::string messages =
      R"({"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"},{"role":"assistant",
          "content":[{"type":"tool_use","id":"a","name":"get_weather","input":)" +
      arguments + R"(}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a",
          "content":"1"}]}]})";
  ASSERT_EQ(post("/v1/messages", messages).status, 200u);
  for (const std::string& part : shown) EXPECT_THAT(engine_->prompt(0), HasSubstr(part));
  engine_->forget();
  const std::string items =
      R"({"model":"m","input":[{"role":"user","content":"hi"},{"type":"function_call","call_id":"a",
          "name":"get_weather","arguments":)" +
      text + R"(},{"type":"function_call_output","call_id":"a","output":"1"}]})";
  ASSERT_EQ(post("/v1/responses", items).status, 200u);
  for (const std::string& part : shown) EXPECT_THAT(engine_->prompt(0), HasSubstr(part));
}

TEST_F(ExactNumbers, SchemasReachTheEngineAsTheyAre) {
  const std::string numbers[] = {"18446744073709551616", "0.1000000000000000000001"};
  const auto expect_form = [&](const RawResponse& response) {
    ASSERT_EQ(response.status, 200u) << response.body;
    for (const std::string& number : numbers)
      EXPECT_THAT(engine_->request(0).grammar, HasSubstr(number));
    engine_->forget();
  };
  engine_->script({{.text = "</think>{}"}});
  expect_form(
      chat(R"("response_format":{"type":"json_schema","json_schema":{"name":"a","schema":)" +
           kSchema + "}}"));
  expect_form(chat(R"("json_schema":)" + kSchema));
  expect_form(chat(R"("tool_choice":"required","tools":[{"type":"function","function":{"name":"f",
                      "strict":true,"parameters":)" +
                   kSchema + "}}]"));
  expect_form(post("/v1/completions", R"({"prompt":"a","json_schema":)" + kSchema + "}"));
  expect_form(post("/v1/responses",
                   R"({"model":"m","input":"a","text":{"format":{"type":"json_schema","name":"a",
                       "schema":)" +
                       kSchema + "}}}"));
  expect_form(
      post("/v1/messages", R"({"model":"m","max_tokens":9,"messages":)" + kHello +
                               R"(,"tool_choice":{"type":"any"},"tools":[{"name":"f","strict":true,
                          "input_schema":)" +
                               kSchema + "}]}"));
}

TEST_F(ExactNumbers, SharedSettingsAreKeptAsTheyAre) {
  MemoryFileSystem files;
  ServiceOptions options;
  options.settings_file = "settings.json";
  options.files = &files;
  serve_again(options);
  const RawResponse shared =
      post("/settings", R"({"defaults":{"temperature":0.70000000000000000001}})");
  EXPECT_THAT(shared.body, HasSubstr(R"({"defaults":{"temperature":0.70000000000000000001})"));
  EXPECT_EQ(*files.read_text("settings.json"),
            "{\"defaults\":{\"temperature\":0.70000000000000000001}}\n");
  serve_again(options);
  EXPECT_EQ(chat("").status, 200u);
  EXPECT_FLOAT_EQ(engine_->request(0).sampling.temperature, 0.7f);
}

TEST_F(ExactNumbers, WhatIsRefusedIsNamed) {
  const RawResponse bound = chat(R"("json_schema":{"properties":{"a":{"minimum":1e400}}})");
  EXPECT_EQ(bound.status, 400u);
  EXPECT_THAT(error_of(bound),
              HasSubstr("'json_schema': #/properties/a: minimum: the number is larger"));
  EXPECT_EQ(chat(R"("json_schema":{"type":"null","default":1e400})").status, 200u);
  for (const std::string member :
       {R"("temperature":1e400)", R"("stop":1e400)", R"("tool_choice":1e400)", R"("tools":1e400)",
        R"("tools":[1e400])", R"("logit_bias":1e400)", R"("response_format":1e400)",
        R"("stream_options":1e400)", R"("chat_template_kwargs":1e400)", R"("drafts":1e400)",
        R"("tools":[{"type":"function","function":1e400}])",
        R"("tools":[{"type":"function","function":{"name":"a","parameters":1e400}}])"}) {
    const RawResponse response = chat(member);
    EXPECT_EQ(response.status, 400u) << member << response.body;
    EXPECT_TRUE(parse_json(response.body, "it")) << member;  // valid UTF-8
  }
  for (const std::string messages : {"1e400", "[1e400]", R"([{"role":"user","content":1e400}])",
                                     R"([{"role":"user","content":[1e400]}])"})
    EXPECT_EQ(chat("", messages).status, 400u) << messages;
  EXPECT_EQ(chat(R"("temperature":0.70000000000000000001,"max_tokens":8)").status, 200u);
  const RawResponse exponent = chat(R"("json_schema":{"const":1e2147483648})");
  EXPECT_EQ(exponent.status, 400u);
  EXPECT_THAT(error_of(exponent), HasSubstr("has a number whose exponent is beyond 2147483647: "
                                            "1e2147483648 at byte "));
}

}  // namespace
}  // namespace strata::server::testing
