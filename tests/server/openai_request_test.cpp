#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/openai_chat.h"

namespace strata::server {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kHello = R"([{"role":"user","content":"hi"}])";

// A valid request with more members.
std::string with(const std::string& members) {
  return R"({"model":"any","messages":)" + std::string(kHello) + (members.empty() ? "" : ",") +
         members + "}";
}

OpenAiChatRequest accepted(const std::string& body, const Sampling& defaults = {}) {
  ChatRequest open;
  open.sampling = defaults;
  auto parsed = parse_openai_chat(body, open);
  EXPECT_TRUE(parsed) << body << ": " << (parsed ? "" : parsed.error().message);
  return parsed ? std::move(*parsed) : OpenAiChatRequest{};
}

ApiError refused(const std::string& body) {
  auto parsed = parse_openai_chat(body, {});
  EXPECT_FALSE(parsed) << body;
  ApiError error = parsed ? ApiError{0, "", "", ""} : parsed.error();
  EXPECT_EQ(error.status, 400u) << body;
  return error;
}

chat::Message message(const std::string& json) {
  auto request = accepted(R"({"messages":[)" + json + "]}");
  return request.chat.conversation.messages.empty() ? chat::Message{}
                                                    : request.chat.conversation.messages[0];
}

TEST(OpenAiRequest, DefaultsComeFromTheModel) {
  Sampling defaults;
  defaults.temperature = 0.7f;
  defaults.top_k = 20;
  defaults.top_p = 0.95f;
  const auto request = accepted(with(""), defaults);
  EXPECT_FLOAT_EQ(request.chat.sampling.temperature, 0.7f);
  EXPECT_EQ(request.chat.sampling.top_k, 20);
  EXPECT_FLOAT_EQ(request.chat.sampling.top_p, 0.95f);
  EXPECT_EQ(request.chat.max_tokens, 0u);
  EXPECT_FALSE(request.stream);
  // Unseeded samples differ from request to request; seeded ones do not.
  EXPECT_NE(accepted(with(""), defaults).chat.sampling.seed, request.chat.sampling.seed);
  EXPECT_EQ(accepted(with(R"("seed":7)"), defaults).chat.sampling.seed, 7u);
  EXPECT_FLOAT_EQ(accepted(with(R"("temperature":0)"), defaults).chat.sampling.temperature, 0);
}

TEST(OpenAiRequest, ReadsWhatItHonours) {
  const auto request = accepted(with(
      R"("temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.05,"seed":42,"stop":["a","","b"],
         "max_tokens":5,"max_completion_tokens":9,"stream":true,
         "stream_options":{"include_usage":true},"reasoning_effort":"minimal",
         "chat_template_kwargs":{"preserve_thinking":false,"custom":1})"));
  EXPECT_FLOAT_EQ(request.chat.sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(request.chat.sampling.top_p, 0.9f);
  EXPECT_FLOAT_EQ(request.chat.sampling.min_p, 0.05f);
  EXPECT_EQ(request.chat.sampling.top_k, 40);
  EXPECT_EQ(request.chat.sampling.seed, 42u);
  EXPECT_THAT(request.chat.stops, ::testing::ElementsAre("a", "b"));
  EXPECT_EQ(request.chat.max_tokens, 9u);
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.include_usage);
  const auto& arguments = request.chat.conversation.template_arguments;
  EXPECT_EQ(arguments.at("reasoning_effort").as_string(), "none");
  EXPECT_FALSE(arguments.at("enable_thinking").as_bool());
  EXPECT_FALSE(arguments.at("preserve_thinking").as_bool());
  EXPECT_EQ(arguments.at("custom").as_int64(), 1);
}

TEST(OpenAiRequest, NoLimitIsSpelledInFourWays) {
  for (const char* member :
       {"", R"("max_tokens":null)", R"("max_tokens":0)", R"("max_tokens":-1)"}) {
    EXPECT_EQ(accepted(with(member)).chat.max_tokens, 0u) << member;
  }
}

TEST(OpenAiRequest, AcceptsHarmlessAndNeutralMembers) {
  accepted(with(
      R"("user":"u","store":true,"metadata":{"a":"b"},"service_tier":"auto","n":1,
         "parallel_tool_calls":true,"logprobs":false,"top_logprobs":0,"logit_bias":{},
         "presence_penalty":0,"frequency_penalty":0.0,"repetition_penalty":1.0,
         "verbosity":"medium","reasoning_format":"auto","reasoning_budget_tokens":-1,
         "response_format":{"type":"text"},"modalities":["text"],"tool_choice":"auto",
         "stop":null,"unheard_of":null)"));
}

// By what they say, each request its own copy.
TEST(OpenAiRequest, TakesLargeBiases) {
  const auto body = [](std::size_t count, int changed) {
    std::string biases;
    for (std::size_t i = count; i-- > 0;) {
      biases +=
          fmt::format("\"{}\":{},", i * 3, i == 77 ? changed : static_cast<int>(i % 201) - 100);
    }
    biases.pop_back();
    return with(R"("logit_bias":{)" + biases + "}");
  };
  const auto first = accepted(body(65'536, 1)), second = accepted(body(65'536, 2));
  ASSERT_EQ(first.chat.logit_bias.size(), 65'536u);
  for (std::size_t i = 0; i < 65'536; ++i) {
    ASSERT_EQ(first.chat.logit_bias[i].id, static_cast<TokenId>(i * 3));
    ASSERT_EQ(first.chat.logit_bias[i].bias, i == 77 ? 1 : static_cast<float>(i % 201) - 100) << i;
  }
  EXPECT_EQ(second.chat.logit_bias[77].bias, 2);
  EXPECT_EQ(refused(body(kMaxBiases + 1, 1)).param, "logit_bias");
}

TEST(OpenAiRequest, RefusesByName) {
  const std::pair<const char*, const char*> table[] = {
      {R"("n":0)", "n"},
      {R"("n":1000000)", "n"},
      {R"("n":1.5)", "n"},
      {R"("logprobs":1)", "logprobs"},
      {R"("top_logprobs":3)", "top_logprobs"},
      {R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
      {R"("logit_bias":{"-1":1})", "logit_bias"},
      {R"("logit_bias":{"5":101})", "logit_bias"},
      {R"("logit_bias":{"5":false})", "logit_bias"},
      {R"("logit_bias":{"x":1})", "logit_bias"},
      {R"("logit_bias":{"18446744073709551616":1})", "logit_bias"},
      {R"("logit_bias":[[5,1],[5,2]])", "logit_bias"},
      {R"("logit_bias":[[5.5,1]])", "logit_bias"},
      {R"("logit_bias":[5])", "logit_bias"},
      {R"("logit_bias":[[5,true]])", "logit_bias"},
      {R"("logit_bias":5)", "logit_bias"},
      {R"("presence_penalty":2.5)", "presence_penalty"},
      {R"("frequency_penalty":-3)", "frequency_penalty"},
      {R"("repetition_penalty":0)", "repetition_penalty"},
      {R"("penalty_last_n":-2)", "penalty_last_n"},
      {R"("reasoning_budget_tokens":"many")", "reasoning_budget_tokens"},
      {R"("reasoning_budget_tokens":1.5)", "reasoning_budget_tokens"},
      {R"("verbosity":"high")", "verbosity"},
      {R"("functions":[])", "functions"},
      {R"("audio":{})", "audio"},
      {R"("response_format":{"type":"yaml"})", "response_format"},
      {R"("parallel_tool_calls":"no")", "parallel_tool_calls"},
      {R"("tool_choice":"required")", "tool_choice"},
      {R"("tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice"},
      {R"("unheard_of":1)", "unheard_of"},
      {R"("temperature":"hot")", "temperature"},
      {R"("temperature":-0.5)", "temperature"},
      {R"("temperature":1e308)", "temperature"},
      {R"("top_p":0)", "top_p"},
      {R"("top_p":1.5)", "top_p"},
      {R"("min_p":2)", "min_p"},
      {R"("top_k":-2)", "top_k"},
      {R"("top_k":9223372036854775807)", "top_k"},
      {R"("top_k":1.5)", "top_k"},
      {R"("seed":"x")", "seed"},
      {R"("max_tokens":-2)", "max_tokens"},
      {R"("max_tokens":"5")", "max_tokens"},
      {R"("max_tokens":1e300)", "max_tokens"},
      {R"("stop":5)", "stop"},
      {R"("stop":[1])", "stop"},
      {R"("stop":["a","b","c","d","e"])", "stop"},
      {R"("stream":"yes")", "stream"},
      {R"("stream_options":{"include_usage":true})", "stream_options"},
      {R"("stream":true,"stream_options":{"other":1})", "stream_options.other"},
      {R"("reasoning_effort":"huge")", "reasoning_effort"},
      {R"("reasoning_effort":3)", "reasoning_effort"},
      {R"("reasoning":{"effort":"huge"})", "reasoning.effort"},
      {R"("chat_template_kwargs":[])", "chat_template_kwargs"},
      {R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs"},
      {R"("chat_template_kwargs":{"enable_thinking":"no"})", "chat_template_kwargs"},
      {R"("tools":"auto")", "tools"},
      {R"("tools":[5])", "tools[0]"},
      {R"("tools":[{"type":"function","function":{}}])", "tools[0]"},
      {R"("tools":[{"name":"f"},{"name":""}])", "tools[1]"},
      {R"("tools":[{"name":"f","parameters":[]}])", "tools[0]"},
      {R"("tools":[{"name":"f<"}])", "tools[0]"},
      {R"("tools":[{"name":" f"}])", "tools[0]"},
      {R"("tools":[{"type":"web_search"}])", "tools[0]"},
  };
  for (const auto& [members, param] : table) {
    const ApiError error = refused(with(members));
    EXPECT_EQ(error.param, param) << members << ": " << error.message;
    EXPECT_FALSE(error.message.empty());
  }
  EXPECT_EQ(refused(R"({"model":5,"messages":[]})").param, "model");
}

TEST(OpenAiRequest, RefusesMalformedMessages) {
  const std::pair<const char*, const char*> table[] = {
      {R"({})", "messages"},
      {R"({"messages":5})", "messages"},
      {R"({"messages":[]})", "messages"},
      {R"({"messages":"not json"})", "messages"},
      {R"({"messages":[5]})", "messages[0]"},
      {R"({"messages":[{"content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"king","content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"user","content":5}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":[7]}]})", "messages[0].content[0]"},
      {R"({"messages":[{"role":"user","content":[{"type":"video"}]}]})", "messages[0].content[0]"},
      {R"({"messages":[{"role":"user","content":["a",{"type":"text"}]}]})",
       "messages[0].content[1].text"},
      {R"({"messages":[{"role":"user","content":[{"type":"text","text":null}]}]})",
       "messages[0].content[0].text"},
      {R"({"messages":[{"role":"user","content":[{"type":"input_text","text":7}]}]})",
       "messages[0].content[0].text"},
      {R"({"messages":[{"role":"assistant","content":[{"type":"refusal"}]}]})",
       "messages[0].content[0].refusal"},
      {R"({"messages":[{"role":"assistant","tool_calls":["x"]}]})", "messages[0].tool_calls[0]"},
      {R"({"messages":[{"role":"assistant","tool_calls":[{"id":"a"}]}]})",
       "messages[0].tool_calls[0]"},
      {R"({"messages":[{"role":"assistant","function_call":{"name":"f"}}]})", "messages[0]"},
  };
  for (const auto& [body, param] : table) EXPECT_EQ(refused(body).param, param) << body;
  const ApiError picture = refused(
      R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]})");
  EXPECT_THAT(picture.message, HasSubstr("reads text only; take the picture out"));
}

TEST(OpenAiRequest, NamesThePositionOfASyntaxError) {
  EXPECT_THAT(refused("{\n  \"messages\": [}").message,
              HasSubstr("the request body is no valid JSON"));
  EXPECT_THAT(refused("{\n  \"messages\": [}").message, HasSubstr("line 2, column 16"));
}

TEST(OpenAiRequest, ANameThatStandsTwiceIsRefused) {
  EXPECT_EQ(refused(with(R"("temperature":0,"top_k":1,"temperature":1)")).message,
            "the request body has 'temperature' twice in one object: at line 1, column 60 and at "
            "line 1, column 86");
  for (const char* members :
       {R"("logit_bias":{"5":1,"5":1})", R"("metadata":{"a":"1","b":"2","a":"1"})",
        R"("json_schema":{"properties":{"a":{"type":"null"},"a":{}}})",
        R"("tools":[{"type":"function","function":{"name":"f","name":"g"}}])",
        R"("chat_template_kwargs":{"x":{"\u0079":1,"y":2}})"})
    EXPECT_THAT(refused(with(members)).message, HasSubstr("twice in one object")) << members;
  EXPECT_THAT(refused(R"({"messages":[{"role":"user","content":"a","content":"b"}]})").message,
              HasSubstr("the request body has 'content' twice"));
  // Lists that are encoded twice are the request's, too; what a call's arguments hold is the
  // call's.
  const ApiError twice =
      refused(R"({"messages":"[{\"role\":\"user\",\"role\":\"user\",\"content\":\"a\"}]"})");
  EXPECT_EQ(twice.param, "messages");
  EXPECT_THAT(twice.message, HasSubstr("'messages' has 'role' twice in one object"));
  accepted(
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"a",
      "function":{"name":"f","arguments":"{\"x\":1,\"x\":2}"}}]},
      {"role":"tool","tool_call_id":"a","content":"{\"a\":1,\"a\":1}"}]})");
}

