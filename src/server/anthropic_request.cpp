#include <array>

#include "base/json_number.h"
#include "chat/call_reader.h"
#include "server/answer_form.h"
#include "server/anthropic.h"
#include "server/pictures.h"

namespace strata::server {

namespace json = boost::json;

namespace {

using Use = Field::Use;

constexpr std::array kFields = {
    Field{"model"},
    Field{"messages"},
    Field{"system"},
    Field{"max_tokens"},
    Field{"stop_sequences"},
    Field{"stream"},
    Field{"temperature"},
    Field{"top_p"},
    Field{"top_k"},
    Field{"min_p"},
    Field{"seed"},
    Field{"presence_penalty"},
    Field{"frequency_penalty"},
    Field{"repetition_penalty"},
    Field{"penalty_last_n"},
    Field{"logit_bias"},
    Field{"dry_multiplier"},
    Field{"dry_base"},
    Field{"dry_allowed_length"},
    Field{"dry_penalty_last_n"},
    Field{"dry_sequence_breakers"},
    Field{"banned_strings"},
    Field{"loop_guard"},
    Field{"tools"},
    Field{"tool_choice"},
    Field{"thinking"},
    Field{"reasoning_budget_tokens"},
    Field{"reasoning_close_retry"},
    Field{"tool_call_recovery"},
    Field{"output_config"},
    Field{"chat_template_kwargs"},
    Field{"cache_prompt"},
    Field{"strata_checkpoint"},
    Field{"drafts"},
    Field{"metadata", Use::harmless},
    Field{"service_tier", Use::harmless},
    Field{"cache_control", Use::harmless},
    // Edits of Anthropic's own side of the conversation; it always arrives whole here.
    Field{"context_management", Use::harmless},
    Field{"inference_geo", Use::harmless},
    Field{"speed", Use::harmless},
    Field{"mcp_servers", Use::neutral_only, is_empty},
    Field{"container", Use::refused, nullptr,
          "'container' is not supported; this server runs no code"},
    Field{"output_format", Use::refused, nullptr, "'output_format' is not supported"},
};

Answer<std::string> text_of(const json::object& block, std::string_view key,
                            const std::string& place) {
  const json::value* value = given(block, key);
  if (value != nullptr && value->is_string()) return std::string(view(value->get_string()));
  return refuse(400, fmt::format("{}.{}", place, key), "'{}.{}' must be a string{}", place, key,
                value == nullptr ? ", but it is missing" : "");
}

Answer<const json::object*> block_of(const json::value& value, const std::string& place,
                                     std::string& type) {
  const auto* block = object_of(value);
  if (block == nullptr) return refuse(400, place, "'{}' must be an object with a 'type'", place);
  auto name = text_of(*block, "type", place);
  if (!name) return passed_on(name);
  type = std::move(*name);
  return block;
}

// A string, or text blocks joined.
Answer<std::string> plain_text(const json::value& value, const std::string& place) {
  if (const auto* text = value.if_string()) return std::string(view(*text));
  const auto* blocks = value.if_array();
  if (blocks == nullptr) {
    return refuse(400, place, "'{}' must be a string or an array of text blocks", place);
  }
  std::string joined;
  for (std::size_t i = 0; i < blocks->size(); ++i) {
    const std::string at = fmt::format("{}[{}]", place, i);
    std::string type;
    auto block = block_of((*blocks)[i], at, type);
    if (!block) return passed_on(block);
    if (type != "text") {
      return refuse(400, at, "'{}' has the type '{}'; only text is possible here", at, type);
    }
    auto text = text_of(**block, "text", at);
    if (!text) return text;
    if (!joined.empty()) joined += "\n";
    joined += *text;
  }
  return joined;
}

// The content of a tool_result: a string, or blocks; a picture becomes a note.
Answer<std::string> result_text(const json::object& block, const std::string& place) {
  const json::value* content = given(block, "content");
  if (content == nullptr) return std::string();
  if (const auto* text = content->if_string()) return std::string(view(*text));
  const std::string inside = place + ".content";
  const auto* parts = content->if_array();
  if (parts == nullptr) {
    return refuse(400, inside, "'{}' must be a string or an array of blocks", inside);
  }
  std::string joined;
  for (std::size_t i = 0; i < parts->size(); ++i) {
    const std::string at = fmt::format("{}[{}]", inside, i);
    std::string type;
    auto part = block_of((*parts)[i], at, type);
    if (!part) return passed_on(part);
    if (!joined.empty()) joined += "\n";
    if (type == "text") {
      auto text = text_of(**part, "text", at);
      if (!text) return text;
      joined += *text;
    } else if (type == "image") {
      joined += kPictureNote;
    } else if (type == "tool_reference") {
      auto name = text_of(**part, "tool_name", at);
      if (!name) return name;
      joined += *name;
    } else {
      return refuse(400, at, "'{}' has the type '{}', which is not supported in a tool's result",
                    at, type);
    }
  }
  return joined;
}

// One message's blocks become one or more neutral messages: each tool_result one of its own, the
// text around it others, in their order.
class MessageReader {
 public:
  MessageReader(std::string role, std::vector<chat::Message>& out)
      : role_(std::move(role)), out_(out) {}

