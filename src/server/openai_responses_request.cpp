#include <algorithm>
#include <array>

#include "base/base64.h"
#include "base/json_number.h"
#include "chat/call_reader.h"
#include "server/answer_form.h"
#include "server/openai_responses.h"
#include "server/pictures.h"

namespace strata::server {

namespace json = boost::json;

namespace {

using Use = Field::Use;

bool is_disabled(const json::value& value) {
  return value.is_string() && value.get_string() == "disabled";
}

constexpr std::array kFields = {
    Field{"model"},
    Field{"input"},
    Field{"instructions"},
    Field{"tools"},
    Field{"tool_choice"},
    Field{"parallel_tool_calls"},
    Field{"max_output_tokens"},
    Field{"temperature"},
    Field{"top_p"},
    Field{"top_k"},
    Field{"min_p"},
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
    Field{"seed"},
    Field{"stream"},
    Field{"stream_options"},
    Field{"store"},
    Field{"previous_response_id"},
    Field{"background"},
    Field{"metadata"},
    Field{"reasoning"},
    Field{"chat_template_kwargs"},
    Field{"reasoning_budget_tokens"},
    Field{"reasoning_close_retry"},
    Field{"tool_call_recovery"},
    Field{"text"},
    Field{"top_logprobs"},
    Field{"include"},
    Field{"cache_prompt"},
    Field{"strata_checkpoint"},
    Field{"drafts"},
    Field{"user", Use::harmless},
    Field{"safety_identifier", Use::harmless},
    Field{"prompt_cache_key", Use::harmless},
    Field{"prompt_cache_retention", Use::harmless},
    Field{"service_tier", Use::harmless},
    Field{"client_metadata", Use::harmless},
    Field{"max_tool_calls", Use::harmless},  // of tools that run at OpenAI
    Field{"truncation", Use::neutral_only, is_disabled},
    Field{"conversation", Use::refused, nullptr,
          "'conversation' is not supported; send 'previous_response_id' or the whole input"},
    Field{"prompt", Use::refused, nullptr,
          "'prompt' names a template at OpenAI; send 'instructions' and 'input'"},
};

Answer<std::string> text_of(const json::object& object, std::string_view key,
                            const std::string& place) {
  const json::value* value = given(object, key);
  if (value != nullptr && value->is_string()) return std::string(view(value->get_string()));
  return refuse(400, fmt::format("{}.{}", place, key), "'{}.{}' must be a string{}", place, key,
                value == nullptr ? ", but it is missing" : "");
}

// A string, or parts that are joined. Pictures: a note in a tool's output, else refused.
Answer<std::string> content_text(const json::value* content, const std::string& place,
                                 bool of_tool) {
  if (content == nullptr) return std::string();
  if (const auto* text = content->if_string()) return std::string(view(*text));
  const auto* parts = content->if_array();
  if (parts == nullptr) {
    return refuse(400, place, "'{}' must be a string or an array of parts", place);
  }
  std::string joined;
  for (std::size_t i = 0; i < parts->size(); ++i) {
    const std::string at = fmt::format("{}[{}]", place, i);
    const auto* part = object_of((*parts)[i]);
    if (part == nullptr) return refuse(400, at, "'{}' must be an object with a 'type'", at);
    auto type = text_of(*part, "type", at);
    if (!type) return type;
    if (*type == "input_image") {
      if (!of_tool) return picture_refused(at);
      joined += kPictureNote;
      continue;
    }
    const bool refusal = *type == "refusal";
    if (!refusal && *type != "input_text" && *type != "output_text" && *type != "text" &&
        *type != "summary_text" && *type != "reasoning_text") {
      return refuse(400, at, "'{}' has the type '{}', which is not supported; send text", at,
                    *type);
    }
    auto text = text_of(*part, refusal ? "refusal" : "text", at);
    if (!text) return text;
    joined += *text;
  }
  return joined;
}

// Messages out of items: what an assistant thought, said and called in a row is one message.
class ItemReader {
 public:
  explicit ItemReader(std::vector<chat::Message>& messages) : messages_(messages) {}