TEST(OpenAiRequest, ReadsMessagesInAllForms) {
  EXPECT_EQ(message(R"({"role":"user","content":[{"type":"text","text":"a"},"b",
                        {"type":"input_text","text":"c"}]})")
                .content,
            "abc");
  EXPECT_EQ(
      message(R"({"role":"assistant","content":null,"reasoning_content":"r"})").reasoning_content,
      "r");
  EXPECT_EQ(message(R"({"role":"assistant","reasoning":"r","refusal":null})").reasoning_content,
            "r");
  EXPECT_EQ(message(R"({"role":"tool","tool_call_id":"c1","content":"42"})").tool_call_id, "c1");
  const auto twice = accepted(R"({"messages":"[{\"role\":\"user\",\"content\":\"hi\"}]"})");
  EXPECT_EQ(twice.chat.conversation.messages.at(0).content, "hi");
}

TEST(OpenAiRequest, ReadsCallArgumentsInAllForms) {
  const auto arguments = [](const std::string& call) {
    const auto read = message(R"({"role":"assistant","tool_calls":[)" + call + "]}");
    return read.tool_calls.empty() ? "none" : boost::json::serialize(read.tool_calls[0].arguments);
  };
  EXPECT_EQ(arguments(R"({"id":"1","type":"function","function":
                          {"name":"f","arguments":"{\"b\":1,\"a\":2}"}})"),
            R"({"b":1,"a":2})");
  EXPECT_EQ(arguments(R"({"name":"f","arguments":{"x":[1]}})"), R"({"x":[1]})");
  EXPECT_EQ(arguments(R"({"name":"f","arguments":""})"), "{}");
  EXPECT_EQ(arguments(R"({"name":"f"})"), "{}");
  EXPECT_EQ(arguments(R"({"name":"f","arguments":"{\"cut"})"), R"({"arguments":"{\"cut"})");
}

