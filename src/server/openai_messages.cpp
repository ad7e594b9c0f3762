#include "server/openai_messages.h"

#include "base/json_number.h"
#include "chat/call_reader.h"
#include "server/pictures.h"
#include "server/request_fields.h"

namespace strata::server {

namespace json = boost::json;

namespace {

// Some clients encode lists twice; a string that holds a JSON array is that array.
Answer<json::array> as_array(const json::value& value, const std::string& place) {
  if (const auto* array = value.if_array()) return *array;
  if (const auto* text = value.if_string()) {
    auto decoded = parse_written_json_exact(view(*text), fmt::format("'{}'", place));
    if (decoded && decoded->is_array()) return std::move(decoded->get_array());
    if (!decoded && text->starts_with('['))
      return refuse(400, place, "{}", decoded.error().message);
  }
  return refuse(400, place, "'{}' must be an array of objects", place);
}

Answer<std::string> text_member(const json::object& object, std::string_view key,
                                const std::string& place) {
  const json::value* value = given(object, key);
  if (value == nullptr) return std::string();
  if (const auto* text = value->if_string()) return std::string(view(*text));
  return refuse(400, place, "'{}.{}' must be a string", place, key);
}

Answer<std::string> needed_text(const json::object& part, std::string_view key,
                                const std::string& place) {
  const json::value* value = given(part, key);
  const auto* text = value == nullptr ? nullptr : value->if_string();
  if (text != nullptr) return std::string(view(*text));
  return refuse(400, fmt::format("{}.{}", place, key), "'{}.{}' must be a string{}", place, key,
                value == nullptr ? ", but it is missing" : "");
}

Answer<std::string> part_text(const json::value& part, std::string_view role,
                              const std::string& place) {
  if (const auto* text = part.if_string()) return std::string(view(*text));
  const auto* object = object_of(part);
  if (object == nullptr) {
    return refuse(400, place, "'{}' must be an object with a 'type'", place);
  }
  auto type = text_member(*object, "type", place);
  if (!type) return type;
  if (*type == "text" || *type == "input_text" || *type == "output_text") {
    return needed_text(*object, "text", place);
  }
  if (*type == "refusal") return needed_text(*object, "refusal", place);
  if (*type == "image_url" || *type == "input_image" || *type == "image") {
    if (role == "tool") return std::string(kPictureNote);
    return picture_refused(place);
  }
  return refuse(400, place, "'{}' has the type '{}', which is not supported; send text", place,
                *type);
}

Answer<std::string> content_text(const json::object& message, std::string_view role,
                                 const std::string& place) {
  const json::value* content = given(message, "content");
  if (content == nullptr) return std::string();
  if (const auto* text = content->if_string()) return std::string(view(*text));
  const auto* parts = content->if_array();
  if (parts == nullptr) {
    return refuse(400, place + ".content", "'{}.content' must be a string or an array of parts",
                  place);
  }
  std::string joined;
  for (std::size_t i = 0; i < parts->size(); ++i) {
    auto text = part_text((*parts)[i], role, fmt::format("{}.content[{}]", place, i));
    if (!text) return text;
    joined += *text;
  }
  return joined;
}

// Objects as they are, their JSON text parsed, nothing as {}. Text that is no object (a call that
// was cut, say) is kept under one key: history must not make a conversation unusable.
json::value call_arguments(const json::value* value) {
  if (value == nullptr) return json::object();
  if (object_of(*value)) return *value;
  if (const auto* text = value->if_string()) {
    if (view(*text).find_first_not_of(" \t\r\n") == std::string_view::npos) return json::object();
    auto parsed = parse_json_exact(view(*text), "the arguments");
    if (parsed && object_of(*parsed)) return std::move(*parsed);
  }
  return json::object{{"arguments", *value}};
}

Answer<chat::ToolCall> parse_call(const json::value& value, const std::string& place) {
  const auto* object = object_of(value);
  if (object == nullptr) return refuse(400, place, "'{}' must be an object", place);
  const json::object* function = object;  // the short form {name, arguments}
  if (const json::value* nested = given(*object, "function")) {
    function = object_of(*nested);
    if (function == nullptr) {
      return refuse(400, place, "'{}.function' must be an object", place);
    }
  }
  auto id = text_member(*object, "id", place);
  if (!id) return tl::unexpected<ApiError>(std::move(id).error());
  auto name = text_member(*function, "name", place);
  if (!name) return tl::unexpected<ApiError>(std::move(name).error());
  if (name->empty()) return refuse(400, place, "'{}' needs the name of its function", place);
  return chat::ToolCall{std::move(*id), std::move(*name),
                        call_arguments(given(*function, "arguments"))};
}

Answer<std::vector<chat::ToolCall>> parse_calls(const json::value& value,
                                                const std::string& place) {
  auto array = as_array(value, place);
  if (!array) return tl::unexpected<ApiError>(std::move(array).error());
  std::vector<chat::ToolCall> calls;
  for (std::size_t i = 0; i < array->size(); ++i) {
    auto call = parse_call((*array)[i], fmt::format("{}[{}]", place, i));
    if (!call) return tl::unexpected<ApiError>(std::move(call).error());
    calls.push_back(std::move(*call));
  }
  return calls;
}

Answer<chat::Message> parse_message(const json::value& value, const std::string& place) {
  const auto* object = object_of(value);
  if (object == nullptr) return refuse(400, place, "'{}' must be an object", place);
  const auto failed = [](auto& result) {
    return tl::unexpected<ApiError>(std::move(result).error());
  };
  chat::Message message;
  auto role = text_member(*object, "role", place);
  if (!role) return failed(role);
  message.role = std::move(*role);
  if (message.role != "system" && message.role != "developer" && message.role != "user" &&
      message.role != "assistant" && message.role != "tool") {
    return refuse(400, place + ".role",
                  "'{}.role' is '{}'; it must be system, developer, user, assistant or tool", place,
                  message.role);
  }
  for (const std::string_view old : {"function_call", "audio"}) {
    if (given(*object, old) != nullptr) {
      return refuse(400, place, "'{}.{}' is not supported; use text and tool_calls", place, old);
    }
  }
  auto content = content_text(*object, message.role, place);
  if (!content) return failed(content);
  message.content = std::move(*content);
  if (message.role == "assistant") {
    const bool renamed = given(*object, "reasoning_content") == nullptr;
    auto reasoning = text_member(*object, renamed ? "reasoning" : "reasoning_content", place);
    if (!reasoning) return failed(reasoning);
    message.reasoning_content = std::move(*reasoning);
    if (const json::value* calls = given(*object, "tool_calls")) {
      auto parsed = parse_calls(*calls, place + ".tool_calls");
      if (!parsed) return failed(parsed);
      message.tool_calls = std::move(*parsed);
    }
  }
  if (message.role == "tool") {
    auto id = text_member(*object, "tool_call_id", place);
    if (!id) return failed(id);
    message.tool_call_id = std::move(*id);
  }
  return message;
}

Answer<json::object> parse_tool(const json::value& value, const std::string& place) {
  const auto* object = object_of(value);
  if (object == nullptr) return refuse(400, place, "'{}' must be an object", place);
  const json::value* nested = given(*object, "function");
  const json::value* type = given(*object, "type");
  if (type != nullptr && (!type->is_string() || type->get_string() != "function")) {
    return refuse(400, place, "'{}' is no function; tools of other types are not supported", place);
  }
  const json::object* function = nested == nullptr ? object : object_of(*nested);
  if (function == nullptr) return refuse(400, place, "'{}.function' must be an object", place);
  const json::value* name = given(*function, "name");
  if (name == nullptr || !name->is_string() || name->get_string().empty()) {
    return refuse(400, place, "'{}' needs a 'name' that is a string and not empty", place);
  }
  if (!chat::callable_name(view(name->get_string()))) {
    return refuse(400, place, "'{}': {}", place, chat::kNoCallableName);
  }
  const json::value* parameters = given(*function, "parameters");
  if (parameters != nullptr && !object_of(*parameters)) {
    return refuse(400, place, "'{}' needs 'parameters' that are a JSON schema object", place);
  }
  if (nested != nullptr) {
    if (type != nullptr) return *object;
    json::object wrapped = {{"type", "function"}};
    for (const auto& [key, member] : *object) wrapped.insert_or_assign(key, member);
    return wrapped;
  }
  json::object bare;
  for (const auto& [key, member] : *object) {
    if (key != "type") bare.insert_or_assign(key, member);
  }
  return json::object{{"type", "function"}, {"function", std::move(bare)}};
}

}  // namespace

Answer<std::vector<chat::Message>> parse_openai_messages(const json::value& value) {
  auto array = as_array(value, "messages");
  if (!array) return tl::unexpected<ApiError>(std::move(array).error());
  if (array->empty()) return refuse(400, "messages", "'messages' must hold at least one message");
  std::vector<chat::Message> messages;
  for (std::size_t i = 0; i < array->size(); ++i) {
    auto message = parse_message((*array)[i], fmt::format("messages[{}]", i));
    if (!message) return tl::unexpected<ApiError>(std::move(message).error());
    messages.push_back(std::move(*message));
  }
  return messages;
}

Answer<json::array> parse_openai_tools(const json::value& value) {
  auto array = as_array(value, "tools");
  if (!array) return array;
  json::array tools;
  for (std::size_t i = 0; i < array->size(); ++i) {
    auto tool = parse_tool((*array)[i], fmt::format("tools[{}]", i));
    if (!tool) return tl::unexpected<ApiError>(std::move(tool).error());
    tools.push_back(std::move(*tool));
  }
  return tools;
}

}  // namespace strata::server