  Answer<void> read(const json::value& value, const std::string& place) {
    const auto* item = object_of(value);
    if (item == nullptr) return refuse(400, place, "'{}' must be an object", place);
    auto type = read_string(*item, "type");
    if (!type) return passed_on(type);
    const std::string kind = type->value_or("message");
    if (kind == "message") return read_message(*item, place);
    if (kind == "reasoning") return read_reasoning(*item, place);
    if (kind == "function_call") return read_call(*item, place, false);
    if (kind == "custom_tool_call") return read_call(*item, place, true);
    if (kind == "function_call_output" || kind == "custom_tool_call_output") {
      return read_output(*item, place);
    }
    return refuse(400, place, "'{}' has the type '{}', which is not supported", place, kind);
  }

 private:
  chat::Message& add(std::string_view role) {
    messages_.emplace_back();
    messages_.back().role = std::string(role);
    return messages_.back();
  }
  // The assistant's message that is open; a new one after text if text comes again.
  chat::Message& assistant() {
    if (messages_.empty() || messages_.back().role != "assistant") return add("assistant");
    return messages_.back();
  }
  Answer<void> read_message(const json::object& item, const std::string& place) {
    auto role = text_of(item, "role", place);
    if (!role) return passed_on(role);
    if (*role != "system" && *role != "developer" && *role != "user" && *role != "assistant") {
      return refuse(400, place + ".role",
                    "'{}.role' is '{}'; it must be system, developer, user or assistant", place,
                    *role);
    }
    auto text = content_text(given(item, "content"), place + ".content", false);
    if (!text) return passed_on(text);
    if (*role != "assistant") {
      add(*role).content = std::move(*text);
      return {};
    }
    chat::Message& open = assistant();
    const bool free = open.content.empty() && open.tool_calls.empty();
    (free ? open : add("assistant")).content = std::move(*text);
    return {};
  }
  Answer<void> read_reasoning(const json::object& item, const std::string& place) {
    auto text = content_text(given(item, "content"), place + ".content", false);
    if (!text) return passed_on(text);
    if (text->empty()) {
      if (auto done = assign(*text, encrypted_text(item)); !done) return done;
    }
    if (text->empty()) {
      if (auto done =
              assign(*text, content_text(given(item, "summary"), place + ".summary", false));
          !done)
        return done;
    }
    if (text->empty()) return {};
    const bool fresh = messages_.empty() || messages_.back().role != "assistant" ||
                       !messages_.back().content.empty() || !messages_.back().tool_calls.empty();
    std::string& reasoning = (fresh ? add("assistant") : messages_.back()).reasoning_content;
    if (!reasoning.empty()) reasoning += "\n\n";
    reasoning += *text;
    return {};
  }
  static Answer<std::string> encrypted_text(const json::object& item) {
    auto text = read_string(item, "encrypted_content");
    if (!text) return passed_on(text);
    return decode_reasoning(text->value_or(""));
  }
  static std::string decode_reasoning(std::string_view text);

  Answer<void> read_call(const json::object& item, const std::string& place, bool custom) {
    auto name = text_of(item, "name", place);
    if (!name) return passed_on(name);
    if (name->empty()) return refuse(400, place, "'{}' needs the name of its function", place);
    auto space = read_string(item, "namespace");
    if (!space) return passed_on(space);
    if (*space && !(*space)->empty()) *name = **space + "." + *name;
    auto id = read_string(item, "call_id");
    if (!id) return passed_on(id);
    chat::ToolCall call{id->value_or(""), std::move(*name), json::object()};
    auto text = read_string(item, custom ? "input" : "arguments");
    if (!text) return passed_on(text);
    const std::string given_text = text->value_or("");
    if (custom) {
      call.arguments = json::object{{"input", given_text}};
    } else if (given_text.find_first_not_of(" \t\r\n") != std::string::npos) {
      // Text that is no object (a call that was cut, say) is kept: history must not make a
      // conversation unusable.
      auto parsed = parse_json_exact(given_text, "the arguments");
      call.arguments = parsed && object_of(*parsed)
                           ? std::move(*parsed)
                           : json::value(json::object{{"arguments", given_text}});
    }
    assistant().tool_calls.push_back(std::move(call));
    return {};
  }
  Answer<void> read_output(const json::object& item, const std::string& place) {
    auto id = read_string(item, "call_id");
    if (!id) return passed_on(id);
    if (!item.contains("output")) {
      return refuse(400, place + ".output", "'{0}.output' is missing; '{0}' needs it", place);
    }
    auto text = content_text(given(item, "output"), place + ".output", true);
    if (!text) return passed_on(text);
    chat::Message& message = add("tool");
    message.tool_call_id = id->value_or("");
    message.content = std::move(*text);
    return {};
  }