  Answer<void> read(const json::value& value, const std::string& place) {
    std::string type;
    auto found = block_of(value, place, type);
    if (!found) return passed_on(found);
    const json::object& block = **found;
    if (type == "text") return read_text(block, place);
    if (type == "image") return picture_refused(place);
    if (role_ == "assistant") {
      if (type == "thinking") return read_thinking(block, place);
      if (type == "redacted_thinking") return {};  // unreadable here
      if (type == "tool_use") return read_call(block, place);
    }
    if (role_ == "user" && type == "tool_result") return read_result(block, place);
    return refuse(400, place, "'{}' has the type '{}', which is not supported in a message of '{}'",
                  place, type, role_);
  }
  void finish(bool empty_allowed) {
    if (open_ || empty_allowed) out_.push_back(std::move(message()));
    open_ = false;
  }

 private:
  chat::Message& message() {
    if (!open_) {
      message_ = {};
      message_.role = role_;
      open_ = true;
    }
    return message_;
  }
  Answer<void> read_text(const json::object& block, const std::string& place) {
    auto text = text_of(block, "text", place);
    if (!text) return passed_on(text);
    std::string& content = message().content;
    if (!content.empty() && !text->empty()) content += "\n";
    content += *text;
    return {};
  }
  Answer<void> read_thinking(const json::object& block, const std::string& place) {
    auto text = text_of(block, "thinking", place);
    if (!text) return passed_on(text);
    std::string& thinking = message().reasoning_content;
    if (!thinking.empty()) thinking += "\n\n";
    thinking += *text;
    return {};
  }
  Answer<void> read_call(const json::object& block, const std::string& place) {
    auto name = text_of(block, "name", place);
    if (!name) return passed_on(name);
    if (name->empty()) return refuse(400, place, "'{}' needs the name of its tool", place);
    auto id = read_string(block, "id");
    if (!id) return passed_on(id);
    chat::ToolCall call{id->value_or(""), std::move(*name), json::object()};
    if (const json::value* input = given(block, "input")) {
      call.arguments = object_of(*input) ? *input : json::object{{"input", *input}};
    }
    message().tool_calls.push_back(std::move(call));
    return {};
  }
  Answer<void> read_result(const json::object& block, const std::string& place) {
    auto text = result_text(block, place);
    if (!text) return passed_on(text);
    auto id = read_string(block, "tool_use_id");
    if (!id) return passed_on(id);
    finish(false);
    chat::Message result;
    result.role = "tool";
    result.tool_call_id = id->value_or("");
    result.content = std::move(*text);
    out_.push_back(std::move(result));
    return {};
  }

