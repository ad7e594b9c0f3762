// What must hold in every dialect: answers of a form come byte for byte, deep schemas and arguments
// pass, and what is too deep is told the limit.
#include "base/json.h"
#include "tests/server/api_fixture.h"

namespace strata::server::testing {
namespace {

enum class Dialect { chat, completions, responses, messages };
constexpr Dialect kAll[] = {Dialect::chat, Dialect::completions, Dialect::responses,
                            Dialect::messages};
constexpr Dialect kOfChats[] = {Dialect::chat, Dialect::responses, Dialect::messages};

std::string json_text(std::string_view text) {
  return json::serialize(json::string(text));
}

// Objects in objects; the innermost one has an integer.
std::string nested_schema(int objects) {
  std::string schema = R"({"type":"integer"})";
  for (int i = 0; i < objects; ++i)
    schema = R"({"type":"object","properties":{"a":)" + schema +
             R"(},"required":["a"],"additionalProperties":false})";
  return schema;
}

std::string nested_lists(int levels) {
  return std::string(static_cast<std::size_t>(levels), '[') +
         std::string(static_cast<std::size_t>(levels), ']');
}

class Dialects : public ApiTest {
 protected:
  RawResponse ask(Dialect dialect, const std::string& members) {
    const std::string more = members.empty() ? "}" : "," + members + "}";
    switch (dialect) {
      case Dialect::chat:
        return client().post(kChat, R"({"model":"any","messages":)" + kHello + more);
      case Dialect::completions:
        return client().post("/v1/completions", R"({"model":"any","prompt":"hi")" + more);
      case Dialect::responses:
        return client().post("/v1/responses", R"({"model":"any","input":"hi")" + more);
      case Dialect::messages:
        return client().post("/v1/messages",
                             R"({"model":"any","max_tokens":400,"messages":)" + kHello + more);
    }
    return {};
  }

  // The member that asks for a form; `inner`: of response_format.
  static std::string format(Dialect dialect, const std::string& inner) {
    if (dialect == Dialect::responses) return R"("text":{"format":{)" + inner + "}}";
    if (dialect == Dialect::messages) return R"("output_config":{"format":{)" + inner + "}}";
    return R"("response_format":{)" + inner + "}";
  }
  static std::string schema_format(Dialect dialect, const std::string& schema) {
    const bool flat = dialect == Dialect::responses || dialect == Dialect::messages;
    const std::string named = R"("name":"x","schema":)" + schema;
    if (dialect == Dialect::messages)
      return format(dialect, R"("type":"json_schema","schema":)" + schema);
    return format(dialect, flat ? R"("type":"json_schema",)" + named
                                : R"("type":"json_schema","json_schema":{)" + named + "}");
  }
  static std::string strict_tool(Dialect dialect, const std::string& schema) {
    switch (dialect) {
      case Dialect::responses:
        return R"("tools":[{"type":"function","name":"f","strict":true,"parameters":)" + schema +
               "}]";
      case Dialect::messages:
        return R"("tools":[{"name":"f","strict":true,"input_schema":)" + schema + "}]";
      default:
        return R"("tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":)" +
               schema + "}}]";
    }
  }