  std::vector<chat::Message>& messages_;
};

std::string ItemReader::decode_reasoning(std::string_view text) {
  auto decoded = base64_decoded(text);
  return decoded ? std::move(*decoded) : std::string();
}

// Tools -------------------------------------------------------------------------------------

constexpr std::array<std::string_view, 14> kHosted = {"web_search",
                                                      "web_search_preview",
                                                      "file_search",
                                                      "code_interpreter",
                                                      "image_generation",
                                                      "computer",
                                                      "computer_use_preview",
                                                      "mcp",
                                                      "local_shell",
                                                      "shell",
                                                      "apply_patch",
                                                      "tool_search",
                                                      "web_search_2025_08_26",
                                                      "web_search_preview_2025_03_11"};

Answer<json::object> function_of(const json::object& tool, const std::string& place,
                                 const std::string& space) {
  auto name = text_of(tool, "name", place);
  if (!name || name->empty()) {
    return refuse(400, place, "'{}' needs a 'name' that is a string and not empty", place);
  }
  if (!chat::callable_name(*name)) {
    return refuse(400, place, "'{}': {}", place, chat::kNoCallableName);
  }
  json::object function = {{"name", space.empty() ? *name : space + "." + *name}};
  if (const json::value* description = given(tool, "description")) {
    function["description"] = *description;
  }
  const json::value* parameters = given(tool, "parameters");
  if (parameters != nullptr && !object_of(*parameters)) {
    return refuse(400, place, "'{}' needs 'parameters' that are a JSON schema object", place);
  }
  function["parameters"] = parameters == nullptr ? json::object() : parameters->get_object();
  auto strict = read_bool(tool, "strict");
  if (!strict) return passed_on(strict);
  if (strict->value_or(false)) function["strict"] = true;
  return json::object{{"type", "function"}, {"function", std::move(function)}};
}

std::string name_of(const json::object& tool) {
  return std::string(view(tool.at("function").at("name").get_string()));
}

Answer<void> read_tool(const json::value& value, const std::string& place, const std::string& space,
                       ResponsesRequest& request) {
  const auto* tool = object_of(value);
  if (tool == nullptr) return refuse(400, place, "'{}' must be an object", place);
  auto type = text_of(*tool, "type", place);
  if (!type) return passed_on(type);
  json::array& tools = request.chat.conversation.tools;
  if (*type == "function") {
    auto function = function_of(*tool, place, space);
    if (!function) return passed_on(function);
    if (!space.empty()) request.namespaces[name_of(*function)] = space;
    tools.push_back(std::move(*function));
    return {};
  }
  if (*type == "custom") {
    auto function = function_of(*tool, place, space);
    if (!function) return passed_on(function);
    function->at("function").as_object()["parameters"] = {
        {"type", "object"},
        {"properties", {{"input", {{"type", "string"}}}}},
        {"required", json::array{"input"}}};
    request.custom_tools.insert(name_of(*function));
    tools.push_back(std::move(*function));
    return {};
  }
  if (*type == "namespace" && space.empty()) {
    auto name = text_of(*tool, "name", place);
    if (!name) return passed_on(name);
    const json::value* inner = given(*tool, "tools");
    if (inner == nullptr || !inner->is_array()) {
      return refuse(400, place + ".tools", "'{}.tools' must be an array of tools", place);
    }
    for (std::size_t i = 0; i < inner->get_array().size(); ++i) {
      if (auto done = read_tool(inner->get_array()[i], fmt::format("{}.tools[{}]", place, i), *name,
                                request);
          !done)
        return done;
    }
    return {};
  }
  if (std::find(kHosted.begin(), kHosted.end(), *type) != kHosted.end()) {
    request.left_out.insert(*type);
    return {};
  }
  return refuse(400, place, "'{}' is a tool of the type '{}', which is not known here", place,
                *type);
}

Answer<void> read_tools(const json::object& body, ResponsesRequest& request) {
  if (const json::value* value = given(body, "tools")) {
    const auto* array = value->if_array();
    if (array == nullptr) return refuse(400, "tools", "'tools' must be an array of objects");
    for (std::size_t i = 0; i < array->size(); ++i) {
      if (auto done = read_tool((*array)[i], fmt::format("tools[{}]", i), "", request); !done)
        return done;
    }
    request.echo["tools"] = *array;
  }
  auto parallel = read_bool(body, "parallel_tool_calls");
  if (!parallel) return passed_on(parallel);
  request.chat.one_call = !parallel->value_or(true);
  if (auto done = check_tools(request.chat); !done) return done;
  request.echo["parallel_tool_calls"] = !request.chat.one_call;
  const json::value* choice = given(body, "tool_choice");
  if (choice == nullptr) return {};
  request.echo["tool_choice"] = *choice;
  return read_tool_choice(*choice, request.chat);
}

// The rest ----------------------------------------------------------------------------------

Answer<void> read_input(const json::object& body, ResponsesRequest& request) {
  const json::value* input = given(body, "input");
  if (input == nullptr) return refuse(400, "input", "'input' is missing");
  if (const auto* text = input->if_string()) {
    request.input.push_back({{"type", "message"},
                             {"role", "user"},
                             {"content", json::array{{{"type", "input_text"}, {"text", *text}}}}});
  } else if (const auto* items = input->if_array()) {
    request.input = *items;
  } else {
    return refuse(400, "input", "'input' must be a string or an array of items");
  }
  if (request.input.empty()) return refuse(400, "input", "'input' must hold at least one item");
  if (auto done = append_items(request.input, "input", request.chat.conversation.messages); !done)
    return done;
  for (json::value& item : request.input) {
    json::object& object = item.as_object();
    if (given(object, "type") == nullptr) object["type"] = "message";
    if (given(object, "id") == nullptr) {
      object["id"] = new_id(object["type"] == "message" ? "msg_" : "item_");
    }
  }
  return {};
}

Answer<void> read_metadata(const json::object& body, ResponsesRequest& request) {
  auto metadata = read_object(body, "metadata");
  if (!metadata) return passed_on(metadata);
  if (*metadata == nullptr) return {};
  if ((*metadata)->size() > kMaxMetadata) {
    return refuse(400, "metadata", "'metadata' has {} pairs, at most {} are allowed",
                  (*metadata)->size(), kMaxMetadata);
  }
  for (const auto& [key, value] : **metadata) {
    if (!value.is_string() || key.size() > kMaxMetadataKey ||
        value.get_string().size() > kMaxMetadataValue) {
      return refuse(400, "metadata",
                    "'metadata' must hold strings of at most {} bytes under keys of at most {}",
                    kMaxMetadataValue, kMaxMetadataKey);
    }
  }
  request.echo["metadata"] = **metadata;
  return {};
}

Answer<void> read_text(const json::object& body, ResponsesRequest& request) {
  auto text = read_object(body, "text");
  if (!text) return passed_on(text);
  if (*text == nullptr) return {};
  constexpr std::array kText = {Field{"format"},
                                Field{"verbosity", Use::neutral_only, [](const json::value& value) {
                                        return value.is_string() && value.get_string() == "medium";
                                      }}};
  if (auto done = check_fields(**text, kText, "text."); !done) return done;
  const json::value* format = given(**text, "format");
  if (format == nullptr) return {};
  request.echo["text"] = **text;
  if (auto done = read_format(*format, "text.format", true, request.chat); !done) return done;
  if (request.chat.must_call && !request.chat.form.empty()) {
    return refuse(400, "text.format",
                  "'tool_choice' asks for a call and 'text.format' for text of a form; send one");
  }
  return {};
}

Answer<void> read_include(const json::object& body, ResponsesRequest& request) {
  auto top = read_integer(body, "top_logprobs");
  if (!top) return passed_on(top);
  if (top->value_or(0) < 0 || top->value_or(0) > kMaxTopLogprobs) {
    return refuse(400, "top_logprobs", "'top_logprobs' is {}, allowed is 0 to {}", **top,
                  kMaxTopLogprobs);
  }
  if (top->value_or(0) > 0) request.chat.logprobs = static_cast<std::uint32_t>(**top);
  const json::value* include = given(body, "include");
  if (include == nullptr) return {};
  const auto* array = include->if_array();
  if (array == nullptr) return refuse(400, "include", "'include' must be an array of strings");
  for (const json::value& one : *array) {
    const std::string_view what = one.is_string() ? view(one.get_string()) : "";
    if (what == "reasoning.encrypted_content") {
      request.encrypted_reasoning = true;
    } else if (what == "message.output_text.logprobs") {
      if (!request.chat.logprobs) request.chat.logprobs = 0;
    } else {
      return refuse(400, "include",
                    "'include' may hold reasoning.encrypted_content and "
                    "message.output_text.logprobs");
    }
  }
  return {};
}

Answer<void> read_ways(const json::object& body, ResponsesRequest& request) {
  for (const auto& [key, out, otherwise] :
       {std::tuple{"stream", &request.stream, false}, std::tuple{"store", &request.store, true},
        std::tuple{"background", &request.background, false}}) {
    auto flag = read_bool(body, key);
    if (!flag) return passed_on(flag);
    *out = flag->value_or(otherwise);
  }
  auto options = read_object(body, "stream_options");
  if (!options) return passed_on(options);
  if (*options != nullptr) {
    constexpr std::array kOptions = {Field{"include_obfuscation", Use::harmless}};
    if (auto done = check_fields(**options, kOptions, "stream_options."); !done) return done;
  }
  if (request.background && !request.store) {
    return refuse(400, "store", "a background response must be stored; leave 'store' out");
  }
  auto previous = read_string(body, "previous_response_id");
  if (!previous) return passed_on(previous);
  request.previous = previous->value_or("");
  return {};
}

}  // namespace

std::span<const Field> openai_responses_fields() {
  return kFields;
}

Answer<void> append_items(const json::array& items, std::string_view place,
                          std::vector<chat::Message>& messages) {
  ItemReader reader(messages);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (auto done = reader.read(items[i], fmt::format("{}[{}]", place, i)); !done) return done;
  }
  return {};
}