  std::string role_;
  std::vector<chat::Message>& out_;
  chat::Message message_;
  bool open_ = false;
};

Answer<void> read_message(const json::value& value, const std::string& place,
                          std::vector<chat::Message>& out) {
  const auto* object = object_of(value);
  if (object == nullptr) return refuse(400, place, "'{}' must be an object", place);
  auto role = text_of(*object, "role", place);
  if (!role) return passed_on(role);
  if (*role != "user" && *role != "assistant" && *role != "system") {
    return refuse(400, place + ".role", "'{}.role' is '{}'; it must be user, assistant or system",
                  place, *role);
  }
  const json::value* content = given(*object, "content");
  const std::string inside = place + ".content";
  if (content == nullptr) return refuse(400, inside, "'{}' is missing", inside);
  if (const auto* text = content->if_string()) {
    chat::Message message;
    message.role = *role;
    message.content = std::string(view(*text));
    out.push_back(std::move(message));
    return {};
  }
  const auto* blocks = content->if_array();
  if (blocks == nullptr) {
    return refuse(400, inside, "'{}' must be a string or an array of blocks", inside);
  }
  MessageReader reader(*role, out);
  for (std::size_t i = 0; i < blocks->size(); ++i) {
    if (auto done = reader.read((*blocks)[i], fmt::format("{}[{}]", inside, i)); !done) return done;
  }
  reader.finish(blocks->empty());
  return {};
}

Answer<void> read_messages(const json::object& body, std::vector<chat::Message>& out) {
  if (const json::value* system = given(body, "system")) {
    auto text = plain_text(*system, "system");
    if (!text) return passed_on(text);
    if (!text->empty()) {
      chat::Message message;
      message.role = "system";
      message.content = std::move(*text);
      out.push_back(std::move(message));
    }
  }
  const json::value* messages = given(body, "messages");
  if (messages == nullptr) return refuse(400, "messages", "'messages' is missing");
  const auto* array = messages->if_array();
  if (array == nullptr) return refuse(400, "messages", "'messages' must be an array of objects");
  if (array->empty()) return refuse(400, "messages", "'messages' must hold at least one message");
  for (std::size_t i = 0; i < array->size(); ++i) {
    if (auto done = read_message((*array)[i], fmt::format("messages[{}]", i), out); !done)
      return done;
  }
  return {};
}

// To OpenAI's form, which templates read.
Answer<json::object> read_tool(const json::value& value, const std::string& place) {
  const auto* tool = object_of(value);
  if (tool == nullptr) return refuse(400, place, "'{}' must be an object", place);
  auto type = read_string(*tool, "type");
  if (!type) return passed_on(type);
  if (type->value_or("custom") != "custom") {
    return refuse(
        400, place,
        "'{}' is a tool of the type '{}' that runs at Anthropic; only tools of the client "
        "are supported",
        place, **type);
  }
  auto name = text_of(*tool, "name", place);
  if (!name || name->empty()) {
    return refuse(400, place, "'{}' needs a 'name' that is a string and not empty", place);
  }
  if (!chat::callable_name(*name)) {
    return refuse(400, place, "'{}': {}", place, chat::kNoCallableName);
  }
  json::object function = {{"name", *name}};
  if (const json::value* description = given(*tool, "description")) {
    if (!description->is_string()) {
      return refuse(400, place, "'{}.description' must be a string", place);
    }
    function["description"] = *description;
  }
  const json::value* schema = given(*tool, "input_schema");
  if (schema != nullptr && !object_of(*schema)) {
    return refuse(400, place, "'{}' needs an 'input_schema' that is a JSON schema object", place);
  }
  function["parameters"] = schema == nullptr ? json::object() : schema->get_object();
  auto strict = read_bool(*tool, "strict");
  if (!strict) return passed_on(strict);
  if (strict->value_or(false)) function["strict"] = true;
  return json::object{{"type", "function"}, {"function", std::move(function)}};
}

Answer<void> read_tools(const json::object& body, ChatRequest& chat) {
  if (const json::value* value = given(body, "tools")) {
    const auto* array = value->if_array();
    if (array == nullptr) return refuse(400, "tools", "'tools' must be an array of objects");
    for (std::size_t i = 0; i < array->size(); ++i) {
      auto tool = read_tool((*array)[i], fmt::format("tools[{}]", i));
      if (!tool) return passed_on(tool);
      chat.conversation.tools.push_back(std::move(*tool));
    }
  }
  if (auto done = check_tools(chat); !done) return done;
  auto choice = read_object(body, "tool_choice");
  if (!choice) return passed_on(choice);
  if (*choice == nullptr) return {};
  auto type = text_of(**choice, "type", "tool_choice");
  if (!type) return passed_on(type);
  auto single = read_bool(**choice, "disable_parallel_tool_use");
  if (!single) return passed_on(single);
  chat.one_call = single->value_or(false);
  if (*type == "any") return force_call(chat);
  if (*type == "tool") {
    auto name = text_of(**choice, "name", "tool_choice");
    if (!name) return passed_on(name);
    return force_call(chat, *name);
  }
  if (*type == "none") {
    chat.conversation.tools.clear();
  } else if (*type != "auto") {
    return refuse(400, "tool_choice",
                  "'tool_choice' has the type '{}'; known are auto, any, tool and none", *type);
  }
  return {};
}

// thinking.type, output_config.effort, thinking.budget_tokens: the first that says something.
Answer<void> read_thinking(const json::object& body, ChatRequest& chat) {
  json::object& arguments = chat.conversation.template_arguments;
  auto thinking = read_object(body, "thinking");
  if (!thinking) return passed_on(thinking);
  auto output = read_object(body, "output_config");
  if (!output) return passed_on(output);
  std::string level;
  if (*thinking != nullptr) {
    auto type = text_of(**thinking, "type", "thinking");
    if (!type) return passed_on(type);
    if (*type == "disabled") {
      level = "none";
    } else if (*type != "enabled" && *type != "adaptive") {
      return refuse(400, "thinking.type",
                    "'thinking.type' is '{}'; it must be enabled, adaptive or disabled", *type);
    }
    auto budget = read_integer(**thinking, "budget_tokens");
    if (!budget) return passed_on(budget);
    if (level.empty()) chat.thinking_budget = *budget;
    if (level.empty() && *budget) {
      constexpr std::int64_t kLow = 2048, kMedium = 8192;
      level = **budget < kLow ? "low" : (**budget < kMedium ? "medium" : "high");
    }
  }
  if (*output != nullptr) {
    constexpr std::array kOutput = {Field{"effort"}, Field{"format"},
                                    Field{"task_budget", Use::refused, nullptr,
                                          "'output_config.task_budget' is not supported"}};
    if (auto done = check_fields(**output, kOutput, "output_config."); !done) return done;
    if (const json::value* format = given(**output, "format")) {
      if (auto done = read_format(*format, "output_config.format", true, chat); !done) return done;
      if (chat.must_call && !chat.form.empty()) {
        return refuse(400, "output_config.format",
                      "'tool_choice' asks for a call and 'output_config.format' for text of a "
                      "form; send one");
      }
    }
    auto effort = read_string(**output, "effort");
    if (!effort) return passed_on(effort);
    if (*effort && level != "none") {
      auto known = effort_level(**effort, "output_config.effort");
      if (!known) return passed_on(known);
      level = std::move(*known);
    }
  }
  if (level.empty()) return {};
  arguments["reasoning_effort"] = level;
  arguments["enable_thinking"] = level != "none";
  return {};
}

}  // namespace

std::span<const Field> anthropic_fields() {
  return kFields;
}

Answer<AnthropicRequest> parse_anthropic(std::string_view text, const ChatRequest& defaults) {
  auto body = parse_body(text);
  if (!body) return passed_on(body);
  if (auto done = check_fields(*body, kFields); !done) return passed_on(done);
  AnthropicRequest request;
  ChatRequest& chat = request.chat;
  chat = defaults;
  auto model = read_string(*body, "model");
  if (!model) return passed_on(model);
  request.model = model->value_or("");
  auto stream = read_bool(*body, "stream");
  if (!stream) return passed_on(stream);
  request.stream = stream->value_or(false);
  constexpr std::array<std::string_view, 1> kLimits = {"max_tokens"};
  if (auto done = read_messages(*body, chat.conversation.messages); !done) return passed_on(done);
  if (auto done = read_tools(*body, chat); !done) return passed_on(done);
  json::object& arguments = chat.conversation.template_arguments;
  if (auto done = assign(arguments,
                         read_template_arguments(*body, defaults.conversation.template_arguments));
      !done)
    return passed_on(done);
  if (auto done = read_thinking(*body, chat); !done) return passed_on(done);
  if (auto done = read_chat_fields(*body, chat); !done) return passed_on(done);
  if (auto done = read_max_tokens(*body, kLimits, chat); !done) return passed_on(done);
  if (auto done = assign(chat.stops, read_stops(*body, "stop_sequences", kMaxStopSequences)); !done)
    return passed_on(done);
  return request;
}

}  // namespace strata::server