  static std::string text_of_whole(Dialect dialect, const json::value& body) {
    switch (dialect) {
      case Dialect::chat:
        return text_of(body.at("choices").at(0).at("message").at("content"));
      case Dialect::completions:
        return text_of(body.at("choices").at(0).at("text"));
      case Dialect::responses:
        return text_of(body.at("output").as_array().back().at("content").at(0).at("text"));
      case Dialect::messages:
        return text_of(body.at("content").as_array().back().at("text"));
    }
    return {};
  }
  static std::string text_of_stream(Dialect dialect, const std::string& body) {
    if (dialect == Dialect::chat) return joined(body).content;
    std::string text;
    for (std::size_t at = 0; (at = body.find("data: {", at)) != body.npos; ++at) {
      const std::size_t begin = at + 6;
      const json::value event = json::parse(body.substr(begin, body.find('\n', begin) - begin));
      const json::object& object = event.as_object();
      if (dialect == Dialect::completions) {
        if (!object.at("choices").as_array().empty())
          text += text_of(event.at("choices").at(0).at("text"));
        continue;
      }
      const std::string type = text_of(object.at("type"));
      if (type == "response.output_text.delta") text += text_of(object.at("delta"));
      if (type == "content_block_delta" && object.at("delta").as_object().contains("text"))
        text += text_of(event.at("delta").at("text"));
    }
    return text;
  }
};

TEST_F(Dialects, AnswersOfAFormComeByteForByte) {
  for (const Dialect dialect : kAll) {
    for (const std::string text : {"\n\nyes", "\n", "\n\n\n", " \r\n yes \n\n"}) {
      for (const bool thinks : {true, false}) {
        if (thinks && dialect == Dialect::completions) continue;
        for (const bool bytes : {true, false}) {
          engine_->script(
              {{.text = (thinks ? "Because.\n</think>\n\n" : "") + text, .bytes = bytes}});
          std::string members = format(
              dialect, R"("type":"grammar","grammar":)" + json_text("root ::= [\\n\\r yes]*"));
          if (!thinks && dialect == Dialect::chat) members += R"(,"reasoning_effort":"none")";
          if (!thinks && dialect == Dialect::responses)
            members += R"(,"reasoning":{"effort":"none"})";
          if (!thinks && dialect == Dialect::messages)
            members += R"(,"thinking":{"type":"disabled"})";
          const RawResponse whole = ask(dialect, members);
          ASSERT_EQ(whole.status, 200u) << whole.body;
          EXPECT_EQ(text_of_whole(dialect, whole.json()), text) << whole.body;
          const RawResponse stream = ask(dialect, members + R"(,"stream":true)");
          ASSERT_EQ(stream.status, 200u) << stream.body;
          EXPECT_EQ(text_of_stream(dialect, stream.body), text) << stream.body;
        }
      }
    }
  }
}

// What is not asked for as a form begins and goes on as ever.
TEST_F(Dialects, FreeAnswersBeginWithTheirText) {
  engine_->script({{.text = "Because.\n</think>\n\n\n\nyes"}});
  for (const Dialect dialect : kOfChats) {
    for (const std::string& members : {std::string(), strict_tool(dialect, nested_schema(1))}) {
      const RawResponse whole = ask(dialect, members);
      ASSERT_EQ(whole.status, 200u) << whole.body;
      EXPECT_EQ(text_of_whole(dialect, whole.json()), "yes");
    }
  }
}

TEST_F(Dialects, SchemasOfSixtyFourLevelsPass) {
  engine_->facts_.context = 1 << 20;
  for (const Dialect dialect : kAll) {
    engine_->script({{.text = dialect == Dialect::completions ? "{}" : "</think>\n\n{}"}});
    EXPECT_EQ(ask(dialect, schema_format(dialect, nested_schema(63))).status, 200u);
    const RawResponse deep = ask(dialect, schema_format(dialect, nested_schema(64)));
    EXPECT_EQ(deep.status, 400u);
    EXPECT_THAT(error_of(deep), HasSubstr("the schema is nested deeper than 128 levels"));
    std::string lists = R"({"type":"integer"})";
    for (int i = 0; i < 64; ++i) lists = R"({"type":"array","items":)" + lists + "}";
    const RawResponse deeper = ask(dialect, schema_format(dialect, lists));
    EXPECT_EQ(deeper.status, 400u);
    EXPECT_THAT(error_of(deeper), HasSubstr("schemas are nested deeper than 64 levels"));
    const RawResponse deepest = ask(dialect, schema_format(dialect, nested_schema(150)));
    EXPECT_EQ(deepest.status, 400u);
    EXPECT_EQ(error_of(deepest),
              "the request body is nested deeper than 288 levels of objects and arrays");
  }
  for (const Dialect dialect : kOfChats) {
    engine_->script({{.text = "</think>\n\nyes"}});
    const RawResponse tool = ask(dialect, strict_tool(dialect, nested_schema(63)));
    EXPECT_EQ(tool.status, 200u) << tool.body;
    EXPECT_EQ(ask(dialect, strict_tool(dialect, nested_schema(64))).status, 400u);
  }
  // What is stored comes back as it was sent.
  const auto parsed = [](const RawResponse& response) { return *parse_json(response.body, "it"); };
  const json::value first =
      parsed(ask(Dialect::responses, strict_tool(Dialect::responses, nested_schema(63))));
  const RawResponse stored = client().get("/v1/responses/" + text_of(first.at("id")));
  ASSERT_EQ(stored.status, 200u);
  EXPECT_EQ(parsed(stored).at("tools"), first.at("tools"));
  EXPECT_THAT(json::serialize(first.at("tools")), HasSubstr(nested_schema(63)));
}

// A document as deep as constraints let one be written, in the history.
TEST_F(Dialects, DeepArgumentsOfACallPass) {
  engine_->facts_.context = 1 << 20;
  engine_->script({{.text = "</think>\n\nyes"}});
  const std::string lists = nested_lists(255), arguments = R"({"x":)" + lists + "}";
  const std::string chat_call =
      R"([{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[{"id":"c","type":"function",
          "function":{"name":"f","arguments":)";
  const std::string chat_end = R"(}}]},{"role":"tool","tool_call_id":"c","content":"1"}])";
  const std::string bodies[] = {
      R"({"messages":)" + chat_call + arguments + chat_end + "}",
      R"({"messages":)" + chat_call + json_text(arguments) + chat_end + "}",
  };
  for (const std::string& text : bodies) {
    const RawResponse response = client().post(kChat, text);
    ASSERT_EQ(response.status, 200u) << response.body;
    EXPECT_THAT(engine_->prompt(engine_->requests() - 1), HasSubstr(lists));
  }
  const RawResponse messages = client().post(
      "/v1/messages",
      R"({"max_tokens":9,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":
          [{"type":"tool_use","id":"c","name":"f","input":)" +
          arguments +
          R"(}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"1"}]}]})");
  ASSERT_EQ(messages.status, 200u) << messages.body;
  EXPECT_THAT(engine_->prompt(engine_->requests() - 1), HasSubstr(lists));
  const RawResponse responses = client().post(
      "/v1/responses",
      R"({"input":[{"role":"user","content":"hi"},{"type":"function_call","call_id":"c","name":"f","arguments":)" +
          json_text(arguments) +
          R"(},{"type":"function_call_output","call_id":"c","output":"1"}]})");
  ASSERT_EQ(responses.status, 200u) << responses.body;
  EXPECT_THAT(engine_->prompt(engine_->requests() - 1), HasSubstr(lists));
}

}  // namespace
}  // namespace strata::server::testing