Answer<ResponsesRequest> parse_openai_responses(std::string_view text,
                                                const ChatRequest& defaults) {
  auto body = parse_body(text);
  if (!body) return passed_on(body);
  if (auto done = check_fields(*body, kFields); !done) return passed_on(done);
  ResponsesRequest request;
  ChatRequest& chat = request.chat;
  chat = defaults;
  auto model = read_string(*body, "model");
  if (!model) return passed_on(model);
  request.model = model->value_or("");
  auto instructions = read_string(*body, "instructions");
  if (!instructions) return passed_on(instructions);
  request.echo = {{"instructions", nullptr},
                  {"max_output_tokens", nullptr},
                  {"tools", json::array()},
                  {"tool_choice", "auto"},
                  {"metadata", json::object()}};
  if (*instructions) request.echo["instructions"] = **instructions;
  constexpr std::array<std::string_view, 1> kLimits = {"max_output_tokens"};
  if (auto done = read_ways(*body, request); !done) return passed_on(done);
  if (auto done = read_input(*body, request); !done) return passed_on(done);
  if (auto done = read_tools(*body, request); !done) return passed_on(done);
  if (auto done = read_metadata(*body, request); !done) return passed_on(done);
  if (auto done = read_text(*body, request); !done) return passed_on(done);
  if (auto done = read_include(*body, request); !done) return passed_on(done);
  json::object& arguments = chat.conversation.template_arguments;
  if (auto done = assign(arguments,
                         read_template_arguments(*body, defaults.conversation.template_arguments));
      !done)
    return passed_on(done);
  if (auto done = read_chat_fields(*body, chat); !done) return passed_on(done);
  if (auto done = read_max_tokens(*body, kLimits, chat); !done) return passed_on(done);
  if (chat.max_tokens > 0) request.echo["max_output_tokens"] = chat.max_tokens;
  const json::value* effort = given(arguments, "reasoning_effort");
  request.echo["reasoning"] = {{"effort", effort == nullptr ? json::value(nullptr) : *effort},
                               {"summary", nullptr}};
  request.echo["temperature"] = chat.sampling.temperature;
  request.echo["top_p"] = chat.sampling.top_p;
  return request;
}

}  // namespace strata::server
