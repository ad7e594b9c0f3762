#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <random>

#include "base/json.h"
#include "server/openai_chat.h"
#include "server/openai_messages.h"

namespace strata::server {

namespace json = boost::json;

namespace {

constexpr std::string_view kBody = "the request body";

// Fields that are read.
constexpr std::array kHonoured = {"model",
                                  "messages",
                                  "tools",
                                  "tool_choice",
                                  "stream",
                                  "stream_options",
                                  "max_tokens",
                                  "max_completion_tokens",
                                  "temperature",
                                  "top_p",
                                  "top_k",
                                  "min_p",
                                  "seed",
                                  "stop",
                                  "reasoning_effort",
                                  "reasoning",
                                  "chat_template_kwargs"};

// Fields that do not change the answer: bookkeeping of OpenAI's platform and hints about caches.
constexpr std::array kHarmless = {"user",
                                  "store",
                                  "metadata",
                                  "service_tier",
                                  "safety_identifier",
                                  "prompt_cache_key",
                                  "prompt_cache_retention",
                                  "prediction",
                                  "cache_prompt",
                                  "timings_per_token"};

// Fields that would change the answer and are accepted only with the value that changes nothing.
struct Neutral {
  std::string_view name;
  bool (*neutral)(const json::value&);
};

bool is_false(const json::value& value) {
  return value.is_bool() && !value.get_bool();
}
bool is_true(const json::value& value) {
  return value.is_bool() && value.get_bool();
}
bool is_number(const json::value& value, double wanted) {
  json::error_code code;
  return value.is_number() && value.to_number<double>(code) == wanted && !code;
}
bool is_zero(const json::value& value) {
  return is_number(value, 0);
}
bool is_one(const json::value& value) {
  return is_number(value, 1);
}
bool is_empty(const json::value& value) {
  return (value.is_object() && value.get_object().empty()) ||
         (value.is_array() && value.get_array().empty());
}
bool is_text_format(const json::value& value) {
  const auto* object = value.if_object();
  const json::value* type = object == nullptr ? nullptr : object->if_contains("type");
  return type != nullptr && type->is_string() && type->get_string() == "text";
}
bool is_text_modality(const json::value& value) {
  const auto* array = value.if_array();
  return array != nullptr && array->size() == 1 && array->front().is_string() &&
         array->front().get_string() == "text";
}

constexpr std::array kNeutralOnly = {Neutral{"n", is_one},
                                     Neutral{"logprobs", is_false},
                                     Neutral{"top_logprobs", is_zero},
                                     Neutral{"logit_bias", is_empty},
                                     Neutral{"presence_penalty", is_zero},
                                     Neutral{"frequency_penalty", is_zero},
                                     Neutral{"repetition_penalty", is_one},
                                     Neutral{"repeat_penalty", is_one},
                                     Neutral{"response_format", is_text_format},
                                     Neutral{"modalities", is_text_modality},
                                     Neutral{"parallel_tool_calls", is_true}};

std::string_view view(const json::string& text) {
  return {text.data(), text.size()};
}

const json::value* given(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(json::string_view(key.data(), key.size()));
  return value == nullptr || value->is_null() ? nullptr : value;
}

template <class T>
bool listed(const T& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Answer<void> check_fields(const json::object& body) {
  for (const auto& [key, value] : body) {
    const std::string_view name(key.data(), key.size());
    if (value.is_null() || listed(kHonoured, name) || listed(kHarmless, name)) continue;
    const auto neutral = std::find_if(kNeutralOnly.begin(), kNeutralOnly.end(),
                                      [&](const Neutral& field) { return field.name == name; });
    if (neutral == kNeutralOnly.end()) {
      return refuse(400, name, "the field '{}' is not known here; leave it out", name);
    }
    if (!neutral->neutral(value)) {
      return refuse(400, name, "this value of '{}' is not supported yet; leave the field out",
                    name);
    }
  }
  return {};
}

// Numbers -----------------------------------------------------------------------------------

Answer<void> read_float(const json::object& body, std::string_view key, float& out) {
  auto number = find_number(body, key, kBody);
  if (!number) return tl::unexpected<ApiError>(api_error(number.error(), key));
  const std::optional<double> value = *number;
  if (!value) return {};
  if (std::fabs(*value) > 1e6) {
    return refuse(400, key, "'{}' is {}, which is out of range", key, *value);
  }
  out = static_cast<float>(*value);
  return {};
}

Answer<std::optional<std::int64_t>> read_integer(const json::object& body, std::string_view key) {
  auto number = find_integer(body, key, kBody);
  if (!number) return tl::unexpected<ApiError>(api_error(number.error(), key));
  return *number;
}

Answer<bool> read_bool(const json::object& object, std::string_view key, std::string_view name) {
  auto flag = find_bool(object, key, kBody);
  if (!flag) return tl::unexpected<ApiError>(api_error(flag.error(), name));
  return flag->value_or(false);
}

Answer<Sampling> read_sampling(const json::object& body, Sampling sampling) {
  for (const auto& [key, out] :
       {std::pair{"temperature", &sampling.temperature}, std::pair{"top_p", &sampling.top_p},
        std::pair{"min_p", &sampling.min_p}}) {
    if (auto done = read_float(body, key, *out); !done) {
      return tl::unexpected<ApiError>(std::move(done).error());
    }
  }
  auto top_k = read_integer(body, "top_k");
  if (!top_k) return tl::unexpected<ApiError>(std::move(top_k).error());
  if (const std::optional<std::int64_t> given_top_k = *top_k) {
    constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();
    const std::int64_t value = *given_top_k;
    if (value < -1 || value > kLargest) {
      return refuse(400, "top_k", "'top_k' is {}, allowed is 0 (off) to {}", value, kLargest);
    }
    sampling.top_k = value == -1 ? 0 : static_cast<std::int32_t>(value);
  }
  auto seed = read_integer(body, "seed");
  if (!seed) return tl::unexpected<ApiError>(std::move(seed).error());
  if (const std::int64_t value = seed->value_or(-1); value != -1) {
    sampling.seed = static_cast<std::uint64_t>(value);
  } else if (sampling.temperature > 0) {
    std::random_device device;
    sampling.seed = (std::uint64_t{device()} << 32) | device();
  }
  if (auto valid = validate(sampling); !valid) {
    const std::string& message = valid.error().message;
    return tl::unexpected<ApiError>(
        api_error(valid.error(), std::string_view(message).substr(0, message.find(' '))));
  }
  return sampling;
}

// Absent, null, 0 and -1: the room that is left.
Answer<std::uint64_t> read_max_tokens(const json::object& body) {
  for (const std::string_view key : {"max_completion_tokens", "max_tokens"}) {
    auto read = read_integer(body, key);
    if (!read) return tl::unexpected<ApiError>(std::move(read).error());
    const std::optional<std::int64_t> value = *read;
    if (!value) continue;
    if (*value < -1) {
      return refuse(400, key, "'{}' is {}; it must be positive, or 0 or -1 for no limit of its own",
                    key, *value);
    }
    return *value <= 0 ? 0 : static_cast<std::uint64_t>(*value);
  }
  return std::uint64_t{0};
}

Answer<std::vector<std::string>> read_stops(const json::object& body) {
  std::vector<std::string> stops;
  const json::value* value = given(body, "stop");
  if (value == nullptr) return stops;
  const auto add = [&stops](const json::value& stop) {
    if (!stop.is_string()) return false;
    if (!stop.get_string().empty()) stops.emplace_back(view(stop.get_string()));
    return true;
  };
  bool texts = true;
  if (const auto* array = value->if_array()) {
    if (array->size() > kMaxStops) {
      return refuse(400, "stop", "'stop' has {} strings, at most {} are allowed", array->size(),
                    kMaxStops);
    }
    for (const json::value& stop : *array) texts = texts && add(stop);
  } else {
    texts = add(*value);
  }
  if (!texts) return refuse(400, "stop", "'stop' must be a string or an array of strings");
  for (const std::string& stop : stops) {
    if (stop.size() > kMaxStopBytes) {
      return refuse(400, "stop", "a stop string has {} bytes, at most {} are allowed", stop.size(),
                    kMaxStopBytes);
    }
  }
  return stops;
}

// Thinking ----------------------------------------------------------------------------------

Answer<std::string> effort_level(std::string_view word, std::string_view field) {
  struct Spelling {
    std::string_view word, level;
  };
  constexpr std::array kSpellings = {
      Spelling{"none", "none"},     Spelling{"off", "none"},   Spelling{"minimal", "none"},
      Spelling{"disabled", "none"}, Spelling{"false", "none"}, Spelling{"low", "low"},
      Spelling{"medium", "medium"}, Spelling{"high", "high"},  Spelling{"xhigh", "xhigh"},
      Spelling{"max", "max"},       Spelling{"maximum", "max"}};
  for (const Spelling& spelling : kSpellings) {
    if (spelling.word == word) return std::string(spelling.level);
  }
  return refuse(400, field, "'{}' is '{}'; it must be none, low, medium, high, xhigh or max", field,
                word);
}

// reasoning_effort, else reasoning.effort, else chat_template_kwargs.reasoning_effort.
Answer<std::optional<std::string>> read_effort(const json::object& body,
                                               const json::object& template_arguments) {
  const json::value* value = given(body, "reasoning_effort");
  std::string_view field = "reasoning_effort";
  if (const json::value* reasoning = given(body, "reasoning")) {
    const auto* object = reasoning->if_object();
    if (object == nullptr) return refuse(400, "reasoning", "'reasoning' must be an object");
    for (const auto& [key, member] : *object) {
      if (key != "effort" && !member.is_null()) {
        return refuse(400, "reasoning", "'reasoning' may hold 'effort' only, not '{}'",
                      std::string_view(key.data(), key.size()));
      }
    }
    if (value == nullptr) {
      value = given(*object, "effort");
      field = "reasoning.effort";
    }
  }
  if (value == nullptr) {
    value = given(template_arguments, "reasoning_effort");
    field = "chat_template_kwargs.reasoning_effort";
  }
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return refuse(400, field, "'{}' must be a string", field);
  auto level = effort_level(view(value->get_string()), field);
  if (!level) return tl::unexpected<ApiError>(std::move(level).error());
  return std::optional(std::move(*level));
}

Answer<json::object> read_template_arguments(const json::object& body) {
  json::object arguments;
  if (const json::value* value = given(body, "chat_template_kwargs")) {
    const auto* object = value->if_object();
    if (object == nullptr) {
      return refuse(400, "chat_template_kwargs", "'chat_template_kwargs' must be an object");
    }
    for (const std::string_view reserved : {"messages", "tools", "add_generation_prompt"}) {
      if (object->contains(json::string_view(reserved.data(), reserved.size()))) {
        return refuse(400, "chat_template_kwargs",
                      "'chat_template_kwargs' may not hold '{}', which the request itself sets",
                      reserved);
      }
    }
    arguments = *object;
  }
  for (const std::string_view flag : {"enable_thinking", "preserve_thinking"}) {
    const json::value* value = given(arguments, flag);
    if (value != nullptr && !value->is_bool()) {
      return refuse(400, "chat_template_kwargs", "'chat_template_kwargs.{}' must be true or false",
                    flag);
    }
  }
  auto read = read_effort(body, arguments);
  if (!read) return tl::unexpected<ApiError>(std::move(read).error());
  if (const std::optional<std::string>& effort = *read) {
    arguments["reasoning_effort"] = *effort;
    if (*effort == "none") arguments["enable_thinking"] = false;
  }
  return arguments;
}

// Tools -------------------------------------------------------------------------------------

Answer<json::array> read_tools(const json::object& body) {
  json::array tools;
  if (const json::value* value = given(body, "tools")) {
    auto parsed = parse_openai_tools(*value);
    if (!parsed) return parsed;
    tools = std::move(*parsed);
  }
  if (const json::value* choice = given(body, "tool_choice")) {
    const std::string_view word = choice->is_string() ? view(choice->get_string()) : "";
    if (word == "none") return json::array();
    if (word != "auto") {
      return refuse(400, "tool_choice",
                    "a forced tool call ('tool_choice' other than \"auto\" and \"none\") is not "
                    "supported yet");
    }
  }
  return tools;
}

template <class T>
Answer<void> assign(T& target, Answer<T> value) {
  if (!value) return tl::unexpected<ApiError>(std::move(value).error());
  target = std::move(*value);
  return {};
}

Answer<void> read_stream(const json::object& body, OpenAiChatRequest& request) {
  if (auto done = assign(request.stream, read_bool(body, "stream", "stream")); !done) return done;
  const json::value* options = given(body, "stream_options");
  if (options == nullptr) return {};
  const auto* object = options->if_object();
  if (object == nullptr) {
    return refuse(400, "stream_options", "'stream_options' must be an object");
  }
  if (!request.stream) {
    return refuse(400, "stream_options", "'stream_options' needs \"stream\": true");
  }
  for (const auto& [key, value] : *object) {
    // Padding against eavesdroppers of encrypted connections; there is none to pad.
    if (key == "include_usage" || key == "include_obfuscation" || value.is_null()) continue;
    return refuse(400, "stream_options", "'stream_options.{}' is not known here; leave it out",
                  std::string_view(key.data(), key.size()));
  }
  return assign(request.include_usage,
                read_bool(*object, "include_usage", "stream_options.include_usage"));
}

}  // namespace

Answer<OpenAiChatRequest> parse_openai_chat(std::string_view text, const Sampling& defaults) {
  const auto failed = [](auto& result) {
    return tl::unexpected<ApiError>(std::move(result).error());
  };
  auto parsed = parse_json(text, kBody);
  if (!parsed) {
    ApiError error = api_error(parsed.error());
    error.status = 400;
    return tl::unexpected<ApiError>(std::move(error));
  }
  const auto* body = parsed->if_object();
  if (body == nullptr) return refuse(400, "", "the request body must be a JSON object");
  if (auto done = check_fields(*body); !done) return failed(done);
  if (auto model = find_string(*body, "model", kBody); !model) {
    return tl::unexpected<ApiError>(api_error(model.error(), "model"));
  }

  OpenAiChatRequest request;
  ChatRequest& chat = request.chat;
  const json::value* messages = given(*body, "messages");
  if (messages == nullptr) return refuse(400, "messages", "'messages' is missing");
  if (auto done = assign(chat.conversation.messages, parse_openai_messages(*messages)); !done) {
    return failed(done);
  }
  if (auto done = assign(chat.conversation.tools, read_tools(*body)); !done) return failed(done);
  if (auto done = assign(chat.conversation.template_arguments, read_template_arguments(*body));
      !done) {
    return failed(done);
  }
  if (auto done = assign(chat.sampling, read_sampling(*body, defaults)); !done) {
    return failed(done);
  }
  if (auto done = assign(chat.max_tokens, read_max_tokens(*body)); !done) return failed(done);
  if (auto done = assign(chat.stops, read_stops(*body)); !done) return failed(done);
  if (auto done = read_stream(*body, request); !done) return failed(done);
  return request;
}

}  // namespace strata::server