TEST(OpenAiRequest, ReadsToolsInAllForms) {
  const auto tools = [](const std::string& json) {
    return boost::json::serialize(accepted(with(json)).chat.conversation.tools);
  };
  const std::string wanted = R"([{"type":"function","function":{"name":"f","parameters":{}}}])";
  EXPECT_EQ(tools(R"("tools":)" + wanted), wanted);
  EXPECT_EQ(tools(R"("tools":[{"name":"f","parameters":{}}])"), wanted);
  EXPECT_EQ(tools(R"("tools":[{"type":"function","name":"f","parameters":{}}])"), wanted);
  EXPECT_EQ(tools(R"("tools":[{"function":{"name":"f","parameters":{}}}])"), wanted);
  EXPECT_EQ(tools(R"("tool_choice":"none","tools":)" + wanted), "[]");
}

TEST(OpenAiRequest, SurvivesEveryCutAndEveryByteOfAValidRequest) {
  const std::string body =
      with(R"("tools":[{"name":"f"}],"stop":["a"],"temperature":0.5,"reasoning_effort":"low")");
  for (std::size_t i = 0; i < body.size(); ++i) {
    EXPECT_FALSE(parse_openai_chat(std::string_view(body).substr(0, i), {}));
    for (const char byte : {'\0', '"', '[', '}', '\x80', '9'}) {
      std::string changed = body;
      changed[i] = byte;
      (void)parse_openai_chat(changed, {});
    }
  }
}

}  // namespace
}  // namespace strata::server
